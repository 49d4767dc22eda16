//! What everybody else does to the tables: the file side by the fixture, the row
//! side by the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use afterwrite::lake::clock::Clock;
use afterwrite::model::partition::PartitionKey;
use iceberg::spec::{DataFile, FormatVersion, NestedField, Operation, PrimitiveType, Schema, TableMetadata, Type};

use super::hold;
use super::model::{Model, Row};
use super::now;
use super::reader::Live;
use super::world::{State, World};
use crate::fixture::files;
use crate::fixture::{Cell, Change, File, Table};

/// Columns that every table begins with.
pub(super) const ID: i32 = 1;
pub(super) const P: i32 = 3;
pub(super) const U: i32 = 4;

/// Rows above which tables are emptied rather than filled.
const MANY_ROWS: usize = 120;
const MANY_FILES: usize = 30;
const MANY_SNAPSHOTS: usize = 10;
/// Reading a manifest takes longer than most else: not many are kept.
const MANY_MANIFESTS: usize = 6;

/// What writers do, by the place of its weight.
const ACTS: [&str; 18] = [
    "appends",
    "upserts",
    "deletes of rows",
    "overwrites",
    "deletes of files",
    "foreign compactions",
    "schema changes",
    "spec changes",
    "expiries",
    "rollbacks",
    "tags",
    "manifest rewrites",
    "files left out in silence",
    "appends to a branch",
    "late commits",
    "waits",
    "upgrades",
    "columns that come back",
];

/// A table as a writer sees it.
pub(super) struct Scene<'a> {
    pub(super) table: usize,
    pub(super) of: &'a Table,
    pub(super) metadata: Arc<TableMetadata>,
    pub(super) rows: Model,
}

impl Scene<'_> {
    pub(super) fn schema(&self) -> &Schema {
        self.metadata.current_schema()
    }

    pub(super) fn head(&self) -> Option<i64> {
        self.metadata.current_snapshot_id()
    }

    fn has_deletes(&self) -> bool {
        self.metadata.format_version() != FormatVersion::V1
    }

    pub(super) fn name_of(&self, id: i32) -> Option<&str> {
        self.schema().field_by_id(id).map(|f| f.name.as_str())
    }

    /// A row's cells in the order of the schema's columns.
    pub(super) fn cells(&self, row: &Row) -> Vec<Cell> {
        self.schema().as_struct().fields().iter().map(|f| row.cell(f.id).clone()).collect()
    }

    pub(super) fn fields(&self) -> Vec<NestedField> {
        self.schema().as_struct().fields().iter().map(|f| f.as_ref().clone()).collect()
    }

    /// What decides the partition of a row, under any spec of the table.
    pub(super) fn same_partition(a: &Row, b: &Row) -> bool {
        a.cell(P) == b.cell(P) && a.cell(ID) == b.cell(ID)
    }
}

pub(super) fn file_of(live: &Live) -> File {
    files::file(live.data.file_path().to_owned(), DataFile::clone(&live.data), live.spec_id)
}

impl World {
    /// One act of some writer, or of time.
    pub fn write(&self) {
        let mut state = self.state();
        let table = state.dice.below(self.tables.len());
        let metadata = self.metadata(table);
        let rows = self.model(table, metadata.current_snapshot_id());
        let scene = Scene { table, of: &self.tables[table], metadata, rows };
        let files = self.files(&mut state, &scene);
        let full = scene.rows.rows().len() > MANY_ROWS || files.len() > MANY_FILES;
        let old = scene.metadata.snapshots().count() > MANY_SNAPSHOTS;
        let more = if full { 0 } else { 1 };
        let scattered = self.manifests(&mut state, &scene) > MANY_MANIFESTS;
        let weights = [
            24 * more,
            12,
            10,
            if full { 30 } else { 3 },
            3,
            4,
            3,
            2,
            if old { 30 } else { 4 },
            2,
            1,
            if scattered { 40 } else { 2 },
            1,
            2 * more,
            2,
            4,
            if scene.metadata.format_version() == FormatVersion::V3 { 0 } else { 2 },
            if self.schema_of_before(&state, &scene).is_some() { 60 } else { 0 },
        ];
        let act = state.dice.weighted(&weights);
        let deletes = scene.has_deletes();
        let before = self.foreign.load(Ordering::SeqCst);
        match act {
            0 => self.append(&mut state, &scene),
            1 if deletes => self.upsert(&mut state, &scene),
            2 if deletes => self.delete_rows(&mut state, &scene),
            3 => self.overwrite(&mut state, &scene, &files),
            4 => self.remove_file(&mut state, &scene, &files),
            5 => self.compact(&mut state, &scene, &files),
            6 => self.evolve_schema(&mut state, &scene),
            7 => self.evolve_spec(&mut state, &scene),
            8 => self.expire(&mut state, &scene),
            9 => self.roll_back(&mut state, &scene),
            10 => self.tag(&mut state, &scene),
            11 => self.rewrite_manifests(&mut state, &scene),
            12 => self.forget_file(&mut state, &scene, &files),
            13 => self.append_to_branch(&mut state, &scene),
            14 => {
                let count = self.backend.apply_late();
                self.gate.note(|| format!("  late commits arrive: {count} applied"));
            }
            15 => self.clock.pass(state.dice.below(1500) as i64),
            16 => self.upgrade(&mut state, &scene),
            17 => self.set_schema_back(&mut state, &scene),
            _ => self.append(&mut state, &scene),
        }
        if self.foreign.load(Ordering::SeqCst) > before {
            self.gate.count(ACTS[act]);
            if act == 8 && !hold(&self.account).is_idle() {
                self.gate.count("expiries while a job runs");
            }
        }
    }

    /// An append that always is one, so that the table moves.
    pub fn nudge(&self, table: usize) {
        let mut state = self.state();
        let metadata = self.metadata(table);
        let rows = self.model(table, metadata.current_snapshot_id());
        let scene = Scene { table, of: &self.tables[table], metadata, rows };
        self.append(&mut state, &scene);
        if scene.metadata.snapshot_for_ref("audit").is_some() {
            self.append_to_branch(&mut state, &scene);
        }
    }

    pub(super) fn files(&self, state: &mut State, scene: &Scene<'_>) -> Vec<Live> {
        let Some(head) = scene.metadata.current_snapshot() else { return vec![] };
        state.reader.live(&scene.metadata, head).unwrap()
    }

    fn manifests(&self, state: &mut State, scene: &Scene<'_>) -> usize {
        scene.metadata.current_snapshot().map_or(0, |head| state.reader.list(&scene.metadata, head).unwrap().len())
    }

    pub(super) fn row(&self, state: &mut State, scene: &Scene<'_>) -> Row {
        state.u += 1;
        let u = state.u;
        let dice = &mut state.dice;
        let mut cells = BTreeMap::new();
        for field in scene.schema().as_struct().fields() {
            let cell = match field.id {
                U => Cell::Int(u),
                ID if dice.one_in(20) => Cell::Null,
                ID => Cell::Int(dice.below(12) as i64),
                P if dice.one_in(15) => Cell::Null,
                P => Cell::Int(dice.below(3) as i64),
                _ if dice.one_in(5) => Cell::Null,
                _ if *field.field_type == Type::Primitive(PrimitiveType::String) => {
                    Cell::Text(["a", "b", "c", "", "a longer text than the others"][dice.below(5)].into())
                }
                _ => Cell::Int(dice.below(3) as i64),
            };
            cells.insert(field.id, cell);
        }
        let scope = PartitionKey { spec_id: 0, tuple: Default::default() };
        Row { u, cells, scope }
    }

    /// New rows, all of one partition, with those of `like` where it is given.
    pub(super) fn group(&self, state: &mut State, scene: &Scene<'_>, like: Option<&Row>) -> Vec<Row> {
        let first = self.row(state, scene);
        let pattern = like.cloned().unwrap_or_else(|| first.clone());
        let most = if state.dice.one_in(6) { 40 } else { 4 };
        let count = 1 + state.dice.below(most);
        (0..count)
            .map(|_| {
                let mut row = self.row(state, scene);
                let free = scene.metadata.default_partition_spec().is_unpartitioned();
                let fixed: &[i32] = if free { &[] } else { &[P, ID] };
                fixed.iter().for_each(|id| {
                    row.cells.insert(*id, pattern.cell(*id).clone());
                });
                row
            })
            .collect()
    }

    /// Commits, and books what it did to the rows: `rows` those without the new ones.
    pub(super) fn land(&self, state: &mut State, scene: &Scene<'_>, what: &str, change: Change<'_>, rows: Model, new: Vec<Vec<Row>>) {
        let made = now(change.at(self.clock.now_ms()).commit());
        let placed = new.into_iter().zip(&made.data).flat_map(|(rows, file)| {
            let scope = &file.partition;
            rows.into_iter().map(|row| Row { scope: scope.clone(), ..row }).collect::<Vec<_>>()
        });
        let placed: Vec<Row> = placed.collect();
        self.foreign.fetch_add(1, Ordering::SeqCst);
        let fresh = placed.iter().map(|row| row.u).collect();
        state.checked.fresh.insert((scene.table, made.snapshot_id), fresh);
        let rows = rows.with(placed);
        self.gate.note(|| format!("table {}: {what}, snapshot {}, {} rows", scene.table, made.snapshot_id, rows.rows().len()));
        hold(&self.models).insert((scene.table, made.snapshot_id), rows);
        state.mail.push((scene.table, made.snapshot_id));
    }

    fn append(&self, state: &mut State, scene: &Scene<'_>) {
        let groups: Vec<Vec<Row>> = (0..1 + state.dice.below(3)).map(|_| self.group(state, scene, None)).collect();
        let mut change = scene.of.change();
        for group in &groups {
            change = change.append(group.iter().map(|row| scene.cells(row)));
        }
        self.land(state, scene, "append", change, scene.rows.clone(), groups);
    }

    /// The rows of these files, live or not.
    fn rows_in(&self, state: &mut State, files: &[&Live]) -> BTreeSet<i64> {
        let mut all = BTreeSet::new();
        for file in files {
            let rows = state.reader.rows(file.data.file_path()).unwrap();
            all.extend(rows.columns.get(&U).into_iter().flatten().map(|u| u.parse::<i64>().unwrap()));
        }
        all
    }

    fn scope<'f>(&self, state: &mut State, files: &'f [Live]) -> Vec<&'f Live> {
        let data: Vec<&Live> = files.iter().filter(|f| f.is_data()).collect();
        let Some(first) = state.dice.pick(&data) else { return vec![] };
        let scope = files::key(first.spec_id, first.data.partition());
        files.iter().filter(|f| files::key(f.spec_id, f.data.partition()) == scope).collect()
    }

    fn overwrite(&self, state: &mut State, scene: &Scene<'_>, all: &[Live]) {
        let mut gone = self.scope(state, all);
        let Some(first) = gone.first() else { return };
        let global = scene.metadata.partition_spec_by_id(first.spec_id).unwrap().is_unpartitioned();
        if global || state.dice.one_in(2) {
            gone.retain(|f| f.is_data());
        }
        let data: Vec<&Live> = gone.iter().copied().filter(|f| f.is_data()).collect();
        let us = self.rows_in(state, &data);
        if gone.len() == data.len() {
            gone = self.with_vectors(state, data, all);
        }
        let removed: Vec<File> = gone.iter().map(|f| file_of(f)).collect();
        let rows = scene.rows.without(|row| us.contains(&row.u));
        let group = self.group(state, scene, None);
        let change = scene.of.change().remove(&removed.iter().collect::<Vec<_>>()).append(group.iter().map(|row| scene.cells(row)));
        self.land(state, scene, &format!("overwrite of {} files", removed.len()), change, rows, vec![group]);
    }

    fn remove_file(&self, state: &mut State, scene: &Scene<'_>, all: &[Live]) {
        let data: Vec<&Live> = all.iter().filter(|f| f.is_data()).collect();
        let Some(one) = state.dice.pick(&data).copied() else { return };
        let us = self.rows_in(state, &[one]);
        let rows = scene.rows.without(|row| us.contains(&row.u));
        let removed: Vec<File> = self.with_vectors(state, vec![one], all).into_iter().map(file_of).collect();
        let change = scene.of.change().remove(&removed.iter().collect::<Vec<_>>()).operation(Operation::Delete);
        self.land(state, scene, "a file is deleted", change, rows, vec![]);
    }

    /// Rewrites its manifests without a file, and does not say so.
    fn forget_file(&self, state: &mut State, scene: &Scene<'_>, all: &[Live]) {
        let data: Vec<&Live> = all.iter().filter(|f| f.is_data()).collect();
        let Some(one) = state.dice.pick(&data).copied() else { return };
        let us = self.rows_in(state, &[one]);
        let rows = scene.rows.without(|row| us.contains(&row.u));
        let change = scene.of.change().forget(&[&file_of(one)]).operation(Operation::Overwrite);
        self.land(state, scene, "a file is left out in silence", change, rows, vec![]);
    }

    /// Another optimizer.
    fn compact(&self, state: &mut State, scene: &Scene<'_>, all: &[Live]) {
        let inputs: Vec<&Live> = self.scope(state, all).into_iter().filter(|f| f.is_data()).take(6).collect();
        if inputs.is_empty() {
            return;
        }
        let us = self.rows_in(state, &inputs);
        let rows: Vec<Row> = scene.rows.rows().iter().filter(|row| us.contains(&row.u)).map(|row| Row::clone(row)).collect();
        let spec_id = inputs[0].spec_id;
        let removed: Vec<File> = self.with_vectors(state, inputs, all).into_iter().map(file_of).collect();
        let mut change = scene.of.change().remove(&removed.iter().collect::<Vec<_>>()).operation(Operation::Replace);
        let mut groups = vec![];
        if !rows.is_empty() {
            change = change.append_under(spec_id, rows.iter().map(|row| scene.cells(row)));
            groups.push(rows);
        }
        let left = scene.rows.without(|row| us.contains(&row.u));
        self.land(state, scene, &format!("foreign compaction of {} files", removed.len()), change, left, groups);
    }

    fn rewrite_manifests(&self, state: &mut State, scene: &Scene<'_>) {
        if scene.head().is_some() {
            let change = scene.of.change().rewrite_manifests().operation(Operation::Replace);
            self.land(state, scene, "manifests rewritten", change, scene.rows.clone(), vec![]);
        }
    }

    /// A branch that nobody asked us to look after.
    fn append_to_branch(&self, state: &mut State, scene: &Scene<'_>) {
        let head = scene.metadata.snapshot_for_ref("audit").map(|s| s.snapshot_id()).or(scene.head());
        let rows = self.model(scene.table, head);
        let group = self.group(state, scene, None);
        let change = scene.of.change().branch("audit").append(group.iter().map(|row| scene.cells(row)));
        self.land(state, scene, "append to branch audit", change, rows, vec![group]);
    }
}
