//! Data pages put into the joined chunk: copied, with other ids, or together.

use std::ops::Range;

use parquet::basic::Encoding;

use super::super::body::{self, Body, Levels};
use super::super::chunk::Page;
use super::super::delta;
use super::super::dictionary::{Dictionary, Ids, Merged, value_bytes};
use super::super::fault::{Failure, Fault};
use super::super::gather::{self, Gather, Seen, Taken, ids_of};
use super::super::header::{Kind, is_dictionary};
use super::super::hybrid;
use super::{Joining, Source};

/// A page of more bytes is not small.
const SMALL_BYTES: u64 = 64 << 10;
/// Rows of a page put together; what writers make them of.
const FULL_ROWS: u64 = 20_000;
/// Bytes of a page put together.
const FULL_BYTES: u64 = 1 << 20;

/// What a page's values become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// They stay as they are.
    Whole,
    /// Ids of the merged dictionary.
    Ids,
    /// Values in `PLAIN`.
    Values,
}

/// A data page that goes into the joined chunk.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    source: usize,
    page: usize,
    form: Form,
    second_version: bool,
    /// The row that begins first in it.
    first: u64,
    /// Whether some of its rows are left out.
    cut: bool,
    /// Rows that stay.
    rows: u64,
    /// Bytes that they take, decompressed.
    bytes: u64,
    small: bool,
}

impl Piece {
    /// Whether its values become ids.
    pub fn is_by_id(&self) -> bool {
        self.form == Form::Ids
    }

    fn joins(&self, next: &Self) -> bool {
        self.small && next.small && self.form == next.form && self.second_version == next.second_version
    }
}

/// The pages that have values in rows that stay, in order.
///
/// Errs `Unfit` when a page that must be cut cannot be.
pub fn pieces(sources: &[Source<'_>], merged: Option<&Merged>, levels: Levels, small_rows: u64) -> Result<Vec<Piece>, Failure> {
    let (mut pieces, mut prefix) = (Vec::new(), merged.is_some());
    for (place, source) in sources.iter().enumerate() {
        let mut next = 0u64;
        for (number, page) in source.pages.data.iter().enumerate() {
            let first = next;
            next += page.rows;
            let dead = dead(source, first, page.rows).len() as u64;
            if source.is_cut() && page.rows == 0 && page.data().0 > 0 {
                return Err(Fault::unfit("a page begins inside a row, and rows are deleted").of(place));
            }
            if page.data().0 == 0 || (dead > 0 && dead == page.rows) {
                continue;
            }
            prefix &= is_dictionary(page.data().1);
            // a page in another encoding is decoded only to be cut
            let opened = dead > 0 || gather::fits(&page.header, levels);
            let form = match (is_dictionary(page.data().1), opened) {
                (true, _) if prefix => Form::Ids,
                (true, _) | (false, true) => Form::Values,
                (false, false) => Form::Whole,
            };
            let rows = page.rows - dead;
            let bytes = bytes(page, source, form).saturating_mul(rows) / page.rows.max(1);
            let small = form != Form::Whole && opened && rows < small_rows && bytes < SMALL_BYTES;
            let second_version = matches!(page.header.kind, Kind::DataV2(_));
            pieces.push(Piece { source: place, page: number, form, second_version, first, cut: dead > 0, rows, bytes, small });
        }
        // The dictionaries of later parts are not merged.
        prefix &= !source.has_others();
    }
    Ok(pieces)
}

/// Bytes of a page's values in their form, as far as can be told.
fn bytes(page: &Page, source: &Source<'_>, form: Form) -> u64 {
    let known = page.header.uncompressed as u64;
    match &source.dictionary {
        Some(dictionary) if form == Form::Values && is_dictionary(page.data().1) => {
            known.max(u64::from(page.data().0).saturating_mul(dictionary.bytes().len() as u64 / (dictionary.len() as u64).max(1)))
        }
        _ if form == Form::Values && !gather::is_plain(page.data().1) => {
            let width = value_bytes(source.part.meta.column_descr()).ok().flatten().unwrap_or(1);
            known.max(u64::from(page.data().0).saturating_mul(width as u64))
        }
        _ => known,
    }
}

/// Runs of pieces that become one page each.
pub fn runs(pieces: &[Piece]) -> Vec<Range<usize>> {
    let (mut runs, mut start, mut rows, mut bytes) = (Vec::new(), 0, 0u64, 0u64);
    for (place, piece) in pieces.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| pieces.get(before));
        let full = rows + piece.rows > FULL_ROWS || bytes + piece.bytes > FULL_BYTES;
        if let Some(before) = before
            && (full || !before.joins(piece))
        {
            runs.push(start..place);
            (start, rows, bytes) = (place, 0, 0);
        }
        (rows, bytes) = (rows + piece.rows, bytes + piece.bytes);
    }
    if start < pieces.len() {
        runs.push(start..pieces.len());
    }
    runs
}

/// The dead rows among `rows` rows from `first` on.
fn dead<'a>(source: &'a Source<'_>, first: u64, rows: u64) -> &'a [u32] {
    let all = &source.part.dead;
    let place = |row: u64| all.partition_point(|dead| u64::from(*dead) < row);
    all.get(place(first)..place(first.saturating_add(rows))).unwrap_or_default()
}

fn part<'a, 'b>(sources: &'a [Source<'b>], piece: &Piece) -> Result<&'a Source<'b>, Fault> {
    sources.get(piece.source).ok_or_else(|| Fault::damaged("a part is missing"))
}

fn page<'a>(source: &'a Source<'_>, piece: &Piece) -> Result<&'a Page, Fault> {
    source.pages.data.get(piece.page).ok_or_else(|| Fault::damaged("a page is missing"))
}

impl Joining {
    /// Puts pieces into one page; a piece alone of which all rows stay is kept
    /// as it is where it can be.
    pub fn put_run(&mut self, run: &[Piece], sources: &[Source<'_>], merged: Option<&Merged>) -> Result<(), Failure> {
        let rows: u64 = run.iter().map(|piece| piece.rows).sum();
        self.rows = self.rows.saturating_add(rows);
        match run {
            [piece] if !piece.cut => {
                let source = part(sources, piece)?;
                let seen = self.put_piece(piece, source, merged).map_err(|fault| fault.of(piece.source))?;
                self.made.push(vec![(piece.source, piece.page, seen)]);
                Ok(())
            }
            run => self.put_together(run, sources, merged),
        }
    }

    fn put_piece(&mut self, piece: &Piece, source: &Source<'_>, merged: Option<&Merged>) -> Result<Option<Seen>, Fault> {
        let page = page(source, piece)?;
        let ids = merged.and_then(|merged| Some((merged, merged.ids.get(piece.source)?)));
        match (piece.form, ids) {
            (Form::Ids, Some((merged, ids))) => self.put_ids(page, source, merged, ids)?,
            (Form::Values, _) if is_dictionary(page.data().1) => self.put_values(page, source)?,
            _ => self.carry(page, source)?,
        }
        if !source.looked_at {
            return Ok(None);
        }
        let mut apart = Gather::new(source.part.meta.column_descr(), is_dictionary(page.data().1), self.wish.page)?;
        self.take(piece, source, Some(&Ids::Same), &mut apart).map(Some)
    }

    fn put_together(&mut self, run: &[Piece], sources: &[Source<'_>], merged: Option<&Merged>) -> Result<(), Failure> {
        let first = run.first().ok_or_else(|| Fault::unfit("a page of no rows"))?;
        let source = part(sources, first)?;
        let kind = &page(source, first)?.header.kind;
        let mut gather = Gather::new(source.part.meta.column_descr(), first.is_by_id(), self.wish.page)?;
        let mut made = Vec::with_capacity(run.len());
        for piece in run {
            let source = part(sources, piece)?;
            let ids = merged.and_then(|merged| merged.ids.get(piece.source));
            let seen = self.take(piece, source, ids, &mut gather).map_err(|fault| fault.of(piece.source))?;
            made.push((piece.source, piece.page, source.looked_at.then_some(seen)));
        }
        let rows: u64 = run.iter().map(|piece| piece.rows).sum();
        if gather.rows() != rows {
            return Err(Fault::damaged(format_args!("{} rows in pages of {rows}", gather.rows())).of(first.source));
        }
        let (header, body) = gather.close(kind, merged.map_or(1, Merged::width), &mut self.deflater)?;
        self.push(&header, body, rows)?;
        self.made.push(made);
        Ok(())
    }

    /// Adds the rows of a piece that stay.
    fn take(&mut self, piece: &Piece, source: &Source<'_>, ids: Option<&Ids>, gather: &mut Gather) -> Result<Seen, Fault> {
        let (first, page) = (piece.first, page(source, piece)?);
        let mut opened = self.open(page, source)?;
        if !gather::is_plain(page.data().1) {
            let column = source.part.meta.column_descr();
            let values = delta::plain(page.data().1, opened.values(), opened.present, column, self.wish.page)?;
            opened.set_values(&values);
        }
        let dead: Vec<u32> = dead(source, first, page.rows).iter().filter_map(|row| u32::try_from(u64::from(*row) - first).ok()).collect();
        let taken = Taken { body: &opened, kind: &page.header.kind, dictionary: source.dictionary.as_ref(), ids, dead: &dead };
        let seen = gather.add(&taken, source.looked_at, source.is_cut());
        self.inflater.room = opened.into_room();
        seen
    }

    /// Opens the pages of which nothing stays, where their rows are told only by
    /// an index.
    pub fn check_left_out(&mut self, sources: &[Source<'_>]) -> Result<(), Failure> {
        if self.levels.repetition == 0 {
            return Ok(());
        }
        for (place, source) in sources.iter().enumerate().filter(|(_, source)| source.is_cut()) {
            let mut first = 0;
            for page in &source.pages.data {
                if page.rows > 0 && dead(source, first, page.rows).len() as u64 == page.rows {
                    let opened = self.open(page, source).map_err(|fault| fault.of(place))?;
                    if self.begins_inside(&opened).map_err(|fault| fault.of(place))? {
                        return Err(Fault::unfit("a page begins inside a row, and rows are deleted").of(place));
                    }
                }
                first += page.rows;
            }
        }
        Ok(())
    }

    /// The page as it is, but for its codec.
    fn carry(&mut self, page: &Page, source: &Source<'_>) -> Result<(), Fault> {
        let (bytes, codec) = (&source.part.bytes, source.part.meta.compression());
        match body::transcode(&page.header, page.body(bytes), codec, &mut self.inflater, &mut self.deflater)? {
            Some((header, body)) => self.push(&header, body, page.rows),
            None => self.out.copy(page, bytes),
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
            self.inflater.room = opened.into_room();
            return self.carry(page, source);
        }
        let mut values = std::mem::take(&mut self.values);
        translated(&opened, source, merged, ids, &mut values)?;
        self.put(&page.header.kind, page, opened, values)
    }

    /// The page with values instead of ids.
    fn put_values(&mut self, page: &Page, source: &Source<'_>) -> Result<(), Fault> {
        let opened = self.open(page, source)?;
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        self.look_up(&opened, source, &mut values)?;
        self.put(&page.header.kind.encoded(Encoding::PLAIN), page, opened, values)
    }

    fn put(&mut self, kind: &Kind, page: &Page, opened: Body, values: Vec<u8>) -> Result<(), Fault> {
        let (header, body) = body::close(kind, opened.levels(), &values, &mut self.deflater)?;
        (self.values, self.inflater.room) = (values, opened.into_room());
        self.push(&header, body, page.rows)
    }

    /// Appends the values that a page's ids stand for.
    pub fn look_up(&mut self, opened: &Body, source: &Source<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let dictionary = source.dictionary.as_ref().ok_or_else(|| Fault::damaged("pages of ids without a dictionary"))?;
        let (width, stream) = ids_of(opened)?;
        self.scratch.clear();
        hybrid::decode(stream, width, opened.present, &mut self.scratch)?;
        dictionary.look_up(&self.scratch, self.wish.page, out)
    }
}

/// The ids of a page as those of the merged dictionary, behind their width; in
/// place of what `out` holds.
pub fn translated(opened: &Body, source: &Source<'_>, merged: &Merged, ids: &Ids, out: &mut Vec<u8>) -> Result<(), Fault> {
    let (width, stream) = ids_of(opened)?;
    let to = merged.width();
    out.clear();
    match ids {
        Ids::Mapped(table) => {
            out.push(u8::try_from(to).unwrap_or(u8::MAX));
            hybrid::translate(stream, width, opened.present, table, to, out)
        }
        Ids::Same => {
            hybrid::check(stream, width, opened.present, source.dictionary.as_ref().map_or(0, Dictionary::len))?;
            out.extend_from_slice(opened.values());
            Ok(())
        }
    }
}
