//! What a catalog says when it refuses a commit, beyond the status.

use std::sync::{Mutex, PoisonError};

use hyper::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use uuid::Uuid;

use super::commit::Added;

/// A refusal in the protocol's error model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// The name of the error.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Its text.
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
struct Wire {
    error: Refusal,
}

/// The refusal that a body holds; `None` when it is something else, such as a
/// gateway's page.
pub fn read(body: &[u8]) -> Option<Refusal> {
    serde_json::from_slice::<Wire>(body).ok().map(|wire| wire.error)
}

impl Refusal {
    /// Whether it is the catalog's own word that something else came before. By
    /// other names a catalog may say that the same request is still worked on.
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind.as_str(), "CommitFailedException" | "AlreadyExistsException")
    }

    /// Whether it speaks of a snapshot that the commit adds, as a number of its own:
    /// `expected id 1 != 2` of the branch's head, or that snapshot 2 is there already.
    /// Then the catalog may know it from a first copy of the request.
    pub fn names_one_of(&self, adds: &[Added]) -> bool {
        let mut numbers = self.message.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
        numbers.any(|number| adds.iter().any(|added| added.id.unsigned_abs().to_string() == number))
    }
}

/// Whether the catalog knows a request again by its key, by all that its config
/// answers have said.
///
/// The protocol has it then that a second copy of a request that was applied is
/// answered as the first was, so that a conflict is never the echo of a success.
#[derive(Debug, Default)]
pub struct Keys(Mutex<Option<bool>>);

impl Keys {
    /// Takes note of a config answer. One that promises nothing stands for good:
    /// warehouses behind one address may differ.
    pub fn learn(&self, promised: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.unwrap_or(true) && promised);
    }

    /// Whether a request with these headers is known again. A key that is no UUID
    /// of version 7 is passed over by catalogs.
    pub fn hold_for(&self, headers: &HeaderMap) -> bool {
        let key = headers.get("idempotency-key").map(HeaderValue::as_bytes).and_then(|key| std::str::from_utf8(key).ok());
        let is_key = key.is_some_and(|key| key.len() == 36 && Uuid::try_parse(key).is_ok_and(|uuid| uuid.get_version_num() == 7));
        is_key && *self.0.lock().unwrap_or_else(PoisonError::into_inner) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(id: i64) -> Added {
        Added { id, parent: None, sequence: 0, files: 0, touched: vec![], own: false }
    }

    #[test]
    fn a_refusal_is_read_from_the_error_model_alone() {
        let body = br#"{"error":{"message":"Requirement failed","type":"CommitFailedException","code":409,"stack":["x"]}}"#;
        let refusal = read(body).unwrap();
        assert_eq!((refusal.kind.as_str(), refusal.message.as_str()), ("CommitFailedException", "Requirement failed"));
        assert!(refusal.is_conflict());
        for (kind, is_conflict) in [("AlreadyExistsException", true), ("RequestInProgress", false), ("", false)] {
            assert_eq!(Refusal { kind: kind.into(), message: String::new() }.is_conflict(), is_conflict, "{kind}");
        }
        assert_eq!(read(br#"{"error":{}}"#), Some(Refusal::default()));
        for other in [&b"<html>409</html>"[..], b"", b"{}", br#"{"error":"x"}"#] {
            assert_eq!(read(other), None);
        }
    }

    #[test]
    fn a_snapshot_is_named_by_its_whole_number() {
        let names = |message: &str, id| Refusal { message: message.into(), ..Refusal::default() }.names_one_of(&[added(5), added(id)]);
        for message in [
            "Requirement failed: branch main has changed: expected id 123 != 6204420083779312050",
            "Snapshot already exists for id: 6204420083779312050",
            "Snapshot already exists for: '6204420083779312050'",
            "found => Some(6204420083779312050)",
        ] {
            assert!(names(message, 6_204_420_083_779_312_050), "{message}");
            assert!(!names(message, 620_442_008_377_931_205), "{message}");
        }
        assert!(names("snapshot -7", -7));
        assert!(!names("Cannot add snapshot with sequence number 55 older than last sequence number 56", 6));
        assert!(!names("Injected conflict", 1));
    }

    #[test]
    fn a_key_counts_where_every_config_answer_promised_it() {
        let with = |key: &str| HeaderMap::from_iter([("idempotency-key".parse().unwrap(), key.parse().unwrap())]);
        let key = with("019a5d2e-7c1b-7f3a-8b1c-0123456789ab");
        let keys = Keys::default();
        assert!(!keys.hold_for(&key), "nothing was said yet");
        keys.learn(true);
        assert!(keys.hold_for(&key));
        for other in ["k1", "019a5d2e7c1b7f3a8b1c0123456789ab", "d335aecc-04db-4223-a213-c7ac5ffef216", ""] {
            assert!(!keys.hold_for(&with(other)), "{other}");
        }
        assert!(!keys.hold_for(&HeaderMap::new()));
        keys.learn(false);
        keys.learn(true);
        assert!(!keys.hold_for(&key), "another warehouse promised nothing");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), message in "\\PC{0,60}") {
            let _may_fail = read(&bytes);
            Refusal { kind: String::new(), message }.names_one_of(&[added(i64::MIN), added(0)]);
        }
    }
}
