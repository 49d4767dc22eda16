//! Files whose pages cannot be taken: decoded and encoded by themselves, in memory,
//! so that their rows are joined with those of the others.

use std::collections::HashMap;

use parquet::schema::types::SchemaDescriptor;

use super::choose::ODD_SHARE;
use super::encode;
use super::input::Input;
use super::job::Job;
use crate::lake::Result;
use crate::lake::iceberg::read::{self, ReadSummary};
use crate::lake::iceberg::table::IcebergTable;
use crate::model::plan::Plan;

/// An odd file, encoded as the others are, without its deleted rows.
pub struct Encoded {
    /// The file.
    pub input: Input,
    /// NaNs of its columns.
    pub nans: HashMap<i32, u64>,
    /// What was read of it.
    pub read: ReadSummary,
}

/// Encodes the odd files of a plan, by their places, as files of this schema; `None`
/// when they take more memory than they may.
///
/// Memory held: the files, and as [`encode::write`] takes it.
///
/// Errs as [`read::open`] and [`encode::write`] do.
pub async fn encode(table: &IcebergTable, job: &Job<'_>, schema: &SchemaDescriptor, odd: &[usize]) -> Result<Option<Vec<Encoded>>> {
    let mut left = job.plan.bound.memory / ODD_SHARE;
    let mut encoded = Vec::with_capacity(odd.len());
    for place in odd {
        job.control.check()?;
        let alone = alone(job.plan, &[*place]);
        let mut source = read::open(table, &alone, job.control).await?;
        let Some((bytes, nans)) = encode::hold(job, schema, source.as_mut(), left).await? else { return Ok(None) };
        left = left.saturating_sub(bytes.len() as u64);
        let path = alone.inputs.first().map_or("", |input| &input.path);
        encoded.push(Encoded { input: Input::held(path, bytes)?, nans, read: source.finish() });
    }
    Ok(Some(encoded))
}

/// The plan for some of its inputs alone, with the deletes that apply to them.
pub fn alone(plan: &Plan, places: &[usize]) -> Plan {
    let inputs: Vec<_> = places.iter().filter_map(|place| plan.inputs.get(*place)).cloned().collect();
    let applies = |key| inputs.iter().any(|input| input.deletes.contains(key));
    let deletes = plan.deletes.iter().filter(|delete| applies(&delete.key)).cloned().collect();
    Plan { inputs, deletes, ..plan.clone() }
}
