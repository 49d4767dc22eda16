use afterwrite::model::event::Certainty;
use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{ConnectMessage, ConnectPayload, Draft, Where, connect_message};
use uuid::Uuid;

use super::{draft, foreign, read, recording, records};

const ORDERS: Uuid = Uuid::from_u128(0x2a2017a3_d761_4a69_aa36_14a4e4832a53);
const CYCLES: [(u128, i64); 4] = [
    (0x53b9ce2a_4226_4b6a_a8a0_bd3e520629c3, 5_868_489_793_145_039_935),
    (0x79386579_5ec1_4c95_aaba_63bcf83c3723, 2_351_855_444_606_166_943),
    (0x34ab321f_9ae0_4a7f_8e7d_0c7863fcb19f, 9_008_050_972_353_512_543),
    (0xc4fb87d4_b65f_420a_85ad_fb5f3e02203d, 5_450_992_645_833_163_685),
];

fn commit(catalog: &str, uuid: Uuid, snapshot: i64) -> Draft {
    let table = Where::Foreign(foreign(Some(catalog), &["db"], "orders"));
    Draft { uuid: Some(uuid), snapshots: vec![snapshot], ..draft(table, Certainty::CatalogConfirmed) }
}

fn kind(message: &ConnectMessage) -> &'static str {
    match message.payload {
        ConnectPayload::StartCommit => "start",
        ConnectPayload::DataWritten { .. } => "written",
        ConnectPayload::DataComplete => "complete",
        ConnectPayload::CommitToTable { .. } => "table",
        ConnectPayload::CommitComplete => "done",
        ConnectPayload::Other(_) => "other",
    }
}

#[test]
fn every_record_of_a_control_topic_is_read_to_its_last_byte() {
    let messages: Vec<ConnectMessage> =
        records("kafka-connect-1.12.jsonl").iter().map(|(_, _, value)| connect_message(value).unwrap()).collect();
    let kinds: Vec<&str> = messages.iter().map(kind).collect();
    let cycle = ["start", "written", "complete", "table", "done"];
    let idle = ["start", "complete", "done"];
    assert_eq!(kinds, [&cycle[..], &cycle, &idle, &cycle, &cycle].concat());
    assert!(messages.iter().all(|m| m.group_id == "connect-ice"));
    let first = &messages[0];
    assert_eq!((first.id, first.timestamp_us), (Uuid::from_u128(0x70ecf9f1_dc8a_48dd_ad2f_c954ac86e61e), 1_795_990_424_146_493));
    let commits: Vec<(u128, i64)> = messages
        .iter()
        .filter_map(|m| match &m.payload {
            ConnectPayload::CommitToTable { snapshot_id, .. } => Some((m.commit_id.as_u128(), snapshot_id.unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(commits, CYCLES);
}

#[test]
fn the_files_that_a_worker_wrote_are_read_with_their_figures() {
    let (_, _, value) = &records("kafka-connect-1.12.jsonl")[1];
    let ConnectPayload::DataWritten { table, data_files, delete_files } = connect_message(value).unwrap().payload else { panic!() };
    assert_eq!((table.catalog.as_str(), table.name.as_str(), table.table_uuid), ("lab", "orders", Some(ORDERS)));
    let partitions: Vec<&str> = data_files.iter().map(|f| f.file_path.split('/').rev().nth(1).unwrap()).collect();
    assert_eq!(partitions, ["region=r0", "region=r1", "region=r2"]);
    assert!(data_files.iter().all(|f| f.record_count > 0 && f.file_size_in_bytes > 0), "{data_files:?}");
    assert!(delete_files.is_empty());
}

#[test]
fn only_a_commit_to_a_table_tells_of_one() {
    let drafts: Vec<Draft> = records("kafka-connect-1.12.jsonl").iter().flat_map(|(_, _, v)| read(Wire::IcebergConnect, v)).collect();
    assert_eq!(drafts, CYCLES.map(|(_, snapshot)| commit("lab", ORDERS, snapshot)));
}

/// A join by commit id would give the commit half of its files: two workers wrote
/// under two ids, and one commit took both.
#[test]
fn a_commit_after_a_timeout_is_told_once_however_its_files_came() {
    let uuid = Uuid::from_u128(0x39deb949_3343_40c0_9c67_1d9aff21b631);
    let all = records("kafka-connect-1.12-timeout.jsonl");
    let written: Vec<(Uuid, usize)> = all
        .iter()
        .map(|(_, _, value)| connect_message(value).unwrap())
        .filter_map(|m| match m.payload {
            ConnectPayload::DataWritten { data_files, .. } => Some((m.commit_id, data_files.len())),
            _ => None,
        })
        .collect();
    let ids = [0x90f5f336_b699_47aa_865f_01d633cb008c, 0xdaad4b0c_af7b_49fc_ba13_bc84c69253b6].map(Uuid::from_u128);
    assert_eq!(written, [(ids[0], 3), (ids[1], 3)]);
    let drafts: Vec<Draft> = all.iter().flat_map(|(_, _, v)| read(Wire::IcebergConnect, v)).collect();
    assert_eq!(drafts, [commit("lab", uuid, 9_003_847_089_454_671_768)]);
}

#[test]
fn records_of_an_older_encoder_are_read_too() {
    let uuid = Uuid::from_u128(0xaaaaaaaa_bbbb_cccc_dddd_eeeeeeeeeeee);
    let drafts = read(Wire::IcebergConnect, &recording("kafka-connect-commit_to_table.bin"));
    assert_eq!(drafts, [commit("iceberg", uuid, 6_204_420_083_779_312_050)]);
    let written = connect_message(&recording("kafka-connect-data_written.bin")).unwrap();
    let ConnectPayload::DataWritten { data_files, .. } = written.payload else { panic!() };
    assert_eq!(data_files[0].file_path, "s3://b/db/orders/data/f1.parquet");
    let complete = connect_message(&recording("kafka-connect-commit_complete.bin")).unwrap();
    assert_eq!((kind(&complete), complete.group_id.as_str()), ("done", "cg-control-x"));
}

#[test]
fn what_is_wrong_with_a_record_is_said() {
    let whole = recording("kafka-connect-commit_to_table.bin");
    let error = |value: &[u8]| super::error(Wire::IcebergConnect, value);
    assert_eq!(error(b"{}"), "not a readable iceberg-connect event: it does not begin with the bytes C2 01");
    assert!(error(&whole[..3]).ends_with("it ends within the length of its schema"));
    assert!(error(&whole[..1000]).ends_with("it ends within its schema"));
    assert!(error(&[&whole[..], b"x"].concat()).ends_with("bytes are left behind the record"));
}
