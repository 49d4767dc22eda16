//! Prometheus' text format, as far as one gauge of it is looked for.
//!
//! A sample is a line `name{label="value",…} number [time]`. Times are in milliseconds;
//! in OpenMetrics, whose lines are else the same, in seconds.

use std::collections::BTreeMap;

/// What the samples of a metric come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// Their sum.
    pub value: f64,
    /// The time of the oldest that carries one, in milliseconds since the epoch.
    pub at_ms: Option<i64>,
}

type Labels = BTreeMap<String, String>;

/// The sum of all samples of a metric that have these labels, whatever others they have.
///
/// # Errors
/// When there is none, when one cannot be read, or is no number from 0 up.
pub fn sum(text: &str, metric: &str, wanted: &Labels, in_seconds: bool) -> Result<Sum, String> {
    let mut found: Option<Sum> = None;
    let mut other: Option<Labels> = None;
    for (line, at) in text.lines().zip(1..) {
        let Some(rest) = line.trim_start().strip_prefix(metric) else { continue };
        // the name of another metric may begin alike
        if !rest.starts_with(['{', ' ', '\t']) {
            continue;
        }
        let unreadable = || format!("line {at}: a sample of {metric} cannot be read: `{}`", shortened(line));
        let (labels, rest) = labels(rest.trim_start()).ok_or_else(unreadable)?;
        if !wanted.iter().all(|(name, value)| labels.get(name) == Some(value)) {
            other = other.or(Some(labels));
            continue;
        }
        let mut words = rest.split_ascii_whitespace();
        let value: f64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(unreadable)?;
        if !value.is_finite() || value < 0.0 {
            return Err(format!("line {at}: {metric} is {value}: a number from 0 up is needed"));
        }
        // what follows in OpenMetrics is an exemplar
        let time = words.next().filter(|word| !word.starts_with('#'));
        let at_ms = time.map(|word| millis(word, in_seconds).ok_or_else(unreadable)).transpose()?;
        let so_far = found.unwrap_or(Sum { value: 0.0, at_ms: None });
        found = Some(Sum { value: so_far.value + value, at_ms: so_far.at_ms.into_iter().chain(at_ms).min() });
    }
    found.ok_or_else(|| match other {
        Some(labels) => format!("no sample of {metric} has the labels {}; one has {}", shown(wanted), shown(&labels)),
        None => format!("there is no sample of {metric}"),
    })
}

fn millis(word: &str, in_seconds: bool) -> Option<i64> {
    let time: f64 = word.parse().ok().filter(|time: &f64| time.is_finite())?;
    Some(if in_seconds { time * 1000.0 } else { time } as i64)
}

/// The labels at the beginning of a text, and what follows them.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else { return Some((labels, text)) };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        labels.insert(name.trim().to_owned(), value);
        rest = after.trim_start();
        rest = rest.strip_prefix(',').or(rest.starts_with('}').then_some(rest))?;
    }
}

/// A text in quotes at the beginning of another one, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
}

fn shown(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", pairs.join(","))
}

fn shortened(line: &str) -> String {
    line.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP free_bytes Memory that is free
# TYPE free_bytes gauge
free_bytes_total 99
free_bytes{pool=\"batch\",node=\"a\"} 1e9 1700000001000
  free_bytes { pool = \"batch\" , node=\"b\", } 2000000000 1700000000000
free_bytes{pool=\"a \\\"}\\\\ b\\n\"} 5
free 7
";

    fn labels_of(given: &[(&str, &str)]) -> Labels {
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn sum_of(metric: &str, given: &[(&str, &str)]) -> Result<Sum, String> {
        sum(TEXT, metric, &labels_of(given), false)
    }

    #[test]
    fn all_samples_that_have_the_labels_are_added_up_and_the_oldest_tells_the_time() {
        assert_eq!(sum_of("free_bytes", &[("pool", "batch")]), Ok(Sum { value: 3e9, at_ms: Some(1_700_000_000_000) }));
        assert_eq!(sum_of("free_bytes", &[("pool", "batch"), ("node", "a")]), Ok(Sum { value: 1e9, at_ms: Some(1_700_000_001_000) }));
        assert_eq!(sum_of("free_bytes", &[("pool", "a \"}\\ b\n")]), Ok(Sum { value: 5.0, at_ms: None }));
        assert_eq!(sum_of("free", &[]), Ok(Sum { value: 7.0, at_ms: None }));
    }

    #[test]
    fn what_is_not_there_is_told_apart_from_what_has_other_labels() {
        assert_eq!(sum_of("fre", &[]), Err("there is no sample of fre".into()));
        let why = sum_of("free_bytes", &[("pool", "x")]).unwrap_err();
        assert_eq!(why, "no sample of free_bytes has the labels {pool=\"x\"}; one has {node=\"a\",pool=\"batch\"}");
    }

    #[test]
    fn what_is_no_amount_or_cannot_be_read_is_named_with_its_line() {
        let of = |text: &str| sum(text, "m", &Labels::new(), false).unwrap_err();
        for text in ["\nm NaN", "\nm +Inf", "\nm -1"] {
            assert!(of(text).starts_with("line 2: m is "), "{}", of(text));
        }
        for text in ["m x", "m", "m{", "m{a}", "m{a=\"b} 1", "m{a=\"b\" c=\"d\"} 1", "m{a=\"b\"}", "m 1 soon"] {
            let text = format!("{text} ");
            assert!(of(&text).starts_with("line 1: a sample of m cannot be read"), "{text}: {}", of(&text));
        }
    }

    #[test]
    fn openmetrics_counts_seconds_and_may_carry_exemplars() {
        let of = |text: &str| sum(text, "m", &Labels::new(), true);
        assert_eq!(of("m 1 1700000000.5\n# EOF"), Ok(Sum { value: 1.0, at_ms: Some(1_700_000_000_500) }));
        assert_eq!(of("m 1 # {trace=\"x\"} 0.5"), Ok(Sum { value: 1.0, at_ms: None }));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(m|\\{|\\}|=|\"|,|\\\\| |1|\n|a){0,60}") {
            let _ = sum(&text, "m", &labels_of(&[("a", "1")]), false);
        }
    }
}
