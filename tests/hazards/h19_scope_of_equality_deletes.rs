//! Which files an equality delete reaches: by sequence, spec and tuple, and every
//! file of the table when its spec is unpartitioned.

use std::sync::Arc;

use afterwrite::model::policy::Policy;
use afterwrite::orient::traits;
use iceberg::spec::Transform;

use crate::fixture::{File, Table, oracle, row};
use crate::orient::absorb::{look, orient};

/// How many deletes apply to the file by the product's scope rules.
async fn applying(t: &Table, file: &File) -> usize {
    let scope = t.scope(&file.partition).await;
    scope.files.iter().find(|f| f.path.as_ref() == file.path).unwrap().deletes.len()
}

async fn is_live(t: &Table, path: &str) -> bool {
    oracle::live(&t.load().await).await.iter().any(|l| l.file.file_path() == path)
}

#[tokio::test]
async fn h19_an_upsert_in_one_commit_keeps_its_new_row() {
    let t = Table::plain().create().await;
    let old = t.append([row(1, "old", 0)]).await;
    let made = t.change().delete_equal(&["id"], [row(1, "", 0)]).append([row(1, "new", 0)]).commit().await;
    assert_eq!((applying(&t, &old).await, applying(&t, &made.data[0]).await), (1, 0));
    t.compact(&old, "a1").await;
    assert_eq!(t.rows().await, ["1|new"]);
}

#[tokio::test]
async fn h19_a_delete_in_one_partition_leaves_the_same_key_in_another() {
    let t = Table::partitioned_by_p().past().create().await;
    let p = t.append([row(1, "a", 1)]).await;
    let q = t.append([row(1, "a", 2)]).await;
    t.change().delete_equal(&["id"], [row(1, "", 1)]).commit().await;
    assert_eq!((applying(&t, &p).await, applying(&t, &q).await), (1, 0));
    t.compact(&p, "a1").await;
    t.compact(&q, "a2").await;
    assert_eq!(t.rows().await, ["1|a|2"]);
}

#[tokio::test]
async fn h19_equal_tuples_of_two_specs_are_not_mixed() {
    let t = Table::partitioned_by_p().create().await;
    let old = t.append([row(1, "a", 1)]).await;
    let spec = t.evolve_spec(&[("p", "p_again", Transform::Identity)]).await;
    let new = t.append([row(1, "b", 1)]).await;
    assert_eq!((old.partition.tuple.clone(), new.partition.spec_id), (new.partition.tuple.clone(), spec));
    t.change().delete_equal_under(spec, &["id"], [row(1, "", 1)]).commit().await;
    assert_eq!((applying(&t, &old).await, applying(&t, &new).await), (0, 1));
    t.compact(&new, "a1").await;
    t.compact(&old, "a2").await;
    assert_eq!(t.rows().await, ["1|a|1"]);
}

#[tokio::test]
async fn h19_a_global_delete_reaches_every_partition_of_every_spec_and_stays_until_the_last() {
    let t = Table::plain().columns(&[("id", long()), ("v", text()), ("p", int())]).past().create().await;
    let plain = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    t.evolve_spec(&[("p", "p", Transform::Identity)]).await;
    let p1 = t.append([row(1, "c", 1), row(3, "d", 1)]).await;
    let p2 = t.append([row(1, "e", 2), row(4, "f", 2)]).await;
    let delete = t.change().delete_equal_under(0, &["id"], [row(1, "", 0)]).commit().await.deletes.remove(0);
    let late = t.append([row(1, "late", 2)]).await;
    for (file, count) in [(&plain, 1), (&p1, 1), (&p2, 1), (&late, 0)] {
        assert_eq!(applying(&t, file).await, count, "{}", file.path);
    }
    let rows = ["1|late|2", "2|b|1", "3|d|1", "4|f|2"];
    for (n, (file, stays)) in [(&p1, true), (&p2, true), (&plain, false)].into_iter().enumerate() {
        t.compact(file, &format!("a{n}")).await;
        assert_eq!(t.rows().await, rows);
        assert_eq!(is_live(&t, &delete.path).await, stays, "after rewriting {}", file.partition);
    }
}

#[tokio::test]
async fn h19_a_global_delete_touches_the_traits_of_every_partition_of_every_spec() {
    let t = Table::plain().columns(&[("id", long()), ("v", text()), ("p", int())]).past().create().await;
    let plain = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    t.evolve_spec(&[("p", "p", Transform::Identity)]).await;
    let p1 = t.append([row(1, "c", 1), row(3, "d", 1)]).await;
    let p2 = t.append([row(1, "e", 2), row(4, "f", 2)]).await;
    let orient = Arc::new(orient());
    let deletes = async || {
        let (orient, table) = (Arc::clone(&orient), t.load().await);
        let state = tokio::task::spawn_blocking(move || look(&orient, &table).state).await.unwrap();
        let of = |file: &File| traits(&state, &file.partition, &Policy::default().cost, 0).unwrap();
        [&plain, &p1, &p2].map(|f| (of(f).equality_delete_records, of(f).delete_file_count, of(f).delete_ratio))
    };
    assert_eq!(deletes().await, [(0, 0, 0.0); 3]);
    t.change().delete_equal_under(0, &["id"], [row(1, "", 0)]).commit().await;
    assert_eq!(deletes().await, [(1, 1, 0.5); 3]);
    // one of a partition touches that one alone
    t.change().delete_equal(&["id"], [row(3, "", 1)]).commit().await;
    assert_eq!(deletes().await, [(1, 1, 0.5), (2, 2, 1.0), (1, 1, 0.5)]);
}

#[tokio::test]
async fn h19_a_spec_of_only_void_fields_makes_a_delete_global() {
    let t = Table::partitioned_by_p().create().await;
    let old = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    let void = t.evolve_spec(&[("p", "p_void", Transform::Void)]).await;
    t.change().delete_equal_under(void, &["id"], [row(1, "", 9)]).commit().await;
    assert_eq!(applying(&t, &old).await, 1);
    t.compact(&old, "a1").await;
    assert_eq!(t.rows().await, ["2|b|1"]);
}

fn long() -> iceberg::spec::PrimitiveType {
    iceberg::spec::PrimitiveType::Long
}

fn text() -> iceberg::spec::PrimitiveType {
    iceberg::spec::PrimitiveType::String
}

fn int() -> iceberg::spec::PrimitiveType {
    iceberg::spec::PrimitiveType::Int
}
