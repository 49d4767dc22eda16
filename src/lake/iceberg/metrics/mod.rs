//! Column metrics of the files we write, as manifests hold them.
//!
//! Readers prune by them, so a bound is never tighter than the truth: where the
//! truth is not known, there is no bound.

pub mod bound;
pub mod leaf;
pub mod mode;
pub mod nan;

use std::collections::HashMap;

use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Struct};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

use self::bound::{End, Fold};
use self::leaf::Leaf;
use self::mode::Mode;
use crate::lake::{Error, Result};

/// What a footer does not tell about a data file.
pub struct Facts<'a> {
    /// Path as the metadata will spell it.
    pub path: &'a str,
    /// Size in bytes.
    pub bytes: u64,
    /// The partition's values.
    pub partition: Struct,
    /// The partition's spec.
    pub spec_id: i32,
    /// NaNs by field id; a float column that is absent is not known.
    pub nans: &'a HashMap<i32, u64>,
}

/// Describes a written file by its footer.
///
/// Every column of the footer must carry its field id. Columns inside lists and
/// maps get counts but no bounds, by the specification.
pub fn data_file(footer: &ParquetMetaData, leaves: &[Leaf], modes: &HashMap<i32, Mode>, facts: Facts<'_>) -> Result<DataFile> {
    let mut columns = Columns::default();
    let by_id: HashMap<i32, &Leaf> = leaves.iter().map(|leaf| (leaf.id, leaf)).collect();
    for position in 0..footer.file_metadata().schema_descr().num_columns() {
        let info = footer.file_metadata().schema_descr().column(position);
        let info = info.self_type().get_basic_info();
        let Some(leaf) = info.has_id().then(|| by_id.get(&info.id())).flatten() else { continue };
        let chunks = footer.row_groups().iter().filter_map(|group| group.columns().get(position));
        columns.add(leaf, modes.get(&leaf.id).copied().unwrap_or(mode::DEFAULT), chunks, facts.nans.get(&leaf.id).copied());
    }
    let rows = footer.row_groups().iter().map(|group| count(group.num_rows())).sum();
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(facts.path.to_owned())
        .file_format(DataFileFormat::Parquet)
        .partition(facts.partition)
        .partition_spec_id(facts.spec_id)
        .record_count(rows)
        .file_size_in_bytes(facts.bytes)
        .column_sizes(columns.sizes)
        .value_counts(columns.values)
        .null_value_counts(columns.nulls)
        .nan_value_counts(columns.nans)
        .lower_bounds(columns.lower)
        .upper_bounds(columns.upper)
        .split_offsets(Some(footer.row_groups().iter().filter_map(start).collect()))
        .build()
        .map_err(|e| Error::Setup(format!("{}: the file cannot be described: {e}", facts.path)))
}

/// Where a row group's first page begins.
pub fn start(group: &RowGroupMetaData) -> Option<i64> {
    let first = group.columns().first()?;
    Some(first.dictionary_page_offset().unwrap_or_else(|| first.data_page_offset()))
}

#[derive(Default)]
struct Columns {
    sizes: HashMap<i32, u64>,
    values: HashMap<i32, u64>,
    nulls: HashMap<i32, u64>,
    nans: HashMap<i32, u64>,
    lower: HashMap<i32, Datum>,
    upper: HashMap<i32, Datum>,
}

impl Columns {
    fn add<'a>(&mut self, leaf: &Leaf, mode: Mode, chunks: impl Iterator<Item = &'a ColumnChunkMetaData>, nans: Option<u64>) {
        let mut total = Total::default();
        chunks.for_each(|chunk| total.add(leaf, chunk));
        self.sizes.insert(leaf.id, total.bytes);
        if mode == Mode::None {
            return;
        }
        self.values.insert(leaf.id, total.values);
        if let Some(nulls) = total.nulls {
            self.nulls.insert(leaf.id, nulls);
        }
        if let Some(nans) = nans.filter(|_| leaf.is_float()) {
            self.nans.insert(leaf.id, nans);
        }
        if mode == Mode::Counts || leaf.repeated {
            return;
        }
        let cut = |bound: Datum, end| if let Mode::Truncate(length) = mode { bound::truncate(bound, length, end) } else { Some(bound) };
        if let Some(lower) = total.lower.known().and_then(|b| cut(b, End::Lower)) {
            self.lower.insert(leaf.id, lower);
        }
        if let Some(upper) = total.upper.known().and_then(|b| cut(b, End::Upper)) {
            self.upper.insert(leaf.id, upper);
        }
    }
}

/// A column over all row groups.
struct Total {
    bytes: u64,
    values: u64,
    /// `None` once a row group does not tell.
    nulls: Option<u64>,
    lower: Fold,
    upper: Fold,
}

impl Default for Total {
    fn default() -> Self {
        Self { bytes: 0, values: 0, nulls: Some(0), lower: Fold::Empty, upper: Fold::Empty }
    }
}

impl Total {
    fn add(&mut self, leaf: &Leaf, chunk: &ColumnChunkMetaData) {
        let values = count(chunk.num_values());
        self.bytes = self.bytes.saturating_add(count(chunk.compressed_size()));
        self.values = self.values.saturating_add(values);
        if values == 0 {
            return;
        }
        let statistics = chunk.statistics();
        let nulls = statistics.and_then(|s| s.null_count_opt());
        self.nulls = self.nulls.zip(nulls).and_then(|(sum, nulls)| sum.checked_add(nulls));
        if nulls == Some(values) {
            return;
        }
        let length = chunk.column_descr().type_length();
        let bound = |end| statistics.and_then(|s| bound::of_statistics(s, &leaf.kind, length, end));
        self.lower.widen(End::Lower, bound(End::Lower));
        self.upper.widen(End::Upper, bound(End::Upper));
    }
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests;
