//! Copied row groups: every column chunk of the outputs against the inputs', byte
//! by byte, what is told of it, and its bloom filter.

use std::collections::BTreeMap;
use std::ops::Range;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use iceberg::spec::DataFile;
use parquet::file::metadata::ColumnChunkMetaData;
use xxhash_rust::xxh3::Xxh3;

use super::blooms;
use super::told::{self, Place};
use super::{failed, unproven};
use crate::lake::Result;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::scan::AT_ONCE;
use crate::model::plan::Plan;

/// Most bytes compared at once.
const PIECE: u64 = 4 << 20;
/// Pieces that are fetched at one time.
const PIECES: usize = 3;

/// What was found equal.
#[derive(Debug)]
pub struct Copied {
    /// Columns of a row group.
    pub columns: usize,
    /// Hash over the bytes of all chunks, in order.
    pub hash: u128,
    /// For each output, the inputs whose row groups it holds, by their places.
    pub parts: Vec<BTreeMap<usize, Part>>,
}

/// What an output has of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Row groups that hold rows.
    pub here: usize,
    /// Of so many in the input.
    pub all: usize,
}

/// Compares the row groups of the inputs, in order, with those of the outputs,
/// in pieces that take a quarter of `memory` at most.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the first chunk that differs.
pub async fn same(store: &Store, plan: &Plan, outputs: &[DataFile], memory: u64) -> Result<Copied> {
    let inputs = plan.inputs.iter().map(|f| (&*f.path, f.bytes));
    let mut copied = Copied { columns: 0, hash: 0, parts: vec![BTreeMap::new(); outputs.len()] };
    let outputs = outputs.iter().map(|f| (f.file_path(), f.file_size_in_bytes()));
    let (mut from, mut to) = (Groups::new(store, inputs.collect()), Groups::new(store, outputs.collect()));
    let piece = PIECE.min(memory / 8 / PIECES as u64).max(1);
    let mut hash = Xxh3::new();
    loop {
        match (from.next().await?, to.next().await.map_err(unproven)?) {
            (None, None) => break,
            (Some(input), Some(output)) => {
                for span in spans(&input, &output)? {
                    equal(&input.file, &output, span, piece, &mut hash).await?;
                }
                blooms::same(&input.file, input.group, &output.file, output.group, memory).await?;
                copied.columns = output.file.footer().file_metadata().schema_descr().num_columns();
                let part = copied.parts.get_mut(output.place).map(|parts| parts.entry(input.place).or_default());
                if let Some(part) = part {
                    *part = Part { here: part.here + 1, all: input.of };
                }
            }
            (Some(input), None) => return Err(failed(&input.file.path, format_args!("row group {} is in no output", input.group))),
            (None, Some(output)) => return Err(failed(&output.file.path, format_args!("row group {} is of no input", output.group))),
        }
    }
    copied.hash = hash.digest128();
    Ok(copied)
}

/// Walks the row groups that hold rows, of files in order.
struct Groups<'a> {
    files: BoxStream<'a, Result<ParquetFile>>,
    current: Option<Group>,
    opened: usize,
}

/// A row group that holds rows.
#[derive(Clone)]
struct Group {
    file: ParquetFile,
    place: usize,
    group: usize,
    /// Such row groups of the file.
    of: usize,
}

impl<'a> Groups<'a> {
    fn new(store: &'a Store, files: Vec<(&'a str, u64)>) -> Self {
        let open = move |(path, bytes): (&'a str, u64)| ParquetFile::open_indexed(store, path, bytes);
        Self { files: stream::iter(files.into_iter().map(open)).buffered(AT_ONCE).boxed(), current: None, opened: 0 }
    }

    async fn next(&mut self) -> Result<Option<Group>> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(file) = self.files.try_next().await? else { return Ok(None) };
                let of = file.footer().row_groups().iter().filter(|g| g.num_rows() != 0).count();
                self.current = Some(Group { file, place: self.opened, group: 0, of });
                self.opened += 1;
                continue;
            };
            let this = current.clone();
            current.group += 1;
            match this.file.footer().row_groups().get(this.group) {
                Some(meta) if meta.num_rows() == 0 => {}
                Some(_) => return Ok(Some(this)),
                None => self.current = None,
            }
        }
    }
}

/// Bytes of an input, where they lie in the output, and the column they begin with.
struct Span {
    from: Range<u64>,
    to: u64,
    column: usize,
}

/// The chunks of a row group; those that lie side by side in both files are one.
fn spans(input: &Group, output: &Group) -> Result<Vec<Span>> {
    let columns = |group: &Group| group.file.footer().file_metadata().schema_descr().root_schema_ptr();
    if columns(input).get_fields() != columns(output).get_fields() {
        return Err(failed(&output.file.path, format_args!("its columns are not those of {}", input.file.path)));
    }
    let meta = |group: &Group| group.file.footer().row_groups().get(group.group).cloned();
    let (Some(from), Some(to)) = (meta(input), meta(output)) else {
        return Err(failed(&output.file.path, "a row group is not there"));
    };
    let place = format!("{} row group {}", output.file.path, output.group);
    if from.num_rows() != to.num_rows() || from.num_columns() != to.num_columns() {
        return Err(failed(&place, format_args!("not the rows and columns of {} row group {}", input.file.path, input.group)));
    }
    let mut spans: Vec<Span> = Vec::new();
    for (column, (a, b)) in from.columns().iter().zip(to.columns()).enumerate() {
        let at = |group: &Group, footer| Place { footer, group: group.group, column };
        let (old, new) = (at(input, input.file.footer().as_ref()), at(output, output.file.footer().as_ref()));
        if let Some(how) = told::difference(old, new) {
            return Err(failed(&place, format_args!("column {column} {how} {} row group {}", input.file.path, input.group)));
        }
        let ((start, length), (to, _)) = (a.byte_range(), b.byte_range());
        let end = start.checked_add(length).ok_or_else(|| failed(&place, "a chunk beyond any file"))?;
        match spans.last_mut() {
            Some(last) if last.from.end == start && last.to.checked_add(last.from.end - last.from.start) == Some(to) => last.from.end = end,
            _ => spans.push(Span { from: start..end, to, column }),
        }
    }
    Ok(spans)
}

async fn equal(input: &ParquetFile, output: &Group, span: Span, piece: u64, hash: &mut Xxh3) -> Result<()> {
    let starts = std::iter::successors(Some(span.from.start), |at| at.checked_add(piece)).take_while(|at| *at < span.from.end);
    let both = |at: u64| async move {
        let length = piece.min(span.from.end - at);
        let there = span.to.saturating_add(at - span.from.start);
        let left = async { input.bytes(at..at + length).await };
        let right = async { output.file.bytes(there..there.saturating_add(length)).await.map_err(unproven) };
        tokio::try_join!(left, right).map(|(left, right)| (there, left, right))
    };
    let mut pieces = stream::iter(starts.map(both)).buffered(PIECES);
    while let Some((there, left, right)) = pieces.try_next().await? {
        if left != right {
            let differs = left.iter().zip(&right).take_while(|(a, b)| a == b).count() as u64;
            let column = column_at(output, there.saturating_add(differs)).unwrap_or(span.column);
            let place = format!("{} row group {}", output.file.path, output.group);
            return Err(failed(&place, format_args!("column {column} holds other bytes than {}", input.path)));
        }
        hash.update(&left);
    }
    Ok(())
}

/// The column whose chunk holds a byte of the file.
fn column_at(output: &Group, at: u64) -> Option<usize> {
    let meta = output.file.footer().row_groups().get(output.group)?;
    let holds = |chunk: &ColumnChunkMetaData| {
        let (start, length) = chunk.byte_range();
        at >= start && at - start < length
    };
    meta.columns().iter().position(holds)
}
