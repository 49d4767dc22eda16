//! One page made of the rows of several, or of some of the rows of one.

use parquet::basic::{Encoding, Type};
use parquet::schema::types::ColumnDescriptor;

use super::body::{self, Body, Levels};
use super::codec::Deflater;
use super::delta;
use super::dictionary::{Dictionary, Ids};
use super::ends::{Ends, Order};
use super::fault::Fault;
use super::header::{Data, DataV2, Header, Kind, is_dictionary};
use super::hybrid;
use super::sequence::Sequence;

/// How a column's values lie in `PLAIN` pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A bit each.
    Bits,
    /// So many bytes each.
    Fixed(usize),
    /// Each behind its length.
    Lengths,
}

impl Shape {
    /// That of a column.
    ///
    /// Errs `Unfit` on values of no length.
    pub fn of(column: &ColumnDescriptor) -> Result<Self, Fault> {
        match column.physical_type() {
            Type::BOOLEAN => Ok(Self::Bits),
            _ => Ok(super::dictionary::value_bytes(column)?.map_or(Self::Lengths, Self::Fixed)),
        }
    }
}

/// Whether a page's rows can be put into another page as they are encoded.
pub fn fits(header: &Header, levels: Levels) -> bool {
    in_runs(header, levels) && header.kind.data().is_some_and(|(_, encoding)| is_plain(encoding))
}

/// Whether a page's rows can be put into another page, in their encoding or in
/// `PLAIN`.
pub fn opens(header: &Header, levels: Levels, physical: Type) -> bool {
    let decodes = |encoding| is_plain(encoding) || delta::decodes(encoding, physical);
    in_runs(header, levels) && header.kind.data().is_some_and(|(_, encoding)| decodes(encoding))
}

/// Whether values lie in a page in `PLAIN` or as ids.
pub fn is_plain(encoding: Encoding) -> bool {
    encoding == Encoding::PLAIN || is_dictionary(encoding)
}

fn in_runs(header: &Header, levels: Levels) -> bool {
    match header.kind {
        Kind::Data(page) => {
            (levels.repetition == 0 || page.repetition == Encoding::RLE) && (levels.definition == 0 || page.definition == Encoding::RLE)
        }
        _ => true,
    }
}

/// What the values of the page in the making are.
enum Values {
    Ids(Sequence),
    Bits(Sequence),
    Plain(Vec<u8>),
}

/// A page in the making.
pub struct Gather {
    levels: Levels,
    shape: Shape,
    order: Order,
    /// Most bytes of its values.
    most: usize,
    repetition: Sequence,
    definition: Sequence,
    values: Values,
    count: u64,
    present: u64,
    rows: u64,
}

/// Rows of an opened page, and those of them that are left out.
pub struct Taken<'a> {
    /// The page, its values in `PLAIN` or ids.
    pub body: &'a Body,
    /// Its kind.
    pub kind: &'a Kind,
    /// What its ids mean, where it has ids.
    pub dictionary: Option<&'a Dictionary>,
    /// What its ids become, where they stay ids.
    pub ids: Option<&'a Ids>,
    /// Ordinals of the rows left out, counted from the page's first, ascending.
    pub dead: &'a [u32],
}

/// What was added to a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Values, NULLs included.
    pub values: u64,
    /// NULLs.
    pub nulls: u64,
    /// Ends of the others.
    pub ends: Ends,
}

impl Gather {
    /// An empty page of a column; of ids, or of values of at most so many bytes.
    ///
    /// Errs `Unfit` on values of no length.
    pub fn new(column: &ColumnDescriptor, by_id: bool, most: usize) -> Result<Self, Fault> {
        let shape = Shape::of(column)?;
        let values = match (by_id, shape) {
            (true, _) => Values::Ids(Sequence::default()),
            (false, Shape::Bits) => Values::Bits(Sequence::default()),
            (false, _) => Values::Plain(Vec::new()),
        };
        let (repetition, definition) = (Sequence::default(), Sequence::default());
        let (levels, order) = (Levels::of(column), Order::of(column));
        Ok(Self { levels, shape, order, most, repetition, definition, values, count: 0, present: 0, rows: 0 })
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds the live rows of a page. `look` asks for the ends of their values;
    /// `cut` belongs to every page of a chunk of which rows are left out.
    ///
    /// Errs `Damaged` when the page contradicts itself, `Unfit` when it begins
    /// inside a row that may be left out, or would become too large.
    pub fn add(&mut self, taken: &Taken<'_>, look: bool, cut: bool) -> Result<Seen, Fault> {
        let (count, encoding) = taken.kind.data().ok_or_else(|| Fault::damaged("a page without values among the data pages"))?;
        let (mut repetition, mut definition) = (Sequence::default(), Sequence::default());
        if self.levels.repetition > 0 {
            repetition.read(taken.body.repetition(), hybrid::width(self.levels.repetition), count)?;
        }
        if cut && repetition.runs().next().is_some_and(|(level, _)| level != 0) {
            return Err(Fault::unfit("a page begins inside a row, and rows are deleted"));
        }
        if self.levels.definition > 0 {
            definition.read(taken.body.definition(), hybrid::width(self.levels.definition), count)?;
        }
        let (mut mask, mut seen) = (None, Seen { values: count.into(), ..Seen::default() });
        let mut present = u64::from(taken.body.present);
        if !taken.dead.is_empty() {
            let live = self.live(&repetition, count, taken.dead)?;
            let kept = if self.levels.definition == 0 { live.clone() } else { self.live_values(&definition, &live) };
            (repetition, definition) = (repetition.kept(&live), definition.kept(&live));
            (seen.values, present) = (live.count(1), kept.count(1));
            mask = Some(kept);
        }
        seen.nulls = seen.values.saturating_sub(present);
        let rows = if self.levels.repetition == 0 { seen.values } else { repetition.count(0) };
        repetition.runs().for_each(|(level, times)| self.repetition.push(level, times));
        definition.runs().for_each(|(level, times)| self.definition.push(level, times));
        (self.count, self.present, self.rows) = (self.count + seen.values, self.present + present, self.rows + rows);
        let ends = look.then_some(&mut seen.ends);
        if is_dictionary(encoding) {
            self.add_ids(taken, mask.as_ref(), ends)?
        } else {
            self.add_plain(taken, mask.as_ref(), ends)?
        }
        Ok(seen)
    }

    /// For each value, NULLs included, 1 when its row stays.
    fn live(&self, repetition: &Sequence, count: u32, dead: &[u32]) -> Result<Sequence, Fault> {
        if self.levels.repetition == 0 {
            return Ok(live_rows(dead, count));
        }
        let rows = live_rows(dead, u32::try_from(repetition.count(0)).unwrap_or(u32::MAX));
        let (mut live, mut rows, mut left) = (Sequence::default(), rows.into_runs(), (0, 0));
        for (level, mut times) in repetition.runs() {
            if level != 0 {
                live.push(left.0, times);
                continue;
            }
            while times > 0 {
                if left.1 == 0 {
                    left = rows.next().ok_or_else(|| Fault::damaged("more rows than levels"))?;
                }
                let taken = left.1.min(times);
                live.push(left.0, taken);
                (left.1, times) = (left.1 - taken, times - taken);
            }
        }
        Ok(live)
    }

    /// For each value that is not NULL, 1 when its row stays.
    fn live_values(&self, definition: &Sequence, live: &Sequence) -> Sequence {
        let mut kept = Sequence::default();
        definition.zip(live, |level, live, times| kept.push(live, if level == self.levels.definition { times } else { 0 }));
        kept
    }

    fn add_ids(&mut self, taken: &Taken<'_>, mask: Option<&Sequence>, ends: Option<&mut Ends>) -> Result<(), Fault> {
        let dictionary = taken.dictionary.ok_or_else(|| Fault::damaged("pages of ids without a dictionary"))?;
        let (width, stream) = ids_of(taken.body)?;
        let mut ids = Sequence::default();
        ids.read(stream, width, taken.body.present)?;
        let ids = if let Some(mask) = mask { ids.kept(mask) } else { ids };
        let mut used = vec![false; if ends.is_some() { dictionary.len() } else { 0 }];
        let beyond = |id| Fault::damaged(format_args!("id {id} in a dictionary of {} values", dictionary.len()));
        for (id, times) in ids.runs() {
            if id as usize >= dictionary.len() {
                return Err(beyond(id));
            }
            if let Some(used) = used.get_mut(id as usize) {
                *used = true;
            }
            match (&mut self.values, taken.ids) {
                (Values::Ids(out), Some(Ids::Same)) => out.push(id, times),
                (Values::Ids(out), Some(Ids::Mapped(table))) => out.push(*table.get(id as usize).ok_or_else(|| beyond(id))?, times),
                (Values::Plain(out), _) => {
                    let value = dictionary.value(id).ok_or_else(|| beyond(id))?;
                    let room = self.most.saturating_sub(out.len()) / value.len().max(1);
                    if (times as usize) > room {
                        return Err(too_large(self.most));
                    }
                    (0..times).for_each(|_| out.extend_from_slice(value));
                }
                _ => return Err(Fault::damaged("ids where there are none")),
            }
        }
        if let Some(ends) = ends {
            let used = (0u32..).zip(&used).filter(|(_, used)| **used).filter_map(|(id, _)| dictionary.value(id));
            used.for_each(|value| ends.add(self.order, bare(self.shape, value)));
        }
        Ok(())
    }

    fn add_plain(&mut self, taken: &Taken<'_>, mask: Option<&Sequence>, ends: Option<&mut Ends>) -> Result<(), Fault> {
        let (bytes, present) = (taken.body.values(), taken.body.present);
        match (&mut self.values, self.shape) {
            (Values::Bits(out), Shape::Bits) => {
                let mut bits = Sequence::default();
                bits.read_bits(bytes, present)?;
                let bits = if let Some(mask) = mask { bits.kept(mask) } else { bits };
                if let Some(ends) = ends {
                    bits.runs().for_each(|(bit, _)| ends.add(self.order, &[u8::from(bit != 0)]));
                }
                bits.runs().for_each(|(bit, times)| out.push(bit, times));
                Ok(())
            }
            (Values::Plain(out), shape) => {
                if out.len().saturating_add(bytes.len()) > self.most {
                    return Err(too_large(self.most));
                }
                let whole = [(1, present)];
                let masked: Vec<(u32, u32)> = mask.map_or_else(|| whole.to_vec(), |mask| mask.runs().collect());
                let start = out.len();
                match shape {
                    Shape::Fixed(length) => copy_fixed(bytes, length, &masked, out)?,
                    _ => copy_lengths(bytes, &masked, out)?,
                }
                if let Some(ends) = ends {
                    look(out.get(start..).unwrap_or_default(), shape, self.order, ends);
                }
                Ok(())
            }
            _ => Err(Fault::damaged("values where there are ids")),
        }
    }

    /// The page, compressed, as the kind that its rows came from. `width` is that
    /// of its ids, where it has ids.
    ///
    /// Errs `Unfit` when it would be too large for the format.
    pub fn close(&self, kind: &Kind, width: u32, deflater: &mut Deflater) -> Result<(Header, Vec<u8>), Fault> {
        let (mut repetition, mut definition, mut values) = (Vec::new(), Vec::new(), Vec::new());
        self.repetition.encode(hybrid::width(self.levels.repetition), &mut repetition);
        self.definition.encode(hybrid::width(self.levels.definition), &mut definition);
        let plain = match &self.values {
            Values::Ids(ids) => {
                values.push(u8::try_from(width).unwrap_or(u8::MAX));
                ids.encode(width, &mut values);
                None
            }
            Values::Bits(bits) => {
                bits.encode_bits(&mut values);
                Some(Encoding::PLAIN)
            }
            Values::Plain(bytes) => {
                values.extend_from_slice(bytes);
                Some(Encoding::PLAIN)
            }
        };
        let large = || Fault::unfit("a page of 2 GiB or more");
        let number = |count: u64| u32::try_from(count).map_err(|_| large());
        let (kind, levels) = match plain.map_or_else(|| kind.clone(), |encoding| kind.encoded(encoding)) {
            Kind::DataV2(page) => {
                let (definition_bytes, repetition_bytes) = (definition.len(), repetition.len());
                let (count, nulls) = (number(self.count)?, number(self.count.saturating_sub(self.present))?);
                let page = DataV2 { values: count, nulls, rows: number(self.rows)?, definition_bytes, repetition_bytes, ..page };
                (Kind::DataV2(page), [repetition, definition].concat())
            }
            Kind::Data(page) => {
                let mut levels = Vec::with_capacity(repetition.len() + definition.len() + 8);
                for (level, stream) in [(self.levels.repetition, repetition), (self.levels.definition, definition)] {
                    if level > 0 {
                        levels.extend_from_slice(&u32::try_from(stream.len()).map_err(|_| large())?.to_le_bytes());
                        levels.extend_from_slice(&stream);
                    }
                }
                (Kind::Data(Data { values: number(self.count)?, ..page }), levels)
            }
            _ => return Err(Fault::damaged("a page without values among the data pages")),
        };
        body::close(&kind, &levels, &values, deflater)
    }
}

fn too_large(most: usize) -> Fault {
    Fault::unfit(format_args!("a page would take more than {most} bytes"))
}

fn too_short() -> Fault {
    Fault::damaged("a page holds fewer values than its levels state")
}

/// The width and the stream of a page of ids.
///
/// Errs `Damaged` when it has none and holds values.
pub fn ids_of(opened: &Body) -> Result<(u32, &[u8]), Fault> {
    match opened.values().split_first() {
        Some((width, stream)) => Ok((u32::from(*width), stream)),
        None if opened.present == 0 => Ok((0, &[])),
        None => Err(Fault::damaged("a page of ids without any")),
    }
}

/// 1 for each of `count` rows, 0 for the dead ones.
fn live_rows(dead: &[u32], count: u32) -> Sequence {
    let (mut live, mut next) = (Sequence::default(), 0u32);
    for row in dead.iter().filter(|row| **row < count) {
        if *row < next {
            continue;
        }
        live.push(1, row.saturating_sub(next));
        live.push(0, 1);
        next = row + 1;
    }
    live.push(1, count.saturating_sub(next));
    live
}

/// Copies the values of `length` bytes whose run is not 0.
fn copy_fixed(bytes: &[u8], length: usize, mask: &[(u32, u32)], out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut rest = bytes;
    for (keep, times) in mask {
        let run = (*times as usize).checked_mul(length).ok_or_else(too_short)?;
        let (run, after) = rest.split_at_checked(run).ok_or_else(too_short)?;
        rest = after;
        if *keep != 0 {
            out.extend_from_slice(run);
        }
    }
    Ok(())
}

/// The same for values behind their lengths.
fn copy_lengths(bytes: &[u8], mask: &[(u32, u32)], out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut at = 0usize;
    for (keep, times) in mask {
        let start = at;
        for _ in 0..*times {
            let length = bytes.get(at..at.saturating_add(4)).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
            let length = length.and_then(|length| usize::try_from(length).ok()).ok_or_else(too_short)?;
            at = at.checked_add(4).and_then(|at| at.checked_add(length)).filter(|end| *end <= bytes.len()).ok_or_else(too_short)?;
        }
        if *keep != 0 {
            out.extend_from_slice(bytes.get(start..at).unwrap_or_default());
        }
    }
    Ok(())
}

/// A value without its length.
fn bare(shape: Shape, value: &[u8]) -> &[u8] {
    if shape == Shape::Lengths { value.get(4..).unwrap_or_default() } else { value }
}

/// The ends of whole values in `PLAIN`.
fn look(bytes: &[u8], shape: Shape, order: Order, ends: &mut Ends) {
    macro_rules! numbers {
        ($kind:ty) => {{
            let numbers = bytes.chunks_exact(size_of::<$kind>()).filter_map(|b| b.try_into().ok()).map(<$kind>::from_le_bytes);
            let found =
                numbers.fold(None, |found: Option<($kind, $kind)>, n| Some(found.map_or((n, n), |(low, high)| (low.min(n), high.max(n)))));
            if let Some((low, high)) = found {
                ends.widen(order, &low.to_le_bytes(), &high.to_le_bytes());
            }
        }};
    }
    match (shape, order) {
        (_, Order::I32) => numbers!(i32),
        (_, Order::U32) => numbers!(u32),
        (_, Order::I64) => numbers!(i64),
        (_, Order::U64) => numbers!(u64),
        (Shape::Fixed(length), _) => bytes.chunks_exact(length.max(1)).for_each(|value| ends.add(order, value)),
        _ => {
            let mut rest = bytes;
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                let Some((value, after)) = after.split_at_checked(u32::from_le_bytes(*length) as usize) else { return };
                ends.add(order, value);
                rest = after;
            }
        }
    }
}
