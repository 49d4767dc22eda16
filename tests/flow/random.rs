//! Any mixture of faults, writers, deaths and failing writes.

use afterwrite::model::killpoint::KillPoint;
use proptest::prelude::*;

use super::fake::{Fault, Foreign};
use super::world::World;

fn foreigns() -> impl Strategy<Value = Vec<Foreign>> {
    let one = prop_oneof![
        10 => Just(Foreign::Nothing),
        5 => Just(Foreign::Append),
        3 => Just(Foreign::DeleteOldRow),
        3 => Just(Foreign::DeleteNewRow),
        2 => Just(Foreign::ReplaceInput),
        1 => Just(Foreign::Drop),
    ];
    prop::collection::vec(one, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn rows_stay_right_and_nothing_is_left_behind(
        faults in prop::collection::vec(prop::sample::select(Fault::ALL.to_vec()), 0..6),
        before_commit in foreigns(),
        on_load in foreigns(),
        deaths in prop::collection::vec(prop::option::of((prop::sample::select(KillPoint::ALL.to_vec()), 0..4u32)), 1..4),
        failing in prop::collection::vec(0..60u64, 0..3),
        removals_fail in 0..4u32,
        down in prop::option::of(0..100_000i64),
        spare in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::new(5);
            let now = afterwrite::lake::clock::Clock::now_ms(&*world.clock);
            world.lake.with(|s| {
                s.faults.extend(faults);
                s.before_commit.extend(before_commit);
                s.on_load.extend(on_load);
                s.removals_fail = removals_fail;
                s.spare = spare;
            });
            for death in deaths {
                if world.lake.with(|s| s.is_dropped()) {
                    break;
                }
                let plan = world.lake.plan(3);
                if let Some(down) = down {
                    world.lake.with(|s| s.down_until = now + down);
                }
                for n in &failing {
                    world.journal.fail_write(*n + 3);
                }
                let _ = world.run(plan, death).await;
                world.check();
                world.journal.mend();
                let act = world.act().await;
                let _ = act.recover().await;
                world.check();
            }
            let act = world.settle().await;
            world.compact_again(&act).await;
        });
    }
}
