//! Writing the outputs of a plan.

use iceberg::spec::DataFile;

use super::read::ReadSummary;

/// What a rewrite hands to the proof and to the commit.
pub struct Detail {
    /// The outputs as manifests will describe them, in row order.
    pub data_files: Vec<DataFile>,
    /// What was read, for re-encoded outputs; `None` when row groups were
    /// spliced (the proof compares chunk bytes instead).
    pub read: Option<ReadSummary>,
}
