//! A partition field whose source column was dropped.

use crate::fixture::{Table, oracle, row};

#[tokio::test]
async fn h47_files_of_a_spec_whose_source_column_is_dropped_are_compacted_under_it() {
    let t = Table::partitioned_by_p().past().create().await;
    let f1 = t.append([row(1, "a", 7)]).await;
    t.append([row(2, "b", 7)]).await;
    t.append([row(3, "c", 8)]).await;
    t.evolve_spec(&[]).await;
    t.evolve_schema(|fields| fields.retain(|f| f.name != "p")).await;
    let f4 = t.append([row(4, "d", 0)]).await;

    t.compact(&f1, "a1").await;
    t.compact(&f4, "a2").await;

    assert_eq!(t.rows().await, ["1|a", "2|b", "3|c", "4|d"]);
    let mut live: Vec<(i32, u64)> = oracle::live(&t.load().await).await.iter().map(|l| (l.spec_id, l.file.record_count())).collect();
    live.sort_unstable();
    assert_eq!(live, [(0, 1), (0, 2), (1, 1)]);
}

#[tokio::test]
async fn h47_a_promoted_source_column_leaves_one_partition() {
    use iceberg::spec::{PrimitiveType, Type};
    let t = Table::partitioned_by_p().create().await;
    let f1 = t.append([row(1, "a", 7)]).await;
    t.evolve_schema(|fields| *fields[2].field_type = Type::Primitive(PrimitiveType::Long)).await;
    let f2 = t.append([row(2, "b", 7)]).await;
    assert_ne!(f1.partition.tuple, f2.partition.tuple);
    let scope = t.scope(&f2.partition).await;
    assert_eq!(scope.files.len(), 2);
}
