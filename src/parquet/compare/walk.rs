//! A chunk's pages found again, from its bytes and its footer alone.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::ColumnOrder;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::Trouble;
use crate::parquet::header::{Header, Kind};

/// A column chunk of a file, as it is to be compared.
#[derive(Clone)]
pub struct Chunk {
    /// The file's footer, with the page indexes that it has.
    pub footer: Arc<ParquetMetaData>,
    /// Its row group.
    pub group: usize,
    /// Its column.
    pub column: usize,
    /// Its bytes, as the footer places them.
    pub bytes: Bytes,
    /// Ordinals, in its row group, of the rows that do not count: ascending.
    pub dead: Arc<[u32]>,
}

impl Chunk {
    /// What the footer says of it.
    pub fn meta(&self) -> Result<&ColumnChunkMetaData, Trouble> {
        let group = self.footer.row_groups().get(self.group);
        group.and_then(|group| group.columns().get(self.column)).ok_or_else(|| Trouble::wrong("a column chunk is not in its footer"))
    }

    /// Whether its file tells that the column has the order of its type: without it,
    /// bounds may be those of another order.
    pub fn tells_order(&self) -> bool {
        let orders = self.footer.file_metadata().column_orders();
        orders.and_then(|orders| orders.get(self.column)).is_some_and(|order| matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(_)))
    }

    /// Rows of its row group.
    pub fn rows(&self) -> Result<u64, Trouble> {
        let rows = self.footer.row_groups().get(self.group).and_then(|group| u64::try_from(group.num_rows()).ok());
        rows.ok_or_else(|| Trouble::wrong("a row group has an impossible number of rows"))
    }

    /// Its column index, where the file has one.
    pub fn column_index(&self) -> Option<&ColumnIndexMetaData> {
        let index = self.footer.column_index()?.get(self.group)?.get(self.column)?;
        (!matches!(index, ColumnIndexMetaData::NONE)).then_some(index)
    }

    /// Its offset index, where the file has one.
    pub fn offset_index(&self) -> Option<&OffsetIndexMetaData> {
        let index = self.footer.offset_index()?.get(self.group)?.get(self.column)?;
        (!index.page_locations().is_empty()).then_some(index)
    }
}

/// A page of a chunk.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its header.
    pub header: Header,
    /// Where its header lies in the chunk.
    pub head: Range<usize>,
    /// Where its body lies.
    pub body: Range<usize>,
}

impl Page {
    /// Values, NULLs included.
    pub fn values(&self) -> u32 {
        self.header.kind.data().map_or(0, |(values, _)| values)
    }

    /// Bytes of header and body, in the file.
    pub fn whole<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.head.start..self.body.end).unwrap_or_default()
    }

    /// Bytes of its body, in the file.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.body.clone()).unwrap_or_default()
    }
}

/// The pages of a chunk, in order.
#[derive(Debug, Default)]
pub struct Walked {
    /// The dictionary page.
    pub dictionary: Option<Page>,
    /// The pages of values.
    pub data: Vec<Page>,
    /// What the chunk takes decompressed, headers included.
    pub uncompressed: u64,
    /// Bytes up to the end of the last page.
    pub end: usize,
}

/// Finds the pages of a chunk. `most`: bytes that a page may take decompressed.
///
/// Errs when a header does not parse, a page leaves the chunk, its values are not
/// as many as the footer states, a dictionary is not the first page, or a page is
/// too large; `Unfit` on a page of a kind that is not known: it may hold values.
pub fn walk(chunk: &Chunk, most: usize) -> Result<Walked, Trouble> {
    let stated = u64::try_from(chunk.meta()?.num_values()).map_err(|_| Trouble::wrong("a negative number of values"))?;
    let (mut walked, mut values) = (Walked::default(), 0u64);
    while values < stated {
        let at = walked.end;
        let (header, length) = Header::read(chunk.bytes.get(at..).unwrap_or_default())?;
        let start = at.saturating_add(length);
        let end = start.checked_add(header.compressed).filter(|end| *end <= chunk.bytes.len());
        let end = end.ok_or_else(|| Trouble::wrong("a page ends after its column chunk"))?;
        if header.uncompressed > most {
            return Err(Trouble::TooLarge(format!("a page claims {} bytes, {most} are allowed", header.uncompressed)));
        }
        walked.uncompressed = walked.uncompressed.saturating_add(header.uncompressed.saturating_add(length) as u64);
        walked.end = end;
        let page = Page { header, head: at..start, body: start..end };
        match page.header.kind {
            Kind::Dictionary { .. } if at == 0 => walked.dictionary = Some(page),
            Kind::Dictionary { .. } => return Err(Trouble::wrong("a dictionary that is not the first page")),
            Kind::Data(_) | Kind::DataV2(_) => {
                values = values.saturating_add(page.values().into());
                walked.data.push(page);
            }
            Kind::Other => return Err(Trouble::Unfit("a page of a kind that is not known".into())),
        }
    }
    if values == stated { Ok(walked) } else { Err(Trouble::wrong(format_args!("pages of {values} values, the footer states {stated}"))) }
}
