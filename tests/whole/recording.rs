//! What a process decided is recorded, and comes out the same when it is decided again.

use std::path::Path;
use std::time::Duration;

use afterwrite::act::{JobState, Journal, Query};
use afterwrite::replay::exact::{Exact, Replay};
use afterwrite::replay::lines::Line;
use afterwrite::replay::play::{Setup, play};
use afterwrite::replay::read::{self, Error};
use afterwrite::replay::recorder::Recorder;
use afterwrite::replay::totals::{Recorded, Totals};
use afterwrite::replay::trace::{Trace, Tracer};
use afterwrite::replay::tune::{Objective, tune};

use super::world::{Process, World, append_small, data_files};
use crate::fixture::process::over_rest;
use crate::fixture::{Table, row};

const TIGHT: &str = "[budget]\nconcurrent_jobs = 2\ncommits_per_hour = 4\n[budget.table]\ngb_hours_per_hour = 0.5\n\
    [ranking]\nnormalize = \"rank\"\nread_weights = true\n\
    [catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///x\"\nwarehouse = \"file:///x\"\n\
    [[tenant]]\nname = \"a\"\nmatch = \"lake.**.a\"\ngb_hours_per_hour = 1.0\n\
    [defaults]\nact = true\ntarget_file_size = \"1MiB\"\nqueue_min_reduction = 1\ncooldown = \"5s\"\nquiet_window = \"2s\"\n";

const LAKE: &str = "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///x\"\nwarehouse = \"file:///x\"\n";

fn lines(path: &Path) -> Vec<Line> {
    let mut all = Vec::new();
    read::each(path, |line| all.push(line)).unwrap();
    all
}

fn again(lines: &[Line]) -> Exact {
    let mut replay = Replay::default();
    lines.iter().for_each(|line| replay.line(line));
    replay.end()
}

fn done(lines: &[Line]) -> Totals {
    let mut recorded = Recorded::default();
    lines.iter().for_each(|line| recorded.line(line));
    recorded.end()
}

fn trace(lines: &[Line]) -> Trace {
    let mut tracer = Tracer::default();
    lines.iter().for_each(|line| tracer.line(line));
    tracer.end()
}

async fn recorded(world: &World, path: &Path, most: u64) -> Process {
    let recorder = Recorder::open(path, most, world.settings.ranking, world.settings.prices.clone()).unwrap();
    world.start_recorded(recorder).await
}

/// Lets so much time pass, and what comes of it: work that waits for budget stays waiting.
/// A job under way ends first, since its bound is of this time, not of the machine's.
async fn go(process: &Process, ms: i64) {
    for _ in 0..25 {
        process.clock_passes(ms / 25);
        tokio::time::sleep(Duration::from_millis(4)).await;
        for _ in 0..500 {
            if process.act.leases().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    }
}

/// Two tables written to for a while, by a process that may not do all at once; the files
/// that writers made.
async fn work(world: &World, path: &Path, most: u64) -> u64 {
    let (one, other) = (world.table(Table::partitioned_by_p(), "a").await, world.table(Table::plain(), "b").await);
    let process = recorded(world, path, most).await;
    process.ooda.set_reads(Box::new(|table, _| (table.table == "a").then_some(3.0)));
    let mut made = 0;
    for turn in 0..4 {
        for p in 0..3 {
            append_small(&one, turn * 1000 + p * 100, 3 + p, p).await;
            made += 3 + p as u64;
        }
        append_small(&other, turn * 100, 4, 0).await;
        made += 4;
        process.report(&one).await;
        process.report(&other).await;
        go(&process, 10_000).await;
    }
    other.change().delete_equal(&["id"], [row(0, "v", 0)]).commit().await;
    process.report(&other).await;
    go(&process, 1_000).await;
    for _ in 0..100 {
        go(&process, 600_000).await;
        if process.ooda.is_at_rest() {
            break;
        }
    }
    process.stop().await;
    made
}

#[tokio::test]
async fn a_recording_made_again_gives_the_same_ranking_and_the_same_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/decisions.jsonl");
    let world = World::new(TIGHT);
    work(&world, &path, 1 << 30).await;
    let lines = lines(&path);
    let exact = again(&lines);
    assert_eq!((exact.differing, &exact.differences), (0, &vec![]));
    assert!(exact.decisions > 20 && exact.rounds > 4 && exact.asks > 2, "{exact:?}");

    // what was done is what the journal says
    let jobs = world.journal.jobs(Query::Latest(1000)).await.unwrap();
    let landed: Vec<_> = jobs.iter().filter(|job| job.state == JobState::Committed).map(|job| &job.numbers).collect();
    let totals = done(&lines);
    assert_eq!(totals.jobs, landed.len() as u64);
    assert_eq!(totals.files_dropped, landed.iter().map(|n| n.files_in - n.files_out).sum::<u64>());
    assert_eq!(totals.bytes, landed.iter().map(|n| n.bytes_in).sum::<u64>());
    assert!((totals.gb_hours - jobs.iter().map(|j| j.numbers.gb_hours).sum::<f64>()).abs() < 1e-9);
    // whether a trigger fires before work gets its turn depends on how fast the catalog answers
    assert!(totals.jobs > 2 && totals.decisions.get("queued").is_some_and(|times| *times > 0), "{totals:?}");

    // another process goes on in the same file
    let before = lines.len();
    let table = world.table(Table::plain(), "c").await;
    append_small(&table, 0, 9, 0).await;
    let process = recorded(&world, &path, 1 << 30).await;
    process.report(&table).await;
    go(&process, 7_200_000).await;
    process.stop().await;
    let lines = self::lines(&path);
    let exact = again(&lines);
    assert!(lines.len() > before);
    assert_eq!((exact.differing, &exact.differences), (0, &vec![]));
}

#[tokio::test]
async fn tuning_on_a_recording_does_better_by_its_objective_than_the_defaults_at_no_cost_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let world = World::new(&format!("{LAKE}[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n"));
    // bursts of small commits with long pauses: the defaults compact amid a burst, and leave its rest
    let table = world.table(Table::plain(), "t").await;
    let process = recorded(&world, &path, 1 << 30).await;
    for burst in 0..5 {
        for commit in 0..11 {
            append_small(&table, burst * 1000 + commit * 10, 1, 0).await;
            process.report(&table).await;
            go(&process, 12_000).await;
        }
        go(&process, 7_200_000).await;
    }
    process.stop().await;
    let trace = trace(&lines(&path));
    let now = Setup::of(&trace);
    let files = |t: &Totals| t.mean_files + t.mean_delete_files;
    let mut found = Vec::new();
    for objective in [Objective::Files, Objective::GbHours, Objective::Balanced] {
        let tuned = tune(&trace, &now, objective, 150, 7);
        let (files, gb_hours) = (files(&tuned.best) / files(&tuned.now), tuned.best.gb_hours / tuned.now.gb_hours);
        let better = match objective {
            Objective::Files => files < 0.95 && gb_hours <= 1.0,
            Objective::GbHours => gb_hours < 0.95 && files <= 1.0,
            Objective::Balanced => files + gb_hours < 1.9,
        };
        found.push((objective, better, files, gb_hours, tuned.set));
        // what is found does so when it is played by itself
        assert_eq!(play(&trace, &Setup { policies: tuned.policies, ..now.clone() }), tuned.best);
    }
    assert!(found.iter().all(|(_, better, ..)| *better), "{found:?}");
}

#[tokio::test]
async fn what_was_decided_otherwise_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    work(&World::new(TIGHT), &path, 1 << 30).await;
    let lines = lines(&path);
    let altered = |alter: &dyn Fn(&mut Line) -> bool| {
        let mut altered = lines.clone();
        assert!(altered.iter_mut().any(alter), "nothing to alter");
        again(&altered).differing
    };
    let policy = altered(&|line| match line {
        Line::Table(table) => {
            table.policy.tier_files = 3;
            true
        }
        _ => false,
    });
    let traits = altered(&|line| match line {
        Line::Judged(judged) => {
            judged.traits.delete_ratio += 1e-12;
            true
        }
        _ => false,
    });
    let rank = altered(&|line| match line {
        Line::Round(round) => round.changed.first_mut().is_some_and(|c| {
            c.gain += 1;
            true
        }),
        _ => false,
    });
    let used = altered(&|line| match line {
        Line::Begins(begins) => {
            begins.budget = afterwrite::decide::budget::Budget::new(&Default::default(), begins.at_ms);
            true
        }
        _ => false,
    });
    assert!(policy > 0 && traits == 1 && rank > 0 && used > 0, "{policy} {traits} {rank} {used}");
}

#[tokio::test]
async fn a_recording_stays_within_its_size_and_each_of_its_files_stands_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    work(&World::new(TIGHT), &path, 60_000).await;
    let before = Recorder::before(&path);
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(before.exists() && size(&path) + size(&before) < 120_000, "{} and {}", size(&path), size(&before));
    let both = again(&lines(&path));
    assert_eq!((both.differing, &both.differences), (0, &vec![]));
    std::fs::remove_file(before).unwrap();
    let last = again(&lines(&path));
    assert_eq!((last.differing, &last.differences), (0, &vec![]));
    assert!(last.decisions < both.decisions);
}

#[tokio::test]
async fn a_line_that_a_crash_cut_off_is_left_out_and_any_other_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let world = World::new(TIGHT);
    work(&world, &path, 1 << 30).await;
    let (whole, count) = (std::fs::read_to_string(&path).unwrap(), lines(&path).len());
    std::fs::write(&path, format!("{whole}{{\"judged\":{{\"at")).unwrap();
    assert_eq!(lines(&path).len(), count);
    // the next process writes behind the last whole line
    recorded(&world, &path, 1 << 30).await.stop().await;
    assert_eq!(lines(&path).len(), count + 1);

    let told = |text: String| {
        std::fs::write(&path, text).unwrap();
        read::each(&path, |_| ()).unwrap_err()
    };
    assert!(matches!(told(whole.replacen("\"judged\"", "\"juged\"", 1)), Error::Line { .. }));
    assert!(matches!(told(whole.lines().skip(1).map(|l| format!("{l}\n")).collect()), Error::Line { line: 1, .. }));
    let newer = told(whole.replacen("\"version\":1", "\"version\":2,\"more\":[]", 1));
    assert!(matches!(newer, Error::Version { found: 2, .. }), "{newer}");
    assert!(matches!(told(String::new()), Error::Empty { .. }));
}

#[tokio::test]
async fn what_writers_did_is_told_apart_from_what_we_did() {
    if over_rest().is_some() {
        return; // sockets take time, which the clock moved by hand makes minutes of
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let world = World::new(TIGHT);
    let made = work(&world, &path, 1 << 30).await;
    let lines = lines(&path);
    let trace = trace(&lines);
    let files = |lots: fn(&afterwrite::replay::trace::Change) -> &Vec<afterwrite::replay::trace::Lot>| -> u64 {
        trace.events.iter().flat_map(|e| lots(&e.change)).map(|lot| lot.files).sum()
    };
    assert!(done(&lines).jobs > 2);
    assert_eq!((files(|c| &c.adds), files(|c| &c.removes)), (made, 0));
    assert_eq!(trace.tables.len(), 2);

    // as the model plays it, the same policy comes to as many files
    let now = Setup::of(&trace);
    let (played, were) = (play(&trace, &now), done(&lines));
    assert_eq!(played, play(&trace, &now));
    assert!(played.jobs > 0 && played.files_at_end.abs_diff(were.files_at_end) <= 6, "{played:?} {were:?}");
    let mut idle = now.clone();
    idle.policies.iter_mut().for_each(|policy| policy.act = false);
    let idle = play(&trace, &idle);
    assert_eq!((idle.jobs, idle.files_at_end), (0, made));
}

#[tokio::test]
async fn a_tables_own_snapshots_tell_what_writers_did() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let mut files = append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(data_files(&table).await, 1);
    files.extend(append_small(&table, 100, 3, 1).await);
    table.change().delete_equal(&["id"], [row(100, "v", 1)]).commit().await;
    table.append([row(900, "v", 0)]).await;
    process.stop().await;

    let loaded = table.load().await;
    let traced = afterwrite::replay::trace::Traced {
        ident: loaded.view.ident,
        branch: None,
        name: table.name.clone(),
        tenant: None,
        properties: Default::default(),
        policy: Default::default(),
        created_ms: 0,
    };
    let trace = afterwrite::replay::history::trace(&loaded, traced).await.unwrap();
    let added: u64 = trace.events.iter().flat_map(|e| &e.change.adds).map(|lot| lot.files).sum();
    let removed: u64 = trace.events.iter().flat_map(|e| &e.change.removes).map(|lot| lot.files).sum();
    let deletes: u64 = trace.events.iter().map(|e| e.change.deletes_in.files).sum();
    // our rewrite is no writer's doing
    assert_eq!((added, removed, deletes), (13, 0, 1));
    assert!(trace.events.iter().all(|e| !e.change.is_base) && trace.events.windows(2).all(|w| w[0].at_ms <= w[1].at_ms));
}
