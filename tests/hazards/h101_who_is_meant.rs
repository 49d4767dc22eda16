//! H101: a name changes hands: a table is renamed, or dropped and made anew. An
//! event's uuid says which table is meant, whichever door it came through.

use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::clock::SystemChance;
use afterwrite::model::event::{Door, Event, Heard};
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Draft, Record, decode, native_events, notification};
use afterwrite::observe::poll::{Limits, Poller};
use afterwrite::observe::{Entrance, Inbox, Roster};
use afterwrite::orient::Key;
use afterwrite::proto::v1::{CommitEvent, SnapshotChange};
use afterwrite::serve::backend::Backend;
use prost::Message;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::fixture::{Table, row};
use crate::observe::{HandClock, event, free, name};
use crate::proxy::Stage;
use crate::proxy::upstream::{UUID, append};
use crate::whole::world::{Process, World};

/// What a hook says of the head of a table, by a name that it had.
async fn told(table: &Table, by: &TableName) -> Event {
    let view = table.load().await.view;
    Event { table: by.clone(), uuid: Some(view.ident.uuid), ..event("", &[view.head.unwrap()], 0) }
}

/// The snapshot at which a table's layout is known.
async fn known(process: &Process, table: &Table) -> Option<i64> {
    let view = table.load().await.view;
    process.orient.state(&Key::of(&view)).await.and_then(|state| state.layout.head())
}

async fn loads(process: &Process) -> usize {
    process.seen.loads.lock().unwrap().values().sum()
}

#[tokio::test]
async fn h101_an_event_by_a_tables_old_name_is_a_look_at_its_new_one() {
    let world = World::new("");
    let mut table = world.table(Table::plain(), "t").await;
    table.append([row(1, "v", 0)]).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let (old, new) = (table.name.clone(), TableName::new("lake", "ns", "renamed"));
    assert!(world.catalog.rename(&old, &new));
    table.name = new.clone();
    process.look_at(&table).await;
    table.append([row(2, "v", 0)]).await;
    let head = table.head().await;
    assert_ne!(known(&process, &table).await, Some(head));
    assert_eq!(process.ooda.hear(told(&table, &old).await).heard, Heard::Accepted);
    process.rest().await;
    assert_eq!(known(&process, &table).await, Some(head));
    process.stop().await;
}

#[tokio::test]
async fn h101_an_event_of_a_table_that_was_made_anew_since_changes_nothing_of_the_new_one() {
    let world = World::new("");
    let old = world.table(Table::plain(), "t").await;
    old.append([row(1, "v", 0)]).await;
    let of_old = told(&old, &old.name).await;
    world.catalog.drop_table(&old.name);
    let new = world.table(Table::plain(), "t").await;
    new.append([row(2, "v", 0)]).await;
    let process = world.start().await;
    process.look_at(&new).await;
    let (head, before) = (new.head().await, loads(&process).await);
    // one of its snapshots has an id that the new one knows too, the other is nowhere
    let snapshots = [of_old.snapshots.clone(), vec![424_242]].concat();
    assert_eq!(process.ooda.hear(Event { snapshots, ..of_old.clone() }).heard, Heard::Accepted);
    process.until("a look", async || loads(&process).await > before).await;
    assert_eq!(known(&process, &new).await, Some(head));
    // it is looked for with growing pauses until the poll interval is over, and let go
    process.clock_passes(60_000);
    process.rest().await;
    let looks = loads(&process).await - before;
    assert!(looks < 10, "{looks}");
    process.pass(3_600_000).await;
    assert_eq!(loads(&process).await - before, looks);
    let old = Key::new(afterwrite::model::ident::TableIdent::iceberg(of_old.uuid.unwrap()), MAIN);
    assert!(process.orient.state(&old).await.is_none());
    world.layout_is_right(&process, &new).await;
    process.stop().await;
}

#[tokio::test]
async fn h101_a_table_whose_new_name_is_not_known_is_found_by_a_listing_at_once() {
    let world = World::new("");
    let mut table = world.table(Table::plain(), "t").await;
    table.append([row(1, "v", 0)]).await;
    let process = world.start().await;
    let Poller { format, inbox, roster, clock, .. } = &process.poller;
    let poller = Poller {
        catalog: "lake".into(),
        format: Arc::clone(format),
        inbox: inbox.clone(),
        roster: Arc::clone(roster),
        clock: Arc::clone(clock),
        chance: Arc::new(SystemChance),
        limits: Limits { min_ms: 100, max_ms: 10_000_000, ..Limits::default() },
        references: vec![MAIN.into()],
        proxied: false,
    };
    let stop = CancellationToken::new();
    let polling = tokio::spawn({
        let stop = stop.clone();
        async move { poller.run(stop).await }
    });
    // without news the next listing is far away
    for _ in 0..2_000 {
        process.clock_passes(1_000);
        tokio::task::yield_now().await;
    }
    process.rest().await;
    let old = table.name.clone();
    table.name = TableName::new("lake", "ns", "renamed");
    assert!(world.catalog.rename(&old, &table.name));
    table.append([row(2, "v", 0)]).await;
    let head = table.head().await;
    process.ooda.hear(told(&table, &old).await);
    process.until("the look at the new name", async || known(&process, &table).await == Some(head)).await;
    stop.cancel();
    process.clock_passes(1);
    polling.await.unwrap();
    process.stop().await;
}

#[test]
fn h101_one_snapshot_id_of_two_tables_is_two_commits() {
    let inbox = Inbox::new(HandClock::at(0), free());
    let of = |uuid: Option<u128>| inbox.hear(Event { uuid: uuid.map(Uuid::from_u128), ..event("t", &[7], 0) });
    assert_eq!([of(Some(1)), of(Some(1)), of(None)], [Heard::Accepted, Heard::Duplicate, Heard::Duplicate]);
    assert_eq!([of(Some(2)), of(Some(2))], [Heard::Accepted, Heard::Duplicate]);
    let look = inbox.try_next().unwrap();
    assert_eq!((look.hints.as_slice(), look.uuids.as_slice()), (&[7][..], &[Uuid::from_u128(1), Uuid::from_u128(2)][..]));
    inbox.done(look);
}

/// The uuids that a look has heard, after drafts came in through a door.
fn heard(drafts: Vec<Draft>, door: Door) -> Vec<Uuid> {
    let clock = HandClock::at(0);
    let inbox = Inbox::new(clock.clone(), free());
    let entrance = Entrance::new(inbox.clone(), Arc::new(Roster::new(["lake".to_owned()])), clock, vec!["lake".into()]);
    let source = entrance.ledger().source(door, "x");
    for draft in drafts {
        for event in entrance.resolve(draft, door, Some("lake")).unwrap() {
            assert_eq!(entrance.hear(&source, event, None), Heard::Accepted);
        }
    }
    inbox.try_next().unwrap().uuids.clone()
}

#[tokio::test]
async fn h101_every_door_that_knows_the_uuid_passes_it_on() {
    let uuid: Uuid = UUID.parse().unwrap();
    let snapshots = vec![SnapshotChange { snapshot_id: "7".into(), ..SnapshotChange::default() }];
    let own = CommitEvent { table: "lake.db.t".into(), table_uuid: UUID.into(), snapshots, ..CommitEvent::default() };
    let read = |wire, value: &[u8]| heard(decode(wire, &Record::of(value)).unwrap(), Door::Kafka);
    assert_eq!(read(Wire::Protobuf, &own.encode_to_vec()), [uuid]);
    let body = json!({"table": "lake.db.t", "tableUuid": UUID, "snapshots": [{"snapshotId": "7"}]}).to_string();
    assert_eq!(read(Wire::Json, body.as_bytes()), [uuid]);
    let posted = native_events(body.as_bytes(), Door::Http, 0).unwrap().remove(0).event.unwrap();
    assert_eq!(heard(vec![Draft::from(posted)], Door::Http), [uuid]);
    let grpc = afterwrite::observe::grpc::decode(&own, Door::Grpc, 0).unwrap();
    assert_eq!(heard(vec![Draft::from(grpc)], Door::Grpc), [uuid]);
    let change = append(Some(1), &[2]);
    let lakekeeper = json!({"specversion": "1.0", "type": "updateTable", "name": "t", "namespace": "db", "data": change});
    assert_eq!(read(Wire::CloudEvents, lakekeeper.to_string().as_bytes()), [uuid]);
    let connect = crate::observe::recorded("kafka-connect-1.12.jsonl");
    let of_connect = connect.iter().flat_map(|value| decode(Wire::IcebergConnect, &Record::of(value)).unwrap()).take(1).collect();
    assert_eq!(heard(of_connect, Door::Kafka), ["2a2017a3-d761-4a69-aa36-14a4e4832a53".parse::<Uuid>().unwrap()]);
    let at = afterwrite::observe::decode::Foreign { catalog: None, namespace: vec!["db".into()], table: "t".into() };
    let polaris = json!({"notification-type": "UPDATE", "payload": {"table-uuid": UUID}}).to_string();
    assert_eq!(heard(notification(&at, polaris.as_bytes()).unwrap(), Door::Http), [uuid]);
    let stage = Stage::new(1_000).await;
    stage.world.table("/v1/namespaces/db/tables/t", &[1]);
    stage.commit("/v1/namespaces/db/tables/t", &change.to_string()).await.unwrap();
    let look = tokio::time::timeout(Duration::from_secs(5), stage.inbox.next()).await.unwrap().unwrap();
    assert_eq!((look.name.clone(), look.uuids.clone()), (name("t"), vec![uuid]));
    stage.inbox.done(look);
}
