//! Partitions whose values share a path or a summary key are read, rewritten and
//! committed each by itself.

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::AttemptId;
use iceberg::spec::{PrimitiveType, Transform};

use crate::fixture::{Cell, Row, Table, Watch, oracle};

const VALUES: [Option<&str>; 13] = [
    None,
    Some("null"),
    Some(""),
    Some(" "),
    Some("+"),
    Some("%2F"),
    Some("/"),
    Some(".."),
    Some("a/../b"),
    Some("s=null"),
    Some("ü"),
    Some("u\u{308}"),
    Some("__HIVE_DEFAULT_PARTITION__"),
];

fn cells(id: i64, s: Option<&str>) -> Row {
    vec![Cell::Int(id), s.map_or(Cell::Null, |s| Cell::Text(s.into()))]
}

#[tokio::test]
async fn h96_awkward_partitions_are_rewritten_each_by_itself() {
    let columns = [("id", PrimitiveType::Long), ("s", PrimitiveType::String)];
    let t = Table::plain().columns(&columns).partition("s", "s", Transform::Identity).past().create().await;
    let mut firsts = vec![];
    for (n, value) in VALUES.into_iter().enumerate() {
        let n = n as i64;
        firsts.push(t.append([cells(10 * n, value), cells(10 * n + 1, value)]).await);
        t.append([cells(10 * n + 2, value)]).await;
    }
    // the same key is deleted in one partition, and a position in another
    t.change().delete_equal(&["id"], [cells(0, None)]).delete_equal(&["id"], [cells(0, Some("null"))]).commit().await;
    t.change().delete_positions(&[(&firsts[1], 1)]).commit().await;
    let rows = t.rows().await;
    assert_eq!(rows.len(), 3 * VALUES.len() - 2);
    for (n, (first, value)) in firsts.iter().zip(VALUES).enumerate() {
        let plan = t.plan_all(first).await;
        assert_eq!(plan.inputs.len(), 2, "{value:?}");
        let table = t.load().await;
        let written = rewrite::run(&table, &plan, &AttemptId(format!("a{n}.0")), &Watch::default()).await.unwrap();
        verify::run(&table, &plan, &written).await.unwrap();
        assert!(matches!(t.commit(&plan, &written, &format!("a{n}.1")).await, Outcome::Landed { .. }), "{value:?}");
        assert_eq!(t.rows().await, rows, "{value:?}");
    }
    // one file a partition, each with the tuple that its inputs had, all below the table
    let table = t.load().await;
    let live = oracle::live(&table).await;
    assert_eq!(live.len(), VALUES.len());
    let data = format!("{}/data/", table.loaded.metadata.location());
    for (first, value) in firsts.iter().zip(VALUES) {
        let own: Vec<_> = live.iter().filter(|l| l.file.partition() == first.data.partition()).collect();
        assert_eq!(own.len(), 1, "{value:?}");
        let path = own[0].file.file_path();
        assert!(path.starts_with(&data) && !path.contains("/../"), "{path}");
    }
}
