//! What every way of writing outputs shares.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use iceberg::io::FileIO;
use iceberg::spec::{DataFile, Literal, PrimitiveLiteral, Struct, TableMetadata};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

use super::place::Places;
use super::schema;
use super::sink::Sink;
use crate::lake::iceberg::lineage;
use crate::lake::iceberg::metrics::leaf::{Leaf, leaves};
use crate::lake::iceberg::metrics::mode::{Mode, modes};
use crate::lake::iceberg::metrics::{Facts, data_file};
use crate::lake::iceberg::properties::WriteProperties;
use crate::lake::{Control, Error, Output, Result};
use crate::model::partition::Value;
use crate::model::plan::{AttemptId, Plan};
use crate::model::refusal::{Refusal, Refused};

/// One attempt's writing: the plan, and what the table asks of its files.
pub struct Job<'a> {
    /// Access to the table's files.
    pub io: &'a FileIO,
    /// Where progress is told and a stop is heard.
    pub control: &'a dyn Control,
    /// The plan.
    pub plan: &'a Plan,
    /// The table's writer properties.
    pub properties: WriteProperties,
    /// Its metrics modes.
    pub modes: HashMap<i32, Mode>,
    /// The leaves of its current schema.
    pub leaves: Vec<Leaf>,
    /// Its current schema in Parquet's form.
    pub columns: SchemaDescriptor,
    /// The columns of its files: in format v3 those of lineage too.
    pub written: SchemaDescriptor,
    /// Whether its rows keep their lineage.
    pub lineage: bool,
    /// Its current schema as text, for the footer.
    pub schema_text: String,
    places: Places,
    partition: Struct,
    /// Outputs given up before: their names are not used again.
    given_up: AtomicUsize,
}

/// An output, closed.
pub struct Made {
    /// Path and size.
    pub output: Output,
    /// As a manifest will describe it.
    pub data_file: DataFile,
}

impl<'a> Job<'a> {
    /// Errs when a table property does not parse, and with a refusal when the
    /// schema or the partition cannot be written.
    pub fn new(io: &'a FileIO, metadata: &TableMetadata, plan: &'a Plan, attempt: &AttemptId, control: &'a dyn Control) -> Result<Self> {
        let current = metadata.current_schema();
        let spec = metadata
            .partition_spec_by_id(plan.scope.spec_id)
            .ok_or_else(|| Refused::new(Refusal::UnresolvedSpec, format!("the table has no partition spec {}", plan.scope.spec_id)))?;
        let leaves = leaves(current);
        let columns = schema::parquet_schema(current)?;
        let lineage = lineage::is_kept(metadata);
        let order: Vec<i32> = metadata.default_sort_order().fields.iter().map(|field| field.source_id).collect();
        Ok(Self {
            io,
            control,
            plan,
            properties: WriteProperties::parse(metadata.properties(), &leaves)?,
            modes: modes(metadata.properties(), &leaves, &order)?,
            written: if lineage { schema::with_lineage(columns.root_schema())? } else { columns.clone() },
            columns,
            lineage,
            schema_text: serde_json::to_string(current.as_ref()).map_err(|e| Error::Setup(format!("the schema as text: {e}")))?,
            places: Places::new(metadata, spec, &plan.scope.tuple, attempt)?,
            partition: plan.scope.tuple.iter().map(|value| value.as_ref().map(literal)).collect(),
            leaves,
            given_up: AtomicUsize::new(0),
        })
    }

    /// Where its first output goes: not every table writes below its location.
    pub fn place(&self) -> String {
        self.places.path(0)
    }

    /// The schema of an output whose pages are of files of this one.
    ///
    /// Errs with a refusal where the file has a column of a lineage column's name.
    pub fn file_schema(&self, of: &SchemaDescriptor) -> Result<TypePtr> {
        match self.lineage {
            true => Ok(schema::with_lineage(of.root_schema())?.root_schema_ptr()),
            false => Ok(of.root_schema_ptr()),
        }
    }

    /// Begins the output with this number.
    pub async fn begin(&self, number: usize) -> Result<Sink<'a>> {
        let number = number.saturating_add(self.given_up.load(Ordering::Relaxed));
        Sink::begin(self.io, self.control, self.places.path(number)).await
    }

    /// Numbers outputs anew after so many that were begun and are not handed
    /// over. Their files stay until the caller of the rewrite, who was told of
    /// them, removes them.
    pub fn give_up(&self, begun: usize) {
        self.given_up.fetch_add(begun, Ordering::Relaxed);
    }

    /// Closes an output whose footer is written.
    pub async fn end(&self, sink: Sink<'a>, footer: &ParquetMetaData, nans: &HashMap<i32, u64>) -> Result<Made> {
        let path = sink.path().to_owned();
        let bytes = sink.close().await?;
        let facts = Facts { path: &path, bytes, partition: self.partition.clone(), spec_id: self.plan.scope.spec_id, nans };
        let data_file = data_file(footer, &self.leaves, &self.modes, facts)?;
        let records = data_file.record_count();
        Ok(Made { output: Output { path, bytes, records }, data_file })
    }
}

fn literal(value: &Value) -> Literal {
    Literal::Primitive(match value {
        Value::Bool(v) => PrimitiveLiteral::Boolean(*v),
        Value::Int(v) => PrimitiveLiteral::Int(*v),
        Value::Long(v) => PrimitiveLiteral::Long(*v),
        Value::Float(bits) => PrimitiveLiteral::Float(f32::from_bits(*bits).into()),
        Value::Double(bits) => PrimitiveLiteral::Double(f64::from_bits(*bits).into()),
        Value::Decimal(v) => PrimitiveLiteral::Int128(*v),
        Value::String(v) => PrimitiveLiteral::String(v.to_string()),
        Value::Bytes(v) => PrimitiveLiteral::Binary(v.to_vec()),
        Value::Uuid(v) => PrimitiveLiteral::UInt128(*v),
    })
}
