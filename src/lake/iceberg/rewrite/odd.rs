//! Files whose pages cannot be taken: decoded and encoded by themselves, in memory or,
//! where they are larger, into files that are put aside, so that their rows are joined
//! with those of the others.

use std::collections::{BTreeMap, HashMap};

use parquet::schema::types::SchemaDescriptor;

use super::choose::ODD_SHARE;
use super::encode;
use super::input::Input;
use super::job::Job;
use super::{room, space};
use crate::lake::Result;
use crate::lake::iceberg::read::{self, ReadSummary};
use crate::lake::iceberg::table::IcebergTable;
use crate::model::plan::{LiveFile, Plan};

/// An odd file, encoded as the others are, without its deleted rows.
pub struct Encoded {
    /// The file.
    pub input: Input,
    /// NaNs of its columns.
    pub nans: HashMap<i32, u64>,
    /// What was read of it.
    pub read: ReadSummary,
}

/// Encodes the odd files of a plan, by their places, as files of this schema, in that
/// order; `None` when neither memory nor the store has room for them.
///
/// Memory held: of the files, the share that they may take, the smallest first, and as
/// [`encode::write`] takes it. The others are put aside under names of outputs that were
/// given up.
///
/// Errs as [`read::open`] and [`encode::write`] do.
pub async fn encode(table: &IcebergTable, job: &Job<'_>, schema: &SchemaDescriptor, odd: &[usize]) -> Result<Option<Vec<Encoded>>> {
    let mut left = job.plan.bound.memory / ODD_SHARE;
    let size = |place: usize| job.plan.inputs.get(place).map_or(0, |input| input.bytes);
    let mut smallest_first = odd.to_vec();
    smallest_first.sort_by_key(|place| size(*place));
    let mut encoded = BTreeMap::new();
    for place in smallest_first {
        job.control.check()?;
        let alone = alone(job.plan, &[place]);
        let Some(input) = alone.inputs.first() else { continue };
        let held = match input.bytes <= left {
            true => {
                let mut source = read::open(table, &alone, job.control).await?;
                let held = encode::hold(job, schema, source.as_mut(), left).await?;
                held.map(|held| (held, source))
            }
            false => None,
        };
        let (input, nans, source) = match held {
            Some(((bytes, nans), source)) => {
                left = left.saturating_sub(bytes.len() as u64);
                (Input::held(&input.path, bytes)?, nans, source)
            }
            None => {
                if space::check(&job.place(), room(job.plan).saturating_add(input.bytes)).is_err() {
                    return Ok(None);
                }
                let mut source = read::open(table, &alone, job.control).await?;
                let (made, nans) = encode::put_aside(job, schema, source.as_mut()).await?;
                let made = LiveFile { path: made.path.into(), bytes: made.bytes, records: made.records, ..input.clone() };
                (Input::open(job.io, &made).await?.named(&input.path), nans, source)
            }
        };
        encoded.insert(place, Encoded { input, nans, read: source.finish() });
    }
    Ok(Some(encoded.into_values().collect()))
}

/// The plan for some of its inputs alone, with the deletes that apply to them.
pub fn alone(plan: &Plan, places: &[usize]) -> Plan {
    let inputs: Vec<_> = places.iter().filter_map(|place| plan.inputs.get(*place)).cloned().collect();
    let applies = |key| inputs.iter().any(|input| input.deletes.contains(key));
    let deletes = plan.deletes.iter().filter(|delete| applies(&delete.key)).cloned().collect();
    Plan { inputs, deletes, ..plan.clone() }
}
