//! Column indexes put end to end.

use parquet::basic::{BoundaryOrder, Type};
use parquet::data_type::AsBytes;
use parquet::file::metadata::{ColumnIndexBuilder, LevelHistogram};
use parquet::file::page_index::column_index::ColumnIndexMetaData;

/// The column index of one chunk, and which of its pages are kept, in order.
pub struct Part<'a> {
    /// The index, where the chunk has one.
    pub index: Option<&'a ColumnIndexMetaData>,
    /// Data pages in the chunk.
    pub pages: usize,
    /// Places of the pages that are kept.
    pub kept: Vec<usize>,
}

/// The index of the chunks put end to end; `None` when one of them has none, or
/// one that does not fit its pages. A single chunk keeps its order; of several
/// none is claimed.
pub fn concat(kind: Type, parts: &[Part<'_>]) -> Option<ColumnIndexMetaData> {
    let parts = parts.iter().map(|part| Some((fitting(kind, part)?, part))).collect::<Option<Vec<_>>>()?;
    let mut builder = ColumnIndexBuilder::new(kind);
    let kept = parts.iter().flat_map(|(index, part)| part.kept.iter().filter(|page| **page < part.pages).map(|page| (*index, *page)));
    let kept: Vec<(&ColumnIndexMetaData, usize)> = kept.collect();
    let repetition: Option<Vec<_>> = kept.iter().map(|(index, page)| levels(index.repetition_level_histogram(*page)?)).collect();
    let definition: Option<Vec<_>> = kept.iter().map(|(index, page)| levels(index.definition_level_histogram(*page)?)).collect();
    let at = |all: &Option<Vec<LevelHistogram>>, place: usize| all.as_ref().and_then(|all| all.get(place).cloned());
    for (place, (index, page)) in kept.iter().enumerate() {
        let nulls = index.null_count(*page)?;
        if index.is_null_page(*page) {
            builder.append(true, Vec::new(), Vec::new(), nulls);
        } else {
            let (min, max) = ends(index, *page)?;
            builder.append(false, min, max, nulls);
        }
        builder.append_histograms(&at(&repetition, place), &at(&definition, place));
    }
    if let [(index, _)] = parts.as_slice() {
        builder.set_boundary_order(index.get_boundary_order().unwrap_or(BoundaryOrder::UNORDERED));
    }
    builder.build().ok()
}

/// A part's index, where it is one of its pages.
fn fitting<'a>(kind: Type, part: &Part<'a>) -> Option<&'a ColumnIndexMetaData> {
    let index = part.index.filter(|index| physical(index) == Some(kind))?;
    let nulls = index.null_counts()?.len();
    (index.num_pages() == part.pages as u64 && nulls == part.pages).then_some(index)
}

fn physical(index: &ColumnIndexMetaData) -> Option<Type> {
    Some(match index {
        ColumnIndexMetaData::NONE => return None,
        ColumnIndexMetaData::BOOLEAN(_) => Type::BOOLEAN,
        ColumnIndexMetaData::INT32(_) => Type::INT32,
        ColumnIndexMetaData::INT64(_) => Type::INT64,
        ColumnIndexMetaData::INT96(_) => Type::INT96,
        ColumnIndexMetaData::FLOAT(_) => Type::FLOAT,
        ColumnIndexMetaData::DOUBLE(_) => Type::DOUBLE,
        ColumnIndexMetaData::BYTE_ARRAY(_) => Type::BYTE_ARRAY,
        ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(_) => Type::FIXED_LEN_BYTE_ARRAY,
    })
}

/// A page's ends as the format writes them.
fn ends(index: &ColumnIndexMetaData, page: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    macro_rules! bytes {
        ($index:expr) => {
            Some(($index.min_value(page)?.as_bytes().to_vec(), $index.max_value(page)?.as_bytes().to_vec()))
        };
    }
    match index {
        ColumnIndexMetaData::BOOLEAN(index) => bytes!(index),
        ColumnIndexMetaData::INT32(index) => bytes!(index),
        ColumnIndexMetaData::INT64(index) => bytes!(index),
        ColumnIndexMetaData::FLOAT(index) => bytes!(index),
        ColumnIndexMetaData::DOUBLE(index) => bytes!(index),
        ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => bytes!(index),
        // Its order is not defined.
        ColumnIndexMetaData::INT96(_) | ColumnIndexMetaData::NONE => None,
    }
}

fn levels(counts: &[i64]) -> Option<LevelHistogram> {
    let highest = i16::try_from(counts.len()).ok()?.checked_sub(1)?;
    let mut histogram = LevelHistogram::try_new(highest)?;
    (0i16..).zip(counts).for_each(|(level, count)| histogram.increment_by(level, *count));
    Some(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCENDING: BoundaryOrder = BoundaryOrder::ASCENDING;

    fn index(pages: &[Option<(i32, i32)>], histograms: bool, order: BoundaryOrder) -> ColumnIndexMetaData {
        let mut builder = ColumnIndexBuilder::new(Type::INT32);
        for page in pages {
            match page {
                Some((min, max)) => builder.append(false, min.to_le_bytes().to_vec(), max.to_le_bytes().to_vec(), 1),
                None => builder.append(true, Vec::new(), Vec::new(), 9),
            }
            builder.append_histograms(&None, &histograms.then(|| levels(&[1, 8]).unwrap()));
        }
        builder.set_boundary_order(order);
        builder.build().unwrap()
    }

    fn joined(parts: &[(Option<&ColumnIndexMetaData>, usize, Vec<usize>)]) -> Option<ColumnIndexMetaData> {
        let parts: Vec<_> = parts.iter().map(|(index, pages, kept)| Part { index: *index, pages: *pages, kept: kept.clone() }).collect();
        concat(Type::INT32, &parts)
    }

    #[test]
    fn pages_keep_their_ends_and_a_page_left_out_its_place() {
        let (a, b) = (index(&[Some((1, 2)), None], true, ASCENDING), index(&[Some((0, 0)), Some((7, 8))], true, ASCENDING));
        let found = joined(&[(Some(&a), 2, vec![0, 1]), (Some(&b), 2, vec![1])]).unwrap();
        let expected = index(&[Some((1, 2)), None, Some((7, 8))], true, BoundaryOrder::UNORDERED);
        assert_eq!(found, expected);
        assert_eq!(joined(&[(Some(&a), 2, vec![0, 1])]), Some(a));
    }

    #[test]
    fn an_index_that_is_missing_or_does_not_fit_leaves_none() {
        let a = index(&[Some((1, 2))], false, ASCENDING);
        assert_eq!(joined(&[(Some(&a), 1, vec![0]), (None, 1, vec![0])]), None);
        assert_eq!(joined(&[(Some(&a), 1, vec![0]), (Some(&ColumnIndexMetaData::NONE), 1, vec![0])]), None);
        assert_eq!(joined(&[(Some(&a), 2, vec![0, 1])]), None);
        assert_eq!(concat(Type::INT64, &[Part { index: Some(&a), pages: 1, kept: vec![0] }]), None);
    }

    #[test]
    fn histograms_stay_when_all_pages_have_one() {
        let (with, without) = (index(&[Some((1, 2))], true, ASCENDING), index(&[Some((3, 4))], false, ASCENDING));
        let counts = |parts: &[&ColumnIndexMetaData]| {
            let parts: Vec<_> = parts.iter().map(|index| (Some(*index), 1, vec![0])).collect();
            joined(&parts).unwrap().definition_level_histogram(0).map(<[i64]>::to_vec)
        };
        assert_eq!(counts(&[&with, &with]), Some(vec![1, 8]));
        assert_eq!(counts(&[&with, &without]), None);
    }
}
