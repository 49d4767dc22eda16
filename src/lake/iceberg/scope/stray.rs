//! Position deletes by which engines read different rows.
//!
//! The specification joins a position delete with data files of its own spec and
//! tuple, by the exact path. Of the engines
//! * Iceberg Java up to 1.11 and PyIceberg join one that states its only data file
//!   (`referenced_data_file`, or equal `file_path` bounds) by that path alone,
//!   while Java from 1.12 on calls the table corrupted when the partition differs;
//! * DuckDB joins every one by path alone, and writes those of a table whose spec
//!   has changed under its present spec, with the bounds under another field id.
//!   Java and PyIceberg do not apply these;
//! * Java and PyIceberg compare paths as text.
//!
//! A rewrite would take one side for good, so the partition is refused instead.

use std::collections::HashMap;
use std::sync::Arc;

use super::rules::{Reaching, Targets};
use crate::lake::Result;
use crate::lake::iceberg::manifest::ScanEntry;
use crate::model::location::Location;
use crate::model::partition::PartitionKey;
use crate::model::plan::LiveFile;
use crate::model::refusal::{Refusal, Refused};

/// A live position delete of any partition whose metadata names one data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aimed {
    path: Arc<str>,
    partition: PartitionKey,
    data_sequence: i64,
}

/// Such deletes by the file that they name.
pub type ByTarget = HashMap<Location, Vec<Aimed>>;

/// Enters a position delete under the data file that its metadata names, if any.
///
/// Equal bounds are believed here whatever they look like: one that is cut names
/// no live file.
pub fn enter(aimed: &mut ByTarget, entry: &ScanEntry) {
    let Some(target) = target(entry) else { return };
    aimed.entry(Location::parse(&target)).or_default().push(Aimed {
        path: entry.entry.key.path.clone(),
        partition: entry.entry.partition.clone(),
        data_sequence: entry.sequence_number,
    });
}

fn target(entry: &ScanEntry) -> Option<String> {
    let bound = entry.path_lower.as_ref().filter(|lower| Some(*lower) == entry.path_upper.as_ref());
    let text = |bytes: &Arc<[u8]>| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let referenced = entry.referenced_data_file.as_deref().map(str::to_owned);
    referenced.or_else(|| bound.and_then(text)).or_else(|| entry.file_column.as_ref().and_then(text))
}

/// Refuses a partition of which a file is named by a delete of another partition,
/// or by another spelling of its path.
///
/// # Errors
/// With [`Refusal::StrayDelete`], naming the delete and the file.
pub fn refuse(scope: &PartitionKey, files: &[LiveFile], reaching: &[Reaching], aimed: &ByTarget) -> Result<()> {
    let by_location: HashMap<Location, &LiveFile> = files.iter().map(|f| (Location::parse(&f.path), f)).collect();
    let stray = |delete: &str, why: String| Err(Refused::new(Refusal::StrayDelete, format!("{delete} {why}")).into());
    for delete in reaching {
        let Targets::Named(paths) = &delete.targets else { continue };
        for text in paths {
            let Some(file) = by_location.get(&Location::parse(text)) else { continue };
            if file.path != *text && delete.delete.data_sequence >= file.data_sequence {
                return stray(&delete.delete.key.path, format!("names {text}, which the table spells {}", file.path));
            }
        }
    }
    for file in files {
        let foreign = |d: &&Aimed| d.partition != *scope && d.data_sequence >= file.data_sequence;
        if let Some(delete) = aimed.get(&Location::parse(&file.path)).and_then(|all| all.iter().find(foreign)) {
            return stray(&delete.path, format!("of {} names {} of {scope}", delete.partition, file.path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::Error;
    use crate::model::file::{Content, FileKey};
    use crate::model::plan::LiveDelete;

    const FILE: &str = "s3://b/t/data/f.parquet";

    fn file(data_sequence: i64) -> LiveFile {
        LiveFile { path: FILE.into(), bytes: 1, records: 1, data_sequence, sort_order_id: None, deletes: vec![] }
    }

    fn refused(file: LiveFile, reaching: &[Reaching], aimed: &ByTarget) -> Option<Refusal> {
        match refuse(&PartitionKey::unpartitioned(0), &[file], reaching, aimed) {
            Err(Error::Refused(refused)) => Some(refused.refusal),
            _ => None,
        }
    }

    fn named(text: &str) -> Reaching {
        let key = FileKey { path: "d".into(), offset: None };
        let delete = LiveDelete { key, content: Content::PositionDeletes, bytes: 1, records: 1, data_sequence: 2 };
        Reaching { delete, global: false, targets: Targets::Named([text.into()].into()) }
    }

    fn of(spec_id: i32, data_sequence: i64) -> ByTarget {
        let delete = Aimed { path: "d".into(), partition: PartitionKey::unpartitioned(spec_id), data_sequence };
        [(Location::parse(FILE), vec![delete])].into()
    }

    #[test]
    fn a_delete_of_another_partition_is_stray_where_its_number_reaches_the_file() {
        let found = [(0, 3), (1, 3), (1, 2), (1, 1)].map(|(spec, sequence)| refused(file(2), &[], &of(spec, sequence)));
        assert_eq!(found, [None, Some(Refusal::StrayDelete), Some(Refusal::StrayDelete), None]);
    }

    #[test]
    fn another_spelling_is_stray_where_the_delete_would_reach_the_file() {
        assert_eq!(refused(file(2), &[named(FILE)], &ByTarget::new()), None);
        assert_eq!(refused(file(2), &[named("s3a://b/t/data/f.parquet")], &ByTarget::new()), Some(Refusal::StrayDelete));
        assert_eq!(refused(file(3), &[named("s3a://b/t/data/f.parquet")], &ByTarget::new()), None);
    }
}
