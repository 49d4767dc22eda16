//! A decision made exact: files in, what applies to them, and its bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::file::{Content, FileKey};
use super::ident::{TableIdent, TableName};
use super::outcome::Conflict;
use super::partition::PartitionKey;

/// A live data file with the deletes that apply to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFile {
    /// Path as the metadata spells it.
    pub path: Arc<str>,
    /// File size in bytes.
    pub bytes: u64,
    /// Rows, deleted ones included.
    pub records: u64,
    /// Data sequence number.
    pub data_sequence: i64,
    /// The sort order that its writer claims, if any.
    pub sort_order_id: Option<i32>,
    /// The id of its first row, from which those of rows without a stored one count
    /// (format v3); `None` before the first commit that gave it one.
    #[serde(default)]
    pub first_row_id: Option<i64>,
    /// Keys of the deletes that apply by the specification's scope rules,
    /// ascending.
    pub deletes: Vec<FileKey>,
}

/// A live delete file that applies to some file of the scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveDelete {
    /// Identity.
    pub key: FileKey,
    /// Kind of deletes.
    pub content: Content,
    /// Size in bytes.
    pub bytes: u64,
    /// Deleted positions or keys.
    pub records: u64,
    /// Data sequence number.
    pub data_sequence: i64,
}

/// The exact state of one partition at one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeFiles {
    /// The snapshot read.
    pub snapshot_id: i64,
    /// Its sequence number: outputs of a rewrite planned here carry it, in
    /// every retry, so that newer equality deletes still hold.
    pub sequence_number: i64,
    /// The partition.
    pub scope: PartitionKey,
    /// Live data files, ascending by path.
    pub files: Vec<LiveFile>,
    /// Delete files that apply to at least one of them, by key.
    pub deletes: BTreeMap<FileKey, LiveDelete>,
}

/// How a rewrite makes its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Row groups copied whole; nothing is decoded.
    Splice,
    /// Pages of small row groups put together as healthy ones; values are not
    /// decoded.
    RePack,
    /// Values decoded and encoded.
    ReEncode,
}

impl Path {
    /// As it is shown and journaled.
    pub fn name(self) -> &'static str {
        match self {
            Self::Splice => "splice",
            Self::RePack => "re-pack",
            Self::ReEncode => "re-encode",
        }
    }
}

/// What is to be rewritten. A plan outlives its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The table.
    pub table: TableIdent,
    /// Its name when planned.
    pub name: TableName,
    /// The branch.
    pub reference: String,
    /// The snapshot it was planned on.
    pub snapshot_id: i64,
    /// Data sequence number that the outputs carry.
    pub sequence_number: i64,
    /// The partition.
    pub scope: PartitionKey,
    /// Why: a rule's name, `score`, or `request`.
    pub reason: String,
    /// Files to replace, ascending by path; never empty.
    pub inputs: Vec<LiveFile>,
    /// The deletes that apply to the inputs, ascending by key.
    pub deletes: Vec<LiveDelete>,
    /// Size at which outputs are cut, in bytes.
    pub target_file_size: u64,
    /// The upper bound that it reserves and at which it is stopped.
    pub bound: Bound,
}

impl Plan {
    /// Bytes of the inputs.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|f| f.bytes).sum()
    }

    /// Rows of the inputs, deleted ones included.
    pub fn input_records(&self) -> u64 {
        self.inputs.iter().map(|f| f.records).sum()
    }

    /// The gate before a rewrite and again in every commit: holds the plan
    /// against the present state of its partition.
    ///
    /// Invariants checked:
    /// * every input is live, with the size, row count and data sequence number
    ///   that were planned, and with the row ids: a commit that gave it its first ones
    ///   makes it another to readers of changes;
    /// * the deletes that apply to each input are exactly those planned: one
    ///   more would be undone by the rewrite, one fewer (a rollback) would stay
    ///   applied for ever. Equality deletes newer than the planned snapshot are
    ///   the exception: outputs carry that snapshot's sequence number, so such a
    ///   delete reaches them as it reaches the inputs. That they have the columns
    ///   by which it deletes is for the commit to check, which knows the outputs.
    ///
    /// Appends to the partition do not make a plan stale.
    pub fn check(&self, now: &ScopeFiles) -> Result<(), Conflict> {
        match self.late(now)? {
            None => Ok(()),
            Some(late) => Err(late.conflict()),
        }
    }

    /// As [`Plan::check`], but position deletes and vectors newer than the planned snapshot
    /// are no conflict: they are given. A vector is put anew with each row that is deleted
    /// in its file, and some writers do so with position deletes: planned ones of an input
    /// may be gone where newer ones came.
    pub fn late(&self, now: &ScopeFiles) -> Result<Option<Late>, Conflict> {
        let (mut lost, mut changed) = (Vec::new(), Vec::new());
        let (mut came, mut gone) = (Vec::with_capacity(self.inputs.len()), Vec::with_capacity(self.inputs.len()));
        for input in &self.inputs {
            let live = now.files.binary_search_by(|f| f.path.cmp(&input.path)).ok().and_then(|i| now.files.get(i));
            match live.map(|live| (live, self.late_deletes(input, live, now))) {
                Some((_, Some(deletes))) => {
                    came.push(LiveFile { deletes: deletes.0, ..input.clone() });
                    gone.push(LiveFile { deletes: deletes.1, ..input.clone() });
                }
                Some((live, None))
                    if (live.bytes, live.records, live.data_sequence) == (input.bytes, input.records, input.data_sequence) =>
                {
                    changed.push(input.path.to_string());
                }
                _ => lost.push(input.path.to_string()),
            }
        }
        lost.truncate(CONFLICT_SAMPLE);
        changed.truncate(CONFLICT_SAMPLE);
        if !lost.is_empty() {
            return Err(Conflict::InputGone { files: lost });
        }
        if !changed.is_empty() {
            return Err(Conflict::DeletesChanged { files: changed });
        }
        if came.iter().all(|input| input.deletes.is_empty()) {
            return Ok(None);
        }
        let named = |inputs: &[LiveFile]| -> BTreeSet<FileKey> { inputs.iter().flat_map(|input| input.deletes.iter().cloned()).collect() };
        let (of_came, of_gone) = (named(&came), named(&gone));
        let came_deletes = now.deletes.values().filter(|d| of_came.contains(&d.key)).cloned().collect();
        let gone_deletes = self.deletes.iter().filter(|d| of_gone.contains(&d.key)).cloned().collect();
        Ok(Some(Late {
            came: Plan { snapshot_id: now.snapshot_id, inputs: came, deletes: came_deletes, ..self.clone() },
            gone: Plan { inputs: gone, deletes: gone_deletes, ..self.clone() },
        }))
    }

    /// The position deletes and vectors that came and those that went, of a file that is else as
    /// planned but for equality deletes that reach the outputs too; `None` when it is
    /// not. Where some went, those that stayed count as come.
    fn late_deletes(&self, input: &LiveFile, live: &LiveFile, now: &ScopeFiles) -> Option<(Vec<FileKey>, Vec<FileKey>)> {
        if (LiveFile { deletes: input.deletes.clone(), ..live.clone() }) != *input {
            return None;
        }
        let (added, kept): (Vec<_>, Vec<_>) = live.deletes.iter().cloned().partition(|key| input.deletes.binary_search(key).is_err());
        let mut came = Vec::new();
        for key in added {
            let delete = now.deletes.get(&key).filter(|d| d.data_sequence > self.sequence_number)?;
            match delete.content {
                Content::EqualityDeletes => {}
                Content::PositionDeletes | Content::DeletionVector => came.push(key),
                Content::Data => return None,
            }
        }
        let gone: Vec<FileKey> = input.deletes.iter().filter(|key| live.deletes.binary_search(key).is_err()).cloned().collect();
        if gone.is_empty() {
            return Some((came, gone));
        }
        let names_rows = |d: &LiveDelete| matches!(d.content, Content::PositionDeletes | Content::DeletionVector);
        let by_position = |key: &FileKey| self.deletes.iter().any(|d| d.key == *key && names_rows(d));
        if came.is_empty() || !gone.iter().all(by_position) {
            return None;
        }
        came.extend(kept.into_iter().filter(by_position));
        came.sort_unstable();
        Some((came, gone))
    }
}

/// Position deletes and vectors of a plan's inputs that came since it was made: nobody has applied
/// them to the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Late {
    /// The plan's inputs, on the present snapshot, with the position deletes that came
    /// and no others; of an input that lost some, with all that apply to it now.
    pub came: Plan,
    /// The plan's inputs with the position deletes that went. Who goes on must find
    /// that `came` names every row that these name.
    pub gone: Plan,
}

impl Late {
    /// That these deletes apply to the inputs.
    pub fn conflict(&self) -> Conflict {
        let hit = self.came.inputs.iter().filter(|input| !input.deletes.is_empty());
        Conflict::DeletesChanged { files: hit.map(|input| input.path.to_string()).take(CONFLICT_SAMPLE).collect() }
    }
}

/// How many file names a conflict carries.
pub const CONFLICT_SAMPLE: usize = 5;

/// The upper bound of one job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// GB-hours reserved: memory limit × time limit.
    pub gb_hours: f64,
    /// Wall time after which the job is stopped, in milliseconds.
    pub millis: i64,
    /// Memory in bytes.
    pub memory: u64,
}

/// Ids that last: of a job (the plan), and of one try to carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobId(pub String);

/// See [`JobId`]. Written into the snapshot summary, which is how an unknown
/// outcome is resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptId(pub String);

impl AttemptId {
    /// Whether a snapshot whose summary holds this under [`ATTEMPT_KEY`] is the attempt's.
    pub fn made(&self, carried: &str) -> bool {
        carried.split(' ').any(|id| id == self.0)
    }

    /// The jobs whose attempts made a snapshot whose summary holds this.
    pub fn jobs(carried: &str) -> impl Iterator<Item = JobId> {
        carried.split(' ').filter_map(|id| id.rsplit_once('.')).map(|(job, _)| JobId(job.to_owned()))
    }
}

/// The snapshot summary key that holds the id of the attempt that made the snapshot, or of
/// all that share it, with a space between two.
pub const ATTEMPT_KEY: &str = "afterwrite.attempt-id";
/// The snapshot summary key that holds the instance id.
pub const INSTANCE_KEY: &str = "afterwrite.instance-id";

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn key(path: &str) -> FileKey {
        FileKey { path: path.into(), offset: None }
    }

    #[test]
    fn a_snapshot_is_that_of_each_attempt_whose_id_it_carries_whole() {
        let made = |id: &str, carried: &str| AttemptId(id.into()).made(carried);
        assert!(made("j1.1", "j1.1") && made("j1.1", "j1.1 j2.3") && made("j2.3", "j1.1 j2.3"));
        assert!(!made("j1.1", "j1.10 j2.3") && !made("j2", "j1.1 j2.3") && !made("", "j1.1 j2.3"));
        let jobs: Vec<_> = AttemptId::jobs("j1.1 j2.3 odd").map(|job| job.0).collect();
        assert_eq!(jobs, ["j1", "j2"]);
    }

    fn file(path: &str, deletes: &[&str]) -> LiveFile {
        let deletes = deletes.iter().map(|d| key(d)).collect();
        LiveFile { path: path.into(), bytes: 10, records: 3, data_sequence: 2, sort_order_id: None, first_row_id: None, deletes }
    }

    fn delete(path: &str, content: Content, data_sequence: i64) -> (FileKey, LiveDelete) {
        (key(path), LiveDelete { key: key(path), content, bytes: 1, records: 1, data_sequence })
    }

    /// Planned at sequence number 5 over file `f`, to which `d5` applies.
    fn plan() -> Plan {
        Plan {
            table: TableIdent::iceberg(Uuid::from_u128(1)),
            name: TableName::new("lake", "db", "t"),
            reference: "main".into(),
            snapshot_id: 50,
            sequence_number: 5,
            scope: PartitionKey::unpartitioned(0),
            reason: "request".into(),
            inputs: vec![file("f", &["d5"])],
            deletes: vec![delete("d5", Content::EqualityDeletes, 5).1],
            target_file_size: 100,
            bound: Bound { gb_hours: 1.0, millis: 1, memory: 1 },
        }
    }

    fn now(files: Vec<LiveFile>, deletes: &[(FileKey, LiveDelete)]) -> ScopeFiles {
        ScopeFiles {
            snapshot_id: 60,
            sequence_number: 6,
            scope: PartitionKey::unpartitioned(0),
            files,
            deletes: deletes.iter().cloned().collect(),
        }
    }

    fn changed() -> Result<(), Conflict> {
        Err(Conflict::DeletesChanged { files: vec!["f".into()] })
    }

    #[test]
    fn appends_leave_a_plan_good() {
        let d5 = delete("d5", Content::EqualityDeletes, 5);
        assert_eq!(plan().check(&now(vec![file("e", &[]), file("f", &["d5"])], &[d5])), Ok(()));
    }

    #[test]
    fn a_newer_equality_delete_reaches_the_outputs_and_leaves_a_plan_good() {
        let deletes = [delete("d5", Content::EqualityDeletes, 5), delete("d6", Content::EqualityDeletes, 6)];
        assert_eq!(plan().check(&now(vec![file("f", &["d5", "d6"])], &deletes)), Ok(()));
    }

    #[test]
    fn an_equality_delete_that_would_not_reach_the_outputs_is_a_conflict() {
        let deletes = [delete("d5", Content::EqualityDeletes, 5), delete("d6", Content::EqualityDeletes, 5)];
        assert_eq!(plan().check(&now(vec![file("f", &["d5", "d6"])], &deletes)), changed());
    }

    #[test]
    fn a_newer_position_delete_or_vector_is_a_conflict() {
        for content in [Content::PositionDeletes, Content::DeletionVector] {
            let deletes = [delete("d5", Content::EqualityDeletes, 5), delete("d6", content, 6)];
            assert_eq!(plan().check(&now(vec![file("f", &["d5", "d6"])], &deletes)), changed());
        }
    }

    #[test]
    fn newer_position_deletes_are_told_apart_by_input() {
        let deletes = [delete("d5", Content::EqualityDeletes, 5), delete("d6", Content::EqualityDeletes, 6)];
        let late = [delete("p6", Content::PositionDeletes, 6), delete("p7", Content::PositionDeletes, 7)];
        let plan = Plan { inputs: vec![file("f", &["d5"]), file("g", &[]), file("h", &[])], ..plan() };
        let files = vec![file("f", &["d5", "d6", "p6"]), file("g", &["p6", "p7"]), file("h", &["d6"])];

        let found = plan.late(&now(files, &[deletes, late.clone()].concat())).unwrap().unwrap();

        assert_eq!(found.came.inputs, vec![file("f", &["p6"]), file("g", &["p6", "p7"]), file("h", &[])]);
        assert_eq!(found.came.deletes, late.map(|(_, d)| d));
        assert_eq!((found.came.snapshot_id, found.came.sequence_number), (60, 5));
        assert_eq!((found.gone.snapshot_id, found.gone.deletes.len()), (50, 0));
        assert_eq!(found.conflict(), Conflict::DeletesChanged { files: vec!["f".into(), "g".into()] });
    }

    #[test]
    fn position_deletes_that_went_where_newer_ones_came_are_told_with_those_that_stayed() {
        let [p3, p4] = ["p3", "p4"].map(|name| delete(name, Content::PositionDeletes, 4));
        let plan = Plan { inputs: vec![file("f", &["p3", "p4"])], deletes: vec![p3.1.clone(), p4.1.clone()], ..plan() };
        let p6 = delete("p6", Content::PositionDeletes, 6);

        let found = plan.late(&now(vec![file("f", &["p4", "p6"])], &[p4.clone(), p6.clone()])).unwrap().unwrap();

        assert_eq!((found.came.inputs, found.came.deletes), (vec![file("f", &["p4", "p6"])], vec![p4.1.clone(), p6.1]));
        assert_eq!((found.gone.inputs, found.gone.deletes), (vec![file("f", &["p3"])], vec![p3.1]));
        // nothing came in the place of what went
        assert_eq!(plan.late(&now(vec![file("f", &["p4"])], &[p4])).map(drop), changed());
    }

    #[test]
    fn a_vector_that_came_in_the_place_of_another_is_told() {
        let [old, new] = [("v3", 4), ("v6", 6)].map(|(name, sequence)| delete(name, Content::DeletionVector, sequence));
        let plan = Plan { inputs: vec![file("f", &["v3"])], deletes: vec![old.1.clone()], ..plan() };

        let found = plan.late(&now(vec![file("f", &["v6"])], std::slice::from_ref(&new))).unwrap().unwrap();

        assert_eq!((found.came.inputs, found.came.deletes), (vec![file("f", &["v6"])], vec![new.1.clone()]));
        assert_eq!((found.gone.inputs, found.gone.deletes), (vec![file("f", &["v3"])], vec![old.1]));
        // a vector of the number of before was not applied and is not newer
        let stale = delete("v6", Content::DeletionVector, 5);
        assert_eq!(plan.late(&now(vec![file("f", &["v6"])], &[stale])).map(drop), changed());
    }

    #[test]
    fn a_position_delete_of_an_old_number_or_beside_a_lost_one_is_a_conflict_all_the_same() {
        let d5 = delete("d5", Content::EqualityDeletes, 5);
        let [old, new] = [5, 6].map(|sequence| delete("p", Content::PositionDeletes, sequence));
        assert_eq!(plan().late(&now(vec![file("f", &["d5", "p"])], &[d5.clone(), old])).map(drop), changed());
        assert_eq!(plan().late(&now(vec![file("f", &["p"])], &[new])).map(drop), changed());
        assert_eq!(plan().late(&now(vec![file("f", &["d5"])], &[d5])), Ok(None));
    }

    #[test]
    fn a_delete_taken_back_is_a_conflict_even_beside_a_newer_one() {
        assert_eq!(plan().check(&now(vec![file("f", &[])], &[])), changed());
        let d6 = delete("d6", Content::EqualityDeletes, 6);
        assert_eq!(plan().check(&now(vec![file("f", &["d6"])], &[d6])), changed());
    }

    #[test]
    fn a_file_that_was_given_row_ids_meanwhile_is_planned_again() {
        let given = LiveFile { first_row_id: Some(7), ..file("f", &["d5"]) };
        assert_eq!(plan().check(&now(vec![given], &[delete("d5", Content::EqualityDeletes, 5)])), changed());
    }

    #[test]
    fn a_file_that_is_gone_or_another_is_gone() {
        let gone = Err(Conflict::InputGone { files: vec!["f".into()] });
        assert_eq!(plan().check(&now(vec![], &[])), gone);
        let other = LiveFile { records: 4, ..file("f", &["d5"]) };
        assert_eq!(plan().check(&now(vec![other], &[delete("d5", Content::EqualityDeletes, 5)])), gone);
    }
}
