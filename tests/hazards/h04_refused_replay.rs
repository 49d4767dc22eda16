//! A refusal may be the echo of our own success.

use std::sync::Arc;

use afterwrite::lake::NotLanded;
use afterwrite::lake::iceberg::catalog::memory::{Fault, MemoryCatalog};
use afterwrite::lake::iceberg::catalog::{Answer, Catalog, Loaded};
use afterwrite::lake::iceberg::commit::{find_attempt, remove_outputs};
use afterwrite::lake::{Control, Pointer, Result};
use afterwrite::model::ident::TableName;
use afterwrite::model::outcome::{Conflict, Outcome, Resolution};
use afterwrite::model::plan::AttemptId;
use async_trait::async_trait;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};

use crate::fixture::process::over_rest;
use crate::fixture::{Table, Watch, row};

/// A transport that sends every commit twice and hands on the second answer.
struct Replaying(MemoryCatalog);

#[async_trait]
impl Catalog for Replaying {
    fn name(&self) -> &str {
        self.0.name()
    }
    async fn list(&self) -> Result<Vec<Pointer>> {
        self.0.list().await
    }
    async fn load(&self, name: &TableName) -> Result<Option<Loaded>> {
        self.0.load(name).await
    }
    async fn commit(&self, base: &Loaded, r: Vec<TableRequirement>, u: Vec<TableUpdate>, control: &dyn Control) -> Result<Answer> {
        let first = self.0.commit(base, r.clone(), u.clone(), control).await?;
        assert!(matches!(first, Answer::Landed(_)));
        self.0.commit(base, r, u, control).await
    }
    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded> {
        self.0.create(name, metadata).await
    }
}

#[tokio::test]
async fn h04_a_conflict_that_our_own_success_caused_is_a_success() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let mut base = t.load().await;
    base.catalog = Arc::new(Replaying(t.catalog.clone()));

    let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();

    let snapshot_id = t.head().await;
    assert_eq!(outcome, Outcome::Landed { snapshot_id });
    assert_eq!(NotLanded::from_outcome(&AttemptId("a1".into()), &outcome).map(|p| p.attempt().clone()), None);
    assert_eq!(t.rows().await, ["1|a"]);
}

/// The same, and a cache answers loads.
struct Cached(Replaying, Loaded);

#[async_trait]
impl Catalog for Cached {
    fn name(&self) -> &str {
        self.0.name()
    }
    async fn list(&self) -> Result<Vec<Pointer>> {
        self.0.list().await
    }
    async fn load(&self, _name: &TableName) -> Result<Option<Loaded>> {
        Ok(Some(self.1.clone()))
    }
    async fn commit(&self, base: &Loaded, r: Vec<TableRequirement>, u: Vec<TableUpdate>, control: &dyn Control) -> Result<Answer> {
        self.0.commit(base, r, u, control).await
    }
    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded> {
        self.0.create(name, metadata).await
    }
}

#[tokio::test]
async fn h04_a_conflict_is_not_believed_on_a_look_at_the_table_as_it_was_before() {
    let t = Table::plain().create().await;
    let before = t.load().await.loaded;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let mut base = t.load().await;
    base.catalog = Arc::new(Cached(Replaying(t.catalog.clone()), before));

    let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();

    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(find_attempt(&t.load().await, &AttemptId("a1".into()), ""), Resolution::Landed { snapshot_id: t.head().await });
}

#[tokio::test]
async fn h04_a_conflict_is_not_believed_on_a_look_that_shows_the_table_where_it_stood() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let mut base = t.load().await;
    base.catalog = Arc::new(Cached(Replaying(t.catalog.clone()), base.loaded.clone()));

    let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();

    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(find_attempt(&t.load().await, &AttemptId("a1".into()), ""), Resolution::Landed { snapshot_id: t.head().await });
}

#[tokio::test]
async fn h04_a_conflict_is_not_believed_while_the_branch_stands_under_newer_metadata() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let base = t.load().await;
    t.update(vec![TableUpdate::SetProperties { updates: [("k".into(), "v".into())].into() }]).await;

    let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();

    match over_rest() {
        None => assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}"),
        // such a catalog compares the branch, not the pointer: there is no conflict
        Some(_) => assert_eq!(outcome, Outcome::Landed { snapshot_id: t.head().await }),
    }
}

#[tokio::test]
async fn h04_a_true_conflict_stays_one_and_its_files_may_go() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let base = t.load().await;
    t.append([row(2, "b", 0)]).await;
    let watch = Watch::default();

    let outcome = t.commit_on(&base, &plan, &written, "a1", &watch).await.unwrap();

    assert_eq!(outcome, Outcome::Conflict(Conflict::MetadataMoved));
    let mut paths: Vec<String> = watch.written.lock().unwrap().clone();
    paths.extend(written.outputs.iter().map(|o| o.path.clone()));
    let proof = NotLanded::from_outcome(&AttemptId("a1".into()), &outcome).unwrap();
    remove_outputs(&base, &proof, &paths).await.unwrap();
    remove_outputs(&base, &proof, &paths).await.unwrap();
    for path in &paths {
        assert!(!t.catalog.io().exists(path).await.unwrap(), "{path}");
    }
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}

#[tokio::test]
async fn h04_a_refusal_without_a_look_at_the_table_is_unknown() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let base = t.load().await;
    let catalog = t.catalog.clone();
    t.catalog.fail_next(Fault::Moved);
    t.catalog.before_swap(Some(Arc::new(move |_| {
        let catalog = catalog.clone();
        Box::pin(async move { catalog.before_swap(None) })
    })));
    let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();
    assert!(matches!(outcome, Outcome::Unknown { .. }), "a conflict, and nothing has moved: {outcome:?}");

    t.catalog.fail_next(Fault::Unreachable);
    let outcome = t.commit_on(&base, &plan, &written, "a2", &Watch::default()).await.unwrap();
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
}

#[tokio::test]
async fn h04_files_of_an_attempt_that_is_in_the_table_are_never_removed() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    let proof = NotLanded::never_asked(&AttemptId("a1".into()));
    let paths: Vec<String> = written.outputs.iter().map(|o| o.path.clone()).collect();
    assert!(remove_outputs(&t.load().await, &proof, &paths).await.is_err());
    let other = NotLanded::never_asked(&AttemptId("a2".into()));
    for outside in ["memory:/warehouse/ns/t2/data/x.parquet", "memory:/warehouse/ns/t", "memory:/warehouse/ns/t/../u/x"] {
        assert!(remove_outputs(&t.load().await, &other, &[outside.to_owned()]).await.is_err(), "{outside}");
    }
    assert_eq!(t.rows().await, ["1|a"]);
}

#[tokio::test]
async fn h04_an_unknown_commit_is_resolved_by_what_the_table_shows() {
    let attempt = AttemptId("a1".into());
    for (fault, late) in [(Fault::AppliedThenUnknown, false), (Fault::UnknownNotApplied, false), (Fault::UnknownAppliedLater, true)] {
        let t = Table::plain().create().await;
        let f1 = t.append([row(1, "a", 0)]).await;
        let plan = t.plan_all(&f1).await;
        let written = t.naive_rewrite(&plan).await;
        let base = t.load().await;
        t.catalog.fail_next(fault.clone());
        let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");

        let asserted = base.view.metadata_location.as_str();
        let first = find_attempt(&t.load().await, &attempt, asserted);
        if fault == Fault::AppliedThenUnknown {
            assert_eq!(first, Resolution::Landed { snapshot_id: t.head().await });
            continue;
        }
        assert!(matches!(first, Resolution::Open { .. }), "{first:?}");
        if late {
            assert_eq!(t.catalog.apply_late(), 1);
            assert_eq!(find_attempt(&t.load().await, &attempt, asserted), Resolution::Landed { snapshot_id: t.head().await });
            assert_eq!(t.rows().await, ["1|a"]);
            continue;
        }
        t.append([row(2, "b", 0)]).await;
        assert_eq!(find_attempt(&t.load().await, &attempt, asserted), Resolution::NotLanded);
    }
}

#[tokio::test]
async fn h04_a_history_cut_by_expiry_keeps_the_outcome_open() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let base = t.load().await;
    t.catalog.fail_next(Fault::AppliedThenUnknown);
    let _ = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();
    let ours = t.head().await;
    t.append([row(2, "b", 0)]).await;
    t.expire(&[ours]).await;

    let found = find_attempt(&t.load().await, &AttemptId("a1".into()), &base.view.metadata_location);

    assert!(matches!(found, Resolution::Open { .. }), "our files are live, yet {found:?}");
    // Even a wrong proof removes no live file.
    let proof = NotLanded::never_asked(&AttemptId("a1".into()));
    let paths: Vec<String> = written.outputs.iter().map(|o| o.path.clone()).collect();
    assert!(remove_outputs(&t.load().await, &proof, &paths).await.is_err());
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}
