//! H100 on real manifests: vectors of several partitions in one Puffin file that is
//! named like a data file, each entry with the size of the whole file. They are
//! counted by blob, told apart by blob, and refused by name where there is none.

use std::sync::Arc;

use afterwrite::act::{Act, KillSwitch, MemoryJournal, Ports, Role, Settings, Verdict};
use afterwrite::lake::clock::{SystemChance, SystemClock};
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::scope;
use afterwrite::model::refusal::Refusal;
use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat};

use crate::fixture::{File, Table, row};
use crate::orient::absorb::{look, orient};

/// A vector of one row on a data file, in a Puffin file of 90 bytes.
fn vector(puffin: &str, of: &File, offset: i64, bytes: i64) -> File {
    let data = DataFileBuilder::default()
        .file_path(puffin.into())
        .file_format(DataFileFormat::Puffin)
        .content(DataContentType::PositionDeletes)
        .partition(of.data.partition().clone())
        .partition_spec_id(of.partition.spec_id)
        .record_count(1)
        .file_size_in_bytes(90)
        .referenced_data_file(Some(of.path.clone()))
        .content_offset(Some(offset))
        .content_size_in_bytes(Some(bytes))
        .build()
        .unwrap();
    File { path: puffin.into(), data, partition: of.partition.clone() }
}

/// Three data files in two partitions, and a vector on each, in one file.
async fn table() -> (Table, Vec<File>, String) {
    let t = Table::partitioned_by_p().v3().create().await;
    let mut files = vec![];
    for (id, p) in [(1, 7), (2, 7), (3, 8)] {
        files.push(t.append([row(id, "v", p), row(10 * id, "v", p)]).await);
    }
    let base = t.load().await;
    let puffin = format!("{}/data/00000-deletes.parquet", base.loaded.metadata.location());
    base.loaded.io.new_output(&puffin).unwrap().write("PFA1".into()).await.unwrap();
    let mut change = t.change();
    for (file, (offset, bytes)) in files.iter().zip([(4, 30), (34, 20), (54, 10)]) {
        change = change.add_delete(vector(&puffin, file, offset, bytes));
    }
    change.commit().await;
    (t, files, puffin)
}

#[tokio::test]
async fn h100_vectors_of_one_file_are_counted_by_blob_from_real_manifests() {
    let (t, files, _) = table().await;
    let table = t.load().await;
    let layout = tokio::task::spawn_blocking(move || look(&orient(), &table).state.layout.clone()).await.unwrap();
    let of = |file: &File| {
        let partition = layout.partition(&file.partition).unwrap();
        assert_eq!((partition.position_deletes.files, partition.data.files), (0, if file.path == files[2].path { 1 } else { 2 }));
        (partition.deletion_vectors.files, partition.deletion_vectors.bytes, partition.deletion_vectors.records)
    };
    // the format by the entry, not by the name; the bytes once, not the whole file's thrice
    assert_eq!([of(&files[0]), of(&files[2])], [(2, 50, 2), (1, 10, 1)]);
    assert_eq!((layout.deletes().files, layout.deletes().records), (3, 3));
}

#[tokio::test]
async fn h100_vectors_of_one_file_are_told_apart_and_one_that_is_none_is_refused_by_name() {
    let (t, files, puffin) = table().await;
    let table = t.load().await;
    assert_eq!(table.view.refused, []);
    let scope = scope::read(&table, &files[0].partition).await.unwrap();
    let offsets: Vec<_> = scope.files.iter().map(|file| file.deletes.iter().map(|key| key.offset).collect::<Vec<_>>()).collect();
    assert_eq!(offsets, [[Some(4)], [Some(34)]]);
    // the file is no Puffin file: a job that is asked for ends before it writes
    let (head, plan) = (t.head().await, t.plan_all(&files[0]).await);
    let ports = Ports {
        format: Arc::new(Lake::new([Arc::clone(&t.port)])),
        journal: Arc::new(MemoryJournal::default()),
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    };
    let act = Act::start(ports, Role::Command, Settings::default(), KillSwitch::default()).await.unwrap();
    match act.run(&plan, None).await.verdict {
        Verdict::Refused { refused } => assert_eq!((refused.refusal, refused.detail.contains(&puffin)), (Refusal::Damaged, true)),
        other => panic!("{other:?}"),
    }
    assert_eq!(t.head().await, head);
    assert!(t.catalog.io().exists(&puffin).await.unwrap());
}
