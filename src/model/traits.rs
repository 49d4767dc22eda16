//! Layout traits of a scope: the numbers that decisions are made of.

use serde::{Deserialize, Serialize};

use super::layout::{TIERS, Tier};

/// Traits of one partition at one snapshot and one moment. All sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// `n`: live data files.
    pub data_files: u64,
    /// `B`: bytes of the live data files.
    pub data_bytes: u64,
    /// `R`: records of the live data files, deleted rows included.
    pub records: u64,
    /// Files below `ρT`.
    pub small_file_count: u64,
    /// Bytes of the files below `ρT`.
    pub small_bytes: u64,
    /// Small files by size tier; tier 0 is next to the target.
    pub small_tiers: [Tier; TIERS],
    /// `max(0, n_small − outputs(B_small, T))`.
    pub file_count_reduction: u64,
    /// `(1/n) Σ (T − min(s, T))²`, in bytes²; 0 without files.
    pub file_entropy: f64,
    /// `file_entropy / T²`, in [0, 1].
    pub file_entropy_normalized: f64,
    /// Records deleted by deletes that apply to the scope over `R`, at most 1;
    /// an upper bound (global equality deletes included).
    pub delete_ratio: f64,
    /// Live delete files and vectors that may apply to the scope.
    pub delete_file_count: u64,
    /// Position-delete records of the scope.
    pub position_delete_records: u64,
    /// Equality-delete records of the scope and global ones.
    pub equality_delete_records: u64,
    /// GB-hours that rewriting the small files would cost, start included.
    pub compute_cost: f64,
    /// Manifests of the table's head.
    pub manifest_count: u64,
    /// Bytes of those manifests.
    pub metadata_bytes: u64,
    /// Bytes we rewrote here over bytes that users wrote here; 0 when unknown.
    pub write_amplification: f64,
    /// Exponentially weighted foreign commits per hour (half-life one hour).
    pub commit_rate: f64,
    /// Milliseconds since the last foreign commit that touched the scope;
    /// `None` when none was heard.
    pub quiet_for_ms: Option<i64>,
    /// Since when the four history traits are known, in milliseconds since the
    /// epoch; `None` when there is no history.
    pub known_since_ms: Option<i64>,
}
