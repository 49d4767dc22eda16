//! Bodies of data pages: levels apart from values.

use std::ops::Range;

use parquet::basic::Encoding;
use parquet::schema::types::ColumnDescriptor;

use super::codec::{Deflater, Inflater};
use super::fault::Fault;
use super::header::{DataV2, Header, Kind};
use super::hybrid;

/// The highest levels of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Definition level of a value that is not NULL.
    pub definition: u32,
    /// Lists and maps around a value.
    pub repetition: u32,
}

impl Levels {
    /// Those of a column.
    pub fn of(column: &ColumnDescriptor) -> Self {
        let level = |level: i16| u32::try_from(level).unwrap_or(0);
        Self { definition: level(column.max_def_level()), repetition: level(column.max_rep_level()) }
    }

    /// Whether pages have levels at all.
    pub fn any(self) -> bool {
        self.definition > 0 || self.repetition > 0
    }
}

/// A data page, decompressed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Levels as the page has them, then values.
    bytes: Vec<u8>,
    /// Bytes of levels.
    split: usize,
    repetition: Range<usize>,
    definition: Range<usize>,
    /// Values that are not NULL.
    pub present: u32,
    /// Rows that begin in the page.
    pub rows: u32,
}

impl Body {
    /// The encoded values.
    pub fn values(&self) -> &[u8] {
        self.bytes.get(self.split..).unwrap_or_default()
    }

    /// Puts other bytes in place of the encoded values.
    pub fn set_values(&mut self, values: &[u8]) {
        self.bytes.truncate(self.split);
        self.bytes.extend_from_slice(values);
    }

    /// Its memory, for the next page.
    pub fn into_room(self) -> Vec<u8> {
        self.bytes
    }

    /// The stream of repetition levels, where the column has them.
    pub fn repetition(&self) -> &[u8] {
        self.bytes.get(self.repetition.clone()).unwrap_or_default()
    }

    /// The stream of definition levels, where the column has them.
    pub fn definition(&self) -> &[u8] {
        self.bytes.get(self.definition.clone()).unwrap_or_default()
    }

    /// The levels, in the page's own form.
    pub fn levels(&self) -> &[u8] {
        self.bytes.get(..self.split).unwrap_or_default()
    }
}

/// Decompresses a page's body and counts by its levels.
///
/// Errs `Damaged` when sizes or counts contradict each other, `Unfit` on
/// levels in the format's first encoding.
pub fn open(
    header: &Header,
    body: &[u8],
    levels: Levels,
    codec: parquet::basic::Compression,
    inflater: &mut Inflater,
) -> Result<Body, Fault> {
    let mut bytes = inflater.room(header.uncompressed);
    let (split, repetition, definition, values) = match header.kind {
        Kind::Data(page) => {
            if levels.repetition > 0 && page.repetition != Encoding::RLE || levels.definition > 0 && page.definition != Encoding::RLE {
                return Err(Fault::unfit("levels are not in runs"));
            }
            inflater.inflate(codec, body, header.uncompressed, &mut bytes)?;
            let mut at = 0;
            let repetition = prefixed(&bytes, levels.repetition, &mut at)?;
            let definition = prefixed(&bytes, levels.definition, &mut at)?;
            (at, repetition, definition, page.values)
        }
        Kind::DataV2(page) => {
            let split = level_bytes(&page);
            let levels = body.get(..split).ok_or_else(contradicts)?;
            bytes.extend_from_slice(levels);
            inflate_values(header, &page, body, codec, inflater, &mut bytes)?;
            (split, 0..page.repetition_bytes, page.repetition_bytes..split, page.values)
        }
        Kind::Dictionary { .. } | Kind::Other => return Err(Fault::damaged("a page without values among the data pages")),
    };
    let part = |range: Range<usize>| bytes.get(range).unwrap_or_default();
    let present = counted(part(definition.clone()), levels.definition, values, levels.definition)?;
    let rows = counted(part(repetition.clone()), levels.repetition, values, 0)?;
    if let Kind::DataV2(page) = header.kind
        && (page.values.checked_sub(page.nulls) != Some(present) || page.rows != rows)
    {
        return Err(Fault::damaged("the levels of a page contradict the counts of its header"));
    }
    Ok(Body { bytes, split, repetition, definition, present, rows })
}

/// How many of a page's levels are `wanted`; all, where a column has none.
fn counted(levels: &[u8], most: u32, values: u32, wanted: u32) -> Result<u32, Fault> {
    if most == 0 { Ok(values) } else { hybrid::count(levels, hybrid::width(most), values, wanted) }
}

fn prefixed(bytes: &[u8], level: u32, at: &mut usize) -> Result<Range<usize>, Fault> {
    if level == 0 {
        return Ok(0..0);
    }
    let from = at.saturating_add(4);
    let length = bytes.get(*at..from).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes).ok_or_else(contradicts)?;
    let end = usize::try_from(length).ok().and_then(|length| from.checked_add(length)).filter(|end| *end <= bytes.len());
    *at = end.ok_or_else(contradicts)?;
    Ok(from..*at)
}

fn level_bytes(page: &DataV2) -> usize {
    page.repetition_bytes.saturating_add(page.definition_bytes)
}

fn inflate_values(
    header: &Header,
    page: &DataV2,
    body: &[u8],
    codec: parquet::basic::Compression,
    inflater: &mut Inflater,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let split = level_bytes(page);
    let values = body.get(split..).ok_or_else(contradicts)?;
    let size = header.uncompressed.checked_sub(split).ok_or_else(contradicts)?;
    let codec = if page.compressed { codec } else { parquet::basic::Compression::UNCOMPRESSED };
    inflater.inflate(codec, values, size, out)
}

fn contradicts() -> Fault {
    Fault::damaged("the sizes of a page and of its levels contradict each other")
}

/// Compresses levels and values as a page of the same kind; its header and
/// body.
///
/// Errs `Unfit` when it would be too large for the format.
pub fn close(kind: &Kind, levels: &[u8], values: &[u8], deflater: &mut Deflater) -> Result<(Header, Vec<u8>), Fault> {
    let uncompressed = levels.len().saturating_add(values.len());
    let mut body = std::mem::take(&mut deflater.room);
    body.clear();
    let kind = match kind {
        Kind::DataV2(page) => {
            let compressed = deflater.codec() != parquet::basic::Compression::UNCOMPRESSED && !values.is_empty();
            body.extend_from_slice(levels);
            if compressed {
                deflater.deflate(values, &mut body)?;
            } else {
                body.extend_from_slice(values);
            }
            Kind::DataV2(DataV2 { compressed, ..*page })
        }
        other if levels.is_empty() => {
            deflater.deflate(values, &mut body)?;
            other.clone()
        }
        other => {
            let mut whole = std::mem::take(&mut deflater.whole);
            whole.clear();
            whole.extend_from_slice(levels);
            whole.extend_from_slice(values);
            deflater.deflate(&whole, &mut body)?;
            deflater.whole = whole;
            other.clone()
        }
    };
    Ok((Header { kind, uncompressed, compressed: body.len(), crc: Some(crc32fast::hash(&body)) }, body))
}

/// The same page compressed by another codec; `None` when it stays as it is.
///
/// Errs as [`open`] and [`close`] do.
pub fn transcode(
    header: &Header,
    body: &[u8],
    codec: parquet::basic::Compression,
    inflater: &mut Inflater,
    deflater: &mut Deflater,
) -> Result<Option<(Header, Vec<u8>)>, Fault> {
    if super::codec::same(codec, deflater.codec()) {
        return Ok(None);
    }
    let mut bytes = std::mem::take(&mut inflater.room);
    bytes.clear();
    let split = match header.kind {
        Kind::DataV2(page) if !page.compressed => return Ok(None),
        Kind::DataV2(page) => {
            bytes.extend_from_slice(body.get(..level_bytes(&page)).ok_or_else(contradicts)?);
            inflate_values(header, &page, body, codec, inflater, &mut bytes)?;
            level_bytes(&page)
        }
        _ => {
            inflater.inflate(codec, body, header.uncompressed, &mut bytes)?;
            0
        }
    };
    let (levels, values) = bytes.split_at_checked(split).ok_or_else(contradicts)?;
    let closed = close(&header.kind, levels, values, deflater);
    inflater.room = bytes;
    closed.map(Some)
}

/// Checks a body against its header's checksum, where it has one.
///
/// Errs `Damaged` when they differ.
pub fn check(header: &Header, body: &[u8]) -> Result<(), Fault> {
    match header.crc {
        Some(crc) if crc32fast::hash(body) != crc => Err(Fault::damaged("a page does not have the checksum that its header states")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use parquet::basic::{Compression, ZstdLevel};

    use super::super::header::Data;
    use super::*;

    const ZSTD: fn() -> Compression = || Compression::ZSTD(ZstdLevel::default());
    const OPTIONAL: Levels = Levels { definition: 1, repetition: 0 };

    fn v1() -> Kind {
        Kind::Data(Data { values: 5, encoding: Encoding::PLAIN, definition: Encoding::RLE, repetition: Encoding::RLE })
    }

    fn v2(nulls: u32) -> Kind {
        let encoding = Encoding::PLAIN;
        Kind::DataV2(DataV2 { values: 5, nulls, rows: 5, encoding, definition_bytes: 2, repetition_bytes: 0, compressed: true })
    }

    /// 1 0 1 1 0 as one bit-packed group.
    const DEFINITION: [u8; 2] = [3, 0b01101];

    #[test]
    fn a_page_of_either_version_opens_as_it_was_closed() {
        let v1_levels = [&[2, 0, 0, 0], DEFINITION.as_slice()].concat();
        for (kind, levels) in [(v1(), v1_levels.as_slice()), (v2(2), DEFINITION.as_slice())] {
            for codec in [Compression::UNCOMPRESSED, ZSTD()] {
                let mut deflater = Deflater::new(codec).unwrap();
                let (header, body) = close(&kind, levels, b"abc", &mut deflater).unwrap();
                check(&header, &body).unwrap();
                let opened = open(&header, &body, OPTIONAL, codec, &mut Inflater::default()).unwrap();
                assert_eq!((opened.levels(), opened.values(), opened.present, opened.rows), (levels, b"abc".as_slice(), 3, 5));
            }
        }
    }

    #[test]
    fn another_codec_leaves_levels_and_values() {
        let mut deflater = Deflater::new(ZSTD()).unwrap();
        let (header, body) = close(&v2(2), &DEFINITION, b"abc", &mut Deflater::new(Compression::SNAPPY).unwrap()).unwrap();
        let (other, packed) = transcode(&header, &body, Compression::SNAPPY, &mut Inflater::default(), &mut deflater).unwrap().unwrap();
        let opened = open(&other, &packed, OPTIONAL, ZSTD(), &mut Inflater::default()).unwrap();
        assert_eq!((opened.levels(), opened.values()), (DEFINITION.as_slice(), b"abc".as_slice()));
        assert_eq!(transcode(&other, &packed, ZSTD(), &mut Inflater::default(), &mut deflater), Ok(None));
    }

    #[test]
    fn a_page_whose_parts_contradict_each_other_is_damaged() {
        let mut deflater = Deflater::new(Compression::UNCOMPRESSED).unwrap();
        let mut opened = |kind: &Kind, levels: &[u8]| {
            let (header, body) = close(kind, levels, b"abc", &mut deflater).unwrap();
            open(&header, &body, OPTIONAL, Compression::UNCOMPRESSED, &mut Inflater::default())
        };
        assert!(matches!(opened(&v2(1), &DEFINITION), Err(Fault::Damaged(_))), "NULLs");
        assert!(matches!(opened(&v1(), &[200, 0, 0, 0]), Err(Fault::Damaged(_))), "levels past the end");
        assert!(matches!(opened(&v1(), &[1, 0, 0, 0, 3]), Err(Fault::Damaged(_))), "levels cut");
        let packed = Kind::Data(Data { values: 5, encoding: Encoding::PLAIN, definition: Encoding::PLAIN, repetition: Encoding::RLE });
        assert_eq!(opened(&packed, &DEFINITION), Err(Fault::Unfit("levels are not in runs".into())));
    }

    #[test]
    fn a_wrong_checksum_is_damage() {
        let (mut header, body) = close(&v2(2), &DEFINITION, b"abc", &mut Deflater::new(ZSTD()).unwrap()).unwrap();
        header.crc = header.crc.map(|crc| crc ^ 1);
        assert!(matches!(check(&header, &body), Err(Fault::Damaged(_))));
    }
}
