//! A rewrite taken back.

use afterwrite::act::{JobState, Journal, Query, Verdict};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::plan::JobId;

use super::fake::Fault;
use super::world::{World, dying};

async fn compacted() -> (World, JobId) {
    let world = World::new(4);
    let act = world.act().await;
    let result = act.run(&world.lake.plan(4), None).await;
    assert_eq!(world.lake.with(|s| s.data_files()), 2);
    (world, result.job.unwrap())
}

#[tokio::test]
async fn a_rewrite_is_undone_while_it_is_the_head() {
    let (world, job) = compacted().await;
    let act = world.act().await;
    let undone = act.undo(&job).await.unwrap();
    assert_eq!(undone.verdict, Verdict::Committed);
    assert_eq!(world.lake.with(|s| s.data_files()), 4);
    assert_eq!(world.journal.kept().await.unwrap(), vec![]);
    world.check();
    let error = act.undo(&job).await.unwrap_err().to_string();
    assert!(error.contains("is not the head of lake.sales.t any more"), "{error}");
    let error = act.undo(&undone.job.unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("only committed rewrites are undone"), "{error}");
    world.settle().await;
}

#[tokio::test]
async fn a_rewrite_under_later_commits_is_not_undone() {
    let (world, job) = compacted().await;
    world.lake.with(|s| s.append(1));
    let error = world.act().await.undo(&job).await.unwrap_err().to_string();
    assert!(error.contains("undoing it would take later commits back"), "{error}");
    assert_eq!(world.journal.jobs(Query::Latest(9)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_job_that_is_not_there_is_named() {
    let (world, _) = compacted().await;
    let error = world.act().await.undo(&JobId("x".into())).await.unwrap_err().to_string();
    assert_eq!(error, "the journal has no job `x`: `jobs` lists them");
}

/// By a catalog that compares heads, and so has no means to shut a lost request out.
#[tokio::test]
async fn an_undo_whose_answer_is_lost_is_asked_for_again_on_a_table_that_stands_still() {
    for lost in [Fault::UnknownLost, Fault::UnknownLater, Fault::UnknownLanded, Fault::ErrorLanded] {
        let (world, job) = compacted().await;
        world.lake.with(|s| {
            s.heads = true;
            s.faults.extend([lost; 3]);
        });
        let act = world.act().await;
        let undone = act.undo(&job).await.unwrap();
        assert_eq!((lost, undone.verdict), (lost, Verdict::Committed));
        assert_eq!(world.lake.with(|s| s.data_files()), 4);
        assert_eq!(world.journal.kept().await.unwrap(), vec![]);
        assert_eq!(act.recover().await.unwrap(), Default::default());
        world.check();
    }
}

#[tokio::test]
async fn an_undo_that_dies_before_its_answer_is_carried_on_with_on_a_table_that_stands_still() {
    for (lost, tries) in [(Fault::UnknownLost, 1), (Fault::UnknownLater, 1), (Fault::UnknownLanded, 0)] {
        let (world, job) = compacted().await;
        world.lake.with(|s| {
            s.heads = true;
            s.faults.push_back(lost);
        });
        let act = world.start(dying(Some((KillPoint::CatalogAnswered, 0)))).await;
        assert!(tokio::spawn(async move { act.undo(&job).await.map(|r| r.verdict) }).await.is_err());
        let act = world.act().await;
        let recovered = act.recover().await.unwrap();
        assert_eq!((recovered.committed.len(), recovered.open.len()), (1, 0), "{lost:?}");
        assert_eq!(world.lake.with(|s| s.data_files()), 4);
        let jobs = world.journal.jobs(Query::Latest(1)).await.unwrap();
        assert_eq!(jobs[0].state, JobState::Committed);
        let asked = world.journal.attempts(&jobs[0].id).await.unwrap().len();
        assert!(asked <= 1 + tries, "{lost:?}: asked {asked} times");
        assert_eq!(act.recover().await.unwrap(), Default::default());
        world.check();
    }
}

#[tokio::test]
async fn an_undo_that_dies_or_is_not_answered_is_resolved_by_the_head() {
    for &point in KillPoint::ALL {
        for fault in Fault::ALL {
            let (world, job) = compacted().await;
            world.lake.with(|s| s.faults.push_back(fault));
            let act = world.start(dying(Some((point, 0)))).await;
            let _ = tokio::spawn(async move { act.undo(&job).await.map(|r| r.verdict) }).await;
            let files = world.lake.with(|s| {
                s.act(super::fake::Foreign::Nothing);
                s.data_files()
            });
            world.settle().await;
            let jobs = world.journal.jobs(Query::Latest(1)).await.unwrap();
            let undo = jobs.first().unwrap();
            let landed = undo.kind != afterwrite::act::Kind::Rewrite && undo.state == JobState::Committed;
            if files == 4 {
                assert!(landed, "{point} {fault:?}: the branch was rolled back and the job is {:?}", undo.state);
            }
        }
    }
}
