use afterwrite::model::event::Certainty;
use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Draft, Record, Where, decode, notification, report_at};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{draft, error, foreign, lines, read};

const ORDERS: Uuid = Uuid::from_u128(0xd335aecc_04db_4223_a213_c7ac5ffef216);

fn confirmed(table: &str) -> Draft {
    draft(Where::Foreign(foreign(None, &["db"], table)), Certainty::CatalogConfirmed)
}

/// The recorded commits of a client, as Lakekeeper sends them on.
fn commits() -> Vec<Value> {
    let posted = lines("rest-java-requests.jsonl").into_iter();
    posted.filter(|p| p["request"].get("updates").is_some()).map(|p| p["request"].clone()).collect()
}

/// Binary mode: attributes in headers, the request as the body.
fn binary(kind: &str, name: &str, data: &Value) -> Vec<Draft> {
    let (uuid, body) = (ORDERS.to_string(), data.to_string());
    let headers: [(&str, &[u8]); 7] = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"01956789-abcd-7000-8000-000000000000"),
        ("ce_type", kind.as_bytes()),
        ("ce_tabular-type", b"table"),
        ("ce_tabular-id", uuid.as_bytes()),
        ("ce_name", name.as_bytes()),
        ("ce_namespace", b"db"),
    ];
    let value: &[u8] = if data.is_null() { b"" } else { body.as_bytes() };
    decode(Wire::CloudEvents, &Record { value, headers: &headers }).unwrap()
}

/// Structured mode: all in one body.
fn structured(kind: &str, name: &str, data: &Value) -> Vec<Draft> {
    let body = json!({
        "specversion": "1.0", "id": "1", "type": kind, "source": "uri:iceberg-catalog-service:h", "datacontenttype": "application/json",
        "data": data, "tabular-type": "table", "tabular-id": ORDERS, "name": name, "namespace": "db", "num-events": 1,
    });
    read(Wire::CloudEvents, body.to_string().as_bytes())
}

#[test]
fn a_catalogs_commits_are_read_in_both_modes_with_every_snapshot_and_branch() {
    let told: Vec<(Option<String>, Vec<i64>)> = commits()
        .iter()
        .flat_map(|data| {
            let drafts = binary("updateTable", "orders", data);
            assert_eq!(drafts, structured("updateTable", "orders", data));
            assert!(drafts.iter().all(|d| d.uuid == Some(ORDERS)));
            drafts.into_iter().map(|d| (d.reference, d.snapshots)).collect::<Vec<_>>()
        })
        .collect();
    let main = || Some("main".to_owned());
    let audit = || Some("audit".to_owned());
    let expected = vec![
        (main(), vec![6_204_420_083_779_312_050]),
        (main(), vec![5_714_556_494_320_950_427]),
        // a transaction of two operations
        (main(), vec![6_617_685_242_490_238_124, 2_400_420_418_262_650_334]),
        // staged: on no branch
        (None, vec![9_165_313_254_155_154_121]),
        (main(), vec![544_189_498_041_181_066]),
        (main(), vec![3_674_191_580_188_538_637]),
        (audit(), vec![]),
        (audit(), vec![7_181_972_991_410_259_281]),
        // a fast-forward and a rollback
        (main(), vec![]),
        (main(), vec![]),
        // expired snapshots
        (None, vec![]),
        // made from a query, and replaced
        (main(), vec![1_755_686_012_410_985_876]),
        (main(), vec![4_246_708_346_344_999_444]),
        (main(), vec![6_739_061_288_755_853_013]),
        (main(), vec![6_803_055_819_720_152_343]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_commits_files_are_counted_from_its_summary() {
    let first = &binary("updateTable", "orders", &commits()[0])[0];
    assert_eq!((first.files_added, first.certainty), (2, Certainty::CatalogConfirmed));
    assert_eq!(first.table, Where::Foreign(foreign(None, &["db"], "orders")));
}

#[test]
fn a_table_that_comes_goes_or_is_renamed_is_told_by_name() {
    let known = |table| Draft { uuid: Some(ORDERS), ..confirmed(table) };
    for (kind, data) in
        [("createTable", json!({ "name": "t" })), ("registerTable", json!({})), ("dropTable", Value::Null), ("undropTabulars", Value::Null)]
    {
        assert_eq!(binary(kind, "t", &data), [known("t")], "{kind}");
    }
    let rename = lines("rest-java-requests.jsonl").pop().unwrap()["request"].clone();
    assert_eq!(binary("renameTable", "orders", &rename), [known("orders"), known("orders2")]);
}

#[test]
fn views_and_kinds_to_come_tell_of_no_commit() {
    assert_eq!(binary("updateView", "v", &json!({})), []);
    let body = json!({ "specversion": "1.0", "type": "updateTable", "tabular-type": "view", "data": null });
    assert_eq!(read(Wire::CloudEvents, body.to_string().as_bytes()), []);
    assert!(error(Wire::CloudEvents, b"{\"specversion\":\"1.0\"}").contains("type: is missing"));
    assert!(error(Wire::CloudEvents, b"{\"type\":\"dropTable\"}").contains("name, namespace: one of them is missing"));
    let no_id = json!({ "type": "updateTable", "data": { "updates": [{ "action": "add-snapshot", "snapshot": { "snapshot-id": 1.5 } }] } });
    assert!(error(Wire::CloudEvents, no_id.to_string().as_bytes()).contains("data: "));
}

#[test]
fn recorded_commit_reports_are_hints_and_scan_reports_are_passed_over() {
    let at = foreign(None, &["db"], "orders");
    let reports: Vec<Value> =
        lines("rest-java-requests.jsonl").into_iter().filter(|p| p["path"].as_str().unwrap().ends_with("/metrics")).collect();
    let mut told = Vec::new();
    for report in &reports {
        let body = report["request"].to_string();
        for d in report_at(&at, body.as_bytes()).unwrap() {
            assert_eq!((&d.table, d.certainty), (&Where::Foreign(at.clone()), Certainty::Hint));
            told.push((d.snapshots, d.files_added));
        }
        // by itself it names the table as the client's own catalog does
        for d in read(Wire::IcebergReport, body.as_bytes()) {
            let Where::Foreign(name) = d.table else { panic!() };
            assert_eq!((name.catalog.as_deref(), name.namespace.as_slice()), (Some("prod"), &["db".to_owned()][..]));
        }
    }
    assert_eq!(reports.len(), 13);
    assert_eq!(told.len(), 12);
    assert_eq!(told[0], (vec![6_204_420_083_779_312_050], 2));
    assert_eq!(told[2], (vec![6_617_685_242_490_238_124], 1));
}

#[test]
fn reports_of_a_flink_job_are_read_without_a_report_type() {
    let told: Vec<(String, Vec<i64>, u64)> = lines("flink-reports.jsonl")
        .iter()
        .flat_map(|report| read(Wire::IcebergReport, report.to_string().as_bytes()))
        .map(|d| match d.table {
            Where::Foreign(name) => (name.table, d.snapshots, d.files_added),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told.len(), 23);
    assert_eq!(told[0], ("ups2".into(), vec![4_447_130_393_330_108_200], 9));
    assert_eq!(told[1], ("ups3".into(), vec![3_267_482_774_574_211_536], 6));
}

#[test]
fn a_polaris_listener_tells_the_table_and_nothing_else() {
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "event_type": kind, "event_id": "6b1c", "timestamp": "2026-11-29T20:44:01.123Z", "catalog_name": "prod", "realm_id": "POLARIS" });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event.to_string()
    };
    let table = |name| draft(Where::Foreign(foreign(Some("prod"), &["db", "eu"], name)), Certainty::CatalogConfirmed);
    let named = json!({ "table_name": "orders", "namespace": ["db", "eu"] });
    for kind in ["AFTER_UPDATE_TABLE", "AFTER_CREATE_TABLE", "AFTER_DROP_TABLE", "AFTER_REGISTER_TABLE"] {
        assert_eq!(read(Wire::Polaris, event(kind, named.clone()).as_bytes()), [table("orders")]);
    }
    for kind in ["BEFORE_UPDATE_TABLE", "AFTER_COMMIT_TRANSACTION", "AFTER_LOAD_TABLE"] {
        assert_eq!(read(Wire::Polaris, event(kind, named.clone()).as_bytes()), []);
    }
    let renamed = json!({ "source": ["db", "eu", "a"], "destination": ["db", "eu", "b"] });
    assert_eq!(read(Wire::Polaris, event("AFTER_RENAME_TABLE", renamed).as_bytes()), [table("a"), table("b")]);
    assert!(error(Wire::Polaris, event("AFTER_UPDATE_TABLE", json!({})).as_bytes()).contains("namespace, table_name"));
    assert!(error(Wire::Polaris, event("AFTER_RENAME_TABLE", json!({})).as_bytes()).contains("source: is missing"));
}

#[test]
fn a_notification_tells_the_table_of_its_address_and_its_uuid() {
    let at = foreign(None, &["db"], "orders");
    let body = |kind: &str| {
        json!({ "notification-type": kind, "payload": { "table-name": "other", "timestamp": 1, "table-uuid": ORDERS,
            "metadata-location": "http://evil.example/metadata.json", "metadata": { "x": 1 } } })
        .to_string()
    };
    for kind in ["CREATE", "UPDATE", "DROP"] {
        let told = notification(&at, body(kind).as_bytes()).unwrap();
        assert_eq!(told, [Draft { uuid: Some(ORDERS), ..confirmed("orders") }]);
    }
    assert_eq!(notification(&at, body("VALIDATE").as_bytes()).unwrap(), []);
    assert!(notification(&at, b"[]").is_err());
}
