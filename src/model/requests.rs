//! What was asked of an object store.

use serde::{Deserialize, Serialize};

/// Requests to object stores, by kind, as they are sent when each is answered at
/// once: what a store's client sends again is not known. Files on local disks cost none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Reads of an object or a range of it.
    pub get: u64,
    /// Writes of an object or a part of it, with what begins and ends an upload in parts.
    pub put: u64,
    /// Questions about an object.
    pub head: u64,
    /// Listings.
    pub list: u64,
    /// Removals.
    pub delete: u64,
}

impl Requests {
    /// Each kind with its name.
    pub fn kinds(&self) -> [(&'static str, u64); 5] {
        [("get", self.get), ("put", self.put), ("head", self.head), ("list", self.list), ("delete", self.delete)]
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| count).fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// With others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            get: self.get.saturating_add(other.get),
            put: self.put.saturating_add(other.put),
            head: self.head.saturating_add(other.head),
            list: self.list.saturating_add(other.list),
            delete: self.delete.saturating_add(other.delete),
        }
    }
}
