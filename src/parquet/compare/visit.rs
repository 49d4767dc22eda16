//! Every value of one chunk, seen once.

use super::open::{Open, Taken};
use super::side::Side;
use super::values::levels_only;
use super::walk::Chunk;
use super::{Trouble, Which};

/// Values taken at a time.
const BATCH: usize = 1024;

/// Hands every value of a chunk that is not NULL to `each`, by its bytes in `PLAIN`
/// without a length in front; a value that a dictionary holds, once a page. Stops
/// when `each` says so, with `false`. `most`: bytes that a page may take.
///
/// Errs when the chunk contradicts itself, `Unfit` where it cannot be read by pages.
pub fn visit(chunk: &Chunk, most: usize, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Trouble> {
    let mut side = Side::new(std::slice::from_ref(chunk), most, Which::Right)?;
    while side.advance()? {
        let mut open = side.opened()?;
        if !page(&mut side, &mut open, each)? {
            return Ok(false);
        }
        side.pass();
        side.keep(open);
    }
    Ok(true)
}

fn page(side: &mut Side<'_>, open: &mut Open, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Trouble> {
    let column = side.column;
    open.settle(&column)?;
    let dictionary = if open.has_ids() { Some(side.dictionary()?) } else { None };
    let mut used = vec![false; dictionary.as_ref().map_or(0, |dictionary| dictionary.count() as usize)];
    let mut rest = levels_only(open, &column, &mut super::Look::default())? as usize;
    let mut numbers = [0u32; BATCH];
    while rest > 0 {
        let count = rest.min(BATCH);
        rest -= count;
        let numbers = numbers.get_mut(..count).unwrap_or_default();
        match open.take(numbers)? {
            Taken::Ids => {
                for id in numbers.iter() {
                    *used.get_mut(*id as usize).ok_or_else(|| Trouble::wrong("an id past the end of its dictionary"))? = true;
                }
            }
            Taken::Flags => {
                if numbers.iter().any(|flag| !each(&[u8::from(*flag != 0)])) {
                    return Ok(false);
                }
            }
            Taken::Plain(range) => {
                let bytes = open.bytes.get(range).unwrap_or_default();
                if !plain(bytes, column.width, each) {
                    return Ok(false);
                }
            }
        }
    }
    let ids = (0u32..).zip(&used).filter(|(_, used)| **used).map(|(id, _)| id);
    let mut values = ids.filter_map(|id| dictionary.as_ref()?.value(id).map(<[u8]>::to_vec));
    Ok(values.all(|value| each(&value)))
}

fn plain(mut bytes: &[u8], width: Option<usize>, each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
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
