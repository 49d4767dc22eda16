//! Pages read by code that shares nothing with the product: headers as generic
//! Thrift, checked against footer and page index.

use std::collections::BTreeMap;

use parquet::basic::{Encoding, PageType};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

#[derive(Debug)]
enum Value {
    Number(i64),
    Fields(BTreeMap<i64, Value>),
    Other,
}

struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Thrift<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn number(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn signed(&mut self) -> i64 {
        let raw = self.number();
        (raw >> 1) as i64 ^ -((raw & 1) as i64)
    }

    fn value(&mut self, kind: u8) -> Value {
        match kind {
            1 | 2 => Value::Other,
            4..=6 => Value::Number(self.signed()),
            8 => {
                let length = self.number() as usize;
                self.at += length;
                Value::Other
            }
            12 => Value::Fields(self.fields()),
            other => panic!("a page header with a field of kind {other}"),
        }
    }

    fn fields(&mut self) -> BTreeMap<i64, Value> {
        let (mut fields, mut id) = (BTreeMap::new(), 0);
        loop {
            let head = self.byte();
            if head == 0 {
                return fields;
            }
            id = if head >> 4 == 0 { self.signed() } else { id + i64::from(head >> 4) };
            fields.insert(id, self.value(head & 15));
        }
    }
}

fn number(fields: &BTreeMap<i64, Value>, id: i64) -> i64 {
    match fields.get(&id) {
        Some(Value::Number(number)) => *number,
        other => panic!("field {id} is {other:?}"),
    }
}

/// A page as its header tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub start: usize,
    pub end: usize,
    pub kind: PageType,
    pub encoding: Encoding,
    pub values: i64,
    /// Told by pages of version 2.
    pub rows: Option<i64>,
    pub has_crc: bool,
}

const ENCODINGS: [(i64, Encoding); 8] = [
    (0, Encoding::PLAIN),
    (2, Encoding::PLAIN_DICTIONARY),
    (3, Encoding::RLE),
    (5, Encoding::DELTA_BINARY_PACKED),
    (6, Encoding::DELTA_LENGTH_BYTE_ARRAY),
    (7, Encoding::DELTA_BYTE_ARRAY),
    (8, Encoding::RLE_DICTIONARY),
    (9, Encoding::BYTE_STREAM_SPLIT),
];

pub fn by_dictionary(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY)
}

/// The pages in these bytes, all of them; refused when a checksum is wrong, the
/// dictionary is not first and alone, or pages of ids follow any other.
pub fn pages(bytes: &[u8]) -> Result<Vec<Page>, String> {
    let (mut pages, mut at, mut plain) = (Vec::<Page>::new(), 0, false);
    while at < bytes.len() {
        let mut thrift = Thrift { bytes: &bytes[at..], at: 0 };
        let header = thrift.fields();
        let (kind, inner, encoding_id) = match number(&header, 1) {
            0 => (PageType::DATA_PAGE, 5, 2),
            2 => (PageType::DICTIONARY_PAGE, 7, 2),
            3 => (PageType::DATA_PAGE_V2, 8, 4),
            other => return Err(format!("a page of type {other}")),
        };
        let Some(Value::Fields(inner)) = header.get(&inner) else { return Err("a header without its part".into()) };
        let code = number(inner, encoding_id);
        let encoding = ENCODINGS.iter().find(|(known, _)| *known == code).ok_or("unknown encoding")?.1;
        let (body, length) = (at + thrift.at, number(&header, 3) as usize);
        let end = body + length;
        if end > bytes.len() {
            return Err("a page ends outside its chunk".into());
        }
        let crc = header.get(&4).map(|crc| if let Value::Number(crc) = crc { *crc as i32 as u32 } else { panic!() });
        if crc.is_some_and(|crc| crc32fast::hash(&bytes[body..end]) != crc) {
            return Err("a wrong checksum".into());
        }
        match kind {
            PageType::DICTIONARY_PAGE if !pages.is_empty() => return Err("a dictionary that is not first".into()),
            PageType::DICTIONARY_PAGE => {}
            _ if by_dictionary(encoding) && plain => return Err("a page of ids after one without".into()),
            _ => plain |= !by_dictionary(encoding),
        }
        let rows = (kind == PageType::DATA_PAGE_V2).then(|| number(inner, 3));
        pages.push(Page { start: at, end, kind, encoding, values: number(inner, 1), rows, has_crc: crc.is_some() });
        at = end;
    }
    Ok(pages)
}

/// Where a chunk lies.
pub fn range(chunk: &ColumnChunkMetaData) -> std::ops::Range<usize> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset()) as usize;
    start..start + chunk.compressed_size() as usize
}

/// Holds every page of a file against its footer and its offset index.
pub fn check(file: &[u8], footer: &ParquetMetaData) -> Vec<Vec<Vec<Page>>> {
    let index = footer.offset_index().expect("an offset index");
    let groups = footer.row_groups().iter().zip(index).map(|(group, index)| {
        let columns = group.columns().iter().zip(index);
        columns.map(|(chunk, index)| check_chunk(file, chunk, index.page_locations(), group.num_rows())).collect()
    });
    groups.collect()
}

fn check_chunk(
    file: &[u8],
    chunk: &ColumnChunkMetaData,
    index: &[parquet::file::page_index::offset_index::PageLocation],
    rows: i64,
) -> Vec<Page> {
    let (range, path) = (range(chunk), chunk.column_path().string());
    let found = pages(&file[range.clone()]).unwrap_or_else(|why| panic!("column {path}: {why}"));
    let data: Vec<&Page> = found.iter().filter(|page| page.kind != PageType::DICTIONARY_PAGE).collect();
    assert_eq!(data.iter().map(|page| page.values).sum::<i64>(), chunk.num_values(), "{path}");
    assert_eq!(chunk.dictionary_page_offset().is_some(), found.len() > data.len(), "{path}");
    assert_eq!(chunk.data_page_offset() as usize, range.start + data[0].start, "{path}");
    let places: Vec<(usize, usize)> = data.iter().map(|page| (range.start + page.start, page.end - page.start)).collect();
    let stated: Vec<(usize, usize)> = index.iter().map(|page| (page.offset as usize, page.compressed_page_size as usize)).collect();
    assert_eq!(stated, places, "{path}");
    let flat = chunk.column_descr().max_rep_level() == 0;
    let mut first = 0;
    for (place, page) in data.iter().enumerate() {
        assert_eq!(index[place].first_row_index, first, "{path} page {place}");
        let next = index.get(place + 1).map_or(rows, |next| next.first_row_index);
        let told = page.rows.or(flat.then_some(page.values));
        assert!(told.is_none_or(|told| told == next - first), "{path} page {place}");
        first = next;
    }
    assert_eq!(first, rows, "{path}");
    let mut counted = BTreeMap::new();
    for page in &found {
        *counted.entry((page.kind as i32, page.encoding)).or_insert(0) += 1;
    }
    let told = chunk.page_encoding_stats().expect("encoding statistics").iter();
    assert_eq!(told.map(|s| ((s.page_type as i32, s.encoding), s.count)).collect::<BTreeMap<_, _>>(), counted, "{path}");
    assert!(found.iter().all(|page| chunk.encodings().any(|encoding| encoding == page.encoding)), "{path}");
    found
}
