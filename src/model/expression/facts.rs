//! What an expression can name, and its value for a scope.

use cel::Value;

use super::Type;
use crate::model::layout::TIERS;
use crate::model::traits::{ALL, Trait, Traits};

/// What is known of a scope.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its traits.
    pub traits: &'a Traits,
    /// The table's name.
    pub table: &'a str,
    /// Live data bytes of the table.
    pub table_bytes: u64,
    /// Age of the table, in milliseconds.
    pub table_age_ms: i64,
    /// Target file size in bytes.
    pub target_file_size: u64,
    /// Time since the scope was rewritten or planned last, in milliseconds; `None` for never.
    pub since_rewrite_ms: Option<i64>,
}

type Read = fn(&Facts<'_>) -> Option<f64>;

/// Numbers beside the traits of the registry.
const NUMBERS: [(&str, Read); 10] = [
    ("data_files", |f| Some(f.traits.data_files as f64)),
    ("data_bytes", |f| Some(f.traits.data_bytes as f64)),
    ("records", |f| Some(f.traits.records as f64)),
    ("small_bytes", |f| Some(f.traits.small_bytes as f64)),
    ("fullest_tier", |f| Some(f.traits.small_tiers.iter().map(|t| t.files).max().unwrap_or(0).into())),
    ("fragments", |f| Some(fragments(f) as f64)),
    ("table_bytes", |f| Some(f.table_bytes as f64)),
    ("table_age", |f| Some(f.table_age_ms as f64)),
    ("target_file_size", |f| Some(f.target_file_size as f64)),
    ("since_rewrite", |f| f.since_rewrite_ms.map(|ms| ms as f64)),
];

/// Names whose value changes by the passing of time alone.
const BY_TIME: [&str; 6] = ["commit_rate", "quiet_for", "read_rate", "partition_age", "table_age", "since_rewrite"];

/// The table's name.
const TABLE: &str = "table";
/// Says of a name whether it has a value: no expression can spell it.
const KNOWN: &str = "known ";

/// Everything that an expression can name.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|t| t.name).chain(NUMBERS.iter().map(|(name, _)| *name)).chain([TABLE]).collect()
}

/// What a name gives.
pub(super) fn type_of(name: &str) -> Option<Type> {
    match name {
        TABLE => Some(Type::Text),
        _ => (Trait::named(name).is_some() || NUMBERS.iter().any(|(n, _)| *n == name)).then_some(Type::Number),
    }
}

/// The name that says whether another is known.
pub(super) fn known(name: &str) -> String {
    format!("{KNOWN}{name}")
}

pub(super) fn changes_with_time(name: &str) -> bool {
    BY_TIME.contains(&name.strip_prefix(KNOWN).unwrap_or(name))
}

impl Facts<'_> {
    /// The value of a name; `None` where it is not known.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        if let Some(asked) = name.strip_prefix(KNOWN) {
            return Some(Value::Bool(self.value(asked).is_some()));
        }
        if name == TABLE {
            return Some(Value::from(self.table));
        }
        let own = || NUMBERS.iter().find(|(n, _)| *n == name).and_then(|(_, read)| read(self));
        Trait::named(name).map_or_else(own, |t| t.of(self.traits)).map(Value::Float)
    }
}

/// Files of at most an eighth of the target, as far as the tiers tell: those below
/// `T/16`, and those of the tier `[T/16, T/4)` when they are as small on average.
fn fragments(facts: &Facts<'_>) -> u64 {
    let tiers = &facts.traits.small_tiers;
    let smaller: u64 = tiers.iter().take(TIERS).skip(2).map(|t| u64::from(t.files)).sum();
    let between = tiers.get(1).filter(|t| t.bytes <= u64::from(t.files).saturating_mul(facts.target_file_size / 8));
    smaller.saturating_add(between.map_or(0, |t| t.files.into()))
}
