//! What a commit's success depends on, as it is journaled before the catalog is
//! asked.

use std::fmt;

/// What must still hold for a commit to be applied. Journaled as a text, which for
/// catalogs that swap a pointer is the metadata location alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asserted {
    /// The metadata that the commit is based on.
    pub metadata_location: String,
    /// What a catalog compares that holds no pointer of ours: a branch's head.
    /// `None` where the metadata location itself is compared.
    pub head: Option<AssertedHead>,
}

/// A branch as a commit asserts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertedHead {
    /// The branch.
    pub reference: String,
    /// Its head snapshot; `None` for a branch without any.
    pub snapshot_id: Option<i64>,
    /// The table's last sequence number, where the commit adds a snapshot, which has
    /// the next one. It never falls, not even by a rollback.
    pub sequence_number: Option<i64>,
}

impl Asserted {
    /// Reads what was journaled.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.rsplitn(4, '\t');
        let (sequence, snapshot, reference, location) = (parts.next(), parts.next(), parts.next(), parts.next());
        let head = || {
            let head = AssertedHead { reference: reference?.into(), snapshot_id: number(snapshot?)?, sequence_number: number(sequence?)? };
            Some((location?, head))
        };
        match head() {
            Some((location, head)) => Self { metadata_location: location.into(), head: Some(head) },
            None => Self { metadata_location: text.into(), head: None },
        }
    }
}

/// The outer `None` is no such word.
fn number(word: &str) -> Option<Option<i64>> {
    if word == "none" { Some(None) } else { word.parse().ok().map(Some) }
}

impl fmt::Display for Asserted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.metadata_location)?;
        let Some(head) = &self.head else { return Ok(()) };
        let word = |number: Option<i64>| number.map_or_else(|| "none".to_owned(), |n| n.to_string());
        write!(f, "\t{}\t{}\t{}", head.reference, word(head.snapshot_id), word(head.sequence_number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_journaled_reads_back() {
        let head = |snapshot_id, sequence_number| Some(AssertedHead { reference: "main".into(), snapshot_id, sequence_number });
        for head in [None, head(Some(i64::MIN), Some(7)), head(None, Some(0)), head(Some(1), None)] {
            for location in ["s3://b/t/metadata/1.json", "", "with\ttab", "with\tmain\t1\ttabs"] {
                let asserted = Asserted { metadata_location: location.into(), head: head.clone() };
                assert_eq!(Asserted::parse(&asserted.to_string()), asserted);
            }
        }
    }
}
