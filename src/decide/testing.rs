//! Cases for the tests of this room.

use super::{Case, ScopeMemory, TableFacts};
use crate::model::file::Content;
use crate::model::ident::{TableIdent, TableName};
use crate::model::layout::PartitionLayout;
use crate::model::partition::PartitionKey;
use crate::model::policy::Policy;
use crate::model::refusal::Refused;
use crate::model::traits::Traits;

/// The moment of every case.
pub const NOW: i64 = 1_700_000_000_000;
/// Bytes.
pub const MIB: u64 = 1 << 20;

/// The owner of what a case borrows.
#[derive(Clone)]
pub struct Given {
    pub policy: Policy,
    pub refusals: Vec<Refused>,
    pub paused: bool,
    pub in_flight: bool,
    pub scope: PartitionKey,
    pub table: TableFacts,
    pub traits: Traits,
    pub memory: ScopeMemory,
}

impl Given {
    /// A partition of `count` files of 1 MiB.
    pub fn small_files(count: u64) -> Self {
        Self::of(&[(count, MIB)])
    }

    /// A partition of files: how many, of how many bytes.
    pub fn of(files: &[(u64, u64)]) -> Self {
        let policy = Policy::default();
        let sizes: Vec<u64> = files.iter().flat_map(|(count, bytes)| (0..*count).map(|_| *bytes)).collect();
        let traits = traits(&policy, &sizes);
        Self {
            table: TableFacts {
                ident: TableIdent::iceberg(uuid::Uuid::from_u128(7)),
                name: TableName::new("lake", "sales", "orders"),
                created_ms: 0,
                bytes: traits.data_bytes,
                snapshot_id: 42,
            },
            policy,
            refusals: Vec::new(),
            paused: false,
            in_flight: false,
            scope: PartitionKey::unpartitioned(0),
            traits,
            memory: ScopeMemory::default(),
        }
    }

    pub fn case(&self) -> Case<'_> {
        Case {
            now_ms: NOW,
            table: &self.table,
            policy: &self.policy,
            refusals: &self.refusals,
            paused: self.paused,
            in_flight: self.in_flight,
            scope: &self.scope,
            traits: &self.traits,
            memory: &self.memory,
        }
    }
}

/// Traits of a partition of files of these sizes, by their definitions.
pub fn traits(policy: &Policy, sizes: &[u64]) -> Traits {
    let scale = policy.scale;
    let mut layout = PartitionLayout::default();
    for bytes in sizes {
        layout.add(&scale, Content::Data, *bytes, 1000).unwrap();
    }
    let small = layout.small_files();
    let target = scale.target as f64;
    let squares: f64 = sizes.iter().map(|s| (target - (*s as f64).min(target)).powi(2)).sum();
    let entropy = if sizes.is_empty() { 0.0 } else { squares / sizes.len() as f64 };
    Traits {
        data_files: layout.data.files,
        data_bytes: layout.data.bytes,
        records: layout.data.records,
        small_file_count: small,
        small_bytes: layout.small_bytes(),
        small_tiers: layout.small,
        file_count_reduction: if small == 0 { 0 } else { small.saturating_sub(scale.outputs(layout.small_bytes())) },
        file_entropy: entropy,
        file_entropy_normalized: entropy / (target * target),
        ..Traits::default()
    }
}
