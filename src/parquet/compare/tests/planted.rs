//! Zeros of both signs, pages of no known kind, and encodings that are decoded.

use parquet::basic::Type;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

use arrow_array::Array;

use super::*;
use crate::parquet::fault::Fault;

/// Plain floats in pages of two.
fn floats(values: &[f64]) -> File {
    let column = Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let batch = RecordBatch::try_from_iter_with_nullable([("d", column, false)]).unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).set_data_page_row_count_limit(2).set_write_batch_size(2);
    File::written(&batch, properties.set_compression(Compression::UNCOMPRESSED).build())
}

/// The file with other statistics and another column index in its footer.
fn stating(file: &File, min: f64, max: f64, pages: Option<&[(f64, f64)]>) -> File {
    let group = file.footer.row_group(0).clone();
    let statistics = Statistics::double(Some(min), Some(max), None, Some(0), false);
    let chunk = group.column(0).clone().into_builder().set_statistics(statistics).build().unwrap();
    let group = group.into_builder().set_column_metadata(vec![chunk]).build().unwrap();
    let index = pages.map(|pages| vec![vec![index(pages)]]);
    let footer = ParquetMetaData::clone(&file.footer).into_builder().set_row_groups(vec![group]).set_column_index(index).build();
    File { footer: Arc::new(footer), bytes: file.bytes.clone() }
}

fn index(pages: &[(f64, f64)]) -> ColumnIndexMetaData {
    let mut builder = ColumnIndexBuilder::new(Type::DOUBLE);
    pages.iter().for_each(|(min, max)| builder.append(false, min.to_le_bytes().to_vec(), max.to_le_bytes().to_vec(), 0));
    builder.build().unwrap()
}

fn trouble(left: &File, right: &File) -> Option<Trouble> {
    compare(&[left.chunk(0, &[])], &[right.chunk(0, &[])], &ASKED).err().map(|failure| failure.trouble)
}

#[test]
fn a_zero_of_one_sign_is_outside_a_bound_of_the_other() {
    let file = floats(&[-0.0, 1.0, 2.0, 0.0]);
    let pages: &[(f64, f64)] = &[(-0.0, 1.0), (-0.0, 2.0)];
    assert_eq!(trouble(&file, &stating(&file, -0.0, 2.0, Some(pages))), None);
    // the last page may be bounded by the zero that it has
    assert_eq!(trouble(&file, &stating(&file, -0.0, 2.0, Some(&[(-0.0, 1.0), (0.0, 2.0)]))), None);
    let outside = |what: &str| Some(Trouble::Wrong(format!("a value outside the bounds of its {what}")));
    assert_eq!(trouble(&file, &stating(&file, 0.0, 2.0, Some(pages))), outside("statistics"));
    assert_eq!(trouble(&file, &stating(&file, -0.0, 2.0, Some(&[(0.0, 1.0), (-0.0, 2.0)]))), outside("column index"));
    let negative = floats(&[-1.0, 0.0]);
    assert_eq!(trouble(&negative, &stating(&negative, -1.0, -0.0, None)), outside("statistics"));
    assert_eq!(trouble(&negative, &stating(&negative, -1.0, 0.0, None)), None);
    assert_eq!(trouble(&negative, &stating(&negative, f64::NAN, 0.0, None)), outside("statistics"));
}

#[test]
fn a_bound_of_either_zero_is_joined_to_one_that_holds_both() {
    // given an input that states a zero of the other sign, as writers do that take both for one
    let file = floats(&[-0.0, 1.0, 0.0, 0.0]);
    for pages in [None, Some(&[(0.0, 1.0), (0.0, -0.0)][..])] {
        let careless = stating(&file, 0.0, 1.0, pages);
        for small in [0, 50] {
            let right = joined(&[(careless.clone(), Vec::new())], Compression::UNCOMPRESSED, small).unwrap();
            assert_eq!(trouble(&careless, &right), None);
            let stated = index::bounds(right.chunk(0, &[]).meta().unwrap().statistics());
            assert_eq!(stated, (Some((-0.0f64).to_le_bytes().to_vec()), Some(1.0f64.to_le_bytes().to_vec())));
        }
    }
}

#[test]
fn an_index_bounded_by_nan_is_not_taken_over() {
    let file = floats(&[f64::NAN, 1.0, 2.0, 3.0]);
    let given = stating(&file, 1.0, 3.0, Some(&[(f64::NAN, f64::NAN), (2.0, 3.0)]));
    let right = joined(&[(given.clone(), Vec::new())], Compression::UNCOMPRESSED, 0).unwrap();
    assert_eq!(right.chunk(0, &[]).column_index(), None);
    assert_eq!(trouble(&given, &right), None);
}

/// A page of the kind that nobody writes, of three bytes.
const STRANGE: [u8; 10] = [0x15, 2, 0x15, 6, 0x15, 6, 0, 1, 2, 3];

#[test]
fn a_page_of_a_kind_that_is_not_known_is_never_passed() {
    let file = numbers(0..16);
    let whole = file.chunk(0, &[]);
    let pages = walk::walk(&whole, 1 << 20).unwrap().data;
    for at in [0, 2] {
        let bytes: Vec<u8> = pages
            .iter()
            .enumerate()
            .flat_map(|(place, page)| [if place == at { &STRANGE[..] } else { &[] }, page.whole(&whole.bytes)].concat())
            .collect();
        let strange = Chunk { bytes: bytes.clone().into(), ..whole.clone() };
        let failure = compare(std::slice::from_ref(&strange), std::slice::from_ref(&whole), &ASKED).unwrap_err();
        let what = "a page of a kind that is not known".to_owned();
        assert_eq!((failure.which, failure.trouble), (Which::Left, Trouble::Unfit(what.clone())), "it is read by its values");
        let failure = compare(std::slice::from_ref(&whole), std::slice::from_ref(&strange), &ASKED).unwrap_err();
        assert_eq!((failure.which, failure.trouble), (Which::Right, Trouble::Wrong(what.clone())), "it is refused");
        let part = Part { bytes: bytes.into(), ..file.part(0, &[]) };
        let failure = join(&[part], &Wish { codec: Compression::UNCOMPRESSED, page: 1 << 20, chunk: 8 << 20, small_rows: 0 }).unwrap_err();
        assert_eq!(failure.fault, Fault::Unfit(what), "it is not joined");
    }
}

#[test]
fn pages_in_other_encodings_are_cut_and_found_equal() {
    for (seed, second) in [(1, false), (2, true)] {
        let style = Style {
            rows: 120,
            seed,
            distinct: 1000,
            nulls: 4,
            dictionary: false,
            page: 17,
            second,
            codec: Compression::SNAPPY,
            statistics: EnabledStatistics::Page,
            delta: true,
            dead: vec![0, 16, 17, 33, 34, 60, 61, 119],
        };
        // compressed anew, cut, and put together
        for (style, codec) in
            [(style.clone(), Compression::ZSTD(ZstdLevel::default())), (Style { dead: Vec::new(), ..style }, Compression::UNCOMPRESSED)]
        {
            let (files, live) = inputs(&[style.clone(), style]);
            for small in [0, 50] {
                let right = joined(&files, codec, small).unwrap();
                assert_eq!(hashes(&right.rows().unwrap()), hashes(&live));
                for column in 0..right.columns() {
                    let found = compared(&files, &right, column).unwrap();
                    assert_eq!((found[0].values, found[0].nulls), (hashes(&live)[column].values, hashes(&live)[column].nulls));
                }
            }
        }
    }
}

#[test]
fn every_value_is_visited() {
    for dictionary in [true, false] {
        let properties =
            WriterProperties::builder().set_dictionary_enabled(dictionary).set_data_page_row_count_limit(5).set_write_batch_size(5);
        let batch = rows(40, 7, 1000, 5);
        let file = File::written(&batch, properties.build());
        let mut found = std::collections::BTreeSet::new();
        let all = visit(
            &file.chunk(1, &[]),
            1 << 20,
            Some(&mut |value| {
                found.insert(value.to_vec());
                true
            }),
        )
        .unwrap()
        .unwrap();
        assert_eq!((all.values, all.nulls), (40, batch.column(1).null_count() as u64));
        let texts = batch.column(1).as_any().downcast_ref::<StringArray>().unwrap().clone();
        let expected: std::collections::BTreeSet<Vec<u8>> = texts.iter().flatten().map(|text| text.as_bytes().to_vec()).collect();
        assert_eq!(found, expected);
        let mut left = 3;
        let stopped = visit(
            &file.chunk(1, &[]),
            1 << 20,
            Some(&mut |_| {
                left -= 1;
                left > 0
            }),
        );
        assert_eq!((stopped, left), (Ok(None), 0));
    }
}

#[test]
fn a_chunk_alone_is_held_against_what_is_stated_of_it() {
    let file = floats(&[-0.0, 1.0, 2.0, 0.0]);
    let alone = |file: &File| visit(&file.chunk(0, &[]), 1 << 20, None);
    assert_eq!(alone(&file).unwrap().unwrap().values, 4);
    let outside = |what: &str| Err(Trouble::Wrong(format!("a value outside the bounds of its {what}")));
    assert_eq!(alone(&stating(&file, 0.0, 2.0, None)), outside("statistics"));
    assert_eq!(alone(&stating(&file, -0.0, 2.0, Some(&[(-0.0, 1.0), (0.0, 1.0)]))), outside("column index"));
}
