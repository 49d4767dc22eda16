use proptest::prelude::*;

use super::*;
use crate::model::layout::Tier;
use crate::model::traits::Traits;

const DAY: i64 = 86_400_000;

fn facts(traits: &Traits) -> Facts<'_> {
    Facts {
        traits,
        table: "lake.sales.orders",
        table_bytes: 5 << 20,
        table_age_ms: DAY,
        target_file_size: 512 << 20,
        since_rewrite_ms: None,
    }
}

fn traits() -> Traits {
    Traits { data_files: 10, small_file_count: 8, file_count_reduction: 7, small_bytes: 100, delete_ratio: 0.25, ..Traits::default() }
}

fn holds(text: &str) -> Result<bool, Failure> {
    Expression::of_type(text, &[], Type::Truth).unwrap().holds(&facts(&traits()))
}

fn number(text: &str) -> Result<f64, Failure> {
    Expression::of_type(text, &[], Type::Number).unwrap().number(&facts(&traits()))
}

fn mistake(text: &str) -> (usize, String) {
    let mistake = Expression::of_type(text, &[], Type::Truth).unwrap_err();
    (mistake.column, mistake.message)
}

fn own(name: &str, text: &str, before: &[Own]) -> Own {
    Own { name: name.into(), is: Expression::of_type(text, before, Type::Number).unwrap(), meaning: String::new(), weight: 0.0 }
}

#[test]
fn whole_numbers_and_doubles_go_together() {
    assert_eq!(number("small_file_count / data_files * 100 + 1 - -2"), Ok(83.0));
    for text in [
        "small_file_count >= 8",
        "small_file_count > 7.5 && !(delete_ratio > 0.25)",
        "data_files == 10 || 1 / 0 > 1",
        "small_file_count < 3 ? false : file_count_reduction != 0",
        "table.startsWith('lake.sales.') && table.endsWith('orders') && table.contains('sales')",
        "table == 'lake.sales.orders'",
        "target_file_size == 536870912 && table_age <= 86400000 && 18446744073709551615u > 1",
    ] {
        assert_eq!(holds(text), Ok(true), "{text}");
    }
}

#[test]
fn what_is_not_known_is_told_by_name_unless_it_does_not_matter() {
    assert_eq!(holds("read_rate > 1"), Err(Failure::Unknown("read_rate".into())));
    assert_eq!(Failure::Unknown("read_rate".into()).to_string(), "`read_rate` is not known here");
    assert_eq!(holds("small_file_count > 1 || read_rate > 1"), Ok(true));
    assert_eq!(holds("read_rate > 1 && small_file_count > 100"), Ok(false));
    assert_eq!([holds("known(read_rate)"), holds("known(data_files)")], [Ok(false), Ok(true)]);
    assert_eq!((number("default(read_rate, 3)"), number("default(data_files, 3)")), (Ok(3.0), Ok(10.0)));
}

#[test]
fn what_comes_to_no_number_is_told_so() {
    assert_eq!((number("1 / 0"), number("0 / 0 + 1")), (Err(Failure::NoNumber), Err(Failure::NoNumber)));
    assert_eq!(holds("0 / 0 > 1"), Err(Failure::NoNumber));
}

#[test]
fn own_traits_stand_for_what_they_are_and_may_name_those_before_them() {
    let waste = own("waste", "small_file_count * default(read_rate, 2)", &[]);
    let twice = own("twice", "waste + waste", std::slice::from_ref(&waste));
    let all = [waste, twice];
    let expression = Expression::of_type("twice == 32 && known(twice) == known(read_rate)", &all, Type::Truth).unwrap();
    assert_eq!(expression.holds(&facts(&traits())), Ok(true));
    let known = Traits { read_rate: Some(5.0), ..traits() };
    assert_eq!(Expression::of_type("twice", &all, Type::Number).unwrap().number(&facts(&known)), Ok(80.0));
    // written down and read again it is the same
    let json = serde_json::to_string(&expression).unwrap();
    let read: Expression = serde_json::from_str(&json).unwrap();
    assert_eq!((&read, read.holds(&facts(&traits()))), (&expression, Ok(true)));
}

#[test]
fn mistakes_are_found_at_load_with_their_place() {
    for (text, column, message) in [
        ("read_rat > 1", 1, "unknown trait `read_rat`; did you mean `read_rate`?"),
        ("1 < 2 && nosuch > 1", 10, "unknown trait `nosuch`; there are small_file_count, "),
        ("data_files > table", 14, "`>` takes a number, and this is a text"),
        ("data_files && true", 1, "`&&` takes true or false, and this is a number"),
        ("data_files == true", 12, "`==` must be of one type: here are a number and true or false"),
        ("true ? 1 : 'a'", 6, "both sides of `:` must be of one type"),
        ("data_files ? true : false", 1, "the condition before `?` takes true or false"),
        ("data_files % 2 == 0", 12, "there is no `%`: all numbers are doubles"),
        ("data_files + 1", 1, "it gives a number, and true or false is needed"),
        ("size('a') > 1", 5, "there is no `size`"),
        ("known(1)", 6, "write known(NAME)"),
        ("default(table, 1) == 'a'", 8, "both arguments of `default`"),
        ("table.matches('a')", 14, "there is no `.matches`; texts have startsWith"),
        ("data_files.x > 1", 11, "names have no parts"),
        ("[1, 2].exists(x, x > 1)", 14, "there is no `.exists(…)` of so many arguments"),
        ("data_files in [1]", 12, "there is no `in`"),
        ("null == null", 1, "neither a number"),
        ("read_rate >", 12, ""),
        ("", 1, ""),
        ("é'", 1, ""),
    ] {
        let (at, said) = mistake(text);
        assert!(said.contains(message), "{text}: {said}");
        assert_eq!(at, column, "{text}: {said}");
    }
}

#[test]
fn what_is_too_long_or_too_deep_is_not_read() {
    assert!(mistake(&"1".repeat(LONGEST + 1)).1.contains("at most 1000 are read"));
    assert!(mistake(&format!("{}1{}", "(".repeat(21), ")".repeat(21))).1.contains("more than 20 brackets"));
    let many = |n: usize| format!("{} > 0", vec!["1"; n].join("+"));
    assert!(mistake(&many(62)).1.contains("more than 60 signs of operators"));
    assert_eq!(holds(&many(60)), Ok(true));
    // traits that double each other do not grow without bound
    let mut all: Vec<Own> = vec![own("t0", "data_files + data_files", &[])];
    let mut refused = None;
    for at in 1..20 {
        let text = format!("t{0} + t{0}", at - 1);
        match Expression::of_type(&text, &all, Type::Number) {
            Ok(is) => all.push(Own { name: format!("t{at}").into(), is, meaning: String::new(), weight: 0.0 }),
            Err(mistake) => {
                refused = Some(mistake.message);
                break;
            }
        }
    }
    assert!(refused.unwrap().contains("more than 500 parts"));
    // nor do those that lie within each other
    let mut all: Vec<Own> = vec![own("t0", &vec!["1"; 50].join("+"), &[])];
    all.push(own("t1", "t0", &all));
    let deep = Expression::compile(&format!("t1 + {}", vec!["1"; 20].join("+")), &all).unwrap_err();
    assert!(deep.message.contains("more than 64 deep"), "{deep}");
}

#[test]
fn fragments_are_told_from_the_tiers() {
    let mut traits = Traits::default();
    traits.small_tiers[2] = Tier { files: 3, bytes: 3 };
    traits.small_tiers[1] = Tier { files: 5, bytes: 5 * (64 << 20) };
    let fragments = |traits: &Traits| Expression::of_type("fragments", &[], Type::Number).unwrap().number(&facts(traits));
    assert_eq!(fragments(&traits), Ok(8.0));
    traits.small_tiers[1].bytes += 1;
    assert_eq!(fragments(&traits), Ok(3.0));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[ -~é]{0,60}") {
        if let Ok(expression) = Expression::compile(&text, &[]) {
            let _ = expression.holds(&facts(&traits()));
            let _ = expression.number(&facts(&traits()));
        }
    }

    #[test]
    fn what_was_checked_fails_only_by_what_is_not_known_or_is_no_number(
        parts in prop::collection::vec(
            (prop::sample::select(names()), prop::sample::select(vec!["+", "-", "*", "/"]), -3i64..9), 1..8,
        ),
        compare in prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]),
        traits in (any::<u32>(), 0.0f64..2.0, proptest::option::of(0.0f64..1e9)),
    ) {
        let sum: Vec<String> = parts.iter().filter(|(n, ..)| *n != "table").map(|(n, o, k)| format!("{n} {o} {k}")).collect();
        prop_assume!(!sum.is_empty());
        let text = format!("{} {compare} 3", sum.join(" + "));
        let traits = Traits { small_file_count: traits.0.into(), delete_ratio: traits.1, read_rate: traits.2, ..Traits::default() };
        let expression = Expression::of_type(&text, &[], Type::Truth).unwrap();
        let one = expression.holds(&facts(&traits));
        prop_assert!(!matches!(one, Err(Failure::Other(_))), "{text}: {one:?}");
        prop_assert_eq!(one, expression.holds(&facts(&traits)));
    }
}
