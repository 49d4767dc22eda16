//! Equal tuples of two specs are two partitions.

use iceberg::spec::Transform;

use crate::fixture::{Table, oracle};

#[tokio::test]
async fn h36_each_spec_is_its_own_group_and_outputs_keep_their_spec() {
    let t = Table::plain().columns(&[("a", int()), ("b", int())]).partition("a", "a", Transform::Identity).create().await;
    let cells = |a, b| vec![crate::fixture::Cell::Int(a), crate::fixture::Cell::Int(b)];
    let s0 = t.append([cells(1, 10), cells(1, 11)]).await;
    let other = t.append([cells(1, 12)]).await;
    let spec = t.evolve_spec(&[("b", "b", Transform::Identity)]).await;
    let s1 = t.append([cells(20, 1), cells(21, 1)]).await;
    assert_eq!(s0.partition.tuple, s1.partition.tuple);
    t.change().delete_positions(&[(&s0, 0)]).commit().await;
    t.change().delete_positions(&[(&s1, 1)]).commit().await;
    let rows = t.rows().await;
    assert_eq!(rows, ["1|11", "1|12", "20|1"]);

    let scope = t.scope(&s0.partition).await;
    assert_eq!(scope.files.iter().map(|f| f.path.as_ref()).collect::<Vec<_>>(), [s0.path.as_str(), other.path.as_str()]);
    assert_eq!(scope.deletes.len(), 1);
    t.compact(&s0, "a1").await;
    t.compact(&s1, "a2").await;

    assert_eq!(t.rows().await, rows);
    let mut live: Vec<(i32, u64)> = oracle::live(&t.load().await).await.iter().map(|l| (l.spec_id, l.file.record_count())).collect();
    live.sort_unstable();
    assert_eq!(live, [(0, 2), (spec, 1)]);
}

fn int() -> iceberg::spec::PrimitiveType {
    iceberg::spec::PrimitiveType::Int
}
