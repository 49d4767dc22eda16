//! The replace commit: validate against the base, build its manifests, ask the
//! catalog once, and say what became of it.

mod asked;
mod dangling;
mod foresee;
pub(super) mod ids;
mod join;
pub(super) mod manifests;
mod mark;
mod merge;
mod outputs;
mod remove;
pub(super) mod replace;
mod resolve;
mod summary;
mod trace;
mod undo;

pub use foresee::foresee;
pub use join::commit_joined;
pub use mark::mark;
pub use remove::remove_outputs;
pub use resolve::find_attempt;
pub(super) use resolve::parentless;
pub use trace::trace_attempt;
pub use undo::undo;

use std::collections::{BTreeMap, HashSet};

use iceberg::spec::ManifestContentType::{Data, Deletes};
use iceberg::spec::{DataFile, FormatVersion, Snapshot, SnapshotReference, SnapshotRetention, StatisticsFile, TableMetadata};
use iceberg::{TableRequirement, TableUpdate};

use self::asked::Asked;
use self::dangling::Replaced;
use self::manifests::Target;
use self::replace::{Batch, Edit, Folder};
use self::summary::{Change, summary};
use super::carry::{self, Carried};
use super::rewrite::Detail;
use super::scope::head::{self, Head};
use super::scope::{self, State};
use super::store::Store;
use super::table::IcebergTable;
use crate::lake::{Commit, Error, Member, Result, Written};
use crate::model::file::FileKey;
use crate::model::killpoint::KillPoint;
use crate::model::outcome::{Conflict, Outcome};
use crate::model::plan::{Late, LiveDelete, Plan};
use crate::model::refusal::{Refusal, Refused};

/// One attempt to replace the plan's inputs by the outputs, on this state of the
/// table as base.
///
/// Invariants checked:
/// * the table is the plan's, by uuid, and the branch is the plan's;
/// * [`Plan::late`] holds on the base: every input live and unchanged, the deletes
///   that apply to the inputs exactly those planned, but for position deletes and vectors
///   that came since, which may name the rows of planned ones anew. These become deletes
///   of the outputs in the same commit, with its own sequence number: see [`carry::over`]
///   for what is proven of them;
/// * the outputs read as the inputs do, under the base's schema and to the
///   equality deletes that came since: no column that they lack is in either;
/// * rows out = rows in − rows deleted; outputs are new files of the plan's
///   partition and spec;
/// * the catalog swaps only if the table's uuid, the branch's head and the current schema
///   are still the base's: a request that arrives late must not meet a column that has
///   come back and that the outputs lack.
///
/// Outputs carry the plan's sequence number, the same in every retry. Survivors
/// of a rewritten manifest keep snapshot id, both sequence numbers and, in format v3,
/// row ids; entries that were dead stay dead. Delete files that are proven to cover nothing any
/// more go in the same commit. Nothing is kept between two calls.
///
/// Crash: before the catalog is asked, manifests of which the control was told
/// are left and nothing else. After it, the attempt id in the snapshot's summary
/// tells what became of it.
///
/// # Errors
/// Only when the catalog was not asked: refusals, store errors, a control that
/// says stop. From then on every failure is [`Outcome::Unknown`].
pub async fn commit(table: &IcebergTable, plan: &Plan, written: &Written, commit: &Commit<'_>) -> Result<Outcome> {
    let alone = Member { plan, written, attempt: commit.attempt, control: commit.control };
    match prepare_on(table, alone, commit).await? {
        Ok((head, ready)) => land(table, &head, &[ready], commit).await,
        Err(conflict) => Ok(Outcome::Conflict(conflict)),
    }
}

/// One rewrite, validated on a base that is read for it.
async fn prepare_on<'a>(
    table: &IcebergTable,
    member: Member<'a>,
    commit: &Commit<'_>,
) -> Result<std::result::Result<(Head, Ready<'a>), Conflict>> {
    if let Some(conflict) = is_for(table, member.plan)? {
        return Ok(Err(conflict));
    }
    let Some(head) = head::read(table).await? else { return Ok(Err(without_snapshot(member.plan))) };
    let state = scope::read_state(table, &head, &member.plan.scope).await?;
    Ok(prepare(table, &head, member, state, commit).await?.map(|ready| (head, ready)))
}

/// Whether a plan is for this table and branch, as far as their names tell.
///
/// # Errors
/// [`Error::Setup`] for another branch; `encrypted`.
fn is_for(table: &IcebergTable, plan: &Plan) -> Result<Option<Conflict>> {
    if table.view.ident != plan.table {
        return Ok(Some(Conflict::TableGone));
    }
    if table.view.reference != plan.reference {
        return Err(Error::Setup(format!("the plan is for branch {}, the table was loaded for {}", plan.reference, table.view.reference)));
    }
    refuse(&table.loaded.metadata)?;
    Ok(None)
}

/// A plan on a branch that has no snapshot any more.
fn without_snapshot(plan: &Plan) -> Conflict {
    Conflict::InputGone { files: plan.inputs.iter().take(1).map(|f| f.path.to_string()).collect() }
}

/// A rewrite that fits the base, with the files that its commit adds.
struct Ready<'a> {
    member: Member<'a>,
    state: State,
    added: Added,
}

/// Validates one rewrite against the base, and carries deletes over; see [`commit`]. Its
/// control is told of the files that this writes.
async fn prepare<'a>(
    table: &IcebergTable,
    head: &Head,
    member: Member<'a>,
    state: State,
    commit: &Commit<'_>,
) -> Result<std::result::Result<Ready<'a>, Conflict>> {
    let Member { plan, written, attempt, control } = member;
    let detail = outputs::detail(written)?;
    let late = match validate(table, head, &state, plan, detail) {
        Ok(late) => late,
        Err(conflict) => return Ok(Err(conflict)),
    };
    let outputs = outputs::entries(table, plan, written, detail)?;
    let carried = match &late {
        None => Carried::default(),
        Some(late) => match carry::over(table, late, written, detail, &Commit { attempt, control, ..*commit }).await? {
            Some(carried) => carried,
            None => return Ok(Err(late.conflict())),
        },
    };
    control.carries(carried.rows);
    check_sequence(plan, &table.loaded.metadata)?;
    Ok(Ok(Ready { member, state, added: Added { outputs, deletes: carried.files } }))
}

/// Whether the rewrite still holds on the base, and the deletes that came since its plan.
fn validate(table: &IcebergTable, head: &Head, state: &State, plan: &Plan, detail: &Detail) -> std::result::Result<Option<Late>, Conflict> {
    let late = plan.late(&state.scope_files(head))?;
    match outputs::reads_otherwise(table, state, plan, &detail.columns) {
        Some(conflict) => Err(conflict),
        None => Ok(late),
    }
}

/// One question to the catalog, for all that is ready on this base.
async fn land(table: &IcebergTable, head: &Head, ready: &[Ready<'_>], commit: &Commit<'_>) -> Result<Outcome> {
    let snapshot = build(table, head, ready, commit).await?;
    commit.control.reached(KillPoint::ManifestsWritten);
    ask(table, snapshot, head.snapshot.snapshot_id(), commit).await
}

/// What the metadata says must not be rewritten.
fn refuse(metadata: &TableMetadata) -> Result<()> {
    if metadata.encryption_keys_iter().next().is_some() {
        return Err(Refused::new(Refusal::Encrypted, "the metadata lists encryption keys").into());
    }
    Ok(())
}

/// The files that a commit adds.
struct Added {
    /// Data files.
    outputs: Vec<DataFile>,
    /// Position deletes or vectors of them.
    deletes: Vec<DataFile>,
}

/// Writes the manifests and the list of the new snapshot. A function of base,
/// plans and added files, but for ids and time.
async fn build(table: &IcebergTable, head: &Head, ready: &[Ready<'_>], commit: &Commit<'_>) -> Result<Snapshot> {
    let metadata = &table.loaded.metadata;
    let sequence = next_sequence(metadata)?;
    let dangling = dangling(table, head, ready).await?;
    let change = change(ready, &dangling);
    let edit = edit(ready, &dangling, sequence)?;
    let snapshot_id = free_id(metadata, commit.nonce);
    let target = Target { store: Store::new(&table.loaded.io), format: metadata.format_version(), snapshot_id, control: commit.control };
    let folder = Folder::of(table, commit.nonce);
    let parent = &head.snapshot;
    let manifests = replace::manifests(table, head, edit, &target, &folder).await?;
    let attempts: Vec<&str> = ready.iter().map(|r| r.member.attempt.0.as_str()).collect();
    let summary = summary(&change, parent.summary(), &manifests, &attempts.join(" "), commit.instance);
    let list = folder.list(snapshot_id);
    let listed = ids::assign(metadata, manifests)?;
    let given = listed.ids;
    target.write_list(&list, Some(parent.snapshot_id()), sequence, listed).await?;
    let snapshot = Snapshot::builder()
        .with_snapshot_id(snapshot_id)
        .with_parent_snapshot_id(Some(parent.snapshot_id()))
        .with_sequence_number(sequence)
        .with_timestamp_ms(time(metadata, parent, commit.now_ms))
        .with_manifest_list(list)
        .with_summary(summary)
        .with_schema_id(metadata.current_schema_id());
    Ok(match given {
        Some(ids) => snapshot.with_row_range(ids.first, ids.rows).build(),
        None => snapshot.build(),
    })
}

/// The deletes that cover nothing any more after the commit, by the rewrite that finds them
/// so; each once.
async fn dangling(table: &IcebergTable, head: &Head, ready: &[Ready<'_>]) -> Result<Vec<Vec<LiveDelete>>> {
    let all: Vec<_> = ready.iter().map(|r| Replaced { plan: r.member.plan, outputs: !r.added.outputs.is_empty() }).collect();
    let (mut found, mut known) = (Vec::with_capacity(all.len()), HashSet::new());
    for (Ready { state, .. }, one) in ready.iter().zip(&all) {
        let mut dangling = dangling::find(table, head, state, one, &all).await?;
        dangling.retain(|delete| known.insert(delete.key.clone()));
        found.push(dangling);
    }
    Ok(found)
}

/// What the rewrites change in the base's manifests.
fn edit(ready: &[Ready<'_>], dangling: &[Vec<LiveDelete>], sequence: i64) -> Result<Edit> {
    let mut edit = Edit { doomed: BTreeMap::new(), added: Vec::new() };
    for (Ready { member: Member { plan, .. }, state, added }, dangling) in ready.iter().zip(dangling) {
        let inputs: Vec<FileKey> = plan.inputs.iter().map(|f| FileKey { path: f.path.clone(), offset: None }).collect();
        for (home, files) in replace::by_home(&state.homes, inputs.iter().chain(dangling.iter().map(|d| &d.key)))? {
            edit.doomed.entry(home).or_default().extend(files);
        }
        let spec_id = plan.scope.spec_id;
        edit.added.push(Batch { content: Data, spec_id, files: added.outputs.clone(), sequence: plan.sequence_number });
        // they apply to the outputs, which are older
        edit.added.push(Batch { content: Deletes, spec_id, files: added.deletes.clone(), sequence });
    }
    Ok(edit)
}

/// The sequence number of the new snapshot.
fn next_sequence(metadata: &TableMetadata) -> Result<i64> {
    match metadata.format_version() {
        FormatVersion::V1 => Ok(0),
        _ => metadata.last_sequence_number().checked_add(1).ok_or_else(|| Error::Setup("the table's sequence numbers are used up".into())),
    }
}

/// # Errors
/// [`Error::Proof`], when the plan's own sequence number is not one that its outputs may
/// carry: newer than the base, or older than an input, which would let deletes
/// that were not applied to the input reach its rows.
fn check_sequence(plan: &Plan, metadata: &TableMetadata) -> Result<()> {
    let newest_input = plan.inputs.iter().map(|f| f.data_sequence).max().unwrap_or(0);
    if plan.sequence_number < newest_input || plan.sequence_number > metadata.last_sequence_number() {
        return Err(Error::Proof(format!(
            "outputs cannot carry sequence number {}: the newest input has {newest_input}, the table {}",
            plan.sequence_number,
            metadata.last_sequence_number()
        )));
    }
    Ok(())
}

fn change(ready: &[Ready<'_>], dangling: &[Vec<LiveDelete>]) -> Change {
    let mut change = Change { partitions: ready.len() as u64, ..Change::default() };
    for (Ready { member, added, .. }, dangling) in ready.iter().zip(dangling) {
        change.remove(&member.plan.inputs, dangling);
        added.outputs.iter().for_each(|f| change.added.add(f.record_count(), f.file_size_in_bytes()));
        for delete in &added.deletes {
            let (side, bytes) = match delete.content_size_in_bytes().and_then(|bytes| u64::try_from(bytes).ok()) {
                Some(bytes) => (&mut change.added_vectors, bytes),
                None => (&mut change.added_deletes, delete.file_size_in_bytes()),
            };
            side.add(delete.record_count(), bytes);
        }
    }
    change
}

/// A positive snapshot id that the table does not have.
pub(super) fn free_id(metadata: &TableMetadata, nonce: u64) -> i64 {
    let mut id = i64::try_from(nonce >> 1).unwrap_or(1).max(1);
    while metadata.snapshot_by_id(id).is_some() {
        id = id.checked_add(1).unwrap_or(1);
    }
    id
}

/// Never before what the table has seen: the format orders its logs by time.
fn time(metadata: &TableMetadata, parent: &Snapshot, now_ms: i64) -> i64 {
    now_ms.max(metadata.last_updated_ms()).max(parent.timestamp_ms())
}

async fn ask(table: &IcebergTable, snapshot: Snapshot, base: i64, commit: &Commit<'_>) -> Result<Outcome> {
    let metadata = &table.loaded.metadata;
    let snapshot_id = snapshot.snapshot_id();
    let statistics = metadata.statistics_for_snapshot(base).map(|s| carried(s, snapshot_id));
    let mut updates = vec![
        TableUpdate::AddSnapshot { snapshot },
        TableUpdate::SetSnapshotRef { ref_name: table.view.reference.clone(), reference: branch(table, snapshot_id)? },
    ];
    updates.extend(statistics.map(|statistics| TableUpdate::SetStatistics { statistics }));
    let control = Asked::new(commit.control);
    let mut requirements = requirements(table, base);
    requirements.push(TableRequirement::CurrentSchemaIdMatch { current_schema_id: metadata.current_schema_id() });
    let answer = table.catalog.commit(&table.loaded, requirements, updates, &control).await;
    commit.control.reached(KillPoint::CatalogAnswered);
    resolve::settle(table, snapshot_id, commit.attempt, control.answer(answer)?).await
}

/// Table statistics hold for the new snapshot: its rows are the same. Partition
/// statistics do not: they count files.
fn carried(statistics: &StatisticsFile, snapshot_id: i64) -> StatisticsFile {
    StatisticsFile { snapshot_id, ..statistics.clone() }
}

fn requirements(table: &IcebergTable, head: i64) -> Vec<TableRequirement> {
    vec![
        TableRequirement::UuidMatch { uuid: table.loaded.metadata.uuid() },
        TableRequirement::RefSnapshotIdMatch { r#ref: table.view.reference.clone(), snapshot_id: Some(head) },
    ]
}

/// The branch moved to a snapshot, with the retention that it has. The crate
/// keeps its references private, so they are read from the serialized metadata.
pub(super) fn branch(table: &IcebergTable, snapshot_id: i64) -> Result<SnapshotReference> {
    let name = &table.view.reference;
    let failed = |e: serde_json::Error| Error::damaged(&table.loaded.metadata_location, e);
    let whole = serde_json::to_value(table.loaded.metadata.as_ref()).map_err(failed)?;
    let reference = whole.get("refs").and_then(|refs| refs.get(name)).cloned();
    let retention = match reference.map(serde_json::from_value::<SnapshotReference>).transpose().map_err(failed)? {
        Some(reference) if reference.is_branch() => reference.retention,
        Some(_) => return Err(Error::Setup(format!("{name} is a tag, not a branch"))),
        None => SnapshotRetention::branch(None, None, None),
    };
    Ok(SnapshotReference::new(snapshot_id, retention))
}
