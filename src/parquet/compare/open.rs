//! A page decompressed, and its levels and values read in order.

use std::ops::Range;

use parquet::basic::{Compression, Encoding, Type};
use parquet::schema::types::ColumnDescriptor;

use super::decode;
use super::ends::{Ends, Order};
use super::stream::Stream;
use super::walk::Page;
use super::{Trouble, Which};
use crate::parquet::codec::Inflater;
use crate::parquet::header::{Kind, is_dictionary};

/// What a column's pages are read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Definition level of a value that is not NULL.
    pub definition: u32,
    /// Lists and maps around a value.
    pub repetition: u32,
    /// The physical type.
    pub physical: Type,
    /// Bytes of a value; `None` where each has its length in front.
    pub width: Option<usize>,
    /// How its values compare.
    pub order: Order,
}

impl Column {
    /// That of a column of a file.
    pub fn of(column: &ColumnDescriptor) -> Result<Self, Trouble> {
        let level = |level: i16| u32::try_from(level).map_err(|_| Trouble::wrong("a column of a negative level"));
        let width = match column.physical_type() {
            Type::INT32 | Type::FLOAT => Some(4),
            Type::INT64 | Type::DOUBLE => Some(8),
            Type::INT96 => Some(12),
            Type::BOOLEAN | Type::BYTE_ARRAY => None,
            Type::FIXED_LEN_BYTE_ARRAY => {
                let width = usize::try_from(column.type_length()).ok().filter(|width| *width > 0);
                Some(width.ok_or_else(|| Trouble::wrong("a column of no width"))?)
            }
        };
        Ok(Self {
            definition: level(column.max_def_level())?,
            repetition: level(column.max_rep_level())?,
            physical: column.physical_type(),
            width,
            order: Order::of(column),
        })
    }

    /// Whether a row is a value.
    pub fn is_flat(&self) -> bool {
        self.repetition == 0
    }
}

/// How the values of a page lie in it.
#[derive(Clone, Debug)]
enum Form {
    /// As many bytes each.
    Fixed(usize),
    /// Each behind its length.
    Var,
    /// Ids of a dictionary.
    Ids(Stream),
    /// Booleans.
    Flags(Stream),
    /// Ids or booleans, put together from a page that was cut.
    Numbers { all: Vec<u32>, at: usize, ids: bool },
    /// In an encoding that is not read here.
    Other(Encoding),
}

/// The next values of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// In `PLAIN`, in this part of the page's bytes.
    Plain(Range<usize>),
    /// Ids, in the buffer.
    Ids,
    /// Booleans, in the buffer.
    Flags,
}

/// A page, decompressed; its values are taken in order.
#[derive(Clone, Debug)]
pub struct Open {
    /// Levels and values.
    pub bytes: Vec<u8>,
    /// Values that are left, NULLs included.
    pub left: u32,
    repetition: Levels,
    definition: Levels,
    form: Form,
    /// Where the next value in `PLAIN` begins.
    at: usize,
    /// Values of the page as it was found; `None` when it was cut.
    total: Option<u32>,
    /// Whether its levels are apart from its values, and where they end.
    layout: (bool, usize, usize),
    /// Most bytes that its values may take.
    most: usize,
}

/// Levels of one kind.
#[derive(Clone, Debug)]
enum Levels {
    /// The column has none.
    None,
    /// As the page has them; the rest of a run that was begun.
    Stream(Stream, (u32, u32)),
    /// Put together: runs, and how far they were taken.
    Runs(Vec<(u32, u32)>, usize),
}

impl Levels {
    fn peek(&mut self, page: &[u8], most: u32) -> Result<(u32, u32), Trouble> {
        match self {
            Self::None => Ok((0, most)),
            Self::Stream(stream, rest) => {
                if rest.1 == 0 {
                    *rest = stream.run(page, most)?;
                }
                Ok(*rest)
            }
            Self::Runs(runs, at) => runs.get(*at).copied().ok_or_else(|| Trouble::wrong("levels of a page end too early")),
        }
    }

    fn skip(&mut self, times: u32) {
        match self {
            Self::None => {}
            Self::Stream(_, rest) => rest.1 = rest.1.saturating_sub(times),
            Self::Runs(runs, at) => {
                if let Some(run) = runs.get_mut(*at) {
                    run.1 = run.1.saturating_sub(times);
                    *at += usize::from(run.1 == 0);
                }
            }
        }
    }
}

impl Open {
    /// Decompresses a page. `body` are its bytes in the file; `room` is used again, and
    /// bounds what its values may take.
    pub fn new(
        page: &Page,
        body: &[u8],
        codec: Compression,
        column: &Column,
        inflater: &mut Inflater,
        (mut bytes, most): (Vec<u8>, usize),
    ) -> Result<Self, Trouble> {
        bytes.clear();
        let (repetition, definition, encoding) = match page.header.kind {
            Kind::Data(data) => {
                inflater.inflate(codec, body, page.header.uncompressed, &mut bytes)?;
                let repetition = behind_length(&bytes, 0, column.repetition, data.repetition)?;
                let definition = behind_length(&bytes, repetition.end, column.definition, data.definition)?;
                (repetition, definition, data.encoding)
            }
            Kind::DataV2(data) => {
                let split = data.repetition_bytes.saturating_add(data.definition_bytes);
                bytes.extend_from_slice(body.get(..split).ok_or_else(|| Trouble::wrong("levels longer than their page"))?);
                let codec = if data.compressed { codec } else { Compression::UNCOMPRESSED };
                let size = page.header.uncompressed.checked_sub(split).ok_or_else(|| Trouble::wrong("levels longer than their page"))?;
                inflater.inflate(codec, body.get(split..).unwrap_or_default(), size, &mut bytes)?;
                (0..data.repetition_bytes, data.repetition_bytes..split, data.encoding)
            }
            Kind::Dictionary { .. } | Kind::Other => return Err(Trouble::wrong("a page without values among the data pages")),
        };
        let at = definition.end;
        let levels = |range: Range<usize>, most: u32| -> Result<Levels, Trouble> {
            if most == 0 {
                return Ok(Levels::None);
            }
            Ok(Levels::Stream(Stream::new(range, u32::BITS - most.leading_zeros())?, (0, 0)))
        };
        let form = form(&bytes, at, encoding, column)?;
        let layout = (matches!(page.header.kind, Kind::DataV2(_)), repetition.end, definition.end);
        let (repetition, definition) = (levels(repetition, column.repetition)?, levels(definition, column.definition)?);
        Ok(Self { left: page.values(), repetition, definition, form, at, total: Some(page.values()), layout, most, bytes })
    }

    /// Whether its values are ids of a dictionary.
    pub fn has_ids(&self) -> bool {
        matches!(self.form, Form::Ids(_) | Form::Numbers { ids: true, .. })
    }

    /// Whether both are whole, untouched, and the same byte for byte, in an
    /// encoding that is not read here.
    pub fn is_other_same(&self, other: &Self) -> bool {
        let untouched = |open: &Self| open.total == Some(open.left);
        let encodings = match (&self.form, &other.form) {
            (Form::Other(a), Form::Other(b)) => a == b,
            _ => false,
        };
        encodings
            && untouched(self)
            && untouched(other)
            && (self.left, self.layout) == (other.left, other.layout)
            && self.bytes == other.bytes
    }

    /// Decodes values in an encoding that is not read here, of an untouched page.
    ///
    /// Errs when they are not as many as its levels state, or take too much memory.
    pub fn settle(&mut self, column: &Column) -> Result<(), Trouble> {
        let Form::Other(encoding) = self.form else { return Ok(()) };
        let present = self.present(column)?;
        let plain = decode::plain(encoding, self.bytes.get(self.at..).unwrap_or_default(), present, column, self.most)?;
        self.bytes.truncate(self.at);
        self.bytes.extend_from_slice(&plain);
        self.form = column.width.map_or(Form::Var, Form::Fixed);
        Ok(())
    }

    /// Values that are left and not NULL.
    fn present(&self, column: &Column) -> Result<u32, Trouble> {
        let (mut levels, mut left, mut present) = (self.definition.clone(), self.left, 0);
        while left > 0 {
            let (level, times) = levels.peek(&self.bytes, left)?;
            let times = times.min(left);
            if times == 0 {
                return Err(Trouble::wrong("levels of a page end too early"));
            }
            levels.skip(times);
            left -= times;
            present += if level == column.definition { times } else { 0 };
        }
        Ok(present)
    }

    /// The next levels: repetition, definition, and how often in a row.
    pub fn levels(&mut self, most: u32) -> Result<(u32, u32, u32), Trouble> {
        let most = most.min(self.left);
        let (repetition, times) = self.repetition.peek(&self.bytes, most)?;
        let (definition, more) = self.definition.peek(&self.bytes, most)?;
        let times = times.min(more).min(most);
        self.repetition.skip(times);
        self.definition.skip(times);
        self.left -= times;
        Ok((repetition, definition, times))
    }

    /// The next values that are not NULL, as many as the buffer has places.
    ///
    /// Errs when there are fewer; `Unfit` in an encoding that was not decoded.
    pub fn take(&mut self, buffer: &mut [u32]) -> Result<Taken, Trouble> {
        let end = match &mut self.form {
            Form::Fixed(width) => buffer.len().checked_mul(*width).and_then(|bytes| self.at.checked_add(bytes)),
            Form::Var => {
                let mut end = self.at;
                for _ in 0..buffer.len() {
                    let length = word(&self.bytes, end)?;
                    end = end.saturating_add(4).saturating_add(length);
                }
                Some(end)
            }
            Form::Ids(stream) => {
                stream.fill(&self.bytes, buffer)?;
                return Ok(Taken::Ids);
            }
            Form::Flags(stream) => {
                stream.fill(&self.bytes, buffer)?;
                return Ok(Taken::Flags);
            }
            Form::Numbers { all, at, ids } => {
                let end = at.saturating_add(buffer.len());
                let from = all.get(*at..end).ok_or_else(too_few)?;
                buffer.iter_mut().zip(from).for_each(|(to, number)| *to = *number);
                *at = end;
                return Ok(if *ids { Taken::Ids } else { Taken::Flags });
            }
            Form::Other(encoding) => return Err(Trouble::Unfit(format!("values are encoded as {encoding}"))),
        };
        let end = end.filter(|end| *end <= self.bytes.len()).ok_or_else(too_few)?;
        let start = std::mem::replace(&mut self.at, end);
        Ok(Taken::Plain(start..end))
    }

    /// Checks that nothing is behind the last value, where that shows.
    pub fn end(&self) -> Result<(), Trouble> {
        match self.form {
            Form::Fixed(_) | Form::Var if self.at != self.bytes.len() => Err(Trouble::wrong("bytes behind the last value of a page")),
            _ => Ok(()),
        }
    }

    /// Leaves out rows. `first`: the ordinal of the row that begins next. How many
    /// rows begin in the page.
    pub fn cut(&mut self, dead: &[u32], first: u64, column: &Column) -> Result<u64, Trouble> {
        self.settle(column)?;
        let mut kept = Kept::new(&self.form);
        let is_dead = |row: u64| u32::try_from(row).is_ok_and(|row| dead.binary_search(&row).is_ok());
        let (mut row, mut alive) = (first, first.checked_sub(1).is_none_or(|before| !is_dead(before)));
        let mut number = [0u32];
        while self.left > 0 {
            let (repetition, definition, times) = self.levels(u32::MAX)?;
            for _ in 0..times {
                if repetition == 0 {
                    alive = !is_dead(row);
                    row += 1;
                }
                if definition == column.definition {
                    let taken = self.take(&mut number)?;
                    if alive {
                        kept.value(&taken, number.first().copied().unwrap_or(0), &self.bytes);
                    }
                }
                if alive {
                    kept.level(repetition, definition);
                }
            }
        }
        self.end()?;
        let Kept { repetition, definition, bytes, form, values } = kept;
        let (repetition, definition) = (Levels::Runs(repetition, 0), Levels::Runs(definition, 0));
        let layout = (false, 0, 0);
        *self = Self { bytes, left: values, repetition, definition, form, at: 0, total: None, layout, most: self.most };
        Ok(row - first)
    }
}

/// Levels and values of the rows of a page that stay.
struct Kept {
    repetition: Vec<(u32, u32)>,
    definition: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    form: Form,
    values: u32,
}

impl Kept {
    fn new(form: &Form) -> Self {
        let form = match form {
            Form::Ids(_) => Form::Numbers { all: Vec::new(), at: 0, ids: true },
            Form::Flags(_) => Form::Numbers { all: Vec::new(), at: 0, ids: false },
            other => other.clone(),
        };
        Self { repetition: Vec::new(), definition: Vec::new(), bytes: Vec::new(), form, values: 0 }
    }

    fn value(&mut self, taken: &Taken, number: u32, page: &[u8]) {
        match (taken, &mut self.form) {
            (Taken::Plain(range), _) => self.bytes.extend_from_slice(page.get(range.clone()).unwrap_or_default()),
            (_, Form::Numbers { all, .. }) => all.push(number),
            _ => {}
        }
    }

    fn level(&mut self, repetition: u32, definition: u32) {
        self.values += 1;
        for (runs, level) in [(&mut self.repetition, repetition), (&mut self.definition, definition)] {
            match runs.last_mut() {
                Some((last, times)) if *last == level => *times += 1,
                _ => runs.push((level, 1)),
            }
        }
    }
}

fn too_few() -> Trouble {
    Trouble::wrong("a page holds fewer values than its levels state")
}

fn word(bytes: &[u8], at: usize) -> Result<usize, Trouble> {
    let word = bytes.get(at..at.saturating_add(4)).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    word.and_then(|word| usize::try_from(word).ok()).ok_or_else(too_few)
}

/// Levels of a page of version 1: behind their length.
fn behind_length(bytes: &[u8], at: usize, most: u32, encoding: Encoding) -> Result<Range<usize>, Trouble> {
    if most == 0 {
        return Ok(at..at);
    }
    if encoding != Encoding::RLE {
        return Err(Trouble::Unfit(format!("levels are encoded as {encoding}")));
    }
    let start = at.saturating_add(4);
    let end = start.saturating_add(word(bytes, at)?);
    if end <= bytes.len() { Ok(start..end) } else { Err(Trouble::wrong("levels longer than their page")) }
}

fn form(bytes: &[u8], at: usize, encoding: Encoding, column: &Column) -> Result<Form, Trouble> {
    Ok(match (encoding, column.physical, column.width) {
        (encoding, ..) if is_dictionary(encoding) => {
            let width = bytes.get(at).copied().map_or(1, u32::from);
            Form::Ids(Stream::new(at.saturating_add(1).min(bytes.len())..bytes.len(), width)?)
        }
        (Encoding::PLAIN, Type::BOOLEAN, _) => Form::Flags(Stream::bits(at..bytes.len())),
        (Encoding::PLAIN, _, Some(width)) => Form::Fixed(width),
        (Encoding::PLAIN, _, None) => Form::Var,
        (Encoding::RLE, Type::BOOLEAN, _) => {
            let range = behind_length(bytes, at, 1, Encoding::RLE)?;
            Form::Flags(Stream::new(range, 1)?)
        }
        (other, ..) => Form::Other(other),
    })
}

/// The values of a dictionary page.
#[derive(Debug, PartialEq, Eq)]
pub struct Dictionary {
    /// The values in `PLAIN`.
    bytes: Vec<u8>,
    width: Option<usize>,
    /// Ends of the values, where they are not of one width.
    ends: Vec<u32>,
    count: u32,
}

impl Dictionary {
    /// Decompresses a dictionary page and finds its values.
    pub fn new(page: &Page, body: &[u8], codec: Compression, column: &Column, inflater: &mut Inflater) -> Result<Self, Trouble> {
        let Kind::Dictionary { values: count, encoding } = page.header.kind else { return Err(Trouble::wrong("no dictionary page")) };
        if column.physical == Type::BOOLEAN {
            return Err(Trouble::wrong("a dictionary of booleans"));
        }
        if encoding != Encoding::PLAIN && !is_dictionary(encoding) {
            return Err(Trouble::Unfit(format!("a dictionary encoded as {encoding}")));
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        inflater.inflate(codec, body, page.header.uncompressed, &mut bytes)?;
        let end = match column.width {
            Some(width) => (count as usize).checked_mul(width),
            None => {
                let mut at = 0usize;
                for _ in 0..count {
                    at = at.saturating_add(4).saturating_add(word(&bytes, at)?);
                    ends.push(u32::try_from(at).map_err(|_| too_few())?);
                }
                Some(at)
            }
        };
        let end =
            end.filter(|end| *end <= bytes.len()).ok_or_else(|| Trouble::wrong("a dictionary page holds fewer values than it states"))?;
        bytes.truncate(end);
        Ok(Self { bytes, width: column.width, ends, count })
    }

    /// One of these values of one width.
    #[cfg(test)]
    pub fn of(bytes: Vec<u8>, width: usize) -> Self {
        let count = (bytes.len() / width) as u32;
        Self { bytes, width: Some(width), ends: Vec::new(), count }
    }

    /// Number of values.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of a value; `None` where each has its length in front.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// All values, where they are of this width; else none.
    pub fn fixed<const WIDTH: usize>(&self) -> &[[u8; WIDTH]] {
        if self.width == Some(WIDTH) { self.bytes.as_chunks().0 } else { &[] }
    }

    /// Adds the values of some ids to ends.
    pub fn ends(&self, used: &[bool], order: Order, ends: &mut Ends) {
        fn some<const WIDTH: usize>(dictionary: &Dictionary, used: &[bool], order: Order, ends: &mut Ends) {
            let mut values = Vec::new();
            for (value, _) in dictionary.fixed::<WIDTH>().iter().zip(used).filter(|(_, used)| **used) {
                values.extend_from_slice(value);
            }
            ends.add_fixed(order, WIDTH, &values);
        }
        match self.width {
            Some(4) => some::<4>(self, used, order, ends),
            Some(8) => some::<8>(self, used, order, ends),
            _ => {
                let ids = (0u32..).zip(used).filter(|(_, used)| **used);
                ids.filter_map(|(id, _)| self.value(id)).for_each(|value| ends.add(order, value));
            }
        }
    }

    /// A value in `PLAIN`; `None` past the end.
    pub fn plain(&self, id: u32) -> Option<&[u8]> {
        if id >= self.count {
            return None;
        }
        let id = id as usize;
        match self.width {
            Some(width) => self.bytes.get(id.checked_mul(width)?..(id + 1).checked_mul(width)?),
            None => {
                let start = id.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
                self.bytes.get(start as usize..*self.ends.get(id)? as usize)
            }
        }
    }

    /// Whether a value is another dictionary's; errs with the side whose id is past its
    /// end.
    pub fn same(&self, id: u32, other: &Self, other_id: u32) -> Result<bool, Which> {
        fn fixed<const WIDTH: usize>(known: &Dictionary, id: u32) -> Option<&[u8; WIDTH]> {
            known.fixed().get(id as usize)
        }
        macro_rules! same {
            ($value:expr) => {
                Ok($value(self, id).ok_or(Which::Left)? == $value(other, other_id).ok_or(Which::Right)?)
            };
        }
        match (self.width, other.width) {
            (Some(4), Some(4)) => same!(fixed::<4>),
            (Some(8), Some(8)) => same!(fixed::<8>),
            _ => same!(Self::plain),
        }
    }

    /// A value by itself; `None` past the end.
    pub fn value(&self, id: u32) -> Option<&[u8]> {
        let plain = self.plain(id)?;
        if self.width.is_some() { Some(plain) } else { plain.get(4..) }
    }

    /// Whether another dictionary gives every id of this one the same value.
    pub fn begins(&self, other: &Self) -> bool {
        self.width == other.width && self.count <= other.count && other.bytes.starts_with(&self.bytes)
    }
}
