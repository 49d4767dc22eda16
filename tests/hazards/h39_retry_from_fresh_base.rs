//! A retry is made from the table as it is, never from what the first try wrote.

use afterwrite::model::outcome::{Conflict, Outcome};

use crate::fixture::{Table, oracle, row};

#[tokio::test]
async fn h39_a_retry_keeps_the_files_of_the_writer_that_won() {
    let t = Table::plain().property("commit.manifest.min-count-to-merge", "2").past().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    t.append([row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let stale = t.load().await;
    t.append([row(3, "c", 0)]).await;

    let first = t.commit_on(&stale, &plan, &written, "a1", &Default::default()).await.unwrap();
    assert_eq!(first, Outcome::Conflict(Conflict::MetadataMoved));
    let second = t.commit(&plan, &written, "a2").await;

    assert_eq!(second, Outcome::Landed { snapshot_id: t.head().await });
    assert_eq!(t.rows().await, ["1|a", "2|b", "3|c"]);
    let out = written.outputs[0].path.as_str();
    let live = oracle::live(&t.load().await).await;
    let sequence = live.iter().find(|l| l.file.file_path() == out).unwrap().sequence;
    assert_eq!(sequence, plan.sequence_number);
}

#[tokio::test]
async fn h39_a_retry_is_validated_again() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let stale = t.load().await;
    t.change().remove(&[&f1]).append([row(2, "b", 0)]).commit().await;
    let first = t.commit_on(&stale, &plan, &written, "a1", &Default::default()).await.unwrap();
    assert_eq!(first, Outcome::Conflict(Conflict::MetadataMoved));
    let second = t.commit(&plan, &written, "a2").await;
    assert!(matches!(second, Outcome::Conflict(Conflict::InputGone { .. })), "{second:?}");
    assert_eq!(t.rows().await, ["2|b"]);
}
