//! Streams of small numbers in runs and bit-packed groups of eight: levels and
//! the ids of dictionaries.

use super::fault::Fault;
use super::thrift::{put_varint, varint};

/// Bits that hold every number up to this one.
pub fn width(most: u32) -> u32 {
    u32::BITS - most.leading_zeros()
}

/// Numbers of one kind in a stream.
enum Run<'a> {
    /// One number many times.
    Repeat(u32, u32),
    /// Groups of eight; only so many of the numbers count.
    Packed(&'a [u8], u32),
}

/// The runs of a stream, until so many numbers were seen.
struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    left: u32,
}

impl<'a> Runs<'a> {
    fn new(bytes: &'a [u8], width: u32, count: u32) -> Result<Self, Fault> {
        if width > 32 {
            return Err(Fault::damaged(format_args!("ids of {width} bits")));
        }
        Ok(Self { bytes, width, left: count })
    }

    fn next(&mut self) -> Result<Option<Run<'a>>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        if self.width == 0 {
            return Ok(Some(Run::Repeat(0, std::mem::take(&mut self.left))));
        }
        let (head, length) = varint(self.bytes).ok_or_else(cut_short)?;
        self.bytes = self.bytes.get(length..).unwrap_or_default();
        if head & 1 == 0 {
            let count = self.take(head >> 1);
            let value = self.split(self.width.div_ceil(8) as usize)?;
            let value = value.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
            return Ok(Some(Run::Repeat(value, count)));
        }
        let count = self.take((head >> 1).saturating_mul(8));
        let needed = (u64::from(count) * u64::from(self.width)).div_ceil(8);
        let whole = (head >> 1).saturating_mul(u64::from(self.width));
        // The last group may be cut after the last number.
        let length = whole.min(self.bytes.len() as u64).max(needed);
        let packed = self.split(usize::try_from(length).map_err(|_| cut_short())?)?;
        Ok(Some(Run::Packed(packed, count)))
    }

    fn take(&mut self, count: u64) -> u32 {
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(self.left);
        self.left -= count;
        count
    }

    fn split(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (head, rest) = self.bytes.split_at_checked(length).ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(head)
    }
}

fn cut_short() -> Fault {
    Fault::damaged("levels or ids of a page end too early")
}

/// Calls with each of `count` numbers of `width` bits, and how many times it
/// stands in a row.
///
/// Errs `Damaged` when the stream has fewer, and what `each` says.
pub fn visit(bytes: &[u8], width: u32, count: u32, mut each: impl FnMut(u32, u32) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut runs = Runs::new(bytes, width, count)?;
    while let Some(run) = runs.next()? {
        match run {
            Run::Repeat(value, count) => each(value, count)?,
            Run::Packed(bytes, count) => {
                let mut told = Ok(());
                batches(bytes, width, count, |numbers| {
                    for number in numbers {
                        if told.is_ok() {
                            told = each(*number, 1);
                        }
                    }
                });
                told?;
            }
        }
    }
    Ok(())
}

/// Appends `count` numbers of `width` bits.
///
/// Errs `Damaged` when the stream has fewer.
pub fn decode(bytes: &[u8], width: u32, count: u32, out: &mut Vec<u32>) -> Result<(), Fault> {
    let mut runs = Runs::new(bytes, width, count)?;
    while let Some(run) = runs.next()? {
        match run {
            Run::Repeat(value, count) => out.extend(std::iter::repeat_n(value, count as usize)),
            Run::Packed(bytes, count) => batches(bytes, width, count, |numbers| out.extend_from_slice(numbers)),
        }
    }
    Ok(())
}

/// How many of `count` numbers are `wanted`.
///
/// Errs `Damaged` when the stream has fewer.
pub fn count(bytes: &[u8], width: u32, count: u32, wanted: u32) -> Result<u32, Fault> {
    let (mut found, mut runs) = (0u32, Runs::new(bytes, width, count)?);
    while let Some(run) = runs.next()? {
        match run {
            Run::Repeat(value, count) => found += if value == wanted { count } else { 0 },
            Run::Packed(bytes, count) => batches(bytes, width, count, |numbers| {
                found += numbers.iter().map(|value| u32::from(*value == wanted)).sum::<u32>();
            }),
        }
    }
    Ok(found)
}

/// Checks that all of `count` ids are below `entries`.
///
/// Errs `Damaged` when one is not, or the stream has fewer.
pub fn check(bytes: &[u8], width: u32, count: u32, entries: usize) -> Result<(), Fault> {
    let (mut most, mut runs) = (0u32, Runs::new(bytes, width, count)?);
    while let Some(run) = runs.next()? {
        match run {
            Run::Repeat(value, count) => most = most.max(if count > 0 { value } else { 0 }),
            Run::Packed(bytes, count) => batches(bytes, width, count, |numbers| {
                most = numbers.iter().fold(most, |most, value| most.max(*value));
            }),
        }
    }
    if count == 0 || (most as usize) < entries { Ok(()) } else { Err(past_the_end(entries)) }
}

fn past_the_end(entries: usize) -> Fault {
    Fault::damaged(format_args!("an id past the end of its dictionary of {entries} values"))
}

/// Appends the ids with each replaced by its entry in `map`, in `to` bits. Runs
/// stay runs and groups stay groups.
///
/// Errs `Damaged` on an id past the map's end, or when the stream has fewer
/// than `count`.
pub fn translate(bytes: &[u8], from: u32, count: u32, map: &[u32], to: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut runs = Runs::new(bytes, from, count)?;
    while let Some(run) = runs.next()? {
        match run {
            Run::Repeat(_, 0) | Run::Packed(_, 0) => {}
            Run::Repeat(id, count) => {
                let id = map.get(id as usize).ok_or_else(|| past_the_end(map.len()))?;
                put_varint(u64::from(count) << 1, out);
                out.extend(id.to_le_bytes().iter().take(to.div_ceil(8) as usize));
            }
            Run::Packed(bytes, count) => {
                put_varint(u64::from(count.div_ceil(8)) << 1 | 1, out);
                let mut known = true;
                batches(bytes, from, count, |numbers| {
                    for id in numbers.iter_mut() {
                        *id = map.get(*id as usize).copied().unwrap_or_else(|| {
                            known = false;
                            0
                        });
                    }
                    pack_all(numbers, to, out);
                });
                if !known {
                    return Err(past_the_end(map.len()));
                }
            }
        }
    }
    Ok(())
}

/// Numbers unpacked at a time: whole groups of eight.
const BATCH: usize = 512;

/// Calls with all numbers of packed groups, some at a time: whole groups, but for
/// the last ones.
fn batches(bytes: &[u8], width: u32, count: u32, mut each: impl FnMut(&mut [u32])) {
    let (mut left, mut numbers) = (count as usize, [0u32; BATCH]);
    for groups in bytes.chunks((width as usize).max(1) * (BATCH / 8)) {
        unpack_all(groups, width, &mut numbers);
        each(numbers.get_mut(..left.min(BATCH)).unwrap_or_default());
        left = left.saturating_sub(BATCH);
        if left == 0 {
            return;
        }
    }
}

/// Words that hold a group of eight numbers of any width.
const WORDS: usize = 4;

/// Does something for a width that is known when the program is built: shifts and
/// masks are then constants, which makes it several times as fast.
macro_rules! by_width {
    (@one $does:ident, $known:literal, ($($with:expr),*)) => { $does::<$known>($($with),*) };
    (@each $width:expr, $does:ident, $with:tt, $($known:literal)*) => {
        match $width {
            $($known => by_width!(@one $does, $known, $with),)*
            _ => {}
        }
    };
    ($width:expr, $does:ident $with:tt) => {
        by_width!(@each $width, $does, $with, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    };
}

/// Unpacks groups of eight numbers; bytes cut off count as zero.
fn unpack_all(bytes: &[u8], width: u32, out: &mut [u32; BATCH]) {
    fn unpack<const WIDTH: usize>(bytes: &[u8], out: &mut [u32; BATCH]) {
        let mut rest = bytes;
        for place in out.as_chunks_mut::<8>().0 {
            if rest.is_empty() {
                return;
            }
            *place = if rest.len() >= WIDTH.div_ceil(8) * 8 {
                unpacked::<WIDTH>(rest)
            } else {
                let mut whole = [0u8; WORDS * 8];
                whole.iter_mut().zip(rest.iter().take(WIDTH)).for_each(|(to, from)| *to = *from);
                unpacked::<WIDTH>(&whole)
            };
            rest = rest.get(WIDTH..).unwrap_or_default();
        }
    }
    by_width!(width, unpack(bytes, out));
}

/// The eight numbers that these bytes begin with: there is a whole word for every
/// bit of them.
fn unpacked<const WIDTH: usize>(bytes: &[u8]) -> [u32; 8] {
    let word = |place: usize| bytes.get(place * 8..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word));
    let (words, mask): ([u64; WORDS], u64) = (std::array::from_fn(word), (1 << WIDTH) - 1);
    std::array::from_fn(|number| {
        let (place, shift) = (number * WIDTH / 64, number * WIDTH % 64);
        let low = words.get(place).map_or(0, |word| word >> shift);
        let high = if shift + WIDTH > 64 { words.get(place + 1).map_or(0, |word| word << (64 - shift)) } else { 0 };
        ((low | high) & mask) as u32
    })
}

/// Appends numbers in groups of eight, of `width` bytes each; zeros fill the last.
pub fn pack_all(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    fn pack<const WIDTH: usize>(numbers: &[u32], out: &mut Vec<u8>) {
        let (start, (groups, rest)) = (out.len(), numbers.as_chunks::<8>());
        let end = start + numbers.len().div_ceil(8) * WIDTH;
        // whole words are written, over which the next group begins
        out.resize(end + WORDS * 8, 0);
        let mut last = [0u32; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let last = if rest.is_empty() { None } else { Some(&last) };
        for (place, group) in groups.iter().chain(last).enumerate() {
            if let Some(room) = out.get_mut(start + place * WIDTH..).and_then(|room| room.first_chunk_mut()) {
                pack_group::<WIDTH>(group, room);
            }
        }
        out.truncate(end);
    }
    by_width!(width, pack(numbers, out));
}

/// Packs a group of eight numbers; what is behind it in its last word becomes zero.
fn pack_group<const WIDTH: usize>(group: &[u32; 8], room: &mut [u8; WORDS * 8]) {
    let mut words = [0u64; WORDS];
    for (number, value) in group.iter().enumerate() {
        let (place, shift) = (number * WIDTH / 64, number * WIDTH % 64);
        if let Some(word) = words.get_mut(place) {
            *word |= u64::from(*value) << shift;
        }
        if let Some(word) = words.get_mut(place + 1).filter(|_| shift + WIDTH > 64) {
            *word |= u64::from(*value) >> (64 - shift);
        }
    }
    for (place, word) in room.as_chunks_mut::<8>().0.iter_mut().zip(words).take(WIDTH.div_ceil(8)) {
        *place = word.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stream by the format's text: runs of these kinds, one after the other.
    fn stream(runs: &[(bool, Vec<u32>)], width: u32) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for (packed, values) in runs {
            let values: Vec<u32> = values.iter().map(|v| v & ((1u64 << width) - 1) as u32).collect();
            if *packed {
                put_varint(((values.len() as u64 / 8) << 1) | 1, &mut bytes);
                let bits: Vec<bool> = values.iter().flat_map(|v| (0..width).map(move |bit| v >> bit & 1 == 1)).collect();
                bytes.extend(bits.chunks(8).map(|bits| bits.iter().rev().fold(0u8, |byte, bit| byte << 1 | u8::from(*bit))));
                numbers.extend(values);
            } else {
                put_varint((values.len() as u64) << 1, &mut bytes);
                bytes.extend_from_slice(&values[0].to_le_bytes()[..width.div_ceil(8) as usize]);
                numbers.extend(std::iter::repeat_n(values[0], values.len()));
            }
        }
        (bytes, numbers)
    }

    fn runs() -> impl Strategy<Value = Vec<(bool, Vec<u32>)>> {
        let run = prop_oneof![
            (1usize..4).prop_flat_map(|groups| (Just(true), prop::collection::vec(any::<u32>(), groups * 8))),
            (Just(false), prop::collection::vec(any::<u32>(), 1..40)),
        ];
        prop::collection::vec(run, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn streams_decode_and_translate_value_by_value(runs in runs(), from in 1u32..=18, wider in 0u32..=6, cut in 0usize..8) {
            let (bytes, mut numbers) = stream(&runs, from);
            numbers.truncate(numbers.len() - cut.min(numbers.len()));
            let count = numbers.len() as u32;
            let mut decoded = Vec::new();
            decode(&bytes, from, count, &mut decoded).unwrap();
            prop_assert_eq!(&decoded, &numbers);
            let first = numbers.first().copied().unwrap_or(0);
            let same = numbers.iter().filter(|n| **n == first).count() as u32;
            prop_assert_eq!(super::count(&bytes, from, count, first).unwrap(), same);

            let (entries, to) = (1u32 << from, from + wider);
            let map: Vec<u32> = (0..entries).rev().map(|id| id + ((1 << to) - entries)).collect();
            let mut out = Vec::new();
            translate(&bytes, from, count, &map, to, &mut out).unwrap();
            let mut back = Vec::new();
            decode(&out, to, count, &mut back).unwrap();
            let expected: Vec<u32> = numbers.iter().map(|id| map[*id as usize]).collect();
            prop_assert_eq!(back, expected);

            let most = numbers.iter().max().map_or(0, |most| *most as usize);
            prop_assert!(check(&bytes, from, count, most + 1).is_ok());
            if count > 0 {
                prop_assert!(matches!(check(&bytes, from, count, most), Err(Fault::Damaged(_))));
                prop_assert!(matches!(translate(&bytes, from, count, &map[..most], to, &mut out), Err(Fault::Damaged(_))));
            }
        }

        #[test]
        fn noise_is_decoded_or_damaged(bytes in prop::collection::vec(any::<u8>(), 0..60), width in 0u32..40, count in 0u32..500) {
            let mut out = Vec::new();
            match decode(&bytes, width, count, &mut out) {
                Ok(()) => prop_assert_eq!(out.len(), count as usize),
                Err(fault) => prop_assert!(matches!(fault, Fault::Damaged(_))),
            }
            let mut translated = Vec::new();
            let _ = translate(&bytes, width, count, &[3, 4, 5], 3, &mut translated);
        }

        #[test]
        fn groups_are_unpacked_as_packed(numbers in any::<[u32; 8]>(), width in 1u32..=32) {
            let numbers = numbers.map(|n| n & ((1u64 << width) - 1) as u32);
            let (mut bytes, mut back) = (Vec::new(), [0u32; BATCH]);
            pack_all(&numbers, width, &mut bytes);
            prop_assert_eq!(bytes.len(), width as usize);
            unpack_all(&bytes, width, &mut back);
            prop_assert_eq!(&back[..8], &numbers);
        }
    }

    #[test]
    fn a_stream_of_no_bits_is_all_the_first_id() {
        let mut out = Vec::new();
        translate(&[], 0, 5, &[6], 3, &mut out).unwrap();
        assert_eq!(out, [10, 6]);
        assert!(matches!(translate(&[], 0, 5, &[], 3, &mut out), Err(Fault::Damaged(_))));
        assert!(translate(&[], 0, 0, &[], 3, &mut out).is_ok());
    }

    #[test]
    fn a_run_longer_than_the_page_is_cut_to_it() {
        let mut out = Vec::new();
        translate(&[200, 1, 1], 1, 5, &[0, 1], 1, &mut out).unwrap();
        assert_eq!(out, [10, 1]);
    }

    #[test]
    fn widths_hold_their_numbers() {
        assert_eq!([0, 1, 2, 3, 4, 255, 256].map(width), [0, 1, 2, 2, 3, 8, 9]);
    }
}
