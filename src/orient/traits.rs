//! Traits of a partition or a table from its state: pure, and exactly by their
//! definitions.

use super::history::Heard;
use super::state::TableState;
use crate::model::layout::{PartitionLayout, SizeScale, Tally, Tier};
use crate::model::partition::PartitionKey;
use crate::model::policy::CostModel;
use crate::model::traits::Traits;

/// Traits of one partition now; `None` when it holds no live file.
pub fn traits(state: &TableState, key: &PartitionKey, cost: &CostModel, now_ms: i64) -> Option<Traits> {
    let layout = state.layout.partition(key)?;
    let global = beside(state, key, &layout, state.layout.global_deletes());
    let mut traits = of_layout(&layout, global, &state.layout.scale());
    traits.compute_cost = cost.gb_hours(traits.small_bytes);
    let heard = state.heard_of(key);
    traits.writers.cadence = heard.cadence;
    Some(with_table(traits, state, &heard, now_ms))
}

/// Traits of the whole table now: sums over its partitions, means weighted by
/// files (entropy) and rows (delete ratio). Global deletes count once among the
/// delete files and in every partition's ratio. The cost is that of the
/// partitions that have small files, one start each.
pub fn table_traits(state: &TableState, cost: &CostModel, now_ms: i64) -> Traits {
    let scale = state.layout.scale();
    let global = state.layout.global_deletes();
    let mut sum = Traits::default();
    let (mut short, mut deleted) = (0_u128, 0.0);
    for (key, layout) in state.layout.partitions().iter() {
        let traits = of_layout(&layout, beside(state, &key, &layout, global), &scale);
        deleted += traits.delete_ratio * traits.records as f64;
        short = short.saturating_add(shortfall(&layout, &scale));
        add(&mut sum, &traits);
        sum.delete_file_count = sum.delete_file_count.saturating_add(layout.delete_files());
        sum.equality_delete_records = sum.equality_delete_records.saturating_add(layout.equality_deletes.records);
        sum.equality_delete_files = sum.equality_delete_files.saturating_add(layout.equality_deletes.files);
        if traits.small_file_count > 0 {
            sum.compute_cost += cost.gb_hours(traits.small_bytes);
        }
    }
    set_entropy(&mut sum, short, &scale);
    sum.delete_ratio = if sum.records == 0 { 0.0 } else { (deleted / sum.records as f64).min(1.0) };
    with_table(sum, state, &state.heard, now_ms)
}

/// The global deletes that are not the partition's own.
fn beside(state: &TableState, key: &PartitionKey, layout: &PartitionLayout, global: Tally) -> Tally {
    if !state.layout.unpartitioned().contains(&key.spec_id) {
        return global;
    }
    let own = layout.equality_deletes;
    Tally {
        files: global.files.saturating_sub(own.files),
        bytes: global.bytes.saturating_sub(own.bytes),
        records: global.records.saturating_sub(own.records),
    }
}

/// What a partition's files and the global deletes that reach it amount to.
pub fn of_layout(layout: &PartitionLayout, global: Tally, scale: &SizeScale) -> Traits {
    let positions = layout.position_deletes.records.saturating_add(layout.deletion_vectors.records);
    let keys = layout.equality_deletes.records.saturating_add(global.records);
    let mut traits = Traits {
        data_files: layout.data.files,
        data_bytes: layout.data.bytes,
        records: layout.data.records,
        small_file_count: layout.small_files(),
        small_bytes: layout.small_bytes(),
        small_tiers: layout.small,
        delete_ratio: delete_ratio(positions.saturating_add(keys), layout.data.records),
        delete_file_count: layout.delete_files().saturating_add(global.files),
        position_delete_records: positions,
        equality_delete_records: keys,
        equality_delete_files: layout.equality_deletes.files.saturating_add(global.files),
        ..Traits::default()
    };
    traits.file_count_reduction = traits.small_file_count.saturating_sub(scale.outputs(traits.small_bytes));
    set_entropy(&mut traits, shortfall(layout, scale), scale);
    traits
}

/// Records deleted over records, at most 1; where there is no record there is
/// nothing to delete.
fn delete_ratio(deleted: u64, records: u64) -> f64 {
    if records == 0 { 0.0 } else { (deleted as f64 / records as f64).min(1.0) }
}

/// `Σ (T − min(s, T))²` over data files, in bytes²: `k·T² + Σs² − 2·T·Σs` over
/// those with `s < T`. Exact but for targets past any store's object size.
fn shortfall(layout: &PartitionLayout, scale: &SizeScale) -> u128 {
    let target = u128::from(scale.target);
    let plus = (target * target).saturating_mul(layout.under_target.into()).saturating_add(layout.under_target_squares);
    plus.saturating_sub((2 * target).saturating_mul(layout.under_target_bytes.into()))
}

fn set_entropy(traits: &mut Traits, short: u128, scale: &SizeScale) {
    if traits.data_files == 0 {
        return;
    }
    let target = scale.target.max(1) as f64;
    traits.file_entropy = short as f64 / traits.data_files as f64;
    traits.file_entropy_normalized = traits.file_entropy / (target * target);
}

/// Adds what is a plain sum over partitions.
fn add(sum: &mut Traits, part: &Traits) {
    let plain = [
        (&mut sum.data_files, part.data_files),
        (&mut sum.data_bytes, part.data_bytes),
        (&mut sum.records, part.records),
        (&mut sum.small_file_count, part.small_file_count),
        (&mut sum.small_bytes, part.small_bytes),
        (&mut sum.file_count_reduction, part.file_count_reduction),
        (&mut sum.position_delete_records, part.position_delete_records),
    ];
    for (total, value) in plain {
        *total = total.saturating_add(value);
    }
    for (total, tier) in sum.small_tiers.iter_mut().zip(&part.small_tiers) {
        *total = Tier { files: total.files.saturating_add(tier.files), bytes: total.bytes.saturating_add(tier.bytes) };
    }
}

/// Adds the head's manifests and what was heard.
fn with_table(mut traits: Traits, state: &TableState, heard: &Heard, now_ms: i64) -> Traits {
    traits.manifest_count = state.layout.manifest_count();
    traits.metadata_bytes = state.layout.metadata_bytes();
    traits.write_amplification = heard.write_amplification();
    traits.commit_rate = heard.commit_rate(now_ms);
    traits.quiet_for_ms = heard.quiet_for_ms(now_ms);
    traits.known_since_ms = Some(heard.known_since_ms);
    traits
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use imbl::OrdMap;
    use uuid::Uuid;

    use super::super::history::Author;
    use super::super::state::{FileSize, TableLayout};
    use super::*;
    use crate::model::file::Content;
    use crate::model::ident::{TableIdent, TableName};
    use crate::model::partition::Value;
    use crate::model::table::{SpecInfo, TableView};

    const MIB: u64 = 1 << 20;
    const COST: CostModel = CostModel { executor_memory_gb: 2.0, rewrite_bytes_per_hour: 1024.0, startup_gbhr: 0.5 };

    /// Spec 0 is unpartitioned, spec 1 has one field.
    fn state(target: u64, small_permille: u32) -> TableState {
        let ident = TableIdent::iceberg(Uuid::from_u128(1));
        let mut layout = TableLayout::empty(ident, "main", SizeScale { target, small_permille });
        let spec = |id, unpartitioned| (id, SpecInfo { id, unpartitioned, ..SpecInfo::default() }.into());
        layout.set_specs(&TableView {
            ident,
            name: TableName::new("lake", "db", "t"),
            metadata_location: String::new(),
            location: String::new(),
            format_version: 2,
            reference: "main".into(),
            head: None,
            snapshots: BTreeMap::new(),
            last_sequence_number: 0,
            specs: BTreeMap::from([spec(0, true), spec(1, false)]),
            properties: BTreeMap::new(),
            created_ms: 0,
            refused: Vec::new(),
        });
        TableState { layout, heard: Heard::nothing(0), counted: OrdMap::new(), last_sequence_number: 0 }
    }

    fn part(n: i32) -> PartitionKey {
        PartitionKey { spec_id: 1, tuple: [Some(Value::Int(n))].into() }
    }

    fn add(state: &mut TableState, key: &PartitionKey, count: u64, content: Content, bytes: u64, records: u64) {
        for _ in 0..count {
            state.layout.add(key, FileSize { content, bytes, records }).unwrap();
        }
    }

    fn data(files: &[(u64, u64)], target: u64, small_permille: u32) -> Traits {
        let mut state = state(target, small_permille);
        for (count, mib) in files {
            add(&mut state, &part(1), *count, Content::Data, mib * MIB, 1);
        }
        traits(&state, &part(1), &COST, 0).unwrap()
    }

    const A: [(u64, u64); 1] = [(100, 10)];
    const B: [(u64, u64); 3] = [(20, 100), (3, 502), (1, 800)];
    const C: [(u64, u64); 1] = [(5000, 1)];

    #[test]
    fn entropy_has_the_published_values() {
        let square = (MIB * MIB) as f64;
        let entropy = [&A[..], &B, &C].map(|files| data(files, 512 * MIB, 750).file_entropy / square);
        assert_eq!((entropy[0], (entropy[1] * 10.0).round(), entropy[2]), (252_004.0, 1_414_658.0, 261_121.0));
        assert_eq!(data(&C, 512 * MIB, 750).file_entropy_normalized, 261_121.0 / 262_144.0);
    }

    #[test]
    fn costs_have_openhouses_values() {
        let cost = CostModel { executor_memory_gb: 2.0, rewrite_bytes_per_hour: (2 * MIB * 3600) as f64, startup_gbhr: 0.5 };
        let of = |files: &[(u64, u64)]| cost.gb_hours(data(files, 526_385_152, 750).small_bytes);
        let rounded = [of(&A), of(&B), of(&C)].map(|gbhr| (gbhr * 1e6).round());
        assert_eq!(rounded, [777_778.0, 1_055_556.0, 1_888_889.0]);
    }

    #[test]
    fn small_files_are_counted_below_the_ratio_and_reduced_to_outputs() {
        let b = data(&B, 512 * MIB, 750);
        assert_eq!((b.data_files, b.small_file_count, b.small_bytes), (24, 20, 2000 * MIB));
        // 2000 MiB are three whole targets and 464 MiB, a file of its own
        assert_eq!(b.file_count_reduction, 16);
        let all_below_target = data(&B, 512 * MIB, 1000);
        assert_eq!(all_below_target.small_file_count, 23);
        assert_eq!(data(&[(1, 10)], 512 * MIB, 750).file_count_reduction, 0);
        assert_eq!(data(&[(4, 600)], 512 * MIB, 750).file_count_reduction, 0);
    }

    #[test]
    fn small_files_are_told_by_tier() {
        let tiers = data(&[(3, 200), (2, 100), (1, 1)], 512 * MIB, 750).small_tiers;
        let files = tiers.map(|tier| tier.files);
        assert_eq!(files, [3, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn deletes_of_the_scope_and_global_ones_weigh_together() {
        let mut state = state(1000, 750);
        add(&mut state, &part(1), 2, Content::Data, 10, 50);
        add(&mut state, &part(1), 1, Content::PositionDeletes, 5, 7);
        add(&mut state, &part(1), 1, Content::DeletionVector, 5, 3);
        add(&mut state, &part(1), 2, Content::EqualityDeletes, 5, 4);
        add(&mut state, &part(2), 1, Content::Data, 10, 8);
        add(&mut state, &PartitionKey::unpartitioned(0), 1, Content::EqualityDeletes, 5, 12);
        let one = traits(&state, &part(1), &COST, 0).unwrap();
        assert_eq!((one.delete_file_count, one.position_delete_records, one.equality_delete_records), (5, 10, 20));
        assert_eq!(one.delete_ratio, 0.3);
        let two = traits(&state, &part(2), &COST, 0).unwrap();
        assert_eq!((two.delete_file_count, two.equality_delete_records, two.delete_ratio), (1, 12, 1.0));
        let global = traits(&state, &PartitionKey::unpartitioned(0), &COST, 0).unwrap();
        assert_eq!((global.delete_file_count, global.equality_delete_records, global.delete_ratio), (1, 12, 0.0));
        let table = table_traits(&state, &COST, 0);
        assert_eq!((table.delete_file_count, table.position_delete_records, table.equality_delete_records), (5, 10, 20));
        assert_eq!(table.delete_ratio, (0.3 * 100.0 + 8.0) / 108.0);
    }

    #[test]
    fn a_table_is_the_sum_of_its_partitions_not_their_union() {
        let mut state = state(1000, 750);
        for n in 0..10 {
            add(&mut state, &part(n), 2, Content::Data, 100, 1);
        }
        add(&mut state, &part(11), 1, Content::Data, 1000, 1);
        let table = table_traits(&state, &COST, 0);
        assert_eq!((table.data_files, table.small_file_count, table.file_count_reduction), (21, 20, 10));
        assert_eq!(table.file_entropy, 20.0 * 810_000.0 / 21.0);
        assert_eq!(table.compute_cost, 10.0 * COST.gb_hours(200));
        assert_eq!(table.small_tiers.map(|t| t.files).iter().sum::<u32>(), 20);
    }

    #[test]
    fn an_unknown_partition_has_no_traits_and_an_untouched_one_no_quiet_time() {
        let mut state = state(1000, 750);
        assert_eq!(traits(&state, &part(1), &COST, 9), None);
        add(&mut state, &part(1), 1, Content::Data, 10, 5);
        let silent = traits(&state, &part(1), &COST, 9).unwrap();
        assert_eq!((silent.quiet_for_ms, silent.known_since_ms, silent.commit_rate), (None, Some(0), 0.0));
        let mut history = state.history([part(1)]);
        history.commit(Author::User, &BTreeMap::from([(part(1), 10)]), 20);
        history.commit(Author::Own, &BTreeMap::from([(part(1), 5)]), 30);
        state.layout.hear(&history);
        state.heard = *history.table();
        let heard = traits(&state, &part(1), &COST, 50).unwrap();
        assert_eq!((heard.quiet_for_ms, heard.write_amplification), (Some(30), 0.5));
        assert_eq!(table_traits(&state, &COST, 50).quiet_for_ms, Some(30));
    }
}
