//! Words of JSON that several formats share.

use std::fmt;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a body.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|e| e.to_string())
}

/// A whole number of 64 bits with its sign, written as a number or as a text. One
/// that went through a double is not taken: it may be another one by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub i64);

/// A count, written as a number or as a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(pub u64);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let whole = d.deserialize_any(Whole)?;
        i64::try_from(whole).map(Id).map_err(|_| D::Error::custom(format!("{whole} does not fit 64 bits")))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let whole = d.deserialize_any(Whole)?;
        u64::try_from(whole).map(Count).map_err(|_| D::Error::custom(format!("{whole} is not a count")))
    }
}

struct Whole;

impl Visitor<'_> for Whole {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, or a text of one")
    }

    fn visit_i64<E>(self, v: i64) -> Result<i128, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<i128, E> {
        Ok(v.into())
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<i128, E> {
        let short = v.len() <= 20;
        v.parse().ok().filter(|_| short).ok_or_else(|| E::custom("expected a whole number of 64 bits in decimal"))
    }
}

/// The sum of the files that a snapshot summary says were added.
pub(super) fn files_added(summary: &std::collections::BTreeMap<String, String>) -> u64 {
    let count = |key| summary.get(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    count("added-data-files").saturating_add(count("added-delete-files"))
}

/// The levels of a namespace written as one text.
pub(super) fn levels(text: &str) -> Vec<String> {
    let by = if text.contains('\u{1f}') { '\u{1f}' } else { '.' };
    text.split(by).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_whole_or_not_at_all() {
        let id = |text: &str| read::<Id>(text.as_bytes()).map(|id| id.0).ok();
        assert_eq!(id("9007199254740993"), Some(9_007_199_254_740_993));
        assert_eq!(id("\"-9223372036854775808\""), Some(i64::MIN));
        assert_eq!([id("9007199254740993.0"), id("1e3"), id("9223372036854775808"), id("\" 1\""), id("null")], [None; 5]);
    }

    #[test]
    fn counts_are_not_negative() {
        let count = |text: &str| read::<Count>(text.as_bytes()).map(|c| c.0).ok();
        assert_eq!([count("18446744073709551615"), count("\"7\""), count("-1")], [Some(u64::MAX), Some(7), None]);
    }
}
