//! The summary of our replace snapshots.

use std::collections::HashMap;

use iceberg::spec::{ManifestContentType, ManifestFile, Operation, Summary};

use crate::model::file::Content;
use crate::model::plan::{ATTEMPT_KEY, INSTANCE_KEY, LiveDelete, LiveFile};

/// What one commit adds and removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Outputs: files, rows, bytes.
    pub added: Tally,
    /// Position deletes of outputs: files, positions, bytes.
    pub added_deletes: Tally,
    /// Deletion vectors of outputs: vectors, positions, bytes of their blobs.
    pub added_vectors: Tally,
    /// Inputs: files, rows, bytes.
    pub removed: Tally,
    /// Position deletes that cover nothing any more: files, positions, bytes.
    pub position_deletes: Tally,
    /// Deletion vectors that go with their data files: vectors, positions, bytes of
    /// their blobs.
    pub vectors: Tally,
    /// Equality deletes that cover nothing any more: files, keys, bytes.
    pub equality_deletes: Tally,
    /// Partitions touched.
    pub partitions: u64,
}

/// Files, their records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files.
    pub files: u64,
    /// Records.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Tally {
    /// One file more. Sums saturate: they are for display.
    pub fn add(&mut self, records: u64, bytes: u64) {
        self.files = self.files.saturating_add(1);
        self.records = self.records.saturating_add(records);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Change {
    /// Counts inputs and delete files that go.
    pub fn remove(&mut self, inputs: &[LiveFile], deletes: &[LiveDelete]) {
        inputs.iter().for_each(|f| self.removed.add(f.records, f.bytes));
        for delete in deletes {
            let side = match delete.content {
                Content::EqualityDeletes => &mut self.equality_deletes,
                Content::DeletionVector => &mut self.vectors,
                _ => &mut self.position_deletes,
            };
            side.add(delete.records, delete.bytes);
        }
    }
}

/// The summary of a `replace` snapshot. Nothing of the parent's is carried over
/// but its totals: keys by which a writer finds its own last commit stay with
/// that commit.
///
/// Totals are the parent's plus and minus the change. Where the parent has none,
/// those that the new manifest list tells are counted from it, and the others are
/// left out: an absent total is unknown, a wrong one is not.
pub fn summary(change: &Change, parent: &Summary, manifests: &[ManifestFile], attempts: &str, instance: &str) -> Summary {
    let mut properties = HashMap::from([(ATTEMPT_KEY.to_owned(), attempts.to_owned()), (INSTANCE_KEY.to_owned(), instance.to_owned())]);
    let Change { added, added_deletes, added_vectors, removed, position_deletes, vectors, equality_deletes, partitions } = change;
    let added_bytes = added.bytes.saturating_add(added_deletes.bytes).saturating_add(added_vectors.bytes);
    let added_files = added_deletes.files.saturating_add(added_vectors.files);
    let added_positions = added_deletes.records.saturating_add(added_vectors.records);
    let delete_files = position_deletes.files.saturating_add(vectors.files).saturating_add(equality_deletes.files);
    let deletes_bytes = position_deletes.bytes.saturating_add(vectors.bytes).saturating_add(equality_deletes.bytes);
    let removed_bytes = removed.bytes.saturating_add(deletes_bytes);
    let positions = position_deletes.records.saturating_add(vectors.records);
    for (name, value) in [
        ("added-data-files", added.files),
        ("deleted-data-files", removed.files),
        ("added-records", added.records),
        ("deleted-records", removed.records),
        ("added-delete-files", added_files),
        ("added-position-delete-files", added_deletes.files),
        ("added-dvs", added_vectors.files),
        ("added-position-deletes", added_positions),
        ("added-files-size", added_bytes),
        ("removed-files-size", removed_bytes),
        ("removed-delete-files", delete_files),
        ("removed-position-delete-files", position_deletes.files),
        ("removed-dvs", vectors.files),
        ("removed-equality-delete-files", equality_deletes.files),
        ("removed-position-deletes", positions),
        ("removed-equality-deletes", equality_deletes.records),
        ("changed-partition-count", *partitions),
    ] {
        if value > 0 {
            properties.insert(name.to_owned(), value.to_string());
        }
    }
    let counted = Counted::of(manifests);
    for (name, plus, minus, counted) in [
        ("total-data-files", added.files, removed.files, counted.data_files),
        ("total-records", added.records, removed.records, counted.records),
        ("total-delete-files", added_files, delete_files, counted.delete_files),
        ("total-files-size", added_bytes, removed_bytes, None),
        ("total-position-deletes", added_positions, positions, None),
        ("total-equality-deletes", 0, equality_deletes.records, None),
    ] {
        let before = parent.additional_properties.get(name).and_then(|v| v.parse::<u64>().ok());
        let total = before.and_then(|b| b.checked_add(plus)?.checked_sub(minus)).or(counted);
        if let Some(total) = total {
            properties.insert(name.to_owned(), total.to_string());
        }
    }
    Summary { operation: Operation::Replace, additional_properties: properties }
}

/// Totals that a manifest list tells; `None` where a count is absent.
struct Counted {
    data_files: Option<u64>,
    records: Option<u64>,
    delete_files: Option<u64>,
}

impl Counted {
    fn of(manifests: &[ManifestFile]) -> Self {
        let files = |m: &ManifestFile| Some(u64::from(m.added_files_count?) + u64::from(m.existing_files_count?));
        let rows = |m: &ManifestFile| m.added_rows_count?.checked_add(m.existing_rows_count?);
        let sum = |content, count: &dyn Fn(&ManifestFile) -> Option<u64>| {
            manifests.iter().filter(|m| m.content == content).try_fold(0u64, |sum, m| sum.checked_add(count(m)?))
        };
        Self {
            data_files: sum(ManifestContentType::Data, &files),
            records: sum(ManifestContentType::Data, &rows),
            delete_files: sum(ManifestContentType::Deletes, &files),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(pairs: &[(&str, &str)]) -> Summary {
        let additional_properties = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Summary { operation: Operation::Append, additional_properties }
    }

    fn change() -> Change {
        let t = |files, records, bytes| Tally { files, records, bytes };
        Change {
            added: t(1, 200, 900),
            added_deletes: t(1, 3, 20),
            added_vectors: t(0, 0, 0),
            removed: t(4, 201, 1000),
            position_deletes: t(1, 1, 30),
            vectors: t(0, 0, 0),
            equality_deletes: t(2, 5, 70),
            partitions: 1,
        }
    }

    #[test]
    fn totals_are_the_parents_plus_and_minus_the_change() {
        let parent = parent(&[
            ("total-data-files", "10"),
            ("total-records", "1000"),
            ("total-delete-files", "3"),
            ("total-files-size", "5100"),
            ("total-position-deletes", "1"),
            ("total-equality-deletes", "9"),
        ]);
        let made = summary(&change(), &parent, &[], "a-1", "i-1").additional_properties;
        let of = |k: &str| made.get(k).map(String::as_str);
        assert_eq!([of("total-data-files"), of("total-records"), of("total-delete-files")], [Some("7"), Some("999"), Some("1")]);
        assert_eq!([of("total-files-size"), of("removed-files-size"), of("added-files-size")], [Some("4920"), Some("1100"), Some("920")]);
        assert_eq!([of("total-position-deletes"), of("total-equality-deletes")], [Some("3"), Some("4")]);
        let added = ["added-delete-files", "added-position-delete-files", "added-position-deletes"].map(of);
        assert_eq!(added, [Some("1"), Some("1"), Some("3")]);
        assert_eq!(
            [of("removed-delete-files"), of("removed-equality-delete-files"), of("removed-equality-deletes")],
            [Some("3"), Some("2"), Some("5")]
        );
        assert_eq!([of(ATTEMPT_KEY), of(INSTANCE_KEY)], [Some("a-1"), Some("i-1")]);
    }

    #[test]
    fn a_vector_counts_as_a_delete_file_of_positions_and_under_its_own_name() {
        let vectors = Tally { files: 2, records: 9, bytes: 80 };
        let parent = parent(&[("total-delete-files", "3"), ("total-position-deletes", "10"), ("total-files-size", "5000")]);
        let made = summary(&Change { vectors, added_deletes: Tally::default(), ..change() }, &parent, &[], "a", "i").additional_properties;
        let of = |k: &str| made.get(k).map(String::as_str);
        assert_eq!(
            [of("removed-dvs"), of("removed-position-delete-files"), of("removed-position-deletes")],
            [Some("2"), Some("1"), Some("10")]
        );
        assert_eq!(
            [of("total-position-deletes"), of("total-files-size"), of("removed-files-size")],
            [Some("0"), Some("4720"), Some("1180")]
        );
        let added_vectors = Tally { files: 1, records: 4, bytes: 50 };
        let made = summary(&Change { vectors, added_vectors, added_deletes: Tally::default(), ..change() }, &parent, &[], "a", "i");
        let of = |k: &str| made.additional_properties.get(k).map(String::as_str);
        assert_eq!(
            [of("added-dvs"), of("added-delete-files"), of("added-position-delete-files"), of("added-position-deletes")],
            [Some("1"), Some("1"), None, Some("4")]
        );
        assert_eq!([of("total-position-deletes"), of("total-files-size")], [Some("4"), Some("4770")]);
    }

    #[test]
    fn a_writers_own_keys_stay_with_its_commit() {
        let parent = parent(&[("flink.max-committed-checkpoint-id", "7"), ("spark.app.id", "x"), ("kafka.connect.offsets.t", "{}")]);
        let made = summary(&change(), &parent, &[], "a", "i").additional_properties;
        assert!(made.keys().all(|k| !k.starts_with("flink") && !k.starts_with("spark") && !k.starts_with("kafka")));
    }

    #[test]
    fn a_total_that_cannot_be_known_is_left_out() {
        let made =
            summary(&change(), &parent(&[("total-records", "lots"), ("total-data-files", "1")]), &[], "a", "i").additional_properties;
        assert_eq!(made.get("total-files-size"), None);
        assert_eq!(made.get("total-data-files").map(String::as_str), Some("0"));
    }
}
