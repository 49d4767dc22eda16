//! Which way outputs are made: a pure function of plan, schema and footers.

use std::collections::BTreeMap;

use parquet::basic::{ColumnOrder, Compression, Encoding};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescriptor;

use super::repack::{self, HEALTHY_BYTES, HEALTHY_ROWS};
use super::schema;
use crate::lake::iceberg::lineage;
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
    /// Where pages are joined: the places of the inputs whose pages cannot be,
    /// ascending. They are decoded and encoded by themselves, then joined with the
    /// others.
    pub odd: Vec<usize>,
    /// Where pages are joined: the columns that are encoded anew all the same.
    pub anew: Vec<usize>,
}

impl Choice {
    /// A way for all files and columns alike.
    pub fn whole(path: Path, reason: String) -> Self {
        Self { path, reason, odd: Vec::new(), anew: Vec::new() }
    }
}

/// Bytes that the row ids of a row take in memory, and their pages.
const LINEAGE_BYTES: u64 = 24;
/// The share of a plan's memory that odd files may take which are held, encoded by
/// themselves, until they are joined; others are put aside on the store.
pub const ODD_SHARE: u64 = 8;
/// The share that bloom filters of joined row groups may take.
const BLOOM_SHARE: u64 = 16;

/// What a table asks of its files that copies of pages may not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its codec, where it names one.
    pub codec: Option<Compression>,
    /// Field ids of the columns that are to have bloom filters.
    pub blooms: Vec<i32>,
    /// Bytes that one of these may take.
    pub bloom_bytes: u64,
    /// Bytes at which it ends row groups, where it names them.
    pub row_group: Option<u64>,
    /// Field ids of the columns that are to have no statistics.
    pub no_statistics: Vec<i32>,
    /// Whether rows keep their lineage, in columns behind the table's.
    pub lineage: bool,
}

impl Asked {
    /// What a table's properties ask for.
    pub fn of(properties: &WriteProperties) -> Self {
        let codec = properties.codec_is_set.then_some(properties.compression);
        let row_group = properties.row_group_is_set.then_some(properties.row_group_bytes);
        let blooms = properties.blooms.keys().copied().collect();
        let bloom_bytes = properties.bloom_max_bytes;
        Self { codec, blooms, bloom_bytes, row_group, no_statistics: properties.no_statistics.clone(), lineage: false }
    }

    /// The same, of a table whose rows keep their lineage, or not.
    pub fn with_lineage(self, lineage: bool) -> Self {
        Self { lineage, ..self }
    }
}

/// What the footers of all inputs decide. `inputs` pairs each with its path.
pub fn by_footers(plan: &Plan, table: &SchemaDescriptor, asked: &Asked, inputs: &[(&str, &ParquetMetaData)]) -> Choice {
    let Some(model) = model(table, asked.lineage, inputs) else {
        return Choice::whole(Path::ReEncode, "there is no input".into());
    };
    let mut odd = Odd::default();
    for (number, input) in inputs.iter().enumerate() {
        odd.unless(number, copied(plan, (table, model), asked, *input));
    }
    if odd.0.len() == inputs.len() || odd.costs_lineage(asked) {
        return Choice::whole(Path::ReEncode, odd.first());
    }
    let others = || inputs.iter().enumerate().filter(|(number, _)| !odd.has(*number)).map(|(_, input)| *input);
    let total = Total::of(others().map(|(_, footer)| footer));
    let cut = plan.inputs.iter().filter(|file| !file.deletes.is_empty()).count();
    let (finding, deletes) = match (total.healthy().and_then(|()| as_asked(asked, others())), cut) {
        (Ok(()), 0) if odd.0.is_empty() => {
            return Choice::whole(Path::Splice, format!("{total}, one schema, no deletes"));
        }
        (Ok(()), 0) => (odd.first(), "no deletes".to_owned()),
        (Err(small), 0) => (small, "no deletes".to_owned()),
        (_, cut) => {
            let deletes = format!("deletes apply to {cut} of {} files", plan.inputs.len());
            (deletes, "pages that can be cut".into())
        }
    };
    match joined(plan, (table, model), asked, inputs, odd) {
        Ok((odd, anew)) => {
            let mut reason = format!("{finding}; one schema, {deletes}");
            if !odd.0.is_empty() {
                reason.push_str(&format!("; {} of {} files are decoded first: {}", odd.0.len(), inputs.len(), odd.first()));
            }
            if !anew.is_empty() {
                reason.push_str(&format!("; {} columns are encoded anew: the table wants bloom filters", anew.len()));
            }
            Choice { path: Path::RePack, reason, odd: odd.0.into_keys().collect(), anew }
        }
        Err(why) => Choice::whole(Path::ReEncode, format!("{finding}; {why}")),
    }
}

/// Inputs whose pages cannot be taken over, with the reasons.
#[derive(Default)]
struct Odd(BTreeMap<usize, String>);

impl Odd {
    fn unless(&mut self, number: usize, fits: Result<(), String>) {
        if let Err(why) = fits {
            self.0.insert(number, why);
        }
    }

    fn has(&self, number: usize) -> bool {
        self.0.contains_key(&number)
    }

    /// Whether there are any, and rows are told apart by where they stand in their
    /// files: those of odd ones are put elsewhere before they are joined.
    fn costs_lineage(&self, asked: &Asked) -> bool {
        asked.lineage && !self.0.is_empty()
    }

    fn first(&self) -> String {
        self.0.values().next().cloned().unwrap_or_default()
    }
}

/// The way in which most files spell the table's schema: the pages of all of them
/// are joined under one.
///
/// `lineage`: columns of lineage behind the table's make no difference.
pub fn model<'a>(table: &SchemaDescriptor, lineage: bool, inputs: &[(&str, &'a ParquetMetaData)]) -> Option<&'a SchemaDescriptor> {
    let mut spellings: Vec<(&SchemaDescriptor, usize)> = Vec::new();
    for (_, footer) in inputs {
        let schema = footer.file_metadata().schema_descr();
        match spellings.iter_mut().find(|(other, _)| spelled_alike(schema, other, lineage)) {
            Some((_, count)) => *count += 1,
            None if schema::difference(table, schema, lineage).is_none() => spellings.push((schema, 1)),
            None => {}
        }
    }
    let most = spellings.iter().map(|(_, count)| *count).max();
    let first = || inputs.first().map(|(_, footer)| footer.file_metadata().schema_descr());
    spellings.iter().find(|(_, count)| Some(*count) == most).map(|(schema, _)| *schema).or_else(first)
}

/// Whether two files have the same columns, those of lineage aside where these count
/// for nothing: they are not copied.
fn spelled_alike(a: &SchemaDescriptor, b: &SchemaDescriptor, lineage: bool) -> bool {
    match lineage {
        true => lineage::table_columns(a.root_schema()) == lineage::table_columns(b.root_schema()),
        false => a.root_schema().get_fields() == b.root_schema().get_fields(),
    }
}

/// The row groups of some inputs together.
#[derive(Default)]
struct Total {
    groups: u64,
    rows: u64,
    bytes: u64,
    /// Those that scan worse than larger ones would.
    small: u64,
}

impl Total {
    fn of<'a>(footers: impl Iterator<Item = &'a ParquetMetaData>) -> Self {
        let mut total = Self::default();
        for group in footers.flat_map(|footer| footer.row_groups()).filter(|group| group.num_rows() > 0) {
            let (rows, bytes) = (u64::try_from(group.num_rows()).unwrap_or(0), u64::try_from(group.compressed_size()).unwrap_or(0));
            total.groups += 1;
            total.rows = total.rows.saturating_add(rows);
            total.bytes = total.bytes.saturating_add(bytes);
            total.small += u64::from(!repack::Size { rows, bytes, stays: true }.is_healthy());
        }
        total
    }

    /// Whether every one of them is: many good ones do not mend a small one.
    fn healthy(&self) -> Result<(), String> {
        match self.small {
            0 => Ok(()),
            small => Err(format!("{small} of {self}, hold fewer than {HEALTHY_ROWS} rows and {HEALTHY_BYTES} bytes")),
        }
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups = self.groups.max(1);
        write!(f, "{} row groups of {} rows and {} bytes on average", self.groups, self.rows / groups, self.bytes / groups)
    }
}

/// Whether pages of a file can be taken over at all.
fn copied(
    plan: &Plan,
    (table, model): (&SchemaDescriptor, &SchemaDescriptor),
    asked: &Asked,
    (path, footer): (&str, &ParquetMetaData),
) -> Result<(), String> {
    let said = |why: String| format!("{path}: {why}");
    let file = footer.file_metadata();
    if let Some(why) = trust::distrust(file.created_by()) {
        return Err(said(why));
    }
    if let Some(why) = schema::difference(table, file.schema_descr(), asked.lineage) {
        return Err(said(why));
    }
    if !spelled_alike(file.schema_descr(), model, asked.lineage) {
        return Err(said("its schema is spelled differently from most inputs'".into()));
    }
    if asked.lineage {
        footer.row_groups().iter().try_for_each(|group| told(group, plan.bound.memory)).map_err(said)?;
    }
    let mut chunks = footer.row_groups().iter().flat_map(|group| group.columns().iter().take(table.num_columns()));
    chunks.try_for_each(|chunk| movable(chunk, plan.bound.memory).map_err(|why| said(format!("column {}: {why}", chunk.column_path()))))
}

/// Whether the lineage of a row group's rows fits into memory beside its pages.
fn told(group: &RowGroupMetaData, memory: u64) -> Result<(), String> {
    let bytes = u64::try_from(group.num_rows()).unwrap_or(u64::MAX).saturating_mul(LINEAGE_BYTES);
    match bytes <= memory / 8 {
        true => Ok(()),
        false => Err(format!("{bytes} bytes of row ids would have to be held in memory")),
    }
}

/// Whether row groups can be joined page by page: which files cannot and have to be
/// encoded by themselves first, and which columns are encoded anew.
///
/// Errs with the reason to encode everything anew.
fn joined(
    plan: &Plan,
    (table, model): (&SchemaDescriptor, &SchemaDescriptor),
    asked: &Asked,
    inputs: &[(&str, &ParquetMetaData)],
    mut odd: Odd,
) -> Result<(Odd, Vec<usize>), String> {
    let wanted = |column: &usize| {
        let id = model.column(*column).self_type().get_basic_info().clone();
        id.has_id() && asked.blooms.contains(&id.id())
    };
    let columns = table.num_columns();
    let anew: Vec<usize> = (0..columns).filter(wanted).collect();
    let blooms = (anew.len() as u64).saturating_mul(asked.bloom_bytes);
    if anew.len() == columns || blooms > plan.bound.memory / BLOOM_SHARE {
        return Err("the table wants bloom filters".into());
    }
    for (number, input) in inputs.iter().enumerate().filter(|(number, _)| !odd.0.contains_key(number)).collect::<Vec<_>>() {
        let cut = plan.inputs.get(number).is_some_and(|file| !file.deletes.is_empty());
        odd.unless(number, joins(plan, (asked, columns), *input, cut));
    }
    if odd.0.is_empty() {
        return Ok((odd, anew));
    }
    let bytes = odd.0.keys().filter_map(|number| plan.inputs.get(*number)).map(|file| file.bytes).fold(0, u64::saturating_add);
    // what is put aside is written and read twice
    let pays = bytes <= plan.bound.memory / ODD_SHARE || bytes <= plan.input_bytes() / 2;
    if odd.0.len() == inputs.len() || odd.costs_lineage(asked) || !pays || !same_levels(table, model) {
        return Err(odd.first());
    }
    Ok((odd, anew))
}

/// Whether columns nest alike: rows encoded as the table's may then stand beside the
/// pages of files of this schema.
fn same_levels(table: &SchemaDescriptor, model: &SchemaDescriptor) -> bool {
    let levels = |schema: &SchemaDescriptor| -> Vec<(i16, i16)> {
        schema.columns().iter().map(|column| (column.max_def_level(), column.max_rep_level())).collect()
    };
    levels(table) == levels(model)
}

/// Whether the first so many columns of a file's row groups can be joined page by page.
fn joins(plan: &Plan, (asked, columns): (&Asked, usize), (path, footer): (&str, &ParquetMetaData), cut: bool) -> Result<(), String> {
    let stays = !cut && as_asked(asked, std::iter::once((path, footer))).is_ok();
    for group in footer.row_groups().iter().filter(|group| group.num_rows() > 0) {
        let held = held(group, plan.bound.memory, stays);
        held.map_err(|bytes| format!("{path}: {bytes} bytes of a row group would have to be held in memory"))?;
        unasked(asked, group).map_err(|why| format!("{path}: {why}"))?;
        for chunk in group.columns().iter().take(columns) {
            joinable(chunk, cut).map_err(|why| format!("{path}: column {}: {why}", chunk.column_path()))?;
        }
    }
    Ok(())
}

/// Whether a row group fits into memory, or each of its columns does. `stays`: whether
/// it is copied whole where it is healthy. Errs with the bytes that do not fit.
fn held(group: &RowGroupMetaData, memory: u64, stays: bool) -> Result<(), u64> {
    let bytes = |size: i64| u64::try_from(size).unwrap_or(u64::MAX);
    let size = |chunk: &ColumnChunkMetaData| bytes(chunk.uncompressed_size().max(chunk.compressed_size()));
    let whole = group.columns().iter().map(size).fold(0, u64::saturating_add);
    let widest = group.columns().iter().map(size).max().unwrap_or(0);
    let copied = stays && repack::Size { rows: bytes(group.num_rows()), bytes: bytes(group.compressed_size()), stays }.is_healthy();
    let compressed = group.columns().iter().map(|chunk| bytes(chunk.compressed_size())).max().unwrap_or(0);
    match whole <= repack::group_bytes(memory)
        || widest <= repack::column_bytes(memory)
        || (copied && compressed <= repack::copied_column_bytes(memory))
    {
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
pub fn as_asked<'a>(asked: &Asked, inputs: impl Iterator<Item = (&'a str, &'a ParquetMetaData)>) -> Result<(), String> {
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
///
/// Errs with what stands against it.
pub fn movable(chunk: &ColumnChunkMetaData, memory: u64) -> Result<(), String> {
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
