//! The inputs read for the proof, where the rewrite has not decoded them.

use async_trait::async_trait;

use crate::lake::iceberg::read::{self, ReadSummary};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Result};
use crate::model::killpoint::KillPoint;
use crate::model::plan::Plan;

/// Reads every live row of the inputs, for its counts and hashes.
///
/// Errs as [`read::open`] does.
pub async fn read(table: &IcebergTable, plan: &Plan) -> Result<ReadSummary> {
    let mut source = read::open(table, plan, &Silent).await?;
    while source.next().await?.is_some() {}
    Ok(source.finish())
}

/// The proof writes nothing and tells no progress.
struct Silent;

#[async_trait]
impl Control for Silent {
    async fn will_write(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    async fn will_commit(&self, _asserted: &str) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, _point: KillPoint) {}
}
