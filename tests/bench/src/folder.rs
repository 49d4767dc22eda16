//! A folder that goes with its owner.

use std::path::{Path, PathBuf};

/// Among the system's temporary ones, under a name of its own.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("afterwrite-bench.{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
