//! One chunk by itself: every value seen, and what is stated of them held against
//! what was seen.

use std::sync::Arc;

use super::index::{self, Seen};
use super::open::{Dictionary, Open, Taken};
use super::side::Side;
use super::values::{self, levels_only};
use super::walk::Chunk;
use super::{Found, Look, Trouble, Which};

/// Values taken at a time.
const BATCH: usize = 1024;

/// Who is handed values: by their bytes in `PLAIN`, without a length in front.
pub type Each<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Reads every page of a chunk; what it holds. Every value that is not NULL is handed
/// to `each`, one that a dictionary holds once a page, until it says `false`: then
/// `None`. `most`: bytes that a page may take.
///
/// Invariants checked: those of [`super::compare`] about headers, footer and page
/// indexes, by the values alone.
///
/// Errs with the first that does not hold, `Unfit` where pages cannot be read so.
pub fn visit(chunk: &Chunk, most: usize, mut each: Option<Each<'_>>) -> Result<Option<Found>, Trouble> {
    let mut side = Side::new(std::slice::from_ref(chunk), most, Which::Right)?;
    let mut seen: Vec<Seen> = Vec::new();
    while let Some(page) = side.page() {
        if page.values() == 0 {
            return Err(Trouble::wrong("a page of no values"));
        }
        let mut open = side.opened()?;
        open.settle(&side.column)?;
        let dictionary = if open.has_ids() { Some(side.dictionary()?) } else { None };
        if let Some(each) = &mut each
            && !hand(&mut side, open.clone(), dictionary.as_ref(), *each)?
        {
            return Ok(None);
        }
        let mut look = Look::begin(true, dictionary.as_deref(), side.column.order);
        values::read(&mut open, &side.column, dictionary.as_deref(), &mut look)?;
        open.end()?;
        let found = look.end(side.column.order, dictionary.as_deref());
        side.pass();
        side.check_counts(&found)?;
        side.keep(open);
        seen.push(found);
    }
    index::check(chunk, &side.walked, &seen, side.column.order).map(Some)
}

fn hand(side: &mut Side<'_>, mut open: Open, dictionary: Option<&Arc<Dictionary>>, each: Each<'_>) -> Result<bool, Trouble> {
    let mut used = vec![false; dictionary.map_or(0, |dictionary| dictionary.count() as usize)];
    let mut rest = levels_only(&mut open, &side.column, &mut Look::default())? as usize;
    let mut numbers = [0u32; BATCH];
    while rest > 0 {
        let count = rest.min(BATCH);
        rest -= count;
        let numbers = numbers.get_mut(..count).unwrap_or_default();
        let goes_on = match open.take(numbers)? {
            Taken::Ids => {
                for id in numbers.iter() {
                    *used.get_mut(*id as usize).ok_or_else(|| Trouble::wrong("an id past the end of its dictionary"))? = true;
                }
                true
            }
            Taken::Flags => numbers.iter().all(|flag| each(&[u8::from(*flag != 0)])),
            Taken::Plain(range) => plain(open.bytes.get(range).unwrap_or_default(), side.column.width, each),
        };
        if !goes_on {
            return Ok(false);
        }
    }
    let ids = (0u32..).zip(&used).filter(|(_, used)| **used).map(|(id, _)| id);
    let mut values = ids.filter_map(|id| dictionary?.value(id));
    Ok(values.all(each))
}

fn plain(mut bytes: &[u8], width: Option<usize>, each: Each<'_>) -> bool {
    if let Some(width) = width {
        return bytes.chunks_exact(width.max(1)).all(each);
    }
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*head) as usize).unwrap_or((rest, &[]));
        if !each(value) {
            return false;
        }
        bytes = rest;
    }
    true
}
