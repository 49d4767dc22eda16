//! Laws: random tables under random deletes read as a naive model says.

use proptest::prelude::*;
use serde_json::json;

use super::proving::{failure, prove, re_encode, summary};
use super::value::Value;
use super::{Lake, field};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;

fn fields() -> serde_json::Value {
    json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "v", "required": false, "type": "string"},
        {"id": 3, "name": "d", "required": true, "type": "double"},
        {"id": 4, "name": "p", "required": false, "type": {"type": "struct", "fields": [
            {"id": 5, "name": "n", "required": false, "type": "int"},
            {"id": 6, "name": "l", "required": false, "type":
                {"type": "list", "element-id": 7, "element-required": false, "element": "string"}},
        ]}},
        {"id": 8, "name": "s", "required": false, "type":
            {"type": "list", "element-id": 9, "element-required": false, "element": {"type": "struct", "fields": [
                {"id": 10, "name": "b", "required": false, "type": "binary"},
            ]}}},
        {"id": 11, "name": "m", "required": false, "type":
            {"type": "map", "key-id": 12, "key": "string", "value-id": 13, "value-required": false, "value": "decimal(10,2)"}},
    ])
}

fn or_null(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 4 => value]
}

fn text() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![Just("a"), Just(""), Just("ü"), Just("long enough to matter")].prop_map(Value::text)
}

fn list(item: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(item, 0..3).prop_map(Value::List)
}

fn a_row() -> impl Strategy<Value = Vec<Value>> {
    let double = prop_oneof![Just(0.0), Just(-0.0), Just(1.5), Just(f64::NAN)].prop_map(Value::float);
    let point = (or_null((0..4i64).prop_map(Value::Int)), or_null(list(or_null(text())))).prop_map(|(n, l)| Value::Struct(vec![n, l]));
    let bytes = or_null(prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::Bytes));
    let structs = list(or_null(bytes.prop_map(|b| Value::Struct(vec![b]))));
    let decimal = or_null((0..1000i128).prop_map(Value::Decimal));
    let map = prop::collection::vec((text(), decimal), 0..3).prop_map(|mut m| {
        m.dedup_by(|a, b| a.0 == b.0);
        Value::Map(m)
    });
    (or_null((0..6i64).prop_map(Value::Int)), or_null(text()), double, or_null(point), or_null(structs), or_null(map))
        .prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f])
}

#[derive(Clone, Debug)]
enum Change {
    Append(Vec<Vec<Value>>),
    /// Rows by (file, position), taken modulo what there is.
    Positions(Vec<(usize, usize)>),
    Ids(Vec<Value>),
    /// Keys of the double and of the nested int.
    Pairs(Vec<(Value, Value)>),
}

fn change() -> impl Strategy<Value = Change> {
    let id = || or_null((0..6i64).prop_map(Value::Int));
    let double = prop_oneof![Just(0.0), Just(1.5), Just(f64::NAN)].prop_map(Value::float);
    prop_oneof![
        3 => prop::collection::vec(a_row(), 1..20).prop_map(Change::Append),
        1 => prop::collection::vec((0..9usize, 0..30usize), 1..8).prop_map(Change::Positions),
        1 => prop::collection::vec(id(), 1..3).prop_map(Change::Ids),
        1 => prop::collection::vec((double, or_null((0..4i64).prop_map(Value::Int))), 1..4).prop_map(Change::Pairs),
    ]
}

fn nested_int(row: &[Value]) -> Value {
    match &row[3] {
        Value::Struct(fields) => fields[0].clone(),
        _ => Value::Null,
    }
}

/// Plays changes on a table and on the model; returns both.
fn play(changes: &[Change]) -> (Lake, Vec<Vec<Value>>) {
    let mut lake = Lake::new(fields());
    let mut files: Vec<(String, Vec<Option<Vec<Value>>>)> = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let sequence = at as i64 + 1;
        match change {
            Change::Append(rows) => {
                let path = lake.append(sequence, rows);
                files.push((path, rows.iter().cloned().map(Some).collect()));
            }
            Change::Positions(positions) if !files.is_empty() => {
                let mut named = Vec::new();
                for (file, position) in positions {
                    let count = files.len();
                    let (path, rows) = &mut files[file % count];
                    named.push((path.clone(), *position as i64));
                    if let Some(row) = rows.get_mut(*position) {
                        *row = None;
                    }
                }
                let named: Vec<(&str, i64)> = named.iter().map(|(p, n)| (p.as_str(), *n)).collect();
                lake.delete_positions(sequence, &named);
            }
            Change::Positions(_) => {}
            Change::Ids(ids) => {
                let keys: Vec<Vec<Value>> = ids.iter().map(|id| vec![id.clone()]).collect();
                lake.delete_keys(sequence, vec![field("id", DataType::Int64, true, 1)], &keys);
                strike(&mut files, |row| ids.contains(&row[0]));
            }
            Change::Pairs(pairs) => {
                // The nested key is written inside its struct, as the reference writer does.
                let inner = DataType::Struct(vec![field("n", DataType::Int32, true, 5)].into());
                let keys: Vec<Vec<Value>> = pairs.iter().map(|(d, n)| vec![d.clone(), Value::Struct(vec![n.clone()])]).collect();
                lake.delete_nested(sequence, vec![field("d", DataType::Float64, false, 3), field("p", inner, true, 4)], &[3, 5], &keys);
                strike(&mut files, |row| pairs.contains(&(row[2].clone(), nested_int(row))));
            }
        }
    }
    (lake, files.into_iter().flat_map(|(_, rows)| rows.into_iter().flatten()).collect())
}

fn strike(files: &mut [(String, Vec<Option<Vec<Value>>>)], dead: impl Fn(&[Value]) -> bool) {
    for row in files.iter_mut().flat_map(|(_, rows)| rows) {
        if row.as_deref().is_some_and(&dead) {
            *row = None;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn rows_read_are_those_of_the_naive_model(changes in prop::collection::vec(change(), 1..8)) {
        let (lake, wanted) = play(&changes);
        if lake.data.is_empty() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert_eq!(runtime.block_on(lake.values()), wanted);
    }

    #[test]
    fn an_honest_rewrite_of_a_random_table_is_proven_and_a_lost_row_is_not(changes in prop::collection::vec(change(), 1..8), at in any::<prop::sample::Index>()) {
        let (mut lake, wanted) = play(&changes);
        if wanted.is_empty() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (batches, read) = lake.read().await.unwrap();
            let rewrite = re_encode(&mut lake, &batches, read.clone());
            let proof = prove(&lake, rewrite).await.unwrap();
            assert_eq!(proof.rows, wanted.len() as u64);
            // One row less, hidden from the summary.
            let rows = concat_batches(&batches[0].schema(), &batches).unwrap();
            let lost = at.index(rows.num_rows());
            let wrong = [rows.slice(0, lost), rows.slice(lost + 1, rows.num_rows() - lost - 1)];
            let rewrite = re_encode(&mut lake, &wrong, summary(&wrong, read.rows_in, read.rows_deleted));
            failure(&lake, rewrite).await;
        });
    }
}
