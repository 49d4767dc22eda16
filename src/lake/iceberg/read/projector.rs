//! How each column of the table is read of a file, by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ArrayRef;
use arrow_schema::{Schema, SchemaRef};
use iceberg::spec::NameMapping;

use super::column::keyed_footer;
use super::file::ParquetFile;
use super::identify::{FileFields, identify};
use super::partition;
use super::project::project;
use super::rows::name_mapping;
use super::scan::{ALL_GROUPS, Opened, Root};
use super::schema::field_id;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::plan::Plan;

/// Makes files ready for a scan in the table's schema.
pub struct Projector {
    schema: SchemaRef,
    mapping: Option<NameMapping>,
    constants: HashMap<i32, ArrayRef>,
    /// What was made for the last schema of a file: most files share theirs.
    last: Mutex<Option<(SchemaRef, Arc<Vec<Root>>)>>,
}

impl Projector {
    /// For the inputs of a plan. `schema` is the table's.
    ///
    /// Errs refused `NoFieldIds` or by what the partition's values say.
    pub fn new(table: &IcebergTable, plan: &Plan, schema: &SchemaRef) -> Result<Self> {
        let constants = partition::constants(table, &plan.scope, schema)?;
        Ok(Self { schema: Arc::clone(schema), mapping: name_mapping(table)?, constants, last: Mutex::default() })
    }

    /// The `input`th input, opened.
    ///
    /// Errs refused `NoFieldIds`, `ColumnType` or `Damaged`, naming the column.
    pub fn open(&self, file: ParquetFile, input: usize) -> Result<Opened> {
        let keyed = keyed_footer(file.arrow());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = match last.as_ref().filter(|(schema, _)| schema == file.schema()) {
            Some((_, columns)) => Arc::clone(columns),
            None => Arc::new(self.columns(&file)?),
        };
        *last = Some((Arc::clone(file.schema()), Arc::clone(&columns)));
        drop(last);
        Ok(Opened { file, keyed, columns, input: Some(input), groups: ALL_GROUPS })
    }

    fn columns(&self, file: &ParquetFile) -> Result<Vec<Root>> {
        let fields = identify(file.schema(), self.mapping.as_ref()).map_err(|e| Error::damaged(&file.path, e))?;
        let places: HashMap<i32, usize> = fields.fields.iter().enumerate().filter_map(|(place, f)| Some((f.id?, place))).collect();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let table = Arc::new(Schema::new(vec![Arc::clone(field)]));
            let found = field_id(field).and_then(|id| fields.fields.get(*places.get(&id)?));
            let alone = found.map(|f| FileFields { fields: vec![f.clone()], source: fields.source });
            let projection = project(alone.as_ref().unwrap_or(&fields), &table, &[], &self.constants);
            let mut projection = projection.map_err(|e| file.refuse(e.refusal, e.detail))?;
            let node = projection.nodes.pop().ok_or_else(|| Error::damaged(&file.path, "a column was not projected"))?;
            columns.push(Root { leaves: projection.leaves, to: Some((node, table)) });
        }
        Ok(columns)
    }
}
