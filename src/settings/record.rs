//! Where decisions are recorded.

use std::path::PathBuf;

use super::section::Section;
use super::units::{some_size, word};

/// A recording of decisions and of all that they depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its file; without one nothing is recorded.
    pub path: Option<PathBuf>,
    /// What it may hold together with the file before it, in bytes.
    pub most_bytes: u64,
}

impl Record {
    pub(super) fn from_section(mut section: Section<'_>) -> Self {
        let path = section.read("path", word).map(PathBuf::from);
        let most_bytes = section.read("max_size", some_size).unwrap_or(256 << 20);
        section.finish();
        Self { path, most_bytes }
    }
}
