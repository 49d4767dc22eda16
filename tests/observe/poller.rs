use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwrite::lake::clock::Chance;
use afterwrite::lake::{self, Format, Pointer, Table};
use afterwrite::model::ident::TableName;
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::poll::{self, Found, Poller};
use afterwrite::observe::{Inbox, Known, Roster};
use tokio_util::sync::CancellationToken;

use super::{HandClock, free, name};

/// A catalog whose tables a test sets by hand.
#[derive(Default)]
struct Shelf {
    tables: Mutex<Option<Vec<(String, String)>>>,
    asked: Mutex<Vec<i64>>,
    hangs: AtomicBool,
}

impl Shelf {
    fn set(&self, tables: &[(&str, &str)]) {
        *self.tables.lock().unwrap() = Some(tables.iter().map(|(t, p)| ((*t).into(), (*p).into())).collect());
    }

    fn down(&self) {
        *self.tables.lock().unwrap() = None;
    }
}

struct Shop {
    shelf: Arc<Shelf>,
    clock: Arc<HandClock>,
}

#[async_trait::async_trait]
impl Format for Shop {
    fn catalogs(&self) -> Vec<String> {
        vec!["lake".into()]
    }

    async fn list(&self, _: &str) -> lake::Result<Vec<Pointer>> {
        use afterwrite::lake::clock::Clock;
        self.shelf.asked.lock().unwrap().push(self.clock.now_ms());
        if self.shelf.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let tables = self.shelf.tables.lock().unwrap();
        let tables = tables.as_ref().ok_or_else(|| lake::Error::unreachable("catalog lake", anyhow::anyhow!("connection refused")))?;
        Ok(tables.iter().map(|(t, p)| Pointer { name: name(t), metadata_location: p.clone() }).collect())
    }

    async fn load(&self, _: &TableName, _: &str) -> lake::Result<Option<Arc<dyn Table>>> {
        Ok(None)
    }
}

struct Zero;

impl Chance for Zero {
    fn next(&self) -> u64 {
        0
    }
}

struct World {
    shelf: Arc<Shelf>,
    clock: Arc<HandClock>,
    inbox: Inbox,
    roster: Arc<Roster>,
    poller: Arc<Poller>,
}

fn world(limits: Limits) -> World {
    let clock = HandClock::at(0);
    let shelf = Arc::new(Shelf::default());
    let inbox = Inbox::new(clock.clone(), limits);
    let roster = Arc::new(Roster::new(["lake".to_owned()]));
    let poller = Arc::new(Poller {
        catalog: "lake".into(),
        format: Arc::new(Shop { shelf: shelf.clone(), clock: clock.clone() }),
        inbox: inbox.clone(),
        roster: roster.clone(),
        clock: clock.clone(),
        chance: Arc::new(Zero),
        limits: poll::Limits { min_ms: 1000, max_ms: 8000, patience_ms: 30_000 },
        references: vec!["main".into()],
        proxied: true,
    });
    World { shelf, clock, inbox, roster, poller }
}

fn drain(inbox: &Inbox) -> Vec<String> {
    let mut tables: Vec<String> = std::iter::from_fn(|| inbox.try_next())
        .map(|look| {
            let table = look.name.table.clone();
            inbox.done(look);
            table
        })
        .collect();
    tables.sort();
    tables
}

#[tokio::test]
async fn new_moved_and_vanished_tables_are_looked_at_and_others_are_not() {
    let w = world(free());
    w.shelf.set(&[("a", "1"), ("b", "1"), ("c", "1")]);
    assert_eq!(w.poller.once().await.unwrap().moved, [name("a"), name("b"), name("c")]);
    assert_eq!(drain(&w.inbox), ["a", "b", "c"]);
    w.shelf.set(&[("a", "1"), ("b", "2"), ("d", "1")]);
    let found = w.poller.once().await.unwrap();
    assert_eq!(found, Found { tables: 3, moved: vec![name("b"), name("d")], vanished: vec![name("c")], left: 0 });
    assert_eq!(drain(&w.inbox), ["b", "c", "d"]);
    assert_eq!(w.poller.once().await.unwrap(), Found { tables: 3, ..Found::default() });
    assert_eq!(drain(&w.inbox), [""; 0]);
}

#[tokio::test]
async fn a_table_that_a_look_has_read_at_its_pointer_is_not_looked_at_again() {
    let w = world(free());
    w.shelf.set(&[("a", "1")]);
    w.poller.once().await.unwrap();
    drain(&w.inbox);
    w.shelf.set(&[("a", "2")]);
    w.roster.looked(&name("a"), "2");
    assert_eq!(w.poller.once().await.unwrap().moved, []);
    w.roster.looked(&name("a"), "1");
    assert_eq!(w.poller.once().await.unwrap().moved, [name("a")], "an older look hides nothing");
}

#[tokio::test]
async fn a_table_that_a_full_inbox_refused_is_news_again_the_next_time() {
    let w = world(Limits { max_tables: 1, ..free() });
    w.shelf.set(&[("a", "1"), ("b", "1")]);
    let found = w.poller.once().await.unwrap();
    assert_eq!((found.moved, found.left), (vec![name("a")], 1));
    assert_eq!(drain(&w.inbox), ["a"]);
    assert_eq!(w.poller.once().await.unwrap().moved, [name("b")]);
    w.shelf.set(&[]);
    let found = w.poller.once().await.unwrap();
    assert_eq!((found.vanished, found.left), (vec![name("b")], 1), "b waits already and is merged");
    assert_eq!(drain(&w.inbox), ["b"]);
    assert_eq!(w.poller.once().await.unwrap().vanished, [name("a")]);
}

#[tokio::test]
async fn a_catalog_that_is_down_keeps_what_was_known_and_is_told_in_health() {
    let w = world(free());
    assert_eq!(w.roster.known(&name("a")), Known::NotYet);
    w.shelf.set(&[("a", "1")]);
    w.poller.once().await.unwrap();
    drain(&w.inbox);
    w.shelf.down();
    assert_eq!(w.poller.once().await.unwrap_err().to_string(), "catalog lake: connection refused");
    w.poller.once().await.unwrap_err();
    let health = w.roster.health();
    assert_eq!((health[0].tables, health[0].failures, health[0].error.as_deref()), (1, 2, Some("catalog lake: connection refused")));
    assert_eq!((w.roster.known(&name("a")), w.roster.known(&name("x"))), (Known::Listed, Known::NotListed));
    assert_eq!(w.roster.known(&TableName::new("pond", "db", "a")), Known::NoCatalog);
    w.shelf.set(&[("a", "1")]);
    assert_eq!(w.poller.once().await.unwrap(), Found { tables: 1, ..Found::default() }, "nothing moved meanwhile");
    assert_eq!(w.roster.health()[0].failures, 0);
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tokio::test]
async fn the_poller_slows_down_when_nothing_moves_speeds_up_when_something_does_and_survives_failures() {
    let w = world(free());
    w.shelf.set(&[]);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (poller, stop) = (w.poller.clone(), stop.clone());
        async move { poller.run(stop).await }
    });
    let gaps = |w: &World| {
        let asked = w.shelf.asked.lock().unwrap();
        asked.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
    };
    settle().await;
    for _ in 0..200 {
        w.clock.pass(100);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    settle().await;
    // 1501 → 2252 → 3379 → 5069 → 7604 ms, seen on a clock of 100 ms steps
    let quiet = gaps(&w);
    assert_eq!(quiet, [1600, 2300, 3400, 5100], "{quiet:?}");
    w.shelf.down();
    for _ in 0..300 {
        w.clock.pass(100);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    settle().await;
    let down = gaps(&w);
    assert!(down.len() >= 7 && down[5..].iter().all(|g| *g == 8000), "asked on, at the longest interval: {down:?}");
    w.shelf.set(&[("a", "1")]);
    for _ in 0..200 {
        w.clock.pass(100);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    settle().await;
    let news = gaps(&w);
    assert!(news[down.len()..].contains(&4000), "half the interval after news: {news:?}");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_catalog_that_never_answers_counts_as_down() {
    let w = world(free());
    w.shelf.hangs.store(true, Ordering::SeqCst);
    let asking = tokio::spawn({
        let poller = w.poller.clone();
        async move { poller.once().await }
    });
    settle().await;
    w.clock.pass(29_999);
    settle().await;
    assert!(!asking.is_finished());
    w.clock.pass(1);
    assert_eq!(asking.await.unwrap().unwrap_err().to_string(), "catalog lake: no answer within 30000 ms");
    assert_eq!(w.roster.health()[0].failures, 1);
}

#[tokio::test]
async fn a_sender_is_told_when_its_table_was_not_listed() {
    let w = world(free());
    assert_eq!(w.roster.note(&name("a")), "", "nothing is known yet");
    w.shelf.set(&[("a", "1")]);
    w.poller.once().await.unwrap();
    assert_eq!(w.roster.note(&name("a")), "");
    let told = "catalog `lake` did not list `lake.db.b` when it was last polled; it will be looked for, since it may be new";
    assert_eq!(w.roster.note(&name("b")), told);
}

/// How often in a row the table moved by polls alone, as a listing at a pointer would find it.
fn missed(w: &World, pointer: &str) -> Vec<u32> {
    let pointers = vec![Pointer { name: name("a"), metadata_location: pointer.into() }];
    w.roster.listed("lake", pointers, 0).missed.into_iter().map(|(_, in_a_row)| in_a_row).collect()
}

#[tokio::test]
async fn h102_moves_that_only_polls_find_are_counted_until_a_door_tells_of_one() {
    let w = world(free());
    w.shelf.set(&[("a", "1")]);
    w.poller.once().await.unwrap();
    drain(&w.inbox);
    w.roster.looked(&name("a"), "1");
    for pointer in ["2", "3"] {
        w.shelf.set(&[("a", pointer)]);
        w.poller.once().await.unwrap();
        drain(&w.inbox);
        // the look that the poll asked for
        w.roster.looked(&name("a"), pointer);
    }
    assert_eq!(missed(&w, "4"), [3]);
    // a look at what no poll has found yet
    w.roster.looked(&name("a"), "4");
    assert_eq!(missed(&w, "4"), [0; 0]);
    assert_eq!(missed(&w, "5"), [1]);
}

#[tokio::test]
async fn h102_a_move_whose_look_still_waits_was_told_by_a_door() {
    let w = world(free());
    w.shelf.set(&[("a", "1")]);
    w.poller.once().await.unwrap();
    w.shelf.set(&[("a", "2")]);
    w.poller.once().await.unwrap();
    assert_eq!(missed(&w, "3"), [1], "the first look was not made yet, so the second move was no surprise");
}

#[tokio::test]
async fn a_listing_that_is_wanted_comes_after_the_shortest_interval_and_once() {
    let w = world(free());
    w.shelf.set(&[("a", "1")]);
    let (poller, stop) = (w.poller.clone(), CancellationToken::new());
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { poller.run(stop).await }
    });
    let asked = || w.shelf.asked.lock().unwrap().clone();
    // without news the interval grows to its longest
    while asked().last().is_none_or(|last| *last < 60_000) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        w.clock.pass(500);
    }
    let before = asked();
    let now = *before.last().unwrap();
    for _ in 0..5 {
        w.roster.list_soon("lake");
    }
    w.roster.list_soon("no such catalog");
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        w.clock.pass(500);
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let new: Vec<i64> = asked()[before.len()..].iter().map(|at| at - now).collect();
    assert!(new.len() == 1 && (1_000..=2_000).contains(&new[0]), "{new:?}");
    stop.cancel();
    running.await.unwrap();
}
