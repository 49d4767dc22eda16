//! `kill -9` at any moment, under a stream of commits.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afterwrite::lake::clock::{Chance, SystemChance};
use afterwrite::lake::iceberg::catalog::Answer;
use iceberg::TableRequirement;
use iceberg::spec::Operation;

use super::world::NAME;
use crate::fixture::process::{Place, Serving, local};
use crate::fixture::{Table, Watch, row};

/// Under which `serve` rewrites whatever it can.
pub const EAGER: &str = r#"
[poll]
min = "50ms"
max = "200ms"
[defaults]
act = true
cooldown = "0s"
keep_out = "0s"
tier_files = 2
queue_min_reduction = 1
rules = [{ rule = "small-files", min_reduction_ratio = 0.01 }, { rule = "deletes", min_ratio = 0.01, min_files_per_data_file = 1 }]
[budget]
gb_hours_per_hour = 1000
"#;

/// A foreign writer: appends, and deletes by key, and what it knows to be true.
struct Writer {
    table: Arc<Table>,
    rows: BTreeSet<(i64, i64)>,
    /// Files of tries that other commits came before, as any writer may leave.
    lost: HashSet<PathBuf>,
    next: i64,
}

impl Writer {
    /// One commit, tried until it lands.
    async fn commit(&mut self) {
        let p = self.next % 2;
        let ids = self.next * 10..self.next * 10 + 4;
        let victim = self.rows.iter().filter(|(_, of)| *of == p).map(|(id, _)| *id).nth(3).filter(|_| self.next % 3 == 0);
        let watch = Watch::default();
        loop {
            let base = self.table.load().await;
            let mut change = self.table.change().append(ids.clone().map(|id| row(id, "v", p)));
            if let Some(id) = victim {
                change = change.delete_equal(&["id"], [row(id, "", p)]);
            }
            if self.next % 4 == 1 {
                change = change.delete_own_positions(&[(0, 2)]);
            }
            let (made, updates) = change.stage(&base).await;
            let head = base.loaded.metadata.current_snapshot_id();
            let holds = vec![TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: head }];
            match self.table.port.commit(&base.loaded, holds, updates, &watch).await.unwrap() {
                Answer::Landed(_) => break,
                Answer::Moved => {
                    self.lost.extend(made.data.iter().chain(&made.deletes).map(|f| local(&f.path)));
                    let folder = local(base.loaded.metadata.location()).join("metadata");
                    self.lost.extend((0..2).map(|n| folder.join(format!("{}-m{n}.avro", made.snapshot_id))));
                    self.lost.insert(folder.join(format!("snap-{}.avro", made.snapshot_id)));
                }
                other => panic!("{other:?}"),
            }
        }
        // all but the last metadata file belong to tries that did not land
        self.lost.extend(watch.written.into_inner().unwrap().iter().rev().skip(1).map(|p| local(p)));
        self.rows.extend(ids.clone().map(|id| (id, p)));
        if let Some(id) = victim {
            self.rows.remove(&(id, p));
        }
        if self.next % 4 == 1 {
            self.rows.remove(&(ids.start + 2, p));
        }
        self.next += 1;
    }

    fn expected(&self) -> Vec<String> {
        let mut rows: Vec<String> = self.rows.iter().map(|(id, p)| format!("{id}|v|{p}")).collect();
        rows.sort();
        rows
    }
}

/// Waits for a rewrite after so many: how many there are.
async fn rewritten_since(table: &Table, seen: usize, serving: &Serving) -> usize {
    for _ in 0..1_200 {
        let metadata = table.load().await.loaded.metadata;
        let rewrites = metadata.snapshots().filter(|s| s.summary().operation == Operation::Replace).count();
        if rewrites > seen {
            return rewrites;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("nothing was rewritten in half a minute: {}", serving.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_killed_again_and_again_under_a_stream_loses_and_leaves_nothing() {
    let place = Place::new(EAGER);
    let table = Table::partitioned_by_p().property("write.metadata.previous-versions-max", "100000").in_sqlite(place.path());
    let table = Arc::new(table.create().await);
    let mut writer = Writer { table: Arc::clone(&table), rows: BTreeSet::new(), lost: HashSet::new(), next: 0 };
    writer.commit().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            while !stop.load(Ordering::Relaxed) {
                writer.commit().await;
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            writer
        }
    });
    let mut seen = 0;
    for round in 0..8 {
        let serving = place.serve().await;
        if round % 2 == 0 {
            seen = rewritten_since(&table, seen, &serving).await;
        }
        tokio::time::sleep(Duration::from_millis(SystemChance.next() % 1_000)).await;
        serving.kill();
    }
    stop.store(true, Ordering::Relaxed);
    let writer = writing.await.unwrap();
    assert_eq!(table.rows().await, writer.expected());

    // the one that follows at rest, and is asked to end
    let serving = place.serve().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let said = serving.said();
    assert_eq!(serving.terminate().await, Some(0), "{said}");
    place.run(&["compact", NAME]).await.expect(0);

    assert_eq!(table.rows().await, writer.expected());
    place.assert_settled().await;
    let others: HashSet<PathBuf> = writer.lost.into_iter().filter(|f| f.exists()).collect();
    place.assert_accounted(&table, &others).await;
    let left = place.run(&["compact", NAME, "--json"]).await.expect(0);
    assert_eq!(left.each("result"), ["left", "left"]);
}
