//! One side of a comparison: its pages in order, and the one that is open.

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::file::statistics::Statistics;

use super::ends::Ends;
use super::index::{self, Seen};
use super::open::{Column, Dictionary, Open};
use super::walk::{Chunk, Page, Walked, walk};
use super::{Trouble, Which};
use crate::parquet::body;
use crate::parquet::codec::{self, Inflater};
use crate::parquet::header::Kind;
use crate::parquet::rooms;

/// Chunks in order, and how far they were read.
pub struct Side<'a> {
    chunks: &'a [Chunk],
    /// The chunk that is read.
    pub place: usize,
    /// Its pages.
    pub walked: Walked,
    /// The page that comes next.
    next: usize,
    /// The ordinal of the row that begins next.
    row: u64,
    dictionary: Option<Arc<Dictionary>>,
    /// The page that is being compared.
    pub open: Option<Open>,
    /// How its pages are read.
    pub column: Column,
    inflater: Inflater,
    /// Room for the next page.
    spare: Vec<u8>,
    most: usize,
    which: Which,
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        rooms::give(std::mem::take(&mut self.spare));
    }
}

impl<'a> Side<'a> {
    /// The side of these chunks, of one column. `most`: bytes that a page may take.
    pub fn new(chunks: &'a [Chunk], most: usize, which: Which) -> Result<Self, Trouble> {
        let first = chunks.first().ok_or_else(|| Trouble::Unfit("nothing to compare".into()))?;
        let column = Column::of(first.meta()?.column_descr())?;
        let mut side = Self {
            chunks,
            place: 0,
            walked: Walked::default(),
            next: 0,
            row: 0,
            dictionary: None,
            open: None,
            column,
            inflater: Inflater::default(),
            spare: Vec::new(),
            most,
            which,
        };
        side.enter()?;
        Ok(side)
    }

    fn enter(&mut self) -> Result<(), Trouble> {
        (self.walked, self.next, self.row, self.dictionary) = (Walked::default(), 0, 0, None);
        let Some(chunk) = self.chunks.get(self.place) else { return Ok(()) };
        if Column::of(chunk.meta()?.column_descr())? != self.column {
            return Err(Trouble::wrong("a column of another type than before"));
        }
        self.walked = walk(chunk, self.most).map_err(|trouble| match (self.which, trouble) {
            // what is not known may stand in a file that was there, not in one that was made
            (Which::Right, Trouble::Unfit(what)) => Trouble::Wrong(what),
            (_, trouble) => trouble,
        })?;
        Ok(())
    }

    /// The chunk that is read; `None` behind the last.
    pub fn chunk(&self) -> Option<&'a Chunk> {
        self.chunks.get(self.place)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.chunk().map_or(&[], |chunk| &chunk.bytes)
    }

    /// The page that comes next in the chunk.
    pub fn page(&self) -> Option<&Page> {
        self.walked.data.get(self.next)
    }

    /// To the next chunk, with or without pages; `false` behind the last.
    pub fn next_chunk(&mut self) -> Result<bool, Trouble> {
        self.place = self.place.saturating_add(1).min(self.chunks.len());
        self.enter()?;
        Ok(self.place < self.chunks.len())
    }

    /// To the next page of any chunk that has rows that count; `false` behind the
    /// last.
    pub fn advance(&mut self) -> Result<bool, Trouble> {
        loop {
            if let Some(page) = self.page() {
                if page.values() > 0 && !self.is_gone(page) {
                    return Ok(true);
                }
                self.pass();
                continue;
            }
            if self.row_count_is_off() {
                return Err(Trouble::wrong("pages of another number of rows than the row group"));
            }
            if !self.next_chunk()? {
                return Ok(false);
            }
        }
    }

    fn row_count_is_off(&self) -> bool {
        self.column.is_flat() && self.chunk().is_some_and(|chunk| chunk.rows() != Ok(self.row))
    }

    /// Whether none of the rows of a page counts.
    fn is_gone(&self, page: &Page) -> bool {
        self.column.is_flat() && self.dead_rows(page) == page.values() as usize
    }

    fn dead_rows(&self, page: &Page) -> usize {
        let Some(chunk) = self.chunk() else { return 0 };
        let before = |row: u64| chunk.dead.partition_point(|dead| u64::from(*dead) < row);
        before(self.row.saturating_add(page.values().into())).saturating_sub(before(self.row))
    }

    /// Whether rows of the next page may not count.
    pub fn is_cut(&self) -> bool {
        match (self.page(), self.chunk()) {
            (Some(page), _) if self.column.is_flat() => self.dead_rows(page) > 0,
            (_, chunk) => chunk.is_some_and(|chunk| !chunk.dead.is_empty()),
        }
    }

    /// Leaves the next page behind.
    pub fn pass(&mut self) {
        if self.column.is_flat() {
            self.row = self.row.saturating_add(self.page().map_or(0, Page::values).into());
        }
        self.next += 1;
    }

    /// Whether both sides' chunks are compressed alike.
    pub fn same_codec(&self, other: &Side<'_>) -> bool {
        let codec = |side: &Side<'_>| side.chunk().and_then(|chunk| chunk.meta().ok().map(|meta| meta.compression()));
        codec(self).zip(codec(other)).is_some_and(|(a, b)| codec::same(a, b))
    }

    /// The next page, decompressed.
    pub fn opened(&mut self) -> Result<Open, Trouble> {
        let (Some(page), Some(chunk)) = (self.walked.data.get(self.next), self.chunks.get(self.place)) else {
            return Err(Trouble::wrong("a page is missing"));
        };
        let body = page.body(&chunk.bytes);
        body::check(&page.header, body)?;
        let spare = match std::mem::take(&mut self.spare) {
            spare if spare.capacity() > 0 => spare,
            _ => rooms::take(page.header.uncompressed.min(rooms::PAGE)),
        };
        Open::new(page, body, chunk.meta()?.compression(), &self.column, &mut self.inflater, (spare, self.most))
    }

    /// Keeps a page that is not done; the room of another is used again.
    pub fn keep(&mut self, open: Open) {
        if open.left > 0 {
            self.open = Some(open);
        } else {
            self.spare = open.bytes;
        }
    }

    /// Opens the next page, without the rows that do not count.
    pub fn open_page(&mut self) -> Result<(), Trouble> {
        let mut open = self.opened()?;
        let cut = self.is_cut();
        if cut && open.left as usize > self.most {
            return Err(Trouble::TooLarge(format!("rows are deleted in a page of {} values", open.left)));
        }
        let dead = self.chunk().map(|chunk| Arc::clone(&chunk.dead)).unwrap_or_default();
        if cut {
            let rows = open.cut(&dead, self.row, &self.column)?;
            self.row = if self.column.is_flat() { self.row } else { self.row.saturating_add(rows) };
        }
        self.pass();
        self.keep(open);
        Ok(())
    }

    /// The dictionary of the chunk.
    pub fn dictionary(&mut self) -> Result<Arc<Dictionary>, Trouble> {
        if let Some(dictionary) = &self.dictionary {
            return Ok(Arc::clone(dictionary));
        }
        let page = self.walked.dictionary.as_ref().ok_or_else(|| Trouble::wrong("ids without a dictionary"))?;
        let chunk = self.chunks.get(self.place).ok_or_else(|| Trouble::wrong("a chunk is missing"))?;
        let body = page.body(&chunk.bytes);
        body::check(&page.header, body)?;
        let dictionary = Arc::new(Dictionary::new(page, body, chunk.meta()?.compression(), &self.column, &mut self.inflater)?);
        self.dictionary = Some(Arc::clone(&dictionary));
        Ok(dictionary)
    }

    /// Whether ends of the values are stated, or wanted.
    pub fn wants_ends(&self, asked: bool) -> bool {
        let Some(chunk) = self.chunk() else { return asked };
        asked || chunk.column_index().is_some() || chunk.meta().is_ok_and(|meta| index::bounds(meta.statistics()) != (None, None))
    }

    /// Whether ends of values that were told elsewhere bear out what is stated of a
    /// page and of its chunk. They may be wider: then the values must be seen.
    pub fn borne_out(&self, page: usize, ends: &Ends) -> bool {
        let Some(chunk) = self.chunk() else { return true };
        let of_page = chunk.column_index().and_then(|index| index::page_bounds(index, page)).unzip();
        let of_chunk = chunk.meta().map_or((None, None), |meta| index::bounds(meta.statistics()));
        let holds = |(low, high): (Option<Vec<u8>>, Option<Vec<u8>>)| {
            index::bounded(self.column.order, ends, low.as_deref(), high.as_deref(), "a page").is_ok()
        };
        holds(of_page) && holds(of_chunk)
    }

    /// The place of the next page among its chunk's.
    pub fn at(&self) -> usize {
        self.next
    }

    /// What header, column index and statistics tell of the next page.
    pub fn told(&self) -> Seen {
        let Some((page, chunk)) = self.page().zip(self.chunk()) else { return Seen::default() };
        let values = u64::from(page.values());
        let index = chunk.column_index().filter(|index| index.num_pages() == self.walked.data.len() as u64);
        let nulls = match &page.header.kind {
            _ if self.column.definition == 0 => Some(0),
            Kind::DataV2(data) => Some(u64::from(data.nulls)),
            _ => index.and_then(|index| u64::try_from(index.null_count(self.next)?).ok()),
        };
        let rows = match &page.header.kind {
            _ if self.column.is_flat() => Some(values),
            Kind::DataV2(data) => Some(u64::from(data.rows)),
            _ => index::rows_of(chunk, self.next, self.walked.data.len()),
        };
        let nulls = nulls.filter(|nulls| *nulls <= values);
        Seen { values, nulls, rows, nans: 0, ends: self.told_ends(self.next, nulls == Some(values)), copied: false }
    }

    /// What is told of the ends of the page that was opened last.
    pub fn told_open(&self) -> Ends {
        self.told_ends(self.next.saturating_sub(1), false)
    }

    fn told_ends(&self, page: usize, only_nulls: bool) -> Ends {
        let Some(chunk) = self.chunk() else { return Ends::Unknown };
        if only_nulls {
            return Ends::None;
        }
        let order = self.column.order;
        if order.is_doubtful() && !chunk.tells_order() {
            return Ends::Unknown;
        }
        let index = chunk.column_index().filter(|index| index.num_pages() == self.walked.data.len() as u64);
        let of_page = index.and_then(|index| index::page_bounds(index, page));
        let trusted = |statistics: &&Statistics| !statistics.is_min_max_deprecated();
        let of_chunk = chunk.meta().ok().and_then(|meta| meta.statistics()).filter(trusted);
        let of_chunk = of_chunk.map(|statistics| index::bounds(Some(statistics))).and_then(|(low, high)| low.zip(high));
        // Both hold: an index may be cut shorter than statistics, or hold a page closer.
        let holds = |(low, high): &(Vec<u8>, Vec<u8>)| order.compare(low, high).is_some_and(std::cmp::Ordering::is_le);
        let wide = |ends: Option<(Vec<u8>, Vec<u8>)>| ends.map(|(low, high)| order.widened(low, high)).filter(holds);
        match (wide(of_page), wide(of_chunk)) {
            (Some((low, high)), Some((least, most))) => Ends::Within(order.tighter(low, least, false), order.tighter(high, most, true)),
            (Some((low, high)), None) | (None, Some((low, high))) => Ends::Within(low, high),
            (None, None) => Ends::Unknown,
        }
    }

    /// Checks that every byte of the next page's header is one that was read.
    pub fn check_written(&self) -> Result<(), Trouble> {
        let (Some(page), Some(chunk)) = (self.page(), self.chunk()) else { return Ok(()) };
        // Levels that a column does not have are said to be in one encoding or the other.
        #[allow(deprecated)]
        let known = |encoding| matches!(encoding, Encoding::RLE | Encoding::BIT_PACKED);
        if let Kind::Data(data) = page.header.kind
            && !(known(data.definition) && known(data.repetition))
        {
            return Err(Trouble::wrong("a page header with levels in an encoding that they cannot have"));
        }
        let mut again = Vec::new();
        page.header.write(&mut again)?;
        if chunk.bytes.get(page.head.clone()) != Some(again.as_slice()) {
            return Err(Trouble::wrong("a page header that states what no reader is to read"));
        }
        Ok(())
    }

    /// Checks the counts in the header of the page that was opened last.
    pub fn check_counts(&self, seen: &Seen) -> Result<(), Trouble> {
        let page = self.next.checked_sub(1).and_then(|place| self.walked.data.get(place));
        match page.map(|page| &page.header.kind) {
            Some(Kind::DataV2(data)) if (Some(u64::from(data.nulls)), Some(u64::from(data.rows))) != (seen.nulls, seen.rows) => {
                Err(Trouble::wrong("a page header with other counts of NULLs or rows than its page"))
            }
            _ => Ok(()),
        }
    }
}
