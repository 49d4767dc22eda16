//! The two columns of lineage beside copied or joined pages: what the inputs store, and
//! what they leave to be counted, written out for every row.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::StreamExt;
use parquet::data_type::Int64Type as Long;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::ColumnPath;
use roaring::RoaringTreemap;

use super::job::Job;
use super::parts::Group;
use crate::lake::iceberg::lineage::{COLUMNS, LAST_UPDATED, ROW_ID};
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::{Error, Result};
use crate::model::plan::LiveFile;
use crate::parquet::tap::Tap;

/// Rows read at one time.
const BATCH: usize = 8192;

/// One column of a row group to be written.
#[derive(Default)]
pub struct Column {
    /// The values that are not NULL.
    values: Vec<i64>,
    /// Definition levels: 0 for NULL. Rows have one each.
    levels: Vec<i16>,
}

impl Column {
    fn push(&mut self, value: Option<i64>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

/// Row ids and sequence numbers of the live rows of row groups, in order.
///
/// A row id is NULL where the input has none to count from: the commit gives the
/// output its first.
///
/// Errs as reading the stored ones does, and refused `Damaged` on ids beyond any.
pub async fn columns(job: &Job<'_>, groups: &[Group<'_>], deleted: &[RoaringTreemap]) -> Result<[Column; 2]> {
    let mut columns = <[Column; 2]>::default();
    let store = Store::new(job.io);
    let mut open: Option<(usize, ParquetFile)> = None;
    for group in groups {
        job.control.check()?;
        let Some(input) = job.plan.inputs.get(group.number) else { continue };
        let stored = [ROW_ID, LAST_UPDATED].map(|id| leaf(group, id));
        if stored.iter().any(Option::is_some) && open.as_ref().is_none_or(|(number, _)| *number != group.number) {
            open = Some((group.number, ParquetFile::open(&store, &input.path, input.bytes).await?));
        }
        let dead = group.dead_rows(deleted);
        for (place, (leaf, column)) in stored.iter().zip(&mut columns).enumerate() {
            let mut rows = Rows { input, group, dead: &dead, counts: place == 0, next: 0, column };
            match (leaf, &open) {
                (Some(leaf), Some((_, file))) => rows.stored(file, *leaf).await?,
                _ => rows.counted()?,
            }
        }
    }
    Ok(columns)
}

/// The leaf of a column of lineage in a row group's file.
fn leaf(group: &Group<'_>, id: i32) -> Option<usize> {
    let schema = group.input.footer.file_metadata().schema_descr();
    schema.columns().iter().position(|column| {
        let info = column.self_type().get_basic_info();
        column.path().parts().len() == 1 && info.has_id() && info.id() == id
    })
}

/// The rows of one row group, on their way into one column.
struct Rows<'a, 'b> {
    input: &'a LiveFile,
    group: &'a Group<'b>,
    /// Deleted rows not yet passed, ascending.
    dead: &'a [u32],
    /// Whether NULL is counted from the file's first row id, or the file's sequence
    /// number.
    counts: bool,
    next: u64,
    column: &'a mut Column,
}

impl Rows<'_, '_> {
    async fn stored(&mut self, file: &ParquetFile, leaf: usize) -> Result<()> {
        let mut stream = file.stream(self.group.position, &[leaf], BATCH).await?;
        while let Some(batch) = stream.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(file.error(error).await),
            };
            let values = batch.columns().first().and_then(|column| column.as_primitive_opt::<Int64Type>());
            let values = values.ok_or_else(|| Error::damaged(&file.path, "a column of lineage that is not a long"))?;
            values.iter().try_for_each(|value| self.row(value))?;
        }
        match self.next == self.group.rows() {
            true => Ok(()),
            false => Err(Error::damaged(&file.path, format_args!("{} row ids of {} rows", self.next, self.group.rows()))),
        }
    }

    fn counted(&mut self) -> Result<()> {
        (0..self.group.rows()).try_for_each(|_| self.row(None))
    }

    fn row(&mut self, stored: Option<i64>) -> Result<()> {
        let row = self.next;
        self.next += 1;
        if let Some((first, rest)) = self.dead.split_first()
            && u64::from(*first) == row
        {
            self.dead = rest;
            return Ok(());
        }
        let value = match (stored, self.counts, self.input.first_row_id) {
            (Some(stored), ..) => Some(stored),
            (None, false, _) => Some(self.input.data_sequence),
            (None, true, None) => None,
            (None, true, Some(first)) => {
                let position = i64::try_from(self.group.first_row.saturating_add(row)).ok();
                let id = position.and_then(|position| first.checked_add(position));
                Some(id.ok_or_else(|| Error::damaged(&self.input.path, "its row ids are beyond any"))?)
            }
        };
        self.column.push(value);
        Ok(())
    }
}

/// How the columns are written: as the job's others, plainly where all values
/// differ. `indexed`: whether the file has offset indexes, which it must have for
/// every column or for none.
pub fn properties(job: &Job<'_>, builder: WriterPropertiesBuilder, indexed: bool) -> WriterPropertiesBuilder {
    if !job.lineage {
        return builder;
    }
    let builder = builder
        .set_compression(job.properties.compression)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(!indexed);
    builder.set_column_dictionary_enabled(ColumnPath::from(COLUMNS[0].1), false)
}

/// Writes the columns behind the copied ones.
///
/// # Errors
/// When the row group has other rows or no room for them.
pub fn write(out: &mut SerializedRowGroupWriter<'_, Tap>, columns: &[Column; 2]) -> std::result::Result<(), ParquetError> {
    for column in columns {
        let mut writer = out.next_column()?.ok_or_else(|| ParquetError::General("no place for lineage".into()))?;
        writer.typed::<Long>().write_batch(&column.values, Some(&column.levels), None)?;
        writer.close()?;
    }
    Ok(())
}
