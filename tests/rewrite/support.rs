//! A table in memory into which outputs are written without a reader.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use afterwrite::lake::iceberg::read::schema::arrow_schema;
use afterwrite::lake::iceberg::read::{ReadSummary, RowSource};
use afterwrite::lake::iceberg::rewrite::input::Input;
use afterwrite::lake::iceberg::rewrite::job::{Job, Made};
use afterwrite::lake::iceberg::rewrite::repack::Packed;
use afterwrite::lake::iceberg::rewrite::{encode, repack, splice};
use afterwrite::lake::{Control, Error, Result};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{AttemptId, Bound, LiveFile, Plan};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::{
    FormatVersion, NestedField, PartitionSpec, PrimitiveType, Schema, SortOrder, TableMetadata, TableMetadataBuilder, Type,
};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader};
use roaring::RoaringTreemap;

/// Enough memory for every ordinary test.
pub const MEMORY: u64 = 256 << 20;

pub struct Lake {
    pub io: FileIO,
    pub metadata: TableMetadata,
    pub watch: Watch,
}

/// A written file, read back.
pub struct Read {
    pub footer: ParquetMetaData,
    pub rows: RecordBatch,
}

impl Lake {
    /// An unpartitioned table. Field ids are assigned in order, from 1.
    pub fn new(fields: Vec<(&str, Type)>, properties: &[(&str, &str)]) -> Self {
        let fields = fields.into_iter().zip(1..).map(|((name, kind), id)| NestedField::optional(id, name, kind).into());
        let schema = Schema::builder().with_fields(fields).build().unwrap();
        let properties = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let metadata = TableMetadataBuilder::new(
            schema,
            PartitionSpec::unpartition_spec(),
            SortOrder::unsorted_order(),
            "memory://wh/db/t".into(),
            FormatVersion::V2,
            properties,
        );
        Self { io: FileIO::new_with_memory(), metadata: metadata.unwrap().build().unwrap().metadata, watch: Watch::default() }
    }

    pub fn arrow(&self) -> SchemaRef {
        Arc::new(iceberg::arrow::schema_to_arrow_schema(self.metadata.current_schema()).unwrap())
    }

    pub fn batch(&self, columns: Vec<arrow_array::ArrayRef>) -> RecordBatch {
        RecordBatch::try_new(self.arrow(), columns).unwrap()
    }

    /// Encodes batches under an attempt's name.
    pub async fn encode(&self, attempt: &str, batches: Vec<RecordBatch>, target: u64, memory: u64) -> Result<Vec<Made>> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let plan = plan(vec![live("memory://wh/db/t/data/in.parquet", bytes as u64, rows as u64)], target, memory);
        let job = Job::new(&self.io, &self.metadata, &plan, &AttemptId(attempt.into()), &self.watch)?;
        let schema = arrow_schema(self.metadata.current_schema())?;
        let source = Rows { schema, batches: batches.into(), read: 0 };
        Ok(encode::write(&job, Box::new(source)).await?.0)
    }

    /// Writes one file to be spliced later.
    pub async fn file(&self, name: &str, batch: RecordBatch) -> LiveFile {
        let made = self.encode(name, vec![batch], u64::MAX, MEMORY).await.unwrap();
        live(&made[0].output.path, made[0].output.bytes, made[0].output.records)
    }

    pub async fn splice(
        &self,
        attempt: &str,
        files: Vec<LiveFile>,
        target: u64,
        nans: HashMap<String, HashMap<i32, u64>>,
    ) -> Result<Vec<Made>> {
        let plan = plan(files, target, MEMORY);
        let job = Job::new(&self.io, &self.metadata, &plan, &AttemptId(attempt.into()), &self.watch)?;
        let inputs = Input::open_all(&self.io, &plan, &self.watch).await?;
        Ok(splice::write(&job, &inputs, &nans).await?.0)
    }

    pub async fn repack(
        &self,
        attempt: &str,
        files: Vec<LiveFile>,
        target: u64,
        nans: HashMap<String, HashMap<i32, u64>>,
    ) -> Result<Vec<Made>> {
        match self.repack_without(attempt, files, target, nans, &[]).await? {
            Packed::Made(made) => Ok(made),
            Packed::Unfit(why) => panic!("{why}"),
        }
    }

    /// Without the deleted rows of each file.
    pub async fn repack_without(
        &self,
        attempt: &str,
        files: Vec<LiveFile>,
        target: u64,
        nans: HashMap<String, HashMap<i32, u64>>,
        deleted: &[RoaringTreemap],
    ) -> Result<Packed> {
        let plan = plan(files, target, MEMORY);
        let job = Job::new(&self.io, &self.metadata, &plan, &AttemptId(attempt.into()), &self.watch)?;
        let inputs = Input::open_all(&self.io, &plan, &self.watch).await?;
        Ok(repack::write(&job, &inputs, &nans, deleted, &[]).await?.0)
    }

    pub async fn read(&self, path: &str) -> Read {
        let bytes = self.io.new_input(path).unwrap().read().await.unwrap();
        let footer = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .with_metadata_options(Some(ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false)))
            .parse_and_finish(&bytes)
            .unwrap();
        let options = ArrowReaderOptions::new().with_schema(self.arrow());
        let metadata = ArrowReaderMetadata::load(&bytes, options).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata).build().unwrap();
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        Read { footer, rows: arrow_select::concat::concat_batches(&self.arrow(), &batches).unwrap() }
    }
}

pub fn primitive(kind: PrimitiveType) -> Type {
    Type::Primitive(kind)
}

pub fn live(path: &str, bytes: u64, records: u64) -> LiveFile {
    LiveFile { path: path.into(), bytes, records, data_sequence: 1, sort_order_id: None, first_row_id: None, deletes: Vec::new() }
}

pub fn plan(inputs: Vec<LiveFile>, target: u64, memory: u64) -> Plan {
    Plan {
        table: TableIdent::iceberg(uuid::Uuid::nil()),
        name: TableName::new("c", "db", "t"),
        reference: "main".into(),
        snapshot_id: 1,
        sequence_number: 1,
        scope: PartitionKey::unpartitioned(0),
        reason: "request".into(),
        inputs,
        deletes: Vec::new(),
        target_file_size: target,
        bound: Bound { gb_hours: 1.0, millis: 60_000, memory },
    }
}

/// Batches as a source.
pub struct Rows {
    pub schema: SchemaRef,
    pub batches: VecDeque<RecordBatch>,
    pub read: u64,
}

#[async_trait]
impl RowSource for Rows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.batches.pop_front();
        self.read += batch.as_ref().map_or(0, |b| b.num_rows() as u64);
        Ok(batch)
    }

    fn rows_read(&self) -> Option<u64> {
        Some(self.read)
    }

    fn finish(self: Box<Self>) -> ReadSummary {
        ReadSummary { rows_in: self.read, ..ReadSummary::default() }
    }
}

/// What an attempt told, in order.
#[derive(Default)]
pub struct Watch {
    pub told: Mutex<Vec<String>>,
    checks: AtomicU64,
    /// Stops at this check, when not 0.
    pub stop_at: AtomicU64,
}

impl Watch {
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

#[async_trait]
impl Control for Watch {
    async fn will_write(&self, path: &str) -> Result<()> {
        self.told.lock().unwrap().push(path.to_owned());
        Ok(())
    }

    async fn will_commit(&self, _asserted: &str) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed) + 1;
        if checks == self.stop_at.load(Ordering::Relaxed) { Err(Error::Stopped("by the test".into())) } else { Ok(()) }
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, point: KillPoint) {
        self.told.lock().unwrap().push(point.code().to_owned());
    }
}

/// Bytes that do not compress, always the same for a seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// A codec's name, without its level.
pub fn codec(compression: parquet::basic::Compression) -> String {
    format!("{compression:?}").split('(').next().unwrap().to_owned()
}
