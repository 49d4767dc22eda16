//! The rows of a replace are the same: so are their table statistics.

use iceberg::TableUpdate;
use iceberg::spec::{PartitionStatisticsFile, StatisticsFile};

use crate::fixture::{Table, row};

#[tokio::test]
async fn h67_table_statistics_go_along_and_partition_statistics_do_not() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let snapshot_id = t.head().await;
    let statistics = StatisticsFile {
        snapshot_id,
        statistics_path: "memory:/warehouse/ns/t/metadata/s.puffin".into(),
        file_size_in_bytes: 10,
        file_footer_size_in_bytes: 5,
        key_metadata: None,
        blob_metadata: vec![],
    };
    let partition_statistics = PartitionStatisticsFile { snapshot_id, statistics_path: "memory:/p".into(), file_size_in_bytes: 1 };
    t.update(vec![
        TableUpdate::SetStatistics { statistics: statistics.clone() },
        TableUpdate::SetPartitionStatistics { partition_statistics },
    ])
    .await;

    let ours = t.compact(&f1, "a1").await;

    let metadata = t.load().await.loaded.metadata;
    assert_eq!(metadata.statistics_for_snapshot(ours), Some(&StatisticsFile { snapshot_id: ours, ..statistics }));
    assert_eq!(metadata.partition_statistics_for_snapshot(ours), None);
}
