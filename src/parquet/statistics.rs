//! Statistics of chunks folded into those of the whole: never tighter than the
//! truth.

use std::cmp::Ordering;

use parquet::basic::{LogicalType, SortOrder, Type};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::metadata::{ColumnChunkMetaData, LevelHistogram};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescriptor;

/// The statistics of chunks that are put end to end; `None` when they tell
/// nothing. An end is exact when one that is exact is the outermost.
pub fn fold(column: &ColumnDescriptor, chunks: &[&ColumnChunkMetaData]) -> Option<Statistics> {
    let nulls = total(chunks.iter().map(|chunk| chunk.statistics().and_then(Statistics::null_count_opt)));
    let with_values: Vec<&ColumnChunkMetaData> = chunks.iter().copied().filter(|chunk| !all_null(chunk)).collect();
    let said: Option<Vec<&Statistics>> =
        with_values.iter().map(|chunk| chunk.statistics().filter(|s| !s.is_min_max_deprecated())).collect();
    // Only NULLs: no ends, and no chunk to take the type from.
    let any = chunks.iter().find_map(|chunk| chunk.statistics())?;
    let said = said.filter(|_| !with_values.is_empty()).unwrap_or_default();
    let signed = column.sort_order() == SortOrder::SIGNED;
    let defined = signed || column.sort_order() == SortOrder::UNSIGNED;
    let decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }));
    let said = if defined && said.iter().all(|s| has_length(column, s)) { said } else { Vec::new() };
    macro_rules! folded {
        ($kind:ident, $order:expr) => {{
            let parts: Option<Vec<_>> = said.iter().map(|s| if let Statistics::$kind(s) = s { Some(s) } else { None }).collect();
            Statistics::$kind(ends(&parts.unwrap_or_default(), nulls, $order))
        }};
    }
    let folded = match any {
        Statistics::Boolean(_) => folded!(Boolean, |a, b| Some(a.cmp(b))),
        Statistics::Int32(_) if signed => folded!(Int32, |a, b| Some(a.cmp(b))),
        Statistics::Int32(_) => folded!(Int32, |a, b| Some((*a as u32).cmp(&(*b as u32)))),
        Statistics::Int64(_) if signed => folded!(Int64, |a, b| Some(a.cmp(b))),
        Statistics::Int64(_) => folded!(Int64, |a, b| Some((*a as u64).cmp(&(*b as u64)))),
        Statistics::Float(_) => folded!(Float, |a, b| (!a.is_nan() && !b.is_nan()).then(|| a.total_cmp(b))),
        Statistics::Double(_) => folded!(Double, |a, b| (!a.is_nan() && !b.is_nan()).then(|| a.total_cmp(b))),
        Statistics::ByteArray(_) if signed => {
            folded!(ByteArray, |a: &ByteArray, b: &ByteArray| decimal.then(|| compare_signed(a.data(), b.data())))
        }
        Statistics::ByteArray(_) => folded!(ByteArray, |a: &ByteArray, b: &ByteArray| Some(a.data().cmp(b.data()))),
        Statistics::FixedLenByteArray(_) if signed => {
            folded!(FixedLenByteArray, |a: &FixedLenByteArray, b: &FixedLenByteArray| decimal.then(|| compare_signed(a.data(), b.data())))
        }
        Statistics::FixedLenByteArray(_) => {
            folded!(FixedLenByteArray, |a: &FixedLenByteArray, b: &FixedLenByteArray| Some(a.data().cmp(b.data())))
        }
        Statistics::Int96(_) => Statistics::Int96(ends(&[], nulls, |_, _| None)),
    };
    let folded = wide(folded);
    let tells = nulls.is_some() || folded.min_bytes_opt().is_some() || folded.max_bytes_opt().is_some();
    tells.then_some(folded)
}

/// The same chunk with zeros at its ends over both signs: writers that take both for
/// one state either, and readers that tell them apart would skip the other.
///
/// Errs as the footer's builder does.
pub fn with_wide_zeros(chunk: ColumnChunkMetaData) -> parquet::errors::Result<ColumnChunkMetaData> {
    match chunk.statistics().cloned() {
        Some(told @ (Statistics::Float(_) | Statistics::Double(_))) => chunk.into_builder().set_statistics(wide(told)).build(),
        _ => Ok(chunk),
    }
}

fn wide(statistics: Statistics) -> Statistics {
    let deprecated = statistics.is_min_max_deprecated();
    macro_rules! wide {
        ($told:expr) => {
            ValueStatistics::new(
                $told.min_opt().map(|min| if *min == 0.0 { -0.0 } else { *min }),
                $told.max_opt().map(|max| if *max == 0.0 { 0.0 } else { *max }),
                $told.distinct_count(),
                $told.null_count_opt(),
                deprecated,
            )
            .with_min_is_exact($told.min_is_exact())
            .with_max_is_exact($told.max_is_exact())
            .with_backwards_compatible_min_max($told.is_min_max_backwards_compatible())
        };
    }
    match statistics {
        Statistics::Float(told) => Statistics::Float(wide!(told)),
        Statistics::Double(told) => Statistics::Double(wide!(told)),
        other => other,
    }
}

/// Whether ends of a column of fixed length have that length: some writers cut them,
/// and there are readers that fail on such ends.
fn has_length(column: &ColumnDescriptor, statistics: &Statistics) -> bool {
    [statistics.min_bytes_opt(), statistics.max_bytes_opt()].into_iter().flatten().all(|end| is_whole(column, end))
}

/// Whether an end has the column's length, where that is fixed.
pub fn is_whole(column: &ColumnDescriptor, end: &[u8]) -> bool {
    column.physical_type() != Type::FIXED_LEN_BYTE_ARRAY || usize::try_from(column.type_length()) == Ok(end.len())
}

/// Whether a chunk's least and greatest value are told, where it has values.
pub fn tells_ends(chunk: &ColumnChunkMetaData) -> bool {
    let told = |s: &Statistics| !s.is_min_max_deprecated() && s.min_bytes_opt().is_some() && s.max_bytes_opt().is_some();
    all_null(chunk) || chunk.statistics().is_some_and(told)
}

/// The same chunk without its least and greatest value.
///
/// Errs as the footer's builder does.
pub fn without_ends(chunk: ColumnChunkMetaData) -> parquet::errors::Result<ColumnChunkMetaData> {
    let nulls = chunk.statistics().and_then(Statistics::null_count_opt);
    let column = chunk.column_descr_ptr();
    let none = nulls.map(|nulls| super::ends::Ends::default().statistics(&column, nulls));
    match none {
        Some(none) => chunk.into_builder().set_statistics(none).build(),
        None => chunk.into_builder().clear_statistics().build(),
    }
}

fn all_null(chunk: &ColumnChunkMetaData) -> bool {
    let nulls = chunk.statistics().and_then(Statistics::null_count_opt);
    nulls.is_some() && nulls == u64::try_from(chunk.num_values()).ok()
}

fn ends<T: Clone>(parts: &[&ValueStatistics<T>], nulls: Option<u64>, order: impl Fn(&T, &T) -> Option<Ordering>) -> ValueStatistics<T> {
    let lower = outermost(parts.iter().map(|s| s.min_opt().map(|min| (min, s.min_is_exact()))), |a, b| order(a, b));
    let upper = outermost(parts.iter().map(|s| s.max_opt().map(|max| (max, s.max_is_exact()))), |a, b| order(b, a));
    let exact = |end: &Option<(T, bool)>| end.as_ref().is_some_and(|(_, exact)| *exact);
    let (min_exact, max_exact) = (exact(&lower), exact(&upper));
    ValueStatistics::new(lower.map(|(end, _)| end), upper.map(|(end, _)| end), None, nulls, false)
        .with_min_is_exact(min_exact)
        .with_max_is_exact(max_exact)
}

/// The end that comes first in this order, and whether it is exact; `None` when
/// one is not known, or two do not compare.
fn outermost<'a, T: Clone + 'a>(
    ends: impl Iterator<Item = Option<(&'a T, bool)>>,
    order: impl Fn(&T, &T) -> Option<Ordering>,
) -> Option<(T, bool)> {
    let mut outer: Option<(&T, bool)> = None;
    for end in ends {
        let (value, exact) = end?;
        // A value that does not compare with itself bounds nothing.
        order(value, value)?;
        outer = Some(match outer {
            None => (value, exact),
            Some((held, was)) => match order(value, held)? {
                Ordering::Less => (value, exact),
                Ordering::Equal => (held, was || exact),
                Ordering::Greater => (held, was),
            },
        });
    }
    outer.map(|(value, exact)| (value.clone(), exact))
}

/// Big-endian numbers in two's complement, of any lengths.
pub fn compare_signed(a: &[u8], b: &[u8]) -> Ordering {
    let negative = |bytes: &[u8]| bytes.first().is_some_and(|byte| byte & 128 != 0);
    if negative(a) != negative(b) {
        return negative(b).cmp(&negative(a));
    }
    let filler = if negative(a) { 255 } else { 0 };
    let length = a.len().max(b.len());
    let filled = |bytes: &[u8]| -> Vec<u8> { std::iter::repeat_n(filler, length - bytes.len()).chain(bytes.iter().copied()).collect() };
    filled(a).cmp(&filled(b))
}

/// The sum, where every summand is known.
pub fn total(mut parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.try_fold(0u64, |sum, part| sum.checked_add(part?))
}

/// Histograms of levels added up; `None` where one is missing or of another
/// length.
pub fn histogram<'a>(parts: impl Iterator<Item = Option<&'a LevelHistogram>>) -> Option<LevelHistogram> {
    let mut sum: Option<LevelHistogram> = None;
    for part in parts {
        let part = part?;
        match &mut sum {
            Some(sum) if sum.len() == part.len() => sum.add(part),
            Some(_) => return None,
            none => *none = Some(part.clone()),
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    fn column(text: &str) -> parquet::schema::types::ColumnDescPtr {
        SchemaDescriptor::new(Arc::new(parse_message_type(&format!("message m {{ OPTIONAL {text}; }}")).unwrap())).column(0)
    }

    fn folded(text: &str, parts: Vec<(i64, Option<Statistics>)>) -> Option<Statistics> {
        let column = column(text);
        let chunk = |(values, statistics): (i64, Option<Statistics>)| {
            let mut chunk = ColumnChunkMetaData::builder(column.clone()).set_num_values(values);
            if let Some(statistics) = statistics {
                chunk = chunk.set_statistics(statistics);
            }
            chunk.build().unwrap()
        };
        let chunks: Vec<_> = parts.into_iter().map(chunk).collect();
        fold(&column, &chunks.iter().collect::<Vec<_>>())
    }

    fn ints(min: i32, max: i32, nulls: u64) -> Option<Statistics> {
        Some(Statistics::int32(Some(min), Some(max), None, Some(nulls), false))
    }

    #[test]
    fn ends_are_the_outermost_and_nulls_add_up() {
        assert_eq!(folded("INT32 n", vec![(9, ints(-3, 5, 1)), (9, ints(2, 7, 2))]), ints(-3, 7, 3));
        let unsigned = folded("INT32 n (INTEGER(32,false))", vec![(9, ints(1, 5, 0)), (9, ints(2, -1, 0))]);
        assert_eq!(unsigned, ints(1, -1, 0));
    }

    #[test]
    fn a_chunk_of_nulls_bounds_nothing_and_one_that_is_silent_unbounds_all() {
        let none = Some(Statistics::int32(None, None, None, Some(9), false));
        assert_eq!(folded("INT32 n", vec![(9, none.clone()), (9, ints(2, 7, 0))]), ints(2, 7, 9));
        let unbound = || Some(Statistics::int32(None, None, None, Some(4), false));
        assert_eq!(folded("INT32 n", vec![(9, unbound()), (9, ints(2, 7, 0))]), unbound());
        let silent = folded("INT32 n", vec![(9, None), (9, ints(2, 7, 0))]);
        assert_eq!(silent, None);
        assert_eq!(folded("INT32 n", vec![(9, none.clone()), (9, none)]).unwrap().null_count_opt(), Some(18));
    }

    #[test]
    fn ends_cut_below_a_fixed_length_bound_nothing() {
        let ends = |min: &[u8], max: &[u8]| {
            let bytes = |end: &[u8]| Some(FixedLenByteArray::from(end.to_vec()));
            Some(Statistics::fixed_len_byte_array(bytes(min), bytes(max), None, Some(1), false))
        };
        let none = Some(Statistics::fixed_len_byte_array(None, None, None, Some(2), false));
        let folded = |first, second| folded("FIXED_LEN_BYTE_ARRAY (5) f", vec![(9, first), (9, second)]);
        assert_eq!(folded(ends(b"aaaa", b"cccc"), ends(b"bbbbb", b"ddddd")), none);
        assert_eq!(folded(ends(b"bbbbb", b"ddddd"), ends(b"aaaaa", b"cccc")), none);
        let whole = folded(ends(b"bbbbb", b"ddddd"), ends(b"aaaaa", b"ccccc")).unwrap();
        assert_eq!((whole.min_bytes_opt(), whole.max_bytes_opt()), (Some(&b"aaaaa"[..]), Some(&b"ddddd"[..])));
    }

    #[test]
    fn an_end_is_exact_when_an_exact_one_is_outermost() {
        let text = |min: &str, min_exact, max: &str, max_exact| {
            let ends = ValueStatistics::new(Some(ByteArray::from(min)), Some(ByteArray::from(max)), None, Some(0), false);
            Some(Statistics::ByteArray(ends.with_min_is_exact(min_exact).with_max_is_exact(max_exact)))
        };
        let both = folded("BYTE_ARRAY s (STRING)", vec![(9, text("a", true, "y", true)), (9, text("b", false, "z", false))]);
        assert_eq!(both, text("a", true, "z", false));
        let equal = folded("BYTE_ARRAY s (STRING)", vec![(9, text("a", false, "z", false)), (9, text("a", true, "z", false))]);
        assert_eq!(equal, text("a", true, "z", false));
    }

    #[test]
    fn floats_keep_both_zeros_and_bound_nothing_by_nan() {
        let ends = |min: f64, max: f64| Some(Statistics::double(Some(min), Some(max), None, Some(0), false));
        let zeros = folded("DOUBLE d", vec![(9, ends(0.0, -0.0)), (9, ends(-0.0, 0.0))]).unwrap();
        assert_eq!(zeros.min_bytes_opt(), Some((-0.0f64).to_le_bytes().as_slice()));
        assert_eq!(zeros.max_bytes_opt(), Some(0.0f64.to_le_bytes().as_slice()));
        let nan = folded("DOUBLE d", vec![(9, ends(f64::NAN, 1.0)), (9, ends(0.0, 2.0))]).unwrap();
        assert_eq!((nan.min_bytes_opt(), nan.max_bytes_opt()), (None, Some(2.0f64.to_le_bytes().as_slice())));
    }

    #[test]
    fn zeros_at_the_ends_hold_those_of_the_other_sign() {
        let ends = |min: f64, max: f64| Some(Statistics::double(Some(min), Some(max), None, Some(0), false));
        let bits = |told: &Statistics| (told.min_bytes_opt().map(<[u8]>::to_vec), told.max_bytes_opt().map(<[u8]>::to_vec));
        let wide = bits(&ends(-0.0, 0.0).unwrap());
        assert_eq!(bits(&folded("DOUBLE d", vec![(9, ends(0.0, -0.0))]).unwrap()), wide);
        let chunk = |told| ColumnChunkMetaData::builder(column("DOUBLE d")).set_statistics(told).build().unwrap();
        let widened = |told: Option<Statistics>| bits(with_wide_zeros(chunk(told.unwrap())).unwrap().statistics().unwrap());
        assert_eq!(widened(ends(0.0, -0.0)), wide);
        assert_eq!(widened(ends(f64::NAN, 1.0)), bits(&ends(f64::NAN, 1.0).unwrap()), "copied as it is");
    }

    #[test]
    fn decimals_compare_as_numbers_and_old_statistics_bound_nothing() {
        let bytes = |n: i128| FixedLenByteArray::from(n.to_be_bytes().to_vec());
        let ends = |min, max| Some(Statistics::fixed_len_byte_array(Some(bytes(min)), Some(bytes(max)), None, Some(0), false));
        let kind = "FIXED_LEN_BYTE_ARRAY (16) d (DECIMAL(38,2))";
        assert_eq!(folded(kind, vec![(9, ends(-5, 3)), (9, ends(-400, -1))]), ends(-400, 3));
        assert_eq!(compare_signed(&[255], &[255, 254]), Ordering::Greater);
        let old = Some(Statistics::int32(Some(1), Some(2), None, Some(0), true));
        assert_eq!(folded("INT32 n", vec![(9, old), (9, ints(0, 7, 0))]).unwrap().min_bytes_opt(), None);
        let interval = folded("FIXED_LEN_BYTE_ARRAY (12) i (INTERVAL)", vec![(9, ends(1, 2))]).unwrap();
        assert_eq!(interval.min_bytes_opt(), None);
    }
}
