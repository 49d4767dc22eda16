//! From the known head to the present one: which snapshots to take back, which
//! to add, or why that cannot be told. Pure.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::state::TableState;
use crate::model::layout::SizeScale;
use crate::model::table::{SnapshotInfo, TableView};

/// How a known layout becomes the layout of a view's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// The head is the known one.
    Unchanged,
    /// The view is older than what is known: it brings nothing, unless the catalog stays
    /// there.
    Stale,
    /// First take back, then add. Without anything to take back, the head is a
    /// descendant of the known one.
    Walk {
        /// Snapshots of the known head's line that the new head's lacks, newest first.
        undo: Vec<i64>,
        /// Snapshots to add, oldest first.
        forward: Vec<i64>,
    },
    /// Nothing but a full recomputation will do.
    Rebuild(Reason),
}

/// Why a layout was computed from all manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing was known of the table.
    NoState,
    /// What was known is of another table: dropped and created again.
    NewTable,
    /// The target size or the small-file ratio changed.
    ScaleChanged,
    /// The head's line begins anew: the table was replaced.
    NullParent,
    /// The branch has no snapshot any more.
    NoHead,
    /// A snapshot between the known head and the present one has expired.
    ParentExpired,
    /// The known head is listed no more, nor is any snapshot that followed it.
    HistoryGone,
    /// The catalog stays at an older state of the table, as after a restored backup.
    SetBack,
    /// A file that the walk needs has been removed or cannot be read.
    FileGone,
    /// The parents form a circle.
    Circle,
    /// The manifest list leaves out counts that are not known otherwise, so that
    /// the sums cannot be held against it (format v1).
    Uncounted,
    /// The sums differ from the manifest list's: a writer dropped files in silence.
    Drift,
}

/// Compares what is known with a view. Parent ids may be garbage: every walk ends.
pub fn lineage(state: Option<&TableState>, view: &TableView, scale: SizeScale) -> Lineage {
    let Some(state) = state else { return Lineage::Rebuild(Reason::NoState) };
    let known = &state.layout;
    if known.ident() != view.ident || known.reference() != view.reference {
        return Lineage::Rebuild(Reason::NewTable);
    }
    if state.last_sequence_number > view.last_sequence_number {
        return Lineage::Stale;
    }
    if known.scale() != scale {
        return Lineage::Rebuild(Reason::ScaleChanged);
    }
    match (known.head(), view.head) {
        (from, to) if from == to => Lineage::Unchanged,
        (_, None) => Lineage::Rebuild(Reason::NoHead),
        (None, Some(to)) => from_nothing(&Line::of(to, None, &view.snapshots)),
        (Some(from), Some(to)) => between(from, to, &view.snapshots),
    }
}

fn from_nothing(line: &Line) -> Lineage {
    match line.end {
        End::Root => Lineage::Walk { undo: Vec::new(), forward: line.oldest_first(line.ids.len()) },
        _ => Lineage::Rebuild(line.reason()),
    }
}

fn between(from: i64, to: i64, snapshots: &BTreeMap<i64, SnapshotInfo>) -> Lineage {
    let line = Line::of(to, Some(from), snapshots);
    if line.end == End::Met {
        return Lineage::Walk { undo: Vec::new(), forward: line.oldest_first(line.ids.len()) };
    }
    if !snapshots.contains_key(&from) {
        let cut = if line.end == End::Root { Reason::HistoryGone } else { line.reason() };
        return Lineage::Rebuild(cut);
    }
    let ours = Line::of(from, None, snapshots);
    let reached: HashSet<i64> = line.ids.iter().copied().collect();
    let Some(common) = ours.ids.iter().position(|id| reached.contains(id)) else {
        return Lineage::Rebuild(line.reason());
    };
    let ancestor = ours.ids.get(common).copied();
    let ahead = line.ids.iter().position(|id| Some(*id) == ancestor).unwrap_or(line.ids.len());
    Lineage::Walk { undo: ours.ids.into_iter().take(common).collect(), forward: line.oldest_first(ahead) }
}

/// A snapshot and its ancestors, newest first, as far as they are listed.
struct Line {
    ids: Vec<i64>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The next parent is the snapshot looked for, listed or not.
    Met,
    /// The last one has no parent.
    Root,
    /// The next parent is not listed.
    Cut,
    /// The next parent has been passed already.
    Circle,
}

impl Line {
    fn of(head: i64, until: Option<i64>, snapshots: &BTreeMap<i64, SnapshotInfo>) -> Self {
        let mut ids = Vec::new();
        let mut passed = HashSet::new();
        let mut next = Some(head);
        let end = loop {
            let Some(id) = next else { break End::Root };
            if next == until {
                break End::Met;
            }
            let Some(snapshot) = snapshots.get(&id) else { break End::Cut };
            if !passed.insert(id) {
                break End::Circle;
            }
            ids.push(id);
            next = snapshot.parent;
        };
        Self { ids, end }
    }

    /// The newest `count`, oldest first.
    fn oldest_first(&self, count: usize) -> Vec<i64> {
        let mut ids: Vec<i64> = self.ids.iter().take(count).copied().collect();
        ids.reverse();
        ids
    }

    fn reason(&self) -> Reason {
        match self.end {
            End::Root => Reason::NullParent,
            End::Circle => Reason::Circle,
            End::Cut | End::Met => Reason::ParentExpired,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use imbl::OrdMap;
    use uuid::Uuid;

    use super::super::history::Heard;
    use super::super::state::TableLayout;
    use super::*;
    use crate::model::ident::{TableIdent, TableName};
    use crate::model::table::Operation;

    const SCALE: SizeScale = SizeScale { target: 1000, small_permille: 750 };

    /// A view of snapshots `(id, parent)`; a snapshot's sequence number is its place.
    fn view(head: Option<i64>, snapshots: &[(i64, Option<i64>)]) -> TableView {
        let numbered = snapshots.iter().zip(1..);
        TableView {
            ident: TableIdent::iceberg(Uuid::from_u128(7)),
            name: TableName::new("lake", "db", "t"),
            metadata_location: String::new(),
            location: String::new(),
            format_version: 2,
            reference: "main".into(),
            head,
            snapshots: numbered.map(|(&(id, parent), n)| (id, snapshot(id, parent, n))).collect(),
            last_sequence_number: snapshots.len() as i64,
            specs: Default::default(),
            properties: Default::default(),
            created_ms: 0,
            refused: Vec::new(),
        }
    }

    fn snapshot(id: i64, parent: Option<i64>, sequence_number: i64) -> SnapshotInfo {
        let operation = Operation::Append;
        SnapshotInfo { id, parent, sequence_number, timestamp_ms: 0, operation, attempt: None, instance: None, engine: None }
    }

    /// What is known after a look at `view`.
    fn known(view: &TableView) -> TableState {
        let mut layout = TableLayout::empty(view.ident, &view.reference, SCALE);
        layout.set_head(view, &[]);
        let last_sequence_number = view.last_sequence_number;
        TableState { layout, heard: Heard::nothing(0), counted: OrdMap::new(), last_sequence_number }
    }

    fn walk(undo: &[i64], forward: &[i64]) -> Lineage {
        Lineage::Walk { undo: undo.into(), forward: forward.into() }
    }

    const LINE: [(i64, Option<i64>); 4] = [(10, None), (20, Some(10)), (30, Some(20)), (40, Some(30))];

    #[test]
    fn nothing_known_is_a_rebuild() {
        assert_eq!(lineage(None, &view(Some(10), &LINE), SCALE), Lineage::Rebuild(Reason::NoState));
    }

    #[test]
    fn the_same_head_is_unchanged() {
        let view = view(Some(40), &LINE);
        assert_eq!(lineage(Some(&known(&view)), &view, SCALE), Lineage::Unchanged);
    }

    #[test]
    fn several_snapshots_come_oldest_first() {
        let before = known(&view(Some(20), &LINE[..2]));
        assert_eq!(lineage(Some(&before), &view(Some(40), &LINE), SCALE), walk(&[], &[30, 40]));
    }

    #[test]
    fn the_first_snapshots_follow_an_empty_table() {
        let before = known(&view(None, &[]));
        assert_eq!(lineage(Some(&before), &view(Some(20), &LINE[..2]), SCALE), walk(&[], &[10, 20]));
    }

    #[test]
    fn a_rollback_takes_back_newest_first() {
        let before = known(&view(Some(40), &LINE));
        assert_eq!(lineage(Some(&before), &view(Some(20), &LINE), SCALE), walk(&[40, 30], &[]));
    }

    #[test]
    fn a_branch_moved_to_a_sibling_goes_by_the_common_ancestor() {
        let forked = [(10, None), (20, Some(10)), (30, Some(20)), (40, Some(10)), (50, Some(40))];
        let before = known(&view(Some(30), &forked));
        assert_eq!(lineage(Some(&before), &view(Some(50), &forked), SCALE), walk(&[30, 20], &[40, 50]));
    }

    #[test]
    fn an_expired_known_head_does_not_matter_while_its_child_is_listed() {
        let before = known(&view(Some(20), &LINE[..2]));
        let mut after = view(Some(40), &LINE);
        after.snapshots.retain(|id, _| *id > 20);
        assert_eq!(lineage(Some(&before), &after, SCALE), walk(&[], &[30, 40]));
    }

    #[test]
    fn an_expired_parent_on_the_way_is_a_rebuild() {
        let before = known(&view(Some(20), &LINE[..2]));
        let mut after = view(Some(40), &LINE);
        after.snapshots.retain(|id, _| *id != 30);
        assert_eq!(lineage(Some(&before), &after, SCALE), Lineage::Rebuild(Reason::ParentExpired));
    }

    #[test]
    fn a_replaced_table_is_a_rebuild() {
        let before = known(&view(Some(20), &LINE[..2]));
        let after = view(Some(50), &[(10, None), (20, Some(10)), (50, None)]);
        assert_eq!(lineage(Some(&before), &after, SCALE), Lineage::Rebuild(Reason::NullParent));
    }

    #[test]
    fn a_branch_without_a_snapshot_any_more_is_a_rebuild() {
        let before = known(&view(Some(20), &LINE[..2]));
        assert_eq!(lineage(Some(&before), &view(None, &LINE), SCALE), Lineage::Rebuild(Reason::NoHead));
    }

    #[test]
    fn another_table_under_the_name_is_a_rebuild() {
        let before = known(&view(Some(20), &LINE[..2]));
        let mut after = view(Some(20), &LINE[..2]);
        after.ident = TableIdent::iceberg(Uuid::from_u128(8));
        assert_eq!(lineage(Some(&before), &after, SCALE), Lineage::Rebuild(Reason::NewTable));
    }

    #[test]
    fn a_renamed_table_is_the_same() {
        let before = known(&view(Some(20), &LINE[..2]));
        let mut after = view(Some(30), &LINE[..3]);
        after.name = TableName::new("lake", "db", "other");
        after.specs.insert(0, Arc::new(crate::model::table::SpecInfo { id: 0, unpartitioned: true, ..Default::default() }));
        assert_eq!(lineage(Some(&before), &after, SCALE), walk(&[], &[30]));
    }

    #[test]
    fn another_scale_is_a_rebuild() {
        let view = view(Some(40), &LINE);
        let other = SizeScale { target: 2000, ..SCALE };
        assert_eq!(lineage(Some(&known(&view)), &view, other), Lineage::Rebuild(Reason::ScaleChanged));
    }

    #[test]
    fn an_older_load_is_stale_even_under_another_scale() {
        let before = known(&view(Some(40), &LINE));
        let older = view(Some(20), &LINE[..2]);
        assert_eq!(lineage(Some(&before), &older, SCALE), Lineage::Stale);
        assert_eq!(lineage(Some(&before), &older, SizeScale { target: 2000, ..SCALE }), Lineage::Stale);
    }

    #[test]
    fn a_rollback_whose_undone_head_expired_is_no_stale_load() {
        let before = known(&view(Some(40), &LINE));
        let mut after = view(Some(20), &LINE);
        after.snapshots.retain(|id, _| *id <= 20);
        assert_eq!(lineage(Some(&before), &after, SCALE), Lineage::Rebuild(Reason::HistoryGone));
    }

    #[test]
    fn circles_end() {
        let circle = [(10, Some(30)), (20, Some(10)), (30, Some(20))];
        let before = known(&view(None, &[]));
        assert_eq!(lineage(Some(&before), &view(Some(30), &circle), SCALE), Lineage::Rebuild(Reason::Circle));
        let own_parent = [(10, None), (20, Some(20))];
        let before = known(&view(Some(10), &own_parent));
        assert_eq!(lineage(Some(&before), &view(Some(20), &own_parent), SCALE), Lineage::Rebuild(Reason::Circle));
    }
}
