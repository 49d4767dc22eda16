//! Small numbers in order, runs of one number together: levels, ids and bits
//! that are put together anew.

use super::fault::Fault;
use super::hybrid;
use super::thrift::put_varint;

/// Numbers in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// A number, and how many times in a row.
    runs: Vec<(u32, u32)>,
}

/// Groups of eight in one run of groups: their head is one byte, as all writers
/// have it.
const MOST_GROUPS: usize = 63;

impl Sequence {
    /// Appends a number so many times.
    pub fn push(&mut self, number: u32, times: u32) {
        match self.runs.last_mut() {
            _ if times == 0 => {}
            Some((last, count)) if *last == number && u32::MAX - *count >= times => *count += times,
            _ => self.runs.push((number, times)),
        }
    }

    /// Appends `count` numbers of `width` bits from a stream.
    ///
    /// Errs `Damaged` when the stream has fewer.
    pub fn read(&mut self, bytes: &[u8], width: u32, count: u32) -> Result<(), Fault> {
        hybrid::visit(bytes, width, count, |number, times| {
            self.push(number, times);
            Ok(())
        })
    }

    /// Appends `count` bits, lowest first.
    ///
    /// Errs `Damaged` when there are fewer.
    pub fn read_bits(&mut self, bytes: &[u8], count: u32) -> Result<(), Fault> {
        let whole =
            bytes.get(..count.div_ceil(8) as usize).ok_or_else(|| Fault::damaged("a page holds fewer values than its levels state"))?;
        let mut left = count;
        for byte in whole {
            let bits = left.min(8);
            left -= bits;
            match byte {
                0 if bits == 8 => self.push(0, 8),
                255 if bits == 8 => self.push(1, 8),
                byte => (0..bits).for_each(|bit| self.push(u32::from(byte >> bit & 1), 1)),
            }
        }
        Ok(())
    }

    /// The runs, given away.
    pub fn into_runs(self) -> impl Iterator<Item = (u32, u32)> {
        self.runs.into_iter()
    }

    /// The runs in order.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().copied()
    }

    /// How many times it holds a number.
    pub fn count(&self, number: u32) -> u64 {
        self.runs().filter(|(held, _)| *held == number).map(|(_, times)| u64::from(times)).sum()
    }

    /// Calls with the numbers of both that stand in the same place, and how many
    /// times, until one of them ends.
    pub fn zip(&self, other: &Self, mut each: impl FnMut(u32, u32, u32)) {
        let (mut ours, mut theirs) = (self.runs(), other.runs());
        let (mut a, mut b) = (ours.next(), theirs.next());
        while let (Some((left, more)), Some((right, others))) = (&mut a, &mut b) {
            let times = (*more).min(*others);
            each(*left, *right, times);
            (*more, *others) = (*more - times, *others - times);
            let (ended, other_ended) = (*more == 0, *others == 0);
            a = if ended { ours.next() } else { a };
            b = if other_ended { theirs.next() } else { b };
        }
    }

    /// The numbers where `mask` is not 0.
    pub fn kept(&self, mask: &Self) -> Self {
        let mut kept = Self::default();
        self.zip(mask, |number, keep, times| kept.push(number, if keep == 0 { 0 } else { times }));
        kept
    }

    /// Appends the numbers as a stream of `width` bits.
    pub fn encode(&self, width: u32, out: &mut Vec<u8>) {
        if width == 0 {
            return;
        }
        let mut open: Vec<u32> = Vec::new();
        for (number, mut times) in self.runs() {
            let short = (8 - open.len() % 8) % 8;
            let fill = times.min(short as u32);
            open.extend(std::iter::repeat_n(number, fill as usize));
            times -= fill;
            if times >= 8 {
                put_groups(&mut open, width, out);
                put_varint(u64::from(times) << 1, out);
                out.extend(number.to_le_bytes().iter().take(width.div_ceil(8) as usize));
            } else {
                open.extend(std::iter::repeat_n(number, times as usize));
            }
        }
        put_groups(&mut open, width, out);
    }

    /// Appends the lowest bit of each number, lowest first.
    pub fn encode_bits(&self, out: &mut Vec<u8>) {
        let (mut byte, mut bits) = (0u8, 0u32);
        for (number, mut times) in self.runs() {
            while times > 0 {
                let taken = times.min(8 - bits);
                let ones = if number & 1 == 1 { (1u16 << taken) - 1 } else { 0 };
                byte |= (ones << bits) as u8;
                (bits, times) = (bits + taken, times - taken);
                if bits == 8 {
                    out.push(std::mem::take(&mut byte));
                    bits = 0;
                }
            }
        }
        if bits > 0 {
            out.push(byte);
        }
    }
}

/// Empties the numbers into groups of eight; zeros fill the last one.
fn put_groups(open: &mut Vec<u32>, width: u32, out: &mut Vec<u8>) {
    for groups in open.chunks(8 * MOST_GROUPS) {
        put_varint((groups.len().div_ceil(8) as u64) << 1 | 1, out);
        hybrid::pack_all(groups, width, out);
    }
    open.clear();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[u32]) -> Sequence {
        let mut sequence = Sequence::default();
        numbers.iter().for_each(|number| sequence.push(*number, 1));
        sequence
    }

    fn numbers(sequence: &Sequence) -> Vec<u32> {
        sequence.runs().flat_map(|(number, times)| std::iter::repeat_n(number, times as usize)).collect()
    }

    fn any_numbers(most: u32) -> impl Strategy<Value = Vec<u32>> {
        let run = (0..=most, prop_oneof![1usize..4, 1usize..30, Just(700)]);
        prop::collection::vec(run, 0..40).prop_map(|runs| runs.into_iter().flat_map(|(n, times)| std::iter::repeat_n(n, times)).collect())
    }

    proptest! {
        #[test]
        fn numbers_read_as_encoded(all in any_numbers(1 << 17), width in 18u32..=32) {
            let mut bytes = Vec::new();
            of(&all).encode(width, &mut bytes);
            let mut back = Sequence::default();
            back.read(&bytes, width, all.len() as u32).unwrap();
            prop_assert_eq!(numbers(&back), all.clone());
            let mut decoded = Vec::new();
            hybrid::decode(&bytes, width, all.len() as u32, &mut decoded).unwrap();
            prop_assert_eq!(decoded, all);
        }

        #[test]
        fn bits_read_as_encoded(all in any_numbers(1)) {
            let mut bytes = Vec::new();
            of(&all).encode_bits(&mut bytes);
            prop_assert_eq!(bytes.len(), all.len().div_ceil(8));
            let mut back = Sequence::default();
            back.read_bits(&bytes, all.len() as u32).unwrap();
            prop_assert_eq!(numbers(&back), all.clone());
            prop_assert!(back.read_bits(&bytes, bytes.len() as u32 * 8 + 1).is_err());
            let mut stream = Vec::new();
            of(&all).encode(1, &mut stream);
            prop_assert_eq!(hybrid::count(&stream, 1, all.len() as u32, 1).unwrap(), all.iter().sum::<u32>());
        }

        #[test]
        fn a_mask_keeps_what_stands_in_its_places(all in any_numbers(5), mask in any_numbers(1)) {
            let expected: Vec<u32> = all.iter().zip(&mask).filter(|(_, keep)| **keep == 1).map(|(n, _)| *n).collect();
            prop_assert_eq!(numbers(&of(&all).kept(&of(&mask))), expected);
            prop_assert_eq!(of(&all).count(3), all.iter().filter(|n| **n == 3).count() as u64);
        }
    }
}
