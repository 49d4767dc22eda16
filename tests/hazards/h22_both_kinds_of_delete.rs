//! Position and equality deletes on one file, in every combination and order.

use crate::reading::Lake;
use crate::reading::value::{Value, row};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Delete {
    /// The first row, by position.
    Position,
    /// The row of id 3.
    Key,
    /// Rows of NULL id.
    NullKey,
}
const ALL: [Delete; 3] = [Delete::Position, Delete::Key, Delete::NullKey];

const ROWS: [Option<i64>; 5] = [Some(1), None, Some(2), Some(3), Some(3)];

fn values(ids: &[Option<i64>]) -> Vec<Vec<Value>> {
    ids.iter().map(|id| vec![id.map_or(Value::Null, Value::Int), Value::text("x")]).collect()
}

/// The rows of a file of sequence `sequence` after deletes at their sequences.
fn model(sequence: i64, deletes: &[(Delete, i64)]) -> Vec<Option<i64>> {
    let dead = |place: usize, id: Option<i64>| {
        deletes.iter().any(|(delete, at)| match delete {
            Delete::Position => *at >= sequence && place == 0,
            Delete::Key => *at > sequence && id == Some(3),
            Delete::NullKey => *at > sequence && id.is_none(),
        })
    };
    ROWS.iter().enumerate().filter(|(place, id)| !dead(*place, **id)).map(|(_, id)| *id).collect()
}

#[tokio::test]
async fn h22_all_subsets_of_deletes_in_all_orders_of_commit() {
    let mut cases = 0;
    for subset in 0..8u8 {
        let chosen: Vec<Delete> = ALL.into_iter().enumerate().filter(|(i, _)| subset & (1 << i) != 0).map(|(_, d)| d).collect();
        for order in orders(chosen.len()) {
            // The file is committed before, between or after the deletes.
            for sequence in 1..=4 {
                let deletes: Vec<(Delete, i64)> = order.iter().enumerate().map(|(at, i)| (chosen[*i], at as i64 + 2)).collect();
                let mut lake = Lake::id_v();
                let path = lake.append(sequence, &values(&ROWS));
                for (delete, at) in &deletes {
                    match delete {
                        Delete::Position => drop(lake.delete_positions(*at, &[(&path, 0)])),
                        Delete::Key => drop(lake.delete_ids(*at, &[Some(3)])),
                        Delete::NullKey => drop(lake.delete_ids(*at, &[None])),
                    }
                }
                assert_eq!(lake.values().await, values(&model(sequence, &deletes)), "{sequence} {deletes:?}");
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 64);
}

#[tokio::test]
async fn h22_the_row_that_both_kinds_leave_stays() {
    let mut lake = Lake::id_v();
    let path = lake.append(1, &[row(1, "a"), row(2, "b"), row(3, "c")]);
    lake.delete_positions(2, &[(&path, 0)]);
    lake.delete_ids(2, &[Some(3)]);
    assert_eq!(lake.values().await, [row(2, "b")]);
}

fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(n - 1) {
        for at in 0..n {
            let mut order = shorter.clone();
            order.insert(at, n - 1);
            all.push(order);
        }
    }
    all
}
