//! The columns that a rewrite writes, held against the table's schema when its
//! outputs are committed: the schema may have changed in between.

use std::collections::BTreeMap;

use iceberg::spec::{NestedFieldRef, PrimitiveType, TableMetadata, Type};

use super::lineage;

/// What files hold that were written under a table's current schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Every field by its id; nested ones have no primitive type.
    fields: BTreeMap<i32, Option<PrimitiveType>>,
    /// The highest field id that the table had given out.
    last: i32,
    /// Whether rows have their lineage beside them.
    lineage: bool,
}

impl Columns {
    /// Those of the table's current schema.
    pub fn of(metadata: &TableMetadata) -> Self {
        let fields = metadata.current_schema().field_id_to_fields();
        let fields = fields.iter().map(|(id, field)| (*id, primitive(field))).collect();
        Self { fields, last: metadata.last_column_id(), lineage: lineage::is_kept(metadata) }
    }

    /// Whether rows have the same value in this field before and after the
    /// rewrite. A field that was dropped before is in the inputs at most, and one
    /// that came later is in neither.
    pub fn keep(&self, field_id: i32) -> bool {
        self.fields.contains_key(&field_id) || field_id > self.last
    }

    /// Names of the columns that would read otherwise under the table's schema as
    /// it is now: those that were dropped when the files were written and have come
    /// back, and those of another type, ascending by field id; behind them that of row
    /// ids, where the table has come to keep lineage since.
    pub fn changed(&self, now: &TableMetadata) -> Vec<String> {
        let fields: BTreeMap<i32, &NestedFieldRef> =
            now.current_schema().field_id_to_fields().iter().map(|(id, field)| (*id, field)).collect();
        let differs = |id: i32, field: &NestedFieldRef| match self.fields.get(&id) {
            Some(written) => *written != primitive(field),
            None => !self.keep(id),
        };
        let upgraded = lineage::is_kept(now) && !self.lineage;
        let ids = lineage::COLUMNS.iter().take(1).filter(|_| upgraded).map(|(_, name)| (*name).to_owned());
        fields.into_iter().filter(|(id, field)| differs(*id, field)).map(|(_, field)| field.name.clone()).chain(ids).collect()
    }
}

fn primitive(field: &NestedFieldRef) -> Option<PrimitiveType> {
    match field.field_type.as_ref() {
        Type::Primitive(kind) => Some(kind.clone()),
        _ => None,
    }
}
