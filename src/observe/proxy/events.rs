//! From what passed through the proxy to events.

use serde::Deserialize;

use super::clients::ClientId;
use super::commit::Change;
use super::ledger::{Scan, Writing};
use crate::model::event::{Certainty, Door, Event};
use crate::model::ident::{MAIN, TableName};

/// What is said of one table, by every name that it may have.
fn event(table: TableName, certainty: Certainty, now_ms: i64) -> Event {
    Event { door: Door::Proxy, table, uuid: None, reference: None, snapshots: Vec::new(), certainty, files_added: 0, heard_ms: now_ms }
}

/// That tables changed in another way than by a commit: created, dropped, renamed.
pub fn changed(tables: Vec<TableName>, certainty: Certainty, now_ms: i64) -> Vec<Event> {
    tables.into_iter().map(|table| event(table, certainty, now_ms)).collect()
}

/// The events of one table's change: one for each ref that it moves; for `main`
/// when it moves none and stages nothing. A staged snapshot is on no ref and
/// changes no layout.
pub fn committed(names: &[TableName], change: &Change, certainty: Certainty, now_ms: i64) -> Vec<Event> {
    let mut events = Vec::new();
    for name in names {
        for (reference, snapshots) in moved(change) {
            let files_added = change.adds.iter().filter(|a| snapshots.contains(&a.id)).fold(0_u64, |sum, a| sum.saturating_add(a.files));
            let reference = Some(reference).filter(|r| r != MAIN);
            events.push(Event { uuid: change.uuid, reference, snapshots, files_added, ..event(name.clone(), certainty, now_ms) });
        }
    }
    events
}

/// The refs that a change moves, and the added snapshots that each gains.
fn moved(change: &Change) -> Vec<(String, Vec<i64>)> {
    let mut refs: Vec<(String, Vec<i64>)> = Vec::new();
    for (reference, head) in &change.moves {
        let gained = head.map(|head| lineage(change, head)).unwrap_or_default();
        refs.retain(|(name, _)| name != reference || !gained.is_empty());
        match refs.iter_mut().find(|(name, _)| name == reference) {
            Some((_, snapshots)) => *snapshots = gained,
            None => refs.push((reference.clone(), gained)),
        }
    }
    if refs.is_empty() && !change.adds_snapshots() {
        refs.push((MAIN.to_owned(), Vec::new()));
    }
    refs
}

/// The added snapshots on the way to `head`, oldest first.
fn lineage(change: &Change, head: i64) -> Vec<i64> {
    let mut found = Vec::new();
    let mut at = Some(head);
    while let Some(added) = at.and_then(|id| change.adds.iter().find(|a| a.id == id)) {
        if found.contains(&added.id) {
            break;
        }
        found.push(added.id);
        at = added.parent;
    }
    found.reverse();
    found
}

/// A change as the ledger keeps it: one entry for each ref, one without a ref for
/// staged snapshots. A rewrite of our own races nobody.
pub fn writings((request, client): (u64, ClientId), names: &[TableName], change: &Change, now_ms: i64) -> Vec<Writing> {
    if change.adds.is_empty() || change.adds.iter().all(|a| a.own) {
        return Vec::new();
    }
    let mut refs: Vec<(Option<String>, Vec<i64>)> =
        moved(change).into_iter().filter(|(_, adds)| !adds.is_empty()).map(|(r, adds)| (Some(r), adds)).collect();
    if refs.is_empty() {
        refs.push((None, change.adds.iter().map(|a| a.id).collect()));
    }
    let mut writings = Vec::new();
    for table in names {
        for (reference, adds) in &refs {
            let asserted = reference.as_deref().and_then(|r| change.asserted_of(r));
            let first = change.adds.iter().find(|a| adds.first() == Some(&a.id)).and_then(|a| a.parent);
            let touched = change.adds.iter().filter(|a| adds.contains(&a.id)).flat_map(|a| a.touched.clone()).collect();
            writings.push(Writing {
                request,
                client,
                table: table.clone(),
                uuid: change.uuid,
                reference: reference.clone(),
                parent: asserted.or(first),
                adds: adds.clone(),
                touched,
                appends: change.adds.iter().all(|a| a.appends),
                since_ms: now_ms,
            });
        }
    }
    writings
}

/// What a metrics report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A scan.
    Scan(Scan),
    /// A commit that was staged, and may or may not happen.
    Commit {
        /// The snapshot that it speaks of.
        snapshot: Option<i64>,
        /// Files that it says were added.
        files: u64,
    },
}

/// Reads a metrics report; `None` when it is neither of a scan nor of a commit.
pub fn report(body: &[u8]) -> Option<Report> {
    let wire: WireReport = serde_json::from_slice(body).ok()?;
    let count = |counter: &Option<Counter>| counter.as_ref().map_or(0, |c| c.value);
    let metrics = wire.metrics.unwrap_or_default();
    match wire.report_type.as_str() {
        "scan-report" => {
            let bytes = count(&metrics.total_file_size_in_bytes).max(count(&metrics.total_file_size_bytes));
            Some(Report::Scan(Scan { files: count(&metrics.result_data_files), bytes }))
        }
        "commit-report" => {
            let files = count(&metrics.added_data_files).saturating_add(count(&metrics.added_delete_files));
            Some(Report::Commit { snapshot: wire.snapshot_id, files })
        }
        _ => None,
    }
}

/// The events of a commit report: hints, since reports come before the commit and
/// of commits that never happen.
pub fn reported(tables: Vec<TableName>, snapshot: Option<i64>, files: u64, now_ms: i64) -> Vec<Event> {
    let snapshots: Vec<i64> = snapshot.into_iter().collect();
    let hint = |table| Event { snapshots: snapshots.clone(), files_added: files, ..event(table, Certainty::Hint, now_ms) };
    tables.into_iter().map(hint).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireReport {
    report_type: String,
    snapshot_id: Option<i64>,
    metrics: Option<WireMetrics>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireMetrics {
    result_data_files: Option<Counter>,
    total_file_size_in_bytes: Option<Counter>,
    total_file_size_bytes: Option<Counter>,
    added_data_files: Option<Counter>,
    added_delete_files: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    value: u64,
}

/// Names in the bodies of create, register and rename requests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Create {
    /// The table.
    pub name: String,
    /// Only prepared: the table comes with a commit.
    #[serde(default)]
    pub stage_create: bool,
}

/// The body of a rename.
#[derive(Debug, Deserialize)]
pub struct Rename {
    /// The old name.
    pub source: Identifier,
    /// The new name.
    pub destination: Identifier,
}

/// A table in a body.
#[derive(Debug, Deserialize)]
pub struct Identifier {
    /// Namespace levels.
    pub namespace: Vec<String>,
    /// Name.
    pub name: String,
}

impl Identifier {
    /// As a name of a catalog; `None` when a part is empty.
    pub fn named(self, catalog: &str) -> Option<TableName> {
        named(catalog, &(self.namespace, self.name))
    }
}

/// A table of a body; `None` when a part is empty.
pub fn named(catalog: &str, (namespace, table): &(Vec<String>, String)) -> Option<TableName> {
    let whole = !table.is_empty() && !namespace.is_empty() && namespace.iter().all(|level| !level.is_empty());
    whole.then(|| TableName { catalog: catalog.to_owned(), namespace: namespace.clone(), table: table.clone() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::commit::Added;
    use super::*;

    fn change(adds: &[(i64, Option<i64>)], moves: &[(&str, Option<i64>)]) -> Change {
        let added = |(id, parent): &(i64, Option<i64>)| Added {
            id: *id,
            parent: *parent,
            sequence: 0,
            files: 2,
            touched: vec![],
            own: false,
            appends: false,
        };
        Change {
            adds: adds.iter().map(added).collect(),
            moves: moves.iter().map(|(r, id)| ((*r).to_owned(), *id)).collect(),
            asserted: vec![("main".into(), Some(1))],
            ..Change::default()
        }
    }

    fn heard(change: &Change) -> Vec<(Option<String>, Vec<i64>, u64)> {
        let names = [TableName::new("lake", "db", "t")];
        committed(&names, change, Certainty::CatalogConfirmed, 9).into_iter().map(|e| (e.reference, e.snapshots, e.files_added)).collect()
    }

    #[test]
    fn a_commit_is_heard_on_each_ref_that_it_moves() {
        let two = change(&[(2, Some(1)), (3, Some(2))], &[("main", Some(3))]);
        assert_eq!(heard(&two), [(None, vec![2, 3], 4)]);
        let steps = change(&[(2, Some(1)), (3, Some(2))], &[("main", Some(2)), ("main", Some(3))]);
        assert_eq!(heard(&steps), [(None, vec![2, 3], 4)]);
        assert_eq!(heard(&change(&[(2, Some(1))], &[("audit", Some(2))])), [(Some("audit".into()), vec![2], 2)]);
        let restarted = change(&[(5, None)], &[("main", None), ("main", Some(5))]);
        assert_eq!(heard(&restarted), [(None, vec![5], 2)]);
    }

    #[test]
    fn a_rollback_is_heard_and_a_staged_snapshot_is_not() {
        assert_eq!(heard(&change(&[], &[("main", Some(1))])), [(None, vec![], 0)]);
        assert_eq!(heard(&change(&[], &[])), [(None, vec![], 0)]);
        assert_eq!(heard(&change(&[(2, Some(1))], &[])), []);
    }

    #[test]
    fn the_ledger_hears_what_a_commit_builds_on() {
        let names = [TableName::new("lake", "db", "t")];
        let of = |change: &Change| -> Vec<(Option<String>, Option<i64>, Vec<i64>)> {
            writings((1, ClientId::numbered(1)), &names, change, 9).into_iter().map(|w| (w.reference, w.parent, w.adds)).collect()
        };
        assert_eq!(of(&change(&[(2, Some(1)), (3, Some(2))], &[("main", Some(3))])), [(Some("main".into()), Some(1), vec![2, 3])]);
        assert_eq!(of(&change(&[(2, Some(7))], &[])), [(None, Some(7), vec![2])]);
        assert_eq!(of(&change(&[], &[("main", Some(1))])), []);
        let mut own = change(&[(2, Some(1))], &[("main", Some(2))]);
        own.adds.iter_mut().for_each(|a| a.own = true);
        assert_eq!(of(&own), []);
    }

    #[test]
    fn both_spellings_of_a_scans_bytes_are_read() {
        for key in ["total-file-size-in-bytes", "total-file-size-bytes"] {
            let body = format!(
                r#"{{"report-type":"scan-report","snapshot-id":1,"filter":true,"metrics":{{"result-data-files":{{"unit":"count","value":3}},"{key}":{{"unit":"bytes","value":70}}}}}}"#
            );
            assert_eq!(report(body.as_bytes()), Some(Report::Scan(Scan { files: 3, bytes: 70 })));
        }
        let commit = br#"{"report-type":"commit-report","snapshot-id":9223372036854775807,"metrics":{"added-data-files":{"value":2}}}"#;
        assert_eq!(report(commit), Some(Report::Commit { snapshot: Some(i64::MAX), files: 2 }));
        assert_eq!(report(br#"{"report-type":"other"}"#), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), parents in proptest::collection::vec(0_i64..4, 0..6)) {
            let _may_fail = (report(&bytes), serde_json::from_slice::<Create>(&bytes).is_ok(), serde_json::from_slice::<Rename>(&bytes).is_ok());
            let adds: Vec<(i64, Option<i64>)> = parents.iter().enumerate().map(|(at, p)| (at as i64 % 3, Some(*p))).collect();
            heard(&change(&adds, &[("main", Some(1))]));
        }
    }
}
