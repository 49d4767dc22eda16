//! Where the journal lies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::section::Section;
use super::units;

/// The journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its SQLite file.
    pub path: PathBuf,
}

impl Journal {
    pub(super) fn from_section(mut section: Section<'_>, environment: &BTreeMap<String, String>) -> Self {
        let path = section.read("path", units::word).map_or_else(|| default_path(environment), PathBuf::from);
        section.finish();
        Self { path }
    }
}

/// The user's data folder, or the working folder for a user without a home.
fn default_path(environment: &BTreeMap<String, String>) -> PathBuf {
    let set = |name: &str| environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_default().join("afterwrite").join("journal.db")
}
