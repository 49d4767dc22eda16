//! Page headers, read and written.

use parquet::basic::{Encoding, PageType};

use super::fault::Fault;
use super::thrift::{Reader, Writer, wire};

/// A page's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the page holds.
    pub kind: Kind,
    /// Bytes of the page's body when inflated, levels included.
    pub uncompressed: usize,
    /// Bytes of its body in the file.
    pub compressed: usize,
    /// Checksum (CRC-32) of the body in the file, where told.
    pub crc: Option<u32>,
}

/// What a page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The values that the ids of later pages stand for.
    Dictionary {
        /// How many.
        values: u32,
        /// `PLAIN`, or `PLAIN_DICTIONARY` with the same meaning.
        encoding: Encoding,
    },
    /// Values of a column, compressed together with their levels.
    Data(Data),
    /// Values of a column, compressed apart from their levels.
    DataV2(DataV2),
    /// A page that holds no values.
    Other,
}

/// A data page of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Values, NULLs included.
    pub values: u32,
    /// Encoding of the values.
    pub encoding: Encoding,
    /// Encoding of the definition levels.
    pub definition: Encoding,
    /// Encoding of the repetition levels.
    pub repetition: Encoding,
}

/// A data page of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataV2 {
    /// Values, NULLs included.
    pub values: u32,
    /// NULLs.
    pub nulls: u32,
    /// Rows.
    pub rows: u32,
    /// Encoding of the values.
    pub encoding: Encoding,
    /// Bytes of the definition levels.
    pub definition_bytes: usize,
    /// Bytes of the repetition levels, in front of the definition levels.
    pub repetition_bytes: usize,
    /// Whether the values are compressed.
    pub compressed: bool,
}

impl Header {
    /// Reads a header at the beginning of these bytes; also its length.
    ///
    /// Errs `Damaged` when it does not parse, lacks a field that the format
    /// requires, or has a negative size.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), Fault> {
        let mut reader = Reader::new(bytes);
        let (mut top, mut inner, mut last) = (Fields::default(), None, 0);
        while let Some((id, kind)) = reader.field(&mut last)? {
            match (id, kind) {
                (5 | 7 | 8, wire::STRUCT) => inner = Some((id, Fields::read(&mut reader)?)),
                (1..=4, kind) => top.set(id, reader.i32(kind)?),
                (_, kind) => reader.skip(kind)?,
            }
        }
        let kind = match (top.get(1)?, inner) {
            (0, Some((5, fields))) => Kind::Data(Data {
                values: fields.count(1)?,
                encoding: encoding(fields.get(2)?)?,
                definition: encoding(fields.get(3)?)?,
                repetition: encoding(fields.get(4)?)?,
            }),
            (2, Some((7, fields))) => Kind::Dictionary { values: fields.count(1)?, encoding: encoding(fields.get(2)?)? },
            (3, Some((8, fields))) => Kind::DataV2(DataV2 {
                values: fields.count(1)?,
                nulls: fields.count(2)?,
                rows: fields.count(3)?,
                encoding: encoding(fields.get(4)?)?,
                definition_bytes: fields.size(5)?,
                repetition_bytes: fields.size(6)?,
                compressed: fields.flag.unwrap_or(true),
            }),
            (0 | 2 | 3, _) => return Err(Fault::damaged("a page header does not describe its page")),
            _ => Kind::Other,
        };
        let crc = top.get(4).ok().map(|crc| crc as u32);
        Ok((Self { kind, uncompressed: top.size(2)?, compressed: top.size(3)?, crc }, reader.position()))
    }

    /// Appends the header.
    ///
    /// Errs `Unfit` when a size is over the format's 31 bits.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (uncompressed, compressed) = (small(self.uncompressed)?, small(self.compressed)?);
        let mut writer = Writer::new(out);
        writer.i32(1, self.page_type() as i32);
        writer.i32(2, uncompressed);
        writer.i32(3, compressed);
        if let Some(crc) = self.crc {
            writer.i32(4, crc as i32);
        }
        match self.kind {
            Kind::Dictionary { values, encoding } => {
                let values = small(values)?;
                writer.nested(7, |inner| {
                    inner.i32(1, values);
                    inner.i32(2, encoding as i32);
                });
            }
            Kind::Data(page) => {
                let values = small(page.values)?;
                writer.nested(5, |inner| {
                    inner.i32(1, values);
                    inner.i32(2, page.encoding as i32);
                    inner.i32(3, page.definition as i32);
                    inner.i32(4, page.repetition as i32);
                });
            }
            Kind::DataV2(page) => {
                let numbers = [small(page.values)?, small(page.nulls)?, small(page.rows)?, page.encoding as i32];
                let levels = [small(page.definition_bytes)?, small(page.repetition_bytes)?];
                writer.nested(8, |inner| {
                    (1..).zip(numbers.into_iter().chain(levels)).for_each(|(id, value)| inner.i32(id, value));
                    inner.bool(7, page.compressed);
                });
            }
            Kind::Other => return Err(Fault::unfit("a page of unknown kind")),
        }
        writer.end();
        Ok(())
    }

    /// The page's type as the footer counts it.
    pub fn page_type(&self) -> PageType {
        match self.kind {
            Kind::Dictionary { .. } => PageType::DICTIONARY_PAGE,
            Kind::Data(_) => PageType::DATA_PAGE,
            Kind::DataV2(_) => PageType::DATA_PAGE_V2,
            Kind::Other => PageType::INDEX_PAGE,
        }
    }
}

impl Kind {
    /// Values and their encoding, of a data page.
    pub fn data(&self) -> Option<(u32, Encoding)> {
        match self {
            Self::Data(page) => Some((page.values, page.encoding)),
            Self::DataV2(page) => Some((page.values, page.encoding)),
            Self::Dictionary { .. } | Self::Other => None,
        }
    }

    /// The same page with its values encoded otherwise.
    pub fn encoded(&self, encoding: Encoding) -> Self {
        match self {
            Self::Data(page) => Self::Data(Data { encoding, ..*page }),
            Self::DataV2(page) => Self::DataV2(DataV2 { encoding, ..*page }),
            Self::Dictionary { values, .. } => Self::Dictionary { values: *values, encoding },
            Self::Other => Self::Other,
        }
    }
}

/// Whether values of this encoding are ids of a dictionary.
#[allow(deprecated)]
pub fn is_dictionary(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY)
}

/// The numbers of a struct by field id, and its only boolean.
#[derive(Default)]
struct Fields {
    numbers: [Option<i32>; 8],
    flag: Option<bool>,
}

impl Fields {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (mut fields, mut last) = (Self::default(), 0);
        while let Some((id, kind)) = reader.field(&mut last)? {
            match (id, kind) {
                (1..=6, wire::I32) => fields.set(id, reader.i32(kind)?),
                (7, wire::TRUE | wire::FALSE) => fields.flag = Some(kind == wire::TRUE),
                _ => reader.skip(kind)?,
            }
        }
        Ok(fields)
    }

    fn set(&mut self, id: i16, value: i32) {
        let place = usize::try_from(id).ok().and_then(|id| self.numbers.get_mut(id));
        if let Some(place) = place {
            *place = Some(value);
        }
    }

    fn get(&self, id: usize) -> Result<i32, Fault> {
        self.numbers.get(id).copied().flatten().ok_or_else(|| Fault::damaged(format_args!("a page header lacks its field {id}")))
    }

    fn count(&self, id: usize) -> Result<u32, Fault> {
        u32::try_from(self.get(id)?).map_err(|_| Fault::damaged("a page header has a negative count"))
    }

    fn size(&self, id: usize) -> Result<usize, Fault> {
        usize::try_from(self.get(id)?).map_err(|_| Fault::damaged("a page header has a negative size"))
    }
}

#[allow(deprecated)]
const ENCODINGS: &[Encoding] = &[
    Encoding::PLAIN,
    Encoding::PLAIN_DICTIONARY,
    Encoding::RLE,
    Encoding::BIT_PACKED,
    Encoding::DELTA_BINARY_PACKED,
    Encoding::DELTA_LENGTH_BYTE_ARRAY,
    Encoding::DELTA_BYTE_ARRAY,
    Encoding::RLE_DICTIONARY,
    Encoding::BYTE_STREAM_SPLIT,
];

fn encoding(code: i32) -> Result<Encoding, Fault> {
    let found = ENCODINGS.iter().find(|encoding| **encoding as i32 == code);
    found.copied().ok_or_else(|| Fault::damaged(format_args!("a page has the unknown encoding {code}")))
}

fn small(value: impl TryInto<i32>) -> Result<i32, Fault> {
    value.try_into().map_err(|_| Fault::unfit("a page of 2 GiB or more"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_encoding() -> impl Strategy<Value = Encoding> {
        prop::sample::select(ENCODINGS)
    }

    fn any_kind() -> impl Strategy<Value = Kind> {
        let count = 0u32..=i32::MAX as u32;
        let size = 0usize..=i32::MAX as usize;
        let dictionary = (count.clone(), any_encoding()).prop_map(|(values, encoding)| Kind::Dictionary { values, encoding });
        let levels = (any_encoding(), any_encoding());
        let data = (count.clone(), any_encoding(), levels)
            .prop_map(|(values, encoding, (definition, repetition))| Kind::Data(Data { values, encoding, definition, repetition }));
        let second = (count.clone(), count.clone(), count, any_encoding(), size.clone(), size, any::<bool>()).prop_map(
            |(values, nulls, rows, encoding, definition_bytes, repetition_bytes, compressed)| {
                Kind::DataV2(DataV2 { values, nulls, rows, encoding, definition_bytes, repetition_bytes, compressed })
            },
        );
        prop_oneof![dictionary, data, second]
    }

    proptest! {
        #[test]
        fn a_header_reads_as_written(
            kind in any_kind(),
            uncompressed in 0..=i32::MAX as usize,
            compressed in 0..=i32::MAX as usize,
            crc in prop::option::of(any::<u32>()),
            tail in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let header = Header { kind, uncompressed, compressed, crc };
            let mut bytes = Vec::new();
            header.write(&mut bytes).unwrap();
            let length = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(Header::read(&bytes).unwrap(), (header, length));
        }

        #[test]
        fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::read(&bytes);
        }
    }

    #[test]
    fn a_header_that_is_cut_or_contradicts_itself_is_damaged() {
        let header = Header { kind: Kind::Dictionary { values: 3, encoding: Encoding::PLAIN }, uncompressed: 9, compressed: 8, crc: None };
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        for cut in 0..bytes.len() {
            assert!(matches!(Header::read(&bytes[..cut]), Err(Fault::Damaged(_))), "{cut}");
        }
        // A data page that describes a dictionary.
        bytes[1] = 0;
        assert_eq!(Header::read(&bytes), Err(Fault::Damaged("a page header does not describe its page".into())));
    }
}
