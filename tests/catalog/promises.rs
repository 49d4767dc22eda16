//! What every catalog promises, whatever holds its pointers. Each function takes
//! two handles on one catalog, as two processes would have.

use std::sync::Arc;

use afterwrite::lake::Pointer;
use afterwrite::lake::iceberg::catalog::{Answer, Catalog};
use afterwrite::lake::iceberg::store::Store;
use iceberg::TableRequirement;

use super::{Recorder, metadata, name, same_table, set};

/// All promises, one after the other, on tables below `root`.
pub async fn hold(one: Arc<dyn Catalog>, two: Arc<dyn Catalog>, root: &str) {
    a_created_table_is_seen_by_all(&*one, &*two, root).await;
    a_commit_moves_the_pointer_once(&*one, &*two).await;
    a_requirement_that_does_not_hold_asks_nobody(&*one).await;
    two_committers_land_exactly_one(one.clone(), two.clone()).await;
    metadata_is_written_as_the_properties_say(&*one, root).await;
}

async fn a_created_table_is_seen_by_all(one: &dyn Catalog, two: &dyn Catalog, root: &str) {
    let t = name(one.name());
    assert!(two.load(&t).await.unwrap().is_none());
    let created = one.create(&t, metadata(&format!("{root}/t"), &[])).await.unwrap();
    let loaded = two.load(&t).await.unwrap().unwrap();
    assert_eq!((loaded.metadata.as_ref(), &loaded.metadata_location), (created.metadata.as_ref(), &created.metadata_location));
    assert_eq!(two.list().await.unwrap(), [Pointer { name: t.clone(), metadata_location: created.metadata_location }]);
    let again = two.create(&t, metadata(&format!("{root}/other"), &[])).await.err().unwrap().to_string();
    assert!(again.contains("the table exists"), "{again}");
}

async fn a_commit_moves_the_pointer_once(one: &dyn Catalog, two: &dyn Catalog) {
    let t = name(one.name());
    let base = one.load(&t).await.unwrap().unwrap();
    let recorder = Recorder::default();
    let landed = one.commit(&base, same_table(&base), set("k", "1"), &recorder).await.unwrap();
    let Answer::Landed(location) = landed else { panic!("{landed:?}") };
    assert!(location.contains("/metadata/00001-") && location.ends_with(".metadata.json"), "{location}");
    let told = [format!("write {location}"), format!("commit {}", base.metadata_location), "reached metadata-written".into()];
    assert_eq!(recorder.told(), told);

    let stale = two.commit(&base, same_table(&base), set("k", "2"), &Recorder::default()).await.unwrap();
    assert_eq!(stale, Answer::Moved);
    let now = two.load(&t).await.unwrap().unwrap();
    assert_eq!((now.metadata.properties().get("k").map(String::as_str), now.metadata_location), (Some("1"), location));
    assert_eq!(now.metadata.metadata_log().last().map(|l| l.metadata_file.clone()), Some(base.metadata_location.clone()));
    assert!(Store::new(&now.io).exists(&base.metadata_location).await.unwrap(), "older versions stay");
}

async fn a_requirement_that_does_not_hold_asks_nobody(one: &dyn Catalog) {
    let base = one.load(&name(one.name())).await.unwrap().unwrap();
    let recorder = Recorder::default();
    let wrong = vec![TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: Some(1) }];
    assert_eq!(one.commit(&base, wrong, set("k", "3"), &recorder).await.unwrap(), Answer::Moved);
    assert_eq!(recorder.told(), Vec::<String>::new());
}

async fn two_committers_land_exactly_one(one: Arc<dyn Catalog>, two: Arc<dyn Catalog>) {
    for round in 0..8 {
        let base = one.load(&name(one.name())).await.unwrap().unwrap();
        let commit = |catalog: Arc<dyn Catalog>, value: String| {
            let base = base.clone();
            tokio::spawn(async move { catalog.commit(&base, same_table(&base), set("round", &value), &Recorder::default()).await.unwrap() })
        };
        let (a, b) = (commit(one.clone(), format!("{round}a")), commit(two.clone(), format!("{round}b")));
        let answers = [a.await.unwrap(), b.await.unwrap()];
        let landed: Vec<_> = answers.iter().filter_map(|a| if let Answer::Landed(at) = a { Some(at.clone()) } else { None }).collect();
        assert_eq!((landed.len(), answers.iter().filter(|a| **a == Answer::Moved).count()), (1, 1), "{answers:?}");
        let now = one.load(&base.name).await.unwrap().unwrap();
        assert_eq!(Some(&now.metadata_location), landed.first());
    }
}

async fn metadata_is_written_as_the_properties_say(one: &dyn Catalog, root: &str) {
    let mut t = name(one.name());
    t.table = "odd".into();
    let elsewhere = format!("{root}/elsewhere/");
    let properties = [
        ("write.metadata.path", elsewhere.as_str()),
        ("write.metadata.compression-codec", "gzip"),
        ("write.metadata.previous-versions-max", "2"),
    ];
    one.create(&t, metadata(&format!("{root}/odd"), &properties)).await.unwrap();
    for value in ["1", "2", "3", "4"] {
        let base = one.load(&t).await.unwrap().unwrap();
        assert!(matches!(one.commit(&base, same_table(&base), set("v", value), &Recorder::default()).await.unwrap(), Answer::Landed(_)));
    }
    let now = one.load(&t).await.unwrap().unwrap();
    let at = &now.metadata_location;
    assert!(at.starts_with(&format!("{root}/elsewhere/00004-")) && at.ends_with(".gz.metadata.json"), "{at}");
    assert!(Store::new(&now.io).read(at).await.unwrap().starts_with(&[0x1f, 0x8b]));
    assert_eq!(now.metadata.metadata_log().len(), 2);
}

/// Of catalogs that can shut lost requests out.
pub async fn hold_fences(one: &dyn Catalog, two: &dyn Catalog) {
    let base = one.load(&name(one.name())).await.unwrap().unwrap();
    assert!(two.fence(&base.name, &base.metadata_location).await.unwrap());

    // a request that was on its way comes late
    let late = one.commit(&base, same_table(&base), set("late", "yes"), &Recorder::default()).await.unwrap();
    assert_eq!(late, Answer::Moved);
    let fresh = two.load(&base.name).await.unwrap().unwrap();
    assert_eq!((&fresh.metadata_location, fresh.metadata.properties().get("late")), (&base.metadata_location, None));

    // what is asked afterwards lands, once, and a fence comes too late for it
    let landed = two.commit(&fresh, same_table(&fresh), set("next", "yes"), &Recorder::default()).await.unwrap();
    assert!(matches!(landed, Answer::Landed(_)), "{landed:?}");
    assert!(!one.fence(&base.name, &base.metadata_location).await.unwrap());
}
