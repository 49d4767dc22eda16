//! Which writers' statistics readers believe, by the footer's `created_by`.
//!
//! A file that takes over row groups of another takes over their statistics
//! under its own name, so it must not lend its name to statistics that readers
//! would have distrusted.

/// Why the statistics of a file with this `created_by` must not be taken over;
/// `None` when they may.
///
/// Readers expect `application version x.y.z (build …)` and treat anything that
/// does not parse, and the releases known to have written wrong minima and
/// maxima of byte arrays, as broken.
pub fn distrust(created_by: Option<&str>) -> Option<String> {
    let Some(text) = created_by.map(str::trim).filter(|t| !t.is_empty()) else {
        return Some("its writer did not name itself".into());
    };
    let Some((application, version)) = application_and_version(text) else {
        return Some(format!("its writer's name `{text}` is not `application version x.y.z`"));
    };
    let fixed = BROKEN_BEFORE.iter().find(|(name, _)| *name == application)?.1;
    match numbers(version) {
        Some(found) if found >= fixed => None,
        Some(_) => Some(format!("`{text}` is known to write wrong statistics")),
        None => Some(format!("the version in `{text}` is not x.y.z")),
    }
}

/// Applications with the first release whose statistics are right.
const BROKEN_BEFORE: &[(&str, [u32; 3])] = &[("parquet-mr", [1, 10, 0]), ("parquet-cpp", [1, 3, 0]), ("impala", [3, 0, 0])];

fn application_and_version(text: &str) -> Option<(String, &str)> {
    let (application, rest) = text.split_once(" version ")?;
    let version = rest.split_whitespace().next()?;
    (!application.is_empty() && !version.starts_with('(')).then(|| (application.to_ascii_lowercase(), version))
}

fn numbers(version: &str) -> Option<[u32; 3]> {
    let core = version.split(['-', '+']).next()?;
    let mut parts = core.split('.');
    let mut next = || parts.next()?.parse::<u32>().ok();
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_broken_writers_are_not_taken_over() {
        let trusted = |text| distrust(Some(text)).is_none();
        let cases = [
            ("parquet-mr version 1.15.2 (build 859eac165b08f927fa14590c34bc3f476405fb68)", true),
            ("parquet-mr version 1.9.0 (build x)", false),
            ("parquet-mr version 1.8.1", false),
            ("parquet-mr version 1.7", false),
            ("parquet-mr", false),
            ("parquet-cpp version 1.2.9", false),
            ("parquet-cpp-arrow version 21.0.0", true),
            ("parquet-rs version 58.4.1", true),
            ("DuckDB version v1.4.1 (build b390a7c376)", true),
            ("parquet-mr-trino version n/a (build n/a)", true),
            ("impala version 2.12.0 (build y)", false),
            ("Polars", false),
            ("  ", false),
            (concat!("afterwrite version ", env!("CARGO_PKG_VERSION"), " (build release)"), true),
        ];
        for (text, expected) in cases {
            assert_eq!(trusted(text), expected, "{text}");
        }
        assert!(distrust(None).is_some());
    }
}
