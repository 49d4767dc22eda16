//! What can go wrong in the lake, by what the caller must do.

use crate::model::refusal::{Refusal, Refused};

/// An error of a lake call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A named refusal: the case is left alone.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A file of the table is gone: load again, the table has moved.
    #[error("{path} does not exist")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The store or catalog did not answer, or answered that it cannot now: try later.
    #[error("{what}: {source}")]
    Unreachable {
        /// What was tried, with the name of the table, file or server.
        what: String,
        /// The cause.
        #[source]
        source: anyhow::Error,
    },
    /// The catalog or store is configured wrongly, or said no.
    #[error("{0}")]
    Setup(String),
    /// The proof failed: outputs do not hold the inputs' rows. Nothing was committed.
    #[error("the proof failed, nothing was committed: {0}")]
    Proof(String),
    /// The job was stopped: cancelled, or its bound was reached.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The journal could not be written.
    #[error("journal: {0}")]
    Journal(String),
}

impl Error {
    /// A file that cannot be read as the specification says.
    pub fn damaged(path: &str, why: impl std::fmt::Display) -> Self {
        Refused::new(Refusal::Damaged, format!("{path}: {why}")).into()
    }

    /// A store or catalog that did not answer.
    pub fn unreachable(what: impl Into<String>, source: impl Into<anyhow::Error>) -> Self {
        Self::Unreachable { what: what.into(), source: source.into() }
    }
}
