//! Commands on another branch than `main`.

use serde_json::json;

use super::{NAME, small};
use crate::fixture::process::Place;
use crate::fixture::{Table, oracle, row};

/// A table with a branch of the same files and two more, that is looked after.
async fn given(place: &Place) -> Table {
    let table = small(place).await;
    table.set_branch("audit", table.head().await).await;
    for id in [10, 11] {
        table.change().branch("audit").append([row(id, "x", 7)]).commit().await;
    }
    table
}

async fn audit(table: &Table) -> (i64, Vec<String>) {
    let loaded = table.load_branch("audit").await;
    (loaded.view.head.unwrap(), oracle::rows(&loaded).await)
}

#[tokio::test]
async fn a_branch_that_is_named_is_compacted_listed_and_undone_by_hand_and_main_stays() {
    let place = Place::new("");
    let table = given(&place).await;
    let (before, main) = (audit(&table).await, (table.head().await, table.rows().await));
    let on = |command| [command, NAME, "--branch", "audit", "--json"];
    for command in ["plan", "compact", "inspect"] {
        let refused = place.run(&on(command)).await.expect(3);
        assert!(refused.out.contains("`audit` is another branch than `main`; name it in `branches`"), "{}", refused.out);
    }
    assert_eq!(audit(&table).await, before);

    table.set_property("afterwrite.branches", "main,audit").await;
    assert_eq!(place.run(&on("inspect")).await.expect(0).lines()[0]["reference"], json!("audit"));
    assert_eq!(place.run(&on("plan")).await.expect(0).each("branch"), ["audit", "audit"]);
    assert_eq!(place.run(&on("plan")).await.expect(0).each("files_in"), [json!(5), json!(0)]);
    let compacted = place.run(&on("compact")).await.expect(0);
    assert_eq!((compacted.each("branch"), compacted.each("result")), (vec![json!("audit"); 2], vec![json!("committed"), json!("left")]));
    let after = audit(&table).await;
    assert_eq!((after.1, after.0 != before.0), (before.1.clone(), true));
    assert_eq!((table.head().await, table.rows().await), main);

    // main's own job beside it
    place.run(&["compact", NAME]).await.expect(0);
    assert_eq!(place.run(&["jobs", "--json"]).await.expect(0).each("branch"), ["main", "audit"]);
    let jobs = place.run(&["jobs", "--branch", "audit", "--json"]).await.expect(0);
    assert_eq!(jobs.each("branch"), ["audit"]);
    let text = place.run(&["jobs"]).await.expect(0).out;
    assert!(text.contains("lake.ns.t@audit"), "{text}");
    let job = jobs.each("job")[0].as_str().unwrap().to_owned();
    let head = table.head().await;
    let undone = place.run(&["undo", &job, "--json"]).await.expect(0);
    let expected = json!({ "job": job, "table": NAME, "branch": "audit", "partition": "p=7", "undone": true, "kept": true });
    assert_eq!(undone.lines(), [expected]);
    assert_eq!((audit(&table).await, table.head().await), (before, head));
}

#[tokio::test]
async fn a_policy_is_tuned_on_the_snapshots_of_the_branch_that_is_named() {
    let place = Place::new("");
    given(&place).await;
    let on = |branch| ["tune", "--table", NAME, "--branch", branch, "--trials", "5"];
    let told = place.run(&on("audit")).await.expect(0).out;
    let main = place.run(&on("main")).await.expect(0).out;
    let changes = |text: &str| text.lines().nth(1).and_then(|line| line.split(", ").nth(1)).map(str::to_owned);
    assert!(
        told.contains("on the snapshots of lake.ns.t on audit,") && main.contains("on the snapshots of lake.ns.t on main,"),
        "{told}{main}"
    );
    assert_eq!((changes(&main), changes(&told)), (Some("5 changes of 1 table.".into()), Some("7 changes of 1 table.".into())));
    let nowhere = place.run(&on("nowhere")).await.expect(7);
    assert!(nowhere.err.contains("nowhere"), "{}", nowhere.err);
    place.run(&["tune", "--recording", "r.jsonl", "--branch", "audit"]).await.expect(2);
}

#[tokio::test]
async fn a_branchs_commit_that_a_crash_left_is_found_or_cleared_on_its_branch() {
    for (point, lands) in [("manifests-written", false), ("catalog-answered", true), ("outcome-journaled", true)] {
        let place = Place::new("[defaults]\nbranches = [\"audit\", \"main\"]\n");
        let table = given(&place).await;
        let (before, main) = (audit(&table).await, (table.head().await, table.rows().await));
        place.run_killed_at(point, &["compact", NAME, "--branch", "audit"]).await;
        let left = audit(&table).await;
        assert_eq!((left.0 != before.0, &left.1), (lands, &before.1), "{point}");
        let again = place.run(&["compact", NAME, "--branch", "audit", "--json"]).await.expect(0);
        assert_eq!(again.each("result"), if lands { ["left", "left"] } else { ["committed", "left"] }, "{point}");
        assert_eq!(audit(&table).await.1, before.1);
        assert_eq!((table.head().await, table.rows().await), main);
        place.assert_settled().await;
    }
}
