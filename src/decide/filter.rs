//! Filters: what stops a partition before any rule is asked.

use super::{Case, check, keep_out};
use crate::model::decision::{Check, Reason};
use crate::model::policy::Policy;
use crate::model::window;

/// Runs every filter and records it; the reason of the first that stops.
pub fn first_stop(case: &Case<'_>, checks: &mut Vec<Check>) -> Option<Reason> {
    let first = [refused(case), disabled(case), paused(case)].into_iter().chain(keep_out::held(case));
    let then = [too_new(case), too_small(case), cooling_down(case), quiet_window(case), in_flight(case)];
    let found = first.chain(then).chain(keep_out::stops(case));
    let mut stopped = None;
    for (check, reason) in found {
        checks.push(check);
        stopped = stopped.or(reason);
    }
    // asked only where the policy has them
    let more = [
        case.policy.intermediate.then(|| intermediate(case)),
        case.policy.retention_ms.map(|_| soon_dropped(case)),
        case.policy.quota_limit.map(|limit| quota(case, limit)),
        (!case.policy.windows.is_empty()).then(|| outside_windows(case)),
    ];
    for (check, reason) in more.into_iter().flatten() {
        checks.push(check);
        stopped = stopped.or(reason);
    }
    let own = super::own::first_stop(case, checks);
    stopped.or(own)
}

pub(super) type Found = (Check, Option<Reason>);

/// A refusal of the table or the partition stops all work on it; the first one
/// given is the reason.
fn refused(case: &Case<'_>) -> Found {
    let first = case.refusals.first();
    let note = first.map_or_else(|| "nothing refused".to_string(), ToString::to_string);
    let found = check("refusals", case.refusals.len() as f64, 0.0, first.is_none(), note);
    (found, first.cloned().map(Reason::Refused))
}

fn disabled(case: &Case<'_>) -> Found {
    let on = case.policy.enabled;
    let note = if on { "looked after" } else { "switched off by the settings or a table property" };
    (check("enabled", flag(on), 1.0, on, note), (!on).then_some(Reason::Disabled))
}

fn paused(case: &Case<'_>) -> Found {
    let note = if case.paused { "paused by hand" } else { "not paused" };
    (check("paused", flag(case.paused), 0.0, !case.paused, note), case.paused.then_some(Reason::Paused))
}

fn too_new(case: &Case<'_>) -> Found {
    let until_ms = case.table.created_ms.saturating_add(case.policy.min_table_age_ms);
    let age = case.now_ms.saturating_sub(case.table.created_ms);
    let passed = case.policy.min_table_age_ms <= 0 || case.now_ms >= until_ms;
    let found = check("table-age", age as f64, case.policy.min_table_age_ms as f64, passed, "milliseconds since the table was created");
    (found, (!passed).then_some(Reason::TooNew { until_ms }))
}

fn too_small(case: &Case<'_>) -> Found {
    let passed = case.table.bytes >= case.policy.min_table_bytes;
    let found = check("table-bytes", case.table.bytes as f64, case.policy.min_table_bytes as f64, passed, "live data bytes of the table");
    (found, (!passed).then_some(Reason::TooSmall))
}

/// A partition waits after a rewrite, and longer after one that gained nothing.
fn cooling_down(case: &Case<'_>) -> Found {
    let until_ms = case.memory.eligible_at(case.policy.cooldown_ms, case.now_ms);
    let left = until_ms.map_or(0, |until| until.saturating_sub(case.now_ms).max(0));
    let note = if left == 0 { "not cooling down" } else { "milliseconds until the partition may be rewritten again" };
    let found = check("cooldown", left as f64, 0.0, left == 0, note);
    (found, until_ms.filter(|_| left > 0).map(|until_ms| Reason::CoolingDown { until_ms }))
}

fn quiet_window(case: &Case<'_>) -> Found {
    let window = case.policy.quiet_window_ms.max(0);
    let Some(quiet_for) = case.traits.quiet_for_ms else {
        return (check("quiet-window", 0.0, window as f64, true, "no write was heard"), None);
    };
    let left = window.saturating_sub(quiet_for.max(0));
    let found = check("quiet-window", quiet_for as f64, window as f64, left <= 0, "milliseconds since the last write to the partition");
    (found, (left > 0).then(|| Reason::QuietWindow { until_ms: case.now_ms.saturating_add(left) }))
}

fn intermediate(_: &Case<'_>) -> Found {
    let found = check("intermediate", 1.0, 0.0, false, "the table only holds what others are made of, as the settings say");
    (found, Some(Reason::Intermediate))
}

/// A partition by time that its owner will have dropped soon is not worth a rewrite.
fn soon_dropped(case: &Case<'_>) -> Found {
    let age = case.traits.partition_age_ms.unwrap_or(0);
    let (last, soon) = (last_age(case).unwrap_or(i64::MAX), is_soon_dropped(case));
    let note = match case.traits.partition_age_ms {
        Some(_) => "age of the partition in milliseconds, from which it will be dropped soon",
        None => "not a partition by time, or its time is not over",
    };
    (check("retention", age as f64, last as f64, !soon, note), soon.then_some(Reason::SoonDropped))
}

/// The age from which a partition will be dropped soon.
fn last_age(case: &Case<'_>) -> Option<i64> {
    case.policy.retention_ms.map(|kept| kept.saturating_sub(case.policy.retention_margin_ms.max(0)))
}

/// Whether the policy's retention drops the partition within its margin.
pub(super) fn is_soon_dropped(case: &Case<'_>) -> bool {
    last_age(case).zip(case.traits.partition_age_ms).is_some_and(|(last, age)| age >= last)
}

/// A rewrite adds files before snapshots expire and the old ones go: near the end of a
/// quota it could keep the tenant's writers from theirs.
fn quota(case: &Case<'_>, limit: f64) -> Found {
    let stops = is_at_limit(case.policy, case.traits.quota_used);
    let note = match case.traits.quota_used {
        Some(_) => "share of the tenant's quota in use, from which no rewrite adds to it",
        None => "the tenant has no quota, or its use is not known",
    };
    (check("quota", case.traits.quota_used.unwrap_or(0.0), limit, !stops, note), stops.then_some(Reason::QuotaUsed))
}

/// Whether so much of a quota is in use that nothing more is added; what is not known is not.
pub fn is_at_limit(policy: &Policy, quota_used: Option<f64>) -> bool {
    policy.quota_limit.zip(quota_used).is_some_and(|(limit, used)| used >= limit)
}

fn outside_windows(case: &Case<'_>) -> Found {
    let windows = &case.policy.windows;
    let open = window::open(windows, case.now_ms);
    let listed = windows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let note = format!("whether work may begin now, in UTC: {listed}");
    let until_ms = window::opens_ms(windows, case.now_ms);
    (check("windows", flag(open), 1.0, open, note), (!open).then_some(Reason::OutsideWindows { until_ms }))
}

fn in_flight(case: &Case<'_>) -> Found {
    let note = if case.in_flight { "work on the partition is under way" } else { "no work under way" };
    (check("in-flight", flag(case.in_flight), 0.0, !case.in_flight, note), case.in_flight.then_some(Reason::InFlight))
}

fn flag(on: bool) -> f64 {
    if on { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::{Given, NOW};
    use crate::decide::{judge, maturity::ScopeMemory};
    use crate::model::decision::Verdict;
    use crate::model::refusal::{Refusal, Refused};

    /// A partition that fires when nothing stops it.
    fn firing() -> Given {
        Given::small_files(10)
    }

    fn reason(given: &Given) -> Option<Reason> {
        match judge(&given.case()).verdict {
            Verdict::Not { reason } => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn nothing_stops_a_partition_without_a_cause() {
        assert_eq!(reason(&firing()), None);
    }

    #[test]
    fn a_refusal_stops_and_is_named() {
        let mut given = firing();
        given.refusals.push(Refused::new(Refusal::Encrypted, "key metadata on a file"));
        given.refusals.push(Refused::new(Refusal::FileFormat, "is Orc, not Parquet"));
        assert_eq!(reason(&given), Some(Reason::Refused(Refused::new(Refusal::Encrypted, "key metadata on a file"))));
    }

    #[test]
    fn a_disabled_table_is_left_alone() {
        let mut given = firing();
        given.policy.enabled = false;
        assert_eq!(reason(&given), Some(Reason::Disabled));
    }

    #[test]
    fn a_paused_table_is_left_alone() {
        let mut given = firing();
        given.paused = true;
        assert_eq!(reason(&given), Some(Reason::Paused));
    }

    #[test]
    fn a_table_is_too_new_until_its_age_is_reached() {
        let mut given = firing();
        given.policy.min_table_age_ms = 1000;
        given.table.created_ms = NOW - 999;
        assert_eq!(reason(&given), Some(Reason::TooNew { until_ms: NOW + 1 }));
        given.table.created_ms = NOW - 1000;
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn a_table_is_too_small_below_its_bytes() {
        let mut given = firing();
        given.policy.min_table_bytes = 100;
        given.table.bytes = 99;
        assert_eq!(reason(&given), Some(Reason::TooSmall));
        given.table.bytes = 100;
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn a_partition_cools_down_after_a_rewrite() {
        let mut given = firing();
        given.policy.cooldown_ms = 60_000;
        given.memory.last_rewrite_ms = Some(NOW - 59_999);
        assert_eq!(reason(&given), Some(Reason::CoolingDown { until_ms: NOW + 1 }));
        given.memory.last_rewrite_ms = Some(NOW - 60_000);
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn a_longer_cooldown_holds_over_the_policys() {
        let mut given = firing();
        given.memory = ScopeMemory { last_rewrite_ms: Some(NOW - 90_000), cooldown_until_ms: Some(NOW + 5), ..Default::default() };
        assert_eq!(reason(&given), Some(Reason::CoolingDown { until_ms: NOW + 5 }));
    }

    #[test]
    fn a_partition_waits_until_its_writers_are_quiet() {
        let mut given = firing();
        given.policy.quiet_window_ms = 5000;
        given.traits.quiet_for_ms = Some(4000);
        assert_eq!(reason(&given), Some(Reason::QuietWindow { until_ms: NOW + 1000 }));
        given.traits.quiet_for_ms = Some(5000);
        assert_eq!(reason(&given), None);
        given.traits.quiet_for_ms = None;
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn a_partition_waits_for_the_hours_in_which_work_may_begin() {
        let mut given = firing();
        // the moment of every case is a Tuesday, 22:13:20
        let minute = 60_000;
        given.policy.windows = vec!["22:14-23:00".parse().unwrap()];
        assert_eq!(reason(&given), Some(Reason::OutsideWindows { until_ms: (NOW / minute + 1) * minute }));
        given.policy.windows.push("tue 22:13-22:14".parse().unwrap());
        assert_eq!(reason(&given), None);
        let check = judge(&given.case()).checks.into_iter().find(|c| c.name == "windows").unwrap();
        assert_eq!((check.passed, check.note.ends_with("22:14-23:00, tue 22:13-22:14")), (true, true));
    }

    #[test]
    fn a_table_of_what_others_are_made_of_is_left_alone() {
        let mut given = firing();
        given.policy.intermediate = true;
        assert_eq!(reason(&given), Some(Reason::Intermediate));
    }

    #[test]
    fn a_partition_by_time_is_left_alone_from_the_margin_before_it_is_dropped() {
        const DAY: i64 = 24 * 3_600_000;
        let mut given = firing();
        (given.policy.retention_ms, given.policy.retention_margin_ms) = (Some(30 * DAY), 2 * DAY);
        given.traits.partition_age_ms = Some(28 * DAY - 1);
        assert_eq!(reason(&given), None);
        given.traits.partition_age_ms = Some(28 * DAY);
        assert_eq!(reason(&given), Some(Reason::SoonDropped));
        given.traits.partition_age_ms = None;
        assert_eq!(reason(&given), None);
        (given.policy.retention_ms, given.traits.partition_age_ms) = (None, Some(99 * DAY));
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn nothing_is_added_to_a_quota_that_is_used_up_to_its_limit() {
        let mut given = firing();
        given.traits.quota_used = Some(0.95);
        assert_eq!(reason(&given), None);
        given.policy.quota_limit = Some(0.95);
        assert_eq!(reason(&given), Some(Reason::QuotaUsed));
        assert_eq!(judge(&given.case()).eligible_ms, None);
        given.traits.quota_used = Some(0.94);
        assert_eq!(reason(&given), None);
        given.traits.quota_used = None;
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn work_under_way_is_not_doubled() {
        let mut given = firing();
        given.in_flight = true;
        assert_eq!(reason(&given), Some(Reason::InFlight));
    }

    #[test]
    fn the_first_filter_that_stops_is_the_reason_and_all_are_recorded() {
        let mut given = firing();
        given.policy.enabled = false;
        given.paused = true;
        given.in_flight = true;
        assert_eq!(reason(&given), Some(Reason::Disabled));
        let failed: Vec<_> = judge(&given.case()).checks.into_iter().filter(|c| !c.passed).map(|c| c.name).collect();
        assert_eq!(failed[..3], ["enabled", "paused", "in-flight"]);
    }

    #[test]
    fn times_at_the_ends_of_their_range_do_not_overflow() {
        let mut given = firing();
        given.policy.min_table_age_ms = i64::MAX;
        given.policy.quiet_window_ms = i64::MAX;
        given.policy.cooldown_ms = i64::MAX;
        given.table.created_ms = i64::MAX;
        given.memory.last_rewrite_ms = Some(i64::MAX);
        given.traits.quiet_for_ms = Some(i64::MIN);
        assert_eq!(reason(&given), Some(Reason::TooNew { until_ms: i64::MAX }));
    }
}
