//! Hudi's commit callback, over HTTP or Kafka.
//!
//! `commitActionType` and `extraMetadata` are not read: their writer loses the
//! values. The table is found by where it lies.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::json::read;
use super::{Decoded, Draft, Where};
use crate::model::event::Certainty;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Callback {
    #[serde(rename = "commitTime")]
    _commit_time: String,
    base_path: String,
    hoodie_write_stat: Option<Vec<IgnoredAny>>,
}

pub(super) fn decode(value: &[u8]) -> Decoded {
    let callback: Callback = read(value)?;
    let files_added = u64::try_from(callback.hoodie_write_stat.map_or(0, |stats| stats.len())).unwrap_or(u64::MAX);
    let table = Where::At { location: callback.base_path, or: None };
    Ok(vec![Draft { files_added, ..Draft::of(table, Certainty::LogConfirmed) }])
}
