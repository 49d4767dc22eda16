//! Our commits do not let manifests grow without bound.

use iceberg::spec::ManifestList;

use crate::fixture::{Table, row};

async fn manifests(t: &Table) -> usize {
    let table = t.load().await;
    let head = table.loaded.metadata.current_snapshot().unwrap();
    let bytes = table.loaded.io.new_input(head.manifest_list()).unwrap().read().await.unwrap();
    ManifestList::parse_with_version(&bytes, table.loaded.metadata.format_version()).unwrap().entries().len()
}

#[tokio::test]
async fn h86_two_hundred_replace_commits_leave_few_manifests() {
    let t = Table::partitioned_by_p().property("commit.manifest.min-count-to-merge", "10").create().await;
    let mut most = 0;
    for n in 0..200 {
        let f = t.append([row(n, "a", n % 7)]).await;
        t.compact(&f, &format!("a{n}")).await;
        most = most.max(manifests(&t).await);
    }
    assert!(most <= 12, "{most} manifests at one time");
    assert_eq!(t.rows().await.len(), 200);
}

#[tokio::test]
async fn h86_merging_can_be_turned_off_by_the_table() {
    let t = Table::plain()
        .property("commit.manifest.min-count-to-merge", "2")
        .property("commit.manifest-merge.enabled", "false")
        .create()
        .await;
    let f1 = t.append([row(1, "a", 0)]).await;
    t.append([row(2, "b", 0)]).await;
    let plan = t.plan_files(&[&f1]).await;
    let written = t.naive_rewrite(&plan).await;
    let _ = t.commit(&plan, &written, "a1").await;
    assert_eq!(manifests(&t).await, 3);
}

#[tokio::test]
async fn h86_a_table_whose_rows_are_all_deleted_is_emptied() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    t.change().delete_equal(&["id"], [row(1, "", 0)]).commit().await;
    t.compact(&f1, "a1").await;
    assert_eq!(t.rows().await, Vec::<String>::new());
    let scope = t.scope(&f1.partition).await;
    assert_eq!((scope.files.len(), scope.deletes.len()), (0, 0));
    let f2 = t.append([row(2, "b", 0)]).await;
    t.compact(&f2, "a2").await;
    assert_eq!((t.rows().await, manifests(&t).await), (vec!["2|b".to_owned()], 1));
}

#[tokio::test]
async fn h86_manifests_that_a_commit_writes_anew_become_one() {
    let t = Table::partitioned_by_p().create().await;
    let mut files = Vec::new();
    for n in 0..5 {
        files.push(t.append([row(n, "a", 1)]).await);
        t.append([row(n + 10, "b", 2)]).await;
        t.change().append([row(n + 20, "c", 1)]).append([row(n + 30, "d", 2)]).commit().await;
    }
    let before = (t.rows().await, manifests(&t).await);
    assert_eq!(before.1, 15);
    t.compact(&files[0], "a1").await;
    // ten were changed: of five nothing was left, of five a file of the other partition
    assert_eq!((t.rows().await, manifests(&t).await), (before.0, 5 + 1));
}
