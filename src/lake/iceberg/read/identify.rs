//! Which of the table's fields each field of a file is: by field id, or for
//! files without ids by the table's name mapping.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Schema};
use iceberg::spec::{MappedField, NameMapping};

use super::schema::{children, field_id};

/// A field of a file.
#[derive(Clone, Debug)]
pub struct FileField {
    /// The table's field id; `None` when neither the file nor the mapping knows one.
    pub id: Option<i32>,
    /// The field as Arrow reads it.
    pub field: FieldRef,
    /// Its Parquet leaf columns.
    pub leaves: Range<usize>,
    /// Struct fields; or the element; or key and value.
    pub children: Vec<FileField>,
}

/// The fields of one file, identified.
#[derive(Clone, Debug)]
pub struct FileFields {
    /// The top-level fields.
    pub fields: Vec<FileField>,
    /// What gave the ids.
    pub source: Ids,
}

/// Where a file's field ids come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The file itself.
    File,
    /// The table's name mapping.
    Mapping,
    /// Nothing: the file has none and the table has no mapping.
    None,
}

/// Identifies the fields of a file.
///
/// Errs with a description when an id or a name is there twice.
pub fn identify(schema: &Schema, mapping: Option<&NameMapping>) -> Result<FileFields, String> {
    let own_ids = schema.fields().iter().any(has_id);
    let source = match (own_ids, mapping) {
        (true, _) => Ids::File,
        (false, Some(_)) => Ids::Mapping,
        (false, None) => Ids::None,
    };
    let mut leaf = 0;
    let fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    let fields: Vec<FileField> = match (source, mapping) {
        (Ids::Mapping, Some(mapping)) => {
            let mapped: Vec<&MappedField> = mapping.fields().iter().collect();
            fields.iter().map(|f| field(f, &mut leaf, find(&mapped, f.name()))).collect()
        }
        _ => fields.iter().map(|f| field(f, &mut leaf, None)).collect(),
    };
    let mut seen = HashSet::new();
    distinct(&fields, &mut seen)?;
    Ok(FileFields { fields, source })
}

/// A leaf's field by its id, below structs only.
pub fn find_leaf(fields: &[FileField], id: i32) -> Option<Vec<usize>> {
    for (index, field) in fields.iter().enumerate() {
        if field.id == Some(id) {
            return field.children.is_empty().then(|| vec![index]);
        }
        if matches!(field.field.data_type(), DataType::Struct(_))
            && let Some(mut path) = find_leaf(&field.children, id)
        {
            path.insert(0, index);
            return Some(path);
        }
    }
    None
}

/// Whether an id is anywhere in a file, below lists and maps too.
pub fn contains(fields: &[FileField], id: i32) -> bool {
    fields.iter().any(|f| f.id == Some(id) || contains(&f.children, id))
}

fn has_id(field: &FieldRef) -> bool {
    field_id(field).is_some() || children(field.data_type()).into_iter().any(has_id)
}

fn field(arrow: &FieldRef, leaf: &mut usize, mapped: Option<&MappedField>) -> FileField {
    let first = *leaf;
    let nested = children(arrow.data_type());
    let mapping: Vec<&MappedField> = mapped.map(|m| m.fields().iter().map(Arc::as_ref).collect()).unwrap_or_default();
    // Elements, keys and values are mapped by their role, whatever a writer calls them.
    let roles: Option<&[&str]> = match arrow.data_type() {
        DataType::List(_) => Some(&["element"]),
        DataType::Map(..) => Some(&["key", "value"]),
        _ => None,
    };
    let mut below = Vec::with_capacity(nested.len());
    for (i, child) in nested.iter().enumerate() {
        let name = roles.and_then(|r| r.get(i).copied()).unwrap_or(child.name());
        below.push(field(child, leaf, find(&mapping, name)));
    }
    if nested.is_empty() {
        *leaf += 1;
    }
    let id = field_id(arrow).or_else(|| mapped.and_then(MappedField::field_id));
    FileField { id, field: arrow.clone(), leaves: first..*leaf, children: below }
}

fn find<'a>(mapping: &[&'a MappedField], name: &str) -> Option<&'a MappedField> {
    mapping.iter().copied().find(|m| m.names().iter().any(|n| n == name))
}

fn distinct(fields: &[FileField], seen: &mut HashSet<i32>) -> Result<(), String> {
    for field in fields {
        if let Some(id) = field.id
            && !seen.insert(id)
        {
            return Err(format!("two columns have field id {id}"));
        }
        distinct(&field.children, seen)?;
    }
    Ok(())
}
