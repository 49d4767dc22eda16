//! What a partition is judged by that is neither its layout nor what was heard of it:
//! the commits of its table, and the time that it is of.

use chrono::{Months, NaiveDate};

use crate::model::form::Form;
use crate::model::partition::{PartitionKey, Value};
use crate::model::table::{Operation, SpecInfo, TableView};

/// Commits of a table that are counted.
const MOST: usize = 1000;
/// A rewrite's snapshot is no older or younger than its landing by more, in milliseconds:
/// it is never older than the writer's commit before it, whose clock may go ahead.
const NEAR_MS: u64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

/// Commits that lead to a table's head, as far as its metadata still lists them, newest
/// first: those of its writers, and our rewrites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commits(Vec<Commit>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Commit {
    at_ms: i64,
    /// Whether it is a rewrite of this product.
    own: bool,
}

impl Commits {
    /// Of a table.
    pub fn of(view: &TableView) -> Self {
        let mut commits = Vec::new();
        let mut next = view.head;
        while let Some(snapshot) = next.and_then(|id| view.snapshots.get(&id)).filter(|_| commits.len() < MOST) {
            let own = snapshot.attempt.is_some();
            // other products' rewrites are no commits of writers
            if own || snapshot.operation != Operation::Replace {
                commits.push(Commit { at_ms: snapshot.timestamp_ms, own });
            }
            // a parent of itself would never end
            next = snapshot.parent.filter(|parent| *parent != snapshot.id);
        }
        Self(commits)
    }

    /// How many of writers' came after the rewrite that landed at a time, by our clock, or
    /// all. By their order in the table, as far as the rewrite is there: writers' clocks
    /// may go otherwise.
    pub fn since(&self, rewritten_ms: Option<i64>) -> u64 {
        let Some(at_ms) = rewritten_ms else { return self.writers(self.0.len()) };
        let away = |commit: &Commit| commit.at_ms.abs_diff(at_ms);
        let own = self.0.iter().enumerate().filter(|(_, commit)| commit.own && away(commit) <= NEAR_MS);
        match own.min_by_key(|(_, commit)| away(commit)) {
            Some((rewrite, _)) => self.writers(rewrite),
            None => self.0.iter().filter(|commit| !commit.own && commit.at_ms > at_ms).count() as u64,
        }
    }

    /// Writers' commits among so many of the newest.
    fn writers(&self, newest: usize) -> u64 {
        self.0.iter().take(newest).filter(|commit| !commit.own).count() as u64
    }
}

/// How long the hour, day, month or year of a partition is over: the last of its fields
/// that is one. `None` when none is, and before it is over.
pub fn partition_age_ms(key: &PartitionKey, spec: Option<&SpecInfo>, now_ms: i64) -> Option<i64> {
    let fields = spec?.forms.iter().zip(key.tuple.iter());
    let ends_ms = fields.filter_map(|(form, value)| ends_ms(*form, value.as_ref()?)).max()?;
    Some(now_ms.saturating_sub(ends_ms)).filter(|age| *age >= 0)
}

/// When the time that a value stands for is over.
fn ends_ms(form: Form, value: &Value) -> Option<i64> {
    let number = match value {
        Value::Int(v) => i64::from(*v),
        Value::Long(v) => *v,
        _ => return None,
    };
    let after = number.checked_add(1)?;
    match form {
        Form::Hour => after.checked_mul(HOUR_MS),
        Form::Day => after.checked_mul(24 * HOUR_MS),
        Form::Month => months_ms(after),
        Form::Year => months_ms(after.checked_mul(12)?),
        _ => None,
    }
}

/// So many months after the beginning of 1970, or before.
fn months_ms(months: i64) -> Option<i64> {
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
    let away = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    let date = if months < 0 { epoch.checked_sub_months(away)? } else { epoch.checked_add_months(away)? };
    Some(date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::model::ident::{TableIdent, TableName};
    use crate::model::table::SnapshotInfo;

    const DAY: i64 = 24 * HOUR_MS;

    fn snapshot(id: i64, parent: Option<i64>, operation: Operation) -> (i64, SnapshotInfo) {
        let info = SnapshotInfo {
            id,
            parent,
            sequence_number: id,
            timestamp_ms: id * 100_000,
            operation,
            attempt: None,
            instance: None,
            engine: None,
        };
        (id, info)
    }

    fn view(head: i64, snapshots: impl IntoIterator<Item = (i64, SnapshotInfo)>) -> TableView {
        TableView {
            ident: TableIdent::iceberg(uuid::Uuid::from_u128(7)),
            name: TableName::new("lake", "ns", "t"),
            metadata_location: String::new(),
            location: String::new(),
            format_version: 2,
            reference: "main".into(),
            head: Some(head),
            snapshots: snapshots.into_iter().collect(),
            last_sequence_number: head,
            specs: BTreeMap::new(),
            properties: BTreeMap::new(),
            created_ms: 0,
            refused: vec![],
        }
    }

    #[test]
    fn writers_commits_that_lead_to_the_head_are_counted_since_a_rewrite() {
        use Operation::{Append, Delete, Replace};
        let own = |id, parent| {
            let (id, info) = snapshot(id, parent, Replace);
            (id, SnapshotInfo { attempt: Some("ours".into()), ..info })
        };
        let all = [
            snapshot(1, None, Append),
            own(2, Some(1)),
            snapshot(3, Some(2), Delete),
            snapshot(4, Some(2), Append),
            snapshot(5, Some(3), Append),
            snapshot(6, Some(5), Replace),
            own(7, Some(6)),
        ];
        let commits = Commits::of(&view(7, all.clone()));
        // before the first rewrite only the writers' clocks tell
        let at = [None, Some(100_000), Some(210_000), Some(640_000), Some(650_000), Some(700_000), Some(990_000)];
        assert_eq!(at.map(|at| commits.since(at)), [3, 2, 2, 0, 0, 0, 0]);
        // a writer whose clock is behind ours is counted all the same
        let mut behind = all;
        behind[4].1.timestamp_ms = 3;
        assert_eq!(Commits::of(&view(7, behind)).since(Some(200_000)), 2);
        // what was expired is not counted, and a circle ends
        assert_eq!(Commits::of(&view(5, [snapshot(5, Some(4), Append)])).since(None), 1);
        assert_eq!(Commits::of(&view(5, [snapshot(5, Some(5), Append)])).since(None), 1);
        let circle = [snapshot(5, Some(6), Append), snapshot(6, Some(5), Append)];
        assert_eq!(Commits::of(&view(5, circle)).since(None), MOST as u64);
    }

    #[test]
    fn a_partition_by_time_is_as_old_as_its_time_is_over() {
        let age = |forms: &[Form], tuple: &[Option<Value>], now| {
            let spec = SpecInfo { forms: forms.to_vec(), ..SpecInfo::default() };
            partition_age_ms(&PartitionKey { spec_id: 0, tuple: Arc::from(tuple) }, Some(&spec), now)
        };
        let one = |n| Some(Value::Int(n));
        assert_eq!(age(&[Form::Day], &[one(9)], 12 * DAY), Some(2 * DAY));
        assert_eq!(age(&[Form::Day], &[one(9)], 10 * DAY - 1), None);
        assert_eq!(age(&[Form::Hour], &[one(0)], DAY), Some(23 * HOUR_MS));
        assert_eq!(age(&[Form::Month], &[one(1)], 59 * DAY), Some(0));
        assert_eq!(age(&[Form::Year], &[one(0)], 366 * DAY), Some(DAY));
        assert_eq!(age(&[Form::Month, Form::Plain, Form::Day], &[one(0), one(5), one(9)], 40 * DAY), Some(9 * DAY));
        assert_eq!((age(&[Form::Plain], &[one(1)], DAY), age(&[Form::Day], &[None], DAY)), (None, None));
        assert_eq!(age(&[Form::Month], &[Some(Value::Long(i64::MAX))], DAY), None);
        assert_eq!(age(&[Form::Month], &[one(-13)], 0), Some(365 * DAY));
    }
}
