//! When the sidecar has nothing left to do.

use std::time::Duration;

use super::tables::{TABLES, WITH, name};
use crate::app::{App, Sidecar};
use crate::lake::Table;
use crate::model::decision::{Reason, Verdict};
use crate::model::ident::MAIN;
use crate::ooda::Loop;
use crate::serve::Backend;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(100);
/// Looks in a row that must find it at rest: longer than a round of the loop.
const CALM: u32 = 13;
/// A pause that ends within this is waited for, in milliseconds.
const SOON_MS: i64 = 2_000;
/// Most looks: a minute of them.
const PATIENCE: u32 = 600;

/// Waits until the sidecar is at rest; false when it is not within a minute.
///
/// # Errors
/// When a table cannot be loaded.
pub async fn wait(app: &App, sidecar: &Sidecar) -> anyhow::Result<bool> {
    let mut calm = 0;
    for _ in 0..PATIENCE {
        calm = if is_at_rest(app, sidecar.ooda()).await? { calm + 1 } else { 0 };
        if calm == CALM {
            return Ok(true);
        }
        app.clock.sleep(EVERY).await;
    }
    Ok(false)
}

/// Whether a partition is judged again before then.
fn is_due(verdict: &Verdict, soon_ms: i64) -> bool {
    match verdict {
        Verdict::Not {
            reason: Reason::CoolingDown { until_ms } | Reason::QuietWindow { until_ms } | Reason::OutsideWindows { until_ms },
        } => *until_ms <= soon_ms,
        Verdict::Not { reason } => *reason == Reason::InFlight,
        Verdict::Now { .. } | Verdict::Queued { .. } => true,
        Verdict::Review { .. } => false,
    }
}

/// No event waits, no job runs, no work that may be carried out is known, and the
/// tables are known as they stand.
async fn is_at_rest(app: &App, ooda: &Loop) -> anyhow::Result<bool> {
    let health = ooda.health();
    if health.pending > 0 || health.jobs > 0 {
        return Ok(false);
    }
    let candidates = ooda.list_candidates(usize::MAX).await?;
    if candidates.iter().any(|c| c.table.namespace_path() == WITH) {
        return Ok(false);
    }
    let soon_ms = app.clock.now_ms().saturating_add(SOON_MS);
    for table in TABLES {
        let name = name(WITH, table.name);
        let head = app.lake.table(&name, MAIN).await?.and_then(|t| t.view().head);
        let decisions = ooda.why(&name, None).await.unwrap_or_default();
        if decisions.iter().any(|d| is_due(&d.decision.verdict, soon_ms)) {
            return Ok(false);
        }
        if ooda.get_layout(&name, MAIN).await.ok().and_then(|layout| layout.snapshot_id) != head {
            return Ok(false);
        }
    }
    Ok(true)
}
