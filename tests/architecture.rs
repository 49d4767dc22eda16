//! The rules between rooms, held by reading the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::fixture::root;

/// Which rooms a room may import. `main`, `lib`, `app`, `ooda` and `demo` join them all.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("settings", &["model"]),
    ("telemetry", &["model"]),
    ("parquet", &[]),
    ("lake", &["model", "parquet"]),
    ("observe", &["model", "lake", "telemetry", "proto"]),
    ("orient", &["model", "lake", "telemetry"]),
    ("decide", &["model"]),
    ("act", &["model", "lake", "decide", "telemetry"]),
    ("replay", &["model", "lake", "orient", "decide", "settings"]),
    ("serve", &["model", "observe", "telemetry", "proto"]),
    ("cli", &["model", "serve", "proto", "telemetry", "replay", "decide"]),
];

/// Where a crate may be named: path prefixes below `src`.
const CRATES: &[(&str, &[&str])] = &[
    ("iceberg", &["lake/iceberg"]),
    ("iceberg_storage_opendal", &["lake/iceberg"]),
    ("opendal", &["lake/iceberg/store"]),
    ("sqlx", &["act/journal", "lake/iceberg/catalog"]),
    ("tonic", &["observe", "serve", "cli", "proto"]),
    ("hyper", &["lake/iceberg/catalog/rest", "observe/proxy", "observe/gauge"]),
    ("hyper_util", &["lake/iceberg/catalog/rest", "observe/proxy"]),
    ("http_body_util", &["lake/iceberg/catalog/rest", "observe/proxy", "observe/gauge"]),
    ("hyper_rustls", &["lake/iceberg/catalog/rest"]),
    ("reqsign_aws_v4", &["lake/iceberg/catalog/rest"]),
    ("reqsign_core", &["lake/iceberg/catalog/rest"]),
    ("tokio_rustls", &["observe/proxy"]),
    ("rustls_native_certs", &["lake/iceberg/catalog/rest", "observe/proxy"]),
    ("axum", &["observe/http", "serve"]),
    ("parquet", &["lake/iceberg", "parquet"]),
    ("clap", &["cli", "main.rs"]),
    ("cel", &["model/expression"]),
    ("croner", &["model/schedule.rs"]),
    ("chrono_tz", &["model/schedule.rs"]),
    ("rdkafka", &["observe/kafka"]),
];

/// What the pure room may never name.
const NEVER_IN_DECIDE: &[&str] = &["tokio", "futures", "async_trait", "rand", "sqlx", "tonic", "iceberg", "moka", "rustix"];

const LONGEST_FILE: usize = 600;

struct Source {
    /// Path below `src`, with forward slashes.
    path: String,
    text: String,
    /// First segments of every path: `crate::x` as `x` in `rooms`, others in `crates`.
    rooms: BTreeSet<String>,
    crates: BTreeSet<String>,
    is_async: bool,
}

impl Source {
    fn room(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = module.attrs.iter().any(|a| a.path().is_ident("cfg"));
        if !is_test {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_tree(&item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let [first, second, ..] = names.as_slice() {
            self.note(first, Some(second));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.is_async |= signature.asyncness.is_some();
        syn::visit::visit_signature(self, signature);
    }
}

impl Source {
    fn note_tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) if path.ident == "crate" => first_names(&path.tree, &mut self.rooms),
            syn::UseTree::Path(path) => self.note(&path.ident.to_string(), None),
            syn::UseTree::Group(group) => group.items.iter().for_each(|t| self.note_tree(t)),
            _ => {}
        }
    }

    fn note(&mut self, first: &str, second: Option<&String>) {
        match (first, second) {
            ("crate", Some(room)) => drop(self.rooms.insert(room.clone())),
            _ => drop(self.crates.insert(first.to_owned())),
        }
    }
}

fn first_names(tree: &syn::UseTree, into: &mut BTreeSet<String>) {
    match tree {
        syn::UseTree::Path(p) => drop(into.insert(p.ident.to_string())),
        syn::UseTree::Name(n) => drop(into.insert(n.ident.to_string())),
        syn::UseTree::Rename(r) => drop(into.insert(r.ident.to_string())),
        syn::UseTree::Group(g) => g.items.iter().for_each(|t| first_names(t, into)),
        syn::UseTree::Glob(_) => {}
    }
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut paths = Vec::new();
    files(&src, &mut paths);
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(&src).unwrap().to_string_lossy().replace('\\', "/");
            let mut source = Source { path: name, rooms: BTreeSet::new(), crates: BTreeSet::new(), is_async: false, text };
            let file = syn::parse_file(&source.text).unwrap();
            source.visit_file(&file);
            source
        })
        .filter(|s| !s.path.ends_with("tests.rs") && !s.path.contains("/tests/"))
        .collect()
}

#[test]
fn a_room_imports_only_what_its_place_in_the_loop_allows() {
    let mut broken = Vec::new();
    for source in sources() {
        let Some((room, allowed)) = MAY_IMPORT.iter().find(|(room, _)| *room == source.room()) else { continue };
        for other in source.rooms.iter().filter(|o| MAY_IMPORT.iter().any(|(r, _)| r == o)) {
            if other != room && !allowed.contains(&other.as_str()) {
                broken.push(format!("{} imports {other}", source.path));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn a_crate_is_named_in_one_place() {
    let mut broken = Vec::new();
    for source in sources() {
        for (name, places) in CRATES {
            if source.crates.contains(*name) && !places.iter().any(|p| source.path.starts_with(p)) {
                broken.push(format!("{} names the crate {name}", source.path));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn deciding_is_pure() {
    for source in sources().iter().filter(|s| s.room() == "decide") {
        assert!(!source.is_async, "{} is async", source.path);
        for name in NEVER_IN_DECIDE {
            assert!(!source.crates.contains(*name), "{} names {name}", source.path);
        }
    }
}

/// The files of a module and of those below it, whose own lie in `folder`.
fn modules(items: &[syn::Item], folder: &Path, into: &mut BTreeSet<PathBuf>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let below = folder.join(module.ident.to_string());
        if let Some((_, items)) = &module.content {
            modules(items, &below, into);
            continue;
        }
        let file = [below.with_extension("rs"), below.join("mod.rs")].into_iter().find(|file| file.is_file()).unwrap();
        let parsed = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
        into.insert(file);
        modules(&parsed.items, &below, into);
    }
}

#[test]
fn every_file_is_part_of_the_library_or_of_the_tests() {
    for (folder, roots) in [("src", &["lib.rs", "main.rs"][..]), ("tests", &["all.rs", "simulation.rs"])] {
        let folder = root().join(folder);
        let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
        for name in roots {
            let file = folder.join(name);
            let parsed = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
            modules(&parsed.items, &folder, &mut reached);
            reached.insert(file);
        }
        let mut found = vec![];
        files(&folder, &mut found);
        // the benchmarks are a package of their own
        let left: Vec<_> = found.iter().filter(|f| !reached.contains(*f) && !f.starts_with(folder.join("bench"))).collect();
        assert!(left.is_empty(), "files that nothing compiles: {left:?}");
    }
}

#[test]
fn a_file_is_short_enough_to_be_one_room() {
    let long: Vec<_> = sources().iter().filter(|s| s.text.lines().count() > LONGEST_FILE).map(|s| s.path.clone()).collect();
    assert_eq!(long, Vec::<String>::new());
}

/// Calls whose argument says which of many are left out.
const LEAVES_OUT: [&str; 6] = ["filter", "filter_map", "skip_while", "take_while", "retain", "partition"];

/// The members of an enum that the bodies of tests name, as `Enum::Member`. What a test
/// only says that something is not, leaves out, or makes itself, does not count.
struct Named {
    of: &'static str,
    in_test: bool,
    found: BTreeSet<String>,
}

impl Named {
    /// Notes members in the tokens of a macro, which hold no comments; texts do not count.
    fn note_tokens(&mut self, tokens: &str) {
        let (mut plain, mut in_text, mut escaped) = (String::new(), false, false);
        for c in tokens.replace("'\"'", "").chars() {
            match c {
                '"' if !escaped => in_text = !in_text,
                _ if in_text || c.is_whitespace() => {}
                _ => plain.push(c),
            }
            escaped = in_text && c == '\\' && !escaped;
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let start = format!("{}::", self.of);
        for (at, _) in plain.match_indices(&start) {
            let before = plain[..at].trim_end_matches(|c| is_part(c) || c == ':' || c == '&' || c == '*');
            if !plain[..at].ends_with(is_part) && !before.ends_with("!=") {
                self.found.insert(plain[at + start.len()..].chars().take_while(|c| is_part(*c)).collect());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let before = self.in_test;
        self.in_test |= is_run(function);
        syn::visit::visit_item_fn(self, function);
        self.in_test = before;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let [.., name, member] = names.as_slice()
            && self.in_test
            && name == self.of
        {
            self.found.insert(member.clone());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let makes = matches!(&*call.func, syn::Expr::Path(path) if ends_with(&path.path, &["Refused", "new"]));
        self.visit_expr(&call.func);
        call.args.iter().skip(usize::from(makes)).for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_struct(&mut self, made: &'ast syn::ExprStruct) {
        if !ends_with(&made.path, &["Refused"]) {
            syn::visit::visit_expr_struct(self, made);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !matches!(binary.op, syn::BinOp::Ne(_)) {
            syn::visit::visit_expr_binary(self, binary);
        }
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if !matches!(unary.op, syn::UnOp::Not(_)) {
            syn::visit::visit_expr_unary(self, unary);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        if !LEAVES_OUT.iter().any(|name| call.method == name) {
            call.args.iter().for_each(|argument| self.visit_expr(argument));
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let name = called.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        // what follows is told when it fails
        let asserted = match name.as_str() {
            "assert_ne" | "panic" | "format" | "println" | "unreachable" => return,
            "assert" => 1,
            "assert_eq" => 2,
            _ => usize::MAX,
        };
        // a list of expressions is read as such
        let listed = called.parse_body_with(syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        if let (true, Ok(listed)) = (self.in_test, listed) {
            // what is read here lives no longer than this
            let mut inner = Named { of: self.of, in_test: true, found: BTreeSet::new() };
            listed.iter().take(asserted).for_each(|expression| inner.visit_expr(expression));
            self.found.append(&mut inner.found);
            return;
        }
        // a macro around tests, such as `proptest!`, has their attributes in its tokens
        if self.in_test || called.tokens.to_string().replace(' ', "").contains("#[test]") {
            self.note_tokens(&called.tokens.to_string());
        }
    }
}

/// Whether a function is a test that is run.
fn is_run(function: &syn::ItemFn) -> bool {
    let is_test = |a: &syn::Attribute| a.path().segments.last().is_some_and(|s| s.ident == "test");
    function.attrs.iter().any(is_test) && !function.attrs.iter().any(|a| a.path().is_ident("ignore"))
}

fn ends_with(path: &syn::Path, names: &[&str]) -> bool {
    let given: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
    given.iter().rev().map(String::as_str).take(names.len()).eq(names.iter().rev().copied())
}

/// The members of a dangerous enum that no test names in its body.
fn untested(of: &'static str, folders: &[&str], members: impl Iterator<Item = String>) -> Vec<String> {
    let mut paths = Vec::new();
    folders.iter().for_each(|folder| files(&root().join(folder), &mut paths));
    let mut named = Named { of, in_test: false, found: BTreeSet::new() };
    for path in paths {
        named.visit_file(&syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap());
    }
    members.filter(|member| !named.found.contains(member)).collect()
}

#[test]
fn every_refusal_has_a_test() {
    let members = afterwrite::model::refusal::Refusal::ALL.iter().map(|r| format!("{r:?}"));
    assert_eq!(untested("Refusal", &["src", "tests"], members), Vec::<String>::new());
}

/// The kill points by which tests, in their bodies, call what ends the binary at one.
#[derive(Default)]
struct Killed {
    in_test: bool,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Killed {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let before = self.in_test;
        self.in_test |= is_run(function);
        syn::visit::visit_item_fn(self, function);
        self.in_test = before;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        syn::visit::visit_expr_method_call(self, call);
        if self.in_test && call.method.to_string().ends_with("killed_at") {
            let mut named = Named { of: "KillPoint", in_test: true, found: BTreeSet::new() };
            call.args.iter().for_each(|argument| named.visit_expr(argument));
            self.found.append(&mut named.found);
        }
    }
}

/// Tests end the binary at each of `points`, and fail where it is not passed.
#[test]
fn every_kill_point_has_a_test_that_ends_the_binary_there() {
    let (mut killed, mut paths) = (Killed::default(), Vec::new());
    files(&root().join("tests/crash"), &mut paths);
    paths.iter().for_each(|path| killed.visit_file(&syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap()));
    let in_turn: BTreeSet<String> = crate::crash::points::points().map(|point| format!("{point:?}")).collect();
    let all = afterwrite::model::killpoint::KillPoint::ALL.iter().map(|point| format!("{point:?}"));
    assert_eq!(all.filter(|point| !in_turn.contains(point) && !killed.found.contains(point)).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_kill_point_that_a_test_only_mentions_is_none_at_which_it_ends_the_binary() {
    let source = r#"
        #[test]
        fn one() {
            let ended = world.compact_killed_at(KillPoint::Called.code());
            world.place.run_killed_at(KillPoint::Run.code(), &["undo"]);
            match point { KillPoint::Matched => "left" }
            assert_eq!(point, KillPoint::Compared);
        }
        fn helper() { world.compact_killed_at(KillPoint::Helped.code()); }
    "#;
    let mut killed = Killed::default();
    killed.visit_file(&syn::parse_file(source).unwrap());
    assert_eq!(killed.found.into_iter().collect::<Vec<_>>(), ["Called", "Run"]);
}

#[test]
fn only_the_body_of_a_test_counts_as_one() {
    let source = r#"
        // Refusal::Comment
        const LIST: [Refusal; 1] = [Refusal::Listed];
        fn helper() -> Refusal { Refusal::Helper }
        #[test]
        #[ignore]
        fn off() { refuse(Refusal::Ignored); }
        mod tests {
            #[tokio::test(flavor = "multi_thread")]
            async fn one() { /* Refusal::Within */ assert_eq!("Refusal::Text", refuse(Refusal::Asserted)); }
            #[test]
            fn two() { match x { model::Refusal::Matched => {} NotRefusal::Other => {} } assert!(matches!(x, NotRefusal::Third)); }
        }
        proptest! { #[test] fn three(x in any()) { refuse(Refusal::Drawn); prop_assert!(x != Refusal::DrawnNot); } }
        #[test]
        fn four() {
            assert_ne!(x, Refusal::NotOne);
            assert!(x != Refusal::NotTwo && !matches!(x, Refusal::NotThree | Refusal::NotFour));
            let left = Refusal::ALL.iter().filter(|r| **r == Refusal::Filtered).map(|r| Refusal::Mapped);
            if *x != model::Refusal::NotFive { assert!(matches!(x, Refusal::Shaped { .. }), "{}", Refusal::Told); }
            vec![Refusal::Item].retain(|r| Refusal::Kept == r);
            tell(Refused::new(Refusal::Made, "why"), model::Refused { refusal: Refusal::MadeToo, detail });
        }
    "#;
    let mut named = Named { of: "Refusal", in_test: false, found: BTreeSet::new() };
    named.visit_file(&syn::parse_file(source).unwrap());
    assert_eq!(named.found.into_iter().collect::<Vec<_>>(), ["ALL", "Asserted", "Drawn", "Item", "Mapped", "Matched", "Shaped"]);
}
