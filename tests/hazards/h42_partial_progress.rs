//! H42: groups commit one by one, and a later failure is handled as if none had.

use std::sync::{Arc, Mutex};

use afterwrite::act::{Act, JobState, Journal, KillSwitch, MemoryJournal, Ports, Query, Role, Settings, Verdict, Watcher};
use afterwrite::lake::clock::{SystemChance, SystemClock};
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::model::outcome::Conflict;
use afterwrite::model::plan::Plan;

use crate::fixture::{File, Table, oracle, row};

/// Six files of two rows, in three groups of two.
async fn groups(t: &Table) -> (Vec<File>, Vec<Plan>) {
    let mut files = vec![];
    for n in 0..6 {
        files.push(t.append([row(2 * n, "v", 0), row(2 * n + 1, "v", 0)]).await);
    }
    let mut plans = vec![];
    for pair in files.chunks(2) {
        plans.push(t.plan_files(&[&pair[0], &pair[1]]).await);
    }
    (files, plans)
}

async fn act(t: &Table, journal: &Arc<MemoryJournal>) -> Arc<Act> {
    let ports = Ports {
        format: Arc::new(Lake::new([Arc::clone(&t.port)])),
        journal: Arc::clone(journal) as Arc<dyn Journal>,
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    };
    Act::start(ports, Role::Command, Settings::default(), KillSwitch::default()).await.unwrap()
}

async fn live(t: &Table) -> Vec<String> {
    oracle::live(&t.load().await).await.iter().map(|l| l.file.file_path().to_owned()).collect()
}

/// What another writer does to a file of the second group.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Delete,
    Replace,
}

/// Does it once, while the group's rows are read.
fn meddling(t: &Arc<Table>, file: &File, trouble: Trouble) -> Watcher {
    let (t, file) = (Arc::clone(t), Mutex::new(Some(file.clone())));
    Arc::new(move |_| {
        let Some(file) = file.lock().unwrap().take() else { return };
        let change = match trouble {
            Trouble::Delete => t.change().delete_positions(&[(&file, 0)]),
            Trouble::Replace => t.change().remove(&[&file]).append([row(5, "v", 0)]),
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(change.commit()));
    })
}

/// Three groups of one plan, the second of which meets another writer: row 4 goes. A
/// delete is carried over; what takes an input away is a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_a_group_that_conflicts_leaves_the_others_landed() {
    for trouble in [Trouble::Delete, Trouble::Replace] {
        let t = Arc::new(Table::plain().past().create().await);
        let (files, plans) = groups(&t).await;
        let journal = Arc::new(MemoryJournal::default());
        let act = act(&t, &journal).await;

        let first = act.run(&plans[0], None).await;
        let second = act.run(&plans[1], Some(meddling(&t, &files[2], trouble))).await;
        let third = act.run(&plans[2], None).await;

        assert_eq!((first.verdict, third.verdict), (Verdict::Committed, Verdict::Committed), "{trouble:?}");
        let hit = vec![files[2].path.clone()];
        match (trouble, second.verdict) {
            (Trouble::Delete, Verdict::Committed) => assert_eq!(second.numbers.deletes_carried, 1),
            (Trouble::Replace, Verdict::Dropped { conflict }) => assert_eq!(conflict, Conflict::InputGone { files: hit }),
            (trouble, verdict) => panic!("{trouble:?}: {verdict:?}"),
        }
        // every row once, but for the one that the other writer deleted
        let mut rows: Vec<String> = (0..12).filter(|id| *id != 4).map(|id| format!("{id}|v")).collect();
        rows.sort();
        assert_eq!(t.rows().await, rows, "{trouble:?}");
        let now = live(&t).await;
        let lives: Vec<bool> = files.iter().map(|f| now.contains(&f.path)).collect();
        let jobs = journal.jobs(Query::Latest(9)).await.unwrap();
        let of = |state| jobs.iter().filter(|j| j.state == state).count();
        let ended = [of(JobState::Committed), of(JobState::Failed), jobs.len()];
        assert_eq!(journal.litter().await.unwrap(), []);
        if trouble == Trouble::Delete {
            assert_eq!((lives, ended), (vec![false; 6], [3, 0, 3]));
            continue;
        }
        // groups 1 and 3 are replaced, what is left of group 2 lives, and no output of it
        assert_eq!((lives, now.len()), (vec![false, false, false, true, false, false], 4), "{now:?}");
        assert_eq!(ended, [2, 1, 3]);
        // planned anew it lands too
        let again = t.plan(&files[3].partition, |path| files[3].path == path || !files.iter().any(|f| f.path == path)).await;
        assert_eq!(act.run(&again, None).await.verdict, Verdict::Committed, "{trouble:?}");
        assert_eq!(t.rows().await, rows, "{trouble:?}");
    }
}

/// Groups of one plan that are carried out at one time move the table under each
/// other, and land all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_groups_at_one_time_all_land_and_lose_no_row() {
    let t = Table::plain().past().create().await;
    let (_, plans) = groups(&t).await;
    let rows = t.rows().await;
    let journal = Arc::new(MemoryJournal::default());
    let act = act(&t, &journal).await;
    let results = tokio::join!(act.run(&plans[0], None), act.run(&plans[1], None), act.run(&plans[2], None));
    let verdicts = [results.0.verdict, results.1.verdict, results.2.verdict];
    assert_eq!(verdicts, [Verdict::Committed, Verdict::Committed, Verdict::Committed]);
    assert_eq!((t.rows().await, live(&t).await.len()), (rows, 3));
}
