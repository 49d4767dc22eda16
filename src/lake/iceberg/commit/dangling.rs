//! Delete files that cover nothing once the inputs are replaced.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::ManifestContentType;

use crate::lake::Result;
use crate::lake::iceberg::manifest;
use crate::lake::iceberg::scope::State;
use crate::lake::iceberg::scope::head::{self, Head};
use crate::lake::iceberg::scope::rules::{Reaching, Targets};
use crate::lake::iceberg::table::IcebergTable;
use crate::model::file::{Content, EntryStatus};
use crate::model::location::Location;
use crate::model::plan::{LiveDelete, Plan};

/// The deletes that may go in the commit that replaces the plan's inputs.
///
/// A delete goes only when it is proven, from the base's state, that no data
/// file that will be live is covered by it:
/// * one of a partition: no remaining file of that partition, nor an output,
///   by the scope rules;
/// * a global one: no older data file in any partition of any spec.
///
/// So a delete newer than the planned snapshot stays: outputs carry an older
/// sequence number and it reaches them.
///
/// # Errors
/// As reading manifests does.
pub async fn find(table: &IcebergTable, head: &Head, state: &State, plan: &Plan, outputs: bool) -> Result<Vec<LiveDelete>> {
    let staying = Staying::of(state, plan, outputs);
    let (mut dangling, global) = staying.uncovered(&state.reaching);
    for reaching in global {
        if !reaches_elsewhere(table, head, reaching, plan).await? {
            dangling.push(reaching.delete.clone());
        }
    }
    Ok(dangling)
}

/// The data files of the partition after the commit, as far as deletes tell them
/// apart.
struct Staying {
    /// Lowest data sequence number, outputs included.
    lowest: Option<i64>,
    /// Files of the base that stay. Outputs have new paths: no position delete
    /// names them.
    by_path: HashMap<Location, i64>,
}

impl Staying {
    fn of(state: &State, plan: &Plan, outputs: bool) -> Self {
        let replaced: HashSet<&Arc<str>> = plan.inputs.iter().map(|f| &f.path).collect();
        let by_path: HashMap<_, _> =
            state.files.iter().filter(|f| !replaced.contains(&f.path)).map(|f| (Location::parse(&f.path), f.data_sequence)).collect();
        let lowest = by_path.values().copied().chain(outputs.then_some(plan.sequence_number)).min();
        Self { lowest, by_path }
    }

    fn covered_by(&self, reaching: &Reaching) -> bool {
        let sequence = reaching.delete.data_sequence;
        match &reaching.targets {
            Targets::Older => self.lowest.is_some_and(|l| l < sequence),
            Targets::Named(paths) => paths.iter().any(|p| self.by_path.get(p).is_some_and(|file| *file <= sequence)),
            Targets::Unread => self.lowest.is_some_and(|l| l <= sequence),
        }
    }

    /// The deletes that cover nothing of the partition: the partition's own, and
    /// global ones, which may still cover something elsewhere.
    fn uncovered<'a>(&self, reaching: &'a [Reaching]) -> (Vec<LiveDelete>, Vec<&'a Reaching>) {
        let uncovered = reaching.iter().filter(|r| r.delete.content != Content::DeletionVector && !self.covered_by(r));
        let (global, own): (Vec<_>, Vec<_>) = uncovered.partition(|r| r.global);
        (own.into_iter().map(|r| r.delete.clone()).collect(), global)
    }
}

/// Whether a global delete covers a data file anywhere but among the inputs. The
/// list's lowest sequence numbers only say where to look first: that there is no
/// older file is proven from the entries.
async fn reaches_elsewhere(table: &IcebergTable, head: &Head, reaching: &Reaching, plan: &Plan) -> Result<bool> {
    let replaced: HashSet<&str> = plan.inputs.iter().map(|f| f.path.as_ref()).collect();
    let mut data: Vec<_> = head.manifests.iter().filter(|m| m.content == ManifestContentType::Data && !head::is_empty(m)).collect();
    data.sort_by_key(|m| m.min_sequence_number);
    for manifest in data {
        let entries = manifest::scan(table, &head::reference(manifest)).await?;
        let mut live = entries.iter().filter(|e| e.entry.status != EntryStatus::Deleted);
        if live.any(|e| e.sequence_number < reaching.delete.data_sequence && !replaced.contains(e.entry.key.path.as_ref())) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::file::FileKey;

    fn staying(files: &[(&str, i64)], output: Option<i64>) -> Staying {
        let by_path: HashMap<_, _> = files.iter().map(|(p, s)| (Location::parse(p), *s)).collect();
        Staying { lowest: by_path.values().copied().chain(output).min(), by_path }
    }

    fn delete(data_sequence: i64, global: bool, targets: Targets) -> Reaching {
        let content = if targets == Targets::Older { Content::EqualityDeletes } else { Content::PositionDeletes };
        let key = FileKey { path: "d".into(), offset: None };
        Reaching { delete: LiveDelete { key, content, bytes: 1, records: 1, data_sequence }, global, targets }
    }

    fn named(paths: &[&str]) -> Targets {
        Targets::Named(paths.iter().map(|p| Location::parse(p)).collect())
    }

    #[test]
    fn an_equality_delete_newer_than_the_outputs_stays() {
        let after = staying(&[], Some(3));
        let covered = [3, 4].map(|sequence| after.covered_by(&delete(sequence, false, Targets::Older)));
        assert_eq!(covered, [false, true]);
    }

    #[test]
    fn a_position_delete_goes_only_when_no_file_that_it_names_stays() {
        let after = staying(&[("f2", 2)], Some(3));
        let covered = [&["f1"][..], &["f1", "f2"]].map(|paths| after.covered_by(&delete(3, false, named(paths))));
        assert_eq!(covered, [false, true]);
        assert!(!after.covered_by(&delete(1, false, named(&["f2"]))));
    }

    #[test]
    fn an_unread_delete_stays_while_any_older_file_does() {
        assert!(staying(&[("f", 2)], None).covered_by(&delete(2, false, Targets::Unread)));
        assert!(!staying(&[("f", 3)], None).covered_by(&delete(2, false, Targets::Unread)));
        assert!(!staying(&[], None).covered_by(&delete(2, false, Targets::Unread)));
    }

    #[test]
    fn a_global_delete_is_never_judged_by_its_partition_alone() {
        let deletes = [delete(2, true, Targets::Older)];
        let (own, global) = staying(&[], None).uncovered(&deletes);
        assert_eq!((own.len(), global.len()), (0, 1));
    }
}
