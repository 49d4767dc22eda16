//! Times at which periodic work is due: a cron expression in a time zone, or an
//! interval.

use std::fmt;
use std::str::FromStr;

use chrono::DateTime;
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use serde::{Deserialize, Serialize};

/// When work is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Schedule {
    /// At the times of a cron expression.
    Cron(Box<Times>),
    /// Once so many milliseconds have passed since the last work.
    Every(i64),
}

/// The times of a cron expression of five fields, by the clocks of a time zone.
///
/// A time that the clocks leave out when they go forward comes at the first moment
/// after; one that they show twice when they go back comes once, the first time,
/// unless the expression goes by a step or a range of hours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    text: String,
    zone: Tz,
    cron: Cron,
}

/// Whether work is due at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Now, and until then; `None` for as long as nobody has done it.
    Due {
        /// In milliseconds since the epoch.
        until_ms: Option<i64>,
    },
    /// Then, in milliseconds since the epoch.
    At(i64),
    /// Never again: the expression names years that are over.
    Never,
}

const HOW: &str = "write for example \"0 2 * * *\", \"0 2 * * SAT Europe/Berlin\" (UTC without a zone) or \"every 6h\"";

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(interval) = text.strip_prefix("every ") {
            let read = humantime::parse_duration(interval).map_err(|e| format!("`{interval}` is not a duration: {e}; {HOW}"))?;
            return match i64::try_from(read.as_millis()) {
                Ok(ms) if ms >= 1000 => Ok(Self::Every(ms)),
                _ => Err(format!("`{interval}` is no interval: at least a second, and less than the age of the world; {HOW}")),
            };
        }
        let (expression, zone) = match text.rsplit_once(' ').and_then(|(before, last)| Some((before, last.parse::<Tz>().ok()?))) {
            Some((expression, zone)) => (expression, zone),
            None => (text.as_str(), Tz::UTC),
        };
        let fields = expression.split(' ').count();
        if fields != 5 && !expression.starts_with('@') {
            return Err(format!("`{text}` has {fields} fields in place of five, or its time zone is not known; {HOW}"));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|e| format!("`{expression}` is no cron expression: {e}; {HOW}"))?;
        let times = Times { text: expression.to_owned(), zone, cron };
        match times.next_ms(0) {
            Some(_) => Ok(Self::Cron(Box::new(times))),
            None => Err(format!("`{expression}` never comes: there is no such day; {HOW}")),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(times) => write!(f, "{} {}", times.text, times.zone.name()),
            Self::Every(ms) => {
                let time = std::time::Duration::from_millis(u64::try_from(*ms).unwrap_or(0));
                write!(f, "every {}", humantime::format_duration(time))
            }
        }
    }
}

impl TryFrom<String> for Schedule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Schedule> for String {
    fn from(schedule: Schedule) -> Self {
        schedule.to_string()
    }
}

impl Times {
    /// The first time after a moment.
    fn next_ms(&self, after_ms: i64) -> Option<i64> {
        let after = DateTime::from_timestamp_millis(after_ms)?.with_timezone(&self.zone);
        Some(self.cron.find_next_occurrence(&after, false).ok()?.timestamp_millis())
    }

    /// The last time up to a moment.
    fn last_ms(&self, now_ms: i64) -> Option<i64> {
        let now = DateTime::from_timestamp_millis(now_ms)?.with_timezone(&self.zone);
        Some(self.cron.find_previous_occurrence(&now, true).ok()?.timestamp_millis())
    }
}

impl Schedule {
    /// Whether work is due now that was done last at a time, if ever. What a cron time
    /// makes due may begin for `length_ms` after it, once.
    pub fn when(&self, now_ms: i64, done_ms: Option<i64>, length_ms: i64) -> When {
        // what seems to lie ahead (a clock set back) was done now
        let done_ms = done_ms.map(|done| done.min(now_ms));
        match self {
            Self::Every(interval) => match done_ms.map(|done| done.saturating_add(*interval)) {
                Some(at) if at > now_ms => When::At(at),
                _ => When::Due { until_ms: None },
            },
            Self::Cron(times) => {
                let open = times.last_ms(now_ms).map(|last| (last, last.saturating_add(length_ms.max(1))));
                match open {
                    Some((last, until)) if now_ms < until && done_ms.is_none_or(|done| done < last) => When::Due { until_ms: Some(until) },
                    _ => times.next_ms(now_ms).map_or(When::Never, When::At),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;

    fn schedule(text: &str) -> Schedule {
        text.parse().unwrap()
    }

    fn ms(rfc3339: &str) -> i64 {
        DateTime::parse_from_rfc3339(rfc3339).unwrap().timestamp_millis()
    }

    #[test]
    fn a_cron_time_makes_work_due_once_and_for_as_long_as_is_said() {
        let two = schedule("0 2 * * *");
        let tick = ms("2026-03-05T02:00:00Z");
        let when = |now, done| two.when(now, done, HOUR);
        assert_eq!(when(tick - 1, None), When::At(tick));
        assert_eq!(when(tick, None), When::Due { until_ms: Some(tick + HOUR) });
        assert_eq!(when(tick + HOUR - 1, Some(tick - 1)), When::Due { until_ms: Some(tick + HOUR) });
        assert_eq!(when(tick + 1, Some(tick)), When::At(tick + DAY));
        assert_eq!(when(tick + HOUR, None), When::At(tick + DAY));
        // a clock that was set back
        assert_eq!(when(tick + 5, Some(tick + DAY)), When::At(tick + DAY));
    }

    #[test]
    fn an_interval_counts_from_the_last_work() {
        let every = schedule("every 6h");
        assert_eq!(every.when(DAY, None, HOUR), When::Due { until_ms: None });
        assert_eq!(every.when(DAY, Some(DAY - HOUR), HOUR), When::At(DAY + 5 * HOUR));
        assert_eq!(every.when(DAY, Some(DAY - 6 * HOUR), HOUR), When::Due { until_ms: None });
        assert_eq!(every.when(DAY, Some(9 * DAY), HOUR), When::At(DAY + 6 * HOUR));
    }

    #[test]
    fn times_are_by_the_clocks_of_the_zone_and_in_utc_without_one() {
        let next = |text: &str, now: &str| match schedule(text).when(ms(now), Some(ms(now)), 1) {
            When::At(at) => DateTime::from_timestamp_millis(at).unwrap().to_rfc3339(),
            other => panic!("{other:?}"),
        };
        assert_eq!(next("0 2 * * *", "2026-01-10T12:00:00Z"), "2026-01-11T02:00:00+00:00");
        assert_eq!(next("0 2 * * * Europe/Berlin", "2026-01-10T12:00:00Z"), "2026-01-11T01:00:00+00:00");
        assert_eq!(next("0 2 * * * Europe/Berlin", "2026-07-10T12:00:00Z"), "2026-07-11T00:00:00+00:00");
        // 02:30 is left out on 2026-03-29 in Berlin: it comes at 03:00
        assert_eq!(next("30 2 * * * Europe/Berlin", "2026-03-28T12:00:00Z"), "2026-03-29T01:00:00+00:00");
        // and comes once on 2026-10-25, when the clocks show it twice
        assert_eq!(next("30 2 * * * Europe/Berlin", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00+00:00");
        assert_eq!(next("30 2 * * * Europe/Berlin", "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00+00:00");
    }

    #[test]
    fn what_is_shown_is_what_would_be_read() {
        for (text, shown) in [
            ("0 2 * * *", "0 2 * * * UTC"),
            (" */15  1-5 * * MON  America/New_York ", "*/15 1-5 * * MON America/New_York"),
            ("every 6h", "every 6h"),
            ("every 1m 30s", "every 1m 30s"),
            ("@daily", "@daily UTC"),
        ] {
            assert_eq!(schedule(text).to_string(), shown);
            assert_eq!(schedule(shown), schedule(text));
            let json = serde_json::to_string(&schedule(text)).unwrap();
            assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule(text));
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_what_to_write() {
        for (text, why) in [
            ("", "fields in place of five"),
            ("0 2 * *", "has 4 fields"),
            ("0 0 2 * * *", "has 6 fields"),
            ("0 2 * * * Mars/Olympus", "its time zone is not known"),
            ("60 2 * * *", "is no cron expression"),
            ("0 0 30 2 *", "never comes"),
            ("every", "fields in place of five"),
            ("every 5", "is not a duration"),
            ("every 10ms", "at least a second"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err();
            assert!(error.contains(why) && error.contains(HOW), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~é]{0,40}") {
            let _ = text.parse::<Schedule>();
        }

        #[test]
        fn what_waits_waits_for_a_moment_at_which_it_is_due(
            text in prop_oneof![
                Just("0 2 * * *"), Just("*/7 3-5 * * MON-FRI Europe/Berlin"), Just("0 0 29 2 *"), Just("every 1h"), Just("30 2 * * SUN America/New_York"),
            ],
            now in 0i64..4_000_000_000_000, done in proptest::option::of(0i64..4_000_000_000_000), length in 1i64..(2 * DAY),
        ) {
            let schedule = schedule(text);
            match schedule.when(now, done, length) {
                When::At(at) => {
                    prop_assert!(at > now);
                    let done = done.map(|d| d.min(now));
                    prop_assert!(matches!(schedule.when(at, done, length), When::Due { .. }), "{:?}", schedule.when(at, done, length));
                }
                When::Due { until_ms } => {
                    prop_assert!(until_ms.is_none_or(|until| until > now));
                    // what was done is not due at once again
                    prop_assert!(matches!(schedule.when(now, Some(now), length), When::At(_)));
                }
                When::Never => prop_assert!(false),
            }
        }
    }
}
