//! The law of size tiers on a real table: files, footers and bytes as they are.

use std::collections::{BTreeMap, BTreeSet};

use iceberg::spec::{DataContentType, ManifestList};

use super::world::World;
use crate::fixture::oracle::{read, texts};
use crate::fixture::{Table, row};

/// Small commits, and a target of about 64 of them.
const SETTINGS: &str = "[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"512KiB\"\n";
const COMMITS: i64 = 64;
const ROWS: i64 = 8;

/// A kilobyte that does not compress, the same for the same number.
fn noise(seed: i64) -> String {
    let mut state = seed.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 64) as u8)
    };
    (0..1024).map(|_| letter()).collect()
}

/// How many data files each row was in, over the whole history of the table.
async fn files_of_rows(table: &Table) -> BTreeMap<i64, usize> {
    let now = table.load().await;
    let metadata = &now.loaded.metadata;
    let mut paths = BTreeSet::new();
    for snapshot in metadata.snapshots() {
        let bytes = now.loaded.io.new_input(snapshot.manifest_list()).unwrap().read().await.unwrap();
        for manifest in ManifestList::parse_with_version(&bytes, metadata.format_version()).unwrap().entries() {
            let entries = manifest.load_manifest(&now.loaded.io).await.unwrap();
            let data = entries.entries().iter().filter(|e| e.is_alive() && e.data_file().content_type() == DataContentType::Data);
            paths.extend(data.map(|e| e.file_path().to_owned()));
        }
    }
    let mut counted = BTreeMap::new();
    for path in paths {
        for row in texts(&read(&now, &path).await, &[1]) {
            *counted.entry(row[0].parse().unwrap()).or_default() += 1;
        }
    }
    counted
}

#[tokio::test]
async fn h113_small_commits_up_to_the_target_keep_the_law_of_size_tiers_on_a_real_table() {
    let world = World::new(SETTINGS);
    let table = world.table(Table::plain(), "t").await;
    let process = world.start().await;
    let mut most_files = 0;
    for commit in 0..COMMITS {
        table.append((commit * ROWS..(commit + 1) * ROWS).map(|id| row(id, &noise(id), 0))).await;
        process.look_at(&table).await;
        most_files = most_files.max(super::world::data_files(&table).await);
    }
    let files = files_of_rows(&table).await;
    assert_eq!(files.keys().copied().collect::<Vec<_>>(), (0..COMMITS * ROWS).collect::<Vec<_>>());
    // 1 + log₄ (512 KiB / 6.5 KiB) = 4 rewrites after the file that a row was written to; fewer files than fill a tier
    let most = files.values().max().copied();
    assert_eq!((most, most_files), (Some(1 + 4), 7));
    process.stop().await;
}
