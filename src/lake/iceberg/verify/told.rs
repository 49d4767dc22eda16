//! What footers and page indexes tell of a copied chunk, on both sides, bit by bit:
//! NaNs that are the same are equal, and zeros of different signs are not.

use parquet::basic::{ColumnOrder, Encoding};
use parquet::data_type::AsBytes;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::statistics::Statistics;

use crate::parquet::compare::Order;
use crate::parquet::trust;

/// A chunk of a file.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The file's footer.
    pub footer: &'a ParquetMetaData,
    /// The row group.
    pub group: usize,
    /// The column.
    pub column: usize,
}

impl<'a> Place<'a> {
    fn chunk(self) -> Option<&'a ColumnChunkMetaData> {
        self.footer.row_groups().get(self.group)?.columns().get(self.column)
    }

    fn order(self) -> Order {
        self.chunk().map_or(Order::None, |chunk| Order::of(chunk.column_descr()))
    }

    /// Whether the file tells that the column has the order of its type.
    fn tells_order(self) -> bool {
        let orders = self.footer.file_metadata().column_orders().and_then(|orders| orders.get(self.column));
        orders.is_some_and(|order| matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(_)))
    }

    /// Whether readers believe what the file tells of values.
    fn is_believed(self) -> bool {
        (self.tells_order() || !self.order().is_doubtful()) && trust::distrust(self.footer.file_metadata().created_by()).is_none()
    }

    fn index(self) -> Option<&'a ColumnIndexMetaData> {
        let index = self.footer.column_index()?.get(self.group)?.get(self.column)?;
        (!matches!(index, ColumnIndexMetaData::NONE)).then_some(index)
    }

    /// Offsets of the pages from the chunk's beginning, their sizes and first rows.
    fn offsets(self) -> Option<Vec<(i128, i32, i64)>> {
        let start = self.chunk()?.byte_range().0;
        let index = self.footer.offset_index()?.get(self.group)?.get(self.column)?;
        let place = |p: &PageLocation| (i128::from(p.offset) - i128::from(start), p.compressed_page_size, p.first_row_index);
        (!index.page_locations().is_empty()).then(|| index.page_locations().iter().map(place).collect())
    }
}

/// How an output describes a chunk otherwise than the input that it is copied from;
/// `None` where it says the same, or leaves something out. A bound that is zero may
/// have become the zero of the other sign that holds both.
pub fn difference(input: Place<'_>, output: Place<'_>) -> Option<&'static str> {
    let Some((a, b)) = input.chunk().zip(output.chunk()) else { return Some("is missing") };
    if facts(a) != facts(b) || (b.page_encoding_stats().is_some() && b.page_encoding_stats() != a.page_encoding_stats()) {
        return Some("is described otherwise than");
    }
    let histograms = |chunk: &ColumnChunkMetaData| {
        let values = |histogram: &parquet::file::metadata::LevelHistogram| histogram.values().to_vec();
        (chunk.repetition_level_histogram().map(values), chunk.definition_level_histogram().map(values))
    };
    let (of_input, of_output) = (histograms(a), histograms(b));
    let kept = |old: &Option<Vec<i64>>, new: &Option<Vec<i64>>| new.is_none() || old == new;
    if !kept(&of_input.0, &of_output.0) || !kept(&of_input.1, &of_output.1) {
        return Some("has other counts of levels than");
    }
    if b.statistics().is_some_and(|stated| !a.statistics().is_some_and(|old| same_statistics(input.order(), old, stated))) {
        return Some("has other statistics than");
    }
    let bounded = b.statistics().is_some_and(|stated| stated.min_bytes_opt().is_some() || stated.max_bytes_opt().is_some());
    if (bounded || output.index().is_some()) && output.is_believed() && !input.is_believed() {
        return Some("lends belief to bounds that no reader believes of");
    }
    if output.index().is_some_and(|stated| !input.index().is_some_and(|old| same_index(input.order(), old, stated))) {
        return Some("is indexed otherwise than");
    }
    let offsets = output.offsets();
    (offsets.is_some() && offsets != input.offsets()).then_some("has pages in other places than")
}

/// What a reader needs to decode a chunk, apart from where it lies.
fn facts(chunk: &ColumnChunkMetaData) -> impl PartialEq {
    let dictionary = chunk.dictionary_page_offset().map(|at| chunk.data_page_offset().checked_sub(at));
    let lengths = (chunk.byte_range().1, chunk.num_values(), chunk.uncompressed_size());
    let encodings: Vec<Encoding> = chunk.encodings().collect();
    (chunk.column_type(), chunk.compression(), lengths, dictionary, encodings)
}

/// Whether a bound holds what the old one held, and is no other.
fn same_bounds(order: Order, old: (Option<&[u8]>, Option<&[u8]>), new: (Option<&[u8]>, Option<&[u8]>)) -> bool {
    let wide = order.widened(old.0.unwrap_or_default().to_vec(), old.1.unwrap_or_default().to_vec());
    (old.0 == new.0 || new.0 == old.0.map(|_| wide.0.as_slice())) && (old.1 == new.1 || new.1 == old.1.map(|_| wide.1.as_slice()))
}

fn same_statistics(order: Order, old: &Statistics, new: &Statistics) -> bool {
    let rest = |s: &Statistics| {
        let exact = (s.min_is_exact(), s.max_is_exact());
        (s.physical_type(), s.null_count_opt(), s.distinct_count_opt(), s.is_min_max_deprecated(), exact)
    };
    let bounds = |s: &Statistics| (s.min_bytes_opt().map(<[u8]>::to_vec), s.max_bytes_opt().map(<[u8]>::to_vec));
    let (before, after) = (bounds(old), bounds(new));
    let both = same_bounds(order, (before.0.as_deref(), before.1.as_deref()), (after.0.as_deref(), after.1.as_deref()));
    rest(old) == rest(new) && both
}

fn same_index(order: Order, old: &ColumnIndexMetaData, new: &ColumnIndexMetaData) -> bool {
    let whole = |index: &ColumnIndexMetaData| (std::mem::discriminant(index), index.num_pages(), index.get_boundary_order());
    let rest = |index: &ColumnIndexMetaData, page: usize| {
        let levels = |counts: Option<&[i64]>| counts.map(<[i64]>::to_vec);
        let histograms = (levels(index.repetition_level_histogram(page)), levels(index.definition_level_histogram(page)));
        (index.is_null_page(page), index.null_count(page), histograms)
    };
    let pages = usize::try_from(old.num_pages()).unwrap_or(usize::MAX);
    let same = |page: usize| {
        let (before, after) = (ends(old, page), ends(new, page));
        let both = same_bounds(order, (before.0.as_deref(), before.1.as_deref()), (after.0.as_deref(), after.1.as_deref()));
        rest(old, page) == rest(new, page) && both
    };
    whole(old) == whole(new) && (0..pages).all(same)
}

/// The bytes of a page's bounds.
fn ends(index: &ColumnIndexMetaData, page: usize) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    macro_rules! bytes {
        ($index:expr) => {
            ($index.min_value(page).map(|v| v.as_bytes().to_vec()), $index.max_value(page).map(|v| v.as_bytes().to_vec()))
        };
    }
    match index {
        ColumnIndexMetaData::NONE => (None, None),
        ColumnIndexMetaData::BOOLEAN(index) => bytes!(index),
        ColumnIndexMetaData::INT32(index) => bytes!(index),
        ColumnIndexMetaData::INT64(index) => bytes!(index),
        ColumnIndexMetaData::INT96(index) => bytes!(index),
        ColumnIndexMetaData::FLOAT(index) => bytes!(index),
        ColumnIndexMetaData::DOUBLE(index) => bytes!(index),
        ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            (index.min_value(page).map(<[u8]>::to_vec), index.max_value(page).map(<[u8]>::to_vec))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_the_same_by_their_bits() {
        let of = |min: f64, max: f64| Statistics::double(Some(min), Some(max), None, Some(0), false);
        let same = |old: &Statistics, new: &Statistics| same_statistics(Order::Float, old, new);
        assert!(same(&of(f64::NAN, 1.0), &of(f64::NAN, 1.0)));
        assert!(!same(&of(f64::NAN, 1.0), &of(f64::from_bits(f64::NAN.to_bits() | 1), 1.0)));
        // zeros may only become wider
        assert!(same(&of(0.0, -0.0), &of(-0.0, 0.0)));
        assert!(!same(&of(-0.0, 1.0), &of(0.0, 1.0)));
        assert!(!same(&of(-1.0, 0.0), &of(-1.0, -0.0)));
        assert!(!same(&of(0.0, 1.0), &Statistics::double(None, Some(1.0), None, Some(0), false)));
    }
}
