//! Checkpoints: a restart reads nothing again, and no bytes can do harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use afterwrite::lake::{Error, Result};
use afterwrite::model::file::Content;
use afterwrite::model::ident::TableIdent;
use afterwrite::orient::checkpoint::{Checkpoints, InMemory, Saved, VERSION, decode, encode};
use afterwrite::orient::{How, Key, Orient, Reason, TableState};
use async_trait::async_trait;
use futures::executor::block_on;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::absorb::{look, right_look};
use super::fake::{Make, World, data, file, part, under};

/// A state with a bit of everything, and how it was saved.
fn saved() -> (TableState, Saved) {
    let mut world = World::with([data(&part("a"), 10, 1), data(&under(2, None), 5000, 9), data(&part("ü"), 800, 70)]);
    world.misstate = 1;
    world.commit(Make::append([file(Content::EqualityDeletes, &under(3, None), 4, 2), file(Content::DeletionVector, &part("a"), 3, 1)]));
    let checkpoints = Arc::new(InMemory::default());
    let orient = Orient::new(1 << 20, checkpoints.clone());
    look(&orient, &world.load());
    world.commit(Make::append([data(&part("a"), 20, 1)]));
    look(&orient, &world.load());
    world.commit(Make { merge: true, ..Make::delete(world.live_keys().into_iter().skip(1).take(1)) });
    let state = TableState::clone(&look(&orient, &world.load()).state);
    (state, block_on(checkpoints.load(&Key::of(&world.view))).unwrap().unwrap())
}

fn whole(state: &TableState) -> Saved {
    Saved { base: encode(state).unwrap(), log: Vec::new() }
}

#[test]
fn a_state_survives_its_encoding_whole() {
    let (state, log) = saved();
    assert_eq!(log.log.len(), 2);
    for saved in [whole(&state), log] {
        let (back, _) = decode(&saved).unwrap();
        assert_eq!((&back.layout, &back.heard, &back.counted), (&state.layout, &state.heard, &state.counted));
        assert_eq!((back.last_sequence_number, back.weight()), (4, state.weight()));
        assert_eq!(back.heard_of(&part("a")), state.heard_of(&part("a")));
        assert_eq!(encode(&back).unwrap(), encode(&state).unwrap());
    }
    assert!(!state.counted.is_empty());
}

#[test]
fn the_encoding_of_this_version_is_pinned() {
    // A difference means that stored states would be misread: count VERSION up.
    let (state, saved) = saved();
    let log: Vec<u64> = saved.log.iter().map(|record| xxh3_64(record)).collect();
    assert_eq!(
        (VERSION, xxh3_64(&encode(&state).unwrap()), log),
        (3, 15_573_287_744_473_125_425, vec![418_860_667_257_774_810, 8_483_209_525_862_744_626])
    );
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
fn a_process_killed_after_any_look_has_saved_it_whatever_the_size_of_the_table() {
    let checkpoints = Arc::new(InMemory::default());
    let mut world = World::with((0..3000).map(|n| data(&part(&n.to_string()), 10, 1)));
    let mut orient = Orient::new(1 << 30, checkpoints.clone());
    assert!(look(&orient, &world.load()).state.weight() > 300_000);
    for n in 0..5 {
        world.commit(Make::append([data(&part("b"), 7, 3), data(&part(&n.to_string()), 9, 2)]));
        right_look(&orient, &world.load());
        world.reads();
        // no flush: what was in memory is gone
        orient = Orient::new(1 << 30, checkpoints.clone());
        assert_eq!((look(&orient, &world.load()).how, world.reads()), (How::Unchanged, 0));
    }
    let saved = block_on(checkpoints.load(&Key::of(&world.view))).unwrap().unwrap();
    assert_eq!(saved.log.len(), 5);
    let bytes: usize = saved.log.iter().map(Vec::len).sum();
    assert!(bytes / 5 < 400 && saved.base.len() > 50_000, "records of {} bytes beside a base of {}", bytes / 5, saved.base.len());
}

#[test]
fn a_log_that_outweighs_its_base_is_folded_into_a_new_one() {
    let checkpoints = Arc::new(InMemory::default());
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let key = Key::of(&world.view);
    let orient = Orient::new(1 << 30, checkpoints.clone());
    let (mut longest, mut folded) = (0, 0);
    for _ in 0..1000 {
        world.commit(Make { merge: true, ..Make::append([data(&part("a"), 7, 3)]) });
        let state = look(&orient, &world.load()).state;
        let saved = block_on(checkpoints.load(&key)).unwrap().unwrap();
        if saved.log.is_empty() {
            folded += 1;
            assert_eq!(saved.base, encode(&state).unwrap());
        }
        longest = longest.max(saved.log.iter().map(Vec::len).sum());
    }
    assert!(folded > 1, "never folded");
    assert!(longest <= 66_000, "a log of {longest} bytes beside a base of one partition");
}

#[test]
fn a_checkpoint_of_another_version_or_table_is_rebuilt() {
    let checkpoints = Arc::new(InMemory::default());
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let key = Key::of(&world.view);
    let orient = Orient::new(1 << 20, checkpoints.clone());
    look(&orient, &world.load());
    for _ in 0..3 {
        world.commit(Make::append([data(&part("a"), 10, 1)]));
        look(&orient, &world.load());
    }
    let good = block_on(checkpoints.load(&key)).unwrap().unwrap();
    let mut other = World::with([data(&part("b"), 10, 1)]);
    other.view.reference = "audit".into();
    let foreign = whole(&look(&Orient::new(0, Arc::new(InMemory::default())), &other.load()).state);
    let with = |change: fn(&mut Saved)| {
        let mut saved = good.clone();
        change(&mut saved);
        saved
    };
    let bad = [
        with(|s| s.base[0] += 1),
        with(|s| {
            s.base.pop();
        }),
        with(|s| s.base.clear()),
        with(|s| s.log[1][0] += 1),
        with(|s| {
            s.log[2].pop();
        }),
        with(|s| s.log[0].clear()),
        // what is missing, or stands elsewhere, is noticed by what follows it
        with(|s| drop(s.log.remove(1))),
        with(|s| s.log.swap(0, 1)),
        foreign,
    ];
    for saved in bad {
        block_on(checkpoints.save(&key, saved.base)).unwrap();
        for (at, record) in saved.log.into_iter().enumerate() {
            block_on(checkpoints.append(&key, at as u64, record)).unwrap();
        }
        let absorbed = right_look(&Orient::new(1 << 20, checkpoints.clone()), &world.load());
        assert_eq!(absorbed.how, How::Rebuilt(Reason::NoState));
    }
}

/// Checkpoints that fail while they are told to, or for one table.
#[derive(Default)]
struct Failing {
    kept: InMemory,
    fails: AtomicBool,
    never: std::sync::Mutex<Option<TableIdent>>,
    tries: AtomicUsize,
}

impl Failing {
    fn check(&self, key: &Key) -> Result<()> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        let never = *self.never.lock().unwrap() == Some(key.ident);
        if never || self.fails.load(Ordering::Relaxed) { Err(Error::Journal("the disk is full".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Checkpoints for Failing {
    async fn load(&self, key: &Key) -> Result<Option<Saved>> {
        self.kept.load(key).await
    }

    async fn save(&self, key: &Key, base: Vec<u8>) -> Result<()> {
        self.check(key)?;
        self.kept.save(key, base).await
    }

    async fn append(&self, key: &Key, at: u64, record: Vec<u8>) -> Result<()> {
        self.check(key)?;
        self.kept.append(key, at, record).await
    }

    async fn remove(&self, ident: &TableIdent) -> Result<()> {
        self.kept.remove(ident).await
    }
}

#[test]
fn a_state_that_could_not_be_saved_is_saved_by_the_next_flush_and_its_log_goes_on() {
    let checkpoints = Arc::new(Failing::default());
    let mut world = World::with([data(&part("a"), 10, 1)]);
    let orient = Orient::new(1 << 30, checkpoints.clone());
    look(&orient, &world.load());
    checkpoints.fails.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        world.commit(Make::append([data(&part("b"), 7, 3)]));
        right_look(&orient, &world.load());
    }
    // a full disk is asked once, not by every look
    assert_eq!(checkpoints.tries.load(Ordering::Relaxed), 2);
    assert!(block_on(orient.flush()).is_err());
    checkpoints.fails.store(false, Ordering::Relaxed);
    block_on(orient.flush()).unwrap();
    world.commit(Make::append([data(&part("b"), 7, 3)]));
    look(&orient, &world.load());
    world.reads();
    let restarted = Orient::new(1 << 30, checkpoints.clone());
    // the recomputation alone reads the five manifests
    assert_eq!((right_look(&restarted, &world.load()).how, world.reads()), (How::Unchanged, 5));
    assert_eq!(block_on(checkpoints.load(&Key::of(&world.view))).unwrap().unwrap().log.len(), 1);
}

#[test]
fn a_flush_saves_the_others_when_one_cannot_be_saved() {
    let checkpoints = Arc::new(Failing::default());
    let orient = Orient::new(1 << 30, checkpoints.clone());
    checkpoints.fails.store(true, Ordering::Relaxed);
    let worlds: Vec<World> = (0..8_u128)
        .map(|n| {
            let mut world = World::with([data(&part("a"), 10, 1)]);
            world.view.ident = TableIdent::iceberg(uuid::Uuid::from_u128(n));
            look(&orient, &world.load());
            world
        })
        .collect();
    checkpoints.fails.store(false, Ordering::Relaxed);
    *checkpoints.never.lock().unwrap() = Some(worlds[3].view.ident);
    let error = block_on(orient.flush()).unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    let saved = |world: &World| block_on(checkpoints.load(&Key::of(&world.view))).unwrap().is_some();
    assert_eq!(worlds.iter().map(saved).collect::<Vec<_>>(), [true, true, true, false, true, true, true, true]);
}

/// Bytes that pass the version and the checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    [&[VERSION][..], &xxh3_64(body).to_le_bytes(), body].concat()
}

fn base(base: Vec<u8>) -> Saved {
    Saved { base, log: Vec::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&base(bytes.clone())).is_none());
        let _ = decode(&base(sealed(&bytes)));
        let (_, mut saved) = saved();
        let follows = saved.base[1..9].to_vec();
        saved.log = vec![sealed(&[follows, bytes].concat())];
        let _ = decode(&saved);
    }

    #[test]
    fn a_damaged_checkpoint_is_no_state(part in 0..3_usize, at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (_, good) = saved();
        let damaged = |reseal: bool| {
            let mut saved = good.clone();
            let bytes = if part == 0 { &mut saved.base } else { &mut saved.log[part - 1] };
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            if reseal {
                *bytes = sealed(&bytes[9..]);
            }
            saved
        };
        prop_assert!(decode(&damaged(false)).is_none());
        let _ = decode(&damaged(true));
    }
}
