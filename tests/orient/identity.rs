//! The law of orient: whatever looks are lost, doubled, late or out of order,
//! and however often the process restarts, the layout equals a recomputation.

use std::collections::BTreeSet;
use std::sync::Arc;

use afterwrite::model::file::{Content, FileKey};
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::table::Operation;
use afterwrite::orient::checkpoint::{Checkpoints, InMemory, decode, encode};
use afterwrite::orient::rebuild::recompute_watched;
use afterwrite::orient::{How, Key, Orient, TableState, recompute, table_traits};
use futures::executor::block_on;
use proptest::prelude::*;

use super::fake::{Fake, File, Make, SCALE, World, data, file, part, under};

/// What happens to a table, or to what watches it.
#[derive(Clone, Debug)]
enum Step {
    Append { files: Vec<Draw>, merge: bool },
    Overwrite { files: Vec<Draw>, remove: u16, ours: bool },
    Delete { remove: u16 },
    RewriteManifests,
    Replace { files: Vec<Draw> },
    Rollback(usize),
    Jump(prop::sample::Index),
    Expire(usize),
    DropSilently(u16),
    AddSilently(Draw),
    Look { times: usize },
    StaleLook(prop::sample::Index),
    Restart { clean: bool },
}

/// A file drawn from few partitions and all contents.
#[derive(Clone, Debug)]
struct Draw {
    content: Content,
    partition: PartitionKey,
    bytes: u64,
    records: u64,
}

fn draw() -> impl Strategy<Value = Draw> {
    use Content::{Data, DeletionVector, EqualityDeletes, PositionDeletes};
    let content = prop_oneof![6 => Just(Data), 1 => Just(PositionDeletes), 1 => Just(EqualityDeletes), 1 => Just(DeletionVector)];
    let values = prop::sample::select(vec![None, Some("null"), Some(""), Some(" "), Some("%2F")]);
    let key = (0..4_i32, values).prop_map(|(spec, value)| match spec {
        0 => PartitionKey::unpartitioned(0),
        3 => under(3, None),
        spec => under(spec, value),
    });
    // records are drawn wide, so that silent changes do not cancel out by chance
    (content, key, 0..1500_u64, 1..1_u64 << 40).prop_map(|(content, partition, bytes, records)| Draw { content, partition, bytes, records })
}

fn files() -> impl Strategy<Value = Vec<Draw>> {
    prop::collection::vec(draw(), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (files(), any::<bool>()).prop_map(|(files, merge)| Step::Append { files, merge }),
        4 => (files(), any::<u16>(), any::<bool>()).prop_map(|(files, remove, ours)| Step::Overwrite { files, remove, ours }),
        2 => any::<u16>().prop_map(|remove| Step::Delete { remove }),
        2 => Just(Step::RewriteManifests),
        1 => files().prop_map(|files| Step::Replace { files }),
        2 => (1..4_usize).prop_map(Step::Rollback),
        2 => any::<prop::sample::Index>().prop_map(Step::Jump),
        2 => (0..4_usize).prop_map(Step::Expire),
        1 => any::<u16>().prop_map(Step::DropSilently),
        1 => draw().prop_map(Step::AddSilently),
        8 => (1..3_usize).prop_map(|times| Step::Look { times }),
        3 => any::<prop::sample::Index>().prop_map(Step::StaleLook),
        2 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

/// What kind of writer and watcher a history has.
#[derive(Clone, Debug)]
struct Setting {
    format_version: u8,
    counts: bool,
    misstate: u64,
    careless: bool,
    cache_bytes: u64,
}

fn setting() -> impl Strategy<Value = Setting> {
    let honest = prop_oneof![4 => Just((true, 0)), 1 => Just((false, 0)), 1 => Just((true, 5))];
    let draws = (1..=2_u8, honest, any::<bool>(), prop::sample::select(vec![0, 1 << 30]));
    draws.prop_map(|(format_version, (counts, misstate), careless, cache_bytes)| Setting {
        format_version,
        counts,
        misstate,
        careless,
        cache_bytes,
    })
}

struct Play {
    world: World,
    loads: Vec<Fake>,
    checkpoints: Arc<InMemory>,
    orient: Orient,
    cache_bytes: u64,
    now_ms: i64,
}

impl Play {
    fn new(setting: &Setting) -> Self {
        let mut world = World::new(setting.format_version);
        (world.counts, world.misstate, world.careless) = (setting.counts, setting.misstate, setting.careless);
        let checkpoints = Arc::new(InMemory::default());
        let orient = Orient::new(setting.cache_bytes, checkpoints.clone());
        Self { loads: vec![world.load()], world, checkpoints, orient, cache_bytes: setting.cache_bytes, now_ms: 0 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Look { times } => {
                let load = self.world.load();
                (0..times).for_each(|_| self.look(&load, true));
            }
            Step::StaleLook(at) => {
                let load = at.get(&self.loads).clone();
                self.look(&load, false);
            }
            Step::Restart { clean } => {
                if clean {
                    block_on(self.orient.flush()).unwrap();
                }
                self.orient = Orient::new(self.cache_bytes, self.checkpoints.clone());
            }
            write => {
                self.write(write);
                self.loads.push(self.world.load());
            }
        }
    }

    /// What was saved is what is known, to the last bit, without any flush.
    fn check_saved(&self, state: &TableState) {
        let saved = block_on(self.checkpoints.load(&Key::of(&self.world.view))).unwrap().expect("a checkpoint");
        let (back, tail) = decode(&saved).expect("a state");
        assert_eq!(encode(&back).unwrap(), encode(state).unwrap());
        assert_eq!((tail.records, back.weight()), (saved.log.len() as u64, state.weight()));
    }

    fn write(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            Step::Append { files, merge } => drop(world.commit(Make { merge, ..Make::append(made(files)) })),
            Step::Overwrite { files, remove, ours } => {
                let operation = if ours { Operation::Replace } else { Operation::Overwrite };
                let (remove, instance) = (chosen(world, remove), ours.then(|| "one".into()));
                world.commit(Make { add: made(files), remove, instance, ..Make::new(operation) });
            }
            Step::Delete { remove } => drop(world.commit(Make::delete(chosen(world, remove)))),
            Step::RewriteManifests => drop(world.rewrite_manifests()),
            Step::Replace { files } => drop(world.commit(Make { orphan: true, ..Make::append(made(files)) })),
            Step::Rollback(n) => world.rollback(n),
            Step::Jump(to) => {
                let ids: Vec<i64> = world.view.snapshots.keys().copied().collect();
                if !ids.is_empty() {
                    world.set_head(*to.get(&ids));
                }
            }
            Step::Expire(keep) => world.expire(keep),
            Step::DropSilently(which) => {
                let drop_silently = chosen(world, which);
                world.commit(Make { drop_silently, ..Make::new(Operation::Overwrite) });
            }
            Step::AddSilently(draw) => {
                world.commit(Make { add_silently: made(vec![draw]), ..Make::new(Operation::Append) });
            }
            Step::Look { .. } | Step::StaleLook(_) | Step::Restart { .. } => unreachable!("not a write"),
        }
    }

    /// The law: after a look that was not refused as stale, what is known equals
    /// the recomputation of what was looked at. A fresh load is never stale.
    fn look(&mut self, load: &Fake, fresh: bool) {
        // a few stale looks in a row may mean that the table was set back
        self.now_ms += 20_000;
        let absorbed = block_on(self.orient.absorb(load, SCALE, self.now_ms)).unwrap();
        if absorbed.how == How::Stale {
            assert!(!fresh, "a fresh load was taken for a stale one");
            return;
        }
        let right = block_on(recompute(load, SCALE)).unwrap();
        assert_eq!(absorbed.state.layout, right);
        self.check_saved(&absorbed.state);
        let cost = afterwrite::model::policy::Policy::default().cost;
        let table = table_traits(&absorbed.state, &cost, self.now_ms);
        assert!((0.0..=1.0).contains(&table.file_entropy_normalized) && (0.0..=1.0).contains(&table.delete_ratio));
    }
}

fn made(files: Vec<Draw>) -> Vec<File> {
    files.into_iter().map(|d| file(d.content, &d.partition, d.bytes, d.records)).collect()
}

/// Those live files whose place is a bit of `mask`.
fn chosen(world: &World, mask: u16) -> BTreeSet<FileKey> {
    let keys = world.live_keys().into_iter().enumerate();
    keys.filter(|(i, _)| mask >> (i % 16) & 1 == 1).map(|(_, key)| key).collect()
}

#[tokio::test]
async fn a_recomputation_tells_how_many_manifests_are_read_of_how_many() {
    let mut world = World::with([data(&part("a"), 10, 1)]);
    world.commit(Make::append([data(&part("b"), 10, 1)]));
    world.commit(Make::append([data(&part("c"), 10, 1)]));
    let told = std::sync::Mutex::new(Vec::new());
    let watch = |done, total| told.lock().unwrap().push((done, total));
    let layout = recompute_watched(&world.load(), SCALE, &watch).await.unwrap();
    assert_eq!(layout.partitions().len(), 3);
    assert_eq!(told.into_inner().unwrap(), [(0, 3), (1, 3), (2, 3), (3, 3)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_known_equals_a_recomputation(setting in setting(), steps in prop::collection::vec(step(), 1..40)) {
        let mut play = Play::new(&setting);
        for step in steps {
            play.step(step);
        }
        play.step(Step::Look { times: 1 });
    }
}
