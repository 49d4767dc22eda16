//! Every named reason for which a table or scope is left alone.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal),+ $(,)?) => {
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
        }
    };
}

refusals! {
    /// Format version 3 (row lineage, deletion vectors) or newer.
    FormatVersion = "format-version",
    /// Encryption keys in the metadata, or key metadata on a file.
    Encrypted = "encrypted",
    /// A live data file that is not Parquet.
    FileFormat = "file-format",
    /// A deletion vector applies to an input.
    DeletionVector = "deletion-vector",
    /// A data file without field ids and without a complete name mapping.
    NoFieldIds = "no-field-ids",
    /// A column type the reader or writer cannot carry exactly.
    ColumnType = "column-type",
    /// A column added with a default value that old files do not hold.
    DefaultValue = "default-value",
    /// The partition type of a spec cannot be resolved from any schema.
    UnresolvedSpec = "unresolved-spec",
    /// A branch other than those configured.
    Branch = "branch",
    /// More delete rows apply than fit the memory limit.
    TooManyDeletes = "too-many-deletes",
    /// Values or columns too large for the memory limit.
    TooLargeForMemory = "too-large-for-memory",
    /// A metadata, manifest or data file cannot be read as the specification says.
    Damaged = "damaged",
    /// The store has too little free space for the outputs.
    NoSpace = "no-space",
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
}
