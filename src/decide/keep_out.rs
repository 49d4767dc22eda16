//! Keeping out of writers' way: a rewrite that lands while somebody's `MERGE` or
//! `UPDATE` runs on the same files makes that statement fail.

use super::filter::Found;
use super::{Case, check};
use crate::model::decision::Reason;
use crate::model::policy::Policy;
use crate::model::traits::Traits;
use crate::model::writers::Cadence;

/// Commits that make a rhythm.
pub const RHYTHM: u32 = 3;
/// What a rewrite takes beside reading and writing: plan, proof, commit.
const OVERHEAD_MS: i64 = 5_000;
/// Longest name of another sidecar that is told.
const LONGEST_INSTANCE: usize = 64;

/// What stops a partition for the sake of writers who are expected, or because another
/// sidecar is at work, with its checks; nothing is recorded where nothing is known of others.
pub fn stops(case: &Case<'_>) -> Vec<Found> {
    [expected(case), left_to_another(case), harmed(case)].into_iter().flatten().collect()
}

/// Somebody asked that the table be left alone: by a property or the settings, or by a
/// lease.
pub fn held(case: &Case<'_>) -> Option<Found> {
    let (until_ms, by) = holder(case)?;
    let left = until_ms.saturating_sub(case.now_ms).max(0);
    let found = check("hold", left as f64, 0.0, left == 0, format!("milliseconds for which the table is held by {by}"));
    Some((found, (left > 0).then(|| Reason::Held { until_ms, by: by.to_owned() })))
}

/// Until when the table is held longest, and by whom.
fn holder<'a>(case: &Case<'a>) -> Option<(i64, &'a str)> {
    let by_policy =
        case.policy.hold_until_ms.map(|until_ms| (until_ms, "the setting hold_until or the table property afterwrite.hold-until"));
    let lease = case.traits.writers.hold.as_ref().map(|hold| (hold.until_ms, hold.by.as_str()));
    lease.into_iter().chain(by_policy).max_by_key(|(until_ms, _)| *until_ms)
}

/// When nobody holds the table any more, and no writer is expected, as seen from a moment
/// to come.
pub fn free_from_ms(case: &Case<'_>, at_ms: i64) -> i64 {
    let held_until = holder(case).map_or(at_ms, |(until_ms, _)| until_ms);
    let (by_rhythm, by_load) = expected_until(case, at_ms);
    [Some(held_until), by_rhythm, by_load, left_until(case, at_ms)].into_iter().flatten().fold(at_ms, i64::max)
}

/// Until when a writer is expected at a moment: by the rhythm of commits, and by a load;
/// for at most the policy's time.
fn expected_until(case: &Case<'_>, at_ms: i64) -> (Option<i64>, Option<i64>) {
    let (writers, most) = (&case.traits.writers, case.policy.keep_out_ms);
    if most <= 0 {
        return (None, None);
    }
    let patience = writers.kept_out_since_ms.unwrap_or(at_ms).saturating_add(most);
    let patient = |until: i64| Some(until.min(patience)).filter(|until| *until > at_ms);
    let by_rhythm = busy(&writers.cadence, work_ms(case.policy, case.traits), most).filter(|busy| busy.holds(at_ms));
    (by_rhythm.and_then(|busy| patient(busy.to_ms)), writers.loaded_until_ms.and_then(patient))
}

/// Until when the table is left to another sidecar: until its claim ends, and for the
/// policy's time since its last rewrite. Of two that see each other's snapshots one is
/// always that which rewrote last, so that one goes on. A time that is further ahead than
/// that is of a clock that tells nothing.
fn left_until(case: &Case<'_>, at_ms: i64) -> Option<i64> {
    let most = case.policy.keep_out_ms;
    let sidecar = case.traits.writers.sidecar.as_ref()?;
    let rewrote = Some(sidecar.rewrote_ms.saturating_add(most)).filter(|_| most > 0);
    let rewrote = rewrote.filter(|until| *until <= at_ms.saturating_add(most).saturating_add(most));
    rewrote.into_iter().chain([sidecar.claims_until_ms]).filter(|until| *until > at_ms).max()
}

/// Another sidecar claims the table, or rewrote in it, and none of ours has since.
fn left_to_another(case: &Case<'_>) -> Option<Found> {
    let sidecar = case.traits.writers.sidecar.as_ref()?;
    let until_ms = left_until(case, case.now_ms);
    let left = until_ms.map_or(0, |until| until.saturating_sub(case.now_ms));
    let by: String = sidecar.instance.chars().take(LONGEST_INSTANCE).collect();
    let note = format!("milliseconds for which the table is left to the sidecar that claims it, or rewrote in it last: instance {by}");
    Some((check("other-sidecar", left as f64, 0.0, left == 0, note), until_ms.map(|until_ms| Reason::KeptOut { until_ms })))
}

/// A writer is expected, but for at most the policy's time.
fn expected(case: &Case<'_>) -> Option<Found> {
    let (writers, most) = (&case.traits.writers, case.policy.keep_out_ms);
    if most <= 0 || (writers.cadence.commits < RHYTHM && writers.loaded_until_ms.is_none()) {
        return None;
    }
    let (by_rhythm, by_load) = expected_until(case, case.now_ms);
    let until_ms = by_rhythm.max(by_load);
    let left = until_ms.map_or(0, |until| until.saturating_sub(case.now_ms));
    let note = match (by_load, by_rhythm) {
        (Some(_), _) => {
            "milliseconds for which a client that loaded the table and has not committed may be writing (an estimate)".to_owned()
        }
        (None, _) => format!(
            "milliseconds until a writer who takes files or rows away about every {} s must have come; kept out for at most {} s",
            writers.cadence.gap_ms / 1000,
            most / 1000
        ),
    };
    Some((check("keep-out", left as f64, 0.0, left == 0, note), until_ms.map(|until_ms| Reason::KeptOut { until_ms })))
}

/// Told where it happened; stops nothing.
fn harmed(case: &Case<'_>) -> Option<Found> {
    let harmed = Some(case.traits.writers.harmed).filter(|count| *count > 0)?;
    let note =
        "statements of the table's writers that our commits may have made fail: loaded before our replace, no commit after (an estimate)";
    Some((check("keep-out.harmed", harmed as f64, 0.0, true, note), None))
}

/// The time around the next commit of a rhythm in which no rewrite should land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// From then on a rewrite that begins would land too late.
    pub from_ms: i64,
    /// Then the writer must have come, or comes no more.
    pub to_ms: i64,
}

impl Busy {
    /// Whether a moment is in it.
    pub fn holds(&self, now_ms: i64) -> bool {
        (self.from_ms..self.to_ms).contains(&now_ms)
    }
}

/// The next busy time of a rhythm, for a rewrite that takes so long; `None` without a
/// rhythm. Half of the gap, and `most` at most, is taken for the statement that ends in
/// the next commit. As late as four mean deviations, the bound of RFC 6298, and twice
/// the gap at most, the writer is still waited for.
pub fn busy(cadence: &Cadence, work_ms: i64, most_ms: i64) -> Option<Busy> {
    if cadence.commits < RHYTHM || most_ms <= 0 {
        return None;
    }
    let next = cadence.heard_ms.saturating_add(cadence.gap_ms);
    let statement = (cadence.gap_ms / 2).min(most_ms).saturating_add(cadence.spread_ms.min(most_ms));
    let late = cadence.spread_ms.saturating_mul(4).min(cadence.gap_ms.saturating_mul(2)).min(most_ms);
    Some(Busy { from_ms: next.saturating_sub(statement).saturating_sub(work_ms), to_ms: next.saturating_add(late) })
}

/// When work that may begin now should begin no more: a writer is expected from then on.
pub fn closes_ms(policy: &Policy, traits: &Traits, now_ms: i64) -> Option<i64> {
    let busy = busy(&traits.writers.cadence, work_ms(policy, traits), policy.keep_out_ms)?;
    Some(busy.from_ms).filter(|from| *from > now_ms)
}

/// How long a rewrite of the partition takes, by the cost model.
fn work_ms(policy: &Policy, traits: &Traits) -> i64 {
    // deletes may be on any file
    let bytes = if traits.delete_file_count > 0 { traits.data_bytes } else { traits.small_bytes };
    let ms = bytes.min(policy.max_job_bytes) as f64 / policy.cost.rewrite_bytes_per_hour.max(1.0) * 3_600_000.0;
    (ms.min(1e15) as i64).saturating_add(OVERHEAD_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB, NOW};
    use crate::model::decision::{CheckKind, Verdict};
    use crate::model::writers::{Hold, Sidecar, Writers};

    const MINUTE: i64 = 60_000;

    /// Ten files of 1 MiB, which fire, written each `gap_ms`, the last time `ago_ms` ago.
    fn written_each(gap_ms: i64, spread_ms: i64, ago_ms: i64) -> Given {
        let mut given = Given::small_files(10);
        given.traits.writers.cadence = Cadence { commits: 5, gap_ms, spread_ms, heard_ms: NOW - ago_ms, written_ms: NOW - ago_ms };
        given
    }

    fn reason(given: &Given) -> Option<Reason> {
        match judge(&given.case()).verdict {
            Verdict::Not { reason } => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn work_begins_right_after_a_commit_and_not_near_the_next() {
        // 10 MiB take 209 ms at 50 MB/s, and 5 s around it
        let next = 5 * MINUTE;
        let closes = next - next / 2 - 1000 - 5209;
        assert_eq!(reason(&written_each(next, 1000, 0)), None);
        assert_eq!(reason(&written_each(next, 1000, closes - 1)), None);
        assert_eq!(reason(&written_each(next, 1000, closes)), Some(Reason::KeptOut { until_ms: NOW - closes + next + 4000 }));
        assert_eq!(reason(&written_each(next, 1000, next + 3999)), Some(Reason::KeptOut { until_ms: NOW + 1 }));
        assert_eq!(reason(&written_each(next, 1000, next + 4000)), None);
        let given = written_each(next, 1000, 0);
        assert_eq!(closes_ms(&given.policy, &given.traits, NOW), Some(NOW + closes));
    }

    #[test]
    fn statements_without_a_pause_between_them_are_never_cut_into() {
        for ago in [0, 2000, 5000, 9000, 10_000] {
            assert_eq!(reason(&written_each(10_000, 500, ago)), Some(Reason::KeptOut { until_ms: NOW - ago + 12_000 }), "{ago}");
        }
        assert_eq!(reason(&written_each(10_000, 500, 12_000)), None);
    }

    #[test]
    fn the_longer_work_takes_the_earlier_it_must_begin() {
        let mut given = written_each(10 * MINUTE, 0, 4 * MINUTE);
        assert_eq!(reason(&given), None);
        given.traits.small_bytes = 50_000_000 * 60;
        assert!(matches!(reason(&given), Some(Reason::KeptOut { .. })));
    }

    #[test]
    fn a_writer_who_comes_without_rest_is_waited_for_no_longer_than_the_policy_says() {
        let mut given = written_each(10_000, 500, 1000);
        given.traits.writers.kept_out_since_ms = Some(NOW - 10 * MINUTE + 1);
        assert_eq!(reason(&given), Some(Reason::KeptOut { until_ms: NOW + 1 }));
        given.traits.writers.kept_out_since_ms = Some(NOW - 10 * MINUTE);
        assert_eq!(reason(&given), None);
        let mut given = written_each(10_000, 500, 1000);
        given.policy.keep_out_ms = 0;
        assert_eq!((reason(&given), closes_ms(&given.policy, &given.traits, NOW)), (None, None));
    }

    #[test]
    fn a_daily_writer_costs_no_more_than_twice_that_time_a_day() {
        let day = 24 * 60 * MINUTE;
        let busy = busy(&written_each(day, 30 * MINUTE, 0).traits.writers.cadence, 5000, 10 * MINUTE).unwrap();
        assert_eq!((busy.from_ms, busy.to_ms), (NOW + day - 20 * MINUTE - 5000, NOW + day + 10 * MINUTE));
    }

    #[test]
    fn two_commits_are_no_rhythm() {
        let mut given = written_each(10_000, 500, 0);
        given.traits.writers.cadence.commits = 2;
        assert_eq!(reason(&given), None);
        assert!(judge(&given.case()).checks.iter().all(|c| c.name != "keep-out"));
    }

    #[test]
    fn a_client_that_may_be_writing_is_waited_for() {
        let mut given = Given::small_files(10);
        given.traits.writers.loaded_until_ms = Some(NOW + 1);
        assert_eq!(reason(&given), Some(Reason::KeptOut { until_ms: NOW + 1 }));
        let check = judge(&given.case()).checks.into_iter().find(|c| c.name == "keep-out").unwrap();
        assert_eq!((check.kind(), check.passed, check.value), (CheckKind::Filter, false, 1.0));
        assert!(check.note.contains("estimate"));
        given.traits.writers.loaded_until_ms = Some(NOW);
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn a_table_is_left_to_the_sidecar_that_rewrote_in_it_last_for_the_policys_time() {
        let rewritten = |ago_ms: i64| {
            let mut given = Given::small_files(10);
            given.traits.writers.sidecar = Some(Sidecar { instance: "other".into(), rewrote_ms: NOW - ago_ms, claims_until_ms: 0 });
            given
        };
        assert_eq!(reason(&rewritten(MINUTE)), Some(Reason::KeptOut { until_ms: NOW + 9 * MINUTE }));
        let check = judge(&rewritten(MINUTE).case()).checks.into_iter().find(|c| c.name == "other-sidecar").unwrap();
        assert_eq!((check.kind(), check.passed, check.value), (CheckKind::Filter, false, 9.0 * MINUTE as f64));
        assert!(check.note.contains("instance other"), "{}", check.note);
        assert_eq!(reason(&rewritten(10 * MINUTE - 1)), Some(Reason::KeptOut { until_ms: NOW + 1 }));
        assert_eq!(reason(&rewritten(10 * MINUTE)), None);
        // one whose clock is ahead, and one whose clock tells nothing
        assert_eq!(reason(&rewritten(-5 * MINUTE)), Some(Reason::KeptOut { until_ms: NOW + 15 * MINUTE }));
        assert_eq!(reason(&rewritten(-11 * MINUTE)), None);
        // it is no writer, who is waited for from the first time on
        let mut given = rewritten(0);
        given.traits.writers.kept_out_since_ms = Some(NOW - 10 * MINUTE);
        assert_eq!(reason(&given), Some(Reason::KeptOut { until_ms: NOW + 10 * MINUTE }));
        let mut given = rewritten(MINUTE);
        assert_eq!(free_from_ms(&given.case(), NOW), NOW + 9 * MINUTE);
        given.policy.keep_out_ms = 0;
        assert_eq!((reason(&given), free_from_ms(&given.case(), NOW)), (None, NOW));
    }

    #[test]
    fn a_table_is_left_to_the_sidecar_that_claims_it_as_long_as_it_does() {
        let mut given = Given::small_files(10);
        let claimed = |until: i64| Some(Sidecar { instance: "other".into(), rewrote_ms: 0, claims_until_ms: until });
        given.traits.writers.sidecar = claimed(NOW + 1);
        assert_eq!((reason(&given), free_from_ms(&given.case(), NOW)), (Some(Reason::KeptOut { until_ms: NOW + 1 }), NOW + 1));
        // whatever the policy says of rewrites
        given.policy.keep_out_ms = 0;
        assert_eq!(reason(&given), Some(Reason::KeptOut { until_ms: NOW + 1 }));
        given.traits.writers.sidecar = claimed(NOW);
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn a_held_table_is_left_alone_and_the_holder_named() {
        let mut given = Given::small_files(10);
        given.policy.hold_until_ms = Some(NOW + 5);
        assert!(
            matches!(reason(&given), Some(Reason::Held { until_ms, by }) if until_ms == NOW + 5 && by.contains("afterwrite.hold-until"))
        );
        given.traits.writers.hold = Some(Hold { by: "backfill".into(), until_ms: NOW + 9 });
        assert_eq!(reason(&given), Some(Reason::Held { until_ms: NOW + 9, by: "backfill".into() }));
        given.policy.hold_until_ms = None;
        given.traits.writers.hold = Some(Hold { by: "backfill".into(), until_ms: NOW });
        assert_eq!(reason(&given), None);
    }

    #[test]
    fn harm_is_told_as_an_estimate_and_stops_nothing() {
        let mut given = Given::of(&[(10, MIB)]);
        given.traits.writers.harmed = 2;
        let check = judge(&given.case()).checks.into_iter().find(|c| c.name == "keep-out.harmed").unwrap();
        assert_eq!((check.value, check.kind(), reason(&given)), (2.0, CheckKind::Number, None));
        assert!(check.note.contains("estimate"));
    }

    #[test]
    fn times_at_the_ends_of_their_range_do_not_overflow() {
        for extreme in [i64::MIN, i64::MAX] {
            let mut given = written_each(i64::MAX, i64::MAX, 0);
            let cadence = Cadence { heard_ms: extreme, ..given.traits.writers.cadence };
            let sidecar = Some(Sidecar { instance: String::new(), rewrote_ms: extreme, claims_until_ms: extreme });
            given.traits.writers =
                Writers { cadence, loaded_until_ms: Some(extreme), kept_out_since_ms: Some(extreme), sidecar, ..Writers::default() };
            given.policy.hold_until_ms = Some(extreme);
            let _any = reason(&given);
            given.policy.hold_until_ms = None;
            let _any = (reason(&given), closes_ms(&given.policy, &given.traits, NOW));
        }
    }
}
