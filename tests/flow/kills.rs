//! A process that dies at every kill point, under every fault.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use afterwrite::act::{KillSwitch, Verdict};
use afterwrite::model::killpoint::KillPoint;

use super::fake::{Fault, Foreign};
use super::world::{World, noting};

#[tokio::test]
async fn a_restart_after_death_at_any_point_leaves_rows_right_and_nothing_behind() {
    let mut died = HashSet::new();
    for &point in KillPoint::ALL {
        for fault in Fault::ALL {
            for passes in 0..3 {
                let world = World::new(4);
                world.lake.with(|s| {
                    s.faults.push_back(fault);
                    s.spare = passes == 1;
                });
                if world.run(world.lake.plan(4), Some((point, passes))).await.is_none() {
                    died.insert(point);
                }
                let act = world.settle().await;
                world.compact_again(&act).await;
            }
        }
    }
    assert_eq!(died, KillPoint::ALL.iter().copied().collect());
}

#[tokio::test]
async fn a_death_while_others_write_leaves_rows_right_and_nothing_behind() {
    let others = [Foreign::Append, Foreign::DeleteOldRow, Foreign::ReplaceInput, Foreign::Drop];
    for &point in KillPoint::ALL {
        for foreign in others {
            for fault in [Fault::None, Fault::UnknownLanded, Fault::UnknownLater] {
                let world = World::new(4);
                world.lake.with(|s| {
                    s.faults.push_back(fault);
                    s.before_commit.push_back(foreign);
                });
                let _ = world.run(world.lake.plan(4), Some((point, 0))).await;
                world.lake.with(|s| s.act(foreign));
                let act = world.settle().await;
                world.compact_again(&act).await;
            }
        }
    }
}

#[tokio::test]
async fn recovery_may_die_too() {
    for &point in KillPoint::ALL {
        for second in [KillPoint::OutcomeJournaled, KillPoint::CleanupBegun] {
            let world = World::new(4);
            let _ = world.run(world.lake.plan(4), Some((point, 0))).await;
            let act = world.start(super::world::dying(Some((second, 0)))).await;
            let _ = tokio::spawn(async move { act.recover().await }).await;
            world.settle().await;
        }
    }
}

#[tokio::test]
async fn a_job_without_trouble_passes_all_points_but_clean_up() {
    let world = World::new(4);
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let act = world.start(noting(&seen)).await;
    let _ = act.run(&world.lake.plan(4), None).await;
    let missed: Vec<KillPoint> = KillPoint::ALL.iter().copied().filter(|p| !seen.lock().unwrap().contains(p)).collect();
    assert_eq!(missed, vec![KillPoint::CleanupBegun]);
}

/// A process sleeps at a point, another one takes it for dead and recovers its
/// job whole, and then it wakes up and goes on.
#[tokio::test]
async fn a_process_that_comes_back_after_its_job_was_recovered_does_no_harm() {
    for &point in KillPoint::ALL {
        for fault in Fault::ALL {
            for removals_fail in [0, 1] {
                let world = World::new(4);
                world.lake.with(|s| {
                    s.faults.push_back(fault);
                    s.removals_fail = removals_fail;
                });
                let other = world.act().await;
                let asleep = std::sync::atomic::AtomicBool::new(false);
                let sleeper = KillSwitch::calling(move |p| {
                    if p == point && !asleep.swap(true, std::sync::atomic::Ordering::SeqCst) {
                        futures::executor::block_on(other.recover()).unwrap();
                    }
                });
                let act = world.start(sleeper).await;
                let result = act.run(&world.lake.plan(4), None).await;
                world.check();
                if fault == Fault::None && point == KillPoint::Verified {
                    let taken = world.lake.with(|s| s.data_files());
                    assert_eq!((taken, result.verdict == Verdict::Committed), (4, false));
                }
                let act = world.settle().await;
                world.compact_again(&act).await;
            }
        }
    }
}
