//! What a rewrite would refuse, told before it writes anything.

use async_trait::async_trait;

use super::job::Job;
use super::{choose, encode, room, space};
use crate::lake::iceberg::read;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::killpoint::KillPoint;
use crate::model::plan::{AttemptId, Path, Plan};

/// Errs as [`super::run`] would before it has read a row, in the same order: what
/// the table and its store say, then what the inputs' footers say of the way that
/// would be taken, then what that way would need.
///
/// Nothing is written, and of files with rows no more than footers is read.
///
/// # Errors
/// Refusals; [`Error::Setup`] for a table property that does not parse; store errors.
pub async fn run(table: &IcebergTable, plan: &Plan) -> Result<()> {
    let attempt = AttemptId("foreseen".into());
    let job = Job::new(&table.loaded.io, &table.loaded.metadata, plan, &attempt, &Reading)?;
    space::check(&job.place(), room(plan))?;
    let (choice, _) = choose(&job).await?;
    match choice.path {
        Path::Splice => Ok(()),
        Path::RePack => read::foresee::deletes(table, plan).await,
        Path::ReEncode => read::foresee::rows(table, plan, |schema| encode::admit(&job, schema)).await,
    }
}

/// The control of what only reads.
struct Reading;

#[async_trait]
impl Control for Reading {
    async fn will_write(&self, path: &str) -> Result<()> {
        Err(Error::Setup(format!("{path} is not written by what only looks ahead")))
    }

    async fn will_commit(&self, _asserted: &str) -> Result<()> {
        Err(Error::Setup("nothing is committed by what only looks ahead".into()))
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, _point: KillPoint) {}
}
