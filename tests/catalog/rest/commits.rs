//! What becomes of commits whose answers are lost, late or wrong: none doubled, none
//! lost, nothing deleted while the outcome is unknown.

use std::time::Duration;

use afterwrite::lake::asserted::Asserted;
use afterwrite::lake::iceberg::catalog::{Answer, Catalog};
use afterwrite::lake::iceberg::commit::find_attempt;
use afterwrite::lake::iceberg::rewrite;
use afterwrite::lake::{Error, NotLanded, Written};
use afterwrite::model::outcome::{Conflict, Outcome, Resolution};
use afterwrite::model::plan::{AttemptId, Plan};
use iceberg::spec::FormatVersion;
use iceberg::{TableRequirement, TableUpdate};

use super::World;
use crate::catalog::{Recorder, set};
use crate::fixture::rest::{Reply, Work};
use crate::fixture::{Table, Watch, row};

/// A rewrite that is ready to be committed through the client.
struct Ready {
    world: World,
    plan: Plan,
    written: Written,
    watch: Watch,
}

impl Ready {
    async fn new() -> Self {
        Self::of(World::new().await).await
    }

    async fn of(world: World) -> Self {
        let first = world.table.append([row(1, "a", 0)]).await;
        world.table.append([row(2, "b", 0)]).await;
        let plan = world.table.plan_all(&first).await;
        let written = world.table.naive_rewrite(&plan).await;
        Self { world, plan, written, watch: Watch::default() }
    }

    async fn commit(&self) -> Outcome {
        let base = self.world.load().await;
        self.world.table.commit_on(&base, &self.plan, &self.written, "a1", &self.watch).await.unwrap()
    }

    /// What a fresh look through the client shows of the attempt.
    async fn look(&self) -> Resolution {
        let asserted = self.watch.asserted.lock().unwrap().last().unwrap().clone();
        find_attempt(&self.world.load().await, &AttemptId("a1".into()), &asserted)
    }

    /// Rows are as they were, with these more; outputs are there.
    async fn check(&self, more: &[&str]) {
        assert_eq!(self.world.table.rows().await, [&["1|a", "2|b"], more].concat());
        for output in &self.written.outputs {
            assert!(self.world.table.catalog.io().exists(&output.path).await.unwrap(), "{} was removed", output.path);
        }
    }

    async fn landed(&self) -> Outcome {
        Outcome::Landed { snapshot_id: self.world.table.head().await }
    }
}

fn wrong_answers() -> Vec<Reply> {
    let mut replies: Vec<Reply> = [429, 500, 502, 503, 504].map(|s| Reply::error(s, "InjectedException")).into();
    replies.push(Reply::Status(502, "<html>bad gateway</html>".into(), vec![]));
    replies.push(Reply::Status(403, "<html>blocked</html>".into(), vec![]));
    replies.push(Reply::Status(409, String::new(), vec![]));
    replies.push(Reply::Status(301, String::new(), vec![("Location", "http://127.0.0.1:1/".into())]));
    replies.push(Reply::Status(204, String::new(), vec![]));
    replies.push(Reply::Status(200, "<html>ok</html>".into(), vec![]));
    replies.push(Reply::Status(200, r#"{"metadata-location":"m","metadata":{"snapshots":[]}}"#.into(), vec![]));
    replies.extend([Reply::Drop, Reply::Cut(0), Reply::Cut(100), Reply::Slow(Duration::from_secs(3))]);
    replies
}

#[tokio::test]
async fn h03_a_commit_that_was_applied_is_found_whatever_its_answer_was() {
    for reply in wrong_answers() {
        let ready = Ready::new().await;
        ready.world.server.fail_commit(Work::Done, reply.clone());
        let outcome = ready.commit().await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{reply:?}: {outcome:?}");
        assert!(NotLanded::from_outcome(&AttemptId("a1".into()), &outcome).is_none());
        assert_eq!(ready.look().await, Resolution::Landed { snapshot_id: ready.world.table.head().await }, "{reply:?}");
        assert_eq!(ready.world.server.commits().len(), 1, "{reply:?} made it ask again");
        ready.check(&[]).await;
    }
}

#[tokio::test]
async fn h03_a_commit_that_may_still_arrive_stays_open_and_does_not_land_twice() {
    for reply in wrong_answers() {
        let ready = Ready::new().await;
        ready.world.server.fail_commit(Work::Later, reply.clone());
        let outcome = ready.commit().await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{reply:?}: {outcome:?}");
        let found = ready.look().await;
        assert!(matches!(found, Resolution::Open { .. }), "{reply:?}: {found:?}");
        assert_eq!(ready.world.server.arrive().await, [200]);
        assert_eq!(ready.look().await, Resolution::Landed { snapshot_id: ready.world.table.head().await });
        ready.check(&[]).await;
    }
}

#[tokio::test]
async fn h03_only_a_taken_sequence_number_proves_that_a_commit_cannot_arrive() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    // metadata that moves without the branch proves nothing: the request asserts the branch
    ready.world.table.set_property("k", "v").await;
    assert!(matches!(ready.look().await, Resolution::Open { .. }));
    ready.world.table.append([row(3, "c", 0)]).await;
    assert_eq!(ready.look().await, Resolution::NotLanded);
    assert_eq!(ready.world.server.arrive().await, [409]);
    ready.check(&["3|c"]).await;
}

#[tokio::test]
async fn h03_a_commit_arrives_after_a_change_of_properties() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    ready.world.table.set_property("k", "v").await;
    assert_eq!(ready.world.server.arrive().await, [200], "a REST catalog does not compare metadata locations");
    assert_eq!(ready.look().await, Resolution::Landed { snapshot_id: ready.world.table.head().await });
    ready.check(&[]).await;
}

#[tokio::test]
async fn h03_a_branch_that_is_rolled_back_to_the_asserted_head_proves_nothing_by_its_head_alone() {
    let ready = Ready::new().await;
    let base = ready.world.table.head().await;
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    ready.world.table.append([row(3, "c", 0)]).await;
    ready.world.table.set_main(base).await;
    let found = ready.look().await;
    assert!(matches!(found, Resolution::Open { .. }), "the branch stands at the asserted head again, yet {found:?}");
    // the sequence number is taken for good: the request is refused even so
    assert_eq!(ready.world.server.arrive().await, [400]);
    ready.check(&[]).await;
}

#[tokio::test]
async fn h03_in_format_1_an_hour_of_the_tables_own_time_must_pass() {
    let table = Table::plain().v1().on_disk().create().await;
    let ready = Ready::of(World::of(table, &[]).await).await;
    ready.world.server.fail_commit(Work::NotDone, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    ready.world.table.append([row(3, "c", 0)]).await;
    assert!(matches!(ready.look().await, Resolution::Open { .. }));
    ready.check(&["3|c"]).await;
}

#[tokio::test]
async fn h04_a_conflict_is_believed_when_the_table_shows_it() {
    let ready = Ready::new().await;
    let base = ready.world.load().await;
    ready.world.table.append([row(3, "c", 0)]).await;
    let outcome = ready.world.table.commit_on(&base, &ready.plan, &ready.written, "a1", &ready.watch).await.unwrap();
    assert_eq!(outcome, Outcome::Conflict(Conflict::MetadataMoved));
    ready.check(&["3|c"]).await;
}

#[tokio::test]
async fn h04_a_conflict_that_our_own_doubled_request_caused_is_a_success() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Done, Reply::error(409, "CommitFailedException"));
    assert_eq!(ready.commit().await, ready.landed().await);
    ready.check(&[]).await;
}

#[tokio::test]
async fn h04_a_conflict_while_the_first_copy_is_still_worked_on_is_unknown() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Later, Reply::error(409, "CommitFailedException"));
    let outcome = ready.commit().await;
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(ready.world.server.arrive().await, [200]);
    assert_eq!(ready.look().await, Resolution::Landed { snapshot_id: ready.world.table.head().await });
    ready.check(&[]).await;
}

#[tokio::test]
async fn h04_a_conflict_that_cannot_be_looked_at_is_unknown() {
    for unseen in [Reply::error(500, "InjectedException"), Reply::Drop] {
        let ready = Ready::new().await;
        let base = ready.world.load().await;
        // given a first copy that is still worked on, a second one refused, and a table
        // that cannot be seen right then
        ready.world.server.fail_commit(Work::Later, Reply::error(409, "CommitFailedException"));
        for _ in 0..4 {
            ready.world.server.fail(|asked| asked.method == "GET" && asked.target.contains("snapshots=refs"), Work::Done, unseen.clone());
        }
        let outcome = ready.world.table.commit_on(&base, &ready.plan, &ready.written, "a1", &ready.watch).await.unwrap();
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{unseen:?}: {outcome:?}");
        assert!(NotLanded::from_outcome(&AttemptId("a1".into()), &outcome).is_none());
        assert_eq!(ready.world.server.arrive().await, [200]);
        assert_eq!(ready.look().await, Resolution::Landed { snapshot_id: ready.world.table.head().await });
        ready.check(&[]).await;
    }
}

#[tokio::test]
async fn a_refusal_of_the_catalog_itself_is_one() {
    for (status, kind) in [(403, "ForbiddenException"), (400, "BadRequestException"), (422, "UnprocessableEntityException")] {
        let ready = Ready::new().await;
        ready.world.server.fail_commit(Work::NotDone, Reply::error(status, kind));
        let outcome = ready.commit().await;
        assert!(matches!(&outcome, Outcome::Rejected { reason } if reason.contains(kind)), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_catalog_that_is_not_there_is_known_before_the_commit_is_announced() {
    let ready = Ready::new().await;
    let base = ready.world.load().await;
    let Ready { world: World { table, server, .. }, plan, written, watch } = ready;
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = table.commit_on(&base, &plan, &written, "a1", &watch).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(*watch.asserted.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_commit_has_a_connection_of_its_own_and_asserts_uuid_head_and_schema() {
    let ready = Ready::new().await;
    let base = ready.world.load().await.view;
    assert_eq!(ready.commit().await, ready.landed().await);
    let asked = ready.world.server.asked();
    let commit = asked.iter().find(|a| a.is_commit()).unwrap();
    assert!(asked.iter().filter(|a| !a.is_commit()).all(|a| a.connection != commit.connection));
    let body: serde_json::Value = serde_json::from_str(&commit.body).unwrap();
    let kinds: Vec<&str> = body["requirements"].as_array().unwrap().iter().map(|r| r["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["assert-table-uuid", "assert-ref-snapshot-id", "assert-current-schema-id"]);
    assert_eq!(commit.headers.get("idempotency-key"), None);
    let told = Asserted::parse(ready.watch.asserted.lock().unwrap().last().unwrap());
    assert_eq!(told.metadata_location, base.metadata_location);
    let head = told.head.unwrap();
    assert_eq!((head.reference.as_str(), head.snapshot_id, head.sequence_number), ("main", base.head, Some(base.last_sequence_number)));
}

/// Outputs lack a column that was dropped when they were written. Nothing but the schema
/// moves when it comes back: the head is still the asserted one.
#[tokio::test]
async fn h01_a_commit_that_arrives_after_a_dropped_column_came_back_is_refused() {
    for late in [true, false] {
        let world = World::new().await;
        let first = world.table.append([row(1, "a", 0)]).await;
        world.table.append([row(2, "b", 0)]).await;
        let with_v = world.load().await.loaded.metadata.current_schema_id();
        world.table.evolve_schema(|fields| fields.retain(|f| f.name != "v")).await;
        let plan = world.table.plan_all(&first).await;
        let written = rewrite::run(&world.load().await, &plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
        let ready = Ready { world, plan, written, watch: Watch::default() };
        let base = ready.world.load().await;
        let back = vec![TableUpdate::SetCurrentSchema { schema_id: with_v }];
        if late {
            ready.world.server.fail_commit(Work::Later, Reply::Drop);
        } else {
            ready.world.table.update(back.clone()).await;
        }
        let outcome = ready.world.table.commit_on(&base, &ready.plan, &ready.written, "a1", &ready.watch).await.unwrap();
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
        if late {
            ready.world.table.update(back).await;
            assert_eq!(ready.world.server.arrive().await, [409]);
        }
        ready.check(&[]).await;
        let found = ready.look().await;
        assert!(matches!(found, Resolution::Open { .. }), "the schema may be set once more: {found:?}");
    }
}

/// A catalog compares heads, which an upgrade leaves where they are: the format's own rules
/// keep a snapshot of the format of before out.
#[tokio::test]
async fn h59_a_commit_that_arrives_after_the_table_was_upgraded_is_refused() {
    for (spec, format_version) in [(Table::plain().v1(), FormatVersion::V2), (Table::plain(), FormatVersion::V3)] {
        let ready = Ready::of(World::of(spec.on_disk().create().await, &[]).await).await;
        ready.world.server.fail_commit(Work::Later, Reply::Drop);
        assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
        ready.world.table.update(vec![TableUpdate::UpgradeFormatVersion { format_version }]).await;
        assert_eq!(ready.world.server.arrive().await, [400], "{format_version}");
        ready.check(&[]).await;
    }
}

#[tokio::test]
async fn a_key_is_sent_where_the_catalog_offers_it() {
    let ready = Ready::new().await;
    ready.world.server.set_config(serde_json::json!({ "idempotency-key-lifetime": "PT30M" }));
    assert_eq!(ready.commit().await, ready.landed().await);
    let key = ready.world.server.commits()[0].headers["idempotency-key"].clone();
    assert_eq!(uuid::Uuid::parse_str(&key).unwrap().get_version_num(), 7);
}

#[tokio::test]
async fn a_packed_answer_is_read() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Done, Reply::Gzip);
    assert_eq!(ready.commit().await, ready.landed().await);
}

#[tokio::test]
async fn a_token_refused_at_the_commit_is_renewed_once_and_the_commit_lands_once() {
    let world = World::with(&[("credential", "id:secret")]).await;
    let ready = Ready::of(world).await;
    ready.world.server.fail_commit(Work::NotDone, Reply::error(401, "NotAuthorizedException"));
    assert_eq!(ready.commit().await, ready.landed().await);
    let commits = ready.world.server.commits();
    assert_eq!((commits.len(), &commits[0].body), (2, &commits[1].body));
    let tokens = ready.world.server.asked().iter().filter(|a| a.target.contains("oauth")).count();
    assert_eq!(tokens, 2);
    ready.check(&[]).await;
}

#[tokio::test]
async fn a_token_refused_twice_or_one_that_cannot_be_renewed_is_a_refusal() {
    for (properties, sent) in [(&[("credential", "id:secret")][..], 2), (&[("token", "t")], 1)] {
        let ready = Ready::of(World::with(properties).await).await;
        for _ in 0..2 {
            ready.world.server.fail_commit(Work::NotDone, Reply::error(401, "NotAuthorizedException"));
        }
        let outcome = ready.commit().await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_eq!(ready.world.server.commits().len(), sent);
    }
}

#[tokio::test]
async fn a_requirement_that_does_not_hold_on_the_base_asks_nobody() {
    let world = World::new().await;
    let base = world.load().await.loaded;
    let wrong = vec![TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: Some(1) }];
    let recorder = Recorder::default();
    assert_eq!(world.client.commit(&base, wrong, set("k", "v"), &recorder).await.unwrap(), Answer::Moved);
    assert_eq!((recorder.told(), world.server.commits().len()), (vec![], 0));
}

#[tokio::test]
async fn h03_a_fence_shuts_out_a_lost_request_of_a_table_that_stands_still() {
    let ready = Ready::new().await;
    let before = ready.world.load().await;
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    let asserted = ready.watch.asserted.lock().unwrap().last().unwrap().clone();

    assert!(ready.world.client.fence(&ready.world.table.name, &asserted).await.unwrap());

    let after = ready.world.load().await;
    assert_eq!(after.view.head, before.view.head);
    assert_eq!(after.view.snapshots, before.view.snapshots, "nothing stays of the snapshot that took the number");
    assert_eq!(after.view.last_sequence_number, before.view.last_sequence_number + 1);
    assert_eq!(ready.world.server.arrive().await, [400]);
    ready.check(&[]).await;
    // and what is asked anew lands
    assert_eq!(ready.commit().await, ready.landed().await);
    ready.check(&[]).await;
}

#[tokio::test]
async fn h03_a_fence_comes_too_late_for_a_request_that_landed_and_proves_nothing_when_its_answer_is_lost() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Done, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    let asserted = ready.watch.asserted.lock().unwrap().last().unwrap().clone();
    assert!(!ready.world.client.fence(&ready.world.table.name, &asserted).await.unwrap());

    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    let asserted = ready.watch.asserted.lock().unwrap().last().unwrap().clone();
    ready.world.server.fail_commit(Work::Done, Reply::Drop);
    assert!(ready.world.client.fence(&ready.world.table.name, &asserted).await.is_err());
    // the number was taken all the same: the second try has only to see that it counts
    assert!(ready.world.client.fence(&ready.world.table.name, &asserted).await.unwrap());
    assert_eq!(ready.world.server.arrive().await, [400]);
    ready.check(&[]).await;
}

#[tokio::test]
async fn h03_a_catalog_that_adds_a_snapshot_with_a_taken_number_fences_nothing() {
    let ready = Ready::new().await;
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    assert!(matches!(ready.commit().await, Outcome::Unknown { .. }));
    let asserted = ready.watch.asserted.lock().unwrap().last().unwrap().clone();
    let lax = r#"{"metadata-location":"m","metadata":{"last-sequence-number":99}}"#;
    ready.world.server.fail_commit(Work::Done, Reply::True);
    ready.world.server.fail_commit(Work::NotDone, Reply::Status(200, lax.into(), vec![]));
    assert!(!ready.world.client.fence(&ready.world.table.name, &asserted).await.unwrap());
}

#[tokio::test]
async fn h03_an_undo_cannot_be_fenced_by_a_number_that_it_does_not_take() {
    let ready = Ready::new().await;
    let Outcome::Landed { snapshot_id } = ready.commit().await else { panic!("nothing stands in the way") };
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    let (attempt, watch) = (AttemptId("a2".into()), Watch::default());
    let commit = afterwrite::lake::Commit { attempt: &attempt, instance: "i", control: &watch, now_ms: 0, nonce: 1 };
    let undone = afterwrite::lake::iceberg::commit::undo(&ready.world.load().await, snapshot_id, &commit).await.unwrap();
    assert!(matches!(undone, Outcome::Unknown { .. }), "{undone:?}");
    let asserted = watch.asserted.lock().unwrap().last().unwrap().clone();
    assert_eq!(Asserted::parse(&asserted).head.unwrap().sequence_number, None);
    assert!(!ready.world.client.fence(&ready.world.table.name, &asserted).await.unwrap());
    assert_eq!(ready.world.server.arrive().await, [200]);
}

#[tokio::test]
async fn h03_a_lost_undo_that_arrives_after_a_writer_takes_nothing_back() {
    let ready = Ready::new().await;
    let Outcome::Landed { snapshot_id } = ready.commit().await else { panic!("nothing stands in the way") };
    ready.world.server.fail_commit(Work::Later, Reply::Drop);
    let (attempt, watch) = (AttemptId("a2".into()), Watch::default());
    let commit = afterwrite::lake::Commit { attempt: &attempt, instance: "i", control: &watch, now_ms: 0, nonce: 1 };
    let undone = afterwrite::lake::iceberg::commit::undo(&ready.world.load().await, snapshot_id, &commit).await.unwrap();
    assert!(matches!(undone, Outcome::Unknown { .. }), "{undone:?}");
    let asserted = watch.asserted.lock().unwrap().last().unwrap().clone();
    assert_eq!(Asserted::parse(&asserted).head.unwrap().snapshot_id, Some(snapshot_id), "the request asserts the head that it takes back");

    ready.world.table.append([row(3, "c", 0)]).await;
    let head = ready.world.table.head().await;
    assert_eq!(ready.world.server.arrive().await, [409]);
    assert_eq!(ready.world.table.head().await, head);
    ready.check(&["3|c"]).await;
}
