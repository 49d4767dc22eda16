//! Entries of manifests as plans see them, and those that no plan takes.

use std::collections::HashSet;
use std::sync::Arc;

use super::rules::{self, Reaching, Targets};
use crate::lake::iceberg::manifest::{FileFormat, ScanEntry};
use crate::lake::{Error, Result};
use crate::model::file::{Content, FileKey};
use crate::model::location::Location;
use crate::model::partition::PartitionKey;
use crate::model::plan::{LiveDelete, LiveFile};
use crate::model::refusal::{Refusal, Refused};

/// What is known of a delete's reach without reading it.
pub(super) fn known_targets(entry: &ScanEntry) -> Targets {
    if entry.entry.content == Content::EqualityDeletes {
        return Targets::Older;
    }
    let text = |bytes: &Option<Arc<[u8]>>| bytes.as_deref().and_then(|b| std::str::from_utf8(b).ok()).map(str::to_owned);
    let (lower, upper) = (text(&entry.path_lower), text(&entry.path_upper));
    match rules::single_target(entry.referenced_data_file.as_deref(), lower.as_deref(), upper.as_deref()) {
        Some(one) => Targets::Named(Arc::new([Arc::from(one)].into())),
        None => Targets::Unread,
    }
}

/// Refuses a delete that applies to some file and that no reader of ours reads.
pub(super) fn refuse_unreadable<'a>(deletes: impl Iterator<Item = &'a ScanEntry>, files: &[LiveFile]) -> Result<()> {
    let applying: HashSet<&FileKey> = files.iter().flat_map(|f| &f.deletes).collect();
    deletes.filter(|d| applying.contains(&d.entry.key)).try_for_each(readable)
}

/// Refuses what no reader of ours reads.
pub(super) fn readable(entry: &ScanEntry) -> Result<()> {
    let path = &entry.entry.key.path;
    let refuse = |refusal, why: &str| Err(Refused::new(refusal, format!("{path}: {why}")).into());
    if entry.encrypted {
        return refuse(Refusal::Encrypted, "has key metadata");
    }
    if entry.entry.content == Content::DeletionVector {
        return match entry.referenced_data_file {
            Some(_) => Ok(()),
            None => refuse(Refusal::Damaged, "a deletion vector that names no data file"),
        };
    }
    if entry.format != FileFormat::Parquet {
        return refuse(Refusal::FileFormat, &format!("is {:?}, not Parquet", entry.format));
    }
    Ok(())
}

/// Refuses a vector in a table whose format has none.
pub(super) fn allowed(entry: &ScanEntry, vectors: bool) -> Result<()> {
    match vectors {
        true => Ok(()),
        false => Err(Refused::new(Refusal::DeletionVector, format!("{}: a deletion vector before format 3", entry.entry.key.path)).into()),
    }
}

/// Refuses a data file to which two vectors apply: readers differ in what they do.
pub(super) fn refuse_second_vectors(files: &[LiveFile], reaching: &[Reaching]) -> Result<()> {
    let vectors: HashSet<&FileKey> =
        reaching.iter().filter(|r| r.delete.content == Content::DeletionVector).map(|r| &r.delete.key).collect();
    match files.iter().find(|f| f.deletes.iter().filter(|key| vectors.contains(key)).count() > 1) {
        Some(file) => Err(Error::damaged(&file.path, "two deletion vectors apply to it")),
        None => Ok(()),
    }
}

pub(super) fn live_file(entry: &ScanEntry) -> LiveFile {
    LiveFile {
        path: entry.entry.key.path.clone(),
        bytes: entry.entry.bytes,
        records: entry.entry.records,
        data_sequence: entry.sequence_number,
        sort_order_id: entry.sort_order_id,
        first_row_id: entry.first_row_id,
        deletes: Vec::new(),
    }
}

pub(super) fn live_delete(entry: &ScanEntry) -> LiveDelete {
    LiveDelete {
        key: entry.entry.key.clone(),
        content: entry.entry.content,
        bytes: entry.entry.bytes,
        records: entry.entry.records,
        data_sequence: entry.sequence_number,
    }
}

pub(super) fn refuse_doubles(files: &[LiveFile], scope: &PartitionKey) -> Result<()> {
    let mut seen = HashSet::with_capacity(files.len());
    match files.iter().find(|f| !seen.insert(Location::parse(&f.path))) {
        Some(file) => Err(Error::damaged(&file.path, format!("is live more than once in {scope}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::file::{Entry, EntryStatus};

    fn entry(content: Content) -> ScanEntry {
        ScanEntry {
            entry: Entry {
                status: EntryStatus::Added,
                snapshot_id: 1,
                content,
                key: FileKey { path: "s3://b/t/x".into(), offset: None },
                partition: PartitionKey::unpartitioned(0),
                records: 1,
                bytes: 1,
            },
            sequence_number: 1,
            file_sequence_number: 1,
            format: FileFormat::Parquet,
            equality_ids: vec![],
            sort_order_id: None,
            first_row_id: None,
            referenced_data_file: None,
            path_lower: None,
            path_upper: None,
            file_column: None,
            encrypted: false,
        }
    }

    fn refused(entry: &ScanEntry) -> Option<Refusal> {
        match readable(entry) {
            Err(Error::Refused(refused)) => Some(refused.refusal),
            _ => None,
        }
    }

    #[test]
    fn what_no_reader_of_ours_reads_is_refused_by_name() {
        assert_eq!(refused(&entry(Content::Data)), None);
        let formats = [FileFormat::Orc, FileFormat::Avro, FileFormat::Other("lance".into())];
        let found = formats.map(|format| refused(&ScanEntry { format, ..entry(Content::Data) }));
        assert_eq!(found, [Some(Refusal::FileFormat); 3]);
        assert_eq!(refused(&ScanEntry { encrypted: true, ..entry(Content::Data) }), Some(Refusal::Encrypted));
        let vector = ScanEntry { format: FileFormat::Puffin, ..entry(Content::DeletionVector) };
        assert_eq!(refused(&vector), Some(Refusal::Damaged));
        let vector = ScanEntry { referenced_data_file: Some("f".into()), ..vector };
        assert_eq!(refused(&vector), None);
        assert!(matches!(allowed(&vector, false), Err(Error::Refused(refused)) if refused.refusal == Refusal::DeletionVector));
        assert!(allowed(&vector, true).is_ok());
    }

    #[test]
    fn a_delete_that_no_reader_reads_is_refused_only_where_it_applies() {
        let delete = ScanEntry { format: FileFormat::Avro, sequence_number: 2, ..entry(Content::EqualityDeletes) };
        let older = LiveFile { deletes: vec![delete.entry.key.clone()], ..live_file(&entry(Content::Data)) };
        assert!(refuse_unreadable([&delete].into_iter(), &[older]).is_err());
        assert!(refuse_unreadable([&delete].into_iter(), &[live_file(&entry(Content::Data))]).is_ok());
    }

    #[test]
    fn a_file_that_is_live_twice_is_refused_under_either_spelling() {
        let file = |path: &str| LiveFile { path: path.into(), ..live_file(&entry(Content::Data)) };
        let scope = PartitionKey::unpartitioned(0);
        assert!(refuse_doubles(&[file("file:/d/x"), file("file:///d/x")], &scope).is_err());
        assert!(refuse_doubles(&[file("file:/d/x"), file("file:///d/y")], &scope).is_ok());
    }
}
