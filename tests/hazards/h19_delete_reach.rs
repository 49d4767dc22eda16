//! An equality delete reaches rows of strictly lower data sequence number.

use afterwrite::lake::Error;
use afterwrite::model::refusal::Refusal;
use arrow_schema::DataType;
use serde_json::json;

use crate::reading::value::{Value, row};
use crate::reading::{Lake, field, read_plan};

#[tokio::test]
async fn h19_an_upsert_keeps_its_own_new_row() {
    // given a row, and one commit that deletes its key and writes it anew
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "old"), row(2, "other")]);
    lake.delete_ids(2, &[Some(1)]);
    lake.append(2, &[row(1, "new")]);
    // then only the old row is gone
    assert_eq!(lake.values().await, [row(2, "other"), row(1, "new")]);
}

#[tokio::test]
async fn h19_an_upsert_keeps_its_own_new_row_when_later_deletes_reach_its_file() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "old")]);
    lake.delete_ids(2, &[Some(1)]);
    lake.append(2, &[row(1, "new"), row(9, "gone")]);
    lake.delete_ids(3, &[Some(9)]);
    assert_eq!(lake.values().await, [row(1, "new")]);
}

#[tokio::test]
async fn h19_each_file_is_held_against_its_own_sequence() {
    let mut lake = Lake::id_v();
    for sequence in [1, 3, 5] {
        lake.append(sequence, &[row(1, &format!("written at {sequence}")), row(sequence, "kept")]);
    }
    lake.delete_ids(2, &[Some(1)]);
    lake.delete_ids(4, &[Some(1), Some(9)]);
    assert_eq!(lake.values().await, [row(3, "kept"), row(1, "written at 5"), row(5, "kept")]);
}

#[tokio::test]
async fn h19_a_plan_that_breaks_the_sequence_rule_is_refused() {
    // given a plan that applies an equality delete to a file of its own sequence
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "old")]);
    lake.delete_ids(2, &[Some(1)]);
    lake.append(2, &[row(1, "new")]);
    let table = lake.table().await;
    let mut plan = lake.plan();
    let key = plan.deletes[0].key.clone();
    plan.inputs[1].deletes = vec![key];
    // then nothing is read
    let result = read_plan(&table, &plan).await;
    let Err(Error::Refused(refused)) = result else { panic!("{result:?}") };
    assert_eq!(refused.refusal, Refusal::Damaged);
}

#[tokio::test]
async fn h19_a_key_column_that_was_dropped_still_deletes() {
    // given deletes by a column that the current schema does not have any more
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), row(2, "b")]);
    lake.delete_keys(2, vec![field("v", DataType::Utf8, true, 2)], &[vec![Value::text("a")]]);
    lake.evolve(json!([{"id": 1, "name": "id", "required": false, "type": "long"}]));
    assert_eq!(lake.values().await, [[Value::Int(2)]]);
}

#[tokio::test]
async fn h19_a_key_column_that_an_old_file_lacks_is_null_there() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "id", "required": false, "type": "long"}]));
    lake.append(1, &[vec![Value::Int(1)], vec![Value::Int(2)]]);
    lake.evolve(json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "v", "required": false, "type": "string"},
    ]));
    let v = || vec![field("v", DataType::Utf8, true, 2)];
    lake.delete_keys(2, v(), &[vec![Value::text("a")]]);
    let all = [vec![Value::Int(1), Value::Null], vec![Value::Int(2), Value::Null]];
    assert_eq!(lake.values().await, all);
    // A NULL key reaches them.
    lake.delete_keys(3, v(), &[vec![Value::Null]]);
    assert_eq!(lake.values().await, Vec::<Vec<Value>>::new());
}

#[tokio::test]
async fn h19_keys_are_compared_as_the_reference_reader_does() {
    // given doubles, with NaNs of two kinds and zeros of both signs
    let mut lake = Lake::new(json!([{"id": 1, "name": "d", "required": false, "type": "double"}]));
    let odd_nan = Value::Float(0xfff8_0000_0000_0001);
    let kept = [vec![Value::float(0.0)], vec![Value::Null], vec![Value::float(1.5)]];
    let gone = [vec![Value::float(-0.0)], vec![odd_nan], vec![Value::float(f64::NAN)]];
    lake.append(1, &[kept.as_slice(), gone.as_slice()].concat());
    let d = field("d", DataType::Float64, true, 1);
    // when one NaN and the negative zero are deleted
    lake.delete_keys(2, vec![d], &[vec![Value::float(f64::NAN)], vec![Value::float(-0.0)]]);
    // then all NaNs are gone, the positive zero and the NULL are not
    assert_eq!(lake.values().await, kept);
}

#[tokio::test]
async fn h19_keys_of_a_narrower_type_are_promoted_first() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), row(1 << 40, "b")]);
    lake.delete_keys(2, vec![field("id", DataType::Int32, true, 1)], &[vec![Value::Int(1)]]);
    assert_eq!(lake.values().await, [row(1 << 40, "b")]);
}
