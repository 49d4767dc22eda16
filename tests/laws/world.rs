//! One partition as a model: writers append and delete, the decision is asked
//! and carried out at once, and every byte is followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::decide::maturity::Gained;
use afterwrite::decide::plan::{Cause, Order, max_deletes_on_file, plans};
use afterwrite::decide::{Case, ScopeMemory, TableFacts, judge};
use afterwrite::model::decision::{Decision, Reason};
use afterwrite::model::file::{Content, FileKey};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::layout::PartitionLayout;
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{LiveDelete, LiveFile, Plan, ScopeFiles};
use afterwrite::model::policy::{BudgetLimits, Policy};
use afterwrite::model::traits::Traits;

pub const MIB: u64 = 1 << 20;

/// A live data file, and how often its most rewritten byte was rewritten.
#[derive(Clone, Debug)]
struct Held {
    file: LiveFile,
    rewrites: u32,
}

#[derive(Debug)]
pub struct World {
    pub policy: Policy,
    pub memory: ScopeMemory,
    pub now_ms: i64,
    /// Rewrites carried out.
    pub rewrites: u32,
    files: Vec<Held>,
    deletes: BTreeMap<FileKey, LiveDelete>,
    sequence: i64,
    made: u64,
}

/// What one turn of the loop did.
pub struct Turn {
    /// The plans carried out, or why there were none; `None` when the decision
    /// asked for no work.
    pub planned: Option<Result<Vec<Plan>, Reason>>,
}

impl World {
    pub fn new(policy: Policy) -> Self {
        let memory = ScopeMemory::default();
        Self { policy, memory, now_ms: 1_700_000_000_000, rewrites: 0, files: vec![], deletes: BTreeMap::new(), sequence: 1, made: 0 }
    }

    fn path(&mut self) -> Arc<str> {
        self.made += 1;
        Arc::from(format!("file-{:08}", self.made))
    }

    /// A commit that adds one data file.
    pub fn append(&mut self, bytes: u64, records: u64) {
        self.sequence += 1;
        let path = self.path();
        let file =
            LiveFile { path, bytes, records, data_sequence: self.sequence, sort_order_id: None, first_row_id: None, deletes: vec![] };
        self.files.push(Held { file, rewrites: 0 });
    }

    /// A commit that adds an equality delete: it reaches every older file.
    pub fn delete_keys(&mut self, records: u64) {
        self.sequence += 1;
        self.add_delete(Content::EqualityDeletes, records, |_| true);
    }

    /// A Flink checkpoint of an upsert job: rows, and as many deleted keys, in one
    /// commit; the keys do not reach the commit's own rows.
    pub fn upsert(&mut self, bytes: u64, records: u64) {
        self.delete_keys(records);
        self.append(bytes, records);
        self.sequence -= 1;
        let sequence = self.sequence;
        self.files.last_mut().unwrap().file.data_sequence = sequence;
    }

    /// A commit that adds a position delete for each file chosen by its place.
    pub fn delete_positions(&mut self, records: u64, chosen: impl Fn(usize) -> bool) {
        self.sequence += 1;
        for place in (0..self.files.len()).filter(|place| chosen(*place)) {
            self.add_delete(Content::PositionDeletes, records, |at| at == place);
        }
    }

    /// A delete file that applies to no data file.
    pub fn dangling_delete(&mut self, records: u64) {
        self.sequence += 1;
        self.add_delete(Content::EqualityDeletes, records, |_| false);
    }

    fn add_delete(&mut self, content: Content, records: u64, reaches: impl Fn(usize) -> bool) {
        let key = FileKey { path: self.path(), offset: None };
        self.deletes.insert(key.clone(), LiveDelete { key: key.clone(), content, bytes: 100, records, data_sequence: self.sequence });
        for (place, held) in self.files.iter_mut().enumerate() {
            if reaches(place) {
                held.file.deletes.push(key.clone());
            }
        }
        self.memory = self.memory.after_new_delete();
    }

    pub fn traits(&self) -> Traits {
        let (scale, target) = (self.policy.scale, self.policy.scale.target as f64);
        let mut layout = PartitionLayout::default();
        for held in &self.files {
            layout.add(&scale, Content::Data, held.file.bytes, held.file.records).unwrap();
        }
        let deleted: u64 = self.deletes.values().map(|d| d.records).sum();
        let squares: f64 = self.files.iter().map(|h| (target - (h.file.bytes as f64).min(target)).powi(2)).sum();
        let entropy = squares / (self.files.len().max(1) as f64);
        let small = layout.small_files();
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
            delete_ratio: if layout.data.records == 0 { 0.0 } else { (deleted as f64 / layout.data.records as f64).min(1.0) },
            delete_file_count: self.deletes.len() as u64,
            equality_delete_files: self.deletes.values().filter(|d| d.content == Content::EqualityDeletes).count() as u64,
            equality_delete_records: self.deletes.values().filter(|d| d.content == Content::EqualityDeletes).map(|d| d.records).sum(),
            ..Traits::default()
        }
    }

    pub fn scope(&self) -> ScopeFiles {
        let mut files: Vec<LiveFile> = self.files.iter().map(|h| h.file.clone()).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let applies = |key: &FileKey| files.iter().any(|f| f.deletes.contains(key));
        let deletes = self.deletes.iter().filter(|(key, _)| applies(key)).map(|(k, d)| (k.clone(), d.clone())).collect();
        ScopeFiles { snapshot_id: self.sequence, sequence_number: self.sequence, scope: PartitionKey::unpartitioned(0), files, deletes }
    }

    /// The decision at this moment.
    pub fn judge(&self) -> Decision {
        let traits = self.traits();
        let table = TableFacts { ident: ident(), name: name(), created_ms: 0, bytes: traits.data_bytes, snapshot_id: self.sequence };
        judge(&Case {
            now_ms: self.now_ms,
            table: &table,
            policy: &self.policy,
            refusals: &[],
            paused: false,
            in_flight: false,
            scope: &PartitionKey::unpartitioned(0),
            traits: &traits,
            memory: &self.memory,
        })
    }

    /// The plans that a cause makes at this moment.
    pub fn plans(&self, cause: &Cause) -> Result<Vec<Plan>, Reason> {
        let (name, limits) = (name(), BudgetLimits::default());
        plans(&Order { table: ident(), name: &name, reference: "main", policy: &self.policy, limits: &limits, cause }, &self.scope())
    }

    /// Decides, and carries out what was decided.
    pub fn turn(&mut self) -> Turn {
        let decision = self.judge();
        let planned = Cause::of(&decision, &self.policy).map(|cause| self.carry_out(&cause));
        Turn { planned }
    }

    /// Plans for a cause and carries the plans out.
    pub fn carry_out(&mut self, cause: &Cause) -> Result<Vec<Plan>, Reason> {
        self.memory.max_deletes_on_file = Some(max_deletes_on_file(&self.scope()));
        let planned = self.plans(cause);
        match &planned {
            Ok(plans) => plans.iter().for_each(|plan| self.rewrite(plan)),
            Err(_) => {
                let for_deletes = cause.name() == "deletes";
                self.memory = self.memory.after_empty_plan(&self.policy, self.now_ms, for_deletes);
            }
        }
        planned
    }

    /// Turns, each after the cooldown has passed, until the decision asks for no
    /// work; how many turns changed something. Panics above `limit`.
    pub fn settle(&mut self, limit: u32) -> u32 {
        for turns in 0..=limit {
            self.pass_cooldown();
            if self.turn().planned.is_none() {
                return turns;
            }
        }
        panic!("no fixed point within {limit} turns: {:?}", self.sizes());
    }

    pub fn pass_cooldown(&mut self) {
        self.now_ms = self.memory.cooldown_until_ms.unwrap_or(self.now_ms).max(self.now_ms + self.policy.cooldown_ms);
    }

    /// Replaces a plan's inputs by outputs cut evenly; deletes that then apply to
    /// nothing go along.
    fn rewrite(&mut self, plan: &Plan) {
        let is_input = |held: &Held| plan.inputs.iter().any(|f| f.path == held.file.path);
        let (inputs, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.files).into_iter().partition(is_input);
        assert_eq!(inputs.len(), plan.inputs.len(), "every input is live");
        self.files = kept;
        let rewrites = 1 + inputs.iter().map(|h| h.rewrites).max().unwrap();
        let (bytes, outputs) = (plan.input_bytes(), self.policy.scale.outputs(plan.input_bytes()));
        let deleted: u64 = plan.deletes.iter().map(|d| d.records).sum();
        let records = plan.input_records().saturating_sub(deleted);
        for part in 0..outputs {
            let share = |sum: u64| sum / outputs + u64::from(part < sum % outputs);
            let path = self.path();
            let sequence = plan.sequence_number;
            let file = LiveFile {
                path,
                bytes: share(bytes),
                records: share(records),
                data_sequence: sequence,
                sort_order_id: None,
                first_row_id: None,
                deletes: vec![],
            };
            self.files.push(Held { file, rewrites });
        }
        let applies = |key: &FileKey| self.files.iter().any(|h| h.file.deletes.contains(key));
        let spent: Vec<FileKey> = plan.deletes.iter().map(|d| d.key.clone()).filter(|key| !applies(key)).collect();
        spent.iter().for_each(|key| drop(self.deletes.remove(key)));
        self.rewrites += 1;
        self.sequence += 1;
        let gained =
            Gained { at_ms: self.now_ms, files_in: inputs.len() as u64, files_out: outputs, deletes_applied: plan.deletes.len() as u64 };
        self.memory = self.memory.after_rewrite(&self.policy, &gained);
    }

    /// How often the most rewritten byte was rewritten.
    pub fn most_rewrites(&self) -> u32 {
        self.files.iter().map(|h| h.rewrites).max().unwrap_or(0)
    }

    /// Files in the fullest size tier.
    pub fn fullest_tier(&self) -> u32 {
        self.traits().small_tiers.iter().map(|t| t.files).max().unwrap_or(0)
    }

    /// Pairs of data file and delete, then data files: what every rewrite lowers.
    pub fn potential(&self) -> (usize, usize) {
        (self.files.iter().map(|h| h.file.deletes.len()).sum(), self.files.len())
    }

    pub fn sizes(&self) -> Vec<u64> {
        self.files.iter().map(|h| h.file.bytes).collect()
    }

    pub fn live_deletes(&self) -> usize {
        self.deletes.len()
    }
}

fn ident() -> TableIdent {
    TableIdent::iceberg(uuid::Uuid::from_u128(7))
}

fn name() -> TableName {
    TableName::new("lake", "sales", "orders")
}
