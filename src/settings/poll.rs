//! How often tables are looked at when no event comes.

use super::section::Section;
use super::units;

/// The interval between two looks at a table, which adapts within these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Shortest, in milliseconds.
    pub min_ms: i64,
    /// Longest, in milliseconds: what a lost event can cost.
    pub max_ms: i64,
}

impl Default for Poll {
    fn default() -> Self {
        Self { min_ms: 5_000, max_ms: 300_000 }
    }
}

impl Poll {
    pub(super) fn from_section(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let min_ms = section.read("min", units::some_duration_ms).unwrap_or(default.min_ms);
        let max_ms = section.read("max", units::some_duration_ms).unwrap_or(default.max_ms);
        if min_ms > max_ms {
            section.mistake("min", format!("{min_ms} ms is longer than max, {max_ms} ms"));
        }
        section.finish();
        Self { min_ms, max_ms }
    }
}
