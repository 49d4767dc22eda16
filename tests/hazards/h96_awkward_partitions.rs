//! H96: a path or summary key does not name a partition. Layouts are kept by
//! spec and tuple, as manifests give them.

use crate::orient::absorb::{orient, right_look};
use crate::orient::fake::{Make, World, data, under};

const VALUES: [Option<&str>; 9] =
    [None, Some("null"), Some(""), Some(" "), Some("+"), Some("%2F"), Some("/"), Some("ü"), Some("__HIVE_DEFAULT_PARTITION__")];

#[test]
fn h96_values_that_share_a_path_are_different_partitions() {
    let mut world = World::new(2);
    let orient = orient();
    right_look(&orient, &world.load());
    for (value, n) in VALUES.into_iter().zip(1..) {
        world.commit(Make::append([data(&under(1, value), 10 * n, n)]));
    }
    let absorbed = right_look(&orient, &world.load());
    assert_eq!(absorbed.state.layout.partitions().len(), 9);
    for (value, n) in VALUES.into_iter().zip(1..) {
        let layout = absorbed.state.layout.partition(&under(1, value)).unwrap();
        assert_eq!((layout.data.files, layout.data.bytes, layout.data.records), (1, 10 * n, n), "{value:?}");
    }
}

#[test]
fn h96_one_tuple_under_two_specs_is_two_partitions() {
    let mut world = World::with([data(&under(1, Some("a")), 10, 1), data(&under(2, Some("a")), 20, 2)]);
    let orient = orient();
    right_look(&orient, &world.load());
    let first = world.live_keys().into_iter().take(1);
    world.commit(Make::delete(first));
    let state = right_look(&orient, &world.load()).state;
    assert_eq!(state.layout.partition(&under(1, Some("a"))), None);
    assert_eq!(state.layout.partition(&under(2, Some("a"))).unwrap().data.bytes, 20);
}

#[test]
fn h96_a_composed_and_a_decomposed_letter_are_two_values() {
    let world = World::with([data(&under(1, Some("ü")), 10, 1), data(&under(1, Some("u\u{308}")), 10, 1)]);
    assert_eq!(right_look(&orient(), &world.load()).state.layout.partitions().len(), 2);
}
