//! Values taken from open pages: compared, and looked at.

use std::sync::Arc;

use super::ends::{Ends, Order};
use super::index::Seen;
use super::open::{Column, Dictionary, Open, Taken};
use super::{Step, Trouble, differs, left, right};

/// Values compared at a time.
const BATCH: usize = 1024;
/// The place of an id that has no counterpart yet.
const NOWHERE: u32 = u32::MAX;

/// Which ids of two dictionaries are known to stand for the same value.
#[derive(Default)]
pub struct Pairs {
    left: Option<Arc<Dictionary>>,
    right: Option<Arc<Dictionary>>,
    table: Vec<u32>,
}

impl Pairs {
    /// Pairs of these two dictionaries; those that are known stay while the
    /// dictionaries do.
    pub fn between(&mut self, left: Option<&Arc<Dictionary>>, right: Option<&Arc<Dictionary>>) {
        let same = |held: &Option<Arc<Dictionary>>, now: Option<&Arc<Dictionary>>| match (held, now) {
            (Some(held), Some(now)) => Arc::ptr_eq(held, now),
            (None, None) => true,
            _ => false,
        };
        if same(&self.left, left) && same(&self.right, right) {
            return;
        }
        (self.left, self.right) = (left.cloned(), right.cloned());
        self.table.clear();
        self.table.resize(left.map_or(0, |left| left.count() as usize), NOWHERE);
    }

    /// Compares ids that stand in the same places.
    fn check(&mut self, ours: &[u32], theirs: &[u32]) -> Step<()> {
        for (from, to) in ours.iter().zip(theirs) {
            if self.table.get(*from as usize) != Some(to) {
                self.meet(*from, *to)?;
            }
        }
        Ok(())
    }

    fn meet(&mut self, from: u32, to: u32) -> Step<()> {
        let ours = self.left.as_ref().and_then(|left| left.plain(from)).ok_or_else(|| left(past_the_end()))?;
        let theirs = self.right.as_ref().and_then(|right| right.plain(to)).ok_or_else(|| right(past_the_end()))?;
        if ours != theirs {
            return Err(differs("another value than there should be"));
        }
        if let Some(place) = self.table.get_mut(from as usize) {
            *place = to;
        }
        Ok(())
    }
}

fn past_the_end() -> Trouble {
    Trouble::wrong("an id past the end of its dictionary")
}

/// What is seen of a page while its values are taken.
#[derive(Default)]
pub struct Look {
    /// Whether values are looked at, not only counted.
    collects: bool,
    ends: Ends,
    /// How often each id of the dictionary occurs.
    used: Vec<u32>,
    values: u64,
    nulls: u64,
    rows: u64,
    nans: u64,
}

impl Look {
    /// A look at a page, of ids of a dictionary where there is one.
    pub fn begin(collects: bool, dictionary: Option<&Dictionary>) -> Self {
        let used = if collects { vec![0; dictionary.map_or(0, |dictionary| dictionary.count() as usize)] } else { Vec::new() };
        Self { collects, used, ..Self::default() }
    }

    /// Whether nothing was seen yet.
    pub fn is_new(&self) -> bool {
        self.values == 0
    }

    /// Counts levels.
    pub fn levels(&mut self, repetition: u32, present: bool, times: u32) {
        self.values += u64::from(times);
        self.nulls += if present { 0 } else { u64::from(times) };
        self.rows += if repetition == 0 { u64::from(times) } else { 0 };
    }

    fn values(&mut self, open: &Open, taken: &Taken, numbers: &[u32], column: &Column) -> Result<(), Trouble> {
        if !self.collects {
            return Ok(());
        }
        match taken {
            Taken::Ids => {
                for id in numbers {
                    *self.used.get_mut(*id as usize).ok_or_else(past_the_end)? += 1;
                }
            }
            Taken::Flags => {
                for flag in [0, 1].into_iter().filter(|flag| numbers.contains(flag)) {
                    self.ends.add(column.order, &[u8::from(flag == 1)]);
                }
            }
            Taken::Plain(range) => {
                let mut bytes = open.bytes.get(range.clone()).unwrap_or_default();
                if let Some(width) = column.width {
                    self.nans += self.ends.add_fixed(column.order, width, bytes);
                    return Ok(());
                }
                while let Some((head, rest)) = bytes.split_first_chunk() {
                    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*head) as usize).unwrap_or((rest, &[]));
                    self.ends.add(column.order, value);
                    bytes = rest;
                }
            }
        }
        Ok(())
    }

    /// What was seen of the page.
    pub fn end(mut self, order: Order, dictionary: Option<&Dictionary>) -> Seen {
        for (id, times) in self.used.iter().enumerate().filter(|(_, times)| **times > 0) {
            let value = u32::try_from(id).ok().and_then(|id| dictionary?.value(id)).unwrap_or_default();
            self.nans += if order.is_nan(value) { u64::from(*times) } else { 0 };
            self.ends.add(order, value);
        }
        let ends = if self.collects || self.nulls == self.values { self.ends } else { Ends::Unknown };
        Seen { values: self.values, nulls: Some(self.nulls), rows: Some(self.rows), nans: self.nans, ends, copied: false }
    }
}

/// Compares the next `present` values of two pages.
pub fn same(
    ours: &mut Open,
    theirs: &mut Open,
    dictionaries: (Option<&Dictionary>, Option<&Dictionary>),
    present: u32,
    pairs: &mut Pairs,
    look: &mut Look,
    column: &Column,
) -> Step<()> {
    let (mut from, mut to) = ([0u32; BATCH], [0u32; BATCH]);
    let mut rest = present as usize;
    while rest > 0 {
        let count = rest.min(BATCH);
        rest -= count;
        let (from, to) = (from.get_mut(..count).unwrap_or_default(), to.get_mut(..count).unwrap_or_default());
        let taken = (ours.take(from).map_err(left)?, theirs.take(to).map_err(right)?);
        let plain = |open: &Open, range: &std::ops::Range<usize>| open.bytes.get(range.clone()).map(<[u8]>::to_vec);
        let equal = match &taken {
            (Taken::Plain(a), Taken::Plain(b)) => ours.bytes.get(a.clone()) == theirs.bytes.get(b.clone()),
            (Taken::Flags, Taken::Flags) => from == to,
            (Taken::Ids, Taken::Ids) => {
                pairs.check(from, to)?;
                true
            }
            (Taken::Ids, Taken::Plain(b)) => {
                let bytes = plain(theirs, b).unwrap_or_default();
                looked_up(from, dictionaries.0, &bytes).ok_or_else(|| left(past_the_end()))?
            }
            (Taken::Plain(a), Taken::Ids) => {
                let bytes = plain(ours, a).unwrap_or_default();
                looked_up(to, dictionaries.1, &bytes).ok_or_else(|| right(past_the_end()))?
            }
            _ => return Err(right(Trouble::Unfit("booleans beside other values".into()))),
        };
        if !equal {
            return Err(differs("another value than there should be"));
        }
        look.values(theirs, &taken.1, to, column).map_err(right)?;
    }
    Ok(())
}

/// Whether ids stand for these values in `PLAIN`, to the last byte; `None` for an
/// id past the dictionary's end.
fn looked_up(ids: &[u32], dictionary: Option<&Dictionary>, bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes;
    for id in ids {
        let value = dictionary?.plain(*id)?;
        match rest.strip_prefix(value) {
            Some(behind) => rest = behind,
            None => return Some(false),
        }
    }
    Some(rest.is_empty())
}

/// Takes all that is left of a page, to look at it.
pub fn read(open: &mut Open, column: &Column, dictionary: Option<&Dictionary>, look: &mut Look) -> Result<(), Trouble> {
    if look.collects {
        open.settle(column)?;
    }
    let present = levels_only(open, column, look)?;
    let mut numbers = [0u32; BATCH];
    let mut rest = if look.collects { present as usize } else { 0 };
    while rest > 0 {
        let count = rest.min(BATCH);
        rest -= count;
        let numbers = numbers.get_mut(..count).unwrap_or_default();
        let taken = open.take(numbers)?;
        if taken == Taken::Ids && dictionary.is_none() {
            return Err(Trouble::wrong("ids without a dictionary"));
        }
        look.values(open, &taken, numbers, column)?;
    }
    Ok(())
}

/// Counts what is left of a page by its levels; the values that are not NULL.
pub fn levels_only(open: &mut Open, column: &Column, look: &mut Look) -> Result<u32, Trouble> {
    let mut present = 0;
    while open.left > 0 {
        let (repetition, definition, times) = open.levels(u32::MAX)?;
        if times == 0 {
            return Err(Trouble::wrong("levels of a page end too early"));
        }
        look.levels(repetition, definition == column.definition, times);
        present += if definition == column.definition { times } else { 0 };
    }
    Ok(present)
}

/// Whether every id of a page is below `count`.
pub fn within(open: &mut Open, column: &Column, count: u32) -> Result<bool, Trouble> {
    let mut rest = levels_only(open, column, &mut Look::default())? as usize;
    let mut numbers = [0u32; BATCH];
    while rest > 0 {
        let some = rest.min(BATCH);
        rest -= some;
        let numbers = numbers.get_mut(..some).unwrap_or_default();
        open.take(numbers)?;
        if numbers.iter().any(|id| *id >= count) {
            return Ok(false);
        }
    }
    Ok(true)
}
