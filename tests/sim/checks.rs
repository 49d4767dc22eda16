//! What must hold of the tables at every moment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use afterwrite::lake::clock::Clock;
use iceberg::spec::{FormatVersion, Snapshot, TableMetadata};

use super::hold;
use super::reader::Kept;
use super::world::{State, World};
use super::writers::U;

/// The references that tables have.
pub const REFERENCES: [&str; 4] = ["main", "audit", "old", "older"];

/// Field ids of `_row_id` and `_last_updated_sequence_number`.
const ROW_ID: i32 = 2_147_483_540;
const LAST_UPDATED: i32 = 2_147_483_539;

/// Of each row, by its own number: its id, and the sequence number that last changed it.
type Lineage = BTreeMap<i64, (Option<i64>, i64)>;

/// What was found right, so that it is not looked at again: files never change.
pub struct Checked {
    /// Each table's metadata file.
    tables: BTreeMap<usize, String>,
    /// Each snapshot, with the schema and the format by which its rows were read.
    snapshots: BTreeMap<(usize, i64), (i32, FormatVersion)>,
    lineages: BTreeMap<(usize, i64), Arc<Lineage>>,
    /// Rows that a foreign snapshot wrote: they get new ids.
    pub fresh: BTreeMap<(usize, i64), BTreeSet<i64>>,
    /// Rows as texts, by table and schema.
    lines: HashMap<(usize, i32, i64), Arc<str>>,
    began_ms: i64,
    high_ms: i64,
}

impl Checked {
    pub fn at(now_ms: i64) -> Self {
        Self {
            tables: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            lineages: BTreeMap::new(),
            fresh: BTreeMap::new(),
            lines: HashMap::new(),
            began_ms: now_ms,
            high_ms: now_ms,
        }
    }
}

impl World {
    /// Everything that must hold now. Errs with what does not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(wrong) = self.gate.take_wrong() {
            return Err(wrong);
        }
        let mut state = self.state();
        self.check_deleted(&mut state)?;
        for table in 0..self.tables.len() {
            self.check_table(&mut state, table)?;
        }
        self.check_budget(&mut state)
    }

    /// The product deleted nothing that a live snapshot needs.
    fn check_deleted(&self, state: &mut State) -> Result<(), String> {
        let deleted = self.objects.take_deleted();
        if deleted.is_empty() {
            return Ok(());
        }
        for table in 0..self.tables.len() {
            let metadata = self.metadata(table);
            for snapshot in metadata.snapshots() {
                let needed = state.reader.reach(&metadata, snapshot).map_err(|e| format!("a live file is gone: {e}"))?;
                if let Some(path) = deleted.iter().find(|path| needed.binary_search_by(|needed| (**needed).cmp(path)).is_ok()) {
                    return Err(format!("the product deleted {path}, which snapshot {} needs", snapshot.snapshot_id()));
                }
            }
        }
        Ok(())
    }

    /// Every snapshot has the rows of the model, and all of its files. The product never
    /// writes over a file, so that this is looked at once; the rows of references again
    /// when the schema or the format changes, by which they are read.
    pub(super) fn check_table(&self, state: &mut State, table: usize) -> Result<(), String> {
        let location = self.backend.pointer(&self.tables[table].name).unwrap();
        if state.checked.tables.get(&table) == Some(&location) {
            return Ok(());
        }
        let metadata = self.metadata(table);
        let heads: Vec<i64> = REFERENCES.iter().filter_map(|name| Some(metadata.snapshot_for_ref(name)?.snapshot_id())).collect();
        let read_by = (metadata.current_schema_id(), metadata.format_version());
        let mut snapshots: Vec<_> = metadata.snapshots().collect();
        snapshots.sort_by_key(|s| (s.sequence_number(), s.timestamp_ms(), s.snapshot_id()));
        for snapshot in snapshots {
            let id = snapshot.snapshot_id();
            let before = state.checked.snapshots.insert((table, id), read_by);
            let right = before.is_some_and(|before| before == read_by || !heads.contains(&id));
            if right {
                continue;
            }
            let name = format!("table {table}, snapshot {id}");
            if before.is_none() {
                let needed = state.reader.reach(&metadata, snapshot).map_err(|e| format!("{name}: a file is gone: {e}"))?;
                if let Some(gone) = needed.iter().find(|path| !self.objects.has(path)) {
                    return Err(format!("{name}: {gone} is not in the store"));
                }
            }
            let kept = state.reader.kept(&metadata, snapshot).map_err(|e| format!("{name}: {e}"))?;
            self.check_rows(state, table, &metadata, snapshot, &kept).map_err(|e| format!("{name}: {e}"))?;
            if before.is_none() && metadata.format_version() == FormatVersion::V3 {
                self.check_lineage(state, table, &metadata, snapshot, &kept).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        state.checked.tables.insert(table, location);
        Ok(())
    }

    fn check_rows(&self, state: &mut State, table: usize, of: &TableMetadata, snapshot: &Snapshot, kept: &[Kept]) -> Result<(), String> {
        let ids: Vec<i32> = of.current_schema().as_struct().fields().iter().map(|f| f.id).collect();
        let lines: Vec<_> = kept.iter().map(|file| state.reader.lines(&file.rows, &ids)).collect();
        let all = kept.iter().zip(&lines).flat_map(|(file, lines)| lines.iter().zip(&file.kept));
        let mut found: Vec<&str> = all.filter(|(_, kept)| **kept).map(|(line, _)| line.as_str()).collect();
        found.sort_unstable();
        let model = self.model(table, Some(snapshot.snapshot_id()));
        let schema = of.current_schema_id();
        let line = |row: &Arc<super::model::Row>| {
            let known = state.checked.lines.entry((table, schema, row.u));
            Arc::clone(known.or_insert_with(|| row.line(&ids).into()))
        };
        let mut expected: Vec<Arc<str>> = model.rows().iter().map(line).collect();
        expected.sort_unstable();
        let same = found.len() == expected.len() && found.iter().zip(&expected).all(|(found, expected)| *found == &**expected);
        if same { Ok(()) } else { Err(format!("rows are {found:?}\n  and must be {expected:?}")) }
    }

    /// Every row keeps its id and the sequence number of its last change; those that had
    /// no id get one of those that the snapshot gives out, and so do new rows.
    fn check_lineage(&self, state: &mut State, table: usize, of: &TableMetadata, snapshot: &Snapshot, kept: &[Kept]) -> Result<(), String> {
        let (id, lineage) = (snapshot.snapshot_id(), Arc::new(traced(kept)));
        state.checked.lineages.insert((table, id), Arc::clone(&lineage));
        // made before the table was upgraded
        let Some((first, rows)) = snapshot.row_range() else { return Ok(()) };
        let given = first as i64..(first + rows) as i64;
        if given.end > of.next_row_id() as i64 {
            return Err(format!("it gives out the ids {given:?}, and the table's next is {}", of.next_row_id()));
        }
        let before = match snapshot.parent_snapshot_id() {
            Some(parent) => self.lineage(state, table, of, parent)?,
            None => Arc::default(),
        };
        let none = BTreeSet::new();
        let (fresh, mut ids) = (state.checked.fresh.get(&(table, id)).unwrap_or(&none), BTreeSet::new());
        for (u, (id, updated)) in lineage.iter() {
            let was = before.get(u).filter(|_| !fresh.contains(u));
            let right = match (was, id) {
                (Some((Some(was), sequence)), Some(id)) => id == was && updated == sequence,
                (Some((None, sequence)), Some(id)) => given.contains(id) && updated == sequence,
                (None, Some(id)) => given.contains(id) && *updated == snapshot.sequence_number(),
                (_, None) => false,
            };
            if !right || !ids.insert(*id) {
                let fresh = fresh.contains(u);
                return Err(format!(
                    "row {u} (fresh: {fresh}) has the lineage {id:?}, {updated}, and had {was:?}; {given:?} are given out"
                ));
            }
        }
        self.gate.count("snapshots whose lineage was checked");
        Ok(())
    }

    fn lineage(&self, state: &mut State, table: usize, of: &TableMetadata, snapshot: i64) -> Result<Arc<Lineage>, String> {
        if let Some(known) = state.checked.lineages.get(&(table, snapshot)) {
            return Ok(Arc::clone(known));
        }
        let parent = of.snapshot_by_id(snapshot).ok_or_else(|| format!("its parent {snapshot} was never looked at"))?;
        let lineage = Arc::new(traced(&state.reader.kept(of, parent)?));
        state.checked.lineages.insert((table, snapshot), Arc::clone(&lineage));
        Ok(lineage)
    }

    /// What is held and was ever spent, over all restarts, is never more than any budget
    /// gave until then.
    fn check_budget(&self, state: &mut State) -> Result<(), String> {
        let checked = &mut state.checked;
        checked.high_ms = checked.high_ms.max(self.clock.now_ms());
        let (began_ms, high_ms) = (checked.began_ms, checked.high_ms);
        let hours = |at_ms: i64| (high_ms.max(at_ms) - began_ms).max(0) as f64 / 3_600_000.0;
        hold(&self.account).check(&self.settings, hours, high_ms)
    }

    /// Files of the product that nothing accounts for.
    pub fn litter(&self, state: &mut State) -> Result<Vec<String>, String> {
        let mut known: BTreeSet<String> = self.journal.all_files();
        for table in 0..self.tables.len() {
            let metadata = self.metadata(table);
            known.extend(self.backend.pointer(&self.tables[table].name));
            for snapshot in metadata.snapshots() {
                known.extend(state.reader.reach(&metadata, snapshot)?.iter().map(|path| path.to_string()));
            }
        }
        let landed = self.backend.landed();
        Ok(self.objects.ours().into_iter().filter(|path| !known.contains(path) && !landed.contains(path)).collect())
    }
}

/// The lineage of the live rows: what is stored, else counted on from the file's first
/// id, and the file's own sequence number.
fn traced(kept: &[Kept]) -> Lineage {
    let mut lineage = Lineage::new();
    for Kept { file, rows, kept, .. } in kept {
        for row in (0..rows.count).filter(|row| kept[*row]) {
            let id = rows.number(row, ROW_ID).or(file.first_row_id.map(|first| first + row as i64));
            let updated = rows.number(row, LAST_UPDATED).unwrap_or(file.sequence);
            lineage.insert(rows.number(row, U).unwrap(), (id, updated));
        }
    }
    lineage
}
