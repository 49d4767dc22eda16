//! A small writer of tables, as an engine would be one: creates them, appends
//! rows, deletes rows by key with position deletes. The demo's; the loop never
//! writes rows.
//!
//! Files are written once, as [`Staged`]; a [`commit`] that lost to another one is
//! tried again with the same files on a fresh load of the table.

mod create;
mod data;
mod delete;
mod snapshot;
mod split;
mod summary;

pub use create::{Definition, create};
pub use data::stage_append;
pub use delete::stage_delete;
pub use snapshot::{Stamp, commit};

use iceberg::spec::DataFile;

/// Files that are written and in no table yet.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    /// Data files.
    data: Vec<Made>,
    /// Position-delete files.
    deletes: Vec<Made>,
    /// The data files in which `deletes` delete rows: each must be live when they
    /// are committed.
    targets: Vec<String>,
}

/// A file as manifests will describe it, with its partition spec.
#[derive(Clone, Debug)]
struct Made {
    spec_id: i32,
    file: DataFile,
}

impl Staged {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.deletes.is_empty()
    }

    /// Paths of the files.
    pub fn paths(&self) -> Vec<String> {
        self.data.iter().chain(&self.deletes).map(|made| made.file.file_path().to_owned()).collect()
    }

    /// Data files to be added.
    pub fn data_files(&self) -> usize {
        self.data.len()
    }

    /// Delete files to be added.
    pub fn delete_files(&self) -> usize {
        self.deletes.len()
    }
}
