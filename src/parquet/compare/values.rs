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
        if theirs.contains(&NOWHERE) {
            return Err(right(past_the_end()));
        }
        if ours.iter().zip(theirs).all(|(from, to)| self.table.get(*from as usize) == Some(to)) {
            return Ok(());
        }
        let (Some(known), Some(other)) = (self.left.as_deref(), self.right.as_deref()) else { return Err(left(past_the_end())) };
        for (from, to) in ours.iter().zip(theirs) {
            let place = self.table.get_mut(*from as usize).ok_or_else(|| left(past_the_end()))?;
            if place != to {
                if !known.same(*from, other, *to).map_err(|which| (which, past_the_end()))? {
                    return Err(differs("another value than there should be"));
                }
                *place = *to;
            }
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
    /// Which ids of the dictionary occur.
    used: Vec<bool>,
    /// How often each does, where its value may be a NaN.
    times: Vec<u64>,
    values: u64,
    nulls: u64,
    rows: u64,
    nans: u64,
}

impl Look {
    /// A look at a page, of ids of a dictionary where there is one.
    pub fn begin(collects: bool, dictionary: Option<&Dictionary>, order: Order) -> Self {
        let ids = dictionary.filter(|_| collects).map_or(0, |dictionary| dictionary.count() as usize);
        Self { collects, used: vec![false; ids], times: vec![0; if order == Order::Float { ids } else { 0 }], ..Self::default() }
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
                    *self.used.get_mut(*id as usize).ok_or_else(past_the_end)? = true;
                }
                if column.order == Order::Float {
                    for id in numbers {
                        *self.times.get_mut(*id as usize).ok_or_else(past_the_end)? += 1;
                    }
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
        if let Some(dictionary) = dictionary {
            dictionary.ends(&self.used, order, &mut self.ends);
            let times = (0u32..).zip(&self.times).filter(|(_, times)| **times > 0);
            self.nans +=
                times.filter(|(id, _)| dictionary.value(*id).is_some_and(|value| order.is_nan(value))).map(|(_, times)| times).sum::<u64>();
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
        let equal = match &taken {
            (Taken::Plain(a), Taken::Plain(b)) => ours.bytes.get(a.clone()) == theirs.bytes.get(b.clone()),
            (Taken::Flags, Taken::Flags) => from == to,
            (Taken::Ids, Taken::Ids) => {
                pairs.check(from, to)?;
                true
            }
            (Taken::Ids, Taken::Plain(b)) => {
                let bytes = theirs.bytes.get(b.clone()).unwrap_or_default();
                looked_up(from, dictionaries.0, bytes).ok_or_else(|| left(past_the_end()))?
            }
            (Taken::Plain(a), Taken::Ids) => {
                let bytes = ours.bytes.get(a.clone()).unwrap_or_default();
                looked_up(to, dictionaries.1, bytes).ok_or_else(|| right(past_the_end()))?
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
    let dictionary = dictionary?;
    match dictionary.width() {
        Some(4) => looked_up_fixed::<4>(ids, dictionary, bytes),
        Some(8) => looked_up_fixed::<8>(ids, dictionary, bytes),
        _ => {
            let mut rest = bytes;
            for id in ids {
                match rest.strip_prefix(dictionary.plain(*id)?) {
                    Some(behind) => rest = behind,
                    None => return Some(false),
                }
            }
            Some(rest.is_empty())
        }
    }
}

/// The same for values of a width that is known when the program is built.
fn looked_up_fixed<const WIDTH: usize>(ids: &[u32], dictionary: &Dictionary, bytes: &[u8]) -> Option<bool> {
    let (known, (values, rest)) = (dictionary.fixed::<WIDTH>(), bytes.as_chunks::<WIDTH>());
    for (id, value) in ids.iter().zip(values) {
        if known.get(*id as usize)? != value {
            return Some(false);
        }
    }
    Some(values.len() == ids.len() && rest.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_no_dictionary_has_is_not_taken_for_one_without_a_counterpart() {
        let known = Arc::new(Dictionary::of(vec![7, 0, 0, 0, 8, 0, 0, 0], 4));
        let mut pairs = Pairs::default();
        pairs.between(Some(&known), Some(&known));
        assert!(pairs.check(&[0, 1], &[0, NOWHERE]).is_err());
        assert!(pairs.check(&[0, 1, 0], &[0, 1, 0]).is_ok());
        assert!(pairs.check(&[0, 1], &[1, 1]).is_err(), "another value");
        assert!(pairs.check(&[2], &[0]).is_err() && pairs.check(&[0], &[2]).is_err(), "past the end");
    }
}
