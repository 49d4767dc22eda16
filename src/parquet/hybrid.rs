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
                groups(bytes, width, count, |group, valid| {
                    for number in group.iter().take(valid) {
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
            Run::Packed(bytes, count) => groups(bytes, width, count, |group, valid| out.extend(group.iter().take(valid))),
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
            Run::Packed(bytes, count) => groups(bytes, width, count, |group, valid| {
                found += group.iter().take(valid).filter(|value| **value == wanted).count() as u32;
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
            Run::Packed(bytes, count) => groups(bytes, width, count, |group, valid| {
                most = group.iter().take(valid).fold(most, |most, value| most.max(*value));
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
                groups(bytes, from, count, |mut group, valid| {
                    for (place, id) in group.iter_mut().enumerate() {
                        *id = if place < valid { map.get(*id as usize).copied() } else { Some(0) }.unwrap_or_else(|| {
                            known = false;
                            0
                        });
                    }
                    pack(group, to, out);
                });
                if !known {
                    return Err(past_the_end(map.len()));
                }
            }
        }
    }
    Ok(())
}

/// Calls with each group of eight, and how many of its numbers count.
fn groups(bytes: &[u8], width: u32, count: u32, mut each: impl FnMut([u32; 8], usize)) {
    let mut left = count as usize;
    for group in bytes.chunks((width as usize).max(1)).take(left.div_ceil(8)) {
        each(unpack(group, width), left.min(8));
        left = left.saturating_sub(8);
    }
}

/// Room for a group of eight numbers, and for a word that begins in its last byte.
const GROUP: usize = 32 + 8;

/// The eight numbers of a group of `width` bytes; bytes cut off count as zero.
fn unpack(bytes: &[u8], width: u32) -> [u32; 8] {
    let (mut held, length) = ([0u8; GROUP], bytes.len().min(32));
    held.iter_mut().zip(bytes.iter().take(length)).for_each(|(place, byte)| *place = *byte);
    let mask = (1u64 << width.min(32)) - 1;
    std::array::from_fn(|number| {
        let bit = number * width as usize;
        let word = held.get(bit / 8..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word));
        (word >> (bit % 8) & mask) as u32
    })
}

/// Appends a group of eight numbers as `width` bytes.
pub fn pack(numbers: [u32; 8], width: u32, out: &mut Vec<u8>) {
    let (mut word, mut bits, mut held, mut done) = (0u64, 0, [0u8; 32], 0usize);
    for number in numbers {
        word |= u64::from(number) << bits;
        bits += width;
        if bits >= 32 {
            if let Some(place) = held.get_mut(done..).and_then(|rest| rest.first_chunk_mut()) {
                *place = (word as u32).to_le_bytes();
            }
            done += 4;
            word >>= 32;
            bits -= 32;
        }
    }
    if let Some(rest) = held.get_mut(done..) {
        rest.iter_mut().zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }
    out.extend_from_slice(held.get(..width as usize).unwrap_or_default());
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
            let mut bytes = Vec::new();
            pack(numbers, width, &mut bytes);
            prop_assert_eq!(bytes.len(), width as usize);
            prop_assert_eq!(unpack(&bytes, width), numbers);
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
