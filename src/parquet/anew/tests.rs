use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray};
use parquet::basic::{Compression, Encoding};
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;

use super::super::repack::join;
use super::super::repack::tests::{part, properties, read};
use super::*;

const WISH: Wish = Wish { codec: Compression::UNCOMPRESSED, page: 1 << 20, chunk: 8 << 20, small_rows: 0 };

fn anew(parts: &[Part], properties: WriterProperties) -> Result<Joined, Failure> {
    encode(parts, &WISH, &Arc::new(properties))
}

fn without(dead: &[u32], part: Part) -> Part {
    Part { dead: dead.into(), ..part }
}

fn lists(lists: &[Option<&[Option<i64>]>]) -> ArrayRef {
    let mut builder = ListBuilder::new(Int64Builder::new());
    for list in lists {
        match list {
            Some(values) => {
                values.iter().for_each(|value| builder.values().append_option(*value));
                builder.append(true);
            }
            None => builder.append(false),
        }
    }
    Arc::new(builder.finish())
}

#[test]
fn rows_that_live_stay_in_order_whatever_their_encoding() {
    let first: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b"), Some("c")]));
    let second: ArrayRef = Arc::new(StringArray::from(vec![Some("d"), None, None]));
    let delta = properties().set_dictionary_enabled(false).set_encoding(Encoding::DELTA_BYTE_ARRAY);
    let parts = [without(&[0, 1], part(first, properties())), without(&[2], part(second, delta))];
    let made = anew(&parts, properties().build()).unwrap();
    let expected = StringArray::from(vec![Some("b"), Some("c"), Some("d"), None]);
    assert_eq!((made.rows, read(&made, 4).as_ref()), (4, &expected as &dyn Array));
    let told = made.meta.statistics().unwrap();
    assert_eq!((told.min_bytes_opt(), told.max_bytes_opt(), told.null_count_opt()), (Some(&b"b"[..]), Some(&b"d"[..]), Some(1)));
}

#[test]
fn a_column_without_nulls_loses_its_dead_rows_alone() {
    let parts = [without(&[1], part(Arc::new(BooleanArray::from(vec![true, false, true])), properties()))];
    let made = anew(&parts, properties().build()).unwrap();
    assert_eq!((made.rows, read(&made, 2).as_ref()), (2, &BooleanArray::from(vec![true, true]) as &dyn Array));
}

#[test]
fn a_list_that_is_left_out_takes_all_its_values_along() {
    let all = [Some(&[Some(1), None, Some(2)][..]), None, Some(&[][..]), Some(&[Some(3)][..]), Some(&[None][..])];
    let parts = [without(&[0, 2], part(lists(&all), properties())), part(lists(&[Some(&[Some(4), Some(5)])]), properties())];
    let made = anew(&parts, properties().build()).unwrap();
    assert_eq!(made.rows, 4);
    let values = made.meta.num_values();
    assert_eq!(values, 1 + 1 + 1 + 2, "a NULL list, one of 3, one of a NULL, one of 4 and 5");
    // by a second way: joined pages of the same lists
    let other = join(&[part(lists(&[None, Some(&[Some(3)]), Some(&[None])]), properties()), parts[1].clone()], &WISH).unwrap();
    let told = |joined: &Joined| {
        let told = joined.meta.statistics().unwrap();
        (told.min_bytes_opt().map(<[u8]>::to_vec), told.max_bytes_opt().map(<[u8]>::to_vec), told.null_count_opt())
    };
    assert_eq!(told(&made), told(&other));
    assert_eq!((made.meta.num_values(), made.rows), (other.meta.num_values(), other.rows));
}

#[test]
fn a_bloom_filter_comes_along_where_it_is_asked_for() {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|n| format!("v{n}"))));
    let asked = properties().set_bloom_filter_enabled(true).set_bloom_filter_ndv(100).build();
    let filter = anew(&[part(texts.clone(), properties())], asked).unwrap().bloom_filter.unwrap();
    assert!((0..100).all(|n| filter.check(&ByteArray::from(format!("v{n}").into_bytes()))));
    assert!((0..100).any(|n| !filter.check(&ByteArray::from(format!("w{n}").into_bytes()))));
    assert!(anew(&[part(texts, properties())], properties().build()).unwrap().bloom_filter.is_none());
}

#[test]
fn what_is_damaged_or_too_large_is_told() {
    let numbers = || part(Arc::new(Int64Array::from_iter_values(0..1000)), properties().set_dictionary_enabled(false));
    let short = Part { rows: 1001, ..numbers() };
    let failure = anew(&[numbers(), short], properties().build()).unwrap_err();
    assert_eq!(failure, Fault::damaged("1000 rows in a row group of 1001").of(1));
    let cut = Part { bytes: numbers().bytes.slice(..4000), ..numbers() };
    assert_eq!(anew(&[cut], properties().build()).unwrap_err(), Fault::damaged("a page ends after its column chunk").of(0));
    let narrow =
        |page, chunk| encode(&[numbers()], &Wish { page, chunk, ..WISH }, &Arc::new(properties().set_dictionary_enabled(false).build()));
    assert!(matches!(narrow(100, 1 << 20), Err(Failure { fault: Fault::Unfit(why), .. }) if why.starts_with("a page of ")));
    assert!(
        matches!(narrow(1 << 20, 100), Err(Failure { fault: Fault::Unfit(why), .. }) if why.starts_with("its values take more than 100"))
    );
}
