//! What a look reads, how it finds its way, and what it leaves behind.

use std::sync::Arc;

use afterwrite::lake::Table;
use afterwrite::model::ident::TableName;
use afterwrite::model::layout::SizeScale;
use afterwrite::model::policy::CostModel;
use afterwrite::model::table::{Operation, SpecInfo};
use afterwrite::orient::checkpoint::InMemory;
use afterwrite::orient::partitions::Differing;
use afterwrite::orient::{Absorbed, How, Key, Orient, Reason, recompute, traits};
use futures::executor::block_on;

use super::fake::{Fake, Make, SCALE, World, data, part};

const HOUR: i64 = 3_600_000;

pub fn orient() -> Orient {
    Orient::new(1 << 20, Arc::new(InMemory::default()))
}

pub fn look(orient: &Orient, table: &dyn Table) -> Absorbed {
    block_on(orient.absorb(table, SCALE, 0)).unwrap()
}

/// Looks, and holds the result against a recomputation.
pub fn right_look(orient: &Orient, table: &Fake) -> Absorbed {
    let absorbed = look(orient, table);
    assert_eq!(absorbed.state.layout, block_on(recompute(table, SCALE)).unwrap());
    absorbed
}

/// A table with five one-file commits, looked at.
fn five() -> (World, Orient) {
    let mut world = World::with([data(&part("a"), 10, 1)]);
    for n in 1..5 {
        world.commit(Make::append([data(&part("a"), 10 * n, n)]));
    }
    let orient = orient();
    look(&orient, &world.load());
    world.reads();
    (world, orient)
}

#[test]
fn a_commit_costs_its_own_manifests_whatever_the_size_of_the_table() {
    let (mut world, orient) = five();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let absorbed = look(&orient, &world.load());
    assert_eq!((absorbed.how, absorbed.manifests_read, absorbed.entries_read), (How::Incremental { snapshots: 1 }, 1, 1));
    assert_eq!(world.reads(), 1);
    assert_eq!(absorbed.touched, [part("b")].into());
    assert_eq!(absorbed.state.layout.partition(&part("b")).unwrap().data.records, 3);
}

#[test]
fn a_known_head_reads_nothing() {
    let (world, orient) = five();
    let absorbed = look(&orient, &world.load());
    assert_eq!((absorbed.how, world.reads()), (How::Unchanged, 0));
}

#[test]
fn several_snapshots_in_one_look_are_all_taken_in() {
    let (mut world, orient) = five();
    for _ in 0..3 {
        world.commit(Make::append([data(&part("b"), 7, 3)]));
    }
    let absorbed = look(&orient, &world.load());
    assert_eq!((absorbed.how, absorbed.foreign_snapshots, world.reads()), (How::Incremental { snapshots: 3 }, 3, 3));
    assert_eq!(absorbed.state.layout.partition(&part("b")).unwrap().data.files, 3);
}

#[test]
fn entries_that_a_merge_carries_over_are_not_added_again() {
    let (mut world, orient) = five();
    world.commit(Make { merge: true, ..Make::append([data(&part("a"), 7, 3)]) });
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, absorbed.entries_read), (How::Incremental { snapshots: 1 }, 6));
    assert_eq!(absorbed.state.layout.partition(&part("a")).unwrap().data.files, 6);
    assert_eq!(absorbed.state.layout.manifest_count(), 1);
}

#[test]
fn entries_copied_with_their_old_snapshot_and_status_are_not_added_again() {
    let (mut world, orient) = five();
    world.careless = true;
    world.rewrite_manifests();
    world.commit(Make::delete(world.live_keys().into_iter().take(1)));
    world.commit(Make::append([data(&part("a"), 7, 3)]));
    look(&orient, &world.load());
    world.commit(Make { merge: true, ..Make::append([data(&part("a"), 7, 3)]) });
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, absorbed.entries_read), (How::Incremental { snapshots: 1 }, 7));
    assert_eq!(absorbed.state.layout.partition(&part("a")).unwrap().data.files, 6);
}

#[test]
fn a_partition_goes_with_its_last_file() {
    let (mut world, orient) = five();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    look(&orient, &world.load());
    let last = world.live_keys().pop();
    world.commit(Make::delete(last));
    let absorbed = right_look(&orient, &world.load());
    assert_eq!(absorbed.state.layout.partition(&part("b")), None);
    assert_eq!(absorbed.state.layout.partitions().heard(&part("b")), None);
    assert_eq!(absorbed.touched, [part("b")].into());
}

#[test]
fn a_rollback_takes_its_snapshots_back() {
    let (mut world, orient) = five();
    world.rollback(2);
    let absorbed = right_look(&orient, &world.load());
    assert_eq!(absorbed.how, How::Undone { undone: 2, added: 0 });
    assert_eq!(absorbed.state.layout.partition(&part("a")).unwrap().data.files, 3);
}

#[test]
fn a_rollback_of_a_delete_brings_the_files_back() {
    let (mut world, orient) = five();
    world.commit(Make::delete(world.live_keys()));
    assert_eq!(look(&orient, &world.load()).state.layout.partitions().len(), 0);
    world.rollback(1);
    let absorbed = right_look(&orient, &world.load());
    assert_eq!(absorbed.how, How::Undone { undone: 1, added: 0 });
    assert_eq!(absorbed.state.layout.partition(&part("a")).unwrap().data.files, 5);
}

#[test]
fn a_branch_fast_forwarded_elsewhere_goes_by_the_common_ancestor() {
    let (mut world, orient) = five();
    world.rollback(2);
    world.commit(Make::append([data(&part("c"), 9, 9)]));
    world.commit(Make::append([data(&part("c"), 9, 9)]));
    let absorbed = right_look(&orient, &world.load());
    assert_eq!(absorbed.how, How::Undone { undone: 2, added: 2 });
    assert_eq!(absorbed.touched, [part("a"), part("c")].into());
}

#[test]
fn a_rollback_whose_snapshots_expired_is_rebuilt_not_taken_for_a_stale_load() {
    let (mut world, orient) = five();
    world.rollback(2);
    world.expire(10);
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::HistoryGone));
}

#[test]
fn a_replaced_table_is_rebuilt() {
    let (mut world, orient) = five();
    world.commit(Make { orphan: true, ..Make::append([data(&part("z"), 5, 5)]) });
    let absorbed = right_look(&orient, &world.load());
    assert_eq!(absorbed.how, How::Rebuilt(Reason::NullParent));
    assert_eq!(absorbed.touched, [part("a"), part("z")].into());
}

#[test]
fn a_table_dropped_and_created_again_is_another_one() {
    let (mut world, orient) = five();
    let old = Key::of(&world.view);
    world.drop_and_create();
    world.commit(Make::append([data(&part("z"), 5, 5)]));
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::NoState));
    assert_eq!(block_on(orient.state(&old)).unwrap().layout.partition(&part("a")).unwrap().data.files, 5);
    block_on(orient.forget(&old.ident)).unwrap();
    assert!(block_on(orient.state(&old)).is_none());
    assert!(block_on(orient.state(&Key::of(&world.view))).is_some());
}

#[test]
fn a_renamed_table_keeps_its_state() {
    let (mut world, orient) = five();
    world.view.name = TableName::new("lake", "db", "renamed");
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 1 });
}

#[test]
fn another_branch_has_a_state_of_its_own() {
    let (mut world, orient) = five();
    world.view.reference = "audit".into();
    world.rollback(3);
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::NoState));
    world.view.reference = "main".into();
    assert_eq!(block_on(orient.state(&Key::of(&world.view))).unwrap().layout.data().files, 5);
}

#[test]
fn an_expired_parent_on_the_way_is_rebuilt() {
    let (mut world, orient) = five();
    for _ in 0..3 {
        world.commit(Make::append([data(&part("b"), 7, 3)]));
    }
    world.expire(1);
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::ParentExpired));
}

#[test]
fn an_expired_known_head_whose_child_is_listed_is_walked_from() {
    let (mut world, orient) = five();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    world.expire(0);
    assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 1 });
}

#[test]
fn a_manifest_list_lost_on_the_way_is_rebuilt_around() {
    let (mut world, orient) = five();
    let lost = world.commit(Make::append([data(&part("b"), 7, 3)]));
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let mut table = world.load();
    // the list is gone, its manifest lives on in the head's
    table.lose(lost);
    assert_eq!(right_look(&orient, &table).how, How::Rebuilt(Reason::FileGone));
}

#[test]
fn an_unreadable_head_is_an_error_and_leaves_what_is_known() {
    let (mut world, orient) = five();
    let head = world.commit(Make::append([data(&part("b"), 7, 3)]));
    let mut table = world.load();
    table.lose(head);
    assert!(block_on(orient.absorb(&table, SCALE, 0)).is_err());
    assert_eq!(block_on(orient.state(&Key::of(&world.view))).unwrap().layout.data().files, 5);
    assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 1 });
}

#[test]
fn a_load_from_before_what_is_known_changes_nothing() {
    let (mut world, orient) = five();
    let stale = world.load();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let known = look(&orient, &world.load()).state;
    let absorbed = look(&orient, &stale);
    assert_eq!(absorbed.how, How::Stale);
    assert!(Arc::ptr_eq(&absorbed.state, &known));
}

#[test]
fn a_load_from_before_a_rollback_changes_nothing_either() {
    let (mut world, orient) = five();
    let stale = world.load();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    world.rollback(3);
    look(&orient, &world.load());
    assert_eq!(look(&orient, &stale).how, How::Stale);
}

/// Looks at a load at a moment.
fn look_at(orient: &Orient, table: &Fake, now_ms: i64) -> How {
    block_on(orient.absorb(table, SCALE, now_ms)).unwrap().how
}

#[test]
fn a_table_whose_catalog_was_set_back_is_rebuilt_after_a_while_and_followed_from_there() {
    let (mut world, orient) = five();
    let mut backup = world.clone();
    backup.next += 1000;
    for n in 0..9 {
        world.commit(Make::append([data(&part("b"), 7, n)]));
    }
    look(&orient, &world.load());
    // writers go on from the backup, whose numbers stay below those that were known
    let looks: Vec<How> = [0, 30_000, 59_999, 60_000, 60_001]
        .into_iter()
        .map(|now_ms| {
            backup.commit(Make::append([data(&part("c"), 5, 5)]));
            look_at(&orient, &backup.load(), now_ms)
        })
        .collect();
    let (older, back) = (How::Stale, How::Rebuilt(Reason::SetBack));
    assert_eq!(looks, [older, older, older, back, How::Incremental { snapshots: 1 }]);
    assert_eq!(right_look(&orient, &backup.load()).how, How::Unchanged);
}

#[test]
fn a_replica_that_lags_behind_a_table_changes_nothing_while_other_loads_come() {
    let (mut world, orient) = five();
    let lagging = world.load();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    look(&orient, &world.load());
    for turn in 0..100 {
        let now_ms = turn * 59_000;
        assert_eq!(look_at(&orient, &lagging, now_ms), How::Stale);
        assert_eq!(look_at(&orient, &lagging, now_ms + 58_000), How::Stale);
        assert_eq!(look_at(&orient, &world.load(), now_ms + 58_500), How::Unchanged);
    }
}

#[test]
fn another_target_size_is_rebuilt_without_touching_the_history() {
    let (mut world, orient) = five();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let before = look(&orient, &world.load());
    let scale = SizeScale { target: 20, ..SCALE };
    let absorbed = block_on(orient.absorb(&world.load(), scale, HOUR)).unwrap();
    assert_eq!(absorbed.how, How::Rebuilt(Reason::ScaleChanged));
    assert_eq!(absorbed.state.layout, block_on(recompute(&world.load(), scale)).unwrap());
    assert_eq!(absorbed.state.heard, before.state.heard);
    assert_eq!(absorbed.state.heard_of(&part("a")), before.state.heard_of(&part("a")));
}

#[test]
fn a_table_without_a_snapshot_is_known_to_hold_nothing() {
    let mut world = World::new(2);
    let orient = orient();
    assert_eq!(right_look(&orient, &world.load()).state.layout.head(), None);
    world.commit(Make::append([data(&part("a"), 10, 1)]));
    world.commit(Make::append([data(&part("a"), 10, 1)]));
    assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 2 });
}

#[test]
fn a_change_shares_the_partitions_it_did_not_touch_and_readers_keep_theirs() {
    let (mut world, orient) = five();
    let before = look(&orient, &world.load()).state;
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let after = look(&orient, &world.load()).state;
    let differing: Vec<_> = before.layout.partitions().diff(after.layout.partitions()).collect();
    assert_eq!(differing, [Differing { key: part("b"), before: None, after: after.layout.partition(&part("b")) }]);
    assert_eq!(before.layout.partition(&part("b")), None);
}

#[test]
fn an_evicted_state_comes_back_from_its_checkpoint() {
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let orient = Orient::new(0, Arc::new(InMemory::default()));
    look(&orient, &world.load());
    assert_eq!(orient.cached_bytes(), 0);
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 1 });
}

#[test]
fn own_commits_are_told_from_foreign_ones() {
    let (mut world, orient) = five();
    let cost = CostModel { executor_memory_gb: 1.0, rewrite_bytes_per_hour: 1.0, startup_gbhr: 0.0 };
    world.commit(Make::append([data(&part("b"), 100, 3)]));
    block_on(orient.absorb(&world.load(), SCALE, HOUR)).unwrap();
    let ours = Make { instance: Some("one".into()), add: vec![data(&part("b"), 50, 3)], ..Make::new(Operation::Replace) };
    world.commit(ours);
    let absorbed = block_on(orient.absorb(&world.load(), SCALE, 2 * HOUR)).unwrap();
    assert_eq!((absorbed.own_snapshots, absorbed.foreign_snapshots), (1, 0));
    let b = traits(&absorbed.state, &part("b"), &cost, 2 * HOUR).unwrap();
    assert_eq!((b.quiet_for_ms, b.write_amplification), (Some(HOUR), 0.5));
    assert_eq!(b.commit_rate, std::f64::consts::LN_2 / 2.0);
    // our marks on an append were copied there by a writer
    world.commit(Make { instance: Some("one".into()), ..Make::append([data(&part("b"), 1, 1)]) });
    let absorbed = block_on(orient.absorb(&world.load(), SCALE, 3 * HOUR)).unwrap();
    assert_eq!((absorbed.own_snapshots, absorbed.foreign_snapshots), (0, 1));
}

#[test]
fn taking_our_own_commit_back_is_nobodys_activity() {
    let (mut world, orient) = five();
    let ours = Make { instance: Some("one".into()), add: vec![data(&part("b"), 50, 3)], ..Make::new(Operation::Replace) };
    world.commit(ours);
    block_on(orient.absorb(&world.load(), SCALE, HOUR)).unwrap();
    world.rollback(1);
    let absorbed = block_on(orient.absorb(&world.load(), SCALE, 2 * HOUR)).unwrap();
    assert_eq!(absorbed.how, How::Undone { undone: 1, added: 0 });
    assert_eq!(absorbed.state.heard.last_foreign_ms, None);
    assert_eq!(absorbed.state.heard.rewritten_bytes, 50);
}

#[test]
fn of_two_looks_at_one_moment_only_one_reads() {
    let (mut world, orient) = five();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let load = world.load();
    let (one, two) = block_on(futures::future::join(orient.absorb(&load, SCALE, 0), orient.absorb(&load, SCALE, 0)));
    assert_eq!((one.unwrap().how, two.unwrap().how), (How::Incremental { snapshots: 1 }, How::Unchanged));
    assert_eq!(world.reads(), 1);
}

#[test]
fn a_known_head_still_tells_of_new_specs_and_of_commits_on_other_branches() {
    let (mut world, orient) = five();
    let stale = world.load();
    world.view.specs.insert(9, Arc::new(SpecInfo { id: 9, unpartitioned: true, ..Default::default() }));
    world.view.last_sequence_number += 1;
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, world.reads()), (How::Unchanged, 5));
    assert!(absorbed.state.layout.unpartitioned().contains(&9));
    assert_eq!(look(&orient, &stale).how, How::Stale);
}

#[test]
fn looks_at_one_table_wait_for_each_other() {
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let orient = Arc::new(orient());
    let loads: Vec<Fake> = (0..40)
        .map(|n| {
            world.commit(Make::append([data(&part("a"), 10 + n, n)]));
            world.load()
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let looks = loads.iter().rev().chain(&loads).cloned().map(|load| {
            let orient = orient.clone();
            tokio::spawn(async move { orient.absorb(&load, SCALE, 0).await.unwrap() })
        });
        for look in looks.collect::<Vec<_>>() {
            look.await.unwrap();
        }
    });
    let state = block_on(orient.state(&Key::of(&world.view))).unwrap();
    assert_eq!(state.layout, block_on(recompute(&world.load(), SCALE)).unwrap());
}
