//! What work cost and saved, in money, a table and month.
//!
//! A job costs its GB-hours and its requests. What it saves is told for scans: each file
//! fewer is not opened by any scan of the table after the job, at two requests. What it
//! replaced is stored on until snapshots expire, and costs for as long.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, NaiveDate};

use crate::model::economy::{HOURS_A_MONTH, Prices};

/// A month of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Month {
    year: i32,
    month: u32,
}

impl Month {
    /// That of a moment, in milliseconds since the epoch; `None` beyond the calendar.
    pub fn of(ms: i64) -> Option<Self> {
        let day = DateTime::from_timestamp_millis(ms)?;
        Some(Self { year: day.year(), month: day.month() })
    }

    /// When it begins, in milliseconds since the epoch.
    pub fn begins_ms(self) -> i64 {
        let first = NaiveDate::from_ymd_opt(self.year, self.month, 1).and_then(|day| day.and_hms_opt(0, 0, 0));
        first.map_or(i64::MAX, |first| first.and_utc().timestamp_millis())
    }

    /// The one after.
    pub fn next(self) -> Self {
        if self.month >= 12 { Self { year: self.year + 1, month: 1 } } else { Self { month: self.month + 1, ..self } }
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

/// A job that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Its table.
    pub table: String,
    /// When it ended, in milliseconds since the epoch.
    pub at_ms: i64,
    /// GB-hours spent.
    pub gb_hours: f64,
    /// Requests to object stores.
    pub requests: u64,
    /// Files fewer by it; none for one that did not land.
    pub files: u64,
}

/// A table's month.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Jobs that ended in it.
    pub jobs: u64,
    /// GB-hours spent.
    pub gb_hours: f64,
    /// Requests to object stores.
    pub requests: u64,
    /// What both cost.
    pub spent: f64,
    /// What scans save by files that all jobs until then made fewer; `None` where no
    /// rate of scans is set.
    pub saved: Option<f64>,
    /// Bytes of replaced files that snapshots keep alive now; in the last month.
    pub kept_bytes: u64,
    /// What storing them for a month costs.
    pub kept_a_month: f64,
}

/// Every month of each table from its first job to now. `kept` are the bytes of replaced
/// files that are still stored, by table.
pub fn months(done: &[Done], kept: &BTreeMap<String, u64>, prices: &Prices, now_ms: i64) -> BTreeMap<(String, Month), Row> {
    let mut by_table: BTreeMap<&str, Vec<&Done>> = BTreeMap::new();
    done.iter().for_each(|done| by_table.entry(&done.table).or_default().push(done));
    for table in kept.keys() {
        by_table.entry(table).or_default();
    }
    let mut rows = BTreeMap::new();
    let Some(last) = Month::of(now_ms) else { return rows };
    for (table, jobs) in by_table {
        let first = jobs.iter().filter_map(|job| Month::of(job.at_ms)).min().unwrap_or(last).min(last);
        let mut month = first;
        while month <= last {
            let mut row = row(&jobs, month, prices, now_ms);
            if month == last {
                row.kept_bytes = kept.get(table).copied().unwrap_or(0);
                row.kept_a_month = prices.stored(row.kept_bytes, HOURS_A_MONTH);
            }
            rows.insert((table.to_owned(), month), row);
            month = month.next();
        }
    }
    rows
}

fn row(jobs: &[&Done], month: Month, prices: &Prices, now_ms: i64) -> Row {
    let (begins, ends) = (month.begins_ms(), month.next().begins_ms());
    let mut row = Row { saved: (prices.scans_per_hour > 0.0).then_some(0.0), ..Row::default() };
    for job in jobs {
        if (begins..ends).contains(&job.at_ms) {
            row.jobs += 1;
            row.gb_hours += job.gb_hours;
            row.requests = row.requests.saturating_add(job.requests);
        }
        let hours = ends.min(now_ms).saturating_sub(begins.max(job.at_ms)).max(0) as f64 / 3_600_000.0;
        row.saved = row.saved.map(|saved| saved + prices.saved(job.files, prices.scans_per_hour, hours));
    }
    row.spent = prices.of(row.gb_hours, row.requests as f64);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    /// 2026-01-31T00:00:00Z
    const END_OF_JANUARY: i64 = 1_769_817_600_000;

    fn prices() -> Prices {
        Prices { gb_hour: 0.5, thousand_requests: 10.0, gb_month: 7.3, scans_per_hour: 2.0, currency: "EUR".into() }
    }

    fn done(at_ms: i64, files: u64) -> Done {
        Done { table: "t".into(), at_ms, gb_hours: 4.0, requests: 300, files }
    }

    #[test]
    fn a_month_is_of_the_calendar() {
        let month = Month::of(END_OF_JANUARY).unwrap();
        assert_eq!((month.to_string(), month.next().to_string()), ("2026-01".into(), "2026-02".into()));
        assert_eq!(
            (month.next().begins_ms(), Month { year: 2026, month: 12 }.next().to_string()),
            (END_OF_JANUARY + 24 * HOUR, "2027-01".into())
        );
        assert_eq!(Month::of(i64::MAX), None);
    }

    #[test]
    fn a_job_is_paid_in_its_month_and_saves_in_all_that_follow() {
        let kept = BTreeMap::from([("t".to_owned(), 10_000_000_000)]);
        // lands 24 h before February; now is 48 h into it
        let rows = months(&[done(END_OF_JANUARY, 50)], &kept, &prices(), END_OF_JANUARY + 72 * HOUR);
        let rows: Vec<(String, Row)> = rows.into_iter().map(|((_, month), row)| (month.to_string(), row)).collect();
        // 50 files, 2 requests each, 2 scans an hour: 200 requests an hour at 0.01
        let january = Row { jobs: 1, gb_hours: 4.0, requests: 300, spent: 5.0, saved: Some(48.0), kept_bytes: 0, kept_a_month: 0.0 };
        let february = Row { saved: Some(96.0), kept_bytes: 10_000_000_000, kept_a_month: 73.0, ..Row::default() };
        assert_eq!(rows, [("2026-01".to_owned(), january), ("2026-02".to_owned(), february)]);
    }

    #[test]
    fn without_a_rate_of_scans_nothing_is_said_of_savings() {
        let rows = months(&[done(END_OF_JANUARY, 50)], &BTreeMap::new(), &Prices { scans_per_hour: 0.0, ..prices() }, END_OF_JANUARY);
        assert_eq!(rows.into_values().map(|row| row.saved).collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn a_table_of_which_only_replaced_files_are_left_has_its_row() {
        let kept = BTreeMap::from([("gone".to_owned(), 1_000_000_000)]);
        let rows = months(&[], &kept, &prices(), END_OF_JANUARY);
        assert_eq!(rows.into_iter().map(|((table, _), row)| (table, row.kept_a_month)).collect::<Vec<_>>(), [("gone".to_owned(), 7.3)]);
    }
}
