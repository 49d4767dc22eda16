//! Delete files that cover nothing any more go with the files they covered, and
//! no sooner.

use crate::fixture::{Table, oracle, row};
use iceberg::spec::DataContentType;

async fn deletes(t: &Table) -> Vec<String> {
    let live = oracle::live(&t.load().await).await;
    live.iter().filter(|l| l.file.content_type() != DataContentType::Data).map(|l| l.file.file_path().to_owned()).collect()
}

#[tokio::test]
async fn h97_no_delete_file_is_left_when_all_that_it_covered_is_rewritten() {
    let t = Table::plain().past().create().await;
    let mut files = vec![];
    for n in 0..24 {
        files.push(t.append([row(2 * n, "keep", 0), row(2 * n + 1, "drop", 0)]).await);
    }
    for file in &files[1..] {
        t.change().delete_positions(&[(file, 1)]).commit().await;
    }
    assert_eq!(deletes(&t).await.len(), 23);
    let before = t.rows().await;

    t.compact(&files[0], "a1").await;

    assert_eq!(deletes(&t).await, Vec::<String>::new());
    assert_eq!((before.len(), t.rows().await), (25, before));
    let table = t.load().await;
    let summary = &table.loaded.metadata.current_snapshot().unwrap().summary().additional_properties;
    let of = |key: &str| summary.get(key).map(String::as_str);
    assert_eq!([of("removed-delete-files"), of("removed-position-deletes"), of("total-delete-files")], [Some("23"), Some("23"), Some("0")]);
}

#[tokio::test]
async fn h97_a_delete_file_stays_while_one_file_that_it_names_does() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let f2 = t.append([row(3, "c", 0), row(4, "d", 0)]).await;
    t.change().delete_positions(&[(&f1, 0), (&f2, 0)]).commit().await;
    for (n, (file, left)) in [(&f1, 1), (&f2, 0)].into_iter().enumerate() {
        let plan = t.plan_files(&[file]).await;
        let written = t.naive_rewrite(&plan).await;
        let _ = t.commit(&plan, &written, &format!("a{n}")).await;
        assert_eq!(deletes(&t).await.len(), left);
        assert_eq!(t.rows().await, ["2|b", "4|d"]);
    }
}

#[tokio::test]
async fn h97_deletes_of_other_partitions_are_left() {
    let t = Table::partitioned_by_p().create().await;
    let p = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    let q = t.append([row(3, "c", 2), row(4, "d", 2)]).await;
    t.change().delete_positions(&[(&p, 0)]).commit().await;
    t.change().delete_equal(&["id"], [row(3, "", 2)]).commit().await;
    t.compact(&p, "a1").await;
    assert_eq!(deletes(&t).await.len(), 1);
    assert_eq!(t.rows().await, ["2|b|1", "4|d|2"]);
    t.compact(&q, "a2").await;
    assert_eq!(deletes(&t).await.len(), 0);
    assert_eq!(t.rows().await, ["2|b|1", "4|d|2"]);
}
