//! Whether the catalog may have been asked.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::lake::iceberg::catalog::Answer;
use crate::lake::{Control, Result};
use crate::model::killpoint::KillPoint;

/// A control that remembers whether a commit was announced: an error before that
/// is a failure, one after it is an unknown outcome.
pub struct Asked<'a> {
    inner: &'a dyn Control,
    asked: AtomicBool,
}

impl<'a> Asked<'a> {
    /// Nothing was asked yet.
    pub fn new(inner: &'a dyn Control) -> Self {
        Self { inner, asked: AtomicBool::new(false) }
    }

    /// The catalog's answer; an error counts as [`Answer::Unknown`] once the commit
    /// was announced.
    ///
    /// # Errors
    /// The catalog's own, when it was not asked.
    pub fn answer(&self, answer: Result<Answer>) -> Result<Answer> {
        match answer {
            Err(e) if self.asked.load(Ordering::SeqCst) => Ok(Answer::Unknown(e.to_string())),
            other => other,
        }
    }
}

#[async_trait]
impl Control for Asked<'_> {
    async fn will_write(&self, path: &str) -> Result<()> {
        self.inner.will_write(path).await
    }

    async fn will_commit(&self, asserted: &str) -> Result<()> {
        self.inner.will_commit(asserted).await?;
        self.asked.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }

    fn progress(&self, rows: u64, bytes: u64) {
        self.inner.progress(rows, bytes);
    }

    fn carries(&self, rows: u64) {
        self.inner.carries(rows);
    }

    fn reached(&self, point: KillPoint) {
        self.inner.reached(point);
    }
}
