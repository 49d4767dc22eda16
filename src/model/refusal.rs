//! Every named reason for which a table or scope is left alone.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal: $advice:literal),+ $(,)?) => {
        /// A named reason why a table or scope is left alone. A case that is not
        /// safe yet is refused whole, never half done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Refusal { $($(#[doc = $doc])+ $name),+ }

        impl Refusal {
            /// All members, for the test that asks for one test each.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name),+];

            /// The stable name shown to users.
            pub fn code(self) -> &'static str {
                match self { $(Refusal::$name => $code),+ }
            }

            /// What its owner can do about it.
            pub fn advice(self) -> &'static str {
                match self { $(Refusal::$name => $advice),+ }
            }
        }
    };
}

refusals! {
    /// A format version newer than 3, or what no reader of ours knows of version 3.
    FormatVersion = "format-version": "compact it with an engine that writes this format",
    /// Encryption keys in the metadata, or key metadata on a file.
    Encrypted = "encrypted": "compact it with an engine that holds the keys",
    /// A live data file that is not Parquet.
    FileFormat = "file-format": "compact it with the engine that wrote it, or rewrite it as Parquet",
    /// A deletion vector applies to an input of a table whose format has none.
    DeletionVector = "deletion-vector": "raise the table to format version 3, or compact it with the engine that wrote the vector",
    /// A position delete names an input, but lies in another partition or spells the
    /// path otherwise: some engines apply it and some do not.
    StrayDelete = "stray-delete": "delete these rows again with the engine whose reading is right, or let it rewrite the data file",
    /// A data file without field ids and without a complete name mapping.
    NoFieldIds = "no-field-ids": "complete the table property schema.name-mapping.default, or rewrite the file",
    /// A column type the reader or writer cannot carry exactly.
    ColumnType = "column-type": "compact it with the engine that wrote it",
    /// A column added with a default value that old files do not hold.
    DefaultValue = "default-value": "rewrite the old files with the engine that added the column",
    /// The partition type of a spec cannot be resolved from any schema.
    UnresolvedSpec = "unresolved-spec": "rewrite the files of this spec under the table's present one",
    /// A branch other than `main`, or a tag.
    Branch = "branch": "leave it to `main`, the one branch that is handled",
    /// More delete rows apply than fit the memory limit.
    TooManyDeletes = "too-many-deletes": "raise memory_limit, or lower concurrent_jobs, and compact before so many deletes gather",
    /// Values or columns too large for the memory limit.
    TooLargeForMemory = "too-large-for-memory": "raise memory_limit, or lower concurrent_jobs, which share it",
    /// A metadata, manifest or data file cannot be read as the specification says.
    Damaged = "damaged": "restore the file, or roll the table back to a snapshot without it",
    /// The cloud that holds the table compacts it by itself.
    ManagedCompaction = "managed-compaction": "switch the cloud's own compaction off, then set the table property afterwrite.managed-compaction=off (for AWS Glue also as a setting of the catalog)",
    /// The store has too little free space for the outputs.
    NoSpace = "no-space": "make room there, or lower max_job_size",
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A refusal with what was found and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[error("refused ({refusal}): {detail}")]
pub struct Refused {
    /// The named reason.
    pub refusal: Refusal,
    /// What was found and where: a file, a column, a property.
    pub detail: String,
}

impl Refused {
    /// A refusal with its detail.
    pub fn new(refusal: Refusal, detail: impl Into<String>) -> Self {
        Self { refusal, detail: detail.into() }
    }

    /// What was found and where, and what to do about it.
    pub fn told(&self) -> String {
        format!("{}; {}", self.detail, self.refusal.advice())
    }
}
