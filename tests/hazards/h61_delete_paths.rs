//! The paths in the bounds of delete files are never cut, whatever the table's
//! metrics modes are: cut ones name no file, or another.

use iceberg::spec::{DataContentType, Datum, ManifestStatus};

use crate::fixture::files::FILE_PATH;
use crate::fixture::{Bounds, File, Table, oracle, row};

async fn entry(t: &Table, file: &File) -> oracle::Live {
    oracle::live(&t.load().await).await.into_iter().find(|l| l.file.file_path() == file.path).unwrap()
}

#[tokio::test]
async fn h61_paths_in_a_manifest_of_deletes_that_we_rewrite_stay_whole() {
    for mode in ["truncate(16)", "counts", "none"] {
        let t = Table::partitioned_by_p().property("write.metadata.metrics.default", mode).past().create().await;
        let p = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
        let q = t.append([row(3, "c", 2), row(4, "d", 2)]).await;
        let q2 = t.append([row(5, "e", 2)]).await;
        // one manifest of three delete files: one goes with its data file, two survive
        let made =
            t.change().delete_positions(&[(&p, 0)]).delete_positions(&[(&q, 1)]).delete_positions(&[(&q, 0), (&q2, 0)]).commit().await;
        let [_, single, wide] = made.deletes.as_slice() else { panic!() };
        let before = [entry(&t, single).await.file, entry(&t, wide).await.file];
        t.compact(&p, "a1").await;

        for ((delete, low, high), before) in [(single, &q, &q), (wide, &q, &q2)].into_iter().zip(before) {
            let live = entry(&t, delete).await;
            assert_eq!(live.entry.status(), ManifestStatus::Existing, "its manifest was rewritten");
            let bound = |path: &str| Some(Datum::string(path));
            assert_eq!(live.file.lower_bounds().get(&FILE_PATH).cloned(), bound(&low.path), "{mode}");
            assert_eq!(live.file.upper_bounds().get(&FILE_PATH).cloned(), bound(&high.path), "{mode}");
            assert_eq!(live.file, before);
        }
        assert_eq!(t.rows().await, ["2|b|1"]);
        t.compact(&q, "a2").await;
        assert_eq!(t.rows().await, ["2|b|1"]);
        assert!(oracle::live(&t.load().await).await.iter().all(|l| l.file.content_type() == DataContentType::Data));
    }
}

#[tokio::test]
async fn h61_a_referenced_data_file_survives_beside_bounds_and_without() {
    let t = Table::partitioned_by_p().property("write.metadata.metrics.default", "truncate(16)").create().await;
    let p = t.append([row(1, "a", 1), row(2, "b", 1)]).await;
    let q = t.append([row(3, "c", 2), row(4, "d", 2)]).await;
    let made = t
        .change()
        .delete_positions(&[(&p, 0)])
        .delete_positions_with(&[(&q, 1)], Bounds::Referenced)
        .delete_positions_with(&[(&q, 1)], Bounds::Absent)
        .commit()
        .await;
    t.compact(&p, "a1").await;
    for (delete, referenced) in [(&made.deletes[1], Some(q.path.clone())), (&made.deletes[2], None)] {
        let live = entry(&t, delete).await;
        assert_eq!(live.entry.status(), ManifestStatus::Existing);
        assert_eq!((live.file.referenced_data_file(), live.file.lower_bounds().len()), (referenced, 0));
    }
    assert_eq!(t.rows().await, ["2|b|1", "3|c|2"]);
}
