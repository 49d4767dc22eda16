//! What came of the demo, for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::home::Home;
use super::measure::Side;
use super::recipes::{Recipes, recipes};
use super::tables::WITH;
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
#[derive(Clone, Debug)]
pub struct Report {
    /// Each table.
    pub tables: Vec<Compared>,
    /// Where they lie.
    pub home: Home,
    /// Where the metadata of each lies.
    pub pointers: Vec<Pointer>,
}

/// What programs are told.
#[derive(Serialize)]
struct Told<'a> {
    tables: &'a [Compared],
    /// The folder that everything lies in.
    dir: &'a str,
    /// The catalog's database, as a URI.
    catalog: String,
    /// The folder of the tables, as a URI.
    warehouse: String,
    /// The lines that open it.
    open: Recipes,
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
        serde_json::to_string(&Told {
            tables: &self.tables,
            dir: self.home.folder(),
            catalog: self.home.uri(),
            warehouse: self.home.warehouse(),
            open: self.recipes(),
        })
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
        format!("{table}\n\nThe warehouse stays in {}. Open it with\n{}", self.home.folder(), self.recipes().text())
    }

    /// The lines that open the warehouse.
    pub fn recipes(&self) -> Recipes {
        let pointer = self.pointers.iter().find(|p| p.name.namespace_path() == WITH && p.name.table == "lineitem");
        recipes(&self.home.database(), &self.home.warehouse(), pointer.map_or("", |p| p.metadata_location.as_str()))
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
