//! Position deletes of the same commit, and bounds that lie.

use crate::fixture::{Bounds, Table, row};

#[tokio::test]
async fn h20_a_position_delete_of_the_same_commit_applies() {
    let t = Table::plain().create().await;
    let made = t.change().append([row(1, "a", 0), row(2, "b", 0)]).delete_own_positions(&[(0, 0)]).commit().await;
    let scope = t.scope(&made.data[0].partition).await;
    assert_eq!(scope.files[0].deletes.len(), 1);
    t.compact(&made.data[0], "a1").await;
    assert_eq!(t.rows().await, ["2|b"]);
}

#[tokio::test]
async fn h20_whatever_the_bounds_say_every_delete_applies_to_the_files_it_names() {
    let odd = [Bounds::Exact, Bounds::Inverted, Bounds::Absent, Bounds::Cut(16), Bounds::Cut(20), Bounds::Cut(64)];
    for bounds in odd {
        let t = Table::plain().past().create().await;
        let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
        let f2 = t.append([row(3, "c", 0), row(4, "d", 0)]).await;
        let f3 = t.append([row(5, "e", 0)]).await;
        t.change().delete_positions_with(&[(&f1, 0), (&f2, 1)], bounds).commit().await;
        let scope = t.scope(&f1.partition).await;
        let counts: Vec<usize> = scope.files.iter().map(|f| f.deletes.len()).collect();
        assert_eq!(counts, [1, 1, 0], "{bounds:?}");
        t.compact(&f3, "a1").await;
        assert_eq!(t.rows().await, ["2|b", "3|c", "5|e"], "{bounds:?}");
    }
}

#[tokio::test]
async fn h20_a_delete_of_one_file_is_joined_by_its_metadata() {
    for bounds in [Bounds::Exact, Bounds::Referenced] {
        let t = Table::plain().create().await;
        let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
        let f2 = t.append([row(3, "c", 0)]).await;
        let delete = t.change().delete_positions_with(&[(&f1, 1)], bounds).commit().await.deletes.remove(0);
        // Not read to know its target: it is gone from the store.
        t.catalog.io().delete(&delete.path).await.unwrap();
        let scope = t.scope(&f2.partition).await;
        let counts: Vec<usize> = scope.files.iter().map(|f| f.deletes.len()).collect();
        assert_eq!(counts, [1, 0], "{bounds:?}");
    }
}
