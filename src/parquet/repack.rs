//! Chunks of one column joined into one without decoding their values.
//!
//! Pages are copied, compressed anew where the codec differs, or, where their
//! ids are of a dictionary that is merged into another, given new ids. Levels
//! are never touched.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::body::{self, Levels};
use super::chunk::{Assembly, Page, Pages, Part};
use super::codec::{Deflater, Inflater};
use super::dictionary::{self, Dictionary, Ids, Merged};
use super::fault::{Failure, Fault};
use super::header::{Header, Kind, is_dictionary};
use super::{hybrid, index, statistics};

/// What the joined chunk is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Its codec.
    pub codec: Compression,
    /// Most bytes of a page, decompressed.
    pub page: usize,
    /// Most bytes of the chunk.
    pub chunk: usize,
}

/// The joined chunk. Offsets count from its own beginning.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its footer entry.
    pub meta: ColumnChunkMetaData,
    /// Its column index, where every part has one.
    pub column_index: Option<ColumnIndexMetaData>,
    /// Its offset index.
    pub offset_index: OffsetIndexMetaData,
}

/// Bytes that a merged dictionary may always take.
const DICTIONARY_BYTES: usize = 1 << 20;

/// Joins the chunks of one column, in order. All have the same column.
///
/// Invariants checked:
/// * each part's pages hold the values and rows that its footer states, and the
///   checksums that they carry;
/// * no id leaves its dictionary where it gets a new meaning;
/// * pages of ids come before all others: some readers take a wrong dictionary
///   after a page without one. Ids behind one are replaced by their values.
///
/// Errs `Damaged` when a part contradicts itself, `Unfit` when the parts can
/// only be joined by decoding them; a single part is fit whenever its pages are.
pub fn join(parts: &[Part], wish: &Wish) -> Result<Joined, Failure> {
    let first = parts.first().ok_or_else(|| Fault::unfit("nothing to join"))?;
    let levels = Levels::of(first.meta.column_descr());
    let mut joining = Joining {
        levels,
        wish: *wish,
        inflater: Inflater::default(),
        deflater: Deflater::new(wish.codec)?,
        out: Assembly::new(wish.chunk),
        scratch: Vec::new(),
    };
    let mut sources = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        sources.push(joining.source(part).map_err(|fault| fault.of(place))?);
    }
    let merged = joining.merged(&sources)?;
    if let Some(merged) = &merged {
        joining.put_dictionary(merged, &sources)?;
    }
    let mut prefix = merged.is_some();
    for (place, source) in sources.iter().enumerate() {
        let ids = merged.as_ref().and_then(|merged| merged.ids.get(place));
        joining.put_pages(source, merged.as_ref().zip(ids), &mut prefix).map_err(|fault| fault.of(place))?;
    }
    joining.end(&sources, first)
}

/// A part with its pages and, where pages use it, its dictionary.
struct Source<'a> {
    part: &'a Part,
    pages: Pages,
    dictionary: Option<Dictionary>,
}

impl Source<'_> {
    fn by_id(&self) -> impl Iterator<Item = &Page> {
        self.pages.data.iter().filter(|page| is_dictionary(page.data().1))
    }
}

struct Joining {
    levels: Levels,
    wish: Wish,
    inflater: Inflater,
    deflater: Deflater,
    out: Assembly,
    scratch: Vec<u32>,
}

impl Joining {
    fn source<'a>(&mut self, part: &'a Part) -> Result<Source<'a>, Fault> {
        let pages = Pages::find(part)?;
        for page in pages.dictionary.iter().chain(&pages.data) {
            body::check(&page.header, page.body(&part.bytes))?;
            if page.header.uncompressed > self.wish.page {
                return Err(Fault::unfit(format_args!("a page of {} bytes", page.header.uncompressed)));
            }
        }
        let mut source = Source { part, pages, dictionary: None };
        if source.by_id().next().is_some() {
            source.dictionary = Some(self.dictionary(&source)?);
        }
        Ok(source)
    }

    fn dictionary(&mut self, source: &Source<'_>) -> Result<Dictionary, Fault> {
        let page = source.pages.dictionary.as_ref().ok_or_else(|| Fault::damaged("pages of ids without a dictionary"))?;
        let Kind::Dictionary { values, .. } = page.header.kind else { return Err(Fault::damaged("a dictionary that is none")) };
        let mut bytes = Vec::new();
        let meta = &source.part.meta;
        self.inflater.inflate(meta.compression(), page.body(&source.part.bytes), page.header.uncompressed, &mut bytes)?;
        Dictionary::new(bytes, values, dictionary::value_bytes(meta.column_descr())?)
    }

    /// The merged dictionary of the pages of ids in front, one entry of `ids` a
    /// source; `None` when there are none or they are better without.
    fn merged(&mut self, sources: &[Source<'_>]) -> Result<Option<Merged>, Failure> {
        let (mut front, mut sources_in_front) = (Vec::new(), 0);
        for source in sources {
            front.extend(&source.dictionary);
            sources_in_front += 1;
            if source.pages.data.iter().any(|page| page.data().0 > 0 && !is_dictionary(page.data().1)) {
                break;
            }
        }
        let most = front.iter().map(|dictionary| dictionary.bytes().len()).max().unwrap_or(0).max(DICTIONARY_BYTES);
        let Some(merged) = dictionary::merge(&front, most).filter(|merged| merged.values > 0) else { return Ok(None) };
        let merged = spread(merged, sources);
        let in_front = sources.get(..sources_in_front).unwrap_or_default();
        if sources.len() > 1 && self.better_without(&merged, in_front)? {
            return Ok(None);
        }
        Ok(Some(merged))
    }

    /// Whether pages of values would be smaller than pages of ids with their
    /// dictionary, by the page in the middle. Dictionaries that pay at once are
    /// not looked at.
    fn better_without(&mut self, merged: &Merged, sources: &[Source<'_>]) -> Result<bool, Failure> {
        let pages: Vec<(usize, &Page)> =
            sources.iter().enumerate().flat_map(|(place, s)| s.by_id().map(move |page| (place, page))).collect();
        let all: u64 = pages.iter().map(|(_, page)| u64::from(page.data().0)).sum();
        if merged.values <= FEW_VALUES || u64::from(merged.values) * DISTINCT_SHARE < all {
            return Ok(false);
        }
        let Some((place, page)) = pages.get(pages.len() / 2) else { return Ok(false) };
        let (Some(source), Some(ids)) = (sources.get(*place), merged.ids.get(*place)) else { return Ok(false) };
        let opened = self.open(page, source).map_err(|fault| fault.of(*place))?;
        let mut values = Vec::new();
        match self.look_up(&opened, source, &mut values) {
            Ok(()) => {}
            Err(Fault::Unfit(_)) => return Ok(false),
            Err(fault) => return Err(fault.of(*place)),
        }
        let ids = translated(&opened, source, merged, ids).map_err(|fault| fault.of(*place))?;
        let mut size = |bytes: &[u8]| -> Result<u64, Fault> {
            let mut out = Vec::new();
            self.deflater.deflate(bytes, &mut out)?;
            Ok(out.len() as u64)
        };
        let (plain, by_id, dictionary) = (size(&values)?, size(&ids)?, size(&merged.body)?);
        let scaled = |bytes: u64| u128::from(bytes) * u128::from(all) / u128::from(page.data().0.max(1));
        Ok(scaled(plain) < scaled(by_id) + u128::from(dictionary))
    }

    fn put_dictionary(&mut self, merged: &Merged, sources: &[Source<'_>]) -> Result<(), Failure> {
        let kind = sources.iter().filter(|s| s.dictionary.is_some()).find_map(|s| s.pages.dictionary.as_ref().map(|p| &p.header.kind));
        let encoding = match kind {
            Some(Kind::Dictionary { encoding, .. }) => *encoding,
            _ => Encoding::PLAIN,
        };
        let kind = Kind::Dictionary { values: merged.values, encoding };
        let (header, body) = body::close(&kind, &[], &merged.body, &mut self.deflater)?;
        Ok(self.out.push(&header, &body, 0)?)
    }

    fn put_pages(&mut self, source: &Source<'_>, merged: Option<(&Merged, &Ids)>, prefix: &mut bool) -> Result<(), Fault> {
        for page in source.pages.data.iter().filter(|page| page.data().0 > 0) {
            if !is_dictionary(page.data().1) {
                *prefix = false;
                self.carry(page, source)?;
            } else {
                match merged.filter(|_| *prefix) {
                    Some((merged, ids)) => self.put_ids(page, source, merged, ids)?,
                    None => self.put_values(page, source)?,
                }
            }
        }
        Ok(())
    }

    /// The page as it is, but for its codec.
    fn carry(&mut self, page: &Page, source: &Source<'_>) -> Result<(), Fault> {
        let (bytes, codec) = (&source.part.bytes, source.part.meta.compression());
        match body::transcode(&page.header, page.body(bytes), codec, &mut self.inflater, &mut self.deflater)? {
            Some((header, body)) => self.out.push(&header, &body, page.rows),
            None => self.out.copy(page, page.whole(bytes)),
        }
    }

    /// The page with the ids of the merged dictionary.
    fn put_ids(&mut self, page: &Page, source: &Source<'_>, merged: &Merged, ids: &Ids) -> Result<(), Fault> {
        let entries = source.dictionary.as_ref().map_or(0, Dictionary::len);
        // An id past the end stays past the end when nothing was added.
        if *ids == Ids::Same && entries as u64 == u64::from(merged.values) {
            return self.carry(page, source);
        }
        let opened = self.open(page, source)?;
        if *ids == Ids::Same || opened.present == 0 {
            let (width, stream) = ids_of(&opened)?;
            hybrid::check(stream, width, opened.present, entries)?;
            return self.carry(page, source);
        }
        let values = translated(&opened, source, merged, ids)?;
        self.put(&page.header.kind, page, &opened, &values)
    }

    /// The page with values instead of ids.
    fn put_values(&mut self, page: &Page, source: &Source<'_>) -> Result<(), Fault> {
        let opened = self.open(page, source)?;
        let mut values = Vec::new();
        self.look_up(&opened, source, &mut values)?;
        self.put(&page.header.kind.encoded(Encoding::PLAIN), page, &opened, &values)
    }

    fn put(&mut self, kind: &Kind, page: &Page, opened: &body::Body, values: &[u8]) -> Result<(), Fault> {
        let (header, body): (Header, Vec<u8>) = body::close(kind, opened.levels(), values, &mut self.deflater)?;
        self.out.push(&header, &body, page.rows)
    }

    fn open(&mut self, page: &Page, source: &Source<'_>) -> Result<body::Body, Fault> {
        let codec = source.part.meta.compression();
        let opened = body::open(&page.header, page.body(&source.part.bytes), self.levels, codec, &mut self.inflater)?;
        if u64::from(opened.rows) == page.rows {
            return Ok(opened);
        }
        Err(Fault::damaged(format_args!("{} rows begin in a page of {}", opened.rows, page.rows)))
    }

    fn look_up(&mut self, opened: &body::Body, source: &Source<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let dictionary = source.dictionary.as_ref().ok_or_else(|| Fault::damaged("pages of ids without a dictionary"))?;
        let (width, stream) = ids_of(opened)?;
        self.scratch.clear();
        hybrid::decode(stream, width, opened.present, &mut self.scratch)?;
        dictionary.look_up(&self.scratch, self.wish.page, out)
    }

    fn end(mut self, sources: &[Source<'_>], first: &Part) -> Result<Joined, Failure> {
        self.unencoded(sources);
        let chunks: Vec<&ColumnChunkMetaData> = sources.iter().map(|source| &source.part.meta).collect();
        let (bytes, meta, offset_index) = self.out.end(&first.meta, self.wish.codec)?;
        let unencoded = statistics::total(chunks.iter().map(|c| c.unencoded_byte_array_data_bytes().and_then(|n| u64::try_from(n).ok())));
        let mut builder = meta
            .into_builder()
            .set_unencoded_byte_array_data_bytes(unencoded.and_then(|bytes| i64::try_from(bytes).ok()))
            .set_repetition_level_histogram(statistics::histogram(chunks.iter().map(|c| c.repetition_level_histogram())))
            .set_definition_level_histogram(statistics::histogram(chunks.iter().map(|c| c.definition_level_histogram())));
        if let Some(folded) = statistics::fold(first.meta.column_descr(), &chunks) {
            builder = builder.set_statistics(folded);
        }
        let parts: Vec<index::Part<'_>> = sources.iter().map(index_part).collect();
        let column_index = index::concat(first.meta.column_type(), &parts);
        Ok(Joined { bytes, meta: builder.build().map_err(Fault::unfit)?, column_index, offset_index })
    }

    /// Tells the bytes of byte arrays page by page, where all parts do.
    fn unencoded(&mut self, sources: &[Source<'_>]) {
        let told = |source: &Source<'_>| {
            let pages = source.part.offset_index.as_ref()?.unencoded_byte_array_data_bytes()?;
            (pages.len() == source.pages.data.len()).then(|| kept(source).filter_map(|place| pages.get(place).copied()).collect::<Vec<_>>())
        };
        let all: Option<Vec<Vec<i64>>> = sources.iter().map(told).collect();
        all.into_iter().flatten().flatten().for_each(|bytes| self.out.unencoded(bytes));
    }
}

/// A dictionary of more than one value in so many may not pay.
const DISTINCT_SHARE: u64 = 20;
/// A dictionary of so few values always pays.
const FEW_VALUES: u32 = 1024;

/// Gives every source its entry of `ids`: those behind the merged ones, and
/// those without a dictionary, have no pages that need one.
fn spread(merged: Merged, sources: &[Source<'_>]) -> Merged {
    let mut ids = merged.ids.into_iter();
    let spread = sources.iter().map(|source| match source.dictionary {
        Some(_) => ids.next().unwrap_or(Ids::Mapped(Vec::new())),
        None => Ids::Mapped(Vec::new()),
    });
    let ids = spread.collect();
    Merged { ids, ..merged }
}

/// The width and the stream of a page of ids.
fn ids_of(opened: &body::Body) -> Result<(u32, &[u8]), Fault> {
    match opened.values().split_first() {
        Some((width, stream)) => Ok((u32::from(*width), stream)),
        None if opened.present == 0 => Ok((0, &[])),
        None => Err(Fault::damaged("a page of ids without any")),
    }
}

fn translated(opened: &body::Body, source: &Source<'_>, merged: &Merged, ids: &Ids) -> Result<Vec<u8>, Fault> {
    let (width, stream) = ids_of(opened)?;
    let to = merged.width();
    let mut out = vec![u8::try_from(to).unwrap_or(u8::MAX)];
    match ids {
        Ids::Mapped(table) => hybrid::translate(stream, width, opened.present, table, to, &mut out)?,
        Ids::Same => {
            hybrid::check(stream, width, opened.present, source.dictionary.as_ref().map_or(0, Dictionary::len))?;
            return Ok(opened.values().to_vec());
        }
    }
    Ok(out)
}

/// Places of the data pages that are kept: those with values.
fn kept<'a>(source: &'a Source<'_>) -> impl Iterator<Item = usize> + 'a {
    source.pages.data.iter().enumerate().filter(|(_, page)| page.data().0 > 0).map(|(place, _)| place)
}

fn index_part<'a>(source: &'a Source<'_>) -> index::Part<'a> {
    index::Part { index: source.part.column_index.as_ref(), pages: source.pages.data.len(), kept: kept(source).collect() }
}

#[cfg(test)]
mod tests;
