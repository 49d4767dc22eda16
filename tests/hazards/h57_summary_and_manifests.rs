//! What a replace says of itself: its summary to the last key, and manifests from
//! which a reader that follows the table takes no row twice and misses none.

use std::collections::{BTreeMap, BTreeSet};

use afterwrite::lake::iceberg::table::IcebergTable;
use iceberg::spec::{DataContentType, DataFile, ManifestEntryRef, ManifestFile, ManifestList, ManifestStatus, Operation};

use crate::fixture::{File, Table, oracle, row};

/// The manifests of a snapshot by its own list, as incremental readers open it.
async fn manifests(table: &IcebergTable, snapshot_id: i64) -> Vec<ManifestFile> {
    let metadata = &table.loaded.metadata;
    let snapshot = metadata.snapshot_by_id(snapshot_id).unwrap();
    let bytes = table.loaded.io.new_input(snapshot.manifest_list()).unwrap().read().await.unwrap();
    ManifestList::parse_with_version(&bytes, metadata.format_version()).unwrap().entries().to_vec()
}

async fn entries(table: &IcebergTable, manifest: &ManifestFile) -> Vec<ManifestEntryRef> {
    manifest.load_manifest(&table.loaded.io).await.unwrap().entries().to_vec()
}

/// The ids of the rows that an incremental append scan reads after `from`: for each
/// append snapshot, the files that its own manifests call added by it.
async fn appended_after(table: &IcebergTable, from: Option<i64>) -> Vec<String> {
    let metadata = &table.loaded.metadata;
    let (mut at, mut rows) = (table.view.head, vec![]);
    while let Some(id) = at.filter(|id| Some(*id) != from) {
        let snapshot = metadata.snapshot_by_id(id).unwrap();
        at = snapshot.parent_snapshot_id();
        if snapshot.summary().operation != Operation::Append {
            continue;
        }
        for manifest in manifests(table, id).await.iter().filter(|m| m.added_snapshot_id == id) {
            for entry in entries(table, manifest).await {
                if entry.status() == ManifestStatus::Added && entry.snapshot_id() == Some(id) {
                    rows.extend(ids_in(table, entry.data_file()).await);
                }
            }
        }
    }
    rows.sort();
    rows
}

/// The first column of a data file, deletes aside.
async fn ids_in(table: &IcebergTable, file: &DataFile) -> Vec<String> {
    oracle::texts(&oracle::read(table, file.file_path()).await, &[1]).into_iter().flatten().collect()
}

/// Two partitions with a past; deletes of both kinds on the first.
async fn table(v1: bool) -> (Table, File) {
    let spec = if v1 { Table::partitioned_by_p().v1() } else { Table::partitioned_by_p() };
    let t = spec.past().create().await;
    let first = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7)]).await;
    // a survivor lies in one manifest with an input
    t.change().append([row(4, "d", 7)]).append([row(5, "e", 8)]).commit().await;
    if !v1 {
        t.change().delete_positions(&[(&first, 0)]).commit().await;
        t.change().delete_equal(&["id"], [row(4, "", 7)]).commit().await;
    }
    (t, first)
}

#[tokio::test]
async fn h57_the_summary_of_a_replace_says_this_and_no_more() {
    for v1 in [false, true] {
        let (t, first) = table(v1).await;
        let before = oracle::live(&t.load().await).await;
        let ours = t.compact(&first, "a1").await;
        let table = t.load().await;
        let after = oracle::live(&table).await;
        let snapshot = table.loaded.metadata.snapshot_by_id(ours).unwrap();
        let said: BTreeMap<&str, &str> = snapshot.summary().additional_properties.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();

        assert_eq!(snapshot.summary().operation, Operation::Replace);
        let paths = |live: &[oracle::Live]| live.iter().map(|l| l.file.file_path().to_owned()).collect::<BTreeSet<_>>();
        let (old, new) = (paths(&before), paths(&after));
        let gone: Vec<&DataFile> = before.iter().map(|l| &l.file).filter(|f| !new.contains(f.file_path())).collect();
        let come: Vec<&DataFile> = after.iter().map(|l| &l.file).filter(|f| !old.contains(f.file_path())).collect();
        let size = |files: &[&DataFile]| files.iter().map(|f| f.file_size_in_bytes()).sum::<u64>().to_string();
        let (added, removed) = (size(&come), size(&gone));
        let rows = if v1 { "4" } else { "2" };
        let mut expected = BTreeMap::from([
            ("afterwrite.attempt-id", "a1"),
            ("afterwrite.instance-id", "instance-1"),
            ("added-data-files", "1"),
            ("deleted-data-files", "2"),
            ("added-records", rows),
            ("deleted-records", "4"),
            ("added-files-size", added.as_str()),
            ("removed-files-size", removed.as_str()),
            ("changed-partition-count", "1"),
            ("total-data-files", "2"),
            ("total-records", if v1 { "5" } else { "3" }),
            ("total-delete-files", "0"),
        ]);
        if !v1 {
            expected.extend([
                ("removed-delete-files", "2"),
                ("removed-position-delete-files", "1"),
                ("removed-equality-delete-files", "1"),
                ("removed-position-deletes", "1"),
                ("removed-equality-deletes", "1"),
            ]);
        }
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn h57_every_manifest_of_a_replace_tells_what_it_did_and_keeps_what_was() {
    for v1 in [false, true] {
        let (t, first) = table(v1).await;
        let base = t.load().await;
        let head = t.head().await;
        let before = oracle::live(&base).await;
        let ours = t.compact(&first, "a1").await;
        let table = t.load().await;
        let old: BTreeMap<String, ManifestFile> = manifests(&base, head).await.into_iter().map(|m| (m.manifest_path.clone(), m)).collect();
        let mut seen = [0; 3];
        for manifest in manifests(&table, ours).await {
            // one of before is carried to the byte; any other is this snapshot's own
            if let Some(carried) = old.get(&manifest.manifest_path) {
                assert_eq!(carried, &manifest);
                continue;
            }
            assert_eq!(manifest.added_snapshot_id, ours);
            let entries = entries(&table, &manifest).await;
            let count = |status| u32::try_from(entries.iter().filter(|e| e.status() == status).count()).unwrap();
            let counts = [ManifestStatus::Added, ManifestStatus::Existing, ManifestStatus::Deleted].map(count);
            let told = [manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count];
            assert_eq!(told, counts.map(Some));
            for entry in &entries {
                let own = entry.snapshot_id() == Some(ours);
                assert_eq!(own, entry.status() != ManifestStatus::Existing, "{}", entry.file_path());
                if entry.status() != ManifestStatus::Added {
                    let was = before.iter().find(|l| l.file.file_path() == entry.file_path()).unwrap();
                    assert_eq!((entry.sequence_number(), entry.data_file()), (Some(was.sequence), &was.file));
                }
                assert!(entry.status() != ManifestStatus::Added || entry.content_type() == DataContentType::Data);
            }
            seen.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        assert_eq!(seen, [1, 1, if v1 { 2 } else { 4 }], "one output, one survivor, all that is replaced");
    }
}

#[tokio::test]
async fn h57_a_reader_of_appends_takes_each_row_once_wherever_it_begins() {
    let t = Table::plain().past().create().await;
    let mut heads = vec![None];
    let mut last = None;
    for id in 1..=4 {
        last = Some(t.append([row(id, "v", 0)]).await);
        heads.push(Some(t.head().await));
        t.compact(last.as_ref().unwrap(), &format!("a{id}")).await;
        heads.push(Some(t.head().await));
    }
    let last = last.unwrap();
    let table = t.load().await;
    // after each append and after each rewrite: what was appended later, and no more
    for (place, head) in heads.iter().enumerate().skip(1) {
        let later: Vec<String> = (1..=4).map(|id: usize| id.to_string()).skip(place.div_ceil(2)).collect();
        assert_eq!(appended_after(&table, *head).await, later, "from {place}");
    }
    assert_eq!(t.rows().await, ["1|v", "2|v", "3|v", "4|v"]);
    assert!(!oracle::live(&table).await.iter().any(|l| l.file.file_path() == last.path));
}

/// A reader of changes that does not pass over a replace sees rows go and the same
/// rows come.
#[tokio::test]
async fn h57_the_rows_that_a_replace_removes_are_those_that_it_adds() {
    let (t, first) = table(false).await;
    let base = t.load().await;
    let live = oracle::live(&base).await;
    let ours = t.compact(&first, "a1").await;
    let table = t.load().await;
    let (mut gone, mut come) = (vec![], vec![]);
    for (_, entry) in oracle::entries(&table).await {
        if entry.snapshot_id() != Some(ours) || entry.content_type() != DataContentType::Data {
            continue;
        }
        match entry.status() {
            ManifestStatus::Added => come.extend(oracle::texts(&oracle::read(&table, entry.file_path()).await, &[1, 2, 3])),
            ManifestStatus::Deleted => {
                let was = live.iter().find(|l| l.file.file_path() == entry.file_path()).unwrap();
                gone.extend(oracle::rows_of(&base, was, &live).await);
            }
            ManifestStatus::Existing => {}
        }
    }
    come.sort();
    gone.sort();
    assert_eq!(come, [["2", "b", "7"], ["3", "c", "7"]]);
    assert_eq!(gone, come);
}
