//! H24: rooted at an old pointer. What is known never goes back to an older
//! load of the table.

use afterwrite::orient::{How, Key};
use futures::executor::block_on;

use crate::orient::absorb::{look, orient, right_look};
use crate::orient::fake::{Make, World, data, part};

#[test]
fn h24_an_old_pointer_delivered_late_leaves_the_current_state() {
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let orient = orient();
    for _ in 2..=5 {
        world.commit(Make::append([data(&part("a"), 10, 1)]));
    }
    let fifth = world.load();
    let files = world.live_keys();
    world.commit(Make::delete(files));
    world.commit(Make::append([data(&part("b"), 10, 1)]));
    look(&orient, &world.load());

    assert_eq!(look(&orient, &fifth).how, How::Stale);

    let state = block_on(orient.state(&Key::of(&world.view))).unwrap();
    assert_eq!(state.layout.head(), world.view.head);
    assert_eq!(state.layout.partition(&part("a")), None);
    assert_eq!(right_look(&orient, &world.load()).how, How::Unchanged);
}

#[test]
fn h24_what_was_loaded_first_and_taken_in_last_is_walked_from_by_the_next_look() {
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let orient = orient();
    let first = world.load();
    world.commit(Make::append([data(&part("b"), 10, 1)]));
    look(&orient, &world.load());
    look(&orient, &first);
    world.commit(Make::append([data(&part("c"), 10, 1)]));
    let absorbed = right_look(&orient, &world.load());
    assert_eq!((absorbed.how, absorbed.manifests_read), (How::Incremental { snapshots: 1 }, 1));
}
