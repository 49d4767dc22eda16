//! Dictionaries of several chunks merged into one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parquet::basic::Type;
use parquet::schema::types::ColumnDescriptor;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::fault::Fault;
use super::{hybrid, rooms};

/// Bytes of a column's values in `PLAIN`; `None` where they differ and each has
/// its length in front.
///
/// Errs `Unfit` on a type that has no dictionary.
pub fn value_bytes(column: &ColumnDescriptor) -> Result<Option<usize>, Fault> {
    match column.physical_type() {
        Type::INT32 | Type::FLOAT => Ok(Some(4)),
        Type::INT64 | Type::DOUBLE => Ok(Some(8)),
        Type::INT96 => Ok(Some(12)),
        Type::BYTE_ARRAY => Ok(None),
        Type::FIXED_LEN_BYTE_ARRAY => match usize::try_from(column.type_length()) {
            Ok(length) if length > 0 => Ok(Some(length)),
            _ => Err(Fault::unfit("values of no length in a dictionary")),
        },
        Type::BOOLEAN => Err(Fault::unfit("booleans in a dictionary")),
    }
}

/// The values of one chunk's dictionary page, each as `PLAIN` has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dictionary {
    body: Vec<u8>,
    count: usize,
    /// Bytes of a value, where all have as many.
    width: Option<usize>,
    /// Ends of the values in `body`, where they have not.
    ends: Vec<u32>,
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        rooms::give(std::mem::take(&mut self.body));
    }
}

impl Dictionary {
    /// Finds the values in a page's inflated body.
    ///
    /// Errs `Damaged` when it holds fewer than `count`.
    pub fn new(mut body: Vec<u8>, count: u32, value_bytes: Option<usize>) -> Result<Self, Fault> {
        let (count, mut at, mut ends) = (count as usize, 0usize, Vec::new());
        if let Some(width) = value_bytes {
            at = count.checked_mul(width).filter(|end| *end <= body.len()).ok_or_else(too_short)?;
        } else {
            ends.reserve(body.len().min(count));
            for _ in 0..count {
                let prefix = body.get(at..at.saturating_add(4)).and_then(|prefix| prefix.try_into().ok());
                let length = prefix.map(u32::from_le_bytes).and_then(|length| usize::try_from(length).ok());
                let length = length.and_then(|length| length.checked_add(4)).ok_or_else(too_short)?;
                at = at.checked_add(length).filter(|end| *end <= body.len()).ok_or_else(too_short)?;
                ends.push(u32::try_from(at).map_err(|_| too_short())?);
            }
        }
        body.truncate(at);
        Ok(Self { body, count, width: value_bytes, ends })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its values.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// A value in `PLAIN`; `None` past the end.
    pub fn value(&self, id: u32) -> Option<&[u8]> {
        self.body.get(self.range(usize::try_from(id).ok()?)?)
    }

    fn range(&self, place: usize) -> Option<Range<usize>> {
        range(self.width, &self.ends, place)
    }

    fn values(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|place| self.body.get(self.range(place)?))
    }

    /// Appends the values of these ids in `PLAIN`.
    ///
    /// Errs `Damaged` on an id past the end, `Unfit` when they take more than
    /// `most` bytes.
    pub fn look_up(&self, ids: &[u32], most: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self.width {
            Some(4) => return self.look_up_fixed::<4>(ids, most, out),
            Some(8) => return self.look_up_fixed::<8>(ids, most, out),
            _ => {}
        }
        let start = out.len();
        for id in ids {
            let value = self.value(*id).ok_or_else(|| self.beyond(*id))?;
            if out.len() - start + value.len() > most {
                return Err(without_dictionary(most));
            }
            out.extend_from_slice(value);
        }
        Ok(())
    }

    /// The same for values of a width that is known when the program is built.
    fn look_up_fixed<const WIDTH: usize>(&self, ids: &[u32], most: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        let bytes = ids.len().checked_mul(WIDTH).filter(|bytes| *bytes <= most).ok_or_else(|| without_dictionary(most))?;
        out.resize(start.saturating_add(bytes), 0);
        let (values, places) = (self.body.as_chunks::<WIDTH>().0, out.get_mut(start..).unwrap_or_default().as_chunks_mut::<WIDTH>().0);
        for (place, id) in places.iter_mut().zip(ids) {
            *place = *values.get(*id as usize).ok_or_else(|| self.beyond(*id))?;
        }
        Ok(())
    }

    fn beyond(&self, id: u32) -> Fault {
        Fault::damaged(format_args!("id {id} in a dictionary of {} values", self.len()))
    }
}

/// Where a value lies among others: by their width, or by their ends.
fn range(width: Option<usize>, ends: &[u32], place: usize) -> Option<Range<usize>> {
    if let Some(width) = width {
        return Some(place.checked_mul(width)?..place.checked_add(1)?.checked_mul(width)?);
    }
    let start = place.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
    Some(start as usize..*ends.get(place)? as usize)
}

fn without_dictionary(most: usize) -> Fault {
    Fault::unfit(format_args!("a page would take more than {most} bytes without its dictionary"))
}

fn too_short() -> Fault {
    Fault::damaged("a dictionary page holds fewer values than its header states")
}

/// How the ids of one chunk become those of the merged dictionary.
#[derive(Debug, PartialEq, Eq)]
pub enum Ids {
    /// They are the same.
    Same,
    /// By this table.
    Mapped(Vec<u32>),
}

/// One dictionary of the values of several.
#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    /// Its values in `PLAIN`.
    pub body: Vec<u8>,
    /// How many.
    pub values: u32,
    /// How each dictionary's ids become its own, in their order.
    pub ids: Vec<Ids>,
}

impl Merged {
    /// Bits of its ids; one at least, for readers that know no other.
    pub fn width(&self) -> u32 {
        hybrid::width(self.values.saturating_sub(1)).max(1)
    }
}

/// Merges dictionaries, the one that occurs most often first: its ids stay.
/// `None` when the values take more than `most` bytes, or would by what the
/// first of them show.
pub fn merge(dictionaries: &[&Dictionary], most: usize) -> Option<Merged> {
    let all: usize = dictionaries.iter().map(|d| d.body.len()).sum();
    let mut ids: Vec<Option<Ids>> = dictionaries.iter().map(|_| None).collect();
    let first = most_frequent(dictionaries)?;
    let mut merging = Merging::new(all.min(most), dictionaries.get(first)?);
    let mut seen = 0;
    for place in std::iter::once(first).chain((0..dictionaries.len()).filter(|place| *place != first)) {
        let dictionary = dictionaries.get(place)?;
        *ids.get_mut(place)? = Some(merging.add(dictionary)?);
        seen += dictionary.body.len();
        if merging.body.len() > most || hopeless(merging.body.len(), seen, all, most) {
            return None;
        }
    }
    Some(Merged { body: std::mem::take(&mut merging.body), values: merging.values, ids: ids.into_iter().collect::<Option<_>>()? })
}

/// Whether dictionaries will exceed the limit by a quarter, by an eighth of them or
/// more: values that they share grow with the square of what is seen.
fn hopeless(merged: usize, seen: usize, all: usize, most: usize) -> bool {
    let (merged, seen, all) = (merged as u128, seen as u128, all as u128);
    let shared = seen.saturating_sub(merged) * all * all / (seen * seen).max(1);
    seen * 8 > all && all.saturating_sub(shared) * 4 > most as u128 * 5
}

fn most_frequent(dictionaries: &[&Dictionary]) -> Option<usize> {
    let mut found: HashMap<&[u8], (usize, usize), BuildHasherDefault<Quick>> = HashMap::default();
    for (place, dictionary) in dictionaries.iter().enumerate() {
        found.entry(&dictionary.body).or_insert((0, place)).0 += 1;
    }
    found.into_values().max_by_key(|(times, place)| (*times, std::cmp::Reverse(*place))).map(|(_, place)| place)
}

/// Values of dictionaries, each once, in the order in which they were met.
struct Merging {
    body: Vec<u8>,
    /// Bytes of a value, where all have as many.
    width: Option<usize>,
    /// Ends of the values in `body`, where they have not.
    ends: Vec<u32>,
    values: u32,
    /// Where values are found again by their hashes.
    slots: Vec<Slot>,
}

/// The hash of a value, and its id and one; nothing is 0.
type Slot = (u32, u32);

/// Slots that nobody uses.
static KEPT: Mutex<Vec<Vec<Slot>>> = Mutex::new(Vec::new());
/// Slots kept of how many, and of what size at most.
const KEPT_SLOTS: (usize, usize) = (4, 1 << 18);

fn kept() -> MutexGuard<'static, Vec<Vec<Slot>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Merging {
    fn drop(&mut self) {
        rooms::give(std::mem::take(&mut self.body));
        give(std::mem::take(&mut self.slots));
    }
}

fn give(slots: Vec<Slot>) {
    let mut kept = kept();
    if kept.len() < KEPT_SLOTS.0 && (1..=KEPT_SLOTS.1).contains(&slots.capacity()) {
        kept.push(slots);
    }
}

impl Merging {
    /// None yet, with room for so many bytes of them, and to find those of a dictionary.
    fn new(bytes: usize, dictionary: &Dictionary) -> Self {
        let (body, width) = (rooms::take(bytes.min(MOST_AT_FIRST)), dictionary.width);
        let mut merging = Self { body, width, ends: Vec::new(), values: 0, slots: Vec::new() };
        merging.grow(dictionary.len().saturating_mul(2).min(KEPT_SLOTS.1));
        merging
    }

    /// `None` when there are more values than ids, or bytes than the format has.
    fn add(&mut self, dictionary: &Dictionary) -> Option<Ids> {
        // Values begin at the same places when the bytes are the same.
        if self.body.starts_with(&dictionary.body) && dictionary.len() as u64 <= u64::from(self.values) {
            return Some(Ids::Same);
        }
        let mut table = Vec::with_capacity(dictionary.len());
        match self.width {
            Some(4) => self.add_fixed::<4>(dictionary, &mut table)?,
            Some(8) => self.add_fixed::<8>(dictionary, &mut table)?,
            _ => {
                for value in dictionary.values() {
                    table.push(self.id(value, |known, id| known.value(id) == Some(value))?);
                }
            }
        }
        let same = table.iter().zip(0u32..).all(|(id, place)| *id == place);
        Some(if same { Ids::Same } else { Ids::Mapped(table) })
    }

    /// The ids of values of a width that is known when the program is built.
    fn add_fixed<const WIDTH: usize>(&mut self, dictionary: &Dictionary, table: &mut Vec<u32>) -> Option<()> {
        for value in dictionary.body.as_chunks::<WIDTH>().0 {
            table.push(self.id(value, |known, id| known.body.as_chunks::<WIDTH>().0.get(id as usize) == Some(value))?);
        }
        Some(())
    }

    /// The id of a value, which is a new one where the value is. `is`: whether an id
    /// is that of the value.
    #[inline]
    fn id(&mut self, value: &[u8], is: impl Fn(&Self, u32) -> bool) -> Option<u32> {
        if self.slots.len() / 2 <= self.values as usize {
            self.grow(0);
        }
        let (hash, last) = (hash(value), self.slots.len().checked_sub(1)?);
        let mut place = first(hash, self.slots.len());
        loop {
            match *self.slots.get(place)? {
                (_, 0) => break,
                (found, next) if found == hash && is(self, next - 1) => return Some(next - 1),
                _ => place = (place + 1) & last,
            }
        }
        let id = self.values;
        self.values = id.checked_add(1).filter(|values| *values < u32::MAX)?;
        self.body.extend_from_slice(value);
        let end = u32::try_from(self.body.len()).ok()?;
        if self.width.is_none() {
            self.ends.push(end);
        }
        *self.slots.get_mut(place)? = (hash, id + 1);
        Some(id)
    }

    fn value(&self, id: u32) -> Option<&[u8]> {
        self.body.get(range(self.width, &self.ends, id as usize)?)
    }

    /// Twice as many slots, or so many: a power of two. At most half of them are in use.
    fn grow(&mut self, least: usize) {
        let wanted = (self.slots.len() * 2).max(FEWEST_SLOTS).max(least.next_power_of_two());
        let mut new = kept().pop().unwrap_or_default();
        new.clear();
        new.resize(wanted, (0, 0));
        let old = std::mem::replace(&mut self.slots, new);
        for slot in old.iter().copied().filter(|slot| slot.1 > 0) {
            let mut place = first(slot.0, wanted);
            while self.slots.get(place).is_some_and(|slot| slot.1 > 0) {
                place = (place + 1) & (wanted - 1);
            }
            if let Some(empty) = self.slots.get_mut(place) {
                *empty = slot;
            }
        }
        give(old);
    }
}

const FEWEST_SLOTS: usize = 1 << 10;
/// Room taken before any value is known to need it.
const MOST_AT_FIRST: usize = 256 << 10;

/// The slot in which a value of this hash is looked for first. `slots` is a power
/// of two.
fn first(hash: u32, slots: usize) -> usize {
    hash as usize & (slots - 1)
}

#[inline]
fn hash(value: &[u8]) -> u32 {
    // Odd numbers without a pattern: numbers in a row come apart.
    let mixed = |number: u64| {
        let number = (number ^ number >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (number ^ number >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32
    };
    let number = match (value.first_chunk(), value.first_chunk(), value.len()) {
        (Some(four), _, 4) => mixed(u32::from_le_bytes(*four).into()),
        (_, Some(eight), 8) => mixed(u64::from_le_bytes(*eight)),
        _ => xxh3_64_with_seed(value, 0),
    };
    number as u32
}

/// Hashes byte strings fast.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// The length of the bytes that follow: they are hashed with it.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(values: &[&str]) -> Dictionary {
        let body: Vec<u8> = values.iter().flat_map(|v| [&(v.len() as u32).to_le_bytes()[..], v.as_bytes()].concat()).collect();
        Dictionary::new(body, values.len() as u32, None).unwrap()
    }

    fn merged(parts: &[&[&str]], most: usize) -> Option<Merged> {
        let parts: Vec<Dictionary> = parts.iter().map(|values| texts(values)).collect();
        merge(&parts.iter().collect::<Vec<_>>(), most)
    }

    #[test]
    fn the_most_frequent_dictionary_keeps_its_ids() {
        let found = merged(&[&["c", "a"], &["a", "b"], &["a", "b"], &["a"]], 100).unwrap();
        assert_eq!(found.ids, [Ids::Mapped(vec![2, 0]), Ids::Same, Ids::Same, Ids::Same]);
        assert_eq!((found.values, found.width()), (3, 2));
        assert_eq!(found.body, texts(&["a", "b", "c"]).bytes());
    }

    #[test]
    fn a_dictionary_that_grows_past_the_limit_is_none() {
        assert!(merged(&[&["aaaa"], &["bbbb"]], 16).is_some());
        assert!(merged(&[&["aaaa"], &["bbbb"]], 15).is_none());
        assert!(merged(&[], 15).is_none());
    }

    #[test]
    fn a_merge_is_given_up_by_what_its_first_eighth_shows() {
        assert!(hopeless(200, 200, 1000, 700), "nothing is shared");
        assert!(!hopeless(200, 200, 1000, 800), "little more than is allowed");
        assert!(!hopeless(100, 100, 1000, 100), "too few were seen");
        assert!(!hopeless(180, 200, 1000, 500), "a tenth shared of a fifth is half of all");
        assert!(hopeless(198, 200, 1000, 700));
    }

    #[test]
    fn values_that_a_page_does_not_hold_are_damage() {
        assert!(matches!(Dictionary::new(vec![0; 15], 2, Some(8)), Err(Fault::Damaged(_))));
        assert!(matches!(Dictionary::new(vec![9, 0, 0, 0, 1], 1, None), Err(Fault::Damaged(_))));
        assert!(matches!(Dictionary::new(vec![255; 4], 1, None), Err(Fault::Damaged(_))));
        let pair = texts(&["a", "bc"]);
        let mut out = Vec::new();
        assert!(matches!(pair.look_up(&[0, 2], 100, &mut out), Err(Fault::Damaged(_))));
        assert!(matches!(pair.look_up(&[0, 1], 10, &mut out), Err(Fault::Unfit(_))));
        out.clear();
        pair.look_up(&[1, 0], 11, &mut out).unwrap();
        assert_eq!(out, [2, 0, 0, 0, b'b', b'c', 1, 0, 0, 0, b'a']);
    }

    #[test]
    fn a_doubled_value_has_one_id() {
        let found = merged(&[&["a", "a", "b"]], 100).unwrap();
        assert_eq!((found.values, &found.ids), (2, &vec![Ids::Mapped(vec![0, 0, 1])]));
    }

    /// Whether every id of the parts stands for the same value as before, and each
    /// value is there once.
    fn means_the_same(parts: &[Dictionary], found: &Merged, value_bytes: Option<usize>) {
        let whole = Dictionary::new(found.body.clone(), found.values, value_bytes).unwrap();
        let distinct: std::collections::HashSet<&[u8]> = parts.iter().flat_map(Dictionary::values).collect();
        assert_eq!((whole.bytes(), found.values as usize), (&found.body[..], distinct.len()));
        for (part, ids) in parts.iter().zip(&found.ids) {
            for id in 0..part.len() as u32 {
                let now = match ids {
                    Ids::Same => id,
                    Ids::Mapped(table) => table[id as usize],
                };
                assert_eq!(whole.value(now), part.value(id));
                assert!(now < 1 << found.width());
            }
        }
    }

    #[test]
    fn thousands_of_values_are_found_again_whatever_their_width() {
        for width in [1, 2, 4, 8, 12] {
            let numbers = |numbers: Range<u64>, shift: u32| {
                let values: Vec<u8> =
                    numbers.clone().flat_map(|n| [(n << shift).to_le_bytes(), [0; 8]].concat()[..width].to_vec()).collect();
                Dictionary::new(values, numbers.count() as u32, Some(width)).unwrap()
            };
            let parts = [numbers(0..9_000, 0), numbers(4_000..13_000, 0), numbers(0..9_000, 45)];
            let found = merge(&parts.iter().collect::<Vec<_>>(), usize::MAX).unwrap();
            means_the_same(&parts, &found, Some(width));
        }
    }

    proptest! {
        #[test]
        fn every_id_still_means_its_value(parts in prop::collection::vec(prop::collection::vec("[a-c]{0,2}", 0..6), 1..6)) {
            let parts: Vec<Dictionary> = parts.iter().map(|p| texts(&p.iter().map(String::as_str).collect::<Vec<_>>())).collect();
            let found = merge(&parts.iter().collect::<Vec<_>>(), 10_000).unwrap();
            means_the_same(&parts, &found, None);
        }
    }
}
