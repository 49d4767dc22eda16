//! What a commit's success depends on, as it is journaled before the catalog is
//! asked.

use std::fmt;

/// What must still hold for a commit to be applied. Journaled as a text, which for
/// catalogs that swap a pointer is the metadata location alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asserted {
    /// The metadata that the commit is based on.
    pub metadata_location: String,
    /// What a catalog compares that holds no pointer of ours: the branch's head.
    /// `None` where the metadata location itself is compared.
    pub head: Option<AssertedHead>,
}

/// The branch as a commit asserts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssertedHead {
    /// The head snapshot; `None` for a branch without any.
    pub snapshot_id: Option<i64>,
    /// The table's last sequence number: the commit's snapshot has the next one.
    /// It never falls, not even by a rollback.
    pub sequence_number: i64,
}

impl Asserted {
    /// Reads what was journaled.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.rsplitn(3, '\t');
        let (sequence, snapshot, location) = (parts.next(), parts.next(), parts.next());
        let head = || {
            let snapshot_id = match snapshot? {
                "none" => None,
                id => Some(id.parse().ok()?),
            };
            Some((location?, AssertedHead { snapshot_id, sequence_number: sequence?.parse().ok()? }))
        };
        match head() {
            Some((location, head)) => Self { metadata_location: location.into(), head: Some(head) },
            None => Self { metadata_location: text.into(), head: None },
        }
    }
}

impl fmt::Display for Asserted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.metadata_location)?;
        match self.head {
            None => Ok(()),
            Some(AssertedHead { snapshot_id: Some(id), sequence_number }) => write!(f, "\t{id}\t{sequence_number}"),
            Some(AssertedHead { snapshot_id: None, sequence_number }) => write!(f, "\tnone\t{sequence_number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_journaled_reads_back() {
        for head in [
            None,
            Some(AssertedHead { snapshot_id: Some(i64::MIN), sequence_number: 7 }),
            Some(AssertedHead { snapshot_id: None, sequence_number: 0 }),
        ] {
            for location in ["s3://b/t/metadata/1.json", "", "with\ttab", "with\t1\ttabs"] {
                let asserted = Asserted { metadata_location: location.into(), head };
                let read = Asserted::parse(&asserted.to_string());
                assert_eq!(read, asserted, "{asserted:?}");
            }
        }
    }
}
