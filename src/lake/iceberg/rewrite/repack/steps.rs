//! Which row groups are joined: pure but for the job that they are of.

use std::collections::HashMap;
use std::iter;
use std::ops::Range;

use super::super::choose::{Asked, as_asked};
use super::super::cut;
use super::super::job::Job;
use super::super::parts::{Group, MOST_GROUPS};
use super::joints::{Size, joints};

/// The share of a job's memory that the pages of one row group in the making
/// may take as they are read: they are held five times, as one row group is read,
/// the next joined and the last written.
pub fn group_bytes(memory: u64) -> u64 {
    memory / 10
}

/// The share that the pages of one column of a row group may take where the
/// columns are read one by one.
pub fn column_bytes(memory: u64) -> u64 {
    memory / 16
}

/// The same of a row group that is copied whole: pages are held as they are read.
pub fn copied_column_bytes(memory: u64) -> u64 {
    memory / 8
}

/// One row group to be made, of a file's.
pub struct Step {
    /// Its row groups.
    pub groups: Range<usize>,
    /// The file's first row group.
    pub file: usize,
    /// Whether its columns are read, joined and written one by one.
    pub by_column: bool,
    /// Whether it is one row group that is copied whole.
    pub whole: bool,
}

/// The row groups to be made, in order: none above its share of memory, or read
/// column by column and no column above its share.
pub fn steps(job: &Job<'_>, groups: &[Group<'_>]) -> Vec<Step> {
    let sizes: Vec<u64> = groups.iter().map(live_bytes).collect();
    let files = cut::outputs(sizes.iter().sum(), job.plan.target_file_size);
    let memory = job.plan.bound.memory;
    let bytes = |groups: &[Group<'_>]| groups.iter().map(Group::bytes).sum::<u64>();
    // where they are read one by one, the widest column is the measure
    let by_column = u128::from(column_bytes(memory)) * u128::from(bytes(groups)) / u128::from(widest(groups).max(1));
    let whole = group_bytes(memory);
    let most = job.properties.row_group_bytes.min(u64::try_from(by_column).unwrap_or(u64::MAX).max(whole));
    let stay = stay(job, groups);
    let of = |(group, stays): (&Group<'_>, &bool)| Size { rows: group.live(), bytes: group.bytes(), stays: *stays };
    let all: Vec<Size> = groups.iter().zip(&stay).map(of).collect();
    let mut steps = Vec::new();
    for file in cut::even(&sizes, files, MOST_GROUPS) {
        for joint in joints(all.get(file.clone()).unwrap_or_default(), most) {
            let mut left: Vec<_> = iter::once(file.start + joint.start..file.start + joint.end).collect();
            while let Some(joint) = left.pop() {
                let own = groups.get(joint.clone()).unwrap_or_default();
                let by_column = bytes(own) > whole;
                if by_column && own.len() > 1 && widest(own) > column_bytes(memory) {
                    let middle = joint.start + own.len() / 2;
                    left.extend([middle..joint.end, joint.start..middle]);
                } else {
                    let whole = own.len() == 1 && stay.get(joint.start) == Some(&true);
                    steps.push(Step { groups: joint, file: file.start, by_column, whole });
                }
            }
        }
    }
    steps
}

/// Which row groups may stay as they are: healthy ones that lose no row, of files that
/// have what the table asks for.
fn stay(job: &Job<'_>, groups: &[Group<'_>]) -> Vec<bool> {
    let asked = Asked::of(&job.properties);
    let mut files: HashMap<usize, bool> = HashMap::new();
    let mut stays = |group: &Group<'_>| {
        let input = group.input;
        let file = || as_asked(&asked, iter::once((input.path.as_str(), &input.footer))).is_ok();
        let size = Size { rows: group.rows(), bytes: group.bytes(), stays: true };
        group.dead == 0 && size.is_healthy() && *files.entry(group.number).or_insert_with(file)
    };
    groups.iter().map(&mut stays).collect()
}

/// Bytes of the column that takes most in all these row groups.
fn widest(groups: &[Group<'_>]) -> u64 {
    let mut columns: Vec<u64> = Vec::new();
    for group in groups {
        columns.resize(columns.len().max(group.meta.num_columns()), 0);
        for (sum, chunk) in columns.iter_mut().zip(group.meta.columns()) {
            *sum = sum.saturating_add(u64::try_from(chunk.compressed_size()).unwrap_or(0));
        }
    }
    columns.into_iter().max().unwrap_or(0)
}

/// The share of a row group's bytes that its rows which stay take.
fn live_bytes(group: &Group<'_>) -> u64 {
    let share = u128::from(group.bytes()) * u128::from(group.live()) / u128::from(group.rows().max(1));
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}
