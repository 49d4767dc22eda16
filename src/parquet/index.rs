//! The column index of a chunk put together from those of others.

use parquet::basic::{BoundaryOrder, Type};
use parquet::data_type::AsBytes;
use parquet::file::metadata::{ColumnIndexBuilder, LevelHistogram};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::schema::types::ColumnDescriptor;

use super::ends::{self, Ends, Order};
use super::gather::Seen;
use super::statistics::is_whole;

/// Where what is known of a page's rows comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// A page in an index, with its values; `None` where there is no index to be
    /// believed.
    Entry(Option<&'a ColumnIndexMetaData>, usize, u64),
    /// The rows themselves.
    Seen(&'a Seen),
}

/// An index, where it is one of so many pages of this type.
pub fn fitting(kind: Type, index: Option<&ColumnIndexMetaData>, pages: usize) -> Option<&ColumnIndexMetaData> {
    let index = index.filter(|index| physical(index) == Some(kind))?;
    let nulls = index.null_counts()?.len();
    (index.num_pages() == pages as u64 && nulls == pages).then_some(index)
}

/// The index of pages in order, each made of the rows of some; `None` when one
/// of them is not known. `order` is that of their ends, where it is known.
pub fn concat(column: &ColumnDescriptor, pages: &[Vec<Origin<'_>>], order: Option<BoundaryOrder>) -> Option<ColumnIndexMetaData> {
    let mut builder = ColumnIndexBuilder::new(column.physical_type());
    let told: Vec<Told> = pages.iter().map(|page| Told::of(column, page)).collect::<Option<_>>()?;
    let repetition = told.iter().all(|told| told.repetition.is_some());
    let definition = told.iter().all(|told| told.definition.is_some());
    for told in told {
        let (min, max) = told.ends.clone().unwrap_or_default();
        builder.append(told.ends.is_none(), min, max, told.nulls);
        builder.append_histograms(&told.repetition.filter(|_| repetition), &told.definition.filter(|_| definition));
    }
    builder.set_boundary_order(order.unwrap_or(BoundaryOrder::UNORDERED));
    builder.build().ok()
}

/// The same index with zeros at the ends over both signs; `None` where it cannot say
/// so, for it does not count NULLs.
pub fn with_wide_zeros(column: &ColumnDescriptor, index: ColumnIndexMetaData) -> Option<ColumnIndexMetaData> {
    if !matches!(index, ColumnIndexMetaData::FLOAT(_) | ColumnIndexMetaData::DOUBLE(_)) {
        return Some(index);
    }
    let pages = usize::try_from(index.num_pages()).ok()?;
    let told: Vec<_> = (0..pages).map(|page| if index.is_null_page(page) { None } else { ends(&index, page) }).collect();
    let wide = |(low, high): &(Vec<u8>, Vec<u8>)| ends::wide(Order::of(column), low, high);
    if told.iter().flatten().all(|ends| wide(ends) == *ends) {
        return Some(index);
    }
    let mut builder = ColumnIndexBuilder::new(column.physical_type());
    for (page, told) in told.iter().enumerate() {
        let (low, high) = told.as_ref().map(wide).unwrap_or_default();
        builder.append(index.is_null_page(page), low, high, index.null_count(page)?);
        let counts = |counts: Option<&[i64]>| levels(counts?);
        builder.append_histograms(&counts(index.repetition_level_histogram(page)), &counts(index.definition_level_histogram(page)));
    }
    builder.set_boundary_order(index.get_boundary_order()?);
    builder.build().ok()
}

/// What an index says of a page.
struct Told {
    nulls: i64,
    /// `None` where all values are NULL.
    ends: Option<(Vec<u8>, Vec<u8>)>,
    repetition: Option<LevelHistogram>,
    definition: Option<LevelHistogram>,
}

impl Told {
    fn of(column: &ColumnDescriptor, page: &[Origin<'_>]) -> Option<Self> {
        let mut parts = page.iter().map(|origin| Self::one(column, *origin));
        let mut whole = parts.next()??;
        for part in parts {
            whole.add(Order::of(column), part?)?;
        }
        Some(whole)
    }

    fn one(column: &ColumnDescriptor, origin: Origin<'_>) -> Option<Self> {
        match origin {
            Origin::Entry(index, page, values) => {
                let index = index?;
                let nulls = index.null_count(page)?;
                // below lists some writers call a page one of NULLs that has as many as rows, and values besides
                if index.is_null_page(page) && u64::try_from(nulls) != Ok(values) {
                    return None;
                }
                let order = Order::of(column);
                let told = if index.is_null_page(page) { None } else { Some(ends(index, page)?) };
                let unfit = |end: &[u8]| order.is_nan(end) || !is_whole(column, end);
                if told.as_ref().is_some_and(|(low, high)| unfit(low) || unfit(high)) {
                    return None;
                }
                let ends = told.map(|(low, high)| ends::wide(order, &low, &high));
                let levels = |counts: Option<&[i64]>| levels(counts?);
                let repetition = levels(index.repetition_level_histogram(page));
                Some(Self { nulls, ends, repetition, definition: levels(index.definition_level_histogram(page)) })
            }
            Origin::Seen(seen) => {
                let all_null = seen.nulls == seen.values;
                let ends = if all_null { None } else { Some(seen.ends.stated(column).map(|stated| (stated.low, stated.high))?) };
                Some(Self { nulls: i64::try_from(seen.nulls).ok()?, ends, repetition: None, definition: None })
            }
        }
    }

    /// `None` when ends do not compare.
    fn add(&mut self, order: Order, other: Self) -> Option<()> {
        self.nulls = self.nulls.checked_add(other.nulls)?;
        self.ends = match (self.ends.take(), other.ends) {
            (Some((low, high)), Some((other_low, other_high))) => {
                let mut both = Ends::default();
                both.widen(order, &low, &high);
                both.widen(order, &other_low, &other_high);
                let (low, high) = both.known()?;
                Some((low.to_vec(), high.to_vec()))
            }
            (one, other) => one.or(other),
        };
        self.repetition = added(self.repetition.take(), other.repetition);
        self.definition = added(self.definition.take(), other.definition);
        Some(())
    }
}

fn added(sum: Option<LevelHistogram>, other: Option<LevelHistogram>) -> Option<LevelHistogram> {
    super::statistics::histogram([sum.as_ref(), other.as_ref()].into_iter())
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
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

    use super::*;

    const ASCENDING: BoundaryOrder = BoundaryOrder::ASCENDING;

    fn column() -> ColumnDescPtr {
        SchemaDescriptor::new(Arc::new(parse_message_type("message m { OPTIONAL INT32 n; }").unwrap())).column(0)
    }

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

    #[test]
    fn ends_cut_below_a_fixed_length_make_no_index() {
        let schema = parse_message_type("message m { OPTIONAL FIXED_LEN_BYTE_ARRAY (5) f; }").unwrap();
        let column = SchemaDescriptor::new(Arc::new(schema)).column(0);
        for (high, made) in [(&b"ccccc"[..], true), (b"cccd", false)] {
            let mut builder = ColumnIndexBuilder::new(Type::FIXED_LEN_BYTE_ARRAY);
            builder.append(false, b"aaaaa".to_vec(), high.to_vec(), 0);
            builder.set_boundary_order(ASCENDING);
            let index = builder.build().unwrap();
            assert_eq!(concat(&column, &[vec![Origin::Entry(Some(&index), 0, 9)]], None).is_some(), made);
        }
    }

    fn joined(pages: &[&[(&ColumnIndexMetaData, usize)]], order: Option<BoundaryOrder>) -> Option<ColumnIndexMetaData> {
        let pages: Vec<Vec<Origin<'_>>> =
            pages.iter().map(|p| p.iter().map(|(index, page)| Origin::Entry(Some(index), *page, 9)).collect()).collect();
        concat(&column(), &pages, order)
    }

    #[test]
    fn pages_keep_their_ends_and_a_page_left_out_its_place() {
        let (a, b) = (index(&[Some((1, 2)), None], true, ASCENDING), index(&[Some((0, 0)), Some((7, 8))], true, ASCENDING));
        let found = joined(&[&[(&a, 0)], &[(&a, 1)], &[(&b, 1)]], None).unwrap();
        let expected = index(&[Some((1, 2)), None, Some((7, 8))], true, BoundaryOrder::UNORDERED);
        assert_eq!(found, expected);
        assert_eq!(joined(&[&[(&a, 0)], &[(&a, 1)]], Some(ASCENDING)), Some(a));
    }

    #[test]
    fn pages_that_become_one_have_the_outermost_ends() {
        let a = index(&[Some((1, 5)), None, Some((-3, 2)), None, None], true, ASCENDING);
        let found = joined(&[&[(&a, 0), (&a, 1), (&a, 2)], &[(&a, 3), (&a, 4)]], None).unwrap();
        assert_eq!(ends(&found, 0), Some(((-3i32).to_le_bytes().to_vec(), 5i32.to_le_bytes().to_vec())));
        assert_eq!((found.null_count(0), found.null_count(1), found.is_null_page(1)), (Some(11), Some(18), true));
        assert_eq!(found.definition_level_histogram(0), Some([3, 24].as_slice()));
    }

    #[test]
    fn rows_that_were_seen_have_the_ends_that_they_have() {
        let a = index(&[Some((1, 5))], true, ASCENDING);
        let (mut seen, none) = (Seen { values: 4, nulls: 1, ..Seen::default() }, Seen { values: 2, nulls: 2, ..Seen::default() });
        fn page(a: &ColumnIndexMetaData, seen: Origin<'_>) -> Option<ColumnIndexMetaData> {
            concat(&column(), &[vec![Origin::Entry(Some(a), 0, 9)], vec![seen]], None)
        }
        assert_eq!(page(&a, Origin::Seen(&seen)), None, "values without ends");
        [3i32, -1].iter().for_each(|n| seen.ends.add(Order::I32, &n.to_le_bytes()));
        let found = page(&a, Origin::Seen(&seen)).unwrap();
        assert_eq!(ends(&found, 1), Some(((-1i32).to_le_bytes().to_vec(), 3i32.to_le_bytes().to_vec())));
        assert_eq!(found.definition_level_histogram(0), None);
        assert!(page(&a, Origin::Seen(&none)).unwrap().is_null_page(1));
        assert_eq!(page(&a, Origin::Entry(None, 0, 9)), None);
    }

    #[test]
    fn a_page_that_is_called_one_of_nulls_and_has_values_bounds_nothing() {
        let a = index(&[Some((1, 5)), None], true, ASCENDING);
        let joined = |values| concat(&column(), &[vec![Origin::Entry(Some(&a), 0, 9), Origin::Entry(Some(&a), 1, values)]], None);
        assert!(joined(9).is_some());
        assert_eq!(joined(10), None);
    }

    #[test]
    fn zeros_hold_those_of_the_other_sign() {
        let column = SchemaDescriptor::new(Arc::new(parse_message_type("message m { OPTIONAL DOUBLE d; }").unwrap())).column(0);
        let of = |pages: &[Option<(f64, f64)>]| {
            let mut builder = ColumnIndexBuilder::new(Type::DOUBLE);
            for page in pages {
                let (min, max) = page.map(|(min, max)| (min.to_le_bytes().to_vec(), max.to_le_bytes().to_vec())).unwrap_or_default();
                builder.append(page.is_none(), min, max, 3);
            }
            builder.set_boundary_order(ASCENDING);
            builder.build().unwrap()
        };
        let bits = |index: &ColumnIndexMetaData| (0..3).map(|page| ends(index, page)).collect::<Vec<_>>();
        let careless = of(&[Some((-1.0, -0.0)), None, Some((0.0, 2.0))]);
        let wide = of(&[Some((-1.0, 0.0)), None, Some((-0.0, 2.0))]);
        let found = with_wide_zeros(&column, careless.clone()).unwrap();
        assert_eq!((bits(&found), found.get_boundary_order(), found.null_counts()), (bits(&wide), Some(ASCENDING), careless.null_counts()));
        let pages: Vec<Vec<Origin<'_>>> = (0..3).map(|page| vec![Origin::Entry(Some(&careless), page, 3)]).collect();
        assert_eq!(bits(&concat(&column, &pages, None).unwrap()), bits(&wide));
        // NaN bounds nothing
        let nan = of(&[Some((f64::NAN, 1.0))]);
        assert_eq!(concat(&column, &[vec![Origin::Entry(Some(&nan), 0, 9)]], None), None);
    }

    #[test]
    fn an_index_that_does_not_fit_is_not_believed() {
        let a = index(&[Some((1, 2))], false, ASCENDING);
        assert!(fitting(Type::INT32, Some(&a), 1).is_some());
        assert!(fitting(Type::INT32, Some(&a), 2).is_none());
        assert!(fitting(Type::INT64, Some(&a), 1).is_none());
        assert!(fitting(Type::INT32, Some(&ColumnIndexMetaData::NONE), 1).is_none());
        assert!(fitting(Type::INT32, None, 0).is_none());
    }

    #[test]
    fn histograms_stay_when_all_pages_have_one() {
        let (with, without) = (index(&[Some((1, 2))], true, ASCENDING), index(&[Some((3, 4))], false, ASCENDING));
        let counts =
            |pages: &[&[(&ColumnIndexMetaData, usize)]]| joined(pages, None).unwrap().definition_level_histogram(0).map(<[i64]>::to_vec);
        assert_eq!(counts(&[&[(&with, 0)], &[(&with, 0)]]), Some(vec![1, 8]));
        assert_eq!(counts(&[&[(&with, 0)], &[(&without, 0)]]), None);
    }
}
