//! The cache of layouts.

use super::section::Section;
use super::units;

/// The cache of layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Memory that it may hold, in bytes.
    pub memory: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self { memory: 256 << 20 }
    }
}

impl Cache {
    pub(super) fn from_section(mut section: Section<'_>) -> Self {
        let memory = section.read("memory", units::some_size).unwrap_or(Self::default().memory);
        section.finish();
        Self { memory }
    }
}
