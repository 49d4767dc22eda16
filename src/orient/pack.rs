//! A partition in few bytes: its key, its sums, and what was heard of it.
//!
//! Keys are packed so that the order of their bytes is the order of
//! [`PartitionKey`]. A row is `flags (1) · tiers (2) · the sums that are not all
//! zero · what was heard`, numbers as variable-length integers; one state has
//! one encoding.

use std::sync::Arc;

use super::history::Heard;
use crate::model::layout::{PartitionLayout, TIERS, Tally, Tier};
use crate::model::partition::{PartitionKey, Value};
use crate::model::writers::Cadence;

const NULL: u8 = 1;
const BOOL: u8 = 2;
const INT: u8 = 3;
const LONG: u8 = 4;
const FLOAT: u8 = 5;
const DOUBLE: u8 = 6;
const DECIMAL: u8 = 7;
const STRING: u8 = 8;
const BYTES: u8 = 9;
const UUID: u8 = 10;

/// Ends a text: less than any byte of a longer one, of which a zero is written `0 255`.
const END: [u8; 2] = [0, 0];

/// A key in bytes.
pub fn key(key: &PartitionKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    out.extend(flip32(key.spec_id).to_be_bytes());
    for value in key.tuple.iter() {
        put_value(&mut out, value.as_ref());
    }
    out
}

/// The key in the bytes; `None` when they are no key.
pub fn read_key(bytes: &[u8]) -> Option<PartitionKey> {
    let mut input = Input(bytes);
    let spec_id = unflip32(u32::from_be_bytes(input.array()?));
    let mut tuple = Vec::new();
    while !input.0.is_empty() {
        tuple.push(input.value()?);
    }
    Some(PartitionKey { spec_id, tuple: tuple.into() })
}

fn put_value(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => out.push(NULL),
        Some(Value::Bool(v)) => out.extend([BOOL, u8::from(*v)]),
        Some(Value::Int(v)) => put(out, INT, &flip32(*v).to_be_bytes()),
        Some(Value::Long(v)) => put(out, LONG, &((*v as u64) ^ (1 << 63)).to_be_bytes()),
        Some(Value::Float(v)) => put(out, FLOAT, &v.to_be_bytes()),
        Some(Value::Double(v)) => put(out, DOUBLE, &v.to_be_bytes()),
        Some(Value::Decimal(v)) => put(out, DECIMAL, &((*v as u128) ^ (1 << 127)).to_be_bytes()),
        Some(Value::String(v)) => put_text(out, STRING, v.as_bytes()),
        Some(Value::Bytes(v)) => put_text(out, BYTES, v),
        Some(Value::Uuid(v)) => put(out, UUID, &v.to_be_bytes()),
    }
}

fn put(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.extend(bytes);
}

fn put_text(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    for byte in text {
        out.push(*byte);
        if *byte == 0 {
            out.push(u8::MAX);
        }
    }
    out.extend(END);
}

/// Signed numbers in the order of unsigned ones.
fn flip32(v: i32) -> u32 {
    (v as u32) ^ (1 << 31)
}

fn unflip32(v: u32) -> i32 {
    (v ^ (1 << 31)) as i32
}

const HAS_DATA: u8 = 1;
const HAS_UNDER: u8 = 1 << 1;
const HAS_POSITION: u8 = 1 << 2;
const HAS_EQUALITY: u8 = 1 << 3;
const HAS_VECTORS: u8 = 1 << 4;
const HAS_HEARD: u8 = 1 << 5;
const HAS_FOREIGN: u8 = 1 << 6;
const HAS_CADENCE: u8 = 1 << 7;

/// A partition's sums, and what was heard of it, in bytes.
pub fn row(layout: &PartitionLayout, heard: Option<&Heard>) -> Vec<u8> {
    let mut out = vec![0; 3];
    let mut flags = 0;
    let mut tally = |out: &mut Vec<u8>, flag: u8, tally: &Tally| {
        if *tally != Tally::default() {
            flags |= flag;
            [tally.files, tally.bytes, tally.records].into_iter().for_each(|v| put_u64(out, v));
        }
    };
    tally(&mut out, HAS_DATA, &layout.data);
    tally(&mut out, HAS_POSITION, &layout.position_deletes);
    tally(&mut out, HAS_EQUALITY, &layout.equality_deletes);
    tally(&mut out, HAS_VECTORS, &layout.deletion_vectors);
    if (layout.under_target, layout.under_target_bytes, layout.under_target_squares) != (0, 0, 0) {
        flags |= HAS_UNDER;
        put_u64(&mut out, layout.under_target);
        put_u64(&mut out, layout.under_target_bytes);
        put_u128(&mut out, layout.under_target_squares);
    }
    let mut tiers = 0_u16;
    for (at, tier) in layout.small.iter().enumerate().filter(|(_, tier)| **tier != Tier::default()) {
        tiers |= 1 << at;
        put_u64(&mut out, tier.files.into());
        put_u64(&mut out, tier.bytes);
    }
    if let Some(heard) = heard {
        flags |= HAS_HEARD | if heard.last_foreign_ms.is_some() { HAS_FOREIGN } else { 0 };
        flags |= if heard.cadence == Cadence::default() { 0 } else { HAS_CADENCE };
        put_heard(&mut out, heard);
    }
    let head = [flags, tiers.to_le_bytes()[0], tiers.to_le_bytes()[1]];
    out.iter_mut().zip(head).for_each(|(byte, value)| *byte = value);
    out
}

/// The moments are told as distances, which are small.
fn put_heard(out: &mut Vec<u8>, heard: &Heard) {
    put_i64(out, heard.known_since_ms);
    out.extend(heard.rate.to_bits().to_le_bytes());
    put_i64(out, heard.rate_ms.wrapping_sub(heard.known_since_ms));
    if let Some(last) = heard.last_foreign_ms {
        put_i64(out, last.wrapping_sub(heard.rate_ms));
    }
    put_u64(out, heard.user_bytes);
    put_u64(out, heard.rewritten_bytes);
    let Cadence { commits, gap_ms, spread_ms, written_ms, heard_ms } = heard.cadence;
    if heard.cadence != Cadence::default() {
        put_u64(out, commits.into());
        put_i64(out, gap_ms);
        put_i64(out, spread_ms);
        put_i64(out, heard_ms.wrapping_sub(heard.rate_ms));
        put_i64(out, written_ms.wrapping_sub(heard_ms));
    }
}

/// The row in the bytes; `None` when they are no row.
pub fn read_row(bytes: &[u8]) -> Option<(PartitionLayout, Option<Heard>)> {
    let mut input = Input(bytes);
    let [flags, low, high] = input.array()?;
    let tiers = u16::from_le_bytes([low, high]);
    let mut layout = PartitionLayout::default();
    let sums = [
        (HAS_DATA, &mut layout.data),
        (HAS_POSITION, &mut layout.position_deletes),
        (HAS_EQUALITY, &mut layout.equality_deletes),
        (HAS_VECTORS, &mut layout.deletion_vectors),
    ];
    for (flag, tally) in sums {
        if flags & flag != 0 {
            *tally = Tally { files: input.u64()?, bytes: input.u64()?, records: input.u64()? };
        }
    }
    if flags & HAS_UNDER != 0 {
        layout.under_target = input.u64()?;
        layout.under_target_bytes = input.u64()?;
        layout.under_target_squares = input.u128()?;
    }
    for (at, tier) in layout.small.iter_mut().enumerate() {
        if tiers & (1 << at) != 0 {
            *tier = Tier { files: u32::try_from(input.u64()?).ok()?, bytes: input.u64()? };
        }
    }
    let heard = if flags & HAS_HEARD != 0 { Some(input.heard(flags)?) } else { None };
    let known = u16::MAX >> (16 - TIERS);
    (input.0.is_empty() && tiers <= known).then_some((layout, heard))
}

/// Appends a number, seven bits a byte, the lowest first.
pub fn put_u64(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn put_u128(out: &mut Vec<u8>, mut v: u128) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends a number whose sign is in its lowest bit.
fn put_i64(out: &mut Vec<u8>, v: i64) {
    put_u64(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Appends bytes behind their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Bytes still to be read.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// A number of seven bits a byte.
    pub fn u64(&mut self) -> Option<u64> {
        u64::try_from(self.u128()?).ok()
    }

    fn u128(&mut self) -> Option<u128> {
        let mut v = 0;
        for shift in (0..128).step_by(7) {
            let [byte] = self.array()?;
            let bits = u128::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return None;
            }
            v |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(v);
            }
        }
        None
    }

    fn i64(&mut self) -> Option<i64> {
        let raw = self.u64()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.u64()?).ok()?;
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn value(&mut self) -> Option<Option<Value>> {
        let [kind] = self.array()?;
        Some(Some(match kind {
            NULL => return Some(None),
            BOOL => Value::Bool(self.array::<1>()? != [0]),
            INT => Value::Int(unflip32(u32::from_be_bytes(self.array()?))),
            LONG => Value::Long((u64::from_be_bytes(self.array()?) ^ (1 << 63)) as i64),
            FLOAT => Value::Float(u32::from_be_bytes(self.array()?)),
            DOUBLE => Value::Double(u64::from_be_bytes(self.array()?)),
            DECIMAL => Value::Decimal((u128::from_be_bytes(self.array()?) ^ (1 << 127)) as i128),
            STRING => Value::String(Arc::from(String::from_utf8(self.text()?).ok()?)),
            BYTES => Value::Bytes(self.text()?.into()),
            UUID => Value::Uuid(u128::from_be_bytes(self.array()?)),
            _ => return None,
        }))
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.array()? {
                [0] => match self.array()? {
                    [0] => return Some(text),
                    [u8::MAX] => text.push(0),
                    [_] => return None,
                },
                [byte] => text.push(byte),
            }
        }
    }

    fn heard(&mut self, flags: u8) -> Option<Heard> {
        let known_since_ms = self.i64()?;
        let rate = f64::from_bits(u64::from_le_bytes(self.array()?));
        let rate_ms = known_since_ms.wrapping_add(self.i64()?);
        let foreign = flags & HAS_FOREIGN != 0;
        let last_foreign_ms = if foreign { Some(rate_ms.wrapping_add(self.i64()?)) } else { None };
        let (user_bytes, rewritten_bytes) = (self.u64()?, self.u64()?);
        let cadence = if flags & HAS_CADENCE != 0 { self.cadence(rate_ms)? } else { Cadence::default() };
        Some(Heard { known_since_ms, rate, rate_ms, last_foreign_ms, user_bytes, rewritten_bytes, cadence })
    }

    fn cadence(&mut self, rate_ms: i64) -> Option<Cadence> {
        let (commits, gap_ms, spread_ms) = (u32::try_from(self.u64()?).ok()?, self.i64()?, self.i64()?);
        let heard_ms = rate_ms.wrapping_add(self.i64()?);
        Some(Cadence { commits, gap_ms, spread_ms, heard_ms, written_ms: heard_ms.wrapping_add(self.i64()?) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Option<Value>> {
        let text = prop_oneof!["[\u{0}\u{1}a-cüÿ]{0,4}", any::<String>()];
        let bytes = prop_oneof![proptest::collection::vec(0_u8..3, 0..4), proptest::collection::vec(any::<u8>(), 0..9)];
        let small = -2_i32..3;
        proptest::option::of(prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            prop_oneof![small, any::<i32>()].prop_map(Value::Int),
            prop_oneof![-2_i64..3, any::<i64>()].prop_map(Value::Long),
            any::<u32>().prop_map(Value::Float),
            any::<u64>().prop_map(Value::Double),
            prop_oneof![-2_i128..3, any::<i128>()].prop_map(Value::Decimal),
            text.prop_map(|v| Value::String(v.into())),
            bytes.prop_map(|v| Value::Bytes(v.into())),
            any::<u128>().prop_map(Value::Uuid),
        ])
    }

    fn any_key() -> impl Strategy<Value = PartitionKey> {
        let tuple = proptest::collection::vec(value(), 0..4);
        (prop_oneof![-2_i32..3, any::<i32>()], tuple).prop_map(|(spec_id, tuple)| PartitionKey { spec_id, tuple: tuple.into() })
    }

    fn tally() -> impl Strategy<Value = Tally> {
        let number = || prop_oneof![Just(0_u64), 0..300_u64, any::<u64>()];
        (number(), number(), number()).prop_map(|(files, bytes, records)| Tally { files, bytes, records })
    }

    fn any_row() -> impl Strategy<Value = (PartitionLayout, Option<Heard>)> {
        let tier =
            prop_oneof![3 => Just(Tier::default()), 1 => (any::<u32>(), any::<u64>()).prop_map(|(files, bytes)| Tier { files, bytes })];
        let small = proptest::collection::vec(tier, TIERS).prop_map(|tiers| {
            let mut small = [Tier::default(); TIERS];
            small.copy_from_slice(&tiers);
            small
        });
        let squares = prop_oneof![Just(0_u128), any::<u128>()];
        let layout = (tally(), small, any::<u64>(), any::<u64>(), squares, (tally(), tally(), tally()));
        let layout = layout.prop_map(|(data, small, under_target, under_target_bytes, under_target_squares, deletes)| PartitionLayout {
            data,
            small,
            under_target,
            under_target_bytes,
            under_target_squares,
            position_deletes: deletes.0,
            equality_deletes: deletes.1,
            deletion_vectors: deletes.2,
        });
        let rhythm = (any::<u32>(), any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>());
        let rhythm = rhythm.prop_map(|(commits, gap_ms, spread_ms, written_ms, heard_ms)| Cadence {
            commits,
            gap_ms,
            spread_ms,
            written_ms,
            heard_ms,
        });
        let rhythm = prop_oneof![Just(Cadence::default()), rhythm];
        let heard = (any::<i64>(), -1e9_f64..1e9, any::<i64>(), any::<Option<i64>>(), any::<u64>(), any::<u64>(), rhythm);
        let heard = heard.prop_map(|(known_since_ms, rate, rate_ms, last_foreign_ms, user_bytes, rewritten_bytes, cadence)| Heard {
            known_since_ms,
            rate,
            rate_ms,
            last_foreign_ms,
            user_bytes,
            rewritten_bytes,
            cadence,
        });
        (layout, proptest::option::of(heard))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn packed_keys_stand_in_the_order_of_keys(a in any_key(), b in any_key()) {
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            prop_assert_eq!(read_key(&key(&a)), Some(a));
        }

        #[test]
        fn a_row_comes_back_whole((layout, heard) in any_row()) {
            prop_assert_eq!(read_row(&row(&layout, heard.as_ref())), Some((layout, heard)));
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (read_key(&bytes), read_row(&bytes));
        }
    }

    #[test]
    fn a_partition_of_one_file_and_one_commit_takes_few_bytes() {
        let mut layout = PartitionLayout::default();
        let scale = crate::model::layout::SizeScale { target: 512 << 20, small_permille: 750 };
        layout.add(&scale, crate::model::file::Content::Data, 1 << 20, 10_000).unwrap();
        let now_ms = 1_750_000_000_000;
        let heard = Heard { rate: 0.7, rate_ms: now_ms, last_foreign_ms: Some(now_ms), user_bytes: 1 << 20, ..Heard::nothing(now_ms - 9) };
        assert_eq!((row(&layout, None).len(), row(&layout, Some(&heard)).len()), (23, 43));
    }
}
