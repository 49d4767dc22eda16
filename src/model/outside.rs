//! What others told of a table or a partition: a catalog, a storage or a quota system.

use serde::{Deserialize, Serialize};

/// A statistic that is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stat {
    /// Quota in use over quota.
    QuotaUsed,
    /// Cost of storage a month, in the currency of the prices.
    StorageCost,
    /// Scans an hour.
    ReadRate,
    /// Files that scans open an hour.
    FilesScanned,
    /// Calls that open a file, an hour.
    OpenCalls,
}

impl Stat {
    /// Every one, in the order of [`Outside`].
    pub const ALL: [Self; 5] = [Self::QuotaUsed, Self::StorageCost, Self::ReadRate, Self::FilesScanned, Self::OpenCalls];

    /// The trait that it is.
    pub fn name(self) -> &'static str {
        match self {
            Self::QuotaUsed => "quota_used",
            Self::StorageCost => "storage_cost",
            Self::ReadRate => "read_rate",
            Self::FilesScanned => "files_scanned",
            Self::OpenCalls => "open_calls",
        }
    }
}

/// A number that was told, and how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The number.
    pub value: f64,
    /// Milliseconds since it was told.
    pub age_ms: i64,
}

/// What is told of one scope at a moment; what has expired is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outside([Option<Told>; 5]);

impl Outside {
    /// One statistic.
    pub fn get(&self, stat: Stat) -> Option<Told> {
        Stat::ALL.iter().zip(self.0).find(|(s, _)| **s == stat).and_then(|(_, told)| told)
    }

    /// The number of one statistic.
    pub fn value(&self, stat: Stat) -> Option<f64> {
        self.get(stat).map(|told| told.value)
    }

    /// With one statistic, in place of what was there.
    pub fn set(&mut self, stat: Stat, told: Told) {
        for (s, slot) in Stat::ALL.iter().zip(&mut self.0) {
            if *s == stat {
                *slot = Some(told);
            }
        }
    }

    /// Every one that is told.
    pub fn told(&self) -> impl Iterator<Item = (Stat, Told)> + '_ {
        Stat::ALL.into_iter().zip(self.0).filter_map(|(stat, told)| Some((stat, told?)))
    }
}
