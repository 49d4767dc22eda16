//! H91: events lost, phantom or out of order. Traits are those of a
//! recomputation all the same.

use std::sync::Arc;

use afterwrite::model::policy::Policy;
use afterwrite::orient::checkpoint::InMemory;
use afterwrite::orient::{Orient, traits};

use crate::orient::absorb::{look, orient};
use crate::orient::fake::{Fake, Make, World, data, under};

/// A small generator of numbers, for the same run every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// 400 commits, each with an event: 30 % lost, 30 % doubled, 5 % invented, all
/// shuffled within a window, each with the table as it was when it was sent.
fn events(world: &mut World, dice: &mut Dice) -> Vec<Fake> {
    let mut events = Vec::new();
    for n in 0..400 {
        let partition = under(1, Some(&dice.roll(7).to_string()));
        let gone = world.live_keys().into_iter().filter(|_| dice.roll(40) == 0).collect();
        let add = vec![data(&partition, 1 + dice.roll(1400), 1 + dice.roll(1_000_000))];
        world.commit(Make { add, remove: gone, ..Make::append([]) });
        let copies = match dice.roll(100) {
            0..30 => 0,
            30..60 => 2,
            _ => 1,
        };
        for _ in 0..copies + u64::from(dice.roll(20) == 0) {
            events.push((n + dice.roll(10), world.load()));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(_, load)| load).collect()
}

#[test]
fn h91_lost_doubled_invented_and_shuffled_events_leave_the_traits_of_a_recomputation() {
    let (mut world, mut dice) = (World::new(2), Dice(91));
    let orient = orient();
    for load in events(&mut world, &mut dice) {
        look(&orient, &load);
    }
    // the poll that bounds how stale a table without events can get
    let known = look(&orient, &world.load()).state;

    let right = look(&Orient::new(1 << 20, Arc::new(InMemory::default())), &world.load()).state;
    assert_eq!(known.layout, right.layout);
    assert_eq!(right.layout.partitions().len(), 7);
    let cost = Policy::default().cost;
    for key in right.layout.partitions().keys() {
        let (ours, theirs) = (traits(&known, &key, &cost, 0).unwrap(), traits(&right, &key, &cost, 0).unwrap());
        assert_eq!((ours.file_entropy, ours.small_tiers), (theirs.file_entropy, theirs.small_tiers));
        assert_eq!((ours.data_files, ours.file_count_reduction), (theirs.data_files, theirs.file_count_reduction));
    }
}
