//! Row lineage of format v3: the two columns that tell a row from others for as long
//! as it lives, and the ids from which they are counted where a file leaves them out.
//!
//! `_row_id` is the stored value, else the file's `first_row_id` plus the row's
//! position; `_last_updated_sequence_number` is the stored value, else the file's data
//! sequence number. A file of a table that was upgraded has no `first_row_id` before
//! the first commit after it: its rows have no id yet.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use iceberg::spec::{FormatVersion, TableMetadata};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::basic::{Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use super::manifest::ScanEntry;
use crate::model::file::{Content, EntryStatus};

/// Field id of `_row_id`.
pub const ROW_ID: i32 = 2_147_483_540;
/// Field id of `_last_updated_sequence_number`.
pub const LAST_UPDATED: i32 = 2_147_483_539;
/// Both, as they follow the table's columns in a file.
pub const COLUMNS: [(i32, &str); 2] = [(ROW_ID, "_row_id"), (LAST_UPDATED, "_last_updated_sequence_number")];

/// Whether a table's rows have lineage.
pub fn is_kept(metadata: &TableMetadata) -> bool {
    !matches!(metadata.format_version(), FormatVersion::V1 | FormatVersion::V2)
}

/// The table's columns and the two of lineage.
pub fn with_columns(table: &SchemaRef) -> SchemaRef {
    let mut fields: Vec<_> = table.fields().iter().cloned().collect();
    for (id, name) in COLUMNS {
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
        fields.push(Arc::new(Field::new(name, DataType::Int64, true).with_metadata(id)));
    }
    Arc::new(Schema::new(fields))
}

/// The columns of a file, less those of lineage behind them.
pub fn table_columns(file: &Type) -> &[TypePtr] {
    let fields = file.get_fields();
    let ids = fields.iter().rev().take_while(|field| {
        let info = field.get_basic_info();
        info.has_id() && COLUMNS.iter().any(|(id, _)| *id == info.id())
    });
    fields.get(..fields.len().saturating_sub(ids.count())).unwrap_or(fields)
}

/// How many leaf columns a file has, less those of lineage behind them.
pub fn table_leaves(file: &SchemaDescriptor) -> usize {
    let roots = table_columns(file.root_schema()).len();
    (0..file.num_columns()).take_while(|leaf| file.get_column_root_idx(*leaf) < roots).count()
}

/// The schema of a file with these columns and those of lineage behind them.
///
/// # Errors
/// When the library takes no such columns.
pub fn file_schema(file: &Type) -> Result<TypePtr, ParquetError> {
    let mut fields = table_columns(file).to_vec();
    for (id, name) in COLUMNS {
        let column = Type::primitive_type_builder(name, Physical::INT64).with_repetition(Repetition::OPTIONAL).with_id(Some(id));
        fields.push(Arc::new(column.build()?));
    }
    Type::group_type_builder(file.name()).with_fields(fields).build().map(Arc::new)
}

/// Gives each live data file of a manifest the id of its first row: its own, else
/// counted on from the manifest's by the rows of those before it that have none.
/// `first` is the manifest's by the manifest list; without one no file has any.
pub fn inherit(entries: &mut [ScanEntry], first: Option<u64>) {
    let mut next = first.and_then(|first| i64::try_from(first).ok());
    for entry in entries.iter_mut().filter(|e| e.entry.content == Content::Data && e.entry.status != EntryStatus::Deleted) {
        let rows = i64::try_from(entry.entry.records).ok();
        (entry.first_row_id, next) = inherited(entry.first_row_id, next, rows);
    }
}

/// A file's first row id and the next to be given, by its own and the next before.
pub fn inherited(own: Option<i64>, next: Option<i64>, rows: Option<i64>) -> (Option<i64>, Option<i64>) {
    match (own, next) {
        (_, None) => (None, None),
        (Some(own), next) => (Some(own), next),
        (None, Some(first)) => (Some(first), rows.and_then(|rows| first.checked_add(rows))),
    }
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn files_without_an_id_of_their_own_count_on_from_the_manifests() {
        let files = [(None, 5), (Some(70), 9), (None, 3), (None, 1)];
        let given = |first: Option<i64>| {
            let mut next = first;
            files.map(|(own, rows)| {
                let (id, after) = inherited(own, next, Some(rows));
                next = after;
                id
            })
        };
        assert_eq!(given(Some(100)), [Some(100), Some(70), Some(105), Some(108)]);
        // a manifest from before the upgrade: no file has any
        assert_eq!(given(None), [None; 4]);
    }

    #[test]
    fn lineage_follows_the_tables_columns_and_only_there_it_is_lineage() {
        let file = |text: &str| SchemaDescriptor::new(Arc::new(parse_message_type(text).unwrap()));
        let plain =
            file("message m { OPTIONAL INT64 a = 1; OPTIONAL group l (LIST) = 2 { REPEATED group list { OPTIONAL INT32 element = 3; } } }");
        let both = SchemaDescriptor::new(file_schema(plain.root_schema()).unwrap());
        assert_eq!((table_leaves(&plain), table_leaves(&both), both.num_columns()), (2, 2, 4));
        assert_eq!(both.column(3).self_type().get_basic_info().id(), LAST_UPDATED);
        // appending twice is appending once
        assert_eq!(file_schema(both.root_schema()).unwrap().get_fields(), both.root_schema().get_fields());
        let front = file("message m { OPTIONAL INT64 _row_id = 2147483540; OPTIONAL INT64 a = 1; }");
        assert_eq!(table_leaves(&front), 2);
    }
}
