//! H58: a large replace costs a reader of changes little: what it adds is in one manifest.

use iceberg::spec::{ManifestContentType, ManifestList, ManifestStatus, Operation};

use crate::fixture::{Table, row};

#[tokio::test]
async fn h58_a_replace_of_three_hundred_files_is_one_manifest_to_a_reader() {
    let t = Table::plain().create().await;
    let mut change = t.change();
    for n in 0..300 {
        change = change.append([row(n, "v", 0)]);
    }
    let files = change.commit().await.data;
    assert_eq!(files.len(), 300);
    let snapshot_id = t.compact(&files[0], "a1").await;
    let table = t.load().await;
    let snapshot = table.loaded.metadata.snapshot_by_id(snapshot_id).unwrap();
    assert_eq!(snapshot.summary().operation, Operation::Replace);
    let bytes = table.loaded.io.new_input(snapshot.manifest_list()).unwrap().read().await.unwrap();
    let list = ManifestList::parse_with_version(&bytes, table.loaded.metadata.format_version()).unwrap();
    let (mut holding, mut added, mut removed) = (0, 0, 0);
    for manifest in list.entries().iter().filter(|m| m.added_snapshot_id == snapshot_id && m.content == ManifestContentType::Data) {
        let entries = manifest.load_manifest(&table.loaded.io).await.unwrap();
        let count = |status| entries.entries().iter().filter(|e| e.status() == status).count();
        holding += usize::from(count(ManifestStatus::Added) > 0);
        added += count(ManifestStatus::Added);
        removed += count(ManifestStatus::Deleted);
    }
    assert_eq!((holding, added, removed), (1, 1, 300));
}
