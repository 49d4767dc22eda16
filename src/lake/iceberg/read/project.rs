//! From a file's columns to the table's current schema: which leaves to read,
//! and how each field of the output is made. Matching is by field id alone.

use std::collections::{BTreeSet, HashMap};

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, FieldRef, Schema};

use super::convert::convertible;
use super::identify::{self, FileField, FileFields, Ids};
use super::schema::{children, field_id};
use crate::lake::iceberg::lineage::COLUMNS;
use crate::model::refusal::{Refusal, Refused};

/// How one field of the output is made from a batch of the file.
#[derive(Clone, Debug)]
pub enum Node {
    /// Absent from the file: NULL.
    Null,
    /// Absent from the file, but an identity partition value.
    Constant(ArrayRef),
    /// From the file's column.
    Column {
        /// Its place among the projected fields of its parent.
        index: usize,
        /// Nodes of a struct's fields, of a list's element, of a map's key and
        /// value; empty for a primitive.
        below: Vec<Node>,
    },
}

/// How one equality-delete key column is made.
#[derive(Clone, Debug)]
pub enum Key {
    /// Absent from the file: NULL.
    Null,
    /// Absent from the file, but an identity partition value.
    Constant(ArrayRef),
    /// The column's place, from the root through structs.
    Path(Vec<usize>),
}

/// What to read of a file and how to make the output of it.
#[derive(Clone, Debug)]
pub struct Projection {
    /// One node for each field of the table.
    pub nodes: Vec<Node>,
    /// One for each key column asked for.
    pub keys: Vec<Key>,
    /// The Parquet leaf columns to read, ascending; never empty.
    pub leaves: Vec<usize>,
}

/// Makes a file's projection. `constants` are the identity partition values by
/// field id, each an array of one; `keys` are further primitive columns, which
/// the table's current schema may not have any more.
///
/// Errs refused `NoFieldIds`, `ColumnType` or `Damaged`, naming the column.
pub fn project(file: &FileFields, table: &Schema, keys: &[Field], constants: &HashMap<i32, ArrayRef>) -> Result<Projection, Refused> {
    let mut selector = Selector { source: file.source, constants, leaves: BTreeSet::new() };
    let targets: Vec<&FieldRef> = table.fields().iter().collect();
    let mut nodes = selector.fields(&file.fields, &targets, "")?;
    let mut keys = keys.iter().map(|k| selector.key(&file.fields, k)).collect::<Result<Vec<_>, _>>()?;
    if selector.leaves.is_empty() {
        selector.leaves.insert(0);
    }
    compact(&mut nodes, &file.fields, &selector.leaves);
    for key in &mut keys {
        if let Key::Path(path) = key {
            compact_path(path, &file.fields, &selector.leaves);
        }
    }
    Ok(Projection { nodes, keys, leaves: selector.leaves.into_iter().collect() })
}

struct Selector<'a> {
    source: Ids,
    constants: &'a HashMap<i32, ArrayRef>,
    leaves: BTreeSet<usize>,
}

impl Selector<'_> {
    fn fields(&mut self, file: &[FileField], targets: &[&FieldRef], parent: &str) -> Result<Vec<Node>, Refused> {
        let by_id: HashMap<i32, usize> = file.iter().enumerate().filter_map(|(i, f)| Some((f.id?, i))).collect();
        let mut nodes = Vec::with_capacity(targets.len());
        for target in targets {
            let name = if parent.is_empty() { target.name().clone() } else { format!("{parent}.{}", target.name()) };
            let Some(id) = field_id(target) else {
                return Err(Refused::new(Refusal::Damaged, format!("the table's column {name} has no field id")));
            };
            let found = by_id.get(&id).and_then(|i| Some((*i, file.get(*i)?)));
            nodes.push(match found {
                Some((index, field)) => self.column(index, field, target, &name)?,
                None => self.absent(file, id, target, &name)?,
            });
        }
        Ok(nodes)
    }

    fn column(&mut self, index: usize, file: &FileField, target: &FieldRef, name: &str) -> Result<Node, Refused> {
        let below = match (file.field.data_type(), target.data_type()) {
            (DataType::Struct(_), DataType::Struct(_)) => self.fields(&file.children, &children(target.data_type()), name)?,
            (DataType::List(_), DataType::List(_)) | (DataType::Map(..), DataType::Map(..)) => {
                self.items(&file.children, &children(target.data_type()), name)?
            }
            (from, to) if convertible(from, to) => Vec::new(),
            (from, to) => {
                return Err(Refused::new(Refusal::ColumnType, format!("column {name} is {from} in the file and {to} in the table")));
            }
        };
        // A struct of which no field is wanted still tells which rows are NULL.
        if self.leaves.range(file.leaves.clone()).next().is_none() {
            self.leaves.insert(file.leaves.start);
        }
        Ok(Node::Column { index, below })
    }

    /// An element, or key and value: always there, so never taken for absent.
    fn items(&mut self, file: &[FileField], targets: &[&FieldRef], name: &str) -> Result<Vec<Node>, Refused> {
        let mut nodes = Vec::with_capacity(targets.len());
        for (index, target) in targets.iter().enumerate() {
            let name = format!("{name}.{}", target.name());
            let id = field_id(target);
            match file.get(index) {
                Some(field) if id.is_some() && field.id == id => nodes.push(self.column(index, field, target, &name)?),
                Some(FileField { id: None, .. }) => {
                    return Err(Refused::new(Refusal::NoFieldIds, format!("column {name} has no field id")));
                }
                _ => return Err(Refused::new(Refusal::Damaged, format!("column {name} has another field id than the table's"))),
            }
        }
        Ok(nodes)
    }

    fn absent(&self, siblings: &[FileField], id: i32, target: &FieldRef, name: &str) -> Result<Node, Refused> {
        if let Some(value) = self.constants.get(&id) {
            return Ok(Node::Constant(value.clone()));
        }
        // lineage is known by its ids alone
        if COLUMNS.iter().any(|(lineage, _)| *lineage == id) {
            return Ok(Node::Null);
        }
        if self.source == Ids::None {
            let why = format!("no field ids, and the table has no name mapping: column {name} cannot be found");
            return Err(Refused::new(Refusal::NoFieldIds, why));
        }
        if let Some(stranger) = siblings.iter().find(|f| f.id.is_none()) {
            let why = format!("column {name} is not found, and {} has no field id nor a mapped name", stranger.field.name());
            return Err(Refused::new(Refusal::NoFieldIds, why));
        }
        if !target.is_nullable() {
            return Err(Refused::new(Refusal::Damaged, format!("the required column {name} is missing")));
        }
        Ok(Node::Null)
    }

    fn key(&mut self, file: &[FileField], key: &Field) -> Result<Key, Refused> {
        let name = key.name();
        let Some(id) = field_id(key) else {
            return Err(Refused::new(Refusal::Damaged, format!("delete key {name} has no field id")));
        };
        let Some(path) = identify::find_leaf(file, id) else {
            if identify::contains(file, id) {
                return Err(Refused::new(Refusal::ColumnType, format!("delete key {name} is not a primitive column below structs")));
            }
            let as_optional = FieldRef::new(key.clone().with_nullable(true));
            return Ok(match self.absent(file, id, &as_optional, name)? {
                Node::Constant(value) => Key::Constant(value),
                _ => Key::Null,
            });
        };
        let mut siblings = file;
        for (depth, index) in path.iter().enumerate() {
            let Some(field) = siblings.get(*index) else { break };
            if depth + 1 == path.len() {
                if !convertible(field.field.data_type(), key.data_type()) {
                    let why = format!("delete key {name} is {} in the file and {} in the table", field.field.data_type(), key.data_type());
                    return Err(Refused::new(Refusal::ColumnType, why));
                }
                self.leaves.insert(field.leaves.start);
            }
            siblings = &field.children;
        }
        Ok(Key::Path(path))
    }
}

/// Places among all fields of the file become places among the projected ones.
fn compact(nodes: &mut [Node], file: &[FileField], leaves: &BTreeSet<usize>) {
    let places = places(file, leaves);
    for node in nodes {
        if let Node::Column { index, below } = node {
            if let Some(field) = file.get(*index) {
                compact(below, &field.children, leaves);
            }
            *index = places.get(*index).copied().unwrap_or(usize::MAX);
        }
    }
}

fn compact_path(path: &mut [usize], file: &[FileField], leaves: &BTreeSet<usize>) {
    let mut siblings = file;
    for index in path {
        let places = places(siblings, leaves);
        siblings = siblings.get(*index).map_or(&[], |f| &f.children);
        *index = places.get(*index).copied().unwrap_or(usize::MAX);
    }
}

fn places(file: &[FileField], leaves: &BTreeSet<usize>) -> Vec<usize> {
    let mut next = 0;
    let mut places = Vec::with_capacity(file.len());
    for field in file {
        places.push(next);
        next += usize::from(leaves.range(field.leaves.clone()).next().is_some());
    }
    places
}
