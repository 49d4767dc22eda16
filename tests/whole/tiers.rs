//! The law of size tiers on real tables: files, footers and bytes as they are.

use std::collections::{BTreeMap, BTreeSet};

use afterwrite::model::ident::MAIN;
use afterwrite::serve::backend::Backend;
use iceberg::spec::{DataContentType, ManifestList};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::world::World;
use crate::fixture::oracle::texts;
use crate::fixture::{Spec, Table, row};

/// Text that does not compress, the same for the same number.
fn noise(seed: i64, bytes: usize) -> String {
    let mut state = seed.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(bytes + 10);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.extend((0..10).map(|i| char::from(b'0' + (state >> (6 * i) & 63) as u8)));
    }
    text.truncate(bytes);
    text
}

/// How many data files each row was in, over the whole history of the table.
async fn files_of_rows(table: &Table) -> BTreeMap<i64, usize> {
    let now = table.load().await;
    let (io, metadata) = (&now.loaded.io, &now.loaded.metadata);
    let mut lists = Vec::new();
    for snapshot in metadata.snapshots() {
        let bytes = io.new_input(snapshot.manifest_list()).unwrap().read().await.unwrap();
        let list = ManifestList::parse_with_version(&bytes, metadata.format_version()).unwrap();
        lists.extend(list.entries().iter().filter(|m| m.added_snapshot_id == snapshot.snapshot_id()).cloned());
    }
    let mut paths = BTreeSet::new();
    for manifest in lists {
        let entries = manifest.load_manifest(io).await.unwrap();
        let data = entries.entries().iter().filter(|e| e.is_alive() && e.data_file().content_type() == DataContentType::Data);
        paths.extend(data.map(|e| e.file_path().to_owned()));
    }
    let mut counted = BTreeMap::new();
    for path in paths {
        let file = ParquetRecordBatchReaderBuilder::try_new(io.new_input(&path).unwrap().read().await.unwrap()).unwrap();
        let id = ProjectionMask::leaves(file.parquet_schema(), [0]);
        let batches: Vec<_> = file.with_projection(id).build().unwrap().map(Result::unwrap).collect();
        for row in texts(&batches, &[1]) {
            *counted.entry(row[0].parse().unwrap()).or_default() += 1;
        }
    }
    counted
}

/// Commits of a file of so many KiB, each looked at, until they hold as much as a target
/// file: the most data files that any row was in, and the most files that there ever were
/// in one size tier and in the table. Every row is in each of the files that it should be.
async fn grown(spec: Spec, target: &str, commits: i64, kib: f64, rows: i64, bytes: usize) -> (usize, u32, usize) {
    let world = World::new(&format!("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"{target}\"\n"));
    let table = world.table(spec, "t").await;
    let process = world.start().await;
    let (mut most_in_a_tier, mut most_files) = (0, 0);
    for commit in 0..commits {
        let made = table.append((commit * rows..(commit + 1) * rows).map(|id| row(id, &noise(id, bytes), 0))).await;
        let size = made.data.file_size_in_bytes() as f64 / 1024.0;
        assert!((0.95..1.05).contains(&(size / kib)), "{size} KiB");
        process.look_at(&table).await;
        let traits = process.ooda.get_layout(&table.name, MAIN).await.unwrap().traits;
        most_in_a_tier = traits.small_tiers.iter().map(|tier| tier.files).max().unwrap_or(0).max(most_in_a_tier);
        most_files = super::world::data_files(&table).await.max(most_files);
    }
    let files = files_of_rows(&table).await;
    assert_eq!(files.keys().copied().collect::<Vec<_>>(), (0..commits * rows).collect::<Vec<_>>());
    process.nothing_is_stuck(&world).await;
    process.stop().await;
    (files.values().max().copied().unwrap(), most_in_a_tier, most_files)
}

/// A table whose rewrites are as large as what they replace.
fn uncompressed() -> Spec {
    Table::plain().property("write.parquet.compression-codec", "uncompressed")
}

#[tokio::test]
async fn h113_small_commits_up_to_the_target_keep_the_law_of_size_tiers_on_a_real_table() {
    // of 6.5 KiB as rewrites compress them: 1 + log₄ (512 / 6.5) = 4 rewrites after the file that a row was written to; fewer
    // files than fill a tier
    assert_eq!(grown(Table::plain(), "512KiB", 64, 9.2, 8, 1024).await, (1 + 4, 4, 7));
}

#[tokio::test]
async fn h113_commits_of_a_quarter_mib_up_to_the_target_keep_the_law_of_size_tiers() {
    // 1 + log₄ (32 MiB / 0.25 MiB) = 4.5
    let (most, in_a_tier, _) = grown(uncompressed(), "32MiB", 128, 256.0, 32, 8_144).await;
    assert!(most <= 1 + 4 && in_a_tier <= 8, "{most} {in_a_tier}");
}

#[tokio::test]
async fn h113_commits_of_one_mib_up_to_the_target_keep_the_law_of_size_tiers() {
    // 1 + log₄ (64 MiB / 1 MiB) = 4
    let (most, in_a_tier, _) = grown(uncompressed(), "64MiB", 64, 1024.0, 32, 32_720).await;
    assert!(most <= 1 + 4 && in_a_tier <= 8, "{most} {in_a_tier}");
}
