//! Chunks of one column compared with others, page by page: whether they hold
//! the same levels and values in the same order, whatever their encodings, page
//! borders and dictionaries.
//!
//! Where pages stand at the same place and their bytes are equal, they are not
//! opened, unless their ids are of dictionaries that differ. All else is
//! decompressed, and values are compared one by one. Besides page headers, the
//! codecs' libraries and memory that is used again nothing is shared with what joins
//! pages.

mod decode;
mod ends;
mod index;
mod open;
mod side;
mod stream;
mod values;
mod visit;
mod walk;

#[cfg(test)]
mod tests;

pub use ends::{Ends, Order, float, signed};
pub use visit::visit;
pub use walk::Chunk;
use walk::Page;

use self::index::Seen;
use self::open::Open;
use self::side::Side;
use self::values::{Look, Pairs};
use super::fault::Fault;
use super::header::{Kind, is_dictionary};

/// Why chunks are not found equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It contradicts the format, itself, or the other side.
    Wrong(String),
    /// It cannot be compared by pages.
    Unfit(String),
    /// It would take more memory than is allowed.
    TooLarge(String),
}

impl Trouble {
    fn wrong(what: impl std::fmt::Display) -> Self {
        Self::Wrong(what.to_string())
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damaged(what) => Self::Wrong(what),
            Fault::Unfit(what) => Self::Unfit(what),
        }
    }
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// What is to be kept.
    Left,
    /// What is to be the same.
    Right,
}

/// Trouble, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The side.
    pub which: Which,
    /// The place of the chunk among that side's.
    pub chunk: usize,
    /// The trouble.
    pub trouble: Trouble,
}

/// What is wanted besides equality.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Most bytes of a page, decompressed.
    pub page: usize,
    /// Whether ends of the values must be known.
    pub ends: bool,
    /// Whether NaNs are to be counted.
    pub nans: bool,
    /// Whether chunks of the right side may have bloom filters: these are not looked
    /// at.
    pub bloom: bool,
}

/// What one chunk of the right side holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Values, NULLs included.
    pub values: u64,
    /// NULLs.
    pub nulls: u64,
    /// NaNs, where they were asked for.
    pub nans: u64,
    /// Ends of the values, where they were asked for or are stated.
    pub ends: Ends,
    /// Pages that were not opened.
    pub copied: usize,
    /// Pages that were.
    pub opened: usize,
}

/// Compares the values of the `left` chunks, in order and without their dead
/// rows, with those of the `right` ones; what each of the right holds.
///
/// Invariants checked:
/// * levels and values are the same, in the same order, to the last;
/// * every page of the right side that differs from its counterpart has the
///   checksum that its header carries, and no byte of its header is unread;
/// * counts of values, NULLs and rows in the headers of the right side hold;
/// * what its footer and its page indexes state of pages and values holds: places,
///   sizes, rows, encodings, NULLs, bounds.
///
/// Where nothing else tells, the ends of values in pages that were not opened are
/// those that the left side's column index or statistics state: readers of the
/// left side rely on them already.
///
/// Errs with the first trouble. `Unfit` proves nothing, neither way.
pub fn compare(left: &[Chunk], right: &[Chunk], asked: &Asked) -> Result<Vec<Found>, Failure> {
    let at = |which, chunk: usize, trouble| Failure { which, chunk, trouble };
    let mut sides = Comparing {
        left: Side::new(left, asked.page, Which::Left).map_err(|trouble| at(Which::Left, 0, trouble))?,
        right: Side::new(right, asked.page, Which::Right).map_err(|trouble| at(Which::Right, 0, trouble))?,
        asked: *asked,
        pairs: Pairs::default(),
        look: Look::default(),
        seen: Vec::new(),
        found: Vec::new(),
    };
    match sides.run() {
        Ok(()) => Ok(sides.found),
        Err((Which::Left, trouble)) => Err(at(Which::Left, sides.left.place, trouble)),
        Err((Which::Right, trouble)) => Err(at(Which::Right, sides.right.place, trouble)),
    }
}

type Step<T> = Result<T, (Which, Trouble)>;

fn left(trouble: Trouble) -> (Which, Trouble) {
    (Which::Left, trouble)
}

fn right(trouble: Trouble) -> (Which, Trouble) {
    (Which::Right, trouble)
}

/// The right side holds something else.
fn differs(what: &str) -> (Which, Trouble) {
    right(Trouble::wrong(what))
}

struct Comparing<'a> {
    left: Side<'a>,
    right: Side<'a>,
    asked: Asked,
    pairs: Pairs,
    /// What is seen of the right side's open page.
    look: Look,
    /// What was seen of the pages of the right side's chunk.
    seen: Vec<Seen>,
    found: Vec<Found>,
}

impl Comparing<'_> {
    fn run(&mut self) -> Step<()> {
        if self.left.column != self.right.column {
            return Err(differs("a column of another type"));
        }
        loop {
            let ours = self.left.open.is_none() && !self.left.advance().map_err(left)?;
            let theirs = self.right.open.is_none() && !self.right_advance()?;
            match (ours, theirs) {
                (true, true) => return Ok(()),
                (true, false) => return Err(differs("more values than there should be")),
                (false, true) => {
                    // what is left may be rows that do not count
                    if self.left.open.is_none() && self.left.is_cut() {
                        self.left.open_page().map_err(left)?;
                        if self.left.open.is_none() {
                            continue;
                        }
                    }
                    return Err(differs("fewer values than there should be"));
                }
                (false, false) => {}
            }
            let mut copied = false;
            if self.left.open.is_none() && self.right.open.is_none() {
                copied = self.same_bytes();
                if copied && self.same_page()? {
                    continue;
                }
            }
            if self.left.open.is_none() {
                self.left.open_page().map_err(left)?;
            }
            if self.left.open.is_none() {
                continue;
            }
            if self.right.open.is_none() {
                self.open_right(copied)?;
            }
            self.step()?;
        }
    }

    /// To the right side's next page; a chunk that is done is looked at as a whole.
    fn right_advance(&mut self) -> Step<bool> {
        loop {
            if let Some(page) = self.right.page() {
                return if page.values() > 0 { Ok(true) } else { Err(differs("a page of no values")) };
            }
            if let Some(chunk) = self.right.chunk() {
                if !self.asked.bloom && chunk.meta().map_err(right)?.bloom_filter_offset().is_some() {
                    return Err(right(Trouble::wrong("a bloom filter, which joined pages do not have")));
                }
                let found = index::check(chunk, &self.right.walked, &self.seen, self.right.column.order).map_err(right)?;
                self.found.push(found);
                self.seen.clear();
            }
            if !self.right.next_chunk().map_err(right)? {
                return Ok(false);
            }
        }
    }

    /// Whether the next pages of both sides are the same, header and body.
    fn same_bytes(&self) -> bool {
        let pages = self.left.page().zip(self.right.page());
        // a page of version 2 may be stored as it is, whatever the codec of its chunk
        let stored = |page: &Page| matches!(&page.header.kind, Kind::DataV2(data) if !data.compressed);
        pages.is_some_and(|(ours, theirs)| {
            ours.whole(self.left.bytes()) == theirs.whole(self.right.bytes()) && (stored(ours) || self.left.same_codec(&self.right))
        })
    }

    /// Passes a page whose bytes are the same on both sides; `false` when it must
    /// be opened.
    fn same_page(&mut self) -> Step<bool> {
        if self.left.is_cut() {
            return Ok(false);
        }
        let encoding = self.left.page().and_then(|page| page.header.kind.data()).map(|(_, encoding)| encoding);
        let mut open: Option<Open> = None;
        if encoding.is_some_and(is_dictionary) {
            let dictionaries = (self.left.dictionary().map_err(left)?, self.right.dictionary().map_err(right)?);
            if !dictionaries.0.begins(&dictionaries.1) {
                return Ok(false);
            }
            if dictionaries.0.count() != dictionaries.1.count() {
                let page = self.left.opened().map_err(left)?;
                let known = values::within(&mut page.clone(), &self.left.column, dictionaries.0.count()).map_err(left)?;
                open = known.then_some(page);
                if open.is_none() {
                    return Err(left(Trouble::wrong("an id past the end of its dictionary")));
                }
            }
        }
        let seen = self.passed(open)?;
        self.seen.push(seen);
        self.left.pass();
        self.right.pass();
        Ok(true)
    }

    /// What is known of a page that is the same on both sides.
    fn passed(&mut self, open: Option<Open>) -> Step<Seen> {
        let told = self.left.told();
        let wants_ends = self.right.wants_ends(self.asked.ends);
        let tells_ends = told.ends != Ends::Unknown && self.right.borne_out(self.right.at(), &told.ends);
        let known = told.nulls.is_some() && told.rows.is_some() && (tells_ends || !wants_ends);
        if known && !self.asked.nans {
            return Ok(Seen { copied: true, ..told });
        }
        // Not told: the page is read after all, by itself.
        let mut open = match open {
            Some(open) => open,
            None => self.left.opened().map_err(left)?,
        };
        let dictionary = if open.has_ids() { Some(self.left.dictionary().map_err(left)?) } else { None };
        let mut look = Look::begin(wants_ends && !tells_ends || self.asked.nans, dictionary.as_deref(), self.left.column.order);
        values::read(&mut open, &self.left.column, dictionary.as_deref(), &mut look).map_err(left)?;
        let seen = look.end(self.left.column.order, dictionary.as_deref());
        self.left.keep(open);
        let ends = if tells_ends { told.ends } else { seen.ends };
        Ok(Seen { ends, copied: true, ..seen })
    }

    /// Opens the right side's next page; `copied` when it is as one of the left.
    fn open_right(&mut self, copied: bool) -> Step<()> {
        if !copied {
            self.right.check_written().map_err(right)?;
        }
        self.right.open_page().map_err(right)?;
        let ids = self.right.open.as_ref().is_some_and(Open::has_ids);
        let dictionary = if ids { Some(self.right.dictionary().map_err(right)?) } else { None };
        let looks = self.right.wants_ends(self.asked.ends) || self.asked.nans;
        self.look = Look::begin(looks, dictionary.as_deref(), self.right.column.order);
        Ok(())
    }

    /// Compares what is left of the open pages, to the end of one of them.
    fn step(&mut self) -> Step<()> {
        let (Some(mut ours), Some(mut theirs)) = (self.left.open.take(), self.right.open.take()) else { return Ok(()) };
        let known = match (ours.has_ids(), theirs.has_ids()) {
            (a, b) if !a && !b => (None, None),
            (a, b) => {
                let ours = if a { Some(self.left.dictionary().map_err(left)?) } else { None };
                let theirs = if b { Some(self.right.dictionary().map_err(right)?) } else { None };
                (ours, theirs)
            }
        };
        self.pairs.between(known.0.as_ref(), known.1.as_ref());
        if self.look.is_new() && ours.is_other_same(&theirs) {
            // The same in an encoding that is not read here: compressed anew.
            return self.step_over(theirs);
        }
        let column = self.left.column;
        ours.settle(&column).map_err(left)?;
        theirs.settle(&column).map_err(right)?;
        let (mut from, mut to) = ((0, 0, 0u32), (0, 0, 0u32));
        let wanted = ours.left.min(theirs.left);
        let (mut done, mut present) = (0u32, 0u32);
        while done < wanted {
            if from.2 == 0 {
                from = ours.levels(wanted - done).map_err(left)?;
            }
            if to.2 == 0 {
                to = theirs.levels(wanted - done).map_err(right)?;
            }
            let times = from.2.min(to.2).min(wanted - done);
            if (from.0, from.1) != (to.0, to.1) {
                return Err(differs("other levels than there should be"));
            }
            if times == 0 {
                return Err(differs("levels that end too early"));
            }
            self.look.levels(to.0, to.1 == column.definition, times);
            present += if to.1 == column.definition { times } else { 0 };
            (from.2, to.2, done) = (from.2 - times, to.2 - times, done + times);
        }
        let dictionaries = (known.0.as_deref(), known.1.as_deref());
        values::same(&mut ours, &mut theirs, dictionaries, present, &mut self.pairs, &mut self.look, &column)?;
        self.close(ours, theirs)
    }

    /// Passes two whole pages that are the same but for their compression.
    fn step_over(&mut self, mut theirs: Open) -> Step<()> {
        let told = self.left.told_open();
        let (mut look, column) = (std::mem::take(&mut self.look), self.right.column);
        let page = self.right.at().saturating_sub(1);
        let tells_ends = told != Ends::Unknown && self.right.borne_out(page, &told);
        if self.asked.nans || (!tells_ends && self.right.wants_ends(self.asked.ends)) {
            // the bytes are those of the left side
            values::read(&mut theirs, &column, None, &mut look).map_err(left)?;
        } else {
            values::levels_only(&mut theirs, &column, &mut look).map_err(right)?;
        }
        let seen = look.end(column.order, None);
        self.right.check_counts(&seen).map_err(right)?;
        let ends = if tells_ends { told } else { seen.ends.clone() };
        self.seen.push(Seen { ends, ..seen });
        Ok(())
    }

    fn close(&mut self, ours: Open, theirs: Open) -> Step<()> {
        if theirs.left == 0 {
            theirs.end().map_err(right)?;
            let dictionary = if theirs.has_ids() { Some(self.right.dictionary().map_err(right)?) } else { None };
            let seen = std::mem::take(&mut self.look).end(self.right.column.order, dictionary.as_deref());
            self.right.check_counts(&seen).map_err(right)?;
            self.seen.push(seen);
        }
        self.left.keep(ours);
        self.right.keep(theirs);
        Ok(())
    }
}
