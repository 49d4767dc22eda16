//! What a footer and its page indexes state of a chunk, against its pages and what
//! was seen of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use parquet::basic::{BoundaryOrder, PageType};
use parquet::data_type::AsBytes;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

use super::ends::{Ends, Order};
use super::walk::{Chunk, Walked};
use super::{Found, Trouble};

/// What is known of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Values, NULLs included.
    pub values: u64,
    /// NULLs; `None` when not known.
    pub nulls: Option<u64>,
    /// Rows that begin in it; `None` when not known.
    pub rows: Option<u64>,
    /// NaNs, where they were asked for.
    pub nans: u64,
    /// Ends of its values.
    pub ends: Ends,
    /// Whether its bytes are those of a page that was there before.
    pub copied: bool,
}

/// Checks a chunk of which all pages were seen; what it holds.
///
/// Errs when what is stated does not hold, `Unfit` when it is not known whether a
/// bound does.
pub fn check(chunk: &Chunk, walked: &Walked, seen: &[Seen], order: Order) -> Result<Found, Trouble> {
    let meta = chunk.meta()?;
    if seen.len() != walked.data.len() {
        return Err(Trouble::wrong("pages that were not compared"));
    }
    sizes(chunk, meta, walked)?;
    dictionary_header(chunk, walked)?;
    encodings(meta, walked)?;
    let mut found = Found::default();
    for page in seen {
        found.values = found.values.saturating_add(page.values);
        found.nulls = found.nulls.saturating_add(page.nulls.unwrap_or(0));
        found.nans = found.nans.saturating_add(page.nans);
        found.ends.join(order, &page.ends);
        found.copied += usize::from(page.copied);
        found.opened += usize::from(!page.copied);
    }
    if seen.iter().any(|page| page.nulls.is_none()) {
        return Err(Trouble::Unfit("NULLs that nothing tells".into()));
    }
    let rows: Option<u64> = seen.iter().map(|page| page.rows).sum();
    let rows = rows.ok_or_else(|| Trouble::Unfit("rows that nothing tells".into()))?;
    if chunk.rows() != Ok(rows) {
        return Err(Trouble::wrong("pages of another number of rows than the row group"));
    }
    statistics(meta, &found, order)?;
    offsets(chunk, walked, seen)?;
    pages(chunk, seen, order)?;
    Ok(found)
}

/// Places and sizes.
fn sizes(chunk: &Chunk, meta: &ColumnChunkMetaData, walked: &Walked) -> Result<(), Trouble> {
    let start = meta.byte_range().0;
    let place = |at: usize| start.checked_add(at as u64).and_then(|at| i64::try_from(at).ok());
    let data = walked.data.first().map(|page| place(page.head.start));
    let dictionary = walked.dictionary.as_ref().and_then(|page| place(page.head.start));
    let holds = walked.end == chunk.bytes.len()
        && data.is_none_or(|place| place == Some(meta.data_page_offset()))
        && meta.dictionary_page_offset() == dictionary
        && u64::try_from(meta.uncompressed_size()) == Ok(walked.uncompressed);
    if holds { Ok(()) } else { Err(Trouble::wrong("pages of other places or sizes than the footer states")) }
}

/// Every byte of a dictionary's header must be one that is read. Some writers add
/// that it is not sorted.
fn dictionary_header(chunk: &Chunk, walked: &Walked) -> Result<(), Trouble> {
    const NOT_SORTED: [u8; 3] = [0x12, 0, 0];
    let Some(page) = &walked.dictionary else { return Ok(()) };
    let (mut again, found) = (Vec::new(), chunk.bytes.get(page.head.clone()).unwrap_or_default());
    page.header.write(&mut again)?;
    if found == again {
        return Ok(());
    }
    again.truncate(again.len().saturating_sub(2));
    again.extend(NOT_SORTED);
    if found == again { Ok(()) } else { Err(Trouble::wrong("a dictionary's header that states what no reader is to read")) }
}

/// Readers skip whole chunks by what is said of their pages' encodings.
fn encodings(meta: &ColumnChunkMetaData, walked: &Walked) -> Result<(), Trouble> {
    let mut counts: BTreeMap<(i32, i32), i32> = BTreeMap::new();
    for page in walked.dictionary.iter().chain(&walked.data) {
        let encoding = match &page.header.kind {
            crate::parquet::header::Kind::Dictionary { encoding, .. } => *encoding,
            kind => kind.data().map_or(parquet::basic::Encoding::PLAIN, |(_, encoding)| encoding),
        };
        if !meta.encodings_mask().is_set(encoding) {
            return Err(Trouble::wrong(format_args!("a page encoded as {encoding}, which the footer does not state")));
        }
        *counts.entry((page.header.page_type() as i32, encoding as i32)).or_default() += 1;
    }
    let Some(stated) = meta.page_encoding_stats() else { return Ok(()) };
    let mut told: BTreeMap<(i32, i32), i32> = BTreeMap::new();
    for entry in stated.iter().filter(|entry| entry.page_type != PageType::INDEX_PAGE) {
        *told.entry((entry.page_type as i32, entry.encoding as i32)).or_default() += entry.count;
    }
    if told == counts { Ok(()) } else { Err(Trouble::wrong("pages of other encodings than the footer counts")) }
}

fn statistics(meta: &ColumnChunkMetaData, found: &Found, order: Order) -> Result<(), Trouble> {
    let Some(stated) = meta.statistics() else { return Ok(()) };
    if stated.null_count_opt().is_some_and(|nulls| nulls != found.nulls) {
        return Err(Trouble::wrong(format_args!("{} NULLs, its statistics state {:?}", found.nulls, stated.null_count_opt())));
    }
    let (low, high) = bounds(Some(stated));
    bounded(order, &found.ends, low.as_deref(), high.as_deref(), "its statistics")
}

/// Whether values lie within stated bounds.
pub fn bounded(order: Order, ends: &Ends, low: Option<&[u8]>, high: Option<&[u8]>, what: &str) -> Result<(), Trouble> {
    if (low.is_none() && high.is_none()) || order == Order::None {
        return Ok(());
    }
    if *ends == Ends::Unknown {
        return Err(Trouble::Unfit(format!("bounds of {what} that nothing tells")));
    }
    if low.is_none_or(|low| ends.above(order, low)) && high.is_none_or(|high| ends.below(order, high)) {
        return Ok(());
    }
    Err(Trouble::wrong(format_args!("a value outside the bounds of {what}")))
}

fn offsets(chunk: &Chunk, walked: &Walked, seen: &[Seen]) -> Result<(), Trouble> {
    let Some(index) = chunk.offset_index() else { return Ok(()) };
    let wrong = || Trouble::wrong("an offset index that does not point at its pages");
    let (start, mut first) = (chunk.meta()?.byte_range().0, Some(0u64));
    if index.page_locations().len() != walked.data.len() {
        return Err(wrong());
    }
    for ((place, page), seen) in index.page_locations().iter().zip(&walked.data).zip(seen) {
        let at = start.saturating_add(page.head.start as u64);
        let length = page.body.end.saturating_sub(page.head.start);
        let row = first.ok_or_else(|| Trouble::Unfit("rows of pages that nothing tells".into()))?;
        if u64::try_from(place.offset) != Ok(at)
            || usize::try_from(place.compressed_page_size) != Ok(length)
            || u64::try_from(place.first_row_index) != Ok(row)
        {
            return Err(wrong());
        }
        first = seen.rows.and_then(|rows| row.checked_add(rows));
    }
    Ok(())
}

fn pages(chunk: &Chunk, seen: &[Seen], order: Order) -> Result<(), Trouble> {
    let Some(index) = chunk.column_index() else { return Ok(()) };
    if index.num_pages() != seen.len() as u64 {
        return Err(Trouble::wrong("a column index of another number of pages"));
    }
    let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
    // Below lists writers take a page with as many NULLs as rows for one of NULLs only.
    let flat = chunk.meta()?.column_descr().max_rep_level() == 0;
    for (place, page) in seen.iter().enumerate() {
        let nulls = index.null_count(place).map(u64::try_from);
        let only_nulls = page.nulls == Some(page.values);
        if nulls.is_some_and(|nulls| nulls.ok() != page.nulls) || (flat && index.is_null_page(place) != only_nulls) {
            return Err(Trouble::wrong("a column index with other NULLs than its page"));
        }
        let Some((low, high)) = page_bounds(index, place) else { continue };
        bounded(order, &page.ends, Some(&low), Some(&high), "its column index")?;
        if before.as_ref().is_some_and(|before| !in_order(index, order, before, &(&low, &high))) {
            return Err(Trouble::wrong("a column index that is not in the order that it states"));
        }
        before = Some((low, high));
    }
    Ok(())
}

fn in_order(index: &ColumnIndexMetaData, order: Order, before: &(Vec<u8>, Vec<u8>), now: &(&Vec<u8>, &Vec<u8>)) -> bool {
    let compared = [order.compare(&before.0, now.0), order.compare(&before.1, now.1)];
    match index.get_boundary_order() {
        Some(BoundaryOrder::ASCENDING) => compared.iter().all(|found| found.is_some_and(Ordering::is_le)),
        Some(BoundaryOrder::DESCENDING) => compared.iter().all(|found| found.is_some_and(Ordering::is_ge)),
        _ => true,
    }
}

/// The rows that begin in a page, by the chunk's offset index.
pub fn rows_of(chunk: &Chunk, page: usize, pages: usize) -> Option<u64> {
    let places = chunk.offset_index()?.page_locations();
    if places.len() != pages {
        return None;
    }
    let first = |place: usize| places.get(place).and_then(|place| u64::try_from(place.first_row_index).ok());
    let next = if page + 1 == pages { chunk.rows().ok()? } else { first(page + 1)? };
    next.checked_sub(first(page)?)
}

/// Bounds in statistics, as `PLAIN` has values.
pub fn bounds(statistics: Option<&Statistics>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    statistics.map_or((None, None), |s| (bytes(s.min_bytes_opt()), bytes(s.max_bytes_opt())))
}

/// Bounds of a page in a column index; `None` where it has no values, or the
/// index does not tell.
pub fn page_bounds(index: &ColumnIndexMetaData, page: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    macro_rules! both {
        ($index:expr) => {
            $index.min_value(page).zip($index.max_value(page)).map(|(low, high)| (low.as_bytes().to_vec(), high.as_bytes().to_vec()))
        };
    }
    match index {
        ColumnIndexMetaData::NONE => None,
        _ if index.is_null_page(page) => None,
        ColumnIndexMetaData::BOOLEAN(index) => both!(index),
        ColumnIndexMetaData::INT32(index) => both!(index),
        ColumnIndexMetaData::INT64(index) => both!(index),
        ColumnIndexMetaData::INT96(index) => both!(index),
        ColumnIndexMetaData::FLOAT(index) => both!(index),
        ColumnIndexMetaData::DOUBLE(index) => both!(index),
        ColumnIndexMetaData::BYTE_ARRAY(index) => index.min_value(page).zip(index.max_value(page)).map(|(l, h)| (l.to_vec(), h.to_vec())),
        ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            index.min_value(page).zip(index.max_value(page)).map(|(l, h)| (l.to_vec(), h.to_vec()))
        }
    }
}
