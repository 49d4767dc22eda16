//! Checkpoints: a restart reads nothing again, and no bytes can do harm.

use std::sync::Arc;

use afterwrite::model::file::Content;
use afterwrite::orient::checkpoint::{Checkpoints, InMemory, VERSION, decode, encode};
use afterwrite::orient::{How, Key, Orient, TableState};
use futures::executor::block_on;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::absorb::{look, right_look};
use super::fake::{Make, World, data, file, part, under};

/// A state with a bit of everything.
fn state() -> TableState {
    let mut world = World::with([data(&part("a"), 10, 1), data(&under(2, None), 5000, 9), data(&part("ü"), 800, 70)]);
    world.misstate = 1;
    world.commit(Make::append([file(Content::EqualityDeletes, &under(3, None), 4, 2), file(Content::DeletionVector, &part("a"), 3, 1)]));
    let orient = Orient::new(1 << 20, Arc::new(InMemory::default()));
    look(&orient, &world.load());
    world.commit(Make::append([data(&part("a"), 20, 1)]));
    TableState::clone(&look(&orient, &world.load()).state)
}

#[test]
fn a_state_survives_its_encoding_whole() {
    let state = state();
    let back = decode(&encode(&state).unwrap()).unwrap();
    assert_eq!((&back.layout, &back.history, &back.counted), (&state.layout, &state.history, &state.counted));
    assert_eq!((back.last_sequence_number, back.weight()), (3, state.weight()));
    assert!(!state.counted.is_empty());
}

#[test]
fn the_encoding_of_this_version_is_pinned() {
    // A difference means that stored states would be misread: count VERSION up.
    assert_eq!((VERSION, xxh3_64(&encode(&state()).unwrap())), (1, 8_342_579_286_727_848_961));
}

#[test]
fn a_restart_reads_no_manifest_that_was_read_before() {
    let checkpoints = Arc::new(InMemory::default());
    let mut world = World::with((0..50).map(|n| data(&part(&n.to_string()), 10, 1)));
    look(&Orient::new(1 << 20, checkpoints.clone()), &world.load());
    world.reads();
    let restarted = Orient::new(1 << 20, checkpoints.clone());
    assert_eq!((look(&restarted, &world.load()).how, world.reads()), (How::Unchanged, 0));
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let restarted = Orient::new(1 << 20, checkpoints);
    assert_eq!((look(&restarted, &world.load()).how, world.reads()), (How::Incremental { snapshots: 1 }, 1));
}

#[test]
fn a_large_state_is_saved_when_reading_has_weighed_it_up_or_at_the_end() {
    let checkpoints = Arc::new(InMemory::default());
    let mut world = World::with((0..1000).map(|n| data(&part(&n.to_string()), 10, 1)));
    let key = Key::of(&world.view);
    let saved = || block_on(checkpoints.load(&key)).unwrap().and_then(|b| decode(&b)).unwrap().layout.head();
    let orient = Orient::new(1 << 30, checkpoints.clone());
    let first = look(&orient, &world.load()).state;
    assert!(first.weight() > 300_000, "{}", first.weight());
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    let second = look(&orient, &world.load()).state;
    assert_eq!(saved(), first.layout.head());
    block_on(orient.flush()).unwrap();
    assert_eq!(saved(), second.layout.head());
    world.commit(Make::append((0..3000).map(|_| data(&part("b"), 7, 3))));
    let third = look(&orient, &world.load()).state;
    assert_eq!(saved(), third.layout.head());
}

#[test]
fn a_checkpoint_of_another_version_or_table_is_rebuilt() {
    let checkpoints = Arc::new(InMemory::default());
    let world = World::with([data(&part("a"), 10, 1)]);
    let key = Key::of(&world.view);
    look(&Orient::new(1 << 20, checkpoints.clone()), &world.load());
    let good = block_on(checkpoints.load(&key)).unwrap().unwrap();
    let mut newer = good.clone();
    newer[0] = VERSION + 1;
    let mut other = World::with([data(&part("b"), 10, 1)]);
    other.view.reference = "audit".into();
    let foreign = encode(&look(&Orient::new(0, Arc::new(InMemory::default())), &other.load()).state).unwrap();
    for bytes in [newer, good[..good.len() - 1].to_vec(), Vec::new(), foreign] {
        block_on(checkpoints.save(&key, bytes)).unwrap();
        let absorbed = right_look(&Orient::new(1 << 20, checkpoints.clone()), &world.load());
        assert_eq!(absorbed.how, How::Rebuilt(afterwrite::orient::Reason::NoState));
    }
}

/// Bytes that pass the version and the checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    [&[VERSION][..], &xxh3_64(body).to_le_bytes(), body].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&bytes).is_none());
        let _ = decode(&sealed(&bytes));
    }

    #[test]
    fn a_damaged_checkpoint_is_no_state(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = encode(&state()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(decode(&bytes).is_none());
        let _ = decode(&sealed(&bytes[9..]));
    }
}
