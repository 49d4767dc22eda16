//! How long a client is held while the outcome of its commit is looked for, by a
//! clock that stands still but for the proxy's own pauses.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwrite::lake::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::upstream::{Reply, UUID, append, of_table};
use super::{Answer, Stage};

const T: &str = "/v1/namespaces/db/tables/t";
const U: &str = "/v1/namespaces/db/tables/u";
const TRANSACTION: &str = "/v1/transactions/commit";
const DEADLINE_MS: i64 = 30_000;

/// Time passes only when [`StepClock::pass`] says so; every sleep is noted.
#[derive(Default)]
struct StepClock {
    now_ms: AtomicI64,
    sleeps: Mutex<Vec<i64>>,
    changed: Notify,
}

impl StepClock {
    /// How long the sleep of this number is, once it has begun.
    async fn begun(&self, number: usize) -> i64 {
        loop {
            let changed = self.changed.notified();
            if let Some(ms) = self.sleeps.lock().unwrap().get(number) {
                return *ms;
            }
            changed.await;
        }
    }

    fn pass(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

#[async_trait::async_trait]
impl Clock for StepClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    async fn sleep(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).unwrap();
        let until = self.now_ms() + ms;
        self.sleeps.lock().unwrap().push(ms);
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            if self.now_ms() >= until {
                return;
            }
            changed.await;
        }
    }
}

/// Sends a commit to upstream's scripted answers and lets each pause of the proxy
/// pass. Gives back the answer and when looks were made.
async fn committed(scripts: &[(&str, Vec<Reply>)], target: &str, body: &Value) -> (Answer, Vec<i64>) {
    let clock = Arc::new(StepClock::default());
    let stage = Stage::by(clock.clone(), |options| options.heal_deadline_ms = DEADLINE_MS).await;
    for (path, replies) in scripts {
        stage.world.script(path, replies.clone());
    }
    let body = body.to_string();
    let looks = Mutex::new(Vec::new());
    let passing = async {
        // a look has its patience, and then the pause
        for look in 0.. {
            clock.begun(2 * look).await;
            looks.lock().unwrap().push(clock.now_ms());
            clock.pass(clock.begun(2 * look + 1).await);
        }
    };
    let answer = tokio::select! {
        answer = stage.commit(target, &body) => answer.unwrap(),
        () = passing => unreachable!("it never ends"),
    };
    assert_eq!(stage.world.count("POST"), 1);
    (answer, looks.into_inner().unwrap())
}

/// When looks are made until the deadline.
fn all_looks() -> Vec<i64> {
    let mut at = vec![0, 100, 300, 700];
    at.extend((0..29).map(|second| 1_500 + 1_000 * second));
    at.push(DEADLINE_MS);
    at
}

/// A table of three fields, under its second schema, spec and sort order, on which
/// snapshot 1 was committed with sequence number 4.
fn metadata() -> Value {
    json!({
        "table-uuid": UUID, "last-sequence-number": 4, "last-column-id": 3, "last-partition-id": 1001,
        "current-schema-id": 1, "schemas": [{"schema-id": 0}, {"schema-id": 1}],
        "default-spec-id": 1, "partition-specs": [{"spec-id": 0}, {"spec-id": 1}],
        "default-sort-order-id": 1, "sort-orders": [{"order-id": 0}, {"order-id": 1}],
        "current-snapshot-id": 1, "refs": {"main": {"snapshot-id": 1, "type": "branch"}}, "snapshots": [{"snapshot-id": 1}],
    })
}

fn loaded(metadata: &Value) -> Reply {
    Reply::json(200, &json!({"metadata-location": "s3://b/1.json", "metadata": metadata}))
}

fn refused(status: u16) -> Reply {
    Reply::json(status, &json!({"error": {"message": "upstream's own", "type": "CommitFailedException", "code": status}}))
}

/// An append to snapshot 1 that asserts something more.
fn asserting(more: Value) -> Value {
    let mut body = append(Some(1), &[2]);
    body["updates"][0]["snapshot"]["sequence-number"] = json!(5);
    body["requirements"].as_array_mut().unwrap().push(more);
    body
}

fn requirements(id: i64) -> [Value; 5] {
    [
        json!({"type": "assert-last-assigned-field-id", "last-assigned-field-id": id + 2}),
        json!({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": id + 1000}),
        json!({"type": "assert-current-schema-id", "current-schema-id": id}),
        json!({"type": "assert-default-spec-id", "default-spec-id": id}),
        json!({"type": "assert-default-sort-order-id", "default-sort-order-id": id}),
    ]
}

async fn single(status: u16, body: &Value, loads: &[Value]) -> (u16, bool, Vec<i64>) {
    let replies = [refused(status)].into_iter().chain(loads.iter().map(loaded)).collect();
    let (answer, looks) = committed(&[(T, replies)], T, body).await;
    (answer.status, answer.text().contains("upstream's own"), looks)
}

#[tokio::test]
async fn a_refusal_that_the_table_explains_is_told_without_a_wait() {
    for requirement in requirements(0) {
        let told = single(409, &asserting(requirement.clone()), &[metadata()]).await;
        assert_eq!(told, (409, true, vec![0]), "{requirement}");
    }
}

#[tokio::test]
async fn a_refusal_that_nothing_explains_is_held_to_the_deadline_and_not_longer() {
    for requirement in requirements(1).into_iter().chain(requirements(2)) {
        let told = single(409, &asserting(requirement.clone()), &[metadata()]).await;
        assert_eq!(told, (409, true, all_looks()), "{requirement} holds, or may come to hold");
    }
}

/// It may be a copy from before the client's own table was made.
#[tokio::test]
async fn another_table_under_the_name_proves_nothing_and_a_later_look_tells() {
    let mut body = append(Some(1), &[2]);
    body["updates"][0]["snapshot"]["sequence-number"] = json!(5);
    let mut create = append(None, &[2]);
    create["requirements"] = json!([{"type": "assert-create"}]);
    create["updates"].as_array_mut().unwrap().insert(0, json!({"action": "assign-uuid", "uuid": UUID}));
    let mut other = metadata();
    other["table-uuid"] = json!("00000000-0000-0000-0000-000000000001");
    let mut landed = metadata();
    landed["snapshots"].as_array_mut().unwrap().push(json!({"snapshot-id": 2, "parent-snapshot-id": 1}));
    for body in [&body, &create] {
        let told = single(409, body, &[other.clone(), other.clone(), landed.clone()]).await;
        assert_eq!((told.0, told.2), (200, vec![0, 100, 300]));
        assert_eq!(single(409, body, &[other.clone()]).await, (409, true, all_looks()));
    }
}

#[tokio::test]
async fn only_what_can_never_hold_again_shortens_the_wait_after_an_answer_that_is_no_refusal() {
    let never = requirements(0).into_iter().take(2);
    let maybe = requirements(0).into_iter().skip(2);
    for requirement in never {
        assert_eq!(single(504, &asserting(requirement), &[metadata()]).await, (504, true, vec![0]));
    }
    for requirement in maybe {
        assert_eq!(single(504, &asserting(requirement), &[metadata()]).await, (504, true, all_looks()));
    }
}

#[tokio::test]
async fn a_commit_that_is_seen_to_land_late_is_told_as_success_when_it_is_seen() {
    let mut landed = metadata();
    landed["snapshots"].as_array_mut().unwrap().push(json!({"snapshot-id": 2, "parent-snapshot-id": 1}));
    landed["refs"]["main"]["snapshot-id"] = json!(2);
    // its own landing may be what its requirement does not hold for any more
    landed["last-column-id"] = json!(9);
    let loads = [metadata(), metadata(), landed];
    let (status, _, looks) = single(409, &asserting(requirements(1)[0].clone()), &loads).await;
    assert_eq!((status, looks), (200, vec![0, 100, 300]));
}

#[tokio::test]
async fn a_commit_that_can_land_no_more_is_told_when_that_is_seen() {
    let mut evolved = metadata();
    evolved["last-column-id"] = json!(4);
    let loads = [metadata(), metadata(), metadata(), evolved];
    assert_eq!(single(409, &asserting(requirements(1)[0].clone()), &loads).await, (409, true, vec![0, 100, 300, 700]));
}

#[tokio::test]
async fn a_load_that_lags_behind_the_commits_own_base_shortens_nothing() {
    let mut behind = metadata();
    behind["last-sequence-number"] = json!(3);
    assert_eq!(single(409, &asserting(requirements(0)[0].clone()), &[behind]).await, (409, true, all_looks()));
    // the branch of the older table stands before the parent, with its whole history
    let mut before = metadata();
    before["last-sequence-number"] = json!(2);
    before["refs"]["main"]["snapshot-id"] = json!(7);
    before["snapshots"] = json!([{"snapshot-id": 7}]);
    let mut body = append(Some(1), &[2]);
    body["updates"][0]["snapshot"]["sequence-number"] = json!(5);
    assert_eq!(single(409, &body, &[before.clone()]).await, (409, true, all_looks()));
    // rolled back, and it may come forward again until the commit's number is another's
    before["last-sequence-number"] = json!(4);
    assert_eq!(single(409, &body, &[before.clone()]).await, (409, true, all_looks()));
    before["last-sequence-number"] = json!(5);
    assert_eq!(single(409, &body, &[before]).await, (409, true, vec![0]));
}

#[tokio::test]
async fn one_refused_table_refuses_the_transaction() {
    let body = json!({"table-changes": [of_table("t", append(Some(1), &[2])), of_table("u", asserting(requirements(0)[0].clone()))]});
    let clock = Arc::new(StepClock::default());
    let stage = Stage::by(clock.clone(), |options| options.heal_deadline_ms = DEADLINE_MS).await;
    for (path, reply) in [(TRANSACTION, refused(409)), (T, loaded(&metadata())), (U, loaded(&metadata()))] {
        stage.world.script(path, vec![reply]);
    }
    let answer = stage.commit(TRANSACTION, &body.to_string()).await.unwrap();
    assert_eq!((answer.status, answer.text().contains("upstream's own"), clock.now_ms()), (409, true, 0));
    assert_eq!((stage.world.count("POST"), stage.world.count("GET")), (1, 2));
}

fn refused_with(status: u16, kind: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"error": {"message": message, "type": kind, "code": status}}))
}

/// The second copy of a staged snapshot asserts nothing that the first has changed:
/// the catalog finds it there already, and that is no conflict to it.
#[tokio::test]
async fn a_refusal_that_speaks_of_the_commits_own_snapshot_is_looked_after() {
    let mut staged = append(Some(1), &[2]);
    staged["requirements"] = json!([{"type": "assert-table-uuid", "uuid": UUID}]);
    staged["updates"].as_array_mut().unwrap().pop();
    let mut landed = metadata();
    landed["snapshots"].as_array_mut().unwrap().push(json!({"snapshot-id": 2, "parent-snapshot-id": 1}));
    for status in [400, 409, 422] {
        let words = || refused_with(status, "ValidationException", "Snapshot already exists for id: 2");
        let seen = [words(), loaded(&metadata()), loaded(&landed)];
        let (answer, looks) = committed(&[(T, seen.to_vec())], T, &staged).await;
        assert_eq!((answer.status, looks), (200, vec![0, 100]), "{status}");
        // never shown: a refusal would have the client remove what the table may name
        let (answer, looks) = committed(&[(T, vec![words(), loaded(&metadata())])], T, &staged).await;
        assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (502, Some("CommitStateUnknownException")), "{status}");
        assert!(answer.text().contains("Snapshot already exists for id: 2"), "{}", answer.text());
        assert_eq!(looks, all_looks());
    }
    let other = refused_with(400, "ValidationException", "Snapshot already exists for id: 22");
    let (answer, looks) = committed(&[(T, vec![other])], T, &staged).await;
    assert_eq!((answer.status, looks), (400, vec![]), "a refusal that speaks of another is told at once");
}

/// Clients on Iceberg's Java library offer packings that the proxy does not read.
#[tokio::test]
async fn an_answer_is_asked_for_in_a_packing_in_which_its_words_are_read() {
    let stage = Stage::new(30_000).await;
    stage.world.table(T, &[1]);
    let accepts = |path: &str| {
        let hits = stage.world.hits();
        let hit = hits.iter().rfind(|hit| hit.line().contains(path)).unwrap();
        super::header(&hit.head, "accept-encoding")
    };
    let offered = ["Accept-Encoding: gzip, x-gzip, deflate, br, zstd"];
    stage.ask("POST", T, &offered, append(Some(1), &[2]).to_string().as_bytes()).await.unwrap();
    assert_eq!(accepts("POST").as_deref(), Some("gzip"));
    stage.ask("GET", T, &offered, b"").await.unwrap();
    assert_eq!(accepts("GET").as_deref(), Some("gzip, x-gzip, deflate, br, zstd"), "everything else is the client's");
}

#[tokio::test]
async fn a_conflict_that_names_the_commits_own_snapshot_as_the_head_is_never_told_as_one() {
    let words = || refused_with(409, "CommitFailedException", "Requirement failed: branch main has changed: expected id 1 != 2");
    let (answer, looks) = committed(&[(T, vec![words(), loaded(&metadata())])], T, &append(Some(1), &[2])).await;
    assert_eq!((answer.status, looks), (502, all_looks()));
    // but where it is proven all the same that it can come no more
    let mut beaten = metadata();
    beaten["refs"]["main"]["snapshot-id"] = json!(8);
    beaten["snapshots"].as_array_mut().unwrap().push(json!({"snapshot-id": 8, "parent-snapshot-id": 1}));
    let (answer, looks) = committed(&[(T, vec![words(), loaded(&beaten)])], T, &append(Some(1), &[2])).await;
    assert_eq!((answer.status, looks), (409, vec![0]));
}

const KEY: &str = "Idempotency-Key: 019a5d2e-7c1b-7f3a-8b1c-0123456789ab";

/// How long a refused commit that carries a key is held, by a catalog whose config
/// answers said this of keys.
async fn keyed(promises: &[Value], refusal: Reply, key: &str) -> (u16, usize, i64) {
    let clock = Arc::new(StepClock::default());
    let stage = Stage::by(clock.clone(), |options| options.heal_deadline_ms = DEADLINE_MS).await;
    for promise in promises {
        stage.world.script("/v1/config", vec![Reply::json(200, promise)]);
        assert_eq!(stage.ask("GET", "/v1/config", &[], b"").await.unwrap().status, 200);
    }
    let before = stage.world.count("GET");
    stage.world.script(T, vec![refusal, loaded(&metadata())]);
    let (body, headers) = (append(Some(1), &[2]).to_string(), [key]);
    let passing = async {
        for number in 0.. {
            let pause = clock.begun(number).await;
            if number % 2 == 1 {
                clock.pass(pause);
            }
        }
    };
    let answer = tokio::select! {
        answer = stage.ask("POST", T, &headers, body.as_bytes()) => answer.unwrap(),
        () = passing => unreachable!("it never ends"),
    };
    (answer.status, stage.world.count("GET") - before, clock.now_ms())
}

/// A catalog that knows requests again answers a second copy of one that was applied
/// as it answered the first.
#[tokio::test]
async fn a_conflict_that_cannot_be_an_echo_is_told_without_a_look() {
    let promise = json!({"defaults": {}, "overrides": {}, "idempotency-key-lifetime": "PT30M"});
    let silence = json!({"defaults": {}, "overrides": {}});
    for kind in ["CommitFailedException", "AlreadyExistsException"] {
        let told = keyed(std::slice::from_ref(&promise), refused_with(409, kind, "x"), KEY).await;
        assert_eq!(told, (409, 0, 0), "{kind}");
    }
    let conflict = || refused_with(409, "CommitFailedException", "x");
    let held = [
        ("no promise", keyed(std::slice::from_ref(&silence), conflict(), KEY).await),
        ("nothing was said", keyed(&[], conflict(), KEY).await),
        ("another warehouse promised nothing", keyed(&[silence, promise.clone()], conflict(), KEY).await),
        ("no such key", keyed(std::slice::from_ref(&promise), conflict(), "Idempotency-Key: k1").await),
        ("no word of the catalog", keyed(std::slice::from_ref(&promise), refused_with(409, "InProgress", "x"), KEY).await),
    ];
    for (why, (status, looks, held_ms)) in held {
        assert_eq!((status, looks, held_ms), (409, all_looks().len(), DEADLINE_MS), "{why}");
    }
    // of other answers a key promises nothing
    assert_eq!(keyed(&[promise], refused_with(503, "CommitFailedException", "x"), KEY).await, (503, all_looks().len(), DEADLINE_MS));
}
