//! As much of Thrift's compact protocol as page headers need.

use super::fault::Fault;

/// Wire types of a struct's fields.
pub mod wire {
    /// A boolean field that is true; it has no bytes of its own.
    pub const TRUE: u8 = 1;
    /// A boolean field that is false.
    pub const FALSE: u8 = 2;
    /// A 32-bit number.
    pub const I32: u8 = 5;
    /// A struct.
    pub const STRUCT: u8 = 12;
}

/// Structs inside structs that are skipped at most.
const DEEPEST: u8 = 32;

/// Reads values in order.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader from the beginning of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next field's id and wire type; `None` at the struct's end. `last` is
    /// the id before it, 0 at first.
    pub fn field(&mut self, last: &mut i16) -> Result<Option<(i16, u8)>, Fault> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.zigzag()?).ok(),
            step => last.checked_add(i16::from(step)),
        };
        *last = id.ok_or_else(|| Fault::damaged("a page header has a field number out of range"))?;
        Ok(Some((*last, head & 15)))
    }

    /// A number of 32 bits, where the wire type says so.
    pub fn i32(&mut self, kind: u8) -> Result<i32, Fault> {
        let value = if kind == wire::I32 { i32::try_from(self.zigzag()?).ok() } else { None };
        value.ok_or_else(|| Fault::damaged("a page header has another type where a number belongs"))
    }

    /// Skips a field's value.
    pub fn skip(&mut self, kind: u8) -> Result<(), Fault> {
        match kind {
            wire::TRUE | wire::FALSE => Ok(()),
            other => self.skip_value(other, 0),
        }
    }

    fn skip_value(&mut self, kind: u8, depth: u8) -> Result<(), Fault> {
        if depth > DEEPEST {
            return Err(Fault::damaged("a page header is nested too deeply"));
        }
        match kind {
            // Booleans outside a struct, and bytes.
            1..=3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.jump(8),
            8 => {
                let length = self.varint()?;
                self.jump(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                (0..count).try_for_each(|_| self.skip_value(head & 15, depth + 1))
            }
            wire::STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    if !matches!(kind, wire::TRUE | wire::FALSE) {
                        self.skip_value(kind, depth + 1)?;
                    }
                }
                Ok(())
            }
            other => Err(Fault::damaged(format_args!("a page header has a field of unknown type {other}"))),
        }
    }

    fn jump(&mut self, length: u64) -> Result<(), Fault> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length)).filter(|end| *end <= self.bytes.len());
        self.at = end.ok_or_else(cut_short)?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = self.bytes.get(self.at).copied().ok_or_else(cut_short)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let (value, length) = varint(self.bytes.get(self.at..).unwrap_or_default()).ok_or_else(cut_short)?;
        self.at += length;
        Ok(value)
    }

    fn zigzag(&mut self) -> Result<i64, Fault> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }
}

fn cut_short() -> Fault {
    Fault::damaged("a page header ends too early")
}

/// A number of 7 bits a byte, lowest first, and how many bytes it takes; `None`
/// when it does not end, or is over 64 bits.
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        let low = u64::from(byte & 127);
        let shifted = low << (7 * place);
        if shifted >> (7 * place) != low {
            return None;
        }
        value |= shifted;
        if byte & 128 == 0 {
            return Some((value, place + 1));
        }
    }
    None
}

/// Appends a number as [`varint`] reads it.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a struct's fields in ascending order.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    last: u8,
}

impl<'a> Writer<'a> {
    /// A writer that appends a struct.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: 0 }
    }

    /// A number; ids ascend by at most 15.
    pub fn i32(&mut self, id: u8, value: i32) {
        self.head(id, wire::I32);
        put_varint(u64::from((value << 1 ^ value >> 31) as u32), self.out);
    }

    /// A boolean.
    pub fn bool(&mut self, id: u8, value: bool) {
        self.head(id, if value { wire::TRUE } else { wire::FALSE });
    }

    /// A struct, written by `fields`.
    pub fn nested(&mut self, id: u8, fields: impl FnOnce(&mut Writer<'_>)) {
        self.head(id, wire::STRUCT);
        let mut inner = Writer::new(self.out);
        fields(&mut inner);
        inner.end();
    }

    /// Ends the struct.
    pub fn end(self) {
        self.out.push(0);
    }

    fn head(&mut self, id: u8, kind: u8) {
        self.out.push(id.saturating_sub(self.last) << 4 | kind);
        self.last = id;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_read_as_written(value in any::<i32>(), long in any::<u64>(), flag in any::<bool>()) {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            writer.i32(2, value);
            writer.nested(5, |inner| {
                inner.i32(1, value);
                inner.bool(3, flag);
            });
            writer.i32(9, value);
            writer.end();
            let (mut reader, mut last) = (Reader::new(&bytes), 0);
            prop_assert_eq!(reader.field(&mut last).unwrap(), Some((2, wire::I32)));
            prop_assert_eq!(reader.i32(wire::I32).unwrap(), value);
            prop_assert_eq!(reader.field(&mut last).unwrap(), Some((5, wire::STRUCT)));
            reader.skip(wire::STRUCT).unwrap();
            prop_assert_eq!(reader.field(&mut last).unwrap(), Some((9, wire::I32)));
            prop_assert_eq!(reader.i32(wire::I32).unwrap(), value);
            prop_assert_eq!(reader.field(&mut last).unwrap(), None);
            prop_assert_eq!(reader.position(), bytes.len());
            let mut bytes = Vec::new();
            put_varint(long, &mut bytes);
            prop_assert_eq!(varint(&bytes), Some((long, bytes.len())));
        }

        #[test]
        fn no_bytes_bring_a_reader_down(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let (mut reader, mut last) = (Reader::new(&bytes), 0);
            while let Ok(Some((_, kind))) = reader.field(&mut last) {
                if reader.skip(kind).is_err() {
                    break;
                }
            }
            prop_assert!(reader.position() <= bytes.len());
        }
    }

    #[test]
    fn a_number_over_64_bits_is_none() {
        assert_eq!(varint(&[255; 10]), None);
        assert_eq!(varint(&[128]), None);
        assert_eq!(varint(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]), Some((u64::MAX, 10)));
    }
}
