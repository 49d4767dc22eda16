//! What became of a commit: data, not an error.

use serde::{Deserialize, Serialize};

/// The four arms of a commit. Only [`Outcome::Conflict`] and
/// [`Outcome::Rejected`] prove that nothing landed.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The snapshot is in the table.
    Landed {
        /// Its id.
        snapshot_id: i64,
    },
    /// Proven not to have landed: the table moved.
    Conflict(Conflict),
    /// Proven not to have landed: the catalog, or we, refused it for a reason
    /// that a retry does not mend.
    Rejected {
        /// The reason.
        reason: String,
    },
    /// It may have landed, now or later. Nothing is deleted and nothing is
    /// tried again until it is resolved by attempt id.
    Unknown {
        /// What was seen.
        reason: String,
    },
}

/// What moved under a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conflict {
    /// The catalog's pointer moved between load and swap: load again, validate
    /// again, apply again.
    MetadataMoved,
    /// The deletes that apply to our inputs are more, or fewer, than those that
    /// were applied, or their rows were given ids: plan again.
    DeletesChanged {
        /// The first files concerned.
        files: Vec<String>,
    },
    /// Inputs are no longer live: drop the work.
    InputGone {
        /// The first files concerned.
        files: Vec<String>,
    },
    /// The table's schema has other columns than the outputs were written with:
    /// plan again.
    ColumnsChanged {
        /// The columns that would read otherwise.
        columns: Vec<String>,
    },
    /// The table was dropped or another one stands under its name.
    TableGone,
}

/// Where an unknown commit stands when looked at again.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// The attempt's snapshot is in the table's metadata.
    Landed {
        /// Its id.
        snapshot_id: i64,
    },
    /// Absent, and it can land no more: the pointer has left the base that the
    /// swap asserted.
    NotLanded,
    /// Absent, but it could still land, or the history that would show it was
    /// cut: stay unknown and say so.
    Open {
        /// Why it cannot be told yet.
        reason: String,
    },
}
