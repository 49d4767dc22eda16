//! A metadata file of thousands of snapshots: what a look makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use afterwrite::lake::Format;
use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::store::file_io;
use afterwrite::model::ident::{MAIN, TableName};
use serde_json::{Map, Value, json};

use crate::figure::{Bench, Figure};
use crate::folder::Folder;
use crate::process::{peak, resident};

/// See the module.
pub const BENCH: Bench = Bench {
    name: "metadata_json",
    also: &["metadata_json_bytes"],
    about: "a metadata.json of 50 MB (5,000 snapshots of 10 KB) looked at, beside a whole load",
    run,
};

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let folder = Folder::new()?;
    let path = folder.path().join("v1.metadata.json");
    write(&path, if quick { 100 } else { 5_000 })?;
    let bytes = std::fs::metadata(&path)?.len() as f64;
    let name = TableName::new("lake", "db", "t");
    let catalog = MemoryCatalog::new("lake", file_io(&BTreeMap::new()));
    catalog.register(&name, &format!("file://{}", path.display()));
    let lake = Lake::new([Arc::new(catalog) as Arc<dyn afterwrite::lake::iceberg::catalog::Catalog>]);
    let mut figures = vec![Figure::new("metadata_json_bytes", bytes, "bytes")];
    // the peak only grows: the lesser first
    for (kind, whole) in [("look", false), ("load", true)] {
        let before = resident()?;
        let began = Instant::now();
        let table = if whole { lake.load(&name, MAIN).await? } else { lake.glance(&name, MAIN).await? };
        let took = began.elapsed().as_secs_f64();
        let table = table.ok_or_else(|| anyhow::anyhow!("gone"))?;
        figures.push(Figure::new(format!("metadata_json_{kind}_s"), took, "s"));
        figures.push(Figure::new(format!("metadata_json_{kind}_peak"), (peak()?.saturating_sub(before)) as f64 / bytes, "x file"));
        figures.push(Figure::new(format!("metadata_json_{kind}_held"), (resident()?.saturating_sub(before)) as f64 / bytes, "x file"));
        anyhow::ensure!(table.view().head.is_some());
    }
    Ok(figures)
}

/// In a function of its own, so that what it builds is gone afterwards.
fn write(path: &std::path::Path, snapshots: i64) -> anyhow::Result<()> {
    let mut text = std::io::BufWriter::new(std::fs::File::create(path)?);
    let head = json!({
        "format-version": 2, "table-uuid": uuid::Uuid::new_v4(), "location": "memory://t", "last-sequence-number": snapshots,
        "last-updated-ms": 1_750_000_000_000_i64 + snapshots, "last-column-id": 1, "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": false, "type": "long"}]}],
        "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999, "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}], "properties": {}, "current-snapshot-id": snapshots,
        "refs": {"main": {"snapshot-id": snapshots, "type": "branch"}}
    });
    let head = head.to_string();
    std::io::Write::write_all(&mut text, &head.as_bytes()[..head.len() - 1])?;
    std::io::Write::write_all(&mut text, b",\"snapshots\":[")?;
    for id in 1..=snapshots {
        let mut summary: Map<String, Value> =
            (0..200).map(|n| (format!("figure-{n}-of-an-engine-that-says-much"), json!(format!("{}", n * id)))).collect();
        summary.insert("operation".into(), json!("append"));
        let snapshot = json!({
            "snapshot-id": id, "parent-snapshot-id": (id > 1).then_some(id - 1), "sequence-number": id,
            "timestamp-ms": 1_750_000_000_000_i64 + id, "manifest-list": format!("memory://t/metadata/snap-{id}.avro"),
            "summary": summary, "schema-id": 0
        });
        let comma = if id > 1 { "," } else { "" };
        std::io::Write::write_all(&mut text, format!("{comma}{snapshot}").as_bytes())?;
    }
    std::io::Write::write_all(&mut text, b"]}")?;
    Ok(std::io::Write::flush(&mut text)?)
}
