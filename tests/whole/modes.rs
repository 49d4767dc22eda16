//! Modes, own expressions, numbers from outside and a budget that follows what is free,
//! from a table's files to its rewrite.

use afterwrite::lake::clock::Clock;
use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::outside::Stat;
use afterwrite::serve::backend::{Backend, Error, Tells};

use super::world::{Process, World, append_small, data_files};
use crate::fixture::Table;

const HOUR: i64 = 3_600_000;

fn acting(more: &str) -> String {
    format!(
        "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///c.db\"\nwarehouse = \"file:///w\"\n[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n{more}"
    )
}

/// Sets the clock to a minute of the next day.
fn at(world: &World, hour: i64, minute: i64) {
    let day = world.clock.now_ms().div_euclid(24 * HOUR) + 1;
    world.clock.pass(day * 24 * HOUR + hour * HOUR + minute * 60_000 - world.clock.now_ms());
}

fn tells(stat: Stat, value: f64) -> Vec<Tells> {
    vec![Tells { partition: String::new(), stats: vec![(stat, value)] }]
}

async fn tell(process: &Process, table: &Table, world: &World, stat: Stat, value: f64, lasts_ms: i64) {
    let until_ms = world.clock.now_ms() + lasts_ms;
    assert_eq!(process.ooda.tell(&table.name, &tells(stat, value), until_ms).await.unwrap().taken, 1);
    process.rounds().await;
}

#[tokio::test]
async fn periodic_work_is_done_once_at_its_time_and_takes_all_tiers() {
    let world = World::new(&acting("mode = \"periodic\"\nschedule = \"0 3 * * *\"\nschedule_length = \"30m\"\ncooldown = \"0s\"\n"));
    at(&world, 2, 0);
    let table = world.table(Table::plain(), "t").await;
    // no tier is full
    append_small(&table, 0, 5, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let tick = world.clock.now_ms().div_euclid(HOUR) * HOUR + HOUR;
    assert_eq!(process.reason(&table).await, Reason::NotDue { until_ms: tick });
    assert_eq!(process.decisions(&table).await[0].eligible_ms, Some(tick));
    process.pass(HOUR).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    // what comes after it in the same half hour waits for the next day
    append_small(&table, 10, 9, 0).await;
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::NotDue { until_ms: tick + 24 * HOUR });
    process.pass(24 * HOUR).await;
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 1));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn queued_work_of_a_trigger_is_done_as_the_trigger_would_do_it() {
    let world = World::new(&acting("mode = \"queued\"\n[budget]\nconcurrent_jobs = 1\n"));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    let jobs = afterwrite::act::Journal::jobs(&*world.journal, afterwrite::act::Query::Latest(1)).await.unwrap();
    assert_eq!(jobs[0].plan.reason, "small-files");
    process.stop().await;
}

#[tokio::test]
async fn quota_that_is_told_makes_work_due_and_no_more_when_it_expires() {
    let world = World::new(&acting("mode = \"quota-pressure\"\nquota_pressure = 0.8\ncooldown = \"0s\"\n"));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 5, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::NoPressure);
    tell(&process, &table, &world, Stat::QuotaUsed, 0.79, HOUR).await;
    assert_eq!((process.reason(&table).await, process.seen.rewrites()), (Reason::NoPressure, 0));
    tell(&process, &table, &world, Stat::QuotaUsed, 0.8, HOUR).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.pass(2 * HOUR).await;
    append_small(&table, 10, 5, 0).await;
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::NoPressure);
    assert_eq!(process.decisions(&table).await[0].traits.quota_used, None);
    process.stop().await;
}

#[tokio::test]
async fn a_tenant_whose_tables_fill_its_quota_has_work_due() {
    let tenant = "[[tenant]]\nname = \"a\"\nmatch = \"lake.**\"\nquota_objects = 40\n";
    let world = World::new(&acting(&format!("mode = \"quota-pressure\"\nquota_pressure = 0.5\n{tenant}")));
    let (table, other) = (world.table(Table::plain(), "t").await, world.table(Table::plain(), "u").await);
    append_small(&table, 0, 5, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::NoPressure);
    // the other table's files bring the tenant's use above the half
    append_small(&other, 0, 6, 0).await;
    process.look_at(&other).await;
    process.rounds().await;
    // whichever comes first may end the pressure
    assert!(process.seen.rewrites() >= 1, "{:?}", process.decisions(&table).await);
    process.stop().await;
}

#[tokio::test]
async fn near_the_end_of_a_quota_nothing_is_added_to_it() {
    let tenant = "[[tenant]]\nname = \"a\"\nmatch = \"lake.**\"\nquota_objects = 40\n";
    let world = World::new(&acting(&format!("quota_limit = 0.5\n{tenant}")));
    let (table, other) = (world.table(Table::plain(), "t").await, world.table(Table::plain(), "u").await);
    append_small(&other, 0, 3, 0).await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&other).await;
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!((process.reason(&table).await, process.seen.rewrites()), (Reason::QuotaUsed, 0));
    tell(&process, &table, &world, Stat::QuotaUsed, 0.49, HOUR).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.stop().await;
}

#[tokio::test]
async fn own_filters_and_triggers_decide_by_numbers_from_outside() {
    let own = "rules = [\"read-often\"]\nqueue_min_reduction = \"off\"\nfilters = [\"cheap\"]\n\
        [trait.waste]\nis = \"small_file_count * read_rate\"\n\
        [filter.cheap]\nholds = \"default(storage_cost, 0) < 10\"\n\
        [trigger.read-often]\nwhen = \"waste >= 50\"\n";
    let world = World::new(&acting(own));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 5, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::Healthy);
    let noted = process.decisions(&table).await.remove(0).checks.into_iter().find(|c| c.name == "read-often.when").unwrap().note;
    assert!(noted.ends_with("`read_rate` is not known here"), "{noted}");
    tell(&process, &table, &world, Stat::StorageCost, 11.0, HOUR).await;
    tell(&process, &table, &world, Stat::ReadRate, 10.0, HOUR).await;
    assert_eq!(process.reason(&table).await, Reason::OwnFilter { name: "cheap".into(), failure: None });
    assert_eq!(process.seen.rewrites(), 0);
    tell(&process, &table, &world, Stat::StorageCost, 9.0, HOUR).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    let jobs = afterwrite::act::Journal::jobs(&*world.journal, afterwrite::act::Query::Latest(1)).await.unwrap();
    assert_eq!(jobs[0].plan.reason, "read-often");
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn a_partition_is_told_of_by_its_name_and_an_unknown_one_is_named() {
    let world = World::new(&acting(""));
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 2, 0).await;
    append_small(&table, 10, 2, 1).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let told = [
        Tells { partition: "1".into(), stats: vec![(Stat::ReadRate, 7.0)] },
        Tells { partition: String::new(), stats: vec![(Stat::ReadRate, 5.0)] },
        Tells { partition: "9".into(), stats: vec![(Stat::ReadRate, 6.0)] },
    ];
    let taken = process.ooda.tell(&table.name, &told, world.clock.now_ms() + HOUR).await.unwrap();
    assert_eq!((taken.taken, taken.unknown), (2, vec!["9".to_owned()]));
    process.rounds().await;
    let rates: Vec<_> = process.decisions(&table).await.into_iter().map(|d| d.traits.read_rate).collect();
    assert_eq!(rates, [Some(5.0), Some(7.0)]);
    let ages: Vec<_> = process.decisions(&table).await.into_iter().map(|d| d.traits.outside.get(Stat::ReadRate).unwrap().age_ms).collect();
    assert!(ages.iter().all(|age| *age > 0), "{ages:?}");
    process.stop().await;

    // another process knows it too, as old as it is
    world.clock.pass(60_000);
    let process = world.start().await;
    process.look_at(&table).await;
    let decisions = process.decisions(&table).await;
    assert_eq!(decisions.iter().map(|d| d.traits.read_rate).collect::<Vec<_>>(), rates);
    assert!(decisions.iter().all(|d| d.traits.outside.get(Stat::ReadRate).unwrap().age_ms >= 60_000));
    process.stop().await;
    world.clock.pass(HOUR);
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.decisions(&table).await[0].traits.read_rate, None);
    let nobody = afterwrite::model::ident::TableName::new("lake", "ns", "nobody");
    assert!(matches!(process.ooda.tell(&nobody, &told[1..2], i64::MAX).await, Err(Error::NotFound(_))));
    process.stop().await;
}

#[tokio::test]
async fn no_job_begins_until_it_is_told_what_is_free_and_none_when_that_has_expired() {
    let world = World::new(&acting("cooldown = \"0s\"\n[budget]\ncapacity_share = 0.5\n"));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.report(&table).await;
    process
        .until("a reason", async || {
            let waiting = process.ooda.list_candidates(1).await.unwrap();
            waiting.iter().any(|c| c.waits_for.starts_with("the budget holds 0"))
        })
        .await;
    let free = |gb, lasts| process.ooda.tell_capacity(gb, world.clock.now_ms() + lasts);
    assert_eq!((free(6.0, 600_000).unwrap(), free(100.0, 600_000).unwrap()), (3.0, 8.0));
    // what comes in fills the budget with time
    process.pass(60_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.pass(HOUR).await;
    append_small(&table, 10, 9, 0).await;
    process.report(&table).await;
    process.until("a candidate", async || !process.ooda.list_candidates(1).await.unwrap().is_empty()).await;
    for _ in 0..3 {
        world.clock.pass(1000);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(process.seen.rewrites(), 1);
    process.stop().await;

    let world = World::new(&acting(""));
    let process = world.start().await;
    assert!(matches!(process.ooda.tell_capacity(1.0, i64::MAX), Err(Error::Unasked(_))));
    process.stop().await;
}

#[tokio::test]
async fn hudis_preset_counts_the_commits_since_the_partitions_own_rewrite() {
    let world = World::new(&acting("preset = \"hudi\"\n"));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 4, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!((process.reason(&table).await, process.seen.rewrites()), (Reason::Healthy, 0));
    append_small(&table, 10, 1, 0).await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.pass(60_000).await;
    append_small(&table, 20, 4, 0).await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 1);
    assert!(!matches!(process.verdict(&table).await, Verdict::Now { .. }));
    process.stop().await;
}
