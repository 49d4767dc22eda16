//! Hashes over rows: ordered by column, for the proof; free of order, to
//! compare tables.
//!
//! The ordered hash of a leaf column is over its canonical form, the streams
//! that nested columns are shredded into: repetition and definition levels (as
//! runs), and the values that are not NULL: their bytes, or where their length
//! varies a hash of each. So `[[1],[2]]` differs from `[[1,2]]`, and a NULL list
//! from an empty one and from a list of NULL; and nothing depends on batch
//! borders, encodings, or Arrow's choice between small and large offsets. A
//! dictionary's values are hashed once, and looked up by its keys. Floats count
//! by their bits: −0.0 is not 0.0, and NaNs of other bits are other values, for a
//! rewrite keeps bits.
//!
//! Values and streams are hashed by XXH3 with 128 bits: it guards against
//! faults, not against somebody who searches for collisions.

mod multiset;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

pub use multiset::multiset_hash;
use values::Values;

use super::read::ColumnHash;
use super::read::schema::{children, field_id};
use super::spread::spread;

/// Batches of fewer rows are hashed on one core.
const FEW_ROWS: usize = 512;

/// Hashes every leaf column over batches in order.
pub struct ColumnHasher {
    roots: Vec<RootHasher>,
}

impl ColumnHasher {
    /// For batches of this schema.
    pub fn new(schema: &Schema) -> Self {
        Self { roots: schema.fields().iter().map(RootHasher::new).collect() }
    }

    /// Adds the next rows. Nullability is the schema's that the hasher was made
    /// for; columns are found by place.
    ///
    /// Errs when a column is not of that schema's shape.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        if batch.num_columns() < self.roots.len() {
            return Err(shape());
        }
        let mut columns = self.roots.iter_mut().zip(batch.columns());
        match batch.num_rows() < FEW_ROWS {
            true => columns.try_for_each(|(root, column)| root.update(column)),
            false => spread(columns.collect(), |(root, column): (&mut RootHasher, &ArrayRef)| root.update(column)),
        }
    }

    /// The hash of each leaf column so far, in schema order.
    pub fn finish(self) -> Vec<ColumnHash> {
        self.roots.into_iter().flat_map(RootHasher::finish).collect()
    }
}

/// Hashes the leaves of one column of the schema's root.
pub struct RootHasher {
    leaves: Vec<Leaf>,
}

impl RootHasher {
    /// For arrays of this field.
    pub fn new(field: &FieldRef) -> Self {
        let mut leaves = Vec::new();
        let root = Path { steps: Vec::new(), ids: Vec::new(), max_definition: 0 };
        descend(field, Step::Field { index: 0, nullable: field.is_nullable() }, u16::from(field.is_nullable()), &root, &mut leaves);
        Self { leaves }
    }

    /// Adds the next rows.
    ///
    /// Errs when the column is not of the field's shape.
    pub fn update(&mut self, column: &dyn Array) -> Result<(), ArrowError> {
        for leaf in &mut self.leaves {
            let Some((Step::Field { nullable, .. }, rest)) = leaf.steps.split_first() else { continue };
            let levels = Levels { first: 0, next: 0, definition: 0 };
            leaf.state.walk(column, *nullable, rest, 0..column.len(), levels)?;
        }
        Ok(())
    }

    /// The hash of each leaf so far, in schema order.
    pub fn finish(self) -> Vec<ColumnHash> {
        self.leaves.into_iter().map(Leaf::finish).collect()
    }

    /// Field id, NULLs and values of each leaf so far, in schema order.
    pub fn counts(&self) -> impl Iterator<Item = (i32, u64, u64)> {
        self.leaves.iter().map(|l| (l.field_id, l.state.nulls, l.state.values))
    }
}

/// One digest over all columns, in schema order.
pub fn row_hash(columns: &[ColumnHash]) -> u128 {
    let mut all = Xxh3::new();
    for column in columns {
        all.update(&column.field_id.to_le_bytes());
        all.update(&column.hash.to_le_bytes());
    }
    all.digest128()
}

/// A list's or map's offsets, and the array of its element, or of its key (0) or
/// value (1).
fn items(array: &dyn Array, index: usize) -> Result<(&[i32], &dyn Array), ArrowError> {
    if let Some(list) = array.as_list_opt::<i32>() {
        return Ok((list.value_offsets(), list.values().as_ref()));
    }
    let map = array.as_map_opt().ok_or_else(shape)?;
    let items = map.entries().columns().get(index).ok_or_else(shape)?;
    Ok((map.value_offsets(), items.as_ref()))
}

fn shape() -> ArrowError {
    ArrowError::SchemaError("a batch is not of the schema that is hashed".into())
}

#[derive(Clone)]
enum Step {
    /// Into a field of a struct (or of the batch).
    Field { index: usize, nullable: bool },
    /// Into a list's element, or a map's key (0) or value (1).
    Item { index: usize, nullable: bool, repetition: u16 },
}

#[derive(Clone)]
struct Path {
    steps: Vec<Step>,
    ids: Vec<i32>,
    max_definition: u16,
}

fn collect(fields: &Fields, parent: &Path, leaves: &mut Vec<Leaf>) {
    for (index, field) in fields.iter().enumerate() {
        let step = Step::Field { index, nullable: field.is_nullable() };
        descend(field, step, u16::from(field.is_nullable()), parent, leaves);
    }
}

fn descend(field: &FieldRef, step: Step, levels: u16, parent: &Path, leaves: &mut Vec<Leaf>) {
    let mut path = parent.clone();
    path.steps.push(step);
    path.ids.push(field_id(field).unwrap_or(-1));
    path.max_definition += levels;
    match field.data_type() {
        DataType::Struct(fields) => collect(fields, &path, leaves),
        DataType::List(_) | DataType::Map(..) => {
            let repetition = path.steps.iter().filter(|s| matches!(s, Step::Item { .. })).count();
            let repetition = u16::try_from(repetition + 1).unwrap_or(u16::MAX);
            for (index, item) in children(field.data_type()).into_iter().enumerate() {
                let step = Step::Item { index, nullable: item.is_nullable(), repetition };
                descend(item, step, 1 + u16::from(item.is_nullable()), &path, leaves);
            }
        }
        _ => leaves.push(Leaf::new(&path)),
    }
}

struct Leaf {
    path: String,
    field_id: i32,
    steps: Vec<Step>,
    state: Box<State>,
}

impl Leaf {
    fn new(path: &Path) -> Self {
        let ids: Vec<String> = path.ids.iter().map(i32::to_string).collect();
        let state = State {
            max_definition: path.max_definition,
            run: None,
            levels: Xxh3::new(),
            data: Xxh3::new(),
            dictionary: None,
            nulls: 0,
            values: 0,
        };
        Self { path: ids.join("."), field_id: path.ids.last().copied().unwrap_or(-1), steps: path.steps.clone(), state: Box::new(state) }
    }

    fn finish(self) -> ColumnHash {
        let mut state = self.state;
        state.flush();
        let mut all = Vec::with_capacity(48);
        for part in [state.levels.digest128(), state.data.digest128()] {
            all.extend_from_slice(&part.to_le_bytes());
        }
        all.extend_from_slice(&state.values.to_le_bytes());
        all.extend_from_slice(&state.nulls.to_le_bytes());
        ColumnHash { path: self.path, field_id: self.field_id, nulls: state.nulls, values: state.values, hash: xxh3_128(&all) }
    }
}

/// Levels at a place of the walk: repetition of the first value and of those
/// after it, and the definition reached.
#[derive(Clone, Copy)]
struct Levels {
    first: u16,
    next: u16,
    definition: u16,
}

struct State {
    max_definition: u16,
    /// Repetition, definition and how often: joined across batches.
    run: Option<(u16, u16, u64)>,
    levels: Xxh3,
    data: Xxh3,
    /// The dictionary met last, and the hashes of its values.
    dictionary: Option<(ArrayRef, Vec<u128>)>,
    nulls: u64,
    values: u64,
}

impl State {
    fn walk(&mut self, array: &dyn Array, nullable: bool, steps: &[Step], range: Range<usize>, levels: Levels) -> Result<(), ArrowError> {
        if range.is_empty() {
            return Ok(());
        }
        let nulls = array.logical_nulls().filter(|n| n.null_count() > 0);
        let inner = Levels { definition: levels.definition + u16::from(nullable), ..levels };
        let Some(nulls) = nulls.filter(|_| nullable) else { return self.present(array, steps, range, inner) };
        for (run, present) in runs(&nulls, range.clone()) {
            let first = if run.start == range.start { levels.first } else { levels.next };
            if present {
                self.present(array, steps, run, Levels { first, ..inner })?;
            } else {
                self.absent(run.len(), Levels { first, ..levels });
            }
        }
        Ok(())
    }

    /// Walks entries that are not NULL.
    fn present(&mut self, array: &dyn Array, steps: &[Step], range: Range<usize>, levels: Levels) -> Result<(), ArrowError> {
        match steps.split_first() {
            None => self.leaf(array, range, levels),
            Some((Step::Field { index, nullable }, rest)) => {
                let child = array.as_struct_opt().and_then(|s| s.columns().get(*index)).ok_or_else(shape)?;
                self.walk(child.as_ref(), *nullable, rest, range, levels)
            }
            Some((Step::Item { index, nullable, repetition }, rest)) => {
                let (offsets, below) = items(array, *index)?;
                let place = |i: usize| offsets.get(i).and_then(|o| usize::try_from(*o).ok()).ok_or_else(shape);
                for row in range.clone() {
                    let first = if row == range.start { levels.first } else { levels.next };
                    let items = place(row)?..place(row + 1)?;
                    if items.is_empty() {
                        self.absent(1, Levels { first, ..levels });
                        continue;
                    }
                    let levels = Levels { first, next: *repetition, definition: levels.definition + 1 };
                    self.walk(below, *nullable, rest, items, levels)?;
                }
                Ok(())
            }
        }
    }

    fn absent(&mut self, count: usize, levels: Levels) {
        self.level(levels, count);
        self.nulls += u64::try_from(count).unwrap_or(0);
    }

    fn leaf(&mut self, array: &dyn Array, range: Range<usize>, levels: Levels) -> Result<(), ArrowError> {
        let levels = Levels { definition: self.max_definition, ..levels };
        self.level(levels, range.len());
        if let Some(keyed) = array.as_dictionary_opt::<Int32Type>() {
            let hashes = hashes(&mut self.dictionary, keyed.values())?;
            let keys = keyed.keys().values().get(range).ok_or_else(shape)?;
            let looked_up = keys.iter().map(|key| usize::try_from(*key).ok().and_then(|key| hashes.get(key)).copied().ok_or_else(shape));
            return each(&mut self.data, looked_up);
        }
        let values = Values::of(array)?;
        match values.is_fixed() {
            true => values.bytes(range, |bytes| self.data.update(bytes)),
            false => each(&mut self.data, range.map(|row| values.value(row).map(xxh3_128).ok_or_else(shape)))?,
        }
        Ok(())
    }

    fn level(&mut self, levels: Levels, count: usize) {
        let count = u64::try_from(count).unwrap_or(0);
        self.values += count;
        self.push(levels.first, levels.definition, 1);
        self.push(levels.next, levels.definition, count - 1);
    }

    fn push(&mut self, repetition: u16, definition: u16, count: u64) {
        if count == 0 {
            return;
        }
        match &mut self.run {
            Some((r, d, n)) if (*r, *d) == (repetition, definition) => *n += count,
            _ => {
                self.flush();
                self.run = Some((repetition, definition, count));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((repetition, definition, count)) = self.run.take() {
            self.levels.update(&repetition.to_le_bytes());
            self.levels.update(&definition.to_le_bytes());
            self.levels.update(&count.to_le_bytes());
        }
    }
}

/// Adds hashes of values to a stream of them.
fn each(stream: &mut Xxh3, hashes: impl Iterator<Item = Result<u128, ArrowError>>) -> Result<(), ArrowError> {
    let mut block = [0; 16 * 64];
    let mut filled = 0;
    for hash in hashes {
        if filled == block.len() {
            stream.update(&block);
            filled = 0;
        }
        if let Some(place) = block.get_mut(filled..filled + 16) {
            place.copy_from_slice(&hash?.to_le_bytes());
        }
        filled += 16;
    }
    stream.update(block.get(..filled).unwrap_or_default());
    Ok(())
}

/// The hashes of a dictionary's values, made once as long as the same dictionary
/// comes again.
fn hashes<'a>(held: &'a mut Option<(ArrayRef, Vec<u128>)>, values: &ArrayRef) -> Result<&'a [u128], ArrowError> {
    // Arrays over the same memory, which the held one keeps from being reused.
    let same = held.as_ref().is_some_and(|(old, _)| old.to_data().ptr_eq(&values.to_data()));
    if !same {
        let all = Values::of(values.as_ref())?;
        let hashes = (0..values.len()).map(|row| all.value(row).map(xxh3_128).ok_or_else(shape));
        *held = Some((values.clone(), hashes.collect::<Result<_, _>>()?));
    }
    Ok(held.as_ref().map_or(&[], |(_, hashes)| hashes))
}

/// Maximal runs of NULLs and of others, in order.
fn runs(nulls: &NullBuffer, range: Range<usize>) -> Vec<(Range<usize>, bool)> {
    let slice = nulls.inner().slice(range.start, range.len());
    let mut runs = Vec::new();
    let mut at = 0;
    for (start, end) in slice.set_slices() {
        if at < start {
            runs.push((range.start + at..range.start + start, false));
        }
        runs.push((range.start + start..range.start + end, true));
        at = end;
    }
    if at < range.len() {
        runs.push((range.start + at..range.end, false));
    }
    runs
}
