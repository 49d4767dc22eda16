//! Position deletes that name a file of another partition, or spell its path
//! otherwise: some engines apply them and some do not. A partition with such a file
//! is refused by name, and the delete stays as long as its file is live, so that no
//! engine sees a row come or go.

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::scope;
use afterwrite::model::outcome::Outcome;
use afterwrite::model::refusal::{Refusal, Refused};
use iceberg::spec::Transform;

use crate::fixture::{Bounds, File, Table, Watch, oracle, row};

/// Every way in which metadata names the one data file of a delete.
const NAMED: [Bounds; 3] = [Bounds::Exact, Bounds::Referenced, Bounds::FileColumn];

async fn refused(t: &Table, file: &File) -> Option<Refused> {
    match scope::read(&t.load().await, &file.partition).await {
        Err(Error::Refused(refused)) => Some(refused),
        Ok(_) => None,
        other => panic!("{other:?}"),
    }
}

async fn is_live(t: &Table, file: &File) -> bool {
    oracle::live(&t.load().await).await.iter().any(|l| l.file.file_path() == file.path)
}

/// A file of spec 0 in partition 1, and one of the later, unpartitioned spec.
async fn evolved() -> (Table, File, File) {
    let t = Table::partitioned_by_p().past().create().await;
    let old = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    t.evolve_spec(&[]).await;
    let new = t.append([row(3, "c", 1), row(4, "d", 1)]).await;
    (t, old, new)
}

async fn stray(t: &Table, like: &File, of: &File, bounds: Bounds) -> File {
    t.change().delete_positions_in(like, &[(of, 0)], bounds).commit().await.deletes.remove(0)
}

#[tokio::test]
async fn h19_a_file_that_a_delete_of_another_spec_names_is_refused_by_name() {
    for bounds in NAMED {
        let (t, old, new) = evolved().await;
        assert_eq!(refused(&t, &old).await, None);
        let delete = stray(&t, &new, &old, bounds).await;
        let found = refused(&t, &old).await.unwrap();
        assert_eq!(found.refusal, Refusal::StrayDelete, "{bounds:?}");
        assert_eq!(found.detail, format!("{} of {} names {} of {}", delete.path, new.partition, old.path, old.partition));
        // readers differ, which is why
        assert_eq!((t.rows().await.len(), t.rows_by_path().await.len()), (4, 3));
    }
}

#[tokio::test]
async fn h19_a_delete_stays_while_the_file_that_it_names_is_live_under_another_spec() {
    for bounds in [Bounds::Exact, Bounds::Referenced, Bounds::FileColumn, Bounds::Absent] {
        let (t, old, new) = evolved().await;
        let delete = stray(&t, &new, &old, bounds).await;
        // newer than the delete, so that by number it covers nothing of its partition
        let later = t.append([row(5, "e", 1)]).await;
        let before = (t.rows().await, t.rows_by_path().await);
        t.compact(&new, "a1").await;
        assert_eq!((is_live(&t, &delete).await, t.rows().await, t.rows_by_path().await), (true, before.0, before.1), "{bounds:?}");
        assert!(!is_live(&t, &later).await);
        // once its file is gone it covers nothing anywhere
        t.change().remove(&[&old]).append([row(1, "a", 1), row(2, "b", 1)]).commit().await;
        t.compact(&new, "a2").await;
        assert_eq!((is_live(&t, &delete).await, t.rows().await.len()), (false, 5), "{bounds:?}");
    }
}

#[tokio::test]
async fn h19_a_delete_of_several_files_stays_while_one_of_them_is_live_under_another_spec() {
    let t = Table::partitioned_by_p().past().create().await;
    let old = [t.append([row(1, "a", 1), row(2, "b", 1)]).await, t.append([row(3, "c", 1), row(4, "d", 1)]).await];
    t.evolve_spec(&[]).await;
    let new = t.append([row(5, "e", 1), row(6, "f", 1)]).await;
    let deletes = [(&old[0], 0), (&old[1], 1)];
    let delete = t.change().delete_positions_in(&new, &deletes, Bounds::Exact).commit().await.deletes.remove(0);
    for (gone, attempt) in old.iter().zip(["a1", "a2"]) {
        t.append([row(7, "g", 1)]).await;
        let before = (t.rows().await, t.rows_by_path().await);
        t.compact(&new, attempt).await;
        assert_eq!((is_live(&t, &delete).await, t.rows().await, t.rows_by_path().await), (true, before.0, before.1), "{attempt}");
        t.change().remove(&[gone]).commit().await;
    }
    t.append([row(8, "h", 1)]).await;
    t.compact(&new, "a3").await;
    assert!(!is_live(&t, &delete).await);
}

/// In every way in which bounds tell of several files, or do not.
#[tokio::test]
async fn h19_a_file_that_only_the_rows_of_a_delete_of_another_spec_name_is_refused_by_name() {
    for bounds in [Bounds::Exact, Bounds::Absent, Bounds::Inverted, Bounds::Cut(16), Bounds::Cut(30), Bounds::FileColumn] {
        let t = Table::partitioned_by_p().past().create().await;
        let old = [t.append([row(1, "a", 1), row(2, "b", 1)]).await, t.append([row(3, "c", 1), row(4, "d", 1)]).await];
        t.evolve_spec(&[]).await;
        let new = t.append([row(5, "e", 1), row(6, "f", 1)]).await;
        let deletes = [(&old[0], 0), (&old[1], 1)];
        let delete = t.change().delete_positions_in(&new, &deletes, bounds).commit().await.deletes.remove(0);
        let found = refused(&t, &old[0]).await.unwrap_or_else(|| panic!("{bounds:?}"));
        assert_eq!(found.refusal, Refusal::StrayDelete, "{bounds:?}");
        assert_eq!(found.detail, format!("{} of {} names {} of {}", delete.path, new.partition, old[0].path, old[0].partition));
        // a file that is newer than the delete, and one that it does not name, are free
        t.change().remove(&[&old[0], &old[1]]).commit().await;
        assert_eq!(refused(&t, &old[0]).await, None, "{bounds:?}");
    }
}

#[tokio::test]
async fn h19_deletes_of_several_files_in_their_own_partitions_hinder_no_other() {
    for bounds in [Bounds::Exact, Bounds::Absent, Bounds::Cut(16)] {
        let t = Table::partitioned_by_p().create().await;
        let mut of_each = vec![];
        for p in [1, 2] {
            let files = [t.append([row(1, "a", p), row(2, "b", p)]).await, t.append([row(3, "c", p), row(4, "d", p)]).await];
            t.change().delete_positions_in(&files[0], &[(&files[0], 0), (&files[1], 1)], bounds).commit().await;
            of_each.push(files);
        }
        for files in &of_each {
            assert_eq!(refused(&t, &files[0]).await, None, "{bounds:?}");
            t.compact(&files[0], &files[0].path).await;
        }
        assert_eq!(t.rows().await, ["2|b|1", "2|b|2", "3|c|1", "3|c|2"], "{bounds:?}");
    }
}

#[tokio::test]
async fn h19_a_delete_older_than_its_whole_partition_stays_while_its_file_is_live_elsewhere() {
    for bounds in [Bounds::Exact, Bounds::Absent] {
        let t = Table::partitioned_by_p().create().await;
        let old = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
        t.evolve_spec(&[]).await;
        let like = t.append([row(3, "c", 1)]).await;
        let delete = stray(&t, &like, &old, bounds).await;
        t.change().remove(&[&like]).commit().await;
        let new = t.append([row(4, "d", 1)]).await;
        let before = t.rows_by_path().await;
        t.compact(&new, "a1").await;
        assert_eq!((is_live(&t, &delete).await, t.rows_by_path().await), (true, before), "{bounds:?}");
    }
}

#[tokio::test]
async fn h19_a_delete_that_another_compactor_left_behind_still_goes() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let f2 = t.append([row(3, "c", 0)]).await;
    let delete = stray(&t, &f1, &f1, Bounds::Exact).await;
    t.change().remove(&[&f1]).append([row(2, "b", 0)]).commit().await;
    t.compact(&f2, "a1").await;
    assert_eq!((is_live(&t, &delete).await, t.rows().await), (false, vec!["2|b".to_owned(), "3|c".to_owned()]));
}

#[tokio::test]
async fn h19_another_tuple_of_the_same_spec_is_another_partition() {
    let t = Table::partitioned_by_p().create().await;
    let p = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    let q = t.append([row(3, "c", 2)]).await;
    let delete = stray(&t, &q, &p, Bounds::Exact).await;
    assert_eq!(refused(&t, &p).await.map(|r| r.refusal), Some(Refusal::StrayDelete));
    t.compact(&q, "a1").await;
    assert_eq!((is_live(&t, &delete).await, t.rows_by_path().await.len()), (true, 2));
}

#[tokio::test]
async fn h19_an_equal_tuple_of_another_spec_is_another_partition() {
    let t = Table::partitioned_by_p().create().await;
    let old = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    t.evolve_spec(&[("p", "p_again", Transform::Identity)]).await;
    let new = t.append([row(3, "c", 1)]).await;
    assert_eq!(old.partition.tuple, new.partition.tuple);
    stray(&t, &new, &old, Bounds::Exact).await;
    assert_eq!(refused(&t, &old).await.map(|r| r.refusal), Some(Refusal::StrayDelete));
    assert_eq!(refused(&t, &new).await, None);
}

#[tokio::test]
async fn h19_a_stray_delete_that_lands_while_we_rewrite_stops_the_commit() {
    for bounds in NAMED {
        let (t, old, new) = evolved().await;
        let plan = t.plan_all(&old).await;
        let written = t.naive_rewrite(&plan).await;
        stray(&t, &new, &old, bounds).await;
        let (head, rows, by_path) = (t.head().await, t.rows().await, t.rows_by_path().await);
        match t.commit_on(&t.load().await, &plan, &written, "a1", &Watch::default()).await {
            Err(Error::Refused(refused)) => assert_eq!(refused.refusal, Refusal::StrayDelete),
            other => panic!("{other:?}"),
        }
        assert_eq!((t.head().await, t.rows().await, t.rows_by_path().await), (head, rows, by_path));
    }
}

#[tokio::test]
async fn h19_a_stray_delete_that_was_rolled_back_hinders_nothing() {
    let (t, old, new) = evolved().await;
    let before = t.head().await;
    stray(&t, &new, &old, Bounds::Exact).await;
    assert!(refused(&t, &old).await.is_some());
    t.set_main(before).await;
    let plan = t.plan_all(&old).await;
    let written = t.naive_rewrite(&plan).await;
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    assert_eq!((t.rows().await.len(), t.rows_by_path().await.len()), (4, 4));
}

#[tokio::test]
async fn h20_a_path_in_another_spelling_is_refused_by_name_and_its_delete_stays() {
    for bounds in [Bounds::Exact, Bounds::Referenced, Bounds::Absent] {
        let t = Table::plain().create().await;
        let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
        let spelled = File { path: f1.path.replacen("memory:/", "memory:///", 1), ..f1.clone() };
        let delete = stray(&t, &f1, &spelled, bounds).await;
        let found = refused(&t, &f1).await.unwrap();
        assert_eq!(found.refusal, Refusal::StrayDelete, "{bounds:?}");
        assert_eq!(found.detail, format!("{} names {}, which the table spells {}", delete.path, spelled.path, f1.path));
    }
}
