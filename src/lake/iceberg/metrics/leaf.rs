//! The leaf columns of a schema, in the order in which Parquet lays them out.

use iceberg::spec::{NestedFieldRef, PrimitiveType, Schema, Type};

/// A column that holds values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Field id.
    pub id: i32,
    /// Dotted name by which table properties address it.
    pub name: String,
    /// Its current type.
    pub kind: PrimitiveType,
    /// Whether it lies inside a list or map: a row may hold many of its values.
    pub repeated: bool,
    /// Number of fields above it.
    pub depth: usize,
}

impl Leaf {
    /// Whether NaN is among its possible values.
    pub fn is_float(&self) -> bool {
        matches!(self.kind, PrimitiveType::Float | PrimitiveType::Double)
    }
}

/// Every leaf of a schema, depth first.
pub fn leaves(schema: &Schema) -> Vec<Leaf> {
    let mut found = Vec::new();
    for field in schema.as_struct().fields() {
        collect(schema, field, false, 0, &mut found);
    }
    found
}

fn collect(schema: &Schema, field: &NestedFieldRef, repeated: bool, depth: usize, found: &mut Vec<Leaf>) {
    match field.field_type.as_ref() {
        Type::Primitive(kind) => {
            let name = schema.name_by_field_id(field.id).unwrap_or(&field.name).to_owned();
            found.push(Leaf { id: field.id, name, kind: kind.clone(), repeated, depth });
        }
        Type::Struct(inner) => inner.fields().iter().for_each(|f| collect(schema, f, repeated, depth + 1, found)),
        Type::List(list) => collect(schema, &list.element_field, true, depth + 1, found),
        Type::Map(map) => {
            collect(schema, &map.key_field, true, depth + 1, found);
            collect(schema, &map.value_field, true, depth + 1, found);
        }
    }
}
