//! Planted bugs, each a patch of one line; `mutants/run` shows that the simulation
//! catches each of them.

/// A patch applies when the line that it takes away stands once in its file.
#[test]
fn every_planted_bug_still_fits_the_sources() {
    let root = crate::fixture::root();
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("tests/sim/mutants")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "patch") {
            continue;
        }
        count += 1;
        let patch = std::fs::read_to_string(&path).unwrap();
        let file = patch.lines().find_map(|l| l.strip_prefix("--- a/")).unwrap();
        let source = std::fs::read_to_string(root.join(file)).unwrap();
        for hunk in patch.lines().skip_while(|l| !l.starts_with("@@")).collect::<Vec<_>>().split(|l| l.starts_with("@@")).skip(1) {
            let old: Vec<&str> = hunk.iter().filter(|l| !l.starts_with('+')).map(|l| &l[1..]).collect();
            let found = source.matches(&format!("{}\n", old.join("\n"))).count();
            assert_eq!((found, hunk.len()), (1, 2), "{} does not fit {file}", path.display());
        }
    }
    assert_eq!(count, 6);
}
