//! Claims: what a sidecar writes into a table's properties before it rewrites there,
//! so that others, with journals of their own, leave the table to it.
//!
//! Each sidecar has a key of its own, and looks at the table again after it has written
//! it. Of two that write, the one that looks later sees the other's: at most one finds
//! itself alone. That holds over catalogs that compare no more than the heads of
//! branches, too.

use std::collections::BTreeMap;

/// What the properties of claims begin with; the instance follows, and the value is the
/// time until which it claims the table, in milliseconds since the epoch.
pub const CLAIM_PREFIX: &str = "afterwrite.claim.";

/// No claim is believed that would last longer, in milliseconds: its clock tells nothing.
pub const LONGEST_CLAIM_MS: i64 = 24 * 3_600_000;

/// A claim on a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The lasting id of the sidecar's instance.
    pub instance: String,
    /// Until when, in milliseconds since the epoch.
    pub until_ms: i64,
}

/// The property of an instance's claim.
pub fn key(instance: &str) -> String {
    format!("{CLAIM_PREFIX}{instance}")
}

/// Every claim that a table's properties carry and that is not over. What cannot be
/// read is none.
pub fn standing(properties: &BTreeMap<String, String>, now_ms: i64) -> impl Iterator<Item = Claim> {
    written(properties).filter_map(move |(instance, value)| {
        let until_ms: i64 = value.parse().ok()?;
        let lasts = until_ms > now_ms && until_ms <= now_ms.saturating_add(LONGEST_CLAIM_MS);
        lasts.then(|| Claim { instance: instance.to_owned(), until_ms })
    })
}

/// The claim of another instance that lasts longest.
pub fn of_another(properties: &BTreeMap<String, String>, instance: &str, now_ms: i64) -> Option<Claim> {
    standing(properties, now_ms).filter(|claim| claim.instance != instance).max_by_key(|claim| claim.until_ms)
}

/// Until when an instance itself claims the table.
pub fn own_until_ms(properties: &BTreeMap<String, String>, instance: &str, now_ms: i64) -> Option<i64> {
    standing(properties, now_ms).find(|claim| claim.instance == instance).map(|claim| claim.until_ms)
}

/// The properties of claims that mean nothing any more.
pub fn over(properties: &BTreeMap<String, String>, now_ms: i64) -> Vec<String> {
    let stand: Vec<String> = standing(properties, now_ms).map(|claim| claim.instance).collect();
    written(properties).filter(|(instance, _)| !stand.iter().any(|other| other == instance)).map(|(instance, _)| key(instance)).collect()
}

fn written(properties: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let from = properties.range(CLAIM_PREFIX.to_owned()..);
    from.map_while(|(key, value)| Some((key.strip_prefix(CLAIM_PREFIX)?, value.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn properties(claims: &[(&str, &str)]) -> BTreeMap<String, String> {
        let others = [("afterwrite.claims", "9"), ("afterwrite.act", "true"), ("write.format.default", "parquet")];
        let others = others.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
        claims.iter().map(|(instance, until)| (key(instance), (*until).to_owned())).chain(others).collect()
    }

    #[test]
    fn the_claim_of_another_that_lasts_longest_is_the_one_that_counts() {
        let held = properties(&[("a", "1000001"), ("b", "1000009"), ("c", "1000005")]);
        assert_eq!(of_another(&held, "b", NOW), Some(Claim { instance: "c".into(), until_ms: NOW + 5 }));
        assert_eq!((own_until_ms(&held, "b", NOW), own_until_ms(&held, "d", NOW)), (Some(NOW + 9), None));
        assert_eq!(of_another(&held, "d", NOW + 9), None);
        assert_eq!(of_another(&properties(&[]), "a", NOW), None);
    }

    #[test]
    fn a_claim_that_is_over_or_of_no_sense_is_none_and_goes_with_the_next() {
        let far = (NOW + LONGEST_CLAIM_MS + 1).to_string();
        let held = properties(&[("a", "1000000"), ("b", "soon"), ("c", &far), ("d", "1000001"), ("e", "-9223372036854775808")]);
        assert_eq!(standing(&held, NOW).map(|claim| claim.instance).collect::<Vec<_>>(), ["d"]);
        assert_eq!(over(&held, NOW), ["a", "b", "c", "e"].map(key));
        assert_eq!(over(&held, i64::MAX), ["a", "b", "c", "d", "e"].map(key));
    }
}
