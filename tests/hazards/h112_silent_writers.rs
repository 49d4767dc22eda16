//! H112: writers that drop files without saying so. Drift is seen at once, the
//! layout is rebuilt, and it is counted.

use afterwrite::model::file::Content;
use afterwrite::model::table::Operation;
use afterwrite::orient::{How, Orient, Reason};

use crate::orient::absorb::{orient, right_look};
use crate::orient::fake::{Make, World, data, file, part};

/// A table of three files, one of deletes, looked at.
fn known(world: &mut World) -> Orient {
    world.commit(Make::append([data(&part("a"), 10, 1), data(&part("b"), 20, 2), data(&part("b"), 30, 3)]));
    world.commit(Make::append([file(Content::PositionDeletes, &part("b"), 5, 4)]));
    let orient = orient();
    right_look(&orient, &world.load());
    orient
}

#[test]
fn h112_a_data_file_left_out_without_an_entry_is_noticed_at_once() {
    let mut world = World::new(2);
    let orient = known(&mut world);
    let dropped = world.live_keys().into_iter().skip(2).take(1).collect();
    world.commit(Make { drop_silently: dropped, ..Make::new(Operation::Overwrite) });
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, orient.drifts()), (How::Rebuilt(Reason::Drift), 1));
    assert_eq!(absorbed.state.layout.partition(&part("b")).unwrap().data.records, 2);
}

#[test]
fn h112_a_delete_file_left_out_without_an_entry_is_noticed_at_once() {
    let mut world = World::new(2);
    let orient = known(&mut world);
    let dropped = world.live_keys().into_iter().skip(3).collect();
    world.commit(Make { drop_silently: dropped, ..Make::new(Operation::Overwrite) });
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, orient.drifts()), (How::Rebuilt(Reason::Drift), 1));
    assert_eq!(absorbed.state.layout.deletes().files, 0);
}

#[test]
fn h112_a_file_exchanged_for_another_under_an_old_snapshot_id_is_noticed() {
    let mut world = World::new(2);
    let orient = known(&mut world);
    let drop_silently = world.live_keys().into_iter().take(1).collect();
    world.commit(Make { drop_silently, add_silently: vec![data(&part("c"), 10, 7)], ..Make::new(Operation::Overwrite) });
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::Drift));
}

#[test]
fn h112_entries_moved_between_manifests_with_their_old_id_are_no_drift() {
    let mut world = World::new(2);
    let orient = known(&mut world);
    world.rewrite_manifests();
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, orient.drifts()), (How::Incremental { snapshots: 1 }, 0));
    assert!(absorbed.touched.is_empty());
}

#[test]
fn h112_a_list_with_wrong_counts_is_learnt_and_not_rebuilt_for_ever() {
    let mut world = World::new(2);
    let orient = known(&mut world);
    world.misstate = 1000;
    for _ in 0..5 {
        world.commit(Make::append([data(&part("a"), 10, 1)]));
        assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 1 });
    }
    let dropped = world.live_keys().into_iter().take(1).collect();
    world.commit(Make { drop_silently: dropped, ..Make::new(Operation::Overwrite) });
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::Drift));
    world.commit(Make::append([data(&part("a"), 10, 1)]));
    assert_eq!(right_look(&orient, &world.load()).how, How::Incremental { snapshots: 1 });
    assert_eq!(orient.drifts(), 1);
}

#[test]
fn h112_a_list_without_counts_is_counted_by_what_is_read_anyway() {
    let mut world = World::new(1);
    world.counts = false;
    let orient = known(&mut world);
    world.commit(Make::append([data(&part("a"), 10, 1)]));
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, absorbed.manifests_read), (How::Incremental { snapshots: 1 }, 1));
    let dropped = world.live_keys().into_iter().take(1).collect();
    world.commit(Make { drop_silently: dropped, ..Make::new(Operation::Overwrite) });
    assert_eq!(right_look(&orient, &world.load()).how, How::Rebuilt(Reason::Drift));
}
