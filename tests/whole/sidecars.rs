//! Several sidecars at the same tables, each with a journal of its own: one that sees
//! that another rewrites in a table leaves the table to it.

use std::sync::Arc;

use afterwrite::act::{JobState, Journal, Query};
use afterwrite::lake::clock::Clock;
use afterwrite::lake::iceberg::catalog::memory::Fault;
use afterwrite::model::claim;
use afterwrite::model::decision::{Reason, Verdict};

use super::world::{ACTING, Process, World, append_small};
use crate::fixture::Table;

const MINUTE: i64 = 60_000;

/// A machine of its own, at the same catalog.
fn beside(world: &World) -> World {
    World {
        catalog: world.catalog.clone(),
        clock: Arc::clone(&world.clock),
        journal: Arc::default(),
        checkpoints: Arc::default(),
        settings: Arc::clone(&world.settings),
        limits: world.limits,
        cache: world.cache,
    }
}

/// More small files than a rule lets lie, in one partition.
async fn grow(table: &Table, from: i64, p: i64) {
    append_small(table, from, 9, p).await;
}

async fn kept_out(process: &Process, table: &Table) -> usize {
    let kept_out = |verdict: &Verdict| matches!(verdict, Verdict::Not { reason: Reason::KeptOut { .. } });
    process.decisions(table).await.iter().filter(|decision| kept_out(&decision.verdict)).count()
}

#[tokio::test]
async fn what_one_sidecar_rewrites_is_left_to_it_and_taken_over_when_it_is_gone() {
    let world = World::new("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n");
    let other = beside(&world);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let first = world.start().await;
    grow(&table, 0, 0).await;
    first.look_at(&table).await;
    assert_eq!(first.seen.rewrites(), 1);

    // the second hears of the table as soon as the first, and in other partitions too
    let second = other.start().await;
    assert_ne!(first.act.instance(), second.act.instance());
    grow(&table, 10, 0).await;
    grow(&table, 20, 1).await;
    second.look_at(&table).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (0, 2));
    first.look_at(&table).await;
    assert_eq!((first.seen.rewrites(), kept_out(&first, &table).await), (3, 0));

    // a commit later the first one is gone
    first.stop().await;
    grow(&table, 30, 1).await;
    second.look_at(&table).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (0, 2));
    second.pass(11 * MINUTE).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (1, 0));

    // and one that comes back leaves it to the second
    let first = world.start().await;
    grow(&table, 40, 0).await;
    first.look_at(&table).await;
    assert_eq!((first.seen.rewrites(), kept_out(&first, &table).await), (0, 2));
    second.look_at(&table).await;
    assert_eq!(second.seen.rewrites(), 2);
    assert_eq!(table.rows().await.len(), 45);
    for (process, world) in [(first, &world), (second, &other)] {
        process.nothing_is_stuck(world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn a_restart_with_the_same_journal_is_the_same_sidecar() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    grow(&table, 0, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.stop().await;
    let process = world.start().await;
    world.clock.pass(MINUTE);
    grow(&table, 10, 0).await;
    process.look_at(&table).await;
    assert_eq!(kept_out(&process, &table).await, 0);
    process.stop().await;
}

#[tokio::test]
async fn two_sidecars_that_hear_of_every_commit_do_no_work_twice() {
    let world = World::new("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n");
    let other = beside(&world);
    let table = world.table(Table::plain(), "t").await;
    let (first, second) = (world.start().await, other.start().await);
    grow(&table, 0, 0).await;
    first.look_at(&table).await;
    for round in 1..6 {
        for n in 0..9 {
            append_small(&table, round * 10 + n, 1, 0).await;
            // by turns, which hears first
            let (one, two) = if n % 2 == 0 { (&first, &second) } else { (&second, &first) };
            one.report(&table).await;
            two.report(&table).await;
        }
        first.rest().await;
        second.rest().await;
    }
    assert!(first.seen.rewrites() >= 5, "{}", first.seen.rewrites());
    assert_eq!((second.seen.rewrites(), table.rows().await.len()), (0, 54));
    first.stop().await;
    second.stop().await;
}

const CLAIMING: &str = "claims = true\n[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n";

/// Who claims the table, and those among them that `now_ms` has left behind.
async fn claims(table: &Table, now_ms: i64) -> (Vec<String>, usize) {
    let properties = table.load().await.view.properties.clone();
    let standing = claim::standing(&properties, now_ms).map(|claim| claim.instance).collect();
    (standing, claim::over(&properties, now_ms).len())
}

/// Both see a table that nobody has rewritten and that nobody claims, and both write a
/// claim at the same moment.
#[tokio::test]
async fn of_two_that_find_a_table_at_the_same_moment_one_rewrites_in_it() {
    let world = World::new(CLAIMING);
    let other = beside(&world);
    let (first, second) = (world.start().await, other.start().await);
    for n in 0..4 {
        let table = world.table(Table::plain(), &format!("t{n}")).await;
        grow(&table, 0, 0).await;
        let both = Arc::new(tokio::sync::Barrier::new(2));
        for process in [&first, &second] {
            *process.seen.meet.lock().unwrap() = Some(Arc::clone(&both));
        }
        let before = first.seen.rewrites() + second.seen.rewrites();
        first.report(&table).await;
        second.report(&table).await;
        first.rest().await;
        second.rest().await;
        assert_eq!(first.seen.rewrites() + second.seen.rewrites() - before, 1);
        let (who, over) = claims(&table, world.clock.now_ms()).await;
        let winner = if who == [first.act.instance()] { &first } else { &second };
        assert_eq!((who, over), (vec![winner.act.instance().to_owned()], 0));
        assert_eq!(table.rows().await.len(), 9);
    }
    for (process, world) in [(first, &world), (second, &other)] {
        process.nothing_is_stuck(world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn a_claim_serves_the_jobs_that_follow_and_is_left_alone_by_all_others() {
    let world = World::new(CLAIMING);
    let other = beside(&world);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let first = world.start().await;
    for p in 0..3 {
        grow(&table, 10 * p, p).await;
    }
    first.look_at(&table).await;
    let rewrites = first.seen.rewrites();
    let commits = world.catalog.counts().commits;
    grow(&table, 40, 0).await;
    first.look_at(&table).await;
    assert_eq!((rewrites, first.seen.rewrites()), (3, 4));
    // nine of the writer, one of the rewrite
    assert_eq!(world.catalog.counts().commits - commits, 10);

    let second = other.start().await;
    grow(&table, 50, 1).await;
    second.look_at(&table).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (0, 3));
    for (process, world) in [(first, &world), (second, &other)] {
        process.nothing_is_stuck(world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn a_claim_of_one_that_is_gone_ends_with_its_time_and_goes_with_the_next() {
    for settings in [CLAIMING, ACTING] {
        let world = World::new(settings);
        let table = world.table(Table::plain(), "t").await;
        grow(&table, 0, 0).await;
        table.set_property(&claim::key("gone"), &(world.clock.now_ms() + 5 * MINUTE).to_string()).await;
        table.set_property(&claim::key("mad"), "tomorrow").await;
        let process = world.start().await;
        process.look_at(&table).await;
        assert_eq!((process.seen.rewrites(), kept_out(&process, &table).await), (0, 1));
        process.pass(6 * MINUTE).await;
        assert_eq!(process.seen.rewrites(), 1);
        let (who, over) = claims(&table, world.clock.now_ms()).await;
        let claims = settings == CLAIMING;
        assert_eq!((who.len(), over), if claims { (1, 0) } else { (0, 2) });
        process.nothing_is_stuck(&world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn whatever_becomes_of_a_claim_no_file_is_left_and_nothing_is_rewritten_without_it() {
    let faults = [
        (Fault::AppliedThenUnknown, 1),
        (Fault::UnknownNotApplied, 1),
        (Fault::Moved, 1),
        (Fault::Unreachable, 0),
        (Fault::Rejected("no leave to alter the table".into()), 0),
    ];
    for (fault, at_once) in faults {
        let world = World::new(CLAIMING);
        let table = world.table(Table::plain(), "t").await;
        grow(&table, 0, 0).await;
        world.catalog.fail_next(fault.clone());
        let process = world.start().await;
        process.look_at(&table).await;
        let (who, _) = claims(&table, world.clock.now_ms()).await;
        let rewrites = process.seen.rewrites();
        assert_eq!((rewrites >= at_once, who.len()), (true, rewrites), "{fault:?}");
        process.pass(30 * MINUTE).await;
        assert_eq!((process.seen.rewrites(), table.rows().await.len()), (1, 9), "{fault:?}");
        // what could not be told at once
        process.act.recover().await.unwrap();
        assert!(world.journal.all_files().is_empty(), "{fault:?}: {:?}", world.journal.all_files());
        process.nothing_is_stuck(&world).await;
        process.stop().await;
    }
}

/// A claim whose answer was lost keeps its own job open, and no other one.
#[tokio::test]
async fn a_claim_that_cannot_be_told_keeps_recovery_from_nothing_else() {
    let world = World::new(CLAIMING);
    let table = world.table(Table::plain(), "t").await;
    grow(&table, 0, 0).await;
    world.catalog.fail_next(Fault::UnknownNotApplied);
    let process = world.start().await;
    let catalog = world.catalog.clone();
    process.seen.marked.lock().unwrap().push_back(Arc::new(move || {
        let catalog = catalog.clone();
        Box::pin(async move { catalog.set_unreachable(true) })
    }));
    process.look_at(&table).await;
    let [job] = world.journal.jobs(Query::Unfinished).await.unwrap().try_into().unwrap();
    assert_eq!(job.state, JobState::Requested);
    let recovered = process.act.recover().await.unwrap();
    assert_eq!((recovered.open, recovered.ended), (vec![job.id.clone()], vec![]));
    world.catalog.set_unreachable(false);
    // the next commit takes the place of the claim
    append_small(&table, 100, 1, 0).await;
    assert_eq!(process.act.recover().await.unwrap().ended, vec![job.id]);
    process.rest().await;
    process.nothing_is_stuck(&world).await;
    assert_eq!(table.rows().await.len(), 10);
    process.stop().await;
}

/// Over a catalog that compares heads both claims of two that write at once may stand.
#[tokio::test]
async fn a_claim_that_is_not_alone_is_taken_back_and_tried_again() {
    for (other_goes, rewrites) in [(true, 1), (false, 0)] {
        let world = World::new(CLAIMING);
        let table = Arc::new(world.table(Table::plain(), "t").await);
        grow(&table, 0, 0).await;
        let process = world.start().await;
        let until = (world.clock.now_ms() + 60 * MINUTE).to_string();
        let over = "0".to_owned();
        // beside our claim, and again after ours was taken back
        let values = if other_goes { vec![until, over] } else { vec![until] };
        for value in values {
            let table = Arc::clone(&table);
            process.seen.marked.lock().unwrap().push_back(Arc::new(move || {
                let (table, value) = (Arc::clone(&table), value.clone());
                Box::pin(async move { table.set_property(&claim::key("other"), &value).await })
            }));
        }
        process.look_at(&table).await;
        let (who, _) = claims(&table, world.clock.now_ms()).await;
        let holder = if other_goes { process.act.instance() } else { "other" };
        assert_eq!((process.seen.rewrites(), who), (rewrites, vec![holder.to_owned()]));
        process.pass(MINUTE).await;
        assert_eq!((process.seen.rewrites(), kept_out(&process, &table).await), (rewrites, 1 - rewrites));
        process.nothing_is_stuck(&world).await;
        process.stop().await;
    }
}
