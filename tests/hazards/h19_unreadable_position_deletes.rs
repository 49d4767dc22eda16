//! A position delete of which only its rows tell what it names hinders no more than it
//! could concern when it cannot be read, and is read once a process when it can.

use std::sync::Arc;

use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::scope;
use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::lake::{Error, Result};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::ScopeFiles;
use afterwrite::model::refusal::{Refusal, Refused};
use bytes::Bytes;

use crate::fixture::{Bounds, File, Table, Watch, oracle, row};

/// What the metadata says that names no single file.
const OPEN: [Bounds; 3] = [Bounds::Absent, Bounds::Inverted, Bounds::Cut(16)];

/// How a file cannot be read.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Zeros,
    Gone,
}

async fn harm(t: &Table, file: &File, how: Harm) -> Bytes {
    let io = t.load().await.loaded.io;
    let whole = io.new_input(&file.path).unwrap().read().await.unwrap();
    match how {
        Harm::Zeros => io.new_output(&file.path).unwrap().write(vec![0; whole.len()].into()).await.unwrap(),
        Harm::Gone => io.delete(&file.path).await.unwrap(),
    }
    whole
}

async fn mend(t: &Table, file: &File, whole: &Bytes) {
    t.load().await.loaded.io.new_output(&file.path).unwrap().write(whole.clone()).await.unwrap();
}

async fn is_live(t: &Table, file: &File) -> bool {
    oracle::live(&t.load().await).await.iter().any(|l| l.file.file_path() == file.path)
}

fn refusal(found: Result<ScopeFiles>) -> Option<Refused> {
    match found {
        Err(Error::Refused(refused)) => Some(refused),
        Ok(_) => None,
        other => panic!("{other:?}"),
    }
}

async fn refused(t: &Table, file: &File) -> Option<Refused> {
    refusal(scope::read(&t.load().await, &file.partition).await)
}

async fn two_files(t: &Table, p: i64) -> [File; 2] {
    [t.append([row(1, "a", p), row(2, "b", p)]).await, t.append([row(3, "c", p), row(4, "d", p)]).await]
}

#[tokio::test]
async fn h19_a_damaged_delete_hinders_its_partition_and_no_other_of_its_spec() {
    for (bounds, how) in OPEN.into_iter().flat_map(|bounds| [(bounds, Harm::Zeros), (bounds, Harm::Gone)]) {
        let t = Table::partitioned_by_p().past().create().await;
        let (one, other) = (two_files(&t, 1).await, two_files(&t, 2).await);
        let deletes = [(&one[0], 0), (&one[1], 1)];
        let delete = t.change().delete_positions_in(&one[0], &deletes, bounds).commit().await.deletes.remove(0);
        let before = (t.rows().await, t.rows_by_path().await);

        let whole = harm(&t, &delete, how).await;
        match (scope::read(&t.load().await, &one[0].partition).await, how) {
            (Err(Error::Refused(refused)), Harm::Zeros) => assert_eq!(refused.refusal, Refusal::Damaged, "{bounds:?}"),
            (Err(Error::NotFound { path }), Harm::Gone) => assert_eq!(path, delete.path),
            (found, _) => panic!("{bounds:?} {how:?}: {found:?}"),
        }
        let plan = t.plan_all(&other[0]).await;
        mend(&t, &delete, &whole).await;
        let written = t.naive_rewrite(&plan).await;
        harm(&t, &delete, how).await;
        let outcome = t.commit(&plan, &written, "a1").await;
        mend(&t, &delete, &whole).await;

        assert!(matches!(outcome, Outcome::Landed { .. }), "{bounds:?} {how:?}: {outcome:?}");
        // nothing of it is lost: it is there, and deletes what it did
        assert_eq!((is_live(&t, &delete).await, is_live(&t, &other[0]).await), (true, false), "{bounds:?} {how:?}");
        assert_eq!((t.rows().await, t.rows_by_path().await), before, "{bounds:?} {how:?}");
    }
}

#[tokio::test]
async fn h19_a_damaged_delete_of_another_spec_is_refused_by_name_where_it_may_name_a_file() {
    for (bounds, how) in OPEN.into_iter().flat_map(|bounds| [(bounds, Harm::Zeros), (bounds, Harm::Gone)]) {
        let t = Table::partitioned_by_p().past().create().await;
        let old = two_files(&t, 1).await;
        t.evolve_spec(&[]).await;
        let new = t.append([row(5, "e", 1), row(6, "f", 1)]).await;
        let deletes = [(&old[0], 0), (&new, 1)];
        let delete = t.change().delete_positions_in(&new, &deletes, bounds).commit().await.deletes.remove(0);
        let later = t.change().append_under(0, [row(7, "g", 2)]).commit().await.data.remove(0);
        harm(&t, &delete, how).await;

        let found = refused(&t, &old[0]).await.unwrap();
        assert_eq!(found.refusal, Refusal::Damaged, "{bounds:?}");
        let named = format!("; it is a delete of {}, and may name files of {}", new.partition, old[0].partition);
        assert!(found.detail.starts_with(&delete.path) && found.detail.ends_with(&named), "{found}");
        // it cannot delete rows that are newer
        assert_eq!(refused(&t, &later).await, None, "{bounds:?}");
        // nor those of a partition without files
        t.change().remove(&[&old[0], &old[1]]).commit().await;
        assert_eq!(refused(&t, &old[0]).await, None, "{bounds:?}");
    }
}

#[tokio::test]
async fn h19_a_damaged_delete_of_another_spec_hinders_no_file_that_its_bounds_exclude() {
    let t = Table::partitioned_by_p().past().create().await;
    let old = two_files(&t, 1).await;
    t.evolve_spec(&[]).await;
    let new = two_files(&t, 1).await;
    let deletes = [(&new[0], 0), (&new[1], 1)];
    let delete = t.change().delete_positions_in(&new[0], &deletes, Bounds::Exact).commit().await.deletes.remove(0);
    harm(&t, &delete, Harm::Zeros).await;
    assert_eq!(refused(&t, &old[0]).await, None);
    assert_eq!(refused(&t, &new[0]).await.map(|r| r.refusal), Some(Refusal::Damaged));
}

/// The same delete is asked for by every plan of the table.
#[tokio::test]
async fn h19_a_delete_is_read_for_strays_once_whatever_is_planned() {
    let t = Table::partitioned_by_p().past().create().await;
    let old = two_files(&t, 1).await;
    t.evolve_spec(&[]).await;
    let new = two_files(&t, 1).await;
    let deletes = [(&old[0], 0), (&old[1], 1)];
    let delete = t.change().delete_positions_in(&new[0], &deletes, Bounds::Absent).commit().await.deletes.remove(0);
    let lake = Lake::new([Arc::clone(&t.port)]);
    let load = async || -> IcebergTable { lake.table(&t.name, "main").await.unwrap().unwrap() };
    let stray = async || refusal(scope::read(&load().await, &old[0].partition).await).map(|r| r.refusal);
    assert_eq!(stray().await, Some(Refusal::StrayDelete));
    // from here on only what was read before tells
    harm(&t, &delete, Harm::Gone).await;
    assert_eq!(stray().await, Some(Refusal::StrayDelete));
    // another process, or another table, knows nothing of it
    assert_eq!(refused(&t, &old[0]).await.map(|r| r.refusal), Some(Refusal::Damaged));
}

#[tokio::test]
async fn h19_a_delete_of_another_spec_that_breaks_while_we_rewrite_stops_the_commit() {
    let t = Table::partitioned_by_p().past().create().await;
    let old = two_files(&t, 1).await;
    t.evolve_spec(&[]).await;
    let new = two_files(&t, 1).await;
    let plan = t.plan_all(&old[0]).await;
    let written = t.naive_rewrite(&plan).await;
    let deletes = [(&new[0], 0), (&new[1], 1)];
    let delete = t.change().delete_positions_in(&new[0], &deletes, Bounds::Absent).commit().await.deletes.remove(0);
    harm(&t, &delete, Harm::Zeros).await;
    let head = t.head().await;
    match t.commit_on(&t.load().await, &plan, &written, "a1", &Watch::default()).await {
        Err(Error::Refused(refused)) => assert_eq!(refused.refusal, Refusal::Damaged),
        other => panic!("{other:?}"),
    }
    assert_eq!(t.head().await, head);
}
