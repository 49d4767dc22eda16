//! The Parquet form of a table's schema, and whether a file has it.

use std::sync::Arc;

use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescriptor, Type as ParquetType, TypePtr};

use crate::lake::iceberg::lineage;
use crate::lake::{Error, Result};
use crate::model::refusal::{Refusal, Refused};

/// The table's current schema as Parquet columns: field ids everywhere, logical
/// types by the specification, names as Apache Iceberg spells them in files.
///
/// Errs with a refusal on a type that we cannot carry exactly.
pub fn parquet_schema(schema: &Schema) -> Result<SchemaDescriptor> {
    let fields = schema.as_struct().fields().iter().map(|f| node(f, &compatible_name(&f.name))).collect::<Result<Vec<_>>>()?;
    let root = ParquetType::group_type_builder("table").with_fields(fields).build().map_err(broken)?;
    Ok(SchemaDescriptor::new(Arc::new(root)))
}

/// The columns of a table or file with those of lineage behind them.
///
/// Errs with a refusal where the table has a column of such a name.
pub fn with_lineage(columns: &ParquetType) -> Result<SchemaDescriptor> {
    if let Some(taken) = lineage::table_columns(columns).iter().find(|c| lineage::COLUMNS.iter().any(|(_, name)| *name == c.name())) {
        return Err(Refused::new(Refusal::ColumnType, format!("column {} has a name of format 3's own", taken.name())).into());
    }
    lineage::file_schema(columns).map(SchemaDescriptor::new).map_err(broken)
}

/// Where a file's schema differs from the table's; `None` when it has it.
///
/// Names may be spelled as the table spells them or as in
/// [`compatible_name`]; those of the groups inside lists and maps are free. A
/// column may be required where the table's is optional.
///
/// `lineage`: columns of lineage behind the table's make no difference.
pub fn difference(table: &SchemaDescriptor, file: &SchemaDescriptor, lineage: bool) -> Option<String> {
    let (wanted, found) = (table.root_schema().get_fields(), file.root_schema());
    fields_differ(wanted, if lineage { lineage::table_columns(found) } else { found.get_fields() }, true, "")
}

fn fields_differ(wanted: &[TypePtr], found: &[TypePtr], named: bool, path: &str) -> Option<String> {
    if wanted.len() != found.len() {
        let place = if path.is_empty() { "the file" } else { path };
        return Some(format!("{place} has {} fields, the table {}", found.len(), wanted.len()));
    }
    wanted.iter().zip(found).find_map(|(wanted, found)| node_differs(wanted, found, named, path))
}

fn node_differs(table: &ParquetType, file: &ParquetType, named: bool, above: &str) -> Option<String> {
    let (wanted, found) = (table.get_basic_info(), file.get_basic_info());
    let path = if above.is_empty() { found.name().to_owned() } else { format!("{above}.{}", found.name()) };
    if wanted.has_id() != found.has_id() || (wanted.has_id() && wanted.id() != found.id()) {
        return Some(format!("column {path} does not have the field id that the table has in its place"));
    }
    if named && compatible_name(found.name()) != wanted.name() {
        return Some(format!("column {path} is called {} in the table", wanted.name()));
    }
    // Writers mark a column required when none of their rows can be NULL.
    let narrower = (wanted.repetition(), found.repetition()) == (Repetition::OPTIONAL, Repetition::REQUIRED);
    if wanted.repetition() != found.repetition() && !narrower {
        return Some(format!("column {path} is {}, in the table {}", found.repetition(), wanted.repetition()));
    }
    if table.is_primitive() != file.is_primitive() || meaning(table) != meaning(file) {
        return Some(format!("column {path} has another type than the table"));
    }
    if table.is_primitive() {
        return None;
    }
    let is_struct = meaning(table).1 == Meaning::Plain && wanted.has_id();
    fields_differ(table.get_fields(), file.get_fields(), is_struct, &path)
}

/// What the logical and converted types of a node say together.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Plain,
    Other(LogicalType),
    Ambiguous(ConvertedType),
}

/// Physical type, meaning and length of a node.
fn meaning(node: &ParquetType) -> (Option<Physical>, Meaning, i32) {
    let info = node.get_basic_info();
    let physical = node.is_primitive().then(|| node.get_physical_type());
    let length = match node {
        ParquetType::PrimitiveType { type_length, .. } if physical == Some(Physical::FIXED_LEN_BYTE_ARRAY) => *type_length,
        _ => 0,
    };
    let logical = info.logical_type_ref().cloned().or(match info.converted_type() {
        ConvertedType::UTF8 => Some(LogicalType::String),
        ConvertedType::DATE => Some(LogicalType::Date),
        ConvertedType::LIST => Some(LogicalType::List),
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => Some(LogicalType::Map),
        ConvertedType::DECIMAL => Some(LogicalType::Decimal { scale: node.get_scale(), precision: node.get_precision() }),
        _ => None,
    });
    let plain = |width: i8| matches!(logical, Some(LogicalType::Integer { bit_width, is_signed: true }) if bit_width == width);
    let meaning = match (physical, &logical) {
        (Some(Physical::INT32), _) if plain(32) => Meaning::Plain,
        (Some(Physical::INT64), _) if plain(64) => Meaning::Plain,
        // The inner group of a map may be marked as one too.
        (None, Some(LogicalType::Map)) if info.has_repetition() && info.repetition() == Repetition::REPEATED => Meaning::Plain,
        (_, Some(logical)) => Meaning::Other(logical.clone()),
        (Some(Physical::INT32), None) if info.converted_type() == ConvertedType::INT_32 => Meaning::Plain,
        (Some(Physical::INT64), None) if info.converted_type() == ConvertedType::INT_64 => Meaning::Plain,
        (_, None) if info.converted_type() == ConvertedType::NONE => Meaning::Plain,
        (_, None) => Meaning::Ambiguous(info.converted_type()),
    };
    (physical, meaning, length)
}

fn node(field: &NestedField, name: &str) -> Result<TypePtr> {
    let repetition = if field.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    match field.field_type.as_ref() {
        Type::Primitive(kind) => leaf(field, name, repetition, kind),
        Type::Struct(inner) => {
            if inner.fields().is_empty() {
                return Err(
                    Refused::new(Refusal::ColumnType, format!("column {}: parquet has no struct without fields", field.name)).into()
                );
            }
            let fields = inner.fields().iter().map(|f| node(f, &compatible_name(&f.name))).collect::<Result<Vec<_>>>()?;
            group(name, repetition, Some(field.id), None, fields)
        }
        Type::List(list) => {
            let entries = group("list", Repetition::REPEATED, None, None, vec![node(&list.element_field, "element")?])?;
            group(name, repetition, Some(field.id), Some(LogicalType::List), vec![entries])
        }
        Type::Map(map) => {
            let entry = vec![node(&map.key_field, "key")?, node(&map.value_field, "value")?];
            let entries = group("key_value", Repetition::REPEATED, None, None, entry)?;
            group(name, repetition, Some(field.id), Some(LogicalType::Map), vec![entries])
        }
    }
}

fn group(name: &str, repetition: Repetition, id: Option<i32>, logical: Option<LogicalType>, fields: Vec<TypePtr>) -> Result<TypePtr> {
    let builder = ParquetType::group_type_builder(name).with_repetition(repetition).with_id(id);
    builder.with_logical_type(logical).with_fields(fields).build().map(Arc::new).map_err(broken)
}

fn leaf(field: &NestedField, name: &str, repetition: Repetition, kind: &PrimitiveType) -> Result<TypePtr> {
    let timestamp = |utc, unit| Some(LogicalType::Timestamp { is_adjusted_to_u_t_c: utc, unit });
    let mut digits = None;
    let (physical, logical, length) = match kind {
        PrimitiveType::Boolean => (Physical::BOOLEAN, None, None),
        PrimitiveType::Int => (Physical::INT32, None, None),
        PrimitiveType::Long => (Physical::INT64, None, None),
        PrimitiveType::Float => (Physical::FLOAT, None, None),
        PrimitiveType::Double => (Physical::DOUBLE, None, None),
        PrimitiveType::Date => (Physical::INT32, Some(LogicalType::Date), None),
        PrimitiveType::Time => (Physical::INT64, Some(LogicalType::Time { is_adjusted_to_u_t_c: false, unit: TimeUnit::MICROS }), None),
        PrimitiveType::Timestamp => (Physical::INT64, timestamp(false, TimeUnit::MICROS), None),
        PrimitiveType::Timestamptz => (Physical::INT64, timestamp(true, TimeUnit::MICROS), None),
        PrimitiveType::String => (Physical::BYTE_ARRAY, Some(LogicalType::String), None),
        PrimitiveType::Binary => (Physical::BYTE_ARRAY, None, None),
        PrimitiveType::Uuid => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), Some(16)),
        PrimitiveType::Fixed(length) => {
            let length = i32::try_from(*length).map_err(|_| unsupported(field, kind))?;
            (Physical::FIXED_LEN_BYTE_ARRAY, None, Some(length))
        }
        PrimitiveType::Decimal { precision, scale } => {
            let (precision, scale) = (i32::try_from(*precision), i32::try_from(*scale));
            let (Ok(precision), Ok(scale)) = (precision, scale) else { return Err(unsupported(field, kind)) };
            digits = Some((precision, scale));
            let (physical, length) = match precision {
                ..=9 => (Physical::INT32, None),
                10..=18 => (Physical::INT64, None),
                _ => (Physical::FIXED_LEN_BYTE_ARRAY, Some(decimal_bytes(precision))),
            };
            (physical, Some(LogicalType::Decimal { scale, precision }), length)
        }
        PrimitiveType::TimestampNs => (Physical::INT64, timestamp(false, TimeUnit::NANOS), None),
        PrimitiveType::TimestamptzNs => (Physical::INT64, timestamp(true, TimeUnit::NANOS), None),
    };
    let mut builder = ParquetType::primitive_type_builder(name, physical).with_repetition(repetition).with_id(Some(field.id));
    if let Some(length) = length {
        builder = builder.with_length(length);
    }
    if let Some((precision, scale)) = digits {
        builder = builder.with_precision(precision).with_scale(scale);
    }
    builder.with_logical_type(logical).build().map(Arc::new).map_err(broken)
}

fn unsupported(field: &NestedField, kind: &PrimitiveType) -> Error {
    Refused::new(Refusal::ColumnType, format!("column {}: {kind} is not written", field.name)).into()
}

fn broken(error: ParquetError) -> Error {
    Refused::new(Refusal::ColumnType, format!("the schema has no parquet form: {error}")).into()
}

/// The fewest bytes whose two's complement holds every number of this many digits.
fn decimal_bytes(precision: i32) -> i32 {
    let bits = f64::from(precision) * std::f64::consts::LOG2_10 + 1.0;
    (bits / 8.0).ceil() as i32
}

/// A column's name in files: letters, digits and underscores stay, anything
/// else becomes `_x` and its UTF-16 code in hexadecimal.
pub fn compatible_name(name: &str) -> String {
    let mut made = String::with_capacity(name.len());
    for (position, c) in name.chars().enumerate() {
        match c {
            '_' => made.push(c),
            c if c.is_alphabetic() && c.len_utf16() == 1 => made.push(c),
            c if c.is_numeric() && c.len_utf16() == 1 => {
                if position == 0 {
                    made.push('_');
                }
                made.push(c);
            }
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| made.push_str(&format!("_x{unit:X}"))),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{ListType, MapType, StructType};
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::printer::print_schema;

    use super::*;

    fn every_type() -> Schema {
        let kinds = [
            ("b", PrimitiveType::Boolean),
            ("i", PrimitiveType::Int),
            ("l", PrimitiveType::Long),
            ("f", PrimitiveType::Float),
            ("d", PrimitiveType::Double),
            ("d9", PrimitiveType::Decimal { precision: 9, scale: 2 }),
            ("d18", PrimitiveType::Decimal { precision: 18, scale: 2 }),
            ("d38", PrimitiveType::Decimal { precision: 38, scale: 10 }),
            ("day", PrimitiveType::Date),
            ("t", PrimitiveType::Time),
            ("ts", PrimitiveType::Timestamp),
            ("tz", PrimitiveType::Timestamptz),
            ("s", PrimitiveType::String),
            ("u", PrimitiveType::Uuid),
            ("x", PrimitiveType::Fixed(5)),
            ("y", PrimitiveType::Binary),
            ("ns", PrimitiveType::TimestampNs),
            ("nz", PrimitiveType::TimestamptzNs),
        ];
        let mut fields: Vec<_> =
            kinds.into_iter().zip(1..).map(|((name, kind), id)| NestedField::optional(id, name, Type::Primitive(kind)).into()).collect();
        let text = || Type::Primitive(PrimitiveType::String);
        fields.push(NestedField::required(20, "id-1", Type::Primitive(PrimitiveType::Long)).into());
        let list = ListType::new(NestedField::list_element(22, text(), false).into());
        fields.push(NestedField::optional(21, "list", Type::List(list)).into());
        let map = MapType::new(NestedField::map_key_element(24, text()).into(), NestedField::map_value_element(25, text(), false).into());
        fields.push(NestedField::optional(23, "map", Type::Map(map)).into());
        let inner = StructType::new(vec![NestedField::required(27, "in", text()).into()]);
        fields.push(NestedField::optional(26, "st", Type::Struct(inner)).into());
        Schema::builder().with_fields(fields).build().unwrap()
    }

    #[test]
    fn every_type_has_the_form_of_the_specification() {
        let mut printed = Vec::new();
        print_schema(&mut printed, parquet_schema(&every_type()).unwrap().root_schema());
        let expected = "message table {
  OPTIONAL BOOLEAN b [1];
  OPTIONAL INT32 i [2];
  OPTIONAL INT64 l [3];
  OPTIONAL FLOAT f [4];
  OPTIONAL DOUBLE d [5];
  OPTIONAL INT32 d9 [6] (DECIMAL(9,2));
  OPTIONAL INT64 d18 [7] (DECIMAL(18,2));
  OPTIONAL FIXED_LEN_BYTE_ARRAY (16) d38 [8] (DECIMAL(38,10));
  OPTIONAL INT32 day [9] (DATE);
  OPTIONAL INT64 t [10] (TIME(MICROS,false));
  OPTIONAL INT64 ts [11] (TIMESTAMP(MICROS,false));
  OPTIONAL INT64 tz [12] (TIMESTAMP(MICROS,true));
  OPTIONAL BYTE_ARRAY s [13] (STRING);
  OPTIONAL FIXED_LEN_BYTE_ARRAY (16) u [14] (UUID);
  OPTIONAL FIXED_LEN_BYTE_ARRAY (5) x [15];
  OPTIONAL BYTE_ARRAY y [16];
  OPTIONAL INT64 ns [17] (TIMESTAMP(NANOS,false));
  OPTIONAL INT64 nz [18] (TIMESTAMP(NANOS,true));
  REQUIRED INT64 id_x2D1 [20];
  OPTIONAL group list [21] (LIST) {
    REPEATED group list {
      OPTIONAL BYTE_ARRAY element [22] (STRING);
    }
  }
  OPTIONAL group map [23] (MAP) {
    REPEATED group key_value {
      REQUIRED BYTE_ARRAY key [24] (STRING);
      OPTIONAL BYTE_ARRAY value [25] (STRING);
    }
  }
  OPTIONAL group st [26] {
    REQUIRED BYTE_ARRAY in [27] (STRING);
  }
}
";
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }

    #[test]
    fn names_are_spelled_as_apache_iceberg_spells_them() {
        let names = ["ok_1", "1st", "a-b", "a b", "ü", "😀", ""].map(compatible_name);
        assert_eq!(names, ["ok_1", "_1st", "a_x2Db", "a_x20b", "ü", "_xD83D_xDE00", ""]);
    }

    #[test]
    fn decimals_take_the_fewest_bytes() {
        assert_eq!([19, 20, 21, 22, 28, 38].map(decimal_bytes), [9, 9, 9, 10, 12, 16]);
    }

    #[test]
    fn a_file_with_another_schema_is_told_from_the_tables() {
        let field = |id, name: &str, kind| NestedField::optional(id, name, Type::Primitive(kind)).into();
        let fields = vec![field(1, "a-b", PrimitiveType::Timestamptz), field(2, "s", PrimitiveType::String)];
        let table = parquet_schema(&Schema::builder().with_fields(fields).build().unwrap()).unwrap();
        let check = |a: &str, b: &str| {
            let text = format!("message m {{ {a}; {b}; }}");
            let file = SchemaDescriptor::new(Arc::new(parse_message_type(&text).unwrap()));
            difference(&table, &file, false)
        };
        let (a, b) = ("OPTIONAL INT64 a_x2Db (TIMESTAMP(MICROS,true)) = 1", "OPTIONAL BYTE_ARRAY s (UTF8) = 2");
        let says = |text: &str| Some(text.to_owned());
        assert_eq!(check(a, b), None);
        assert_eq!(check(&a.replace("true", "false"), b), says("column a_x2Db has another type than the table"));
        assert_eq!(check(&a.replace("a_x2Db", "a"), b), says("column a is called a_x2Db in the table"));
        let no_id = says("column s does not have the field id that the table has in its place");
        assert_eq!((check(a, &b.replace(" = 2", "")), check(a, &b.replace("2", "3"))), (no_id.clone(), no_id));
        assert_eq!(check(a, &b.replace("OPTIONAL", "REQUIRED")), None);
        assert_eq!(check(a, &b.replace("OPTIONAL", "REPEATED")), says("column s is REPEATED, in the table OPTIONAL"));
        assert_eq!(check(a, &b.replace(" (UTF8)", "")), says("column s has another type than the table"));
    }

    #[test]
    fn a_file_that_may_hold_nulls_where_the_table_may_not_has_another_schema() {
        let field = NestedField::required(1, "n", Type::Primitive(PrimitiveType::Long)).into();
        let table = parquet_schema(&Schema::builder().with_fields(vec![field]).build().unwrap()).unwrap();
        let file = SchemaDescriptor::new(Arc::new(parse_message_type("message m { OPTIONAL INT64 n = 1; }").unwrap()));
        assert_eq!(difference(&table, &file, false), Some("column n is OPTIONAL, in the table REQUIRED".into()));
    }
}
