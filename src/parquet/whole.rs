//! A column chunk taken as it is: every page byte for byte, and what the footer says of
//! it told anew from its pages.

use parquet::bloom_filter::Sbbf;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::body;
use super::chunk::{Assembly, Page, Pages, Part};
use super::fault::Fault;
use super::header::is_dictionary;
use super::repack::Joined;
use super::{index, statistics};

/// The chunk with its pages as they are, and its bloom filter where there is one to go
/// with it.
///
/// Invariants checked:
/// * its pages hold the values and rows that its footer states, and the checksums that
///   they carry; none is larger than `most` bytes, decompressed;
/// * pages of ids have a dictionary, and come before all others: some readers take a
///   wrong dictionary after a page without one.
///
/// Errs where one does not hold: it is to be joined or encoded instead.
pub fn copy(part: &Part, most: usize, bloom_filter: Option<Sbbf>) -> Result<Joined, Fault> {
    if !part.dead.is_empty() {
        return Err(Fault::unfit("rows are left out"));
    }
    let pages = Pages::find(part, |_| Err(Fault::unfit("a page that does not tell its rows")))?;
    let mut out = Assembly::new(usize::MAX);
    if let Some(page) = &pages.dictionary {
        checked(page, part, most)?;
        match is_read_whole(page, part)? {
            true => out.copy(page, &part.bytes)?,
            false => out.push(&page.header, page.body(&part.bytes), 0)?,
        }
    }
    let mut others = false;
    for page in &pages.data {
        checked(page, part, most)?;
        let (values, encoding) = page.data();
        if values == 0 {
            return Err(Fault::unfit("a page of no values"));
        }
        if is_dictionary(encoding) && (others || pages.dictionary.is_none()) {
            return Err(Fault::unfit("a page of ids behind one of values, or without a dictionary"));
        }
        others |= !is_dictionary(encoding);
        out.copy(page, &part.bytes)?;
    }
    let unencoded = part.offset_index.as_ref().and_then(OffsetIndexMetaData::unencoded_byte_array_data_bytes);
    for bytes in unencoded.into_iter().filter(|told| told.len() == pages.data.len()).flatten() {
        out.unencoded(*bytes);
    }
    let column = part.meta.column_descr();
    let column_index = index::fitting(part.meta.column_type(), part.column_index.as_ref(), pages.data.len());
    let column_index = column_index.and_then(|told| index::with_wide_zeros(column, told.clone()));
    let (bytes, meta, offset_index) = out.end(&part.meta, part.meta.compression())?;
    let mut builder = meta
        .into_builder()
        .set_unencoded_byte_array_data_bytes(part.meta.unencoded_byte_array_data_bytes())
        .set_repetition_level_histogram(part.meta.repetition_level_histogram().cloned())
        .set_definition_level_histogram(part.meta.definition_level_histogram().cloned());
    if let Some(told) = statistics::fold(column, &[&part.meta]) {
        builder = builder.set_statistics(told);
    }
    let meta = builder.build().map_err(Fault::unfit)?;
    Ok(Joined { bytes, meta, rows: part.rows, column_index, offset_index, bloom_filter })
}

/// Whether a dictionary's header states no more than is read of it: some writers add
/// that it is not sorted, which says nothing.
fn is_read_whole(page: &Page, part: &Part) -> Result<bool, Fault> {
    const NOT_SORTED: [u8; 3] = [0x12, 0, 0];
    let stated = part.bytes.get(page.start..page.body.start).unwrap_or_default();
    let mut read = Vec::new();
    page.header.write(&mut read)?;
    let plain = stated == read;
    read.truncate(read.len().saturating_sub(2));
    read.extend(NOT_SORTED);
    Ok(plain || stated == read)
}

fn checked(page: &Page, part: &Part, most: usize) -> Result<(), Fault> {
    body::check(&page.header, page.body(&part.bytes))?;
    match page.header.uncompressed <= most {
        true => Ok(()),
        false => Err(Fault::unfit(format_args!("a page of {} bytes", page.header.uncompressed))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, StringArray};
    use parquet::basic::{Compression, Encoding};

    use super::super::repack::tests::{part, properties, read};
    use super::*;

    const MOST: usize = 1 << 20;

    fn texts() -> ArrayRef {
        Arc::new(StringArray::from_iter((0..900).map(|n| (n % 9 != 0).then(|| format!("t{}", n % 40)))))
    }

    fn paged() -> Part {
        let pages = properties().set_compression(Compression::SNAPPY).set_data_page_row_count_limit(100).set_write_batch_size(50);
        part(texts(), pages)
    }

    #[test]
    fn a_chunk_keeps_its_bytes_and_what_is_told_of_it() {
        let part = paged();
        let copied = copy(&part, MOST, None).unwrap();
        assert_eq!(copied.bytes.clone().concat(), part.bytes);
        assert_eq!(&read(&copied, 900), &texts());
        let told = |meta: &parquet::file::metadata::ColumnChunkMetaData| {
            let sizes = (meta.num_values(), meta.compressed_size(), meta.uncompressed_size(), meta.compression());
            let pages = meta.page_encoding_stats().unwrap().iter().map(|s| (s.page_type as i32, s.encoding as i32, s.count));
            let pages: std::collections::BTreeSet<_> = pages.collect();
            (sizes, meta.statistics().cloned(), pages, meta.unencoded_byte_array_data_bytes())
        };
        assert_eq!(told(&copied.meta), told(&part.meta));
        assert_eq!(copied.column_index, part.column_index);
        let (rows, before) = (copied.offset_index.page_locations(), part.offset_index.as_ref().unwrap());
        assert_eq!(rows.len(), 9);
        assert!(rows.iter().zip(before.page_locations()).all(|(a, b)| a.first_row_index == b.first_row_index));
        assert_eq!(copied.offset_index.unencoded_byte_array_data_bytes(), before.unencoded_byte_array_data_bytes());
    }

    #[test]
    fn zeros_at_the_ends_stand_for_both_signs() {
        let part = part(Arc::new(Float64Array::from(vec![0.0, -0.0, 0.0])), properties());
        let told = copy(&part, MOST, None).unwrap().meta;
        let ends = told.statistics().unwrap();
        assert_eq!((ends.min_bytes_opt(), ends.max_bytes_opt()), (Some(&(-0.0f64).to_le_bytes()[..]), Some(&0.0f64.to_le_bytes()[..])));
    }

    #[test]
    fn what_cannot_stay_as_it_is_is_left_to_others() {
        let unfit = |part: &Part, most| matches!(copy(part, most, None), Err(Fault::Unfit(_)));
        assert!(unfit(&Part { dead: Arc::from([3]), ..paged() }, MOST), "rows are left out");
        assert!(unfit(&paged(), 100), "a page is too large");
        let damaged = |part: &Part| matches!(copy(part, MOST, None), Err(Fault::Damaged(_)));
        assert!(damaged(&Part { rows: 901, offset_index: None, ..paged() }));
        // a page of ids behind one of values
        let plain = part(texts(), properties().set_dictionary_enabled(false));
        let ids = part(texts(), properties());
        let pages = Pages::find(&ids, |_| Err(Fault::unfit("asked"))).unwrap();
        let dictionary = pages.dictionary.unwrap();
        let bytes = [dictionary.whole(&ids.bytes), &plain.bytes[..], pages.data[0].whole(&ids.bytes)].concat();
        let meta = ids.meta.into_builder().set_num_values(1800).set_encodings(vec![Encoding::PLAIN, Encoding::RLE_DICTIONARY]);
        let mixed = Part { bytes: bytes.into(), meta: meta.build().unwrap(), rows: 1800, column_index: None, offset_index: None, ..plain };
        assert!(unfit(&mixed, MOST));
    }
}
