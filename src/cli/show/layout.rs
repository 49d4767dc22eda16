//! `inspect`.

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::model::traits::Traits;
use crate::serve::backend::{PartitionRow, TableLayout};

/// A table's layout with a row a partition.
pub fn inspect(layout: &TableLayout, partitions: &[PartitionRow]) -> String {
    let mut text = head(layout);
    if !partitions.is_empty() {
        let headings = ["partition", "files", "bytes", "mean", "rows", "small", "fewer", "entropy", "deletes", "delete ratio", "cost"];
        let numbers = headings.get(1..).unwrap_or_default();
        let mut rows: Vec<Vec<String>> = partitions.iter().map(|p| row(&p.label, &p.traits)).collect();
        rows.push(row("total", &layout.traits));
        text.push('\n');
        text.push_str(&table(&headings, numbers, rows));
    }
    text
}

fn head(layout: &TableLayout) -> String {
    let snapshot = layout.snapshot_id.map_or_else(|| "no snapshot".to_owned(), |id| format!("snapshot {id}"));
    let mut text = format!(
        "{} ({}), branch {}, {snapshot}\nformat v{}, target {}, {} in {} partitions, {} manifests ({}), {}",
        human::safe(&layout.table.to_string()),
        layout.uuid,
        human::safe(&layout.reference),
        layout.format_version,
        human::bytes(layout.target_file_size),
        files(layout.traits.data_files),
        human::count(layout.partitions),
        human::count(layout.traits.manifest_count),
        human::bytes(layout.traits.metadata_bytes),
        if layout.act { "rewrites are carried out" } else { "rewrites are only advised" },
    );
    for refused in &layout.refused {
        text.push_str(&format!("\n{}", human::safe(&refused.to_string())));
    }
    text
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{} files", human::count(count)) }
}

fn row(label: &str, t: &Traits) -> Vec<String> {
    vec![
        label.to_owned(),
        human::count(t.data_files),
        human::bytes(t.data_bytes),
        human::bytes(t.data_bytes.checked_div(t.data_files).unwrap_or(0)),
        human::count(t.records),
        human::count(t.small_file_count),
        human::count(t.file_count_reduction),
        format!("{:.3}", t.file_entropy_normalized),
        human::count(t.delete_file_count),
        format!("{:.3}", t.delete_ratio),
        human::gb_hours(t.compute_cost),
    ]
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    Table(&'a TableLayout),
    Partition(&'a PartitionRow),
}

/// The table's object, then one a partition, told apart by `kind`.
pub fn inspect_json(layout: &TableLayout, partitions: &[PartitionRow]) -> String {
    let mut lines = vec![Line::Table(layout)];
    lines.extend(partitions.iter().map(Line::Partition));
    json_lines(&lines)
}
