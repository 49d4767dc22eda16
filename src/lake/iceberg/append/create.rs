//! New tables.

use std::collections::HashMap;

use arrow_schema::Schema;
use iceberg::TableCreation;
use iceberg::arrow::arrow_schema_to_schema_auto_assign_ids;
use iceberg::spec::{FormatVersion, TableMetadataBuilder, Transform, UnboundPartitionSpec};

use crate::lake::iceberg::catalog::{Catalog, Loaded};
use crate::lake::{Error, Result};
use crate::model::ident::TableName;

/// What a new table is to be: format version 2.
pub struct Definition<'a> {
    /// Where it lies.
    pub location: String,
    /// Its columns, in Arrow's words; field ids are given out here.
    pub columns: &'a Schema,
    /// The date column by whose month it is partitioned; none for no partitions.
    pub month_of: Option<&'a str>,
    /// Its properties.
    pub properties: HashMap<String, String>,
}

/// Creates an empty table.
///
/// # Errors
/// [`Error::Setup`] when the table is there already, or the definition makes no
/// valid one; those of the catalog.
pub async fn create(catalog: &dyn Catalog, name: &TableName, definition: Definition<'_>) -> Result<Loaded> {
    let failed = |e: iceberg::Error| Error::Setup(format!("create {name}: {e}"));
    let schema = arrow_schema_to_schema_auto_assign_ids(definition.columns).map_err(failed)?;
    let mut spec = UnboundPartitionSpec::builder();
    if let Some(column) = definition.month_of {
        let source = schema.field_by_name(column).ok_or_else(|| Error::Setup(format!("create {name}: there is no column `{column}`")))?;
        spec = spec.add_partition_field(source.id, format!("{column}_month"), Transform::Month).map_err(failed)?;
    }
    let creation = TableCreation::builder()
        .name(name.table.clone())
        .location(definition.location)
        .schema(schema)
        .partition_spec(spec.build())
        .properties(definition.properties)
        .format_version(FormatVersion::V2)
        .build();
    let built = TableMetadataBuilder::from_table_creation(creation).and_then(TableMetadataBuilder::build).map_err(failed)?;
    catalog.create(name, built.metadata).await
}
