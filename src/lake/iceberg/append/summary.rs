//! The summary of a snapshot that adds files.

use std::collections::{BTreeSet, HashMap};

use iceberg::spec::{Operation, Summary};

use super::{Made, Staged};

/// Says what a snapshot adds, and the totals: the parent's and that.
///
/// The operation is `append` when only data files come, `delete` when only delete
/// files do, and `overwrite` when both do.
pub fn summary(staged: &Staged, parent: Option<&Summary>) -> Summary {
    let (data, deletes) = (Sum::of(&staged.data), Sum::of(&staged.deletes));
    let bytes = data.bytes.saturating_add(deletes.bytes);
    let partitions: BTreeSet<String> =
        staged.data.iter().chain(&staged.deletes).map(|m| format!("{} {:?}", m.spec_id, m.file.partition())).collect();
    let mut properties = HashMap::new();
    for (name, value) in [
        ("added-data-files", data.files),
        ("added-records", data.records),
        ("added-delete-files", deletes.files),
        ("added-position-delete-files", deletes.files),
        ("added-position-deletes", deletes.records),
        ("added-files-size", bytes),
        ("changed-partition-count", partitions.len() as u64),
    ] {
        if value > 0 {
            properties.insert(name.to_owned(), value.to_string());
        }
    }
    for (name, added) in [
        ("total-data-files", data.files),
        ("total-records", data.records),
        ("total-files-size", bytes),
        ("total-delete-files", deletes.files),
        ("total-position-deletes", deletes.records),
        ("total-equality-deletes", 0),
    ] {
        let before = parent.map_or(Some(0), |p| p.additional_properties.get(name)?.parse::<u64>().ok());
        if let Some(total) = before.and_then(|before| before.checked_add(added)) {
            properties.insert(name.to_owned(), total.to_string());
        }
    }
    let operation = match (staged.data.is_empty(), staged.deletes.is_empty()) {
        (_, true) => Operation::Append,
        (true, false) => Operation::Delete,
        (false, false) => Operation::Overwrite,
    };
    Summary { operation, additional_properties: properties }
}

/// Files, their records and bytes.
struct Sum {
    files: u64,
    records: u64,
    bytes: u64,
}

impl Sum {
    fn of(files: &[Made]) -> Self {
        let add = |sum: Self, made: &Made| Self {
            files: sum.files.saturating_add(1),
            records: sum.records.saturating_add(made.file.record_count()),
            bytes: sum.bytes.saturating_add(made.file.file_size_in_bytes()),
        };
        files.iter().fold(Self { files: 0, records: 0, bytes: 0 }, add)
    }
}
