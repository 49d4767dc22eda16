//! H65: maintenance always works on `main`, or on a branch that nobody asked it to touch.

use std::collections::BTreeMap;

use afterwrite::serve::backend::Backend;
use iceberg::spec::Operation;

use crate::fixture::{Table, oracle};
use crate::whole::world::{ACTING, Process, World, append_small, event, rows};

/// Head and rows of each branch.
async fn seen(table: &Table) -> BTreeMap<&'static str, (Option<i64>, Vec<String>)> {
    let mut seen = BTreeMap::new();
    for branch in ["main", "audit", "dev"] {
        let loaded = table.load_branch(branch).await;
        seen.insert(branch, (loaded.view.head, oracle::rows(&loaded).await));
    }
    seen
}

/// Live files of a branch.
async fn files(table: &Table, branch: &str) -> usize {
    oracle::live(&table.load_branch(branch).await).await.len()
}

/// Nine small files on a branch, one a commit.
async fn write_small(table: &Table, branch: &str, from: i64) {
    for id in from..from + 9 {
        table.change().branch(branch).append(rows([id], 0)).commit().await;
    }
}

/// Lets the table be looked at as it stands, and all that follows be done.
async fn look(process: &Process, table: &Table) {
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
}

#[tokio::test]
async fn h65_a_branch_is_compacted_only_when_it_is_named_and_no_other_is_touched_by_it() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    // given small files on three branches that share the first of them
    table.append(rows([0], 0)).await;
    for branch in ["audit", "dev"] {
        table.set_branch(branch, table.head().await).await;
        write_small(&table, branch, 100).await;
    }
    let process = world.start().await;
    look(&process, &table).await;
    // when nobody names them, then nothing is written to them
    assert_eq!(process.seen.rewrites(), 0);
    let before = seen(&table).await;
    let unnamed = process.ooda.why_on(&table.name, "audit", None).await.unwrap_err();
    assert!(unnamed.to_string().contains("branch `audit` is not looked after: only `main` is"), "{unnamed}");

    // when one is named, then it alone is compacted, and holds the same rows
    table.set_property("afterwrite.branches", "main, audit").await;
    look(&process, &table).await;
    let after = seen(&table).await;
    assert_eq!((process.seen.rewrites(), files(&table, "audit").await), (1, 1));
    assert_eq!((&after["main"], &after["dev"], &after["audit"].1), (&before["main"], &before["dev"], &before["audit"].1));
    let loaded = table.load_branch("audit").await;
    let head = &loaded.view.snapshots[&loaded.view.head.unwrap()];
    assert_eq!((head.parent, head.operation), (before["audit"].0, afterwrite::model::table::Operation::Replace));
    assert_eq!(head.sequence_number, loaded.view.last_sequence_number);

    // and back: what main's writers do has main compacted, and not the branch
    append_small(&table, 200, 9, 0).await;
    let before = seen(&table).await;
    look(&process, &table).await;
    let after = seen(&table).await;
    assert_eq!((process.seen.rewrites(), files(&table, "main").await), (2, 1));
    assert_eq!((&after["audit"], &after["dev"], &after["main"].1), (&before["audit"], &before["dev"], &before["main"].1));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn h65_files_that_two_branches_share_are_replaced_in_each_by_itself() {
    for spec in [Table::plain(), Table::plain().v3()] {
        let world = World::new(&format!("{ACTING}branches = [\"main\", \"audit\"]\n"));
        let table = world.table(spec, "t").await;
        append_small(&table, 0, 9, 0).await;
        table.set_branch("audit", table.head().await).await;
        // a row is deleted on the branch alone
        table.change().branch("audit").delete_equal(&["id"], rows([3], 0)).commit().await;
        let rows_of = async |branch: &str| oracle::rows(&table.load_branch(branch).await).await;
        let before = (rows_of("main").await, rows_of("audit").await);
        assert_eq!((before.0.len(), before.1.len()), (9, 8));
        let process = world.start().await;
        look(&process, &table).await;
        assert_eq!((process.seen.rewrites(), files(&table, "main").await, files(&table, "audit").await), (2, 1, 1));
        assert_eq!((rows_of("main").await, rows_of("audit").await), before);
        process.nothing_is_stuck(&world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn h65_a_tag_is_never_written_and_a_branch_is_found_when_it_is_there_and_forgotten_when_it_is_not() {
    let world = World::new(&format!("{ACTING}branches = [\"audit\", \"main\"]\n"));
    let table = world.table(Table::plain(), "t").await;
    table.append(rows([0], 0)).await;
    let process = world.start().await;
    look(&process, &table).await;
    let absent = process.ooda.why_on(&table.name, "audit", None).await.unwrap_err().to_string();
    assert!(absent.contains("there is no branch `audit`") && absent.contains("as soon as it is there"), "{absent}");
    assert_eq!(process.ooda.why(&table.name, None).await.unwrap().len(), 1);

    // given a tag of that name
    table.set_tag("audit", table.head().await).await;
    look(&process, &table).await;
    let tag = process.ooda.why_on(&table.name, "audit", None).await.unwrap_err().to_string();
    assert!(tag.contains("`audit` is a tag"), "{tag}");

    // then a branch
    table.remove_ref("audit").await;
    table.set_branch("audit", table.head().await).await;
    write_small(&table, "audit", 100).await;
    look(&process, &table).await;
    assert_eq!((process.seen.rewrites(), files(&table, "audit").await), (1, 1));
    let told = process.ooda.why_on(&table.name, "audit", None).await.unwrap();
    assert_eq!((&*told[0].branch, told[0].last_job.as_ref().unwrap().state.as_str()), ("audit", "committed"));
    assert_eq!(process.ooda.why(&table.name, None).await.unwrap()[0].last_job, None);

    // and none any more, while a rewrite of it is under way
    write_small(&table, "audit", 200).await;
    process.clock_passes(120_000);
    let gate = process.seen.gate.lock().await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.until("a rewrite", async || process.seen.rewrites() == 2).await;
    table.remove_ref("audit").await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.until("the look", async || process.ooda.get_layout(&table.name, "audit").await.is_err()).await;
    drop(gate);
    process.rest().await;
    let key = afterwrite::orient::Key::new(table.load().await.view.ident, "audit");
    assert!(process.orient.state(&key).await.is_none());
    let view = table.load_branch("audit").await.view;
    assert_eq!((view.head, view.refused.len()), (None, 1));
    process.nothing_is_stuck(&world).await;

    // one that comes back under the name is another one
    table.set_branch("audit", table.head().await).await;
    look(&process, &table).await;
    assert_eq!(process.ooda.get_layout(&table.name, "audit").await.unwrap().traits.data_files, 1);
    assert_eq!(process.seen.rewrites(), 2);
    process.stop().await;
}

#[tokio::test]
async fn h65_a_conflict_on_one_branch_is_none_on_another() {
    let world = World::new(&format!("{ACTING}branches = [\"main\", \"audit\"]\n"));
    let table = world.table(Table::plain(), "t").await;
    let shared = append_small(&table, 0, 9, 0).await;
    table.set_branch("audit", table.head().await).await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("both rewrites", async || process.seen.rewrites() == 2).await;
    // when a writer takes an input of both away, on main alone
    table.change().remove(&[&shared[0]]).operation(Operation::Delete).commit().await;
    let before = (table.rows().await, oracle::rows(&table.load_branch("audit").await).await);
    drop(gate);
    look(&process, &table).await;
    // then that of the branch lands, and that of main is made anew from what is left
    assert_eq!((files(&table, "main").await, files(&table, "audit").await), (1, 1));
    assert_eq!((table.rows().await, oracle::rows(&table.load_branch("audit").await).await), before);
    assert_eq!((before.0.len(), before.1.len()), (8, 9));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}
