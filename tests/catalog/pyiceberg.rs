//! One SQLite catalog shared with PyIceberg, in both directions.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use afterwrite::lake::iceberg::catalog::sql::{Options, SqlCatalog};
use afterwrite::lake::iceberg::catalog::{Answer, Catalog};
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::manifest;
use afterwrite::model::ident::TableName;
use afterwrite::model::partition::Value;

use super::{Recorder, chance, same_table, service, set};

const WRITE: &str = r#"
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, LongType, StringType
from pyiceberg.partitioning import PartitionSpec, PartitionField
from pyiceberg.transforms import IdentityTransform
catalog.create_namespace("db")
schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p q"))
t = catalog.create_table("db.t", schema, partition_spec=spec)
t.append(pa.table({"id": [1, 2, 3], "p": ["a", "a", None]}))
"#;
const READ: &str = r#"
t = catalog.load_table("db.t")
assert t.properties["k"] == "v", t.properties
assert t.scan().to_arrow().num_rows == 3
assert catalog.list_tables("db") == [("db", "t")]
t.append(t.scan().to_arrow())
"#;

fn python(interpreter: &str, folder: &Path, script: &str) {
    let at = folder.display();
    let catalog = format!(
        "from pyiceberg.catalog.sql import SqlCatalog\ncatalog = SqlCatalog('lake', uri='sqlite:///{at}/catalog.db', warehouse='file://{at}')\n"
    );
    let run = Command::new(interpreter).arg("-c").arg(catalog + script).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[tokio::test]
async fn pyiceberg_and_we_see_each_others_commits() {
    let (Some(interpreter), dir) = (service("AFTERWRITE_TEST_PYICEBERG", "pyiceberg"), tempfile::tempdir().unwrap()) else { return };
    python(&interpreter, dir.path(), WRITE);
    let uri = format!("sqlite://{}/catalog.db", dir.path().display());
    let catalog: Arc<dyn Catalog> =
        Arc::new(SqlCatalog::open(Options { name: "lake".into(), uri, ..Options::default() }, chance()).await.unwrap());
    let t = TableName::new("lake", "db", "t");
    let table = Lake::new([catalog.clone()]).table(&t, "main").await.unwrap().unwrap();
    let manifests = manifest::list(&table, table.view.head.unwrap()).await.unwrap();
    assert_eq!(manifests.iter().map(|m| (m.live_files, m.live_records)).collect::<Vec<_>>(), [(Some(2), Some(3))]);
    let entries = manifest::scan(&table, &manifests[0]).await.unwrap();
    let mut seen: Vec<_> = entries.iter().map(|e| (e.entry.partition.tuple[0].clone(), e.entry.records, e.sequence_number)).collect();
    seen.sort();
    assert_eq!(seen, [(None, 1, 1), (Some(Value::String(Arc::from("a"))), 2, 1)]);

    let answer = catalog.commit(&table.loaded, same_table(&table.loaded), set("k", "v"), &Recorder::default()).await.unwrap();
    assert!(matches!(answer, Answer::Landed(_)), "{answer:?}");
    python(&interpreter, dir.path(), READ);
    let stale = catalog.commit(&table.loaded, same_table(&table.loaded), set("k", "w"), &Recorder::default()).await.unwrap();
    assert_eq!(stale, Answer::Moved);
}
