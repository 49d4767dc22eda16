//! Metrics modes: how much a manifest tells about each column.

use std::collections::HashMap;
use std::str::FromStr;

use super::leaf::Leaf;
use crate::lake::{Error, Result};

/// How much is told about a column besides its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    None,
    /// Counts of values, NULLs and NaNs.
    Counts,
    /// Counts, and bounds cut to this many code points or bytes.
    Truncate(usize),
    /// Counts and bounds.
    Full,
}

/// What the format's specification of table properties gives a column for
/// which nothing is set.
pub const DEFAULT: Mode = Mode::Truncate(16);

impl FromStr for Mode {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text.trim().to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "counts" => Ok(Self::Counts),
            "full" => Ok(Self::Full),
            other => {
                let length = other.strip_prefix("truncate(").and_then(|t| t.strip_suffix(')')).ok_or(())?;
                length.trim().parse().ok().filter(|n| *n > 0).map(Self::Truncate).ok_or(())
            }
        }
    }
}

/// The mode of every leaf, by field id.
///
/// Without a default of the table's own, only the first
/// `write.metadata.metrics.max-inferred-column-defaults` leaves (outer ones
/// first) get [`DEFAULT`], so that a wide table's manifests stay small; columns
/// of the sort order keep bounds in any case, unless the table says otherwise
/// of that very column.
///
/// Errs when a property's value does not parse.
pub fn modes(properties: &HashMap<String, String>, leaves: &[Leaf], sorted: &[i32]) -> Result<HashMap<i32, Mode>> {
    let chosen = properties.get(DEFAULT_KEY).map(|value| parse(DEFAULT_KEY, value)).transpose()?;
    let limit = match properties.get(LIMIT_KEY) {
        None => 100,
        Some(value) => value
            .trim()
            .parse::<usize>()
            .map_err(|_| Error::Setup(format!("table property `{LIMIT_KEY}` is `{value}`: set a number of columns, at least 0")))?,
    };
    let mut outer_first: Vec<&Leaf> = leaves.iter().collect();
    outer_first.sort_by_key(|leaf| leaf.depth);
    let mut found = HashMap::with_capacity(leaves.len());
    for (position, leaf) in outer_first.into_iter().enumerate() {
        let mut mode = chosen.unwrap_or(if position < limit { DEFAULT } else { Mode::None });
        if sorted.contains(&leaf.id) && matches!(mode, Mode::None | Mode::Counts) {
            mode = DEFAULT;
        }
        let key = format!("{COLUMN_KEY}{}", leaf.name);
        if let Some(value) = properties.get(&key) {
            mode = parse(&key, value)?;
        }
        found.insert(leaf.id, mode);
    }
    Ok(found)
}

const DEFAULT_KEY: &str = "write.metadata.metrics.default";
const LIMIT_KEY: &str = "write.metadata.metrics.max-inferred-column-defaults";
const COLUMN_KEY: &str = "write.metadata.metrics.column.";

fn parse(key: &str, value: &str) -> Result<Mode> {
    value.parse().map_err(|()| Error::Setup(format!("table property `{key}` is `{value}`: set none, counts, truncate(N) or full")))
}

#[cfg(test)]
mod tests {
    use iceberg::spec::PrimitiveType;

    use super::*;

    fn leaf(id: i32, depth: usize) -> Leaf {
        Leaf { id, name: format!("c{id}"), kind: PrimitiveType::Int, repeated: false, depth }
    }

    fn properties(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_column_has_its_own_mode_else_the_tables_else_the_default() {
        let leaves = [leaf(1, 0), leaf(2, 0)];
        let set = properties(&[("write.metadata.metrics.default", "Counts"), ("write.metadata.metrics.column.c2", "truncate(7)")]);
        assert_eq!(modes(&set, &leaves, &[]).unwrap(), HashMap::from([(1, Mode::Counts), (2, Mode::Truncate(7))]));
        assert_eq!(modes(&set, &leaves, &[1]).unwrap()[&1], DEFAULT);
        assert_eq!(modes(&HashMap::new(), &leaves, &[]).unwrap()[&1], DEFAULT);
    }

    #[test]
    fn past_the_limit_only_outer_and_sorted_columns_are_described() {
        let leaves = [leaf(1, 3), leaf(2, 0), leaf(3, 0), leaf(4, 0)];
        let set = properties(&[("write.metadata.metrics.max-inferred-column-defaults", "2")]);
        let found = modes(&set, &leaves, &[4]).unwrap();
        assert_eq!(found, HashMap::from([(1, Mode::None), (2, DEFAULT), (3, DEFAULT), (4, DEFAULT)]));
    }

    #[test]
    fn a_bad_mode_names_its_property_and_value() {
        for bad in ["truncate(0)", "truncate", "some", ""] {
            let error = modes(&properties(&[("write.metadata.metrics.column.c1", bad)]), &[leaf(1, 0)], &[]).unwrap_err();
            let expected = format!("table property `write.metadata.metrics.column.c1` is `{bad}`: set none, counts, truncate(N) or full");
            assert_eq!(error.to_string(), expected);
        }
    }
}
