//! Both journals keep one state machine.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::act::attempt::{self, Loss};
use crate::act::job::{Kind, REQUEST};
use crate::model::ident::TableName;
use crate::model::outcome::{Outcome, Resolution};
use crate::model::partition::{PartitionKey, Value};
use crate::model::plan::{Bound, LiveFile, Plan};

/// A plan on table `n` of files of 10 bytes.
pub(crate) fn plan(n: u128, files: &[&str]) -> Plan {
    let file = |path: &&str| LiveFile {
        path: Arc::from(*path),
        bytes: 10,
        records: 2,
        data_sequence: 1,
        sort_order_id: None,
        first_row_id: None,
        deletes: vec![],
    };
    Plan {
        table: TableIdent::iceberg(Uuid::from_u128(n)),
        name: TableName::new("lake", "sales", &format!("t{n}")),
        reference: "main".into(),
        snapshot_id: i64::MAX,
        sequence_number: 4,
        scope: PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Double(f64::NAN.to_bits())), None]) },
        reason: "small-files".into(),
        inputs: files.iter().map(file).collect(),
        deletes: vec![],
        target_file_size: 100,
        bound: Bound { gb_hours: 0.1, millis: 1_000, memory: u64::MAX },
    }
}

pub(crate) fn job(id: &str) -> Job {
    Job {
        id: JobId(id.into()),
        kind: Kind::Rewrite,
        plan: plan(1, &["a", "b"]),
        state: JobState::Requested,
        holder: "h".into(),
        requested_ms: 5,
        changed_ms: 5,
        cancel: false,
        note: "requested".into(),
        numbers: Numbers { bytes_in: 20, ..Numbers::default() },
    }
}

pub(super) fn holder(id: &str, role: Role) -> Holder {
    Holder { id: id.into(), role, host: "here".into(), pid: 7, beat_ms: 1_000 }
}

async fn sqlite(dir: &Path) -> SqliteJournal {
    SqliteJournal::open(&dir.join("journal.db")).await.unwrap()
}

#[tokio::test]
async fn what_must_outlast_a_power_cut_is_synced_and_takes_what_was_before_along() {
    let dir = tempfile::tempdir().unwrap();
    let pools = schema::open(&dir.path().join("journal.db")).await.unwrap();
    let setting = async |pool: &sqlx::SqlitePool, name: &'static str| -> String {
        use sqlx::Row;
        let row = sqlx::query(name).fetch_one(pool).await.unwrap();
        row.try_get::<i64, _>(0).map(|n| n.to_string()).or_else(|_| row.try_get::<String, _>(0)).unwrap()
    };
    // one write-ahead log: FULL (2) syncs all of it at each commit, NORMAL (1) when it is folded in
    assert_eq!(
        (setting(&pools.synced, "PRAGMA synchronous").await, setting(&pools.passing, "PRAGMA synchronous").await),
        ("2".into(), "1".into())
    );
    for pool in [&pools.synced, &pools.passing] {
        assert_eq!(setting(pool, "PRAGMA journal_mode").await, "wal");
    }
}

#[tokio::test]
async fn a_plan_of_any_cost_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let journal = sqlite(dir.path()).await;
    for n in 1..=200u32 {
        let mut job = job(&format!("j{n}"));
        job.plan.bound.gb_hours = 0.001 + f64::from(n) * 20_205_210.0 / 180e9;
        assert_eq!(journal.request(&job, &[]).await.map_err(|e| e.to_string()), Ok(true), "{}", job.plan.bound.gb_hours);
    }
}

#[tokio::test]
async fn what_was_written_is_read_back_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let journal = sqlite(dir.path()).await;
    assert_eq!(journal.instance("first").await.unwrap(), "first");
    journal.request(&job("j"), &[]).await.unwrap();
    let begun = Attempt { id: attempt::id(&JobId("j".into()), 0), job: JobId("j".into()), number: 0, state: AttemptState::Writing };
    journal.begin("h", &begun).await.unwrap();
    journal.name_file(&begun.id, "s3://b/é ü.parquet").await.unwrap();
    let pause = Pause { table: Some(plan(1, &[]).table), label: "lake.sales.t1".into(), at_ms: 3 };
    journal.pause(&pause).await.unwrap();
    journal.put_blob("layout", "k", &Blob { version: 3, bytes: vec![0, 255, 7] }).await.unwrap();
    for (at, record) in [(0, [1, 0]), (1, [2, 0]), (1, [3, 0])] {
        journal.log_blob("layout", "k", at, &record).await.unwrap();
    }
    journal.close().await;

    let journal = sqlite(dir.path()).await;
    assert_eq!(journal.instance("second").await.unwrap(), "first");
    assert_eq!(journal.job(&JobId("j".into())).await.unwrap(), Some(job("j")));
    assert_eq!(journal.attempts(&JobId("j".into())).await.unwrap(), vec![begun.clone()]);
    assert_eq!(journal.files(&begun.id).await.unwrap(), vec!["s3://b/é ü.parquet"]);
    let pauses = journal.pauses().await.unwrap();
    assert!(pauses.holds(&plan(1, &[]).table) && !pauses.holds(&plan(2, &[]).table));
    assert_eq!(journal.blob("layout", "k").await.unwrap(), Some(Blob { version: 3, bytes: vec![0, 255, 7] }));
    assert_eq!(journal.blob_log("layout", "k").await.unwrap(), [[1, 0], [3, 0]]);
    assert!(journal.resume(Some(&plan(1, &[]).table)).await.unwrap());
    assert!(!journal.resume(None).await.unwrap());
}

#[tokio::test]
async fn both_journals_tell_what_rewrites_cost_and_the_bound_where_nobody_noted_it() {
    let dir = tempfile::tempdir().unwrap();
    let journals: [Box<dyn Journal>; 2] = [Box::new(sqlite(dir.path()).await), Box::new(MemoryJournal::default())];
    for journal in journals {
        let of = |id: &str, files: &[&str], kind: Kind, at_ms: i64| {
            let mut made = Job { plan: plan(1, files), kind, requested_ms: at_ms, changed_ms: at_ms, ..job(id) };
            made.plan.bound.gb_hours = 2.0;
            made
        };
        let undo = Kind::Undo { of: JobId("a".into()), snapshot_id: 1 };
        for made in [of("a", &["f1"], Kind::Rewrite, 10), of("b", &["f2"], Kind::Rewrite, 20), of("c", &["f3"], undo, 30)] {
            assert!(journal.request(&made, &[]).await.unwrap());
        }
        let numbers = Numbers { millis: 5, gb_hours: 0.25, bytes_in: 77, ..Numbers::default() };
        for (to, at_ms) in [(JobState::Inflight, 15), (JobState::Failed, 40)] {
            let (job, note, numbers) = (&JobId("a".into()), "", Some(&numbers));
            journal.advance(Step { holder: "h", job, to, at_ms, note, numbers }).await.unwrap();
        }
        let mut spent = journal.spent(20).await.unwrap();
        spent.sort_by_key(|spent| spent.at_ms);
        let told = |at_ms, gb_hours, bytes, commits| {
            let Plan { table, name, .. } = plan(1, &[]);
            let (job, ended) = (JobId(if at_ms == 40 { "a" } else { "b" }.into()), at_ms == 40);
            Spent { job, by_hand: false, ended, at_ms, table: Some(table), name: name.to_string(), gb_hours, bytes, commits }
        };
        assert_eq!(spent, [told(20, 2.0, 20, true), told(40, 0.25, 77, false)]);
        assert_eq!(journal.spent(21).await.unwrap(), [told(40, 0.25, 77, false)]);
    }
}

#[tokio::test]
async fn both_journals_tell_what_was_asked_for_by_hand_and_what_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let journals: [Box<dyn Journal>; 2] = [Box::new(sqlite(dir.path()).await), Box::new(MemoryJournal::default())];
    for journal in journals {
        let undo = Kind::Undo { of: JobId("a".into()), snapshot_id: 1 };
        let asked =
            [("a", REQUEST, Kind::Rewrite), ("b", REQUEST, Kind::Rewrite), ("c", "small-files", Kind::Rewrite), ("d", REQUEST, undo)];
        for (id, reason, kind) in asked {
            let plan = Plan { reason: reason.into(), ..plan(1, &[id]) };
            assert!(journal.request(&Job { plan, kind, ..job(id) }, &[]).await.unwrap());
        }
        let step = Step { holder: "h", job: &JobId("b".into()), to: JobState::Cancelled, at_ms: 9, note: "", numbers: None };
        journal.advance(step).await.unwrap();
        let told = async |from: &str| {
            let mut told = journal.spent_by_hand(&JobId(from.into())).await.unwrap();
            told.sort_by(|a, b| a.job.cmp(&b.job));
            told.into_iter().map(|spent| (spent.job.0, spent.ended, spent.at_ms)).collect::<Vec<_>>()
        };
        assert_eq!(told("a").await, [("a".into(), false, 5), ("b".into(), true, 9)]);
        assert_eq!(told("b").await, [("b".into(), true, 9)]);
        assert_eq!(told("c").await, []);
    }
}

#[tokio::test]
async fn a_log_ends_with_its_value() {
    let dir = tempfile::tempdir().unwrap();
    let journals: [Box<dyn Journal>; 2] = [Box::new(sqlite(dir.path()).await), Box::new(MemoryJournal::default())];
    for journal in journals {
        let blob = Blob { version: 1, bytes: vec![1] };
        journal.put_blob("layout", "k", &blob).await.unwrap();
        journal.log_blob("layout", "k", 0, &[2]).await.unwrap();
        journal.log_blob("layout", "other", 0, &[3]).await.unwrap();
        journal.put_blob("layout", "k", &blob).await.unwrap();
        assert_eq!(journal.blob_log("layout", "k").await.unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(journal.blob_log("layout", "other").await.unwrap(), [[3]]);
        journal.log_blob("layout", "k", 0, &[4]).await.unwrap();
        journal.drop_blob("layout", "k").await.unwrap();
        assert_eq!(journal.blob_log("layout", "k").await.unwrap(), Vec::<Vec<u8>>::new());
    }
}

#[tokio::test]
async fn a_journal_of_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = sqlite(dir.path()).await;
    sqlx::raw_sql("PRAGMA user_version = 9").execute(&schema::open(&path).await.unwrap().synced).await.unwrap();
    journal.close().await;
    let error = SqliteJournal::open(&path).await.err().unwrap().to_string();
    let shown = path.display();
    assert_eq!(
        error,
        format!("{shown} was made by a newer version of afterwrite (schema 9, this one knows 4): use that version, or another journal")
    );
}

#[tokio::test]
async fn a_file_of_another_program_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to hold what looks like a header of one hundred bytes or more, and then some")
        .unwrap();
    let before = std::fs::read(&text).unwrap();
    assert!(matches!(SqliteJournal::open(&text).await, Err(Error::Foreign { .. })));
    assert_eq!(std::fs::read(&text).unwrap(), before);

    let other = dir.path().join("catalog.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&other).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE iceberg_tables (name TEXT)").execute(&pool).await.unwrap();
    pool.close().await;
    let before = std::fs::read(&other).unwrap();
    assert!(matches!(SqliteJournal::open(&other).await, Err(Error::Foreign { .. })));
    assert_eq!(std::fs::read(&other).unwrap(), before);
}

#[tokio::test]
async fn a_journal_that_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = SqliteJournal::open(dir.path()).await.err().unwrap().to_string();
    assert!(error.starts_with(&dir.path().display().to_string()), "{error}");
}

#[tokio::test]
async fn one_process_serves_and_others_may_look() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (sqlite(dir.path()).await, sqlite(dir.path()).await);
    one.claim(&holder("a", Role::Serve), &[]).await.unwrap();
    let later = Holder { beat_ms: 4_000, ..holder("b", Role::Serve) };
    let error = two.claim(&later, &[]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the journal is in use by another `serve` (process 7 on here, last heard 3 s ago): stop it, or use another journal"
    );
    two.claim(&holder("c", Role::Command), &[]).await.unwrap();
    one.request(&job("j"), &[]).await.unwrap();
    assert!(two.ask_cancel(&JobId("j".into())).await.unwrap());
    assert!(one.is_cancelled(&JobId("j".into())).await.unwrap());
    assert!(one.beat("a", 9_000).await.unwrap() && !one.beat("nobody", 9_000).await.unwrap());
    assert_eq!(two.holders().await.unwrap().first().map(|h| h.beat_ms), Some(9_000));
    two.claim(&later, &["a".into()]).await.unwrap();
    let ids: Vec<String> = two.holders().await.unwrap().into_iter().map(|h| h.id).collect();
    assert_eq!(ids, vec!["b", "c"]);
    one.release("b").await.unwrap();
    one.claim(&holder("a", Role::Serve), &[]).await.unwrap();
}

#[tokio::test]
async fn two_processes_write_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let open = |_| sqlite(dir.path());
    let journals = futures::future::join_all((0..3).map(open)).await;
    let jobs = journals.iter().enumerate().map(|(n, journal)| async move {
        for i in 0..20 {
            let id = format!("{n}-{i}");
            journal.request(&job(&id), &[]).await.unwrap();
            let step = Step { holder: "h", job: &JobId(id), to: JobState::Inflight, at_ms: 6, note: "", numbers: None };
            journal.advance(step).await.unwrap();
        }
    });
    futures::future::join_all(jobs).await;
    let first = journals.first().unwrap();
    assert_eq!(first.jobs(Query::Unfinished).await.unwrap().len(), 60);
    let latest: Vec<JobId> = first.jobs(Query::Latest(2)).await.unwrap().into_iter().map(|j| j.id).collect();
    assert_eq!(latest, vec![JobId("2-9".into()), JobId("2-8".into())]);
}

#[tokio::test]
async fn a_process_whose_job_was_taken_over_cannot_ask_a_catalog() {
    let dir = tempfile::tempdir().unwrap();
    for journal in [Box::new(sqlite(dir.path()).await) as Box<dyn Journal>, Box::new(MemoryJournal::default())] {
        journal.request(&job("j"), &[]).await.unwrap();
        let id = JobId("j".into());
        let tried = Attempt { id: attempt::id(&id, 1), job: id.clone(), number: 1, state: AttemptState::Writing };
        journal.begin("h", &tried).await.unwrap();
        journal.adopt(&id, "someone", "x").await.unwrap();
        journal.adopt(&id, "h", "g").await.unwrap();
        let asking = AttemptState::Committing { asserted: "m".into() };
        assert!(matches!(journal.step("h", &tried.id, &asking).await, Err(Error::TakenOver(_))));
        assert!(matches!(journal.begin("h", &Attempt { id: attempt::id(&id, 2), ..tried.clone() }).await, Err(Error::TakenOver(_))));
        let step = Step { holder: "h", job: &id, to: JobState::Inflight, at_ms: 6, note: "", numbers: None };
        assert!(matches!(journal.advance(step).await, Err(Error::TakenOver(_))));
        journal.step("g", &tried.id, &asking).await.unwrap();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Request(u8, bool),
    Claim(u8),
    Leave(u8),
    Take(u8, u8, bool),
    Give(u8, u8),
    Advance(u8, JobState),
    Begin(u8, u8),
    Step(u8, u8, AttemptState),
    Name(u8, u8, u8),
    Move(u8, u8),
    Forget(u8, u8),
    Cancel(u8),
    Adopt(u8, bool),
    ForgetKept(u8),
    Prune(i64),
}

fn states() -> impl Strategy<Value = AttemptState> {
    prop_oneof![
        Just(AttemptState::Writing),
        Just(AttemptState::Verified),
        "[ab]".prop_map(|asserted| AttemptState::Committing { asserted }),
        (1..3i64).prop_map(|snapshot_id| AttemptState::Landed { snapshot_id }),
        Just(AttemptState::Lost { loss: Loss::NeverAsked }),
        Just(AttemptState::Lost { loss: Loss::Seen(Resolution::NotLanded) }),
        Just(AttemptState::Lost { loss: Loss::Answered(Outcome::Rejected { reason: "no".into() }) }),
        Just(AttemptState::GivenUp),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let (j, n) = (0..3u8, 0..3u8);
    prop_oneof![
        2 => (j.clone(), any::<bool>()).prop_map(|(j, other)| Op::Request(j, other)),
        2 => (0..2u8).prop_map(Op::Claim),
        1 => (0..2u8).prop_map(Op::Leave),
        4 => (j.clone(), 0..2u8, any::<bool>()).prop_map(|(j, h, dead)| Op::Take(j, h, dead)),
        2 => (j.clone(), 0..2u8).prop_map(|(j, h)| Op::Give(j, h)),
        4 => (j.clone(), prop::sample::select(JobState::ALL.to_vec())).prop_map(|(j, s)| Op::Advance(j, s)),
        2 => (j.clone(), n.clone()).prop_map(|(j, n)| Op::Begin(j, n)),
        4 => (j.clone(), n.clone(), states()).prop_map(|(j, n, s)| Op::Step(j, n, s)),
        3 => (j.clone(), n.clone(), 0..4u8).prop_map(|(j, n, p)| Op::Name(j, n, p)),
        1 => (j.clone(), 0..4u8).prop_map(|(j, p)| Op::Move(j, p)),
        1 => (j.clone(), n).prop_map(|(j, n)| Op::Forget(j, n)),
        1 => j.clone().prop_map(Op::Cancel),
        1 => (j.clone(), any::<bool>()).prop_map(|(j, back)| Op::Adopt(j, back)),
        1 => j.prop_map(Op::ForgetKept),
        1 => (0..60i64).prop_map(Op::Prune),
    ]
}

/// Who asks: most often the one who requests.
const HOLDERS: [&str; 2] = ["h", "g"];

async fn apply(journal: &dyn Journal, op: &Op, now: i64) -> String {
    let id = |j: &u8| JobId(format!("j{j}"));
    let of = |j: &u8, n: &u8| attempt::id(&id(j), u32::from(*n));
    let path = |p: &u8| format!("p{p}");
    let done = match op {
        Op::Request(j, other) => {
            journal.request(&Job { holder: HOLDERS[usize::from(*other)].into(), ..job(&id(j).0) }, &[]).await.map(u64::from)
        }
        Op::Claim(h) => journal.claim(&holder(HOLDERS[usize::from(*h)], Role::Command), &[]).await.map(|()| 0),
        Op::Leave(h) => journal.release(HOLDERS[usize::from(*h)]).await.map(|()| 0),
        Op::Take(j, h, dead) => {
            let (own, other) = if *h == 0 { (HOLDERS[0], HOLDERS[1]) } else { (HOLDERS[1], HOLDERS[0]) };
            let dead: Vec<String> = dead.then(|| other.to_owned()).into_iter().collect();
            journal.take_place(own, &id(j), &dead).await.map(u64::from)
        }
        Op::Give(j, h) => journal.leave_place(HOLDERS[usize::from(*h)], &id(j)).await.map(|()| 0),
        Op::Advance(j, to) => {
            let numbers = Numbers { snapshot_id: Some(now), bytes_in: 20, ..Numbers::default() };
            let step =
                Step { holder: HOLDERS[usize::from(now % 9 == 0)], job: &id(j), to: *to, at_ms: now, note: "n", numbers: Some(&numbers) };
            journal.advance(step).await.map(|()| 0)
        }
        Op::Begin(j, n) => {
            let begun = Attempt { id: of(j, n), job: id(j), number: u32::from(*n), state: AttemptState::Writing };
            journal.begin("h", &begun).await.map(|()| 0)
        }
        Op::Step(j, n, to) => journal.step(HOLDERS[usize::from(now % 7 == 0)], &of(j, n), to).await.map(|()| 0),
        Op::Name(j, n, p) => journal.name_file(&of(j, n), &path(p)).await.map(|()| 0),
        Op::Move(j, p) => journal.move_files(&of(j, &0), &of(j, &1), &[path(p)]).await.map(|()| 0),
        Op::Forget(j, n) => journal.forget_files(&of(j, n), &[path(&0), path(&1)]).await.map(|()| 0),
        Op::Adopt(j, back) => {
            let (from, to) = if *back { ("g", "h") } else { ("h", "g") };
            journal.adopt(&id(j), from, to).await.map(|()| 0)
        }
        Op::Cancel(j) => journal.ask_cancel(&id(j)).await.map(u64::from),
        Op::ForgetKept(j) => journal.forget_kept(&id(j)).await.map(|()| 0),
        Op::Prune(before) => journal.prune(*before).await,
    };
    format!("{:?}", done.map_err(|e| e.to_string()))
}

async fn dump(journal: &dyn Journal) -> (Vec<Job>, Vec<(Attempt, Vec<String>)>, Vec<Attempt>, Vec<Kept>) {
    let jobs = journal.jobs(Query::Latest(100)).await.unwrap();
    let mut attempts = Vec::new();
    for job in &jobs {
        for attempt in journal.attempts(&job.id).await.unwrap() {
            let files = journal.files(&attempt.id).await.unwrap();
            attempts.push((attempt, files));
        }
    }
    (jobs, attempts, journal.litter().await.unwrap(), journal.kept().await.unwrap())
}

/// The state machine, written out a second time.
const STEPS: [(JobState, JobState); 11] = [
    (JobState::Requested, JobState::Inflight),
    (JobState::Requested, JobState::Failed),
    (JobState::Requested, JobState::Cancelled),
    (JobState::Inflight, JobState::Resolving),
    (JobState::Inflight, JobState::Committed),
    (JobState::Inflight, JobState::Failed),
    (JobState::Inflight, JobState::Cancelled),
    (JobState::Resolving, JobState::Inflight),
    (JobState::Resolving, JobState::Committed),
    (JobState::Resolving, JobState::Failed),
    (JobState::Resolving, JobState::Cancelled),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn both_journals_agree_and_take_no_illegal_step(ops in prop::collection::vec(ops(), 1..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let (memory, sqlite) = (MemoryJournal::default(), sqlite(dir.path()).await);
            let mut before = dump(&sqlite).await;
            for (op, now) in ops.iter().zip(10i64..) {
                let expected = apply(&memory, op, now).await;
                let found = apply(&sqlite, op, now).await;
                prop_assert_eq!(&expected, &found, "{:?}", op);
                let after = dump(&sqlite).await;
                prop_assert_eq!(&dump(&memory).await, &after, "{:?}", op);
                for job in &after.0 {
                    if let Some(was) = before.0.iter().find(|j| j.id == job.id) {
                        prop_assert!(was.state == job.state || STEPS.contains(&(was.state, job.state)), "{:?}", op);
                    }
                }
                for (attempt, _) in &after.1 {
                    let was = before.1.iter().find(|(a, _)| a.id == attempt.id);
                    if let Some((Attempt { state: AttemptState::Committing { .. } | AttemptState::Landed { .. }, .. }, files)) = was
                        && attempt.state == (AttemptState::Lost { loss: Loss::NeverAsked })
                    {
                        prop_assert!(false, "{op:?} lost {files:?} without proof");
                    }
                }
                before = after;
            }
            Ok(())
        })?;
    }
}
