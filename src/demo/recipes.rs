//! The lines that open the demo's warehouse in other engines.

use serde::Serialize;

use super::tables::{CATALOG, WITH};

/// The Spark artifacts that read the warehouse.
const PACKAGES: &str = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.54.1.0";

/// One way for each engine; each counts the rows of `lineitem`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recipes {
    /// SQL.
    pub duckdb: String,
    /// Python.
    pub pyiceberg: String,
    /// A shell command.
    pub spark: String,
}

/// The lines for a catalog's database, its warehouse, and the metadata of `lineitem`.
pub fn recipes(database: &str, warehouse: &str, metadata: &str) -> Recipes {
    let python = |text: &str| serde_json::Value::from(text).to_string();
    let setting = |key: &str, value: &str| format!("  --conf {} \\\n", shell(&format!("spark.sql.catalog.{CATALOG}{key}={value}")));
    let duckdb = format!("INSTALL iceberg; LOAD iceberg;\nSELECT count(*) FROM iceberg_scan('{}');", metadata.replace('\'', "''"));
    let pyiceberg = format!(
        "from pyiceberg.catalog.sql import SqlCatalog\n\
         demo = SqlCatalog(\"{CATALOG}\", uri={}, warehouse={})\n\
         print(demo.load_table(\"{WITH}.lineitem\").scan().to_arrow().num_rows)",
        python(&format!("sqlite:///{database}")),
        python(warehouse),
    );
    let mut spark = format!("spark-sql --packages {PACKAGES} \\\n");
    for (key, value) in [
        ("", "org.apache.iceberg.spark.SparkCatalog"),
        (".type", "jdbc"),
        (".uri", &format!("jdbc:sqlite:{database}")),
        (".warehouse", warehouse),
        (".jdbc.schema-version", "V1"),
    ] {
        spark.push_str(&setting(key, value));
    }
    spark.push_str(&format!("  -e 'SELECT count(*) FROM {CATALOG}.{WITH}.lineitem'"));
    Recipes { duckdb, pyiceberg, spark }
}

impl Recipes {
    /// Each under its engine's name, indented by two spaces, with an empty line before
    /// every name.
    pub fn text(&self) -> String {
        let block = |(name, lines): (&str, &String)| {
            let lines: Vec<String> = lines.lines().map(|line| format!("  {line}")).collect();
            format!("\n{name}:\n{}\n", lines.join("\n"))
        };
        [("DuckDB", &self.duckdb), ("PyIceberg", &self.pyiceberg), ("Spark", &self.spark)].map(block).concat()
    }
}

/// A word of a shell's command line.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/.:=_-,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_open_the_warehouse_that_was_written() {
        let text = recipes("/d/catalog.db", "file:///d/warehouse", "file:///d/warehouse/m.json").text();
        let expected = "
DuckDB:
  INSTALL iceberg; LOAD iceberg;
  SELECT count(*) FROM iceberg_scan('file:///d/warehouse/m.json');

PyIceberg:
  from pyiceberg.catalog.sql import SqlCatalog
  demo = SqlCatalog(\"demo\", uri=\"sqlite:////d/catalog.db\", warehouse=\"file:///d/warehouse\")
  print(demo.load_table(\"with_afterwrite.lineitem\").scan().to_arrow().num_rows)

Spark:
  spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.54.1.0 \\
    --conf spark.sql.catalog.demo=org.apache.iceberg.spark.SparkCatalog \\
    --conf spark.sql.catalog.demo.type=jdbc \\
    --conf spark.sql.catalog.demo.uri=jdbc:sqlite:/d/catalog.db \\
    --conf spark.sql.catalog.demo.warehouse=file:///d/warehouse \\
    --conf spark.sql.catalog.demo.jdbc.schema-version=V1 \\
    -e 'SELECT count(*) FROM demo.with_afterwrite.lineitem'
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_folder_of_any_name_breaks_no_line() {
        let made = recipes("/it's $HOME/catalog.db", "file:///it's $HOME/\"w\"", "file:///it's/m.json");
        assert!(made.duckdb.ends_with("iceberg_scan('file:///it''s/m.json');"), "{}", made.duckdb);
        assert!(
            made.pyiceberg.contains(r#"uri="sqlite:////it's $HOME/catalog.db", warehouse="file:///it's $HOME/\"w\"""#),
            "{}",
            made.pyiceberg
        );
        let uri = r"--conf 'spark.sql.catalog.demo.uri=jdbc:sqlite:/it'\''s $HOME/catalog.db' \";
        assert!(made.spark.contains(uri), "{}", made.spark);
    }
}
