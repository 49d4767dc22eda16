//! One look at a table: a walk from the known head to the present one, or a rebuild.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use imbl::OrdMap;

use super::delta::{self, Change, Direction, READERS, Reads};
use super::history::{Author, Heard, History};
use super::lineage::{Lineage, Reason, lineage};
use super::state::{self, Counts, TableLayout, TableState};
use super::{Absorbed, How, rebuild};
use crate::lake::{Error, Result, Table};
use crate::model::file::ManifestRef;
use crate::model::layout::SizeScale;
use crate::model::partition::PartitionKey;
use crate::model::table::{Operation, SnapshotInfo, TableView};

/// One look at a table: its state before becomes its state now.
pub struct Look<'a> {
    /// The table, loaded.
    pub table: &'a dyn Table,
    /// The sizes asked for.
    pub scale: SizeScale,
    /// Wall clock in milliseconds since the epoch.
    pub now_ms: i64,
}

impl Look<'_> {
    /// What is known, brought to the table's head.
    pub async fn take(&self, known: Option<&Arc<TableState>>) -> Result<Absorbed> {
        let view = self.table.view();
        match (lineage(known.map(AsRef::as_ref), view, self.scale), known) {
            (Lineage::Unchanged, Some(state)) => Ok(Absorbed::nothing(refreshed(state, view), How::Unchanged)),
            (Lineage::Stale, Some(state)) => Ok(Absorbed::nothing(state.clone(), How::Stale)),
            (Lineage::Walk { undo, forward }, Some(state)) => self.walk(state, &undo, &forward).await,
            (Lineage::Rebuild(reason), known) => self.rebuild(known, reason, Reads::default()).await,
            (_, None) => self.rebuild(None, Reason::NoState, Reads::default()).await,
        }
    }

    /// What is known was taken back by the catalog: it is computed again from a view
    /// that is older.
    pub async fn set_back(&self, known: Option<&Arc<TableState>>) -> Result<Absorbed> {
        self.rebuild(known, Reason::SetBack, Reads::default()).await
    }

    async fn walk(&self, state: &Arc<TableState>, undo: &[i64], forward: &[i64]) -> Result<Absorbed> {
        let mut reads = Reads::default();
        let manifests = rebuild::head_manifests(self.table).await?;
        let (undone, added) = match self.changes(undo, forward, &manifests, &mut reads).await {
            Ok(changes) => changes,
            Err(Error::NotFound { .. } | Error::Refused(_)) => return self.rebuild(Some(state), Reason::FileGone, reads).await,
            Err(error) => return Err(error),
        };
        let counted = counted(&state.counted, &reads, &manifests);
        let Some(mut layout) = moved(&state.layout, &undone, &added) else {
            return self.rebuild(Some(state), Reason::Drift, reads).await;
        };
        layout.set_head(self.table.view(), &manifests);
        if let Some(reason) = delta::mistrust(&layout, &manifests, &counted) {
            return self.rebuild(Some(state), reason, reads).await;
        }
        let touched: BTreeSet<PartitionKey> = undone.iter().chain(&added).flat_map(Change::touched).cloned().collect();
        let mut walked = Walked { history: state.history(touched.iter().cloned()), foreign: 0, own: 0 };
        walked.hear(self.table.view(), undo, forward, (&undone, &added), self.now_ms);
        layout.hear(&walked.history);
        let how = match undo.len() {
            0 => How::Incremental { snapshots: forward.len() },
            undone => How::Undone { undone, added: forward.len() },
        };
        let last_sequence_number = self.table.view().last_sequence_number;
        let state = Arc::new(TableState { layout, heard: *walked.history.table(), counted, last_sequence_number });
        let (foreign_snapshots, own_snapshots) = (walked.foreign, walked.own);
        let absorbed = Absorbed { touched, foreign_snapshots, own_snapshots, ..Absorbed::nothing(state, how) };
        Ok(absorbed.with(&reads))
    }

    /// What the snapshots changed; `manifests` is the head's list.
    async fn changes(
        &self,
        undo: &[i64],
        forward: &[i64],
        manifests: &[ManifestRef],
        reads: &mut Reads,
    ) -> Result<(Vec<Change>, Vec<Change>)> {
        let head = self.table.view().head;
        let read = |id: i64| async move {
            let mut reads = Reads::default();
            let list = (head == Some(id)).then_some(manifests);
            Ok::<_, Error>((Change::read(self.table, id, list, &mut reads).await?, reads))
        };
        let ids: Vec<i64> = undo.iter().chain(forward).copied().collect();
        let mut undone: Vec<Change> = Vec::with_capacity(ids.len());
        let mut changes = Box::pin(stream::iter(ids).map(read).buffered(READERS));
        while let Some((change, its)) = changes.try_next().await? {
            reads.join(its);
            undone.push(change);
        }
        let added = undone.split_off(undo.len().min(undone.len()));
        Ok((undone, added))
    }

    async fn rebuild(&self, known: Option<&Arc<TableState>>, reason: Reason, mut reads: Reads) -> Result<Absorbed> {
        let view = self.table.view();
        let manifests = rebuild::head_manifests(self.table).await?;
        reads.counted.clear();
        let mut layout = rebuild::rebuild(self.table, self.scale, &manifests, &mut reads).await?;
        let counted = counted(&OrdMap::new(), &reads, &manifests);
        let known = known.filter(|k| k.layout.ident() == view.ident && k.layout.reference() == view.reference);
        let mut touched: BTreeSet<PartitionKey> = layout.partitions().keys().collect();
        let heard = match known {
            None => Heard::nothing(self.now_ms),
            Some(known) => {
                let mut history = known.history(touched.iter().cloned());
                if known.layout.head() != view.head {
                    history.unseen(&layout.differing(&known.layout), self.now_ms);
                }
                layout.hear(&history);
                touched.extend(known.layout.partitions().keys());
                *history.table()
            }
        };
        let last_sequence_number = view.last_sequence_number;
        let state = Arc::new(TableState { layout, heard, counted, last_sequence_number });
        let absorbed = Absorbed { touched, ..Absorbed::nothing(state, How::Rebuilt(reason)) };
        Ok(absorbed.with(&reads))
    }
}

/// What a walk leaves in the history.
struct Walked {
    history: History,
    foreign: usize,
    own: usize,
}

impl Walked {
    /// Hears of snapshots taken back and added. Taking back a foreign commit is
    /// a foreign act on what it touched; taking back our own is nobody's.
    fn hear(&mut self, view: &TableView, undo: &[i64], forward: &[i64], changes: (&[Change], &[Change]), now_ms: i64) {
        for (id, change) in undo.iter().zip(changes.0) {
            let mut written = change.written();
            if author(view.snapshots.get(id)) != Author::Own {
                written.values_mut().for_each(|bytes| *bytes = 0);
                self.history.commit(Author::Rewriter, &written, now_ms);
            }
        }
        for (id, change) in forward.iter().zip(changes.1) {
            let author = author(view.snapshots.get(id));
            self.history.commit(author, &change.written(), now_ms);
            if let Some(made) = view.snapshots.get(id).filter(|_| author != Author::Own) {
                self.history.contend(change.contended(), made.timestamp_ms, now_ms);
            }
            if author == Author::Own { self.own += 1 } else { self.foreign += 1 }
        }
    }
}

/// Who made a snapshot. Marks of ours on a snapshot that is no replace were
/// copied there by somebody else.
fn author(snapshot: Option<&SnapshotInfo>) -> Author {
    match snapshot {
        Some(s) if s.operation == Operation::Replace && (s.instance.is_some() || s.attempt.is_some()) => Author::Own,
        Some(s) if s.operation == Operation::Replace => Author::Rewriter,
        _ => Author::User,
    }
}

/// The layout with some snapshots taken back, then others added; `None` when a
/// file was to leave that is not there.
fn moved(layout: &TableLayout, undone: &[Change], added: &[Change]) -> Option<TableLayout> {
    let mut next = layout.clone();
    let back = undone.iter().map(|change| (change, Direction::Back));
    for (change, direction) in back.chain(added.iter().map(|change| (change, Direction::Forward))) {
        change.apply(&mut next, direction).ok()?;
    }
    Some(next)
}

/// The state with what a view of the same head says anew; the same one when
/// that is nothing.
fn refreshed(state: &Arc<TableState>, view: &TableView) -> Arc<TableState> {
    let specs = state::unpartitioned(view);
    if state.layout.unpartitioned() == &specs && state.last_sequence_number >= view.last_sequence_number {
        return state.clone();
    }
    let mut next = TableState::clone(state);
    next.layout.set_specs(view);
    next.last_sequence_number = view.last_sequence_number;
    Arc::new(next)
}

/// True counts of the head's manifests, as far as they are known to be needed.
fn counted(before: &OrdMap<Arc<str>, Counts>, reads: &Reads, manifests: &[ManifestRef]) -> OrdMap<Arc<str>, Counts> {
    if before.is_empty() && reads.counted.is_empty() {
        return OrdMap::new();
    }
    let find = |m: &ManifestRef| Some((m.path.clone(), *reads.counted.get(&m.path).or_else(|| before.get(&m.path))?));
    manifests.iter().filter_map(find).collect()
}
