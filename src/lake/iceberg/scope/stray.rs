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
//! A rewrite would take one side for good, so the partition is refused instead. What a
//! delete's metadata leaves open is read from its rows.
//!
//! A delete that cannot be read hinders its own partition, and the files of other specs
//! that it may name. It does not hinder another tuple of its spec: there the specification
//! does not apply it, no engine is known to write such a stray, one that joins by path
//! alone cannot read the table with it, and it stays in the table as it is.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::{StreamExt, stream};

use super::entry::readable;
use super::named::{Named, Names};
use super::rules::{self, Reaching, Targets};
use super::{PARALLEL_READS, State};
use crate::lake::iceberg::manifest::ScanEntry;
use crate::lake::{Error, Result};
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

/// The live position deletes of all partitions.
#[derive(Debug, Default)]
pub struct Strays {
    by_target: ByTarget,
    /// Those of which only their rows tell for certain what they name.
    unread: Vec<ScanEntry>,
}

impl Strays {
    /// Enters a position delete.
    ///
    /// Equal bounds are believed here whatever they look like: one that is cut names
    /// no live file, and its rows are read too.
    pub fn enter(&mut self, entry: &ScanEntry) {
        let [lower, upper, column] = [&entry.path_lower, &entry.path_upper, &entry.file_column].map(text);
        let bound = lower.filter(|_| lower == upper);
        if let Some(target) = entry.referenced_data_file.as_deref().or(bound).or(column) {
            self.by_target.entry(Location::parse(target)).or_default().push(Aimed {
                path: entry.entry.key.path.clone(),
                partition: entry.entry.partition.clone(),
                data_sequence: entry.sequence_number,
            });
        }
        let referenced = entry.referenced_data_file.as_deref();
        if rules::single_target(referenced, lower, upper).or(rules::single_target(None, column, column)).is_none() {
            self.unread.push(entry.clone());
        }
    }

    /// Refuses a partition of which a file is named by a delete of another partition,
    /// or by another spelling of its path, as far as metadata tells.
    ///
    /// # Errors
    /// With [`Refusal::StrayDelete`], naming the delete and the file.
    pub fn refuse(&self, scope: &PartitionKey, files: &[LiveFile], reaching: &[Reaching]) -> Result<()> {
        refuse(scope, files, reaching, &self.by_target)
    }

    /// The same for several partitions, as far as only the rows of a delete tell.
    ///
    /// Costs one read of each delete whose metadata lets it name a file of another of the
    /// partitions than its own, where it was not read before.
    ///
    /// # Errors
    /// As [`Strays::refuse`]; with the refusal of a delete that cannot be read, and may
    /// name a file of another spec; store errors.
    pub async fn refuse_unread(&self, states: &[State], names: &Names<'_>) -> Result<()> {
        if self.unread.is_empty() {
            return Ok(());
        }
        let rooted = |state: &State| state.files.iter().map(|file| root(&file.path)).collect::<Vec<_>>();
        let roots: Vec<Vec<usize>> = states.iter().map(rooted).collect();
        let mut reads = Vec::new();
        for delete in &self.unread {
            let may_reach = |(state, roots): &(&State, &Vec<usize>)| {
                state.scope != delete.entry.partition && state.files.iter().zip(*roots).any(|(file, root)| may_name(delete, file, *root))
            };
            let reached: Vec<&State> = states.iter().zip(&roots).filter(may_reach).map(|(state, _)| state).collect();
            if !reached.is_empty() {
                reads.push(async move { (delete, reached, look_up(delete, names).await) });
            }
        }
        let mut reads = stream::iter(reads).buffered(PARALLEL_READS);
        while let Some((delete, reached, named)) = reads.next().await {
            match named {
                Ok(named) => reached.into_iter().try_for_each(|state| refuse_named(state, delete, &named))?,
                Err(error) => unreadable(delete, &reached, error)?,
            }
        }
        Ok(())
    }
}

async fn look_up(delete: &ScanEntry, names: &Names<'_>) -> Result<Named> {
    readable(delete)?;
    names.look_up(&delete.entry.key.path).await
}

/// What a delete that cannot be read means for the partitions of which it may name a file.
fn unreadable(delete: &ScanEntry, reached: &[&State], error: Error) -> Result<()> {
    let own = &delete.entry.partition;
    let refused = match error {
        Error::Refused(refused) => refused,
        Error::NotFound { path } => Refused::new(Refusal::Damaged, format!("{path}: there is no such file")),
        other => return Err(other),
    };
    match reached.iter().find(|state| state.scope.spec_id != own.spec_id) {
        Some(state) => {
            let why = format!("{}; it is a delete of {own}, and may name files of {}", refused.detail, state.scope);
            Err(Refused::new(refused.refusal, why).into())
        }
        None => Ok(()),
    }
}

fn text(bytes: &Option<Arc<[u8]>>) -> Option<&str> {
    std::str::from_utf8(bytes.as_deref()?).ok()
}

/// Where the key begins in a path.
fn root(path: &str) -> usize {
    path.len().saturating_sub(Location::parse(path).key.len())
}

/// Whether a delete may name a file, whose key begins at `root`, by its number and the
/// bounds of what it names. A bound may be cut, and says nothing of a path that is spelled
/// otherwise up to the key.
fn may_name(delete: &ScanEntry, file: &LiveFile, root: usize) -> bool {
    if delete.sequence_number < file.data_sequence {
        return false;
    }
    let path = &*file.path;
    let spelled_alike = |bound: &&str| path.get(..root).is_some_and(|root| bound.starts_with(root));
    let bounds = [&delete.path_lower, &delete.path_upper].map(|bound| text(bound).filter(spelled_alike));
    let [Some(lower), Some(upper)] = bounds else { return true };
    lower > upper || (lower <= path && (path <= upper || path.starts_with(upper)))
}

fn refuse_named(state: &State, delete: &ScanEntry, named: &BTreeSet<Arc<str>>) -> Result<()> {
    let named: BTreeSet<Location> = named.iter().map(|path| Location::parse(path)).collect();
    let hit = |file: &&LiveFile| delete.sequence_number >= file.data_sequence && named.contains(&Location::parse(&file.path));
    match state.files.iter().find(hit) {
        Some(file) => stray(&delete.entry.key.path, format!("of {} names {} of {}", delete.entry.partition, file.path, state.scope)),
        None => Ok(()),
    }
}

fn stray(delete: &str, why: String) -> Result<()> {
    Err(Refused::new(Refusal::StrayDelete, format!("{delete} {why}")).into())
}

/// What metadata tells of [`Strays::refuse`].
fn refuse(scope: &PartitionKey, files: &[LiveFile], reaching: &[Reaching], aimed: &ByTarget) -> Result<()> {
    let by_location: HashMap<Location, &LiveFile> = files.iter().map(|f| (Location::parse(&f.path), f)).collect();
    for delete in reaching {
        let Targets::Named(paths) = &delete.targets else { continue };
        for text in paths.iter() {
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
    use crate::lake::iceberg::manifest::FileFormat;
    use crate::model::file::{Content, Entry, EntryStatus, FileKey};
    use crate::model::plan::LiveDelete;

    const FILE: &str = "s3://b/t/data/f.parquet";

    fn file(data_sequence: i64) -> LiveFile {
        LiveFile { path: FILE.into(), bytes: 1, records: 1, data_sequence, sort_order_id: None, first_row_id: None, deletes: vec![] }
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
        Reaching { delete, global: false, targets: Targets::Named(Arc::new([text.into()].into())) }
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

    /// A delete of number 2 that states these bounds.
    fn stating(lower: Option<&str>, upper: Option<&str>) -> ScanEntry {
        let bytes = |bound: Option<&str>| bound.map(|b| Arc::from(b.as_bytes()));
        ScanEntry {
            entry: Entry {
                status: EntryStatus::Added,
                snapshot_id: 1,
                content: Content::PositionDeletes,
                key: FileKey { path: "d".into(), offset: None },
                partition: PartitionKey::unpartitioned(1),
                records: 1,
                bytes: 1,
            },
            sequence_number: 2,
            file_sequence_number: 2,
            format: FileFormat::Parquet,
            equality_ids: vec![],
            sort_order_id: None,
            first_row_id: None,
            referenced_data_file: None,
            path_lower: bytes(lower),
            path_upper: bytes(upper),
            file_column: None,
            encrypted: false,
        }
    }

    #[test]
    fn bounds_tell_of_a_file_that_is_spelled_as_they_are_and_lies_outside_of_them() {
        let named = |lower, upper| may_name(&stating(Some(lower), Some(upper)), &file(2), root(FILE));
        assert!(named("s3://b/t/data/a", "s3://b/t/data/z"));
        assert!(!named("s3://b/t/data/a", "s3://b/t/data/c") && !named("s3://b/t/data/g", "s3://b/t/data/z"));
        // cut, exchanged, spelled otherwise, or not there
        assert!(named("s3://b/t/da", "s3://b/t/da") && named("s3://b/", "s3://b/"));
        assert!(named("s3://b/t/data/z", "s3://b/t/data/a"));
        assert!(named("s3a://b/t/data/a", "s3a://b/t/data/c") && named("s3", "s3"));
        assert!(may_name(&stating(None, Some("s3://b/t/data/a")), &file(2), root(FILE)));
        // older than the file
        assert!(!may_name(&stating(None, None), &file(3), root(FILE)));
    }

    #[test]
    fn a_delete_whose_metadata_names_one_file_for_certain_is_not_read() {
        let unread = |entry: &ScanEntry| {
            let mut strays = Strays::default();
            strays.enter(entry);
            (strays.by_target.len(), strays.unread.len())
        };
        let column = ScanEntry { file_column: Some(Arc::from(FILE.as_bytes())), ..stating(None, None) };
        let referenced = ScanEntry { referenced_data_file: Some("s3://b/t/data/f.parquet".into()), ..stating(None, None) };
        assert_eq!([unread(&stating(Some(FILE), Some(FILE))), unread(&column), unread(&referenced)], [(1, 0); 3]);
        assert_eq!(unread(&stating(Some("s3://b/t/data/f"), Some("s3://b/t/data/f"))), (1, 1));
        assert_eq!([unread(&stating(Some("s3://b/a"), Some(FILE))), unread(&stating(None, None))], [(0, 1); 2]);
    }

    #[test]
    fn another_spelling_is_stray_where_the_delete_would_reach_the_file() {
        assert_eq!(refused(file(2), &[named(FILE)], &ByTarget::new()), None);
        assert_eq!(refused(file(2), &[named("s3a://b/t/data/f.parquet")], &ByTarget::new()), Some(Refusal::StrayDelete));
        assert_eq!(refused(file(3), &[named("s3a://b/t/data/f.parquet")], &ByTarget::new()), None);
    }
}
