//! What came of the demo, for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::home::Home;
use super::measure::Side;
use super::tables::{CATALOG, WITH};
use crate::cli::human;
use crate::lake::Pointer;

/// One table on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The table.
    pub name: String,
    /// Kept in shape.
    pub with: Side,
    /// Left alone.
    pub without: Side,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Each table.
    pub tables: Vec<Compared>,
    /// Where they lie.
    #[serde(skip)]
    pub home: Home,
    /// Where the metadata of each lies.
    #[serde(skip)]
    pub pointers: Vec<Pointer>,
}

impl Report {
    /// The first table whose sides do not hold the same rows.
    pub fn unequal(&self) -> Option<&str> {
        let differs = |t: &&Compared| (t.with.rows, &t.with.row_hash) != (t.without.rows, &t.without.row_hash);
        self.tables.iter().find(differs).map(|t| t.name.as_str())
    }

    /// One JSON object.
    ///
    /// # Errors
    /// Never: the report is plain data.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// A table, and the lines that open the warehouse.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(["", "", "without afterwrite", "with afterwrite"]);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for compared in &self.tables {
            let rows = figures(&compared.without).into_iter().zip(figures(&compared.with));
            for (at, ((what, without), (_, with))) in rows.enumerate() {
                table.add_row([if at == 0 { compared.name.as_str() } else { "" }, what, &without, &with]);
            }
        }
        format!("{table}\n\n{}", self.open())
    }

    fn open(&self) -> String {
        let (database, warehouse) = (self.home.database(), self.home.warehouse());
        let pointer = self.pointers.iter().find(|p| p.name.namespace_path() == WITH && p.name.table == "lineitem");
        let metadata = pointer.map_or("", |p| p.metadata_location.as_str());
        format!(
            "The warehouse stays in {folder}. Open it with

DuckDB:
  INSTALL iceberg; LOAD iceberg;
  SELECT count(*) FROM iceberg_scan('{metadata}');

PyIceberg:
  from pyiceberg.catalog.sql import SqlCatalog
  demo = SqlCatalog(\"{CATALOG}\", uri=\"sqlite:///{database}\", warehouse=\"{warehouse}\")
  print(demo.load_table(\"{WITH}.lineitem\").scan().to_arrow().num_rows)

Spark:
  spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.54.1.0 \\
    --conf spark.sql.catalog.{CATALOG}=org.apache.iceberg.spark.SparkCatalog \\
    --conf spark.sql.catalog.{CATALOG}.type=jdbc \\
    --conf \"spark.sql.catalog.{CATALOG}.uri=jdbc:sqlite:{database}\" \\
    --conf \"spark.sql.catalog.{CATALOG}.warehouse={warehouse}\" \\
    --conf spark.sql.catalog.{CATALOG}.jdbc.schema-version=V1 \\
    -e 'SELECT count(*) FROM {CATALOG}.{WITH}.lineitem'
",
            folder = self.home.folder(),
        )
    }
}

/// What is shown of one side.
fn figures(side: &Side) -> Vec<(&'static str, String)> {
    vec![
        ("data files", human::count(side.files)),
        ("bytes", human::bytes(side.bytes)),
        ("mean file size", human::bytes(side.bytes / side.files.max(1))),
        ("delete files", human::count(side.delete_files)),
        ("entropy", format!("{:.3}", side.entropy)),
        ("planning", human::seconds(side.plan_ms / 1000.0)),
        ("full scan", human::seconds(side.scan_ms / 1000.0)),
        ("commits", human::count(side.commits)),
        ("writer conflicts", human::count(side.conflicts)),
        ("rewritten", human::bytes(side.rewritten_bytes)),
        ("rows", human::count(side.rows)),
        ("row hash", side.row_hash.clone()),
    ]
}
