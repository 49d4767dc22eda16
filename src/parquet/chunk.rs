//! A column chunk: its pages found, and a new one put together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Encoding, PageType};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::body::Levels;
use super::fault::Fault;
use super::header::{Header, Kind};
use super::pieces::Pieces;

/// A column chunk as it is in a file.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its bytes, dictionary page first.
    pub bytes: Bytes,
    /// What the footer says of it.
    pub meta: ColumnChunkMetaData,
    /// Rows of its row group.
    pub rows: u64,
    /// Ordinals of the rows that are to be left out, each once, ascending.
    pub dead: Arc<[u32]>,
    /// Its column index, where the file has one.
    pub column_index: Option<ColumnIndexMetaData>,
    /// Its offset index, where the file has one.
    pub offset_index: Option<OffsetIndexMetaData>,
}

/// A page in a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its header.
    pub header: Header,
    /// Where its header begins.
    pub start: usize,
    /// Where its body lies.
    pub body: Range<usize>,
    /// Rows that begin in it; 0 for a dictionary.
    pub rows: u64,
}

impl Page {
    /// The bytes of its body.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.body.clone()).unwrap_or_default()
    }

    /// The bytes of its header and body.
    pub fn whole<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.start..self.body.end).unwrap_or_default()
    }

    /// Values, NULLs included, and their encoding.
    pub fn data(&self) -> (u32, Encoding) {
        self.header.kind.data().unwrap_or((0, Encoding::PLAIN))
    }
}

/// The pages of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The dictionary page.
    pub dictionary: Option<Page>,
    /// The data pages, in order.
    pub data: Vec<Page>,
}

impl Pages {
    /// Finds the pages of a part. `count` tells how many rows begin in a page
    /// for which neither header nor index does.
    ///
    /// Errs `Damaged` when pages and footer contradict each other, `Unfit` on a page
    /// of a kind that is not known, and as `count` does.
    pub fn find(part: &Part, count: impl FnMut(&Page) -> Result<u64, Fault>) -> Result<Self, Fault> {
        let (mut dictionary, mut data, mut at, mut values) = (None, Vec::new(), 0usize, 0u64);
        let stated = u64::try_from(part.meta.num_values()).map_err(|_| Fault::damaged("a negative number of values"))?;
        // What follows the last value is nobody's.
        while values < stated {
            let (header, length) = Header::read(part.bytes.get(at..).unwrap_or_default())?;
            let start = at.saturating_add(length);
            let end = start.checked_add(header.compressed).filter(|end| *end <= part.bytes.len());
            let end = end.ok_or_else(|| Fault::damaged("a page ends after its column chunk"))?;
            let page = Page { header, start: at, body: start..end, rows: 0 };
            match page.header.kind {
                Kind::Dictionary { .. } if dictionary.is_none() && data.is_empty() => dictionary = Some(page),
                Kind::Dictionary { .. } => return Err(Fault::damaged("a dictionary page that is not the first page")),
                Kind::Data(_) | Kind::DataV2(_) => {
                    values = values.saturating_add(page.data().0.into());
                    data.push(page);
                }
                // it may hold values
                Kind::Other => return Err(Fault::unfit("a page of a kind that is not known")),
            }
            at = end;
        }
        if values != stated {
            return Err(Fault::damaged(format_args!("pages of {values} values where the footer states {stated}")));
        }
        let mut pages = Self { dictionary, data };
        pages.count_rows(part, count)?;
        Ok(pages)
    }

    fn count_rows(&mut self, part: &Part, mut count: impl FnMut(&Page) -> Result<u64, Fault>) -> Result<(), Fault> {
        let flat = part.meta.column_descr().max_rep_level() == 0;
        let starts = part.offset_index.as_ref().map(OffsetIndexMetaData::page_locations).filter(|pages| pages.len() == self.data.len());
        let mut sum = 0u64;
        for (place, page) in self.data.iter_mut().enumerate() {
            let by_index = starts.and_then(|starts| {
                let first = u64::try_from(starts.get(place)?.first_row_index).ok()?;
                let next = starts.get(place + 1).map_or(Some(part.rows), |next| u64::try_from(next.first_row_index).ok())?;
                next.checked_sub(first)
            });
            page.rows = match (&page.header.kind, by_index) {
                (Kind::DataV2(page), Some(rows)) if rows != u64::from(page.rows) => {
                    return Err(Fault::damaged("a page has other rows than its offset index states"));
                }
                (Kind::DataV2(page), _) if flat && page.rows != page.values => {
                    return Err(Fault::damaged("a page has other rows than values"));
                }
                (Kind::DataV2(page), _) => page.rows.into(),
                _ if flat => page.data().0.into(),
                (_, Some(rows)) => rows,
                (_, None) => count(page)?,
            };
            sum = sum.saturating_add(page.rows);
        }
        if sum == part.rows { Ok(()) } else { Err(Fault::damaged(format_args!("pages of {sum} rows in a row group of {}", part.rows))) }
    }
}

/// A column chunk in the making.
pub struct Assembly {
    bytes: Pieces,
    header: Vec<u8>,
    most: usize,
    uncompressed: u64,
    dictionary: bool,
    data_start: Option<usize>,
    pages: BTreeMap<(i32, Encoding), (PageType, i32)>,
    offsets: OffsetIndexBuilder,
    values: u64,
}

impl Assembly {
    /// A chunk of at most so many bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Pieces::default(),
            header: Vec::new(),
            most,
            uncompressed: 0,
            dictionary: false,
            data_start: None,
            pages: BTreeMap::new(),
            offsets: OffsetIndexBuilder::new(),
            values: 0,
        }
    }

    /// Appends a page of these bytes as it was, header and body.
    ///
    /// Errs `Unfit` when the chunk becomes too large.
    pub fn copy(&mut self, page: &Page, bytes: &Bytes) -> Result<(), Fault> {
        let start = self.bytes.len();
        self.bytes.push(bytes.slice_ref(page.whole(bytes)));
        self.count(&page.header, start, page.body.start.saturating_sub(page.start), page.rows)
    }

    /// Appends a new page.
    ///
    /// Errs `Unfit` when the page or the chunk becomes too large.
    pub fn push(&mut self, header: &Header, body: &[u8], rows: u64) -> Result<(), Fault> {
        let start = self.bytes.len();
        self.header.clear();
        header.write(&mut self.header)?;
        self.bytes.extend(&self.header);
        self.bytes.extend(body);
        self.count(header, start, self.header.len(), rows)
    }

    fn count(&mut self, header: &Header, start: usize, header_length: usize, rows: u64) -> Result<(), Fault> {
        if self.bytes.len() > self.most {
            return Err(Fault::unfit(format_args!("its pages together take more than {} bytes", self.most)));
        }
        self.uncompressed = self.uncompressed.saturating_add(header.uncompressed.saturating_add(header_length) as u64);
        let encoding = match header.kind {
            Kind::Dictionary { encoding, .. } => {
                self.dictionary = true;
                encoding
            }
            _ => {
                let too_large = |_| Fault::unfit("a page of 2 GiB or more");
                let (values, encoding) = header.kind.data().unwrap_or((0, Encoding::PLAIN));
                self.data_start.get_or_insert(start);
                self.values = self.values.saturating_add(values.into());
                self.offsets.append_offset_and_size(
                    i64::try_from(start).map_err(too_large)?,
                    i32::try_from(self.bytes.len() - start).map_err(too_large)?,
                );
                self.offsets.append_row_count(i64::try_from(rows).map_err(too_large)?);
                encoding
            }
        };
        let kind = header.page_type();
        let place = self.pages.entry((kind as i32, encoding)).or_insert((kind, 0));
        place.1 = place.1.saturating_add(1);
        Ok(())
    }

    /// Adds a page's bytes of unencoded byte arrays to the offset index.
    pub fn unencoded(&mut self, bytes: i64) {
        self.offsets.append_unencoded_byte_array_data_bytes(Some(bytes));
    }

    /// Its bytes, its footer entry with offsets from its own beginning and
    /// without statistics, and its offset index.
    ///
    /// Errs `Unfit` when it has no data page, or the footer cannot state it.
    pub fn end(mut self, meta: &ColumnChunkMetaData, codec: parquet::basic::Compression) -> Result<Assembled, Fault> {
        self.bytes.finish();
        let large = |_| Fault::unfit("its sizes are over the format's");
        let start = self.data_start.ok_or_else(|| Fault::unfit("it has no data page"))?;
        let column = meta.column_descr_ptr();
        let mut encodings: Vec<Encoding> = self.pages.keys().map(|(_, encoding)| *encoding).collect();
        if Levels::of(&column).any() {
            encodings.push(Encoding::RLE);
        }
        encodings.sort_unstable();
        encodings.dedup();
        let counted = self.pages.into_iter();
        let counted = counted.map(|((_, encoding), (page_type, count))| PageEncodingStats { page_type, encoding, count }).collect();
        let footer = ColumnChunkMetaData::builder(column)
            .set_compression(codec)
            .set_encodings(encodings)
            .set_num_values(i64::try_from(self.values).map_err(large)?)
            .set_total_compressed_size(i64::try_from(self.bytes.len()).map_err(large)?)
            .set_total_uncompressed_size(i64::try_from(self.uncompressed).map_err(large)?)
            .set_data_page_offset(i64::try_from(start).map_err(large)?)
            .set_dictionary_page_offset(self.dictionary.then_some(0))
            .set_page_encoding_stats(counted)
            .build()
            .map_err(Fault::unfit)?;
        Ok((self.bytes, footer, self.offsets.build()))
    }
}

/// See [`Assembly::end`].
pub type Assembled = (Pieces, ColumnChunkMetaData, OffsetIndexMetaData);

#[cfg(test)]
mod tests {
    use parquet::basic::Compression;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::super::header::{Data, DataV2};
    use super::*;

    fn chunk(kinds: &[Kind], schema: &str, values: i64, rows: u64) -> Part {
        let mut bytes = Vec::new();
        for kind in kinds {
            Header { kind: kind.clone(), uncompressed: 3, compressed: 3, crc: None }.write(&mut bytes).unwrap();
            bytes.extend_from_slice(b"abc");
        }
        let column = SchemaDescriptor::new(Arc::new(parse_message_type(&format!("message m {{ {schema} }}")).unwrap())).column(0);
        let meta = ColumnChunkMetaData::builder(column).set_num_values(values).build().unwrap();
        Part { bytes: bytes.into(), meta, rows, dead: Arc::default(), column_index: None, offset_index: None }
    }

    fn find(part: &Part) -> Result<Pages, Fault> {
        Pages::find(part, |_| Err(Fault::unfit("asked")))
    }

    fn data(values: u32) -> Kind {
        Kind::Data(Data { values, encoding: Encoding::PLAIN, definition: Encoding::RLE, repetition: Encoding::RLE })
    }

    const DICTIONARY: Kind = Kind::Dictionary { values: 1, encoding: Encoding::PLAIN };
    const FLAT: &str = "OPTIONAL INT32 n;";
    const NESTED: &str = "REPEATED INT32 n;";

    #[test]
    fn pages_are_found_with_their_rows() {
        let found = find(&chunk(&[DICTIONARY, data(4), Kind::Data(Data { values: 5, ..as_data(data(0)) })], FLAT, 9, 9)).unwrap();
        assert!(found.dictionary.is_some());
        assert_eq!(found.data.iter().map(|page| (page.data().0, page.rows)).collect::<Vec<_>>(), [(4, 4), (5, 5)]);
        let second =
            DataV2 { values: 9, nulls: 0, rows: 2, encoding: Encoding::PLAIN, definition_bytes: 1, repetition_bytes: 1, compressed: true };
        let found = find(&chunk(&[Kind::DataV2(second)], NESTED, 9, 2)).unwrap();
        assert_eq!(found.data[0].rows, 2);
    }

    fn as_data(kind: Kind) -> Data {
        let Kind::Data(data) = kind else { panic!() };
        data
    }

    #[test]
    fn pages_that_contradict_the_footer_are_damaged() {
        let damaged = |kinds: &[Kind], values, rows| matches!(find(&chunk(kinds, FLAT, values, rows)), Err(Fault::Damaged(_)));
        assert!(!damaged(&[data(4)], 4, 4));
        assert!(damaged(&[data(4)], 5, 5), "pages are missing");
        assert!(damaged(&[data(4)], 3, 3), "a page too large");
        assert!(damaged(&[data(4)], 4, 5), "rows");
        assert!(damaged(&[data(4), DICTIONARY, data(1)], 5, 5), "a dictionary among the data");
        assert!(damaged(&[DICTIONARY, DICTIONARY, data(5)], 5, 5), "two dictionaries");
    }

    #[test]
    fn nested_pages_of_version_1_are_counted_without_an_offset_index() {
        let mut part = chunk(&[data(4), data(5)], NESTED, 9, 3);
        assert!(matches!(find(&part), Err(Fault::Unfit(_))));
        let counted = Pages::find(&part, |page| Ok(u64::from(page.data().0) - 3)).unwrap();
        assert_eq!(counted.data.iter().map(|page| page.rows).collect::<Vec<_>>(), [1, 2]);
        let mut index = OffsetIndexBuilder::new();
        for rows in [2, 1] {
            index.append_offset_and_size(0, 1);
            index.append_row_count(rows);
        }
        part.offset_index = Some(index.build());
        assert_eq!(find(&part).unwrap().data.iter().map(|page| page.rows).collect::<Vec<_>>(), [2, 1]);
        part.rows = 1;
        assert!(matches!(find(&part), Err(Fault::Unfit(_))), "an index past the row group's end tells nothing");
    }

    #[test]
    fn an_assembled_chunk_is_found_again() {
        let part = chunk(&[DICTIONARY, data(4), data(5)], FLAT, 9, 9);
        let pages = find(&part).unwrap();
        let mut assembly = Assembly::new(1000);
        let dictionary = pages.dictionary.as_ref().unwrap();
        assembly.push(&dictionary.header, dictionary.body(&part.bytes), 0).unwrap();
        for page in &pages.data {
            assembly.copy(page, &part.bytes).unwrap();
        }
        let (bytes, meta, offsets) = assembly.end(&part.meta, Compression::SNAPPY).unwrap();
        let bytes = bytes.concat();
        assert_eq!(bytes, part.bytes);
        assert_eq!((meta.num_values(), meta.compressed_size(), meta.uncompressed_size()), (9, bytes.len() as i64, bytes.len() as i64));
        assert_eq!((meta.dictionary_page_offset(), meta.data_page_offset()), (Some(0), pages.data[0].start as i64));
        let rows: Vec<_> =
            offsets.page_locations().iter().map(|p| (p.offset as usize, p.compressed_page_size as usize, p.first_row_index)).collect();
        let page = |n: usize| (pages.data[n].start, pages.data[n].body.end - pages.data[n].start);
        assert_eq!(rows, [(page(0).0, page(0).1, 0), (page(1).0, page(1).1, 4)]);
        let counted: Vec<_> = meta.page_encoding_stats().unwrap().iter().map(|s| (s.page_type, s.encoding, s.count)).collect();
        assert_eq!(counted, [(PageType::DATA_PAGE, Encoding::PLAIN, 2), (PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1)]);
        assert_eq!(meta.encodings().collect::<Vec<_>>(), [Encoding::PLAIN, Encoding::RLE]);
        assert!(matches!(Assembly::new(5).copy(&pages.data[0], &part.bytes), Err(Fault::Unfit(_))));
    }
}
