//! Values in encodings other than `PLAIN` and ids, made `PLAIN`: for pages of which
//! rows are left out.

use parquet::basic::{Encoding, Type};
use parquet::schema::types::ColumnDescriptor;

use super::dictionary::value_bytes;
use super::fault::Fault;
use super::sequence::Sequence;

/// Whether values of this type can be decoded from this encoding.
pub fn decodes(encoding: Encoding, physical: Type) -> bool {
    match encoding {
        Encoding::DELTA_BINARY_PACKED => matches!(physical, Type::INT32 | Type::INT64),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => physical == Type::BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY => matches!(physical, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY),
        Encoding::BYTE_STREAM_SPLIT => {
            matches!(physical, Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE | Type::FIXED_LEN_BYTE_ARRAY)
        }
        Encoding::RLE => physical == Type::BOOLEAN,
        _ => false,
    }
}

/// The `present` values of a page in `PLAIN`, in `most` bytes at most.
///
/// Errs `Unfit` when they are not as the encoding says, or take more: a decoder of
/// whole files may know better.
pub fn plain(encoding: Encoding, bytes: &[u8], present: u32, column: &ColumnDescriptor, most: usize) -> Result<Vec<u8>, Fault> {
    let physical = column.physical_type();
    if !decodes(encoding, physical) {
        return Err(Fault::unfit(format_args!("values of type {physical} are encoded as {encoding}")));
    }
    let count = present as usize;
    if count == 0 {
        return Ok(Vec::new());
    }
    let width = if physical == Type::BOOLEAN { None } else { value_bytes(column)? };
    // so that no count makes room before values are there
    if count > most / width.unwrap_or(1) {
        return Err(too_large(most));
    }
    match encoding {
        Encoding::DELTA_BINARY_PACKED => {
            let (numbers, _) = numbers(bytes, count)?;
            let width = width.unwrap_or(8);
            Ok(numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(width)).collect())
        }
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            let (lengths, rest) = numbers(bytes, count)?;
            arrays(&vec![0; count], &lengths, rest, None, most)
        }
        Encoding::DELTA_BYTE_ARRAY => {
            let (shared, rest) = numbers(bytes, count)?;
            let (lengths, rest) = numbers(rest, count)?;
            arrays(&shared, &lengths, rest, width, most)
        }
        Encoding::BYTE_STREAM_SPLIT => streams(bytes, count, width.unwrap_or(1)),
        _ => flags(bytes, present),
    }
}

fn odd() -> Fault {
    Fault::unfit("rows are deleted, and values are not as their encoding says")
}

fn too_large(most: usize) -> Fault {
    Fault::unfit(format_args!("a page would take more than {most} bytes"))
}

/// Takes a number in groups of seven bits.
fn varint(rest: &mut &[u8]) -> Result<u64, Fault> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or_else(odd)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(odd())
}

/// Takes a number whose lowest bit is its sign.
fn signed(rest: &mut &[u8]) -> Result<i64, Fault> {
    let number = varint(rest)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

fn size(rest: &mut &[u8]) -> Result<usize, Fault> {
    usize::try_from(varint(rest)?).map_err(|_| odd())
}

/// Whether the lengths and differences of a page are well-formed, of as many values as are
/// `present`: some readers take no notice, others refuse the page.
pub fn states(encoding: Encoding, bytes: &[u8], present: u32) -> bool {
    let count = present as usize;
    if count == 0 && bytes.is_empty() {
        return true;
    }
    let streams = match encoding {
        Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => 0,
    };
    let stream = |rest, _| if blocks_fit(rest)? { Ok(numbers(rest, count)?.1) } else { Err(odd()) };
    (0..streams).try_fold(bytes, stream).is_ok()
}

/// Whether blocks and their parts are as long as the format demands.
fn blocks_fit(mut stream: &[u8]) -> Result<bool, Fault> {
    let (block, parts) = (size(&mut stream)?, size(&mut stream)?);
    Ok(block % 128 == 0 && block.checked_div(parts).is_some_and(|part| part > 0 && part % 32 == 0))
}

/// Takes `count` numbers packed by their differences; and what follows them. They
/// add up modulo 2⁶⁴: whoever has fewer bits takes the lower ones.
fn numbers(bytes: &[u8], count: usize) -> Result<(Vec<i64>, &[u8]), Fault> {
    let mut rest = bytes;
    let (block, parts, total) = (size(&mut rest)?, size(&mut rest)?, size(&mut rest)?);
    let mut last = signed(&mut rest)?;
    let part = block.checked_div(parts).filter(|part| *part > 0 && part % 8 == 0).ok_or_else(odd)?;
    if total != count {
        return Err(odd());
    }
    let mut all = Vec::with_capacity(count);
    if count > 0 {
        all.push(last);
    }
    while all.len() < count {
        let least = signed(&mut rest)?;
        let (widths, after) = rest.split_at_checked(parts).ok_or_else(odd)?;
        rest = after;
        for width in widths {
            if all.len() >= count {
                break;
            }
            let length = part.checked_mul(usize::from(*width)).filter(|_| *width <= 64).ok_or_else(odd)? / 8;
            let (packed, after) = rest.split_at_checked(length).ok_or_else(odd)?;
            rest = after;
            for place in 0..part.min(count - all.len()) {
                last = last.wrapping_add(least).wrapping_add(unpack(packed, place, usize::from(*width)) as i64);
                all.push(last);
            }
        }
    }
    Ok((all, rest))
}

/// The number of `width` bits at a place, the lowest bits first.
fn unpack(packed: &[u8], place: usize, width: usize) -> u64 {
    let bit = place * width;
    let bytes = packed.get(bit / 8..).unwrap_or_default().iter().take(9).enumerate();
    let word = bytes.fold(0u128, |word, (at, byte)| word | u128::from(*byte) << (8 * at));
    let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
    (word >> (bit % 8)) as u64 & mask
}

/// Values that share so many bytes with the one before, and the lengths of what
/// follows these.
fn arrays(shared: &[i64], lengths: &[i64], mut rest: &[u8], width: Option<usize>, most: usize) -> Result<Vec<u8>, Fault> {
    let (mut out, mut before) = (Vec::new(), 0..0);
    for (shared, length) in shared.iter().zip(lengths) {
        let (shared, length) = (usize::try_from(*shared).map_err(|_| odd())?, usize::try_from(*length).map_err(|_| odd())?);
        let (own, after) = rest.split_at_checked(length).ok_or_else(odd)?;
        rest = after;
        let whole = shared.saturating_add(length);
        if shared > before.len() || width.is_some_and(|width| width != whole) {
            return Err(odd());
        }
        if out.len().saturating_add(whole).saturating_add(4) > most {
            return Err(too_large(most));
        }
        if width.is_none() {
            out.extend_from_slice(&u32::try_from(whole).map_err(|_| odd())?.to_le_bytes());
        }
        let start = out.len();
        out.extend_from_within(before.start..before.start + shared);
        out.extend_from_slice(own);
        before = start..out.len();
    }
    Ok(out)
}

/// Values of which the first bytes come first, then the second ones, and so on.
fn streams(bytes: &[u8], count: usize, width: usize) -> Result<Vec<u8>, Fault> {
    if count.checked_mul(width) != Some(bytes.len()) {
        return Err(odd());
    }
    let mut out = vec![0; bytes.len()];
    for (stream, bytes) in bytes.chunks_exact(count).enumerate() {
        out.iter_mut().skip(stream).step_by(width).zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
    Ok(out)
}

/// Booleans in runs, behind their length.
fn flags(bytes: &[u8], present: u32) -> Result<Vec<u8>, Fault> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(odd)?;
    let runs = usize::try_from(u32::from_le_bytes(*length)).ok().and_then(|length| rest.get(..length)).ok_or_else(odd)?;
    let (mut flags, mut out) = (Sequence::default(), Vec::new());
    flags.read(runs, 1, present).map_err(|_| odd())?;
    flags.encode_bits(&mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
    use proptest::prelude::*;

    use super::*;

    fn column(text: &str) -> ColumnDescPtr {
        SchemaDescriptor::new(Arc::new(parse_message_type(&format!("message m {{ REQUIRED {text} v; }}")).unwrap())).column(0)
    }

    #[test]
    fn numbers_are_those_of_the_formats_own_example() {
        // 7, 5, 3, 1, 2, 3, 4, 5: differences of -2 and 1, in parts of 8
        let packed = [8, 1, 8, 14, 3, 2, 0b1100_0000, 0b0011_1111];
        let found = plain(Encoding::DELTA_BINARY_PACKED, &packed, 8, &column("INT32"), 1 << 20).unwrap();
        let expected: Vec<u8> = [7i32, 5, 3, 1, 2, 3, 4, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn bytes_apart_are_put_together() {
        let found = plain(Encoding::BYTE_STREAM_SPLIT, &[1, 5, 2, 6, 3, 7, 4, 8], 2, &column("FLOAT"), 1 << 20).unwrap();
        assert_eq!(found, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(plain(Encoding::BYTE_STREAM_SPLIT, &[1; 9], 2, &column("FLOAT"), 1 << 20).is_err());
    }

    #[test]
    fn values_that_take_more_than_is_allowed_are_not_decoded() {
        // "abc", and seven times the same: 0, 3, 3 … bytes are shared, 3, 0, 0 … are own
        let shared = [8, 1, 8, 0, 0, 2, 0b11, 0];
        let own = [8, 1, 8, 6, 5, 2, 0b1111_1100, 0b0011_1111];
        let bytes = [&shared[..], &own, b"abc"].concat();
        let found = plain(Encoding::DELTA_BYTE_ARRAY, &bytes, 8, &column("BYTE_ARRAY"), 56).unwrap();
        assert_eq!(found, [&3u32.to_le_bytes()[..], b"abc"].concat().repeat(8));
        let failure = plain(Encoding::DELTA_BYTE_ARRAY, &bytes, 8, &column("BYTE_ARRAY"), 55).unwrap_err();
        assert_eq!(failure, Fault::unfit("a page would take more than 55 bytes"));
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..200, kind in 0usize..5) {
            let (encoding, text) = [
                (Encoding::DELTA_BINARY_PACKED, "INT64"),
                (Encoding::DELTA_LENGTH_BYTE_ARRAY, "BYTE_ARRAY"),
                (Encoding::DELTA_BYTE_ARRAY, "BYTE_ARRAY"),
                (Encoding::DELTA_BYTE_ARRAY, "FIXED_LEN_BYTE_ARRAY (3)"),
                (Encoding::RLE, "BOOLEAN"),
            ][kind];
            let _ = plain(encoding, &bytes, count, &column(text), 1 << 16);
        }
    }
}
