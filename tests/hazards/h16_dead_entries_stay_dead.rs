//! A manifest that we rewrite may hold tombstones of before.

use iceberg::spec::{ManifestStatus, Operation};

use crate::fixture::{Table, oracle, row};

#[tokio::test]
async fn h16_a_deleted_file_does_not_come_back_when_its_manifest_is_rewritten() {
    let t = Table::plain().create().await;
    let made = t.change().append([row(1, "a", 0)]).append([row(2, "b", 0)]).append([row(3, "c", 0)]).commit().await;
    let [f1, f2, f3] = made.data.as_slice() else { panic!() };
    t.change().remove(&[f1]).operation(Operation::Delete).commit().await;
    let dead = |entries: &[(i32, iceberg::spec::ManifestEntryRef)]| {
        let of_f1 = entries.iter().filter(|(_, e)| e.file_path() == f1.path);
        of_f1.map(|(_, e)| e.status()).collect::<Vec<_>>()
    };
    assert_eq!(dead(&oracle::entries(&t.load().await).await), [ManifestStatus::Deleted]);

    let plan = t.plan_files(&[f2]).await;
    let written = t.naive_rewrite(&plan).await;
    let _ = t.commit(&plan, &written, "a1").await;

    let entries = oracle::entries(&t.load().await).await;
    assert_eq!(dead(&entries), []);
    assert_eq!(t.rows().await, ["2|b", "3|c"]);
    let f3 = entries.iter().find(|(_, e)| e.file_path() == f3.path).unwrap();
    assert_eq!(f3.1.status(), ManifestStatus::Existing);
}

#[tokio::test]
async fn h16_the_fixtures_past_lies_in_the_manifest_of_its_first_file() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let entries = oracle::entries(&t.load().await).await;
    let statuses: Vec<_> = entries.iter().map(|(_, e)| e.status()).collect();
    assert_eq!(statuses, [ManifestStatus::Existing, ManifestStatus::Deleted]);
    t.compact(&f1, "a1").await;
    assert_eq!(t.rows().await, ["1|a"]);
}
