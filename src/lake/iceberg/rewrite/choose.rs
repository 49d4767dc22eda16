//! Which way outputs are made: a pure function of plan, schema and footers.

use parquet::basic::{ColumnOrder, Compression, Encoding};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescriptor;

use super::{repack, schema};
use crate::lake::iceberg::properties::WriteProperties;
use crate::model::plan::{Path, Plan};
use crate::parquet::gather::is_plain;
use crate::parquet::{codec, delta, trust};

/// A way with the finding that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The way.
    pub path: Path,
    /// The finding.
    pub reason: String,
}

/// Row groups of at least this many rows scan as fast as larger ones.
const HEALTHY_ROWS: u64 = 120_000;
/// Row groups of at least this many compressed bytes count as healthy with
/// fewer rows.
const HEALTHY_BYTES: u64 = 64 << 20;

/// What the plan alone decides: `Err` with the reason to encode anew.
pub fn by_plan(sorted: bool) -> Result<(), String> {
    if sorted {
        return Err("the table has a sort order".into());
    }
    Ok(())
}

/// What a table asks of its files that copies of pages may not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its codec, where it names one.
    pub codec: Option<Compression>,
    /// Field ids of the columns that are to have bloom filters.
    pub blooms: Vec<i32>,
    /// Bytes at which it ends row groups, where it names them.
    pub row_group: Option<u64>,
    /// Field ids of the columns that are to have no statistics.
    pub no_statistics: Vec<i32>,
}

impl Asked {
    /// What a table's properties ask for.
    pub fn of(properties: &WriteProperties) -> Self {
        let codec = properties.codec_is_set.then_some(properties.compression);
        let row_group = properties.row_group_is_set.then_some(properties.row_group_bytes);
        let blooms = properties.blooms.keys().copied().collect();
        Self { codec, blooms, row_group, no_statistics: properties.no_statistics.clone() }
    }
}

/// What the footers of all inputs decide. `inputs` pairs each with its path.
pub fn by_footers(plan: &Plan, table: &SchemaDescriptor, asked: &Asked, inputs: &[(&str, &ParquetMetaData)]) -> Choice {
    let total = match copied(plan, table, inputs) {
        Ok(total) => total,
        Err(reason) => return Choice { path: Path::ReEncode, reason },
    };
    let cut = plan.inputs.iter().filter(|file| !file.deletes.is_empty()).count();
    let (finding, deletes) = match (total.healthy().and_then(|()| as_asked(asked, inputs)), cut) {
        (Ok(()), 0) => {
            return Choice { path: Path::Splice, reason: format!("{} row groups of {total}, one schema, no deletes", total.groups) };
        }
        (Err(small), 0) => (small, "no deletes".to_owned()),
        (_, cut) => {
            let deletes = format!("deletes apply to {cut} of {} files", plan.inputs.len());
            (deletes, "pages that can be cut".into())
        }
    };
    match joined(plan, asked, inputs) {
        Ok(()) => Choice { path: Path::RePack, reason: format!("{finding}; one schema, {deletes}") },
        Err(why) => Choice { path: Path::ReEncode, reason: format!("{finding}; {why}") },
    }
}

/// The row groups of all inputs together.
#[derive(Default)]
struct Total {
    groups: u64,
    rows: u64,
    bytes: u64,
}

impl Total {
    fn rows(&self) -> u64 {
        self.rows / self.groups.max(1)
    }

    fn bytes(&self) -> u64 {
        self.bytes / self.groups.max(1)
    }

    fn healthy(&self) -> Result<(), String> {
        if self.rows() >= HEALTHY_ROWS || self.bytes() >= HEALTHY_BYTES {
            return Ok(());
        }
        Err(format!("row groups hold {self}, fewer than {HEALTHY_ROWS} and {HEALTHY_BYTES}"))
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows and {} bytes on average", self.rows(), self.bytes())
    }
}

/// Whether pages can be taken over at all.
fn copied(plan: &Plan, table: &SchemaDescriptor, inputs: &[(&str, &ParquetMetaData)]) -> Result<Total, String> {
    let Some((_, first)) = inputs.first() else { return Err("there is no input".into()) };
    let first = first.file_metadata().schema_descr();
    let mut total = Total::default();
    for (path, footer) in inputs {
        let said = |why: String| format!("{path}: {why}");
        let file = footer.file_metadata();
        if let Some(why) = trust::distrust(file.created_by()) {
            return Err(said(why));
        }
        if let Some(why) = schema::difference(table, file.schema_descr()) {
            return Err(said(why));
        }
        if file.schema_descr().root_schema().get_fields() != first.root_schema().get_fields() {
            return Err(said("its schema is spelled differently from the first input's".into()));
        }
        for group in footer.row_groups() {
            for chunk in group.columns() {
                movable(chunk, plan.bound.memory).map_err(|why| said(format!("column {}: {why}", chunk.column_path())))?;
            }
            total.groups += 1;
            total.rows = total.rows.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
            total.bytes = total.bytes.saturating_add(u64::try_from(group.compressed_size()).unwrap_or(0));
        }
    }
    Ok(total)
}

/// Whether row groups can be joined page by page.
fn joined(plan: &Plan, asked: &Asked, inputs: &[(&str, &ParquetMetaData)]) -> Result<(), String> {
    if !asked.blooms.is_empty() {
        return Err("the table wants bloom filters".into());
    }
    for (number, (path, footer)) in inputs.iter().enumerate() {
        let cut = plan.inputs.get(number).is_some_and(|file| !file.deletes.is_empty());
        for group in footer.row_groups().iter().filter(|group| group.num_rows() > 0) {
            held(group, plan.bound.memory)
                .map_err(|bytes| format!("{path}: {bytes} bytes of a row group would have to be held in memory"))?;
            unasked(asked, group).map_err(|why| format!("{path}: {why}"))?;
            for chunk in group.columns() {
                joinable(chunk, cut).map_err(|why| format!("{path}: column {}: {why}", chunk.column_path()))?;
            }
        }
    }
    Ok(())
}

/// Whether a row group fits into memory, or each of its columns does. Errs with
/// the bytes that do not.
fn held(group: &RowGroupMetaData, memory: u64) -> Result<(), u64> {
    let size = |chunk: &ColumnChunkMetaData| u64::try_from(chunk.uncompressed_size().max(chunk.compressed_size())).unwrap_or(u64::MAX);
    let whole = group.columns().iter().map(size).fold(0, u64::saturating_add);
    let widest = group.columns().iter().map(size).max().unwrap_or(0);
    match whole <= repack::group_bytes(memory) || widest <= repack::column_bytes(memory) {
        true => Ok(()),
        false => Err(whole),
    }
}

/// Whether a column chunk's pages can be joined with others, and cut where rows
/// of its file are deleted.
fn joinable(chunk: &ColumnChunkMetaData, cut: bool) -> Result<(), String> {
    if !codec::supported(chunk.compression()) {
        return Err(format!("its codec is {}", chunk.compression()));
    }
    // Levels are among the encodings; some writers state one for levels that are not there.
    #[allow(deprecated)]
    let levels = |encoding| matches!(encoding, Encoding::RLE | Encoding::BIT_PACKED);
    let cuts = |encoding| levels(encoding) || is_plain(encoding) || delta::decodes(encoding, chunk.column_type());
    let whole = |encoding: &Encoding| !cuts(*encoding);
    match chunk.encodings().find(whole) {
        Some(encoding) if cut => Err(format!("rows are deleted from it, and its pages are encoded as {encoding}")),
        _ => Ok(()),
    }
}

/// Whether a row group has nothing that the table does not want and that stays
/// when its pages are taken over: much more than the bytes at which row groups
/// end, or statistics of a column that is to have none.
fn unasked(asked: &Asked, group: &RowGroupMetaData) -> Result<(), String> {
    let bytes = u64::try_from(group.compressed_size()).unwrap_or(0);
    if let Some(most) = asked.row_group.filter(|most| bytes > most.saturating_add(most / 2)) {
        return Err(format!("a row group has {bytes} bytes, the table's end at {most}"));
    }
    let unwanted = |chunk: &&ColumnChunkMetaData| {
        let id = chunk.column_descr().self_type().get_basic_info();
        chunk.statistics().is_some() && id.has_id() && asked.no_statistics.contains(&id.id())
    };
    match group.columns().iter().find(unwanted) {
        Some(chunk) => Err(format!("column {}: it has statistics, which the table does not want", chunk.column_path())),
        None => Ok(()),
    }
}

/// Whether row groups can stay as they are: they have the codec and the bloom
/// filters that the table asks for and nothing that it does not want, and their
/// statistics mean what the output would say of them.
fn as_asked(asked: &Asked, inputs: &[(&str, &ParquetMetaData)]) -> Result<(), String> {
    for (path, footer) in inputs {
        if !orders_defined(footer) {
            return Err(format!("{path}: it does not define the order of its columns"));
        }
        let groups = || footer.row_groups().iter().filter(|group| group.num_rows() > 0);
        groups().try_for_each(|group| unasked(asked, group)).map_err(|why| format!("{path}: {why}"))?;
        for chunk in groups().flat_map(RowGroupMetaData::columns) {
            let said = |why: String| Err(format!("{path}: column {}: {why}", chunk.column_path()));
            let found = chunk.compression();
            if let Some(codec) = asked.codec.filter(|codec| !codec::same(*codec, found)) {
                return said(format!("its codec is {}, the table's {}", name(found), name(codec)));
            }
            let id = chunk.column_descr().self_type().get_basic_info();
            if id.has_id() && asked.blooms.contains(&id.id()) && chunk.bloom_filter_offset().is_none() {
                return said("it has no bloom filter".into());
            }
        }
    }
    Ok(())
}

/// A codec without its level.
fn name(codec: Compression) -> String {
    let name = codec.to_string();
    name.split('(').next().unwrap_or_default().to_owned()
}

/// Whether a file tells how the values of its columns are ordered: without that
/// its statistics mean nothing, and an output would tell it.
pub fn orders_defined(footer: &ParquetMetaData) -> bool {
    let columns = footer.file_metadata().schema_descr().num_columns();
    let defined =
        |orders: &Vec<ColumnOrder>| orders.len() == columns && orders.iter().all(|o| matches!(o, ColumnOrder::TYPE_DEFINED_ORDER(_)));
    footer.file_metadata().column_orders().is_some_and(defined)
}

/// Whether a column chunk can be copied whole.
fn movable(chunk: &ColumnChunkMetaData, memory: u64) -> Result<(), String> {
    if chunk.file_path().is_some_and(|path| !path.is_empty()) {
        return Err("its pages lie in another file".into());
    }
    let has_dictionary = chunk.encodings().any(|e| matches!(e, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY));
    match chunk.dictionary_page_offset() {
        None if has_dictionary => return Err("it does not tell where its dictionary is".into()),
        Some(offset) if offset <= 0 || offset >= chunk.data_page_offset() => {
            return Err("its dictionary is not in front of its pages".into());
        }
        _ => {}
    }
    match u64::try_from(chunk.compressed_size()) {
        Ok(bytes) if bytes <= memory / 4 => Ok(()),
        Ok(bytes) => Err(format!("{bytes} bytes of it would have to be held in memory")),
        Err(_) => Err("its size is negative".into()),
    }
}

#[cfg(test)]
mod tests;
