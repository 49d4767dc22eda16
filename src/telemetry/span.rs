//! The spans of the loop: one name each.

use tracing::{Span, info_span};

use crate::model::ident::TableName;
use crate::model::plan::{AttemptId, JobId};

/// A look at a table: load, walk, absorb, decide.
pub fn look(table: &TableName, reference: &str) -> Span {
    info_span!("look", %table, reference)
}

/// A job, from lease to outcome.
pub fn job(job: &JobId, table: &TableName) -> Span {
    info_span!("job", job = %job.0, %table)
}

/// One try to carry a job out.
pub fn attempt(attempt: &AttemptId) -> Span {
    info_span!("attempt", attempt = %attempt.0)
}

/// Writing the outputs.
pub fn rewrite() -> Span {
    info_span!("rewrite")
}

/// Proving them.
pub fn verify() -> Span {
    info_span!("verify")
}

/// Asking the catalog.
pub fn commit() -> Span {
    info_span!("commit")
}

/// A listing of a catalog.
pub fn poll(catalog: &str) -> Span {
    info_span!("poll", catalog)
}
