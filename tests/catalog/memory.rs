//! The catalog in memory: the same promises, and its faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::catalog::memory::{Counts, Fault, MemoryCatalog};
use afterwrite::lake::iceberg::catalog::{Answer, Catalog, Loaded};
use afterwrite::lake::iceberg::store::file_io;

use super::{Recorder, metadata, name, promises, same_table, set};

fn catalog() -> MemoryCatalog {
    MemoryCatalog::new("m", file_io(&BTreeMap::new()))
}

async fn with_table(catalog: &MemoryCatalog) -> Loaded {
    catalog.create(&name("m"), metadata("memory://w/t", &[])).await.unwrap()
}

async fn commit(catalog: &MemoryCatalog, base: &Loaded) -> Answer {
    catalog.commit(base, same_table(base), set("k", "v"), &Recorder::default()).await.unwrap()
}

async fn moved(catalog: &MemoryCatalog, base: &Loaded) -> bool {
    catalog.load(&base.name).await.unwrap().unwrap().metadata_location != base.metadata_location
}

#[tokio::test]
async fn memory_keeps_the_promises_of_a_catalog() {
    let catalog = catalog();
    promises::hold(Arc::new(catalog.clone()), Arc::new(catalog), "memory://w").await;
}

#[tokio::test]
async fn each_fault_does_what_it_says_and_serves_one_commit() {
    for (fault, unknown, applied) in [
        (Fault::AppliedThenUnknown, true, true),
        (Fault::UnknownNotApplied, true, false),
        (Fault::UnknownAppliedLater, true, false),
        (Fault::Moved, false, false),
        (Fault::Rejected("no".into()), false, false),
    ] {
        let catalog = catalog();
        let base = with_table(&catalog).await;
        catalog.fail_next(fault.clone());
        let answer = commit(&catalog, &base).await;
        assert_eq!(matches!(answer, Answer::Unknown(_)), unknown, "{fault:?}: {answer:?}");
        assert_eq!(moved(&catalog, &base).await, applied, "{fault:?}");
        assert_eq!(catalog.apply_late(), usize::from(fault == Fault::UnknownAppliedLater));
        let base = catalog.load(&base.name).await.unwrap().unwrap();
        assert!(matches!(commit(&catalog, &base).await, Answer::Landed(_)));
    }
}

#[tokio::test]
async fn a_late_commit_does_not_apply_to_a_pointer_that_has_moved() {
    let catalog = catalog();
    let base = with_table(&catalog).await;
    catalog.fail_next(Fault::UnknownAppliedLater);
    assert!(matches!(commit(&catalog, &base).await, Answer::Unknown(_)));
    let Answer::Landed(winner) = commit(&catalog, &base).await else { panic!("nobody was before") };
    assert_eq!(catalog.apply_late(), 0);
    assert_eq!(catalog.load(&base.name).await.unwrap().unwrap().metadata_location, winner);
}

#[tokio::test]
async fn an_unreachable_catalog_applies_nothing_and_still_counts() {
    let catalog = catalog();
    let base = with_table(&catalog).await;
    catalog.set_unreachable(true);
    let error = catalog.commit(&base, same_table(&base), set("k", "v"), &Recorder::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }));
    assert!(matches!(catalog.load(&base.name).await, Err(Error::Unreachable { .. })));
    assert!(matches!(catalog.list().await, Err(Error::Unreachable { .. })));
    catalog.set_unreachable(false);
    assert_eq!(catalog.counts(), Counts { lists: 1, loads: 1, commits: 1 });
    assert!(!moved(&catalog, &base).await);
}

#[tokio::test]
async fn the_hook_runs_between_staging_and_swap() {
    let catalog = catalog();
    let base = with_table(&catalog).await;
    let (other, theirs) = (catalog.clone(), base.clone());
    catalog.before_swap(Some(Arc::new(move |_| {
        let (other, theirs) = (other.clone(), theirs.clone());
        Box::pin(async move {
            other.before_swap(None);
            assert!(matches!(commit(&other, &theirs).await, Answer::Landed(_)));
        })
    })));
    assert_eq!(commit(&catalog, &base).await, Answer::Moved);
}
