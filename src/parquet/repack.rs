//! Chunks of one column joined into one without decoding their values.
//!
//! Pages are copied, compressed anew where the codec differs, or, where their
//! ids are of a dictionary that is merged into another, given new ids. Only
//! pages that are small, or hold rows that are left out, are put together anew,
//! levels and values: those of the latter in `PLAIN`, where they were neither that
//! nor ids.

use parquet::basic::{Compression, Encoding};
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::body::{self, Levels};
use super::chunk::{Assembly, Page, Pages, Part};
use super::codec::{Deflater, Inflater};
use super::dictionary::{self, Dictionary, Ids, Merged};
use super::ends::Order;
use super::fault::{Failure, Fault};
use super::gather::{self, Seen};
use super::header::{Header, Kind, is_dictionary};
use super::index::{self, Origin};
use super::pieces::Pieces;
use super::{hybrid, rooms, statistics};

mod put;

/// What the joined chunk is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Its codec.
    pub codec: Compression,
    /// Most bytes of a page, decompressed.
    pub page: usize,
    /// Most bytes of the chunk.
    pub chunk: usize,
    /// Pages of fewer rows, and of few bytes, are put together: they cost more in
    /// every scan than that costs once.
    pub small_rows: u64,
}

/// The joined chunk. Offsets count from its own beginning.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its bytes.
    pub bytes: Pieces,
    /// Its footer entry.
    pub meta: ColumnChunkMetaData,
    /// Its rows.
    pub rows: u64,
    /// Its column index, where every part has one.
    pub column_index: Option<ColumnIndexMetaData>,
    /// Its offset index.
    pub offset_index: OffsetIndexMetaData,
    /// Its bloom filter: joined pages have none.
    pub bloom_filter: Option<Sbbf>,
}

/// Bytes that a merged dictionary may always take.
const DICTIONARY_BYTES: usize = 1 << 20;
/// A page of more values than its share of a page's bytes is not opened: runs
/// make many of few bytes.
const OPENED_VALUE: usize = 32;

/// Joins the chunks of one column, in order, without their dead rows. All have
/// the same column.
///
/// Invariants checked:
/// * each part's pages hold the values and rows that its footer states, and the
///   checksums that they carry;
/// * no id leaves its dictionary where it gets a new meaning;
/// * pages of ids come before all others: some readers take a wrong dictionary
///   after a page without one. Ids behind one are replaced by their values;
/// * where rows are left out of a part, no page of it begins inside a row, and
///   its statistics are those of the rows that stay.
///
/// Errs `Damaged` when a part contradicts itself, `Unfit` when the parts can
/// only be joined by decoding them, or no row is left.
pub fn join(parts: &[Part], wish: &Wish) -> Result<Joined, Failure> {
    join_looking(parts, wish, false)
}

/// As [`join`]; with `look`, the least and the greatest value of a part that does
/// not tell them are looked for in its pages, where these can be opened.
///
/// Errs as [`join`].
pub fn join_looking(parts: &[Part], wish: &Wish, look: bool) -> Result<Joined, Failure> {
    let first = parts.first().ok_or_else(|| Fault::unfit("nothing to join"))?;
    let levels = Levels::of(first.meta.column_descr());
    let mut joining = Joining {
        levels,
        wish: *wish,
        inflater: Inflater::default(),
        deflater: Deflater::new(wish.codec)?,
        out: Assembly::new(wish.chunk),
        scratch: Vec::new(),
        values: rooms::take(rooms::PAGE),
        made: Vec::new(),
        rows: 0,
    };
    let mut sources = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        sources.push(joining.source(part, look).map_err(|fault| fault.of(place))?);
    }
    let merged = joining.merged(&sources)?;
    let pieces = put::pieces(&sources, merged.as_ref(), levels, wish.small_rows)?;
    if let Some(merged) = merged.as_ref().filter(|_| pieces.iter().any(put::Piece::is_by_id)) {
        joining.put_dictionary(merged, &sources)?;
    }
    for run in put::runs(&pieces) {
        joining.put_run(pieces.get(run).unwrap_or_default(), &sources, merged.as_ref())?;
    }
    joining.check_left_out(&sources)?;
    joining.end(&sources, first)
}

/// A part with its pages and, where pages use it, its dictionary.
struct Source<'a> {
    part: &'a Part,
    pages: Pages,
    dictionary: Option<Dictionary>,
    /// Whether its ends are those of the rows that stay, by looking at them.
    looked_at: bool,
}

impl Source<'_> {
    fn by_id(&self) -> impl Iterator<Item = &Page> {
        self.pages.data.iter().filter(|page| is_dictionary(page.data().1))
    }

    /// Whether it has pages that are not of ids.
    fn has_others(&self) -> bool {
        self.pages.data.iter().any(|page| page.data().0 > 0 && !is_dictionary(page.data().1))
    }

    /// Whether rows are left out.
    fn is_cut(&self) -> bool {
        !self.part.dead.is_empty()
    }

    fn column_index(&self) -> Option<&ColumnIndexMetaData> {
        index::fitting(self.part.meta.column_type(), self.part.column_index.as_ref(), self.pages.data.len())
    }

    /// Bytes of byte arrays page by page, where it tells.
    fn unencoded(&self, page: usize) -> Option<i64> {
        let pages = self.part.offset_index.as_ref()?.unencoded_byte_array_data_bytes()?;
        (pages.len() == self.pages.data.len() && !self.is_cut()).then(|| pages.get(page).copied()).flatten()
    }
}

/// What the rows of one page come from: pages of sources, and what was seen of
/// them where rows are left out.
type MadeOf = Vec<(usize, usize, Option<Seen>)>;

struct Joining {
    levels: Levels,
    wish: Wish,
    inflater: Inflater,
    deflater: Deflater,
    out: Assembly,
    scratch: Vec<u32>,
    values: Vec<u8>,
    made: Vec<MadeOf>,
    rows: u64,
}

impl Joining {
    fn source<'a>(&mut self, part: &'a Part, look: bool) -> Result<Source<'a>, Fault> {
        let pages = Pages::find(part, |page| self.count_rows(page, part))?;
        for page in pages.dictionary.iter().chain(&pages.data) {
            body::check(&page.header, page.body(&part.bytes))?;
            if page.header.uncompressed > self.wish.page {
                return Err(Fault::unfit(format_args!("a page of {} bytes", page.header.uncompressed)));
            }
        }
        if part.dead.last().is_some_and(|row| u64::from(*row) >= part.rows) {
            return Err(Fault::damaged("a row that is left out is past the end"));
        }
        if !part.dead.is_empty()
            && let Some(page) = pages.data.iter().find(|page| !gather::opens(&page.header, self.levels, part.meta.column_type()))
        {
            return Err(Fault::unfit(format_args!("rows are deleted, and a page is encoded as {}", page.data().1)));
        }
        let opens = || pages.data.iter().all(|page| gather::opens(&page.header, self.levels, part.meta.column_type()));
        let looked_at = !part.dead.is_empty() || (look && !statistics::tells_ends(&part.meta) && opens());
        let mut source = Source { part, pages, dictionary: None, looked_at };
        if source.by_id().next().is_some() {
            source.dictionary = Some(self.dictionary(&source)?);
        }
        Ok(source)
    }

    fn dictionary(&mut self, source: &Source<'_>) -> Result<Dictionary, Fault> {
        let page = source.pages.dictionary.as_ref().ok_or_else(|| Fault::damaged("pages of ids without a dictionary"))?;
        let Kind::Dictionary { values, .. } = page.header.kind else { return Err(Fault::damaged("a dictionary that is none")) };
        let mut bytes = rooms::take(page.header.uncompressed.min(DICTIONARY_BYTES));
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
            if source.has_others() {
                break;
            }
        }
        let most = front.iter().map(|dictionary| dictionary.bytes().len()).max().unwrap_or(0).max(DICTIONARY_BYTES);
        if self.shows_better_without(sources.get(..sources_in_front).unwrap_or_default(), most)? {
            return Ok(None);
        }
        let Some(merged) = dictionary::merge(&front, most).filter(|merged| merged.values > 0) else { return Ok(None) };
        let merged = spread(merged, sources);
        let in_front = sources.get(..sources_in_front).unwrap_or_default();
        if sources.len() > 1 && self.better_without(&merged, in_front)? {
            return Ok(None);
        }
        Ok(Some(merged))
    }

    /// Whether the first few of many dictionaries share hardly a value, and are better
    /// without: then so are all, and need not be merged to see it.
    fn shows_better_without(&mut self, sources: &[Source<'_>], most: usize) -> Result<bool, Failure> {
        let few = sources.get(..sources.len().div_ceil(SHOWING)).unwrap_or_default();
        let dictionaries: Vec<&Dictionary> = few.iter().filter_map(|source| source.dictionary.as_ref()).collect();
        let bytes: usize = dictionaries.iter().map(|dictionary| dictionary.bytes().len()).sum();
        if dictionaries.len() < 2 || bytes < SHOWING_BYTES {
            return Ok(false);
        }
        match dictionary::merge(&dictionaries, most).filter(|merged| merged.body.len() * 10 > bytes * 9) {
            Some(merged) => self.better_without(&spread(merged, few), few),
            None => Ok(false),
        }
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
        let mut by_id = Vec::new();
        put::translated(&opened, source, merged, ids, &mut by_id).map_err(|fault| fault.of(*place))?;
        let mut size = |bytes: &[u8]| -> Result<u64, Fault> {
            let mut out = Vec::new();
            self.deflater.deflate(bytes, &mut out)?;
            Ok(out.len() as u64)
        };
        let (plain, by_id, dictionary) = (size(&values)?, size(&by_id)?, size(&merged.body)?);
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
        Ok(self.push(&header, body, 0)?)
    }

    /// Appends a new page and keeps its room for the next.
    fn push(&mut self, header: &Header, body: Vec<u8>, rows: u64) -> Result<(), Fault> {
        self.out.push(header, &body, rows)?;
        self.deflater.room = body;
        Ok(())
    }

    fn open(&mut self, page: &Page, source: &Source<'_>) -> Result<body::Body, Fault> {
        let opened = self.open_any(page, source.part)?;
        if u64::from(opened.rows) == page.rows {
            return Ok(opened);
        }
        Err(Fault::damaged(format_args!("{} rows begin in a page of {}", opened.rows, page.rows)))
    }

    fn open_any(&mut self, page: &Page, part: &Part) -> Result<body::Body, Fault> {
        let (values, bytes) = (page.data().0, page.header.uncompressed);
        if values as usize > self.wish.page / OPENED_VALUE {
            return Err(Fault::unfit(format_args!("a page of {values} values")));
        }
        if bytes > self.wish.page {
            return Err(Fault::unfit(format_args!("a page of {bytes} bytes")));
        }
        body::open(&page.header, page.body(&part.bytes), self.levels, part.meta.compression(), &mut self.inflater)
    }

    /// The rows of a page that does not tell them.
    fn count_rows(&mut self, page: &Page, part: &Part) -> Result<u64, Fault> {
        let opened = self.open_any(page, part)?;
        if page.data().0 > 0 && self.begins_inside(&opened)? {
            return Err(Fault::unfit("a page begins inside a row"));
        }
        let rows = opened.rows.into();
        self.inflater.room = opened.into_room();
        Ok(rows)
    }

    /// Whether the first value of a page belongs to a row of the page before.
    fn begins_inside(&self, opened: &body::Body) -> Result<bool, Fault> {
        let levels = opened.repetition();
        Ok(!levels.is_empty() && hybrid::count(levels, hybrid::width(self.levels.repetition), 1, 0)? == 0)
    }

    fn end(mut self, sources: &[Source<'_>], first: &Part) -> Result<Joined, Failure> {
        self.unencoded(sources);
        let column = first.meta.column_descr();
        let metas: Vec<ColumnChunkMetaData> =
            sources.iter().enumerate().map(|(place, source)| self.told(place, source)).collect::<Result<_, _>>()?;
        let chunks: Vec<&ColumnChunkMetaData> = metas.iter().collect();
        rooms::give(std::mem::take(&mut self.values));
        let (bytes, meta, offset_index) = self.out.end(&first.meta, self.wish.codec)?;
        let unencoded = statistics::total(chunks.iter().map(|c| c.unencoded_byte_array_data_bytes().and_then(|n| u64::try_from(n).ok())));
        let mut builder = meta
            .into_builder()
            .set_unencoded_byte_array_data_bytes(unencoded.and_then(|bytes| i64::try_from(bytes).ok()))
            .set_repetition_level_histogram(statistics::histogram(chunks.iter().map(|c| c.repetition_level_histogram())))
            .set_definition_level_histogram(statistics::histogram(chunks.iter().map(|c| c.definition_level_histogram())));
        if let Some(folded) = statistics::fold(column, &chunks) {
            builder = builder.set_statistics(folded);
        }
        let pages: Vec<Vec<Origin<'_>>> = self.made.iter().map(|made| made.iter().map(|one| origin(sources, one)).collect()).collect();
        let order = match sources {
            [only] if !only.looked_at => only.column_index().and_then(ColumnIndexMetaData::get_boundary_order),
            _ => None,
        };
        let column_index = index::concat(column, &pages, order);
        let meta = builder.build().map_err(Fault::unfit)?;
        Ok(Joined { bytes, meta, rows: self.rows, column_index, offset_index, bloom_filter: None })
    }

    /// What the footer would say of a source's rows that stay.
    fn told(&self, place: usize, source: &Source<'_>) -> Result<ColumnChunkMetaData, Fault> {
        if !source.looked_at {
            return Ok(source.part.meta.clone());
        }
        let column = source.part.meta.column_descr_ptr();
        let (order, mut whole) = (Order::of(&column), Seen::default());
        let seen = self.made.iter().flatten().filter(|(source, ..)| *source == place).filter_map(|(.., seen)| seen.as_ref());
        for seen in seen {
            (whole.values, whole.nulls) = (whole.values + seen.values, whole.nulls + seen.nulls);
            whole.ends.fold(order, &seen.ends);
        }
        let statistics = whole.ends.statistics(&column, whole.nulls);
        let values = i64::try_from(whole.values).map_err(Fault::unfit)?;
        ColumnChunkMetaData::builder(column).set_num_values(values).set_statistics(statistics).build().map_err(Fault::unfit)
    }

    /// Tells the bytes of byte arrays page by page, where all parts do.
    fn unencoded(&mut self, sources: &[Source<'_>]) {
        let of_page =
            |made: &MadeOf| made.iter().try_fold(0i64, |sum, (source, page, _)| sum.checked_add(sources.get(*source)?.unencoded(*page)?));
        let all: Option<Vec<i64>> = self.made.iter().map(of_page).collect();
        all.into_iter().flatten().for_each(|bytes| self.out.unencoded(bytes));
    }
}

fn origin<'a>(sources: &'a [Source<'_>], (source, page, seen): &'a (usize, usize, Option<Seen>)) -> Origin<'a> {
    match seen {
        Some(seen) => Origin::Seen(seen),
        None => {
            let source = sources.get(*source);
            let values = source.and_then(|source| source.pages.data.get(*page)).map_or(0, |page| page.data().0.into());
            Origin::Entry(source.and_then(Source::column_index), *page, values)
        }
    }
}

/// A dictionary of more than one value in so many may not pay.
const DISTINCT_SHARE: u64 = 20;
/// One dictionary in so many is looked at to see what they share, where these take so
/// many bytes: smaller ones are merged as soon.
const SHOWING: usize = 8;
const SHOWING_BYTES: usize = 64 << 10;
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

#[cfg(test)]
pub(in crate::parquet) mod tests;
