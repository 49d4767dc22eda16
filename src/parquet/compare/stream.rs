//! Small numbers as pages hold them, read in order and by themselves: levels,
//! ids of a dictionary, bits. Nothing here is shared with what writes them.

use std::ops::Range;

use super::Trouble;

/// A stream of runs and packed groups, and how far it was read. The bytes are
/// handed to every call: they belong to the page.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What is left of it in the page.
    bytes: Range<usize>,
    /// Bits of a number.
    width: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A head comes next.
    Head,
    /// One number so many times.
    Run { number: u32, left: u64 },
    /// Numbers packed from a byte on; the next one begins at a bit.
    Packed { start: usize, bit: u64, left: u64 },
}

impl Stream {
    /// The stream in these bytes of a page.
    pub fn new(bytes: Range<usize>, width: u32) -> Result<Self, Trouble> {
        if width > 32 {
            return Err(Trouble::wrong(format_args!("numbers of {width} bits")));
        }
        // some writers leave out a stream of which every number is 0
        let state = if width == 0 && bytes.is_empty() { State::Run { number: 0, left: u64::MAX } } else { State::Head };
        Ok(Self { bytes, width, state })
    }

    /// Plain bits, lowest first.
    pub fn bits(bytes: Range<usize>) -> Self {
        let left = (bytes.len() as u64).saturating_mul(8);
        Self { bytes: bytes.end..bytes.end, width: 1, state: State::Packed { start: bytes.start, bit: 0, left } }
    }

    /// The next number and how often it stands in a row, at most `most` times;
    /// of a packed group numbers come one by one.
    ///
    /// Errs when the stream has ended.
    pub fn run(&mut self, page: &[u8], most: u32) -> Result<(u32, u32), Trouble> {
        loop {
            match &mut self.state {
                State::Run { left: 0, .. } | State::Packed { left: 0, .. } => self.state = State::Head,
                State::Run { number, left } => {
                    let times = most.min(u32::try_from(*left).unwrap_or(u32::MAX));
                    *left -= u64::from(times);
                    return Ok((*number, times));
                }
                State::Packed { start, bit, left } => {
                    let number = unpack(page, *start, *bit, self.width)?;
                    *bit += u64::from(self.width);
                    *left -= 1;
                    return Ok((number, 1));
                }
                State::Head => self.head(page)?,
            }
        }
    }

    /// Fills `out` with the next numbers.
    ///
    /// Errs when the stream has fewer.
    pub fn fill(&mut self, page: &[u8], out: &mut [u32]) -> Result<(), Trouble> {
        let mut rest = out;
        while !rest.is_empty() {
            let wanted = rest.len();
            let done = match &mut self.state {
                State::Run { left: 0, .. } | State::Packed { left: 0, .. } => {
                    self.state = State::Head;
                    0
                }
                State::Head => {
                    self.head(page)?;
                    0
                }
                State::Run { number, left } => {
                    let times = wanted.min(usize::try_from(*left).unwrap_or(usize::MAX));
                    rest.iter_mut().take(times).for_each(|place| *place = *number);
                    *left -= times as u64;
                    times
                }
                State::Packed { start, bit, left } => {
                    let times = wanted.min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let places = rest.get_mut(..times).unwrap_or_default();
                    let first = start.saturating_add((*bit / 8) as usize);
                    let read = if *bit % 8 == 0 { eights(page.get(first..).unwrap_or_default(), self.width, places) } else { 0 };
                    *bit += u64::from(self.width) * read as u64;
                    for place in places.iter_mut().skip(read) {
                        *place = unpack(page, *start, *bit, self.width)?;
                        *bit += u64::from(self.width);
                    }
                    *left -= times as u64;
                    times
                }
            };
            rest = rest.get_mut(done..).unwrap_or_default();
        }
        Ok(())
    }

    fn head(&mut self, page: &[u8]) -> Result<(), Trouble> {
        let (mut head, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.take(page, 1)?.first().copied().unwrap_or(0);
            head |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return Err(Trouble::wrong("a run of impossible length"));
            }
        }
        self.state = if head & 1 == 1 {
            let groups = head >> 1;
            let start = self.bytes.start;
            let bytes = groups.saturating_mul(u64::from(self.width));
            // A last group may be cut short: what is not there cannot be read.
            let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes.len());
            self.take(page, length)?;
            let whole = (length as u64 * 8).checked_div(u64::from(self.width)).unwrap_or(u64::MAX);
            State::Packed { start, bit: 0, left: whole.min(groups.saturating_mul(8)) }
        } else {
            let mut number = 0u32;
            for (place, byte) in self.take(page, self.width.div_ceil(8) as usize)?.iter().enumerate() {
                number |= u32::from(*byte) << (8 * place as u32);
            }
            State::Run { number, left: head >> 1 }
        };
        Ok(())
    }

    fn take<'a>(&mut self, page: &'a [u8], length: usize) -> Result<&'a [u8], Trouble> {
        let end = self.bytes.start.saturating_add(length);
        let bytes = if end <= self.bytes.end { page.get(self.bytes.start..end) } else { None };
        self.bytes.start = end;
        bytes.ok_or_else(|| Trouble::wrong("levels or ids of a page end too early"))
    }
}

/// Fills `out` with groups of eight numbers from the first byte on, as many as are
/// whole and not too near to the end to be read by words; how many numbers. None
/// where they are very wide.
fn eights(bytes: &[u8], width: u32, out: &mut [u32]) -> usize {
    // with a width that is known when the program is built, shifts and masks are constants
    macro_rules! of_width {
        ($($near:literal: $($known:literal)*;)*) => {
            match width {
                $($($known => groups::<$known, $near>(bytes, out),)*)*
                _ => 0,
            }
        };
    }
    of_width! {
        8: 1 2 3 4 5 6 7 8;
        16: 9 10 11 12 13 14 15 16;
        32: 17 18 19 20 21 22 23 24 25 26 27 28;
    }
}

/// As [`eights`]: every group is read from `NEAR` bytes on.
fn groups<const WIDTH: usize, const NEAR: usize>(bytes: &[u8], out: &mut [u32]) -> usize {
    // numbers that one word holds, wherever in its first byte they begin
    let (together, mask) = (
        if WIDTH <= 8 {
            8
        } else if WIDTH <= 16 {
            4
        } else {
            2
        },
        (1u64 << WIDTH) - 1,
    );
    let (mut rest, mut read) = (bytes, 0);
    for group in out.as_chunks_mut::<8>().0 {
        let Some(near) = rest.first_chunk::<NEAR>() else { break };
        let word = |number: usize| {
            let bit = number * WIDTH;
            near.get(bit / 8..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word)) >> (bit % 8)
        };
        *group = std::array::from_fn(|number| (word(number / together * together) >> (number % together * WIDTH) & mask) as u32);
        rest = rest.get(WIDTH..).unwrap_or_default();
        read += 8;
    }
    read
}

/// The number of `width` bits that begins at a bit behind `start`.
fn unpack(page: &[u8], start: usize, bit: u64, width: u32) -> Result<u32, Trouble> {
    let first = start.saturating_add((bit / 8) as usize);
    let word = match page.get(first..first.saturating_add(8)).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u64::from_le_bytes(bytes),
        None => {
            let mut near = [0u8; 8];
            let rest = page.get(first..).ok_or_else(|| Trouble::wrong("levels or ids of a page end too early"))?;
            near.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(near)
        }
    };
    Ok((word >> (bit % 8) & ((1u64 << width) - 1)) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parquet::hybrid;
    use crate::parquet::sequence::Sequence;

    fn all(stream: &mut Stream, page: &[u8], count: usize) -> Result<Vec<u32>, Trouble> {
        let mut out = vec![0; count];
        stream.fill(page, &mut out)?;
        Ok(out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn numbers_come_as_they_were_written(runs in prop::collection::vec((any::<u32>(), 1u32..40), 0..30), width in 1u32..=32, split in 0usize..50) {
            let mut sequence = Sequence::default();
            let mask = ((1u64 << width) - 1) as u32;
            runs.iter().for_each(|(number, times)| sequence.push(number & mask, *times));
            let mut page = b"before".to_vec();
            sequence.encode(width, &mut page);
            let numbers: Vec<u32> = runs.iter().flat_map(|(n, times)| std::iter::repeat_n(n & mask, *times as usize)).collect();
            let stream = Stream::new(6..page.len(), width).unwrap();
            let mut whole = stream.clone();
            let split = split.min(numbers.len());
            let mut found = all(&mut whole, &page, split).unwrap();
            found.extend(all(&mut whole, &page, numbers.len() - split).unwrap());
            prop_assert_eq!(&found, &numbers);
            let (mut one_by_one, mut found) = (stream, Vec::new());
            while found.len() < numbers.len() {
                let (number, times) = one_by_one.run(&page, (numbers.len() - found.len()) as u32).unwrap();
                found.extend(std::iter::repeat_n(number, times as usize));
            }
            prop_assert_eq!(&found, &numbers);
        }

        #[test]
        fn noise_is_read_as_the_writer_reads_it_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 0..60), width in 1u32..=32, count in 0u32..300) {
            let mut expected = Vec::new();
            let writers = hybrid::decode(&bytes, width, count, &mut expected);
            let ours = all(&mut Stream::new(0..bytes.len(), width).unwrap(), &bytes, count as usize);
            if let (Ok(()), Ok(found)) = (writers, ours) {
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn bits_are_read_lowest_first() {
        let page = [0b0000_0101, 0b1000_0000];
        assert_eq!(all(&mut Stream::bits(0..2), &page, 16).unwrap(), [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(all(&mut Stream::bits(0..2), &page, 17).is_err());
    }

    #[test]
    fn numbers_of_no_bits_are_zeros_and_an_end_is_an_error() {
        assert_eq!(all(&mut Stream::new(0..0, 0).unwrap(), &[], 3).unwrap(), [0, 0, 0]);
        assert_eq!(all(&mut Stream::new(0..1, 0).unwrap(), &[6], 3).unwrap(), [0, 0, 0]);
        assert_eq!(all(&mut Stream::new(0..1, 0).unwrap(), &[3], 8).unwrap(), [0; 8]);
        assert!(all(&mut Stream::new(0..1, 0).unwrap(), &[4], 3).is_err());
        assert!(all(&mut Stream::new(0..1, 0).unwrap(), &[0x84], 2).is_err());
        assert!(all(&mut Stream::new(0..0, 3).unwrap(), &[], 1).is_err());
        assert!(Stream::new(0..0, 33).is_err());
    }
}
