//! Other products' ways to decide, by name.

use serde::{Deserialize, Serialize};

/// Whose triggers and sizes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Delta Lake's auto compaction.
    Delta,
    /// Apache Amoro's self-optimizing.
    Amoro,
    /// Apache Hudi's compaction by number of commits.
    Hudi,
    /// The same by number of commits or by time.
    HudiNumOrTime,
    /// The same by number of commits and by time.
    HudiNumAndTime,
    /// The same by time.
    HudiTimeElapsed,
    /// Apache Iceberg's `rewrite_data_files`.
    Iceberg,
    /// The share of small files, as PyIceberg users watch it.
    PyicebergGovernance,
    /// OpenHouse's AutoComp: all work is ranked, by files saved against GB-hours.
    Openhouse,
}

impl Preset {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Delta,
        Self::Amoro,
        Self::Hudi,
        Self::HudiNumOrTime,
        Self::HudiNumAndTime,
        Self::HudiTimeElapsed,
        Self::Iceberg,
        Self::PyicebergGovernance,
        Self::Openhouse,
    ];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Amoro => "amoro",
            Self::Hudi => "hudi",
            Self::HudiNumOrTime => "hudi-num-or-time",
            Self::HudiNumAndTime => "hudi-num-and-time",
            Self::HudiTimeElapsed => "hudi-time-elapsed",
            Self::Iceberg => "iceberg",
            Self::PyicebergGovernance => "pyiceberg-governance",
            Self::Openhouse => "openhouse",
        }
    }

    /// The preset of that name; `autocomp` is OpenHouse's.
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "autocomp" { "openhouse" } else { name };
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// When it asks for work, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Delta => "Delta's auto compaction: 50 files below 64 MiB, to 128 MiB",
            Self::Amoro => {
                "Amoro: 12 fragments and equality deletes, or 2 and an hour; undersized files of 128 MiB in all; deletes of a tenth"
            }
            Self::Hudi => "Hudi: 5 commits since the last rewrite",
            Self::HudiNumOrTime => "Hudi: 5 commits since the last rewrite, or an hour",
            Self::HudiNumAndTime => "Hudi: 5 commits since the last rewrite, and an hour",
            Self::HudiTimeElapsed => "Hudi: an hour since the last rewrite",
            Self::Iceberg => "Iceberg's rewrite_data_files: 5 files below 0.75 of the target, or deletes of 0.3",
            Self::PyicebergGovernance => "PyIceberg governance: files below 32 MiB are 0.3 of all",
            Self::Openhouse => "OpenHouse's AutoComp: all work is ranked, files saved 0.7 against GB-hours 0.3",
        }
    }
}
