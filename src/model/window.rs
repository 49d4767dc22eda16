//! Hours of the week in which work may begin, in UTC.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const MINUTE_MS: i64 = 60_000;
const DAY: i64 = 1440;
const WEEK: i64 = 7 * DAY;
/// 1970-01-01 was a Thursday.
const EPOCH_DAY: i64 = 3;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// From one time of day to another, on some days of the week. One that ends at an
/// earlier time than it begins ends on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first day on which it begins, from Monday, 0.
    first: u8,
    /// The last one; before the first, it goes over Sunday.
    last: u8,
    /// Minutes after midnight.
    from: u16,
    /// Minutes after midnight at which it is over.
    to: u16,
}

impl FromStr for Window {
    type Err = String;

    /// `22:00-06:00`, `sat 00:00-24:00`, `mon-fri 20:00-23:30`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no window; write for example 22:00-06:00 or sat-sun 00:00-24:00, in UTC");
        let lower = text.trim().to_ascii_lowercase();
        let (days, hours) = lower.rsplit_once(' ').unwrap_or(("mon-sun", &lower));
        let (first, last) = days.split_once('-').unwrap_or((days, days));
        let day = |name: &str| DAYS.iter().zip(0..).find(|(day, _)| **day == name.trim()).map(|(_, at)| at).ok_or_else(wrong);
        let (from, to) = hours.split_once('-').ok_or_else(wrong)?;
        let window =
            Self { first: day(first)?, last: day(last)?, from: minutes(from).ok_or_else(wrong)?, to: minutes(to).ok_or_else(wrong)? };
        if window.from == window.to || i64::from(window.from) == DAY {
            return Err(format!("`{text}` holds no time: it ends when it begins"));
        }
        Ok(window)
    }
}

/// `00:00` to `24:00`.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let two = |part: &str| (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<u16>().ok()).flatten();
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    let sum = hours * 60 + minutes;
    (minutes < 60 && i64::from(sum) <= DAY).then_some(sum)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = |at: u8| DAYS.get(usize::from(at)).copied().unwrap_or_default();
        match (self.first, self.last) {
            (0, 6) => {}
            (first, last) if first == last => write!(f, "{} ", day(first))?,
            (first, last) => write!(f, "{}-{} ", day(first), day(last))?,
        }
        write!(f, "{:02}:{:02}-{:02}:{:02}", self.from / 60, self.from % 60, self.to / 60, self.to % 60)
    }
}

impl Window {
    /// When it begins in a week, in minutes after Monday's midnight, and for how long.
    fn begins(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        let length = (i64::from(self.to) - i64::from(self.from)).rem_euclid(DAY);
        // from midnight to midnight is a day, not nothing
        let length = if length == 0 { DAY } else { length };
        let (first, from) = (i64::from(self.first), i64::from(self.from));
        let days = (i64::from(self.last) - first).rem_euclid(7);
        (0..=days).map(move |day| (((first + day) * DAY + from) % WEEK, length))
    }
}

/// Minutes after Monday's midnight.
fn minute_of_week(now_ms: i64) -> i64 {
    (now_ms.div_euclid(MINUTE_MS) + EPOCH_DAY * DAY).rem_euclid(WEEK)
}

/// The end of the minute-wise window that holds a moment, as far as one does.
fn ends(windows: &[Window], now_ms: i64) -> Option<i64> {
    let minute = minute_of_week(now_ms);
    let left = |(begin, length): (i64, i64)| Some(length - (minute - begin).rem_euclid(WEEK)).filter(|left| *left > 0);
    let longest = windows.iter().flat_map(Window::begins).filter_map(left).max()?;
    Some(now_ms.div_euclid(MINUTE_MS).saturating_add(longest).saturating_mul(MINUTE_MS))
}

/// Whether work may begin at a moment, in milliseconds since the epoch: always where
/// there is no window.
pub fn open(windows: &[Window], now_ms: i64) -> bool {
    windows.is_empty() || ends(windows, now_ms).is_some()
}

/// When the next window opens, outside of all.
pub fn opens_ms(windows: &[Window], now_ms: i64) -> i64 {
    let minute = minute_of_week(now_ms);
    let wait = windows.iter().flat_map(Window::begins).map(|(begin, _)| (begin - minute).rem_euclid(WEEK)).min().unwrap_or(0);
    now_ms.div_euclid(MINUTE_MS).saturating_add(wait).saturating_mul(MINUTE_MS)
}

/// When work may begin no more, within a window; `None` where it always may.
pub fn closes_ms(windows: &[Window], now_ms: i64) -> Option<i64> {
    let mut end = ends(windows, now_ms)?;
    // windows that meet are one; no more than a week is looked ahead
    while let Some(later) = ends(windows, end) {
        end = later;
        if end.saturating_sub(now_ms) > WEEK * MINUTE_MS {
            return None;
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Monday, 2024-01-01, midnight.
    const MONDAY: i64 = 1_704_067_200_000;
    const HOUR: i64 = 3_600_000;

    fn windows(texts: &[&str]) -> Vec<Window> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let night = windows(&["mon-tue 22:00-06:00"]);
        let open_at = |hours: i64| open(&night, MONDAY + hours * HOUR);
        assert_eq!([0, 21, 22, 29, 30, 46, 53, 54, 70].map(open_at), [false, false, true, true, false, true, true, false, false]);
        assert_eq!(opens_ms(&night, MONDAY + 30 * HOUR), MONDAY + 46 * HOUR);
        assert_eq!(opens_ms(&night, MONDAY + 54 * HOUR), MONDAY + (7 * 24 + 22) * HOUR);
        assert_eq!(closes_ms(&night, MONDAY + 23 * HOUR + 17), Some(MONDAY + 30 * HOUR));
    }

    #[test]
    fn windows_that_meet_are_one() {
        let weekend = windows(&["sat-sun 00:00-24:00", "mon 00:00-02:00"]);
        assert_eq!(closes_ms(&weekend, MONDAY - 30 * HOUR), Some(MONDAY + 2 * HOUR));
        let always = windows(&["00:00-12:00", "12:00-24:00"]);
        assert_eq!((closes_ms(&always, MONDAY), open(&always, MONDAY + 12 * HOUR)), (None, true));
        assert_eq!((closes_ms(&[], MONDAY), open(&[], MONDAY)), (None, true));
        // over Sunday
        assert!(open(&windows(&["sun-mon 01:00-02:00"]), MONDAY + HOUR));
        assert!(!open(&windows(&["sun-mon 01:00-02:00"]), MONDAY + 25 * HOUR));
    }

    #[test]
    fn what_is_shown_is_what_would_be_read() {
        for text in ["22:00-06:00", "sat 00:00-24:00", "fri-mon 00:30-23:59"] {
            assert_eq!(text.parse::<Window>().unwrap().to_string(), text);
        }
        assert_eq!("MON-SUN 01:00-02:00".parse::<Window>().unwrap().to_string(), "01:00-02:00");
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in ["", "22-06", "1:00-2:00", "25:00-26:00", "00:60-01:00", "noon", "someday 01:00-02:00", "24:01-03:00"] {
            assert!(text.parse::<Window>().unwrap_err().contains("is no window"), "{text}");
        }
        for text in ["05:00-05:00", "24:00-01:00"] {
            assert!(text.parse::<Window>().unwrap_err().contains("holds no time"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_window_opens_when_it_is_said_to_and_not_before(first in 0u8..7, last in 0u8..7, from in 0u16..1440, to in 0u16..=1440, at in 0i64..2_000_000_000_000) {
            prop_assume!(from != to);
            let all = [Window { first, last, from, to }];
            if open(&all, at) {
                if let Some(end) = closes_ms(&all, at) {
                    prop_assert!(end > at && !open(&all, end) && open(&all, end - 1));
                }
            } else {
                let next = opens_ms(&all, at);
                prop_assert!(next > at && open(&all, next) && !open(&all, next - 1));
            }
        }
    }
}
