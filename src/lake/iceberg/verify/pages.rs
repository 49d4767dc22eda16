//! Re-packed outputs proven page by page: every column of the outputs beside that
//! of the inputs, from pages that are opened only where their bytes differ.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::DataFile;
use parquet::schema::types::SchemaDescriptor;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::blocks::{self, Applied, Block, Blocks, Group};
use super::odd;
use super::stated::{self, Leaf};
use super::{failed, unproven};
use crate::lake::iceberg::lineage;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::live::Struck;
use crate::lake::iceberg::read::manifests::Entries;
use crate::lake::iceberg::spread::{aside, core, cores};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::plan::Plan;
use crate::model::refusal::Refusal;
use crate::parquet::compare::{Asked, Failure, Found, Trouble, Which, compare};

/// What was found equal.
#[derive(Default)]
pub struct Same {
    /// Rows of the inputs, and those left out.
    pub struck: Struck,
    /// NULLs over all outputs, by field id.
    pub nulls: HashMap<i32, u64>,
    /// Columns that were compared.
    pub columns: usize,
    /// Columns of the root that cannot be compared by pages: nothing is proven of
    /// them.
    pub unfit: BTreeSet<usize>,
    /// Columns of the root that may have bloom filters.
    pub filtered: BTreeSet<usize>,
    /// Hash over the bytes of all chunks of the outputs, in order.
    pub hash: u128,
}

/// What is to be compared.
pub struct Pages<'a> {
    /// The files.
    pub store: &'a Store,
    /// The plan.
    pub plan: &'a Plan,
    /// The outputs.
    pub outputs: &'a [DataFile],
    /// The table's schema.
    pub schema: &'a SchemaRef,
    /// The inputs' manifest entries.
    pub entries: &'a Entries,
    /// Deletes that apply to the inputs, if any.
    pub deletes: Applied<'a>,
    /// The table.
    pub table: &'a IcebergTable,
    /// Field ids of the columns that may have bloom filters: somebody else checks
    /// these.
    pub blooms: &'a [i32],
}

impl Pages<'_> {
    /// Compares the outputs with the live rows of the inputs; `None` when one output's
    /// schema is spelled otherwise than another's, so that columns cannot be found by
    /// their places. Where an input is of another spelling, or not to be believed, the
    /// rows beside its own are compared by their values.
    ///
    /// Memory held: the inputs' chunks of one block, where they take no more than an
    /// eighth of the plan's bound; else, and of the outputs, those of one column a
    /// core; and the pages of that column which are open. A column of larger chunks
    /// is read through windows, for its values.
    ///
    /// Errs [`Error::Proof`] naming file and column, and as the inputs do.
    pub async fn compare(&self) -> Result<Option<Same>> {
        let outputs = blocks::outputs(self.store, self.outputs, self.schema).await?;
        let Some(first) = outputs.first().cloned() else { return self.nothing().await.map(Some) };
        let schema = first.footer().file_metadata().schema_descr();
        let mut leaves = stated::leaves(schema);
        leaves.truncate(lineage::table_leaves(schema));
        let mut done = Done::new(&leaves, self.outputs.len());
        let mut blocks = Blocks::new(self.store, self.plan, self.deletes, outputs);
        let asked: Vec<Asked> = leaves.iter().map(|leaf| self.asked(leaf)).collect();
        while let Some(mut block) = blocks.next().await? {
            if !block.right.iter().all(|group| same_schema(&first, &group.file)) {
                return Ok(None);
            }
            if !block.left.iter().all(|group| same_schema(&first, &group.file) && odd::takes_pages(group, self.memory())) {
                odd::block(self, &Arc::new(block), asked.len(), &mut done).await?;
                continue;
            }
            self.fetch(&mut block).await?;
            self.block(&Arc::new(block), &asked, &mut done).await?;
        }
        done.end(self, &asked, blocks.struck).map(Some)
    }

    /// No output: every row must be deleted.
    async fn nothing(&self) -> Result<Same> {
        let mut blocks = Blocks::new(self.store, self.plan, self.deletes, Vec::new());
        match blocks.next().await? {
            Some(_) => Err(failed("", "there is no output, and rows live")),
            None => Ok(Same { struck: blocks.struck, ..Same::default() }),
        }
    }

    /// Bytes that the proof may hold.
    pub fn memory(&self) -> u64 {
        self.plan.bound.memory
    }

    fn asked(&self, leaf: &Leaf) -> Asked {
        let page = usize::try_from(self.memory() / 8).unwrap_or(usize::MAX);
        let nans = stated::must_count(self.outputs, self.plan, self.entries, leaf);
        let bloom = leaf.id.is_some_and(|id| self.blooms.contains(&id));
        Asked { page, ends: stated::has_bounds(self.outputs, leaf), nans, bloom }
    }

    /// Fetches a block's inputs whole where they fit.
    async fn fetch(&self, block: &mut Block) -> Result<()> {
        let bytes =
            |groups: &[Group]| groups.iter().map(|group| group.span()).map(|span| span.end - span.start).fold(0, u64::saturating_add);
        if bytes(&block.left) <= self.memory() / 8 {
            Group::fetch_all(&mut block.left).await?;
        }
        if bytes(&block.right) <= self.memory() / 128 {
            Group::fetch_all(&mut block.right).await.map_err(unproven)?;
        }
        Ok(())
    }

    /// Compares the columns of a block side by side, the largest first.
    async fn block(&self, block: &Arc<Block>, asked: &[Asked], done: &mut Done<'_>) -> Result<()> {
        let size = |column: usize| block.right.iter().map(|group| group.bytes(column)).fold(0, u64::saturating_add);
        let mut columns: Vec<(usize, Asked)> = asked.iter().copied().enumerate().filter(|(column, _)| done.fits(*column)).collect();
        columns.sort_by_key(|(column, _)| Reverse(size(*column)));
        let mut work = Vec::with_capacity(columns.len());
        for (column, asked) in columns {
            work.push(self.column(Arc::clone(block), column, asked));
        }
        let mut work = stream::iter(work).buffer_unordered(workers(block, self.memory()));
        let mut all = Vec::with_capacity(asked.len());
        while let Some(compared) = work.try_next().await? {
            all.push(compared);
        }
        done.add_all(block, all);
        Ok(())
    }

    async fn column(&self, block: Arc<Block>, column: usize, asked: Asked) -> Result<Compared> {
        let most = self.memory() / 8;
        let bytes = |groups: &[Group]| groups.iter().map(|group| group.bytes(column)).fold(0, u64::saturating_add);
        if bytes(&block.left) > most || bytes(&block.right) > most {
            return Ok(Compared { column, found: None, hash: 0 });
        }
        let left = Group::chunks(&block.left, column).await?;
        let right = Group::chunks(&block.right, column).await.map_err(unproven)?;
        let work = move || {
            let hash = right.iter().fold(0, |hash, chunk| xxh3_128(&chunk.bytes) ^ u128::rotate_left(hash, 1));
            (compare(&left, &right, &asked), hash)
        };
        let _core = core().await;
        let (compared, hash) =
            aside(work).await.map_err(|stopped| Error::Stopped(format!("a column was not compared to its end: {stopped}")))?;
        match compared {
            Ok(found) => Ok(Compared { column, found: Some(found), hash }),
            Err(Failure { trouble: Trouble::Unfit(why), .. }) => {
                tracing::debug!(column, why, "a column is proven by its values");
                Ok(Compared { column, found: None, hash: 0 })
            }
            Err(failure) => Err(told(&block, column, failure)),
        }
    }
}

/// What comparing one column of a block came to; `None` when it cannot be compared
/// by pages.
pub struct Compared {
    /// Its place.
    pub column: usize,
    /// What its chunks in the outputs hold.
    pub found: Option<Vec<Found>>,
    /// Hash over the bytes of these.
    pub hash: u128,
}

/// A failure in words, with its place.
fn told(block: &Block, column: usize, failure: Failure) -> Error {
    let groups = if failure.which == Which::Left { &block.left } else { &block.right };
    let Some(group) = groups.get(failure.chunk).or_else(|| groups.last()) else { return failed("", "a row group is missing") };
    let name = group.meta().and_then(|meta| meta.columns().get(column)).map_or(String::new(), |chunk| chunk.column_path().string());
    let place = format!("row group {} column {name}", group.group);
    match (failure.which, failure.trouble) {
        (_, Trouble::TooLarge(why)) => group.file.refuse(Refusal::TooLargeForMemory, format_args!("{place}: {why}")),
        (Which::Left, Trouble::Wrong(why) | Trouble::Unfit(why)) => Error::damaged(&group.file.path, format_args!("{place}: {why}")),
        (Which::Right, Trouble::Wrong(why) | Trouble::Unfit(why)) => failed(&group.file.path, format_args!("{place}: {why}")),
    }
}

/// Whether two files have the same columns, spelled alike; those of lineage do not
/// count.
fn same_schema(a: &ParquetFile, b: &ParquetFile) -> bool {
    let schema = |file: &ParquetFile| -> Arc<SchemaDescriptor> { file.footer().file_metadata().schema_descr_ptr() };
    let (a, b) = (schema(a), schema(b));
    Arc::ptr_eq(&a, &b) || lineage::table_columns(a.root_schema()) == lineage::table_columns(b.root_schema())
}

/// How many columns may be compared at one time: fewer than there are cores where
/// one may take much. Each holds its chunks of both sides, and pages opened.
fn workers(block: &Block, memory: u64) -> usize {
    let columns = block.right.iter().chain(&block.left).filter_map(Group::meta).map(|meta| meta.num_columns()).max().unwrap_or(0);
    let held = |column: usize| {
        let groups = || block.left.iter().chain(&block.right);
        let chunks = groups().map(|group| group.bytes(column)).fold(0, u64::saturating_add);
        let opened = groups().filter_map(Group::meta).filter_map(|meta| meta.columns().get(column));
        let page = opened.map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(u64::MAX)).max().unwrap_or(0);
        chunks.saturating_add(page.min(memory / 8).saturating_mul(2))
    };
    let largest = (0..columns).map(held).max().unwrap_or(0).max(1);
    usize::try_from(memory / 2 / largest).unwrap_or(usize::MAX).clamp(1, cores())
}

/// What was compared so far.
pub struct Done<'a> {
    leaves: &'a [Leaf],
    /// For each output, what each of its columns holds.
    outputs: Vec<Vec<Found>>,
    unfit: BTreeSet<usize>,
    hash: Xxh3,
}

impl<'a> Done<'a> {
    fn new(leaves: &'a [Leaf], outputs: usize) -> Self {
        let none = vec![Found::default(); leaves.len()];
        Self { leaves, outputs: vec![none; outputs], unfit: BTreeSet::new(), hash: Xxh3::new() }
    }

    /// Whether a column can still be compared by pages.
    fn fits(&self, column: usize) -> bool {
        self.leaves.get(column).is_some_and(|leaf| !self.unfit.contains(&leaf.root))
    }

    /// Adds the columns of a block.
    pub fn add_all(&mut self, block: &Block, compared: Vec<Compared>) {
        let mut hashes = vec![0u128; self.leaves.len()];
        for compared in compared {
            if let Some(place) = hashes.get_mut(compared.column) {
                *place = compared.hash;
            }
            self.add(block, compared);
        }
        hashes.iter().for_each(|hash| self.hash.update(&hash.to_le_bytes()));
    }

    fn add(&mut self, block: &Block, compared: Compared) {
        let Some(leaf) = self.leaves.get(compared.column) else { return };
        let Some(found) = compared.found else {
            self.unfit.insert(leaf.root);
            return;
        };
        for (group, found) in block.right.iter().zip(found) {
            if let Some(sum) = self.outputs.get_mut(group.place).and_then(|columns| columns.get_mut(compared.column)) {
                sum.values = sum.values.saturating_add(found.values);
                sum.nulls = sum.nulls.saturating_add(found.nulls);
                sum.nans = sum.nans.saturating_add(found.nans);
                sum.ends.join(leaf.order, &found.ends);
            }
        }
    }

    /// Holds the outputs' descriptions against what was found.
    fn end(mut self, pages: &Pages<'_>, asked: &[Asked], struck: Struck) -> Result<Same> {
        let (mut nulls, mut columns) = (HashMap::new(), 0);
        for (place, leaf) in self.leaves.iter().enumerate() {
            if self.unfit.contains(&leaf.root) {
                continue;
            }
            let counted = asked.get(place).is_some_and(|asked| asked.nans);
            let (mut sum, mut fits) = (0u64, true);
            for (described, found) in pages.outputs.iter().zip(&self.outputs) {
                let Some(found) = found.get(place) else { continue };
                fits &= stated::check(described, leaf, found, counted)?;
                sum = sum.saturating_add(found.nulls);
            }
            if fits {
                nulls.extend(leaf.id.map(|id| (id, sum)));
                columns += 1;
            } else {
                self.unfit.insert(leaf.root);
            }
        }
        let filtered = self.leaves.iter().filter(|leaf| leaf.id.is_some_and(|id| pages.blooms.contains(&id))).map(|leaf| leaf.root);
        Ok(Same { struck, nulls, columns, filtered: filtered.collect(), unfit: self.unfit, hash: self.hash.digest128() })
    }
}
