use afterwrite::model::event::Door;
use afterwrite::observe::grpc::{Error, decode};
use afterwrite::proto::v1::{CommitEvent, FileChange, FileCounts, PartitionChange, SnapshotChange, TablePath};
use proptest::prelude::*;
use prost::Message;

use super::name;

fn thin(table: &str) -> CommitEvent {
    CommitEvent { table: table.into(), ..CommitEvent::default() }
}

fn error(event: CommitEvent) -> String {
    decode(&event, Door::Grpc, 5).unwrap_err().to_string()
}

#[test]
fn an_event_may_be_a_bare_table_name() {
    let event = decode(&thin("lake.db.t"), Door::Grpc, 5).unwrap();
    assert_eq!((event.table, event.reference, event.snapshots, event.heard_ms), (name("t"), None, vec![], 5));
}

#[test]
fn a_name_that_holds_dots_is_given_in_parts() {
    let path = TablePath { catalog: "lake".into(), namespace: vec!["a.b".into()], table: "t.v1".into() };
    let event = decode(&CommitEvent { path: Some(path), ..thin("") }, Door::Grpc, 5).unwrap();
    assert_eq!((event.table.namespace, event.table.table), (vec!["a.b".to_owned()], "t.v1".to_owned()));
}

#[test]
fn a_rich_event_gives_its_snapshots_and_how_many_files_it_added() {
    let counted = FileCounts { data_files: 3, delete_files: 1, ..FileCounts::default() };
    let listed = PartitionChange { files_added: vec![FileChange::default(); 2], ..PartitionChange::default() };
    let by_partition = PartitionChange { added: Some(FileCounts { data_files: 5, ..FileCounts::default() }), ..PartitionChange::default() };
    let snapshots = vec![
        SnapshotChange {
            snapshot_id: "9007199254740993".into(),
            added: Some(counted),
            partitions: vec![listed.clone()],
            ..SnapshotChange::default()
        },
        SnapshotChange { snapshot_id: "-1".into(), partitions: vec![listed, by_partition], ..SnapshotChange::default() },
    ];
    let event = decode(&CommitEvent { snapshots, r#ref: "audit".into(), ..thin("lake.db.t") }, Door::Grpc, 5).unwrap();
    assert_eq!((event.snapshots, event.files_added, event.reference.as_deref()), (vec![9_007_199_254_740_993, -1], 11, Some("audit")));
}

#[test]
fn figures_beyond_any_table_do_not_overflow() {
    let huge = |id: &str| SnapshotChange {
        snapshot_id: id.into(),
        added: Some(FileCounts { data_files: u64::MAX, delete_files: 1, ..FileCounts::default() }),
        ..SnapshotChange::default()
    };
    let event = decode(&CommitEvent { snapshots: vec![huge("1"), huge("2")], ..thin("lake.db.t") }, Door::Grpc, 5).unwrap();
    assert_eq!(event.files_added, u64::MAX);
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_write() {
    assert_eq!(error(thin("")), "table: the event names no table; write `catalog.namespace.table`, or set `path`");
    assert_eq!(
        error(thin("a.b")),
        "table: `a.b` is not a table name: write `catalog.namespace.table`, each part non-empty; a part with a dot in it goes between backticks"
    );
    assert_eq!(error(thin(&"x".repeat(1025))), "table: 1025 bytes are too long; at most 1024 are taken");
    let both = CommitEvent { path: Some(TablePath::default()), ..thin("a.b.c") };
    assert_eq!(error(both), "table, path: both are set; set one of them");
    let hollow = CommitEvent { path: Some(TablePath { catalog: "a".into(), namespace: vec![], table: "t".into() }), ..thin("") };
    assert_eq!(error(hollow), Error::Path.to_string());
    let snapshot = |id: &str| SnapshotChange { snapshot_id: id.into(), ..SnapshotChange::default() };
    assert_eq!(
        error(CommitEvent { snapshots: vec![snapshot("1"), snapshot("1e3")], ..thin("a.b.c") }),
        "snapshots[1].snapshot_id: `1e3` is not a snapshot id; write a whole decimal number of 64 bits, as a string"
    );
    assert_eq!(
        error(CommitEvent { snapshots: vec![snapshot("1"); 1025], ..thin("a.b.c") }),
        "snapshots: 1025 are too many for one event; send at most 1024, the newest ones"
    );
    let uuid = CommitEvent { table_uuid: "7".into(), ..thin("a.b.c") };
    assert_eq!(error(uuid), "table_uuid: `7` is not a uuid; write it as 8-4-4-4-12 hexadecimal digits, or leave it empty");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        if let Ok(event) = CommitEvent::decode(bytes.as_slice()) {
            let _ = decode(&event, Door::Grpc, 0);
        }
    }

    #[test]
    fn no_texts_make_the_decoder_panic(table in ".{0,40}", id in ".{0,24}", uuid in ".{0,40}", reference in ".{0,8}") {
        let snapshots = vec![SnapshotChange { snapshot_id: id, ..SnapshotChange::default() }];
        let _ = decode(&CommitEvent { table_uuid: uuid, r#ref: reference, snapshots, ..thin(&table) }, Door::Grpc, 0);
    }

    #[test]
    fn a_whole_snapshot_id_arrives_whole(id in any::<i64>()) {
        let snapshots = vec![SnapshotChange { snapshot_id: id.to_string(), ..SnapshotChange::default() }];
        let event = decode(&CommitEvent { snapshots, ..thin("a.b.c") }, Door::Grpc, 0).unwrap();
        prop_assert_eq!(event.snapshots, vec![id]);
    }
}
