//! H59: a rewrite gives no row another id, and makes none look changed.

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::lake::{Error, Written};
use afterwrite::model::outcome::{Conflict, Outcome};
use afterwrite::model::plan::{AttemptId, Path, Plan};

use crate::fixture::lineage::Traced;
use crate::fixture::{File, Spec, Table, Watch, row};
use iceberg::spec::{NestedField, PrimitiveType, Type};

/// A plan for a whole partition, with room for every way.
async fn planned(t: &Table, like: &File) -> Plan {
    let mut plan = t.plan_all(like).await;
    plan.bound.memory = 256 << 20;
    plan.target_file_size = 512 << 20;
    plan
}

/// A table whose files are joined by pages, and some of their columns encoded anew.
fn filtered(columns: &[&str]) -> Spec {
    let wants = |t: Spec, column: &&str| t.property(&format!("write.parquet.bloom-filter-enabled.column.{column}"), "true");
    columns.iter().fold(Table::partitioned_by_p().v3(), wants)
}

/// The ways of few rows, with the columns that want bloom filters: none, some, all.
const WAYS: [(Path, &[&str]); 3] = [(Path::RePack, &[]), (Path::RePack, &["id"]), (Path::ReEncode, &["id", "v", "p"])];

/// The product's rewrite of a partition, proven.
async fn rewritten(t: &Table, plan: &Plan) -> Written {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId(format!("a{}", t.head().await)), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    written
}

/// The product's rewrite of a partition, proven and committed; the way that was taken.
async fn compacted(t: &Table, like: &File) -> Path {
    let plan = planned(t, like).await;
    let written = rewritten(t, &plan).await;
    match t.commit(&plan, &written, &format!("a{}", t.head().await)).await {
        Outcome::Landed { .. } => written.path,
        other => panic!("{other:?}"),
    }
}

/// Ids are given once, and all of them before the table's next.
async fn ids_hold(t: &Table, rows: &[Traced]) {
    let mut ids: Vec<i64> = rows.iter().map(|row| row.1.unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    let next = t.load().await.loaded.metadata.next_row_id() as i64;
    assert_eq!((ids.len(), ids.last().is_none_or(|last| *last < next)), (rows.len(), true));
}

fn traced(text: &str, id: i64, updated: i64) -> Traced {
    (text.into(), Some(id), Some(updated))
}

#[tokio::test]
async fn h59_ids_and_sequence_numbers_stay_on_every_way() {
    for (path, blooms) in WAYS {
        let t = filtered(blooms).create().await;
        let first = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7)]).await;
        let second = t.append([row(4, "d", 7), row(5, "e", 7)]).await;
        let other = t.append([row(9, "z", 8)]).await;
        t.delete_by_vectors(&[(&first, &[1])]).await;
        let lineage = t.lineage().await;
        assert_eq!(
            lineage,
            [traced("1|a|7", 0, 1), traced("3|c|7", 2, 1), traced("4|d|7", 3, 2), traced("5|e|7", 4, 2), traced("9|z|8", 5, 3)]
        );
        assert_eq!(compacted(&t, &first).await, path);
        assert_eq!(t.lineage().await, lineage, "{path:?}");
        ids_hold(&t, &lineage).await;
        // what comes next collides with nothing, and ids that are stored stay too
        t.append([row(6, "f", 7)]).await;
        let lineage = t.lineage().await;
        ids_hold(&t, &lineage).await;
        assert_eq!(compacted(&t, &second).await, path);
        assert_eq!(t.lineage().await, lineage, "{path:?}");
        assert_eq!(compacted(&t, &other).await, path);
        assert_eq!(t.lineage().await, lineage, "{path:?}");
    }
}

#[tokio::test]
async fn h59_ids_stay_where_a_file_cannot_be_joined_with_the_others() {
    let t = Table::partitioned_by_p().v3().create().await;
    let first = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7)]).await;
    compacted(&t, &first).await;
    let second = t.append([row(4, "d", 7), row(5, "e", 7)]).await;
    t.evolve_schema(|fields| fields.push(NestedField::optional(9, "w", Type::Primitive(PrimitiveType::Long)))).await;
    let third = t.append([row(6, "f", 7), row(7, "g", 7), row(8, "h", 7)]).await;
    t.append([row(9, "i", 7), row(10, "j", 7)]).await;
    t.delete_by_vectors(&[(&second, &[0]), (&third, &[1])]).await;
    let lineage = t.lineage().await;
    let plan = planned(&t, &first).await;
    let written = rewritten(&t, &plan).await;
    assert_eq!((written.path, written.rows_deleted), (Path::ReEncode, 2), "{}", written.path_reason);
    assert!(written.path_reason.contains("the file has 3 fields, the table 4"), "{}", written.path_reason);
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    assert_eq!(t.lineage().await, lineage);
    ids_hold(&t, &lineage).await;
    // all are spelled alike now
    t.append([row(11, "k", 7)]).await;
    let lineage = t.lineage().await;
    assert_eq!(compacted(&t, &first).await, Path::RePack);
    assert_eq!(t.lineage().await, lineage);
}

#[tokio::test]
async fn h59_ids_stay_where_row_groups_are_copied() {
    let t = Table::partitioned_by_p().v3().create().await;
    let mut files = vec![];
    for n in 0..2 {
        files.push(t.append((0..120_000).map(|id| row(n * 120_000 + id, "v", 7))).await);
    }
    let lineage = t.lineage().await;
    for _ in 0..2 {
        assert_eq!(compacted(&t, &files[0]).await, Path::Splice);
        assert_eq!(t.lineage().await, lineage);
    }
    t.append((0..120_000).map(|id| row(240_000 + id, "w", 7))).await;
    let lineage = t.lineage().await;
    assert_eq!(compacted(&t, &files[0]).await, Path::Splice);
    assert_eq!(t.lineage().await, lineage);
    ids_hold(&t, &lineage).await;
}

#[tokio::test]
async fn h59_the_first_commit_after_an_upgrade_gives_ids_to_all_that_was_there() {
    let t = Table::partitioned_by_p().create().await;
    let first = t.append([row(1, "a", 7), row(2, "b", 7)]).await;
    t.append([row(3, "c", 7)]).await;
    let other = t.append([row(4, "d", 8)]).await;
    t.upgrade().await;
    let rows = |lineage: &[Traced]| lineage.iter().map(|row| (row.0.clone(), row.2)).collect::<Vec<_>>();
    let before = t.lineage().await;
    assert!(before.iter().all(|row| row.1.is_none()));
    compacted(&t, &first).await;
    let after = t.lineage().await;
    assert_eq!(rows(&after), rows(&before), "what last updated a row is known all the same");
    ids_hold(&t, &after).await;
    assert_eq!(t.load().await.loaded.metadata.current_snapshot().unwrap().row_range(), Some((0, 4)));
    compacted(&t, &other).await;
    compacted(&t, &first).await;
    t.append([row(5, "e", 7)]).await;
    assert_eq!(t.lineage().await[..4], after, "ids that were given stay");
    ids_hold(&t, &t.lineage().await).await;
}

#[tokio::test]
async fn h59_ids_that_are_given_while_we_rewrite_are_not_lost() {
    let t = Table::partitioned_by_p().create().await;
    let first = t.append([row(1, "a", 7)]).await;
    t.append([row(2, "b", 7)]).await;
    t.upgrade().await;
    let plan = planned(&t, &first).await;
    let written = rewritten(&t, &plan).await;
    // a commit of another partition gives our inputs their ids
    t.append([row(3, "c", 8)]).await;
    let lineage = t.lineage().await;
    ids_hold(&t, &lineage).await;
    let outcome = t.commit(&plan, &written, "a1").await;
    assert!(matches!(outcome, Outcome::Conflict(Conflict::DeletesChanged { .. })), "{outcome:?}");
    compacted(&t, &first).await;
    assert_eq!(t.lineage().await, lineage);
}

#[tokio::test]
async fn h59_outputs_without_lineage_do_not_come_into_a_table_that_was_upgraded_meanwhile() {
    let t = Table::partitioned_by_p().create().await;
    let first = t.append([row(1, "a", 7)]).await;
    t.append([row(2, "b", 7)]).await;
    let plan = planned(&t, &first).await;
    let written = rewritten(&t, &plan).await;
    t.upgrade().await;
    let outcome = t.commit(&plan, &written, "a1").await;
    assert_eq!(outcome, Outcome::Conflict(Conflict::ColumnsChanged { columns: vec!["_row_id".into()] }));
}

#[tokio::test]
async fn h59_the_proof_finds_ids_and_sequence_numbers_that_are_others() {
    for (path, blooms) in WAYS {
        let t = filtered(blooms).create().await;
        let first = t.append([row(1, "a", 7), row(2, "b", 7)]).await;
        t.append([row(3, "c", 7)]).await;
        let plan = planned(&t, &first).await;
        let written = rewritten(&t, &plan).await;
        assert_eq!(written.path, path);
        assert_eq!(written.path_reason.contains("; 1 columns are encoded anew"), blooms.len() == 1, "{}", written.path_reason);
        let (mut ids, mut updated) = (plan.clone(), plan.clone());
        ids.inputs[1].first_row_id = Some(17);
        updated.inputs[1].data_sequence += 1;
        for wrong in [ids, updated] {
            let proof = verify::run(&t.load().await, &wrong, &written).await;
            assert!(matches!(&proof, Err(Error::Proof(why)) if why.starts_with("live row 2: its lineage is")), "{proof:?}");
        }
    }
}
