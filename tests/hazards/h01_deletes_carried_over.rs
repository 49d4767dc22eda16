//! Position deletes that are committed while a rewrite is in flight are carried over
//! to its outputs, in the same commit: no row comes back, no work is thrown away.

use std::collections::BTreeSet;

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::lake::{Error, Output, Written};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::outcome::{Conflict, Outcome};
use afterwrite::model::plan::{AttemptId, Bound, Path, Plan};
use iceberg::spec::{DataContentType, NestedField, PrimitiveType, Transform, Type};
use parquet::file::metadata::ParquetMetaDataReader;

use crate::fixture::{self, File, Table, Watch, oracle, row};
use crate::rewrite::support::codec;

/// The product's own rewrite and proof.
async fn rewritten(t: &Table, plan: &Plan) -> Written {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    written
}

fn roomy(plan: Plan) -> Plan {
    Plan { bound: Bound { memory: 256 << 20, ..plan.bound }, ..plan }
}

/// Every column with a bloom filter: no page of it is moved.
fn bloomed(t: fixture::Spec, column: &str) -> fixture::Spec {
    t.property(&format!("write.parquet.bloom-filter-enabled.column.{column}"), "true")
}

/// Lands with this many deletes carried over, and changes no row for any reader.
async fn lands(t: &Table, plan: &Plan, written: &Written, carried: u64) -> Watch {
    let before = (t.rows().await, t.rows_by_path().await);
    let watch = Watch::default();
    let outcome = t.commit_on(&t.load().await, plan, written, "a1.1", &watch).await.unwrap();
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!((t.rows().await, t.rows_by_path().await), before);
    assert_eq!(*watch.carried.lock().unwrap(), [carried]);
    watch
}

/// Live position deletes.
async fn deletes(t: &Table) -> Vec<oracle::Live> {
    let live = oracle::live(&t.load().await).await;
    live.into_iter().filter(|l| l.file.content_type() == DataContentType::PositionDeletes).collect()
}

fn outputs(written: &Written) -> Vec<String> {
    written.outputs.iter().map(|Output { path, .. }| path.clone()).collect()
}

#[tokio::test]
async fn h01_deletes_of_several_files_become_one_of_the_output_and_the_old_ones_go() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0), row(3, "c", 0)]).await;
    let f2 = t.append([row(4, "d", 0), row(5, "e", 0)]).await;
    let plan = t.plan_files(&[&f1, &f2]).await;
    let written = rewritten(&t, &plan).await;
    assert_eq!(written.path, Path::RePack);
    t.change().delete_positions(&[(&f1, 1), (&f2, 0)]).commit().await;
    t.change().delete_positions(&[(&f1, 2)]).commit().await;

    let watch = lands(&t, &plan, &written, 3).await;

    assert_eq!(t.rows().await, ["1|a", "5|e"]);
    let live = deletes(&t).await;
    let own: Vec<_> = live.iter().map(|l| (l.file.referenced_data_file(), l.file.record_count())).collect();
    assert_eq!(own, [(Some(outputs(&written)[0].clone()), 3)]);
    // it is a file of the try, which was told before it was begun
    assert!(watch.written.lock().unwrap().contains(&live[0].file.file_path().to_owned()));
    assert!(watch.points.lock().unwrap().contains(&KillPoint::DeletesCarried));
    let table = t.load().await;
    let snapshot = table.loaded.metadata.current_snapshot().unwrap().clone();
    assert_eq!(live[0].sequence, snapshot.sequence_number());
    let summary = &snapshot.summary().additional_properties;
    let of = |key: &str| summary.get(key).map(String::as_str);
    assert_eq!([of("added-delete-files"), of("added-position-deletes"), of("removed-delete-files")], [Some("1"), Some("3"), Some("2")]);
    assert_eq!([of("total-delete-files"), of("total-position-deletes")], [Some("1"), None]);
    // and the next compaction applies it
    t.compact(&f1, "a2").await;
    assert_eq!((t.rows().await, deletes(&t).await.len()), (vec!["1|a".to_owned(), "5|e".to_owned()], 0));
}

#[tokio::test]
async fn h63_carried_deletes_are_written_as_the_table_asks_of_deletes() {
    for (set, expected) in
        [("write.delete.parquet.compression-codec", "GZIP"), ("write.parquet.compression-codec", "GZIP"), ("comment", "ZSTD")]
    {
        let t = Table::plain().property(set, "gzip").past().create().await;
        let f1 = t.append([row(1, "a", 0), row(2, "b", 0), row(3, "c", 0)]).await;
        let plan = t.plan_files(&[&f1]).await;
        let written = rewritten(&t, &plan).await;
        t.change().delete_positions(&[(&f1, 1)]).commit().await;

        lands(&t, &plan, &written, 1).await;

        let path = deletes(&t).await[0].file.file_path().to_owned();
        let bytes = t.load().await.loaded.io.new_input(&path).unwrap().read().await.unwrap();
        let footer = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
        assert!(footer.row_group(0).columns().iter().all(|chunk| codec(chunk.compression()) == expected), "{set}");
        assert_eq!(t.rows().await, ["1|a", "3|c"]);
    }
}

#[tokio::test]
async fn h01_a_delete_of_a_row_that_the_rewrite_left_out_carries_nothing() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0), row(3, "c", 0)]).await;
    t.change().delete_positions(&[(&f1, 0)]).commit().await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    // again, and past the file's end
    t.change().delete_positions(&[(&f1, 0), (&f1, 77)]).commit().await;

    lands(&t, &plan, &written, 0).await;

    assert_eq!((t.rows().await, deletes(&t).await.len()), (vec!["2|b".to_owned(), "3|c".to_owned()], 0));
}

#[tokio::test]
async fn h01_a_delete_file_that_covers_files_of_others_too_stays_for_them() {
    for bounds in [fixture::Bounds::Exact, fixture::Bounds::Cut(16), fixture::Bounds::Inverted, fixture::Bounds::Absent] {
        let t = Table::plain().past().create().await;
        let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
        let f2 = t.append([row(3, "c", 0), row(4, "d", 0)]).await;
        let plan = t.plan_files(&[&f1]).await;
        let written = rewritten(&t, &plan).await;
        let f3 = t.append([row(5, "e", 0), row(6, "f", 0)]).await;
        let made = t.change().delete_positions_with(&[(&f1, 1), (&f2, 0), (&f3, 1)], bounds).commit().await;

        lands(&t, &plan, &written, 1).await;

        assert_eq!(t.rows().await, ["1|a", "4|d", "5|e"], "{bounds:?}");
        let live: BTreeSet<_> = deletes(&t).await.iter().map(|l| l.file.file_path().to_owned()).collect();
        assert_eq!((live.len(), live.contains(&made.deletes[0].path)), (2, true), "{bounds:?}");
    }
}

#[tokio::test]
async fn h01_conflicts_in_a_row_carry_over_what_came_until_then() {
    let t = Table::plain().past().create().await;
    let f1 = t.append((0..8).map(|id| row(id, "v", 0))).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    let mut left: BTreeSet<i64> = (0..8).collect();
    let mut tried = Vec::new();
    for n in 0..4 {
        t.change().delete_positions(&[(&f1, n)]).commit().await;
        left.remove(&n);
        let base = t.load().await;
        // one more comes between load and swap
        if n < 3 {
            t.append([row(100 + n, "new", 0)]).await;
            left.insert(100 + n);
        }
        let watch = Watch::default();
        let outcome = t.commit_on(&base, &plan, &written, &format!("a1.{}", n + 1), &watch).await.unwrap();
        tried.push((outcome == Outcome::Conflict(Conflict::MetadataMoved), watch.carried.lock().unwrap().clone()));
    }
    assert_eq!(tried, [(true, vec![1]), (true, vec![2]), (true, vec![3]), (false, vec![4])]);
    let mut expected: Vec<String> = left.iter().map(|id| format!("{id}|{}", if *id < 100 { "v" } else { "new" })).collect();
    expected.sort();
    assert_eq!(t.rows().await, expected);
}

#[tokio::test]
async fn h01_deletes_are_carried_over_on_every_way_of_writing_outputs() {
    let sorts = |t: crate::fixture::Spec, encode: bool| match encode {
        true => bloomed(bloomed(t, "id"), "v"),
        false => t,
    };
    for (rows, encode, path) in [(120_000, false, Path::Splice), (500, false, Path::RePack), (500, true, Path::ReEncode)] {
        let t = sorts(Table::plain(), encode).create().await;
        let f1 = t.append((0..rows).map(|id| row(id, "v", 0))).await;
        let f2 = t.append((rows..2 * rows).map(|id| row(id, "v", 0))).await;
        let plan =
            Plan { bound: afterwrite::model::plan::Bound { memory: 256 << 20, ..t.plan_all(&f1).await.bound }, ..t.plan_all(&f1).await };
        let written = rewritten(&t, &plan).await;
        assert_eq!(written.path, path);
        let wanted = [(&f1, 0), (&f1, rows / 3), (&f1, rows - 1), (&f2, 0), (&f2, rows / 2), (&f2, rows / 2 + 1)];
        t.change().delete_positions(&wanted).commit().await;

        lands(&t, &plan, &written, 6).await;

        assert_eq!(t.rows().await.len(), usize::try_from(2 * rows - 6).unwrap(), "{path:?}");
    }
}

#[tokio::test]
async fn h01_deletes_over_several_outputs_and_beside_equality_deletes_are_carried_over() {
    let t = ["id", "v", "p"].into_iter().fold(Table::partitioned_by_p().past(), bloomed).create().await;
    let mut files = Vec::new();
    for n in 0..4_i64 {
        files.push(t.append((0..3_000).map(|i| row(n * 3_000 + i, &format!("{:x}", (n * 3_000 + i) * 7_919), 7))).await);
    }
    t.append([row(1, "other", 8)]).await;
    t.change().delete_positions(&[(&files[0], 5), (&files[2], 2_999)]).commit().await;
    t.change().delete_equal(&["id"], [row(3_001, "", 7)]).commit().await;
    let plan = Plan { target_file_size: 40_000, ..roomy(t.plan_all(&files[0]).await) };
    let written = rewritten(&t, &plan).await;
    assert!(written.path == Path::ReEncode && written.outputs.len() >= 2, "{:?} {}", written.path, written.outputs.len());
    let named: Vec<(&File, i64)> = files.iter().flat_map(|f| [(f, 0), (f, 5), (f, 1_500), (f, 2_999)]).collect();
    t.change().delete_positions(&named).commit().await;
    t.change().delete_equal(&["id"], [row(7, "", 7), row(3_000, "", 7)]).append([row(7, "again", 7)]).commit().await;

    // two of the sixteen were left out
    lands(&t, &plan, &written, 14).await;

    let named: BTreeSet<_> = deletes(&t).await.iter().filter_map(|l| l.file.referenced_data_file()).collect();
    assert!(named.len() >= 2 && named.is_subset(&outputs(&written).into_iter().collect()), "{named:?}");
}

/// A file without a column that the others have is encoded first, without its deleted
/// rows, and moved with the others then.
#[tokio::test]
async fn h01_deletes_of_a_file_that_was_encoded_before_its_pages_were_moved_are_carried_over() {
    let t = Table::plain().past().create().await;
    let odd = t.append((0..6).map(|id| row(id, "old", 0))).await;
    t.evolve_schema(|fields| fields.push(NestedField::optional(3, "w", Type::Primitive(PrimitiveType::Long)))).await;
    let mut files = vec![odd];
    for n in 1..6 {
        files.push(t.append((0..6).map(|i| row(n * 10 + i, "new", n))).await);
    }
    t.change().delete_positions(&[(&files[0], 1), (&files[2], 0)]).commit().await;
    let plan = roomy(t.plan_all(&files[0]).await);
    let written = rewritten(&t, &plan).await;
    assert_eq!((written.path, written.rows_deleted), (Path::RePack, 2));
    t.change().delete_positions(&[(&files[0], 1), (&files[0], 4), (&files[2], 0), (&files[2], 5), (&files[5], 5)]).commit().await;

    lands(&t, &plan, &written, 3).await;
}

#[tokio::test]
async fn h01_deletes_of_a_spec_and_schema_of_before_are_carried_over() {
    let t = Table::partitioned_by_p().past().create().await;
    let f1 = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7)]).await;
    let f2 = t.append([row(4, "d", 7)]).await;
    let plan = t.plan_files(&[&f1, &f2]).await;
    let written = rewritten(&t, &plan).await;
    t.change().delete_positions(&[(&f1, 2)]).commit().await;
    t.evolve_spec(&[("id", "id_bucket", Transform::Bucket(4))]).await;
    t.evolve_schema(|fields| {
        fields.retain(|f| f.name != "v");
        fields.push(NestedField::optional(4, "w", Type::Primitive(PrimitiveType::Long)));
    })
    .await;

    lands(&t, &plan, &written, 1).await;

    assert_eq!(t.rows().await, ["1|7|NULL", "2|7|NULL", "4|7|NULL"]);
    assert_eq!(deletes(&t).await.iter().map(|l| l.spec_id).collect::<Vec<_>>(), [f1.partition.spec_id]);
}

#[tokio::test]
async fn h01_a_row_of_another_value_at_the_place_carried_to_is_disproved() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0), row(3, "c", 0)]).await;
    t.change().delete_positions(&[(&f1, 0)]).commit().await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    // given a rewrite that tells wrongly which row it left out
    let detail = written.detail.downcast_ref::<rewrite::Detail>().unwrap();
    let told = Some(vec![[1].into_iter().collect()]);
    let wrong = rewrite::Detail { data_files: detail.data_files.clone(), read: None, columns: detail.columns.clone(), deleted: told };
    let written = Written { detail: std::sync::Arc::new(wrong), ..written };
    t.change().delete_positions(&[(&f1, 0), (&f1, 2)]).commit().await;
    let before = t.load().await;

    let outcome = t.commit_on(&before, &plan, &written, "a1.1", &Watch::default()).await;

    assert!(matches!(&outcome, Err(Error::Proof(why)) if why.contains("column 1")), "{outcome:?}");
    assert_eq!(t.load().await.view.head, before.view.head);
}

#[tokio::test]
async fn h01_deletes_that_came_and_one_that_went_are_a_conflict() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0), row(3, "c", 0)]).await;
    let gone = t.change().delete_positions(&[(&f1, 0)]).commit().await.deletes.remove(0);
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    t.change().remove(&[&gone]).delete_positions(&[(&f1, 1)]).commit().await;

    let outcome = t.commit(&plan, &written, "a1.1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![f1.path.clone()] }));
    assert_eq!(t.rows().await, ["1|a", "3|c"]);
}

/// As Spark does it where deletes are one file for each data file.
#[tokio::test]
async fn h01_deletes_that_are_written_anew_with_those_that_came_are_carried_over() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0), row(3, "c", 0), row(4, "d", 0)]).await;
    t.change().delete_equal(&["id"], [row(4, "", 0)]).commit().await;
    let gone = t.change().delete_positions(&[(&f1, 0)]).commit().await.deletes.remove(0);
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    t.change().remove(&[&gone]).delete_positions_with(&[(&f1, 0), (&f1, 1)], fixture::Bounds::Referenced).commit().await;

    lands(&t, &plan, &written, 1).await;

    assert_eq!(t.rows().await, ["3|c"]);
}

#[tokio::test]
async fn h01_more_deletes_than_memory_are_planned_anew() {
    let t = Table::plain().create().await;
    let f1 = t.append((0..3_000).map(|id| row(id, "v", 0))).await;
    let plan = t.plan_all(&f1).await;
    let written = rewritten(&t, &plan).await;
    let named: Vec<(&File, i64)> = (0..3_000).map(|at| (&f1, at)).collect();
    t.change().delete_positions(&named).commit().await;
    let bound = Bound { memory: 16 << 10, ..plan.bound };

    let outcome = t.commit(&Plan { bound, ..plan }, &written, "a1.1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![f1.path.clone()] }));
}
