//! Equality deletes that are committed while a rewrite is in flight: those that
//! reach the outputs as they reach the inputs leave it good, all others ask for a
//! new plan.

use afterwrite::lake::Written;
use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::outcome::{Conflict, Outcome};
use afterwrite::model::plan::{AttemptId, Plan};
use iceberg::TableUpdate;
use iceberg::spec::{NestedField, PrimitiveType, Transform, Type};

use crate::fixture::{Cell, File, Table, Watch, oracle, row};

/// The product's own rewrite and proof.
async fn rewritten(t: &Table, plan: &Plan) -> Written {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    written
}

/// A delete by `v = text` as a writer makes it that goes by the schema of now,
/// whenever it commits.
async fn delete_by_v(t: &Table, text: &str) -> File {
    let (mut made, _) = t.change().delete_equal(&["v"], [row(0, text, 0)]).stage(&t.load().await).await;
    made.deletes.remove(0)
}

async fn drop_column(t: &Table, name: &str) {
    t.evolve_schema(|fields| fields.retain(|f| f.name != name)).await;
}

/// Refused as a change of the deletes on the file, rows as they were; a new plan
/// lands and leaves them so.
async fn replanned(t: &Table, file: &File, plan: &Plan, written: &Written) {
    let rows = t.rows().await;
    let outcome = t.commit(plan, written, "a1.1").await;
    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![file.path.clone()] }));
    assert_eq!(t.rows().await, rows);
    lands_anew(t, file, &rows).await;
}

async fn lands_anew(t: &Table, file: &File, rows: &[String]) {
    let plan = t.plan_all(file).await;
    let table = t.load().await;
    let written = rewrite::run(&table, &plan, &AttemptId("a2.0".into()), &Watch::default()).await.unwrap();
    assert!(matches!(t.commit(&plan, &written, "a2.1").await, Outcome::Landed { .. }));
    assert_eq!(t.rows().await, rows);
}

async fn lands(t: &Table, plan: &Plan, written: &Written) {
    let rows = t.rows().await;
    let outcome = t.commit(plan, written, "a1.1").await;
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!(t.rows().await, rows);
}

#[tokio::test]
async fn h01_upserts_while_a_rewrite_is_in_flight_leave_it_good() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    t.append([row(3, "c", 0)]).await;
    let plan = t.plan_all(&f1).await;
    t.change().delete_equal(&["id"], [row(1, "", 0)]).append([row(1, "a2", 0)]).commit().await;
    let written = rewritten(&t, &plan).await;
    t.change().delete_equal(&["id"], [row(1, "", 0), row(3, "", 0)]).append([row(1, "a3", 0), row(3, "c3", 0)]).commit().await;

    lands(&t, &plan, &written).await;

    assert_eq!(t.rows().await, ["1|a3", "2|b", "3|c3"]);
}

#[tokio::test]
async fn h01_a_delete_by_a_column_that_the_outputs_lack_is_a_conflict() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let late = delete_by_v(&t, "a").await;
    // given outputs that were written after the column was dropped
    drop_column(&t, "v").await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    // when a writer that kept to the older schema deletes by it
    t.change().add_delete(late).commit().await;
    assert_eq!(t.rows().await, ["2"]);
    // then its delete would find NULLs in the outputs, and the row would come back
    replanned(&t, &f1, &plan, &written).await;
}

#[tokio::test]
async fn h01_a_delete_by_a_column_that_is_dropped_after_the_outputs_were_written_reaches_them() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let late = delete_by_v(&t, "a").await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    drop_column(&t, "v").await;
    t.change().add_delete(late).commit().await;

    lands(&t, &plan, &written).await;

    assert_eq!(t.rows().await, ["2"]);
}

#[tokio::test]
async fn h01_a_delete_by_a_column_that_came_after_the_outputs_reaches_them() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    t.evolve_schema(|fields| fields.push(NestedField::optional(3, "w", Type::Primitive(PrimitiveType::Long)))).await;
    let with_w = |id, w| vec![Cell::Int(id), Cell::Text("new".into()), w];
    t.append([with_w(3, Cell::Int(7)), with_w(4, Cell::Null)]).await;
    // rows of before have NULL there, in the inputs and in the outputs
    t.change().delete_equal(&["w"], [with_w(0, Cell::Null)]).commit().await;
    assert_eq!(t.rows().await, ["3|new|7"]);

    lands(&t, &plan, &written).await;
}

#[tokio::test]
async fn h01_a_column_that_comes_back_while_its_files_are_rewritten_is_a_conflict() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let before = t.load().await.loaded.metadata.current_schema_id();
    drop_column(&t, "v").await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    t.update(vec![TableUpdate::SetCurrentSchema { schema_id: before }]).await;
    assert_eq!(t.rows().await, ["1|a", "2|b"]);

    let outcome = t.commit(&plan, &written, "a1.1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::ColumnsChanged { columns: vec!["v".into()] }));
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
    lands_anew(&t, &f1, &["1|a".into(), "2|b".into()]).await;
}

#[tokio::test]
async fn h01_a_column_of_another_type_than_it_was_written_in_is_a_conflict() {
    let t = Table::plain().columns(&[("id", PrimitiveType::Int)]).create().await;
    let f1 = t.append([row(1, "", 0), row(2, "", 0)]).await;
    let before = t.load().await.loaded.metadata.current_schema_id();
    t.evolve_schema(|fields| fields[0] = NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long))).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    // files of longs under a column of ints would be read by nobody
    t.update(vec![TableUpdate::SetCurrentSchema { schema_id: before }]).await;

    let outcome = t.commit(&plan, &written, "a1.1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::ColumnsChanged { columns: vec!["id".into()] }));
}

#[tokio::test]
async fn h01_columns_that_are_added_or_dropped_meanwhile_are_no_conflict() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    drop_column(&t, "v").await;
    t.evolve_schema(|fields| fields.push(NestedField::optional(3, "w", Type::Primitive(PrimitiveType::Long)))).await;

    lands(&t, &plan, &written).await;

    assert_eq!(t.rows().await, ["1|NULL", "2|NULL"]);
}

#[tokio::test]
async fn h01_a_global_delete_meanwhile_reaches_the_outputs_of_a_partition() {
    let columns = [("id", PrimitiveType::Long), ("v", PrimitiveType::String), ("p", PrimitiveType::Int)];
    let t = Table::plain().columns(&columns).past().create().await;
    let old = t.append([row(1, "old", 7)]).await;
    t.evolve_spec(&[("p", "p", Transform::Identity)]).await;
    let f1 = t.append([row(1, "a", 7), row(2, "b", 7)]).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    // under the first spec, which is unpartitioned, and under a later one of void fields only
    t.change().delete_equal_under(0, &["id"], [row(1, "", 0)]).commit().await;
    let void = t.evolve_spec(&[("p", "p_void", Transform::Void)]).await;
    let late = t.change().delete_equal_under(void, &["id"], [row(9, "", 0)]).commit().await;

    lands(&t, &plan, &written).await;

    assert_eq!(t.rows().await, ["2|b|7"]);
    let live = oracle::live(&t.load().await).await;
    assert!(live.iter().any(|l| l.file.file_path() == late.deletes[0].path), "it still reaches the output");
    assert!(live.iter().any(|l| l.file.file_path() == old.path));
}

#[tokio::test]
async fn h01_a_delete_of_a_later_spec_reaches_neither_inputs_nor_outputs() {
    let t = Table::partitioned_by_p().create().await;
    let f1 = t.append([row(1, "a", 7), row(2, "b", 7)]).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    let later = t.evolve_spec(&[("p", "p_again", Transform::Identity)]).await;
    t.change().delete_equal_under(later, &["id"], [row(1, "", 7)]).commit().await;

    lands(&t, &plan, &written).await;

    assert_eq!(t.rows().await, ["1|a|7", "2|b|7"]);
}

#[tokio::test]
async fn h01_a_delete_no_newer_than_the_plan_that_a_fast_forward_brings_is_a_conflict() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let audit = t.change().branch("audit").delete_equal(&["id"], [row(1, "", 0)]).commit().await;
    t.append([row(3, "c", 0)]).await;
    // given a plan of number 3, and a branch whose delete has number 2
    let plan = t.plan_files(&[&f1]).await;
    assert_eq!(plan.sequence_number, 3);
    let written = rewritten(&t, &plan).await;
    t.set_main(audit.snapshot_id).await;
    assert_eq!(t.rows().await, ["2|b"]);
    // then it reaches the input, and would not reach an output of number 3
    replanned(&t, &f1, &plan, &written).await;
}

#[tokio::test]
async fn h01_a_newer_delete_that_a_fast_forward_brings_leaves_a_plan_good() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    let audit = t.change().branch("audit").delete_equal(&["id"], [row(1, "", 0)]).commit().await;
    t.append([row(3, "c", 0)]).await;
    t.set_main(audit.snapshot_id).await;

    lands(&t, &plan, &written).await;

    assert_eq!(t.rows().await, ["2|b"]);
}

#[tokio::test]
async fn h01_deletes_that_another_rewrites_under_a_new_number_are_a_conflict() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let first = t.change().delete_equal(&["id"], [row(1, "", 0)]).commit().await.deletes.remove(0);
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    t.change().remove(&[&first]).delete_equal(&["id"], [row(1, "", 0), row(2, "", 0)]).commit().await;
    assert_eq!(t.rows().await, Vec::<String>::new());
    replanned(&t, &f1, &plan, &written).await;
}

#[tokio::test]
async fn h01_a_table_that_becomes_format_2_meanwhile_takes_deletes_on_its_old_files_and_on_our_outputs() {
    let t = Table::plain().v1().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    t.update(vec![TableUpdate::UpgradeFormatVersion { format_version: iceberg::spec::FormatVersion::V2 }]).await;
    t.change().delete_equal(&["id"], [row(1, "", 0)]).commit().await;
    assert_eq!((plan.sequence_number, t.rows().await), (0, vec!["2|b".to_owned()]));

    lands(&t, &plan, &written).await;

    t.change().delete_equal(&["id"], [row(2, "", 0)]).commit().await;
    assert_eq!(t.rows().await, Vec::<String>::new());
}
