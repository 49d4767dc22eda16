//! Which small manifests one commit joins, so that their number stays bounded.

use std::collections::HashMap;

/// The table's own rules for joining manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `commit.manifest-merge.enabled`
    pub enabled: bool,
    /// `commit.manifest.min-count-to-merge`
    pub min_count: usize,
    /// `commit.manifest.target-size-bytes`
    pub target_bytes: u64,
}

/// How many manifests one commit joins at most: it bounds the time in which
/// another writer can win.
const MOST_AT_ONCE: usize = 500;

/// Manifests that are written anew are joined up to so many bytes.
const SMALL_BYTES: u64 = 1 << 20;

impl Rules {
    /// From table properties. A value that is not a number counts as absent.
    pub fn of(properties: &HashMap<String, String>) -> Self {
        let number = |key: &str| properties.get(key).and_then(|v| v.trim().parse::<u64>().ok());
        Self {
            enabled: properties.get("commit.manifest-merge.enabled").is_none_or(|v| !v.trim().eq_ignore_ascii_case("false")),
            min_count: number("commit.manifest.min-count-to-merge").and_then(|v| usize::try_from(v).ok()).unwrap_or(100),
            target_bytes: number("commit.manifest.target-size-bytes").unwrap_or(8 << 20),
        }
    }

    /// The places, in `sizes`, of the manifests to join into one: newest first as
    /// manifest lists are, while their bytes stay within the target. Empty when
    /// there are too few manifests, or fewer than two fit.
    ///
    /// `sizes` are the bytes of all manifests of one spec and content; `new` of
    /// them are to be added by this commit.
    pub fn choose(&self, sizes: &[u64], new: usize) -> Vec<usize> {
        if !self.enabled || sizes.len().saturating_add(new) < self.min_count.max(2) {
            return Vec::new();
        }
        let mut chosen = Vec::new();
        let mut total = 0u64;
        for (place, bytes) in sizes.iter().enumerate() {
            let with = total.saturating_add(*bytes);
            if with <= self.target_bytes && chosen.len() < MOST_AT_ONCE {
                total = with;
                chosen.push(place);
            }
        }
        if chosen.len() + new < 2 { Vec::new() } else { chosen }
    }

    /// The places, in `sizes`, of the manifests to join among those that this commit
    /// writes anew in any case: one costs it, and all who read the table after it, less
    /// than several. They stay small, for the next commit may have to write them again.
    ///
    /// `sizes` are their bytes, all of one spec and content; `new` are to be added.
    pub fn choose_changed(&self, sizes: &[u64], new: usize) -> Vec<usize> {
        let rules = Self { min_count: 2, target_bytes: self.target_bytes.min(SMALL_BYTES), ..*self };
        rules.choose(sizes, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(min_count: usize, target_bytes: u64) -> Rules {
        Rules { enabled: true, min_count, target_bytes }
    }

    #[test]
    fn few_manifests_are_left_alone() {
        assert_eq!(rules(4, 100).choose(&[1, 1], 1), Vec::<usize>::new());
        assert_eq!(rules(4, 100).choose(&[1, 1, 1], 1), [0, 1, 2]);
    }

    #[test]
    fn what_is_joined_stays_within_the_target() {
        assert_eq!(rules(2, 10).choose(&[4, 20, 5, 3, 1], 0), [0, 2, 4]);
        assert_eq!(rules(2, 10).choose(&[20, 20, 5], 0), Vec::<usize>::new());
    }

    #[test]
    fn what_is_written_anew_is_joined_however_few_there_are() {
        assert_eq!(rules(100, 8 << 20).choose_changed(&[1, 1], 1), [0, 1]);
        assert_eq!(rules(100, 8 << 20).choose_changed(&[1], 1), [0]);
        assert_eq!(rules(100, 8 << 20).choose_changed(&[1], 0), Vec::<usize>::new());
        // while it stays small, by our measure and by the table's
        assert_eq!(rules(100, 8 << 20).choose_changed(&[1 << 19, 1 << 20, 1 << 19], 1), [0, 2]);
        assert_eq!(rules(100, 10).choose_changed(&[6, 6, 3], 1), [0, 2]);
        assert_eq!(Rules { enabled: false, ..rules(100, 10) }.choose_changed(&[1, 1], 1), Vec::<usize>::new());
    }

    #[test]
    fn the_tables_properties_rule() {
        let set = |k: &str, v: &str| HashMap::from([(k.to_owned(), v.to_owned())]);
        assert_eq!(Rules::of(&HashMap::new()), rules(100, 8 << 20));
        assert!(!Rules::of(&set("commit.manifest-merge.enabled", "False")).enabled);
        assert_eq!(Rules::of(&set("commit.manifest.min-count-to-merge", "2")).min_count, 2);
        assert_eq!(Rules::of(&set("commit.manifest.target-size-bytes", "many")).target_bytes, 8 << 20);
        let off = Rules { enabled: false, ..rules(2, 100) };
        assert_eq!(off.choose(&[1; 200], 1), Vec::<usize>::new());
    }
}
