//! What a table's settings ask for, resolved: defaults, then settings by
//! pattern, then the table's own properties.

use serde::{Deserialize, Serialize};

use super::expression::{Expression, Own};
use super::ident::MAIN;
use super::layout::SizeScale;
use super::mode::Pace;
use super::preset::Preset;
use super::refusal::{Refusal, Refused};
use super::window::Window;

/// Everything the decision about one table depends on besides its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Target size and the small-file ratio.
    pub scale: SizeScale,
    /// Whether rewrites are carried out or only advised.
    pub act: bool,
    /// Whether the table is looked after at all.
    pub enabled: bool,
    /// Immediate triggers, in the order in which they are asked.
    pub rules: Vec<Rule>,
    /// Work that no trigger asks for is ranked when it would drop at least this
    /// many files; `None` ranks nothing.
    pub queue_min_reduction: Option<u64>,
    /// A table younger than this is left alone.
    pub min_table_age_ms: i64,
    /// A table with fewer live data bytes is left alone.
    pub min_table_bytes: u64,
    /// A partition written to within this time waits.
    pub quiet_window_ms: i64,
    /// For at most this time a partition is kept out of for writers that are expected, and
    /// for this time after its last rewrite a table is left to another sidecar; 0 for never.
    pub keep_out_ms: i64,
    /// The table is left alone until then, in milliseconds since the epoch.
    pub hold_until_ms: Option<i64>,
    /// A partition rewritten within this time waits.
    pub cooldown_ms: i64,
    /// Weight of the file-count reduction in the score; the cost has the rest.
    pub gain_weight: f64,
    /// Cost model.
    pub cost: CostModel,
    /// Upper bound of one job's input bytes.
    pub max_job_bytes: u64,
    /// Time after which a job is stopped, in milliseconds.
    pub max_job_ms: i64,
    /// Memory that one job may use, in bytes.
    pub memory_limit: u64,
    /// A size tier is merged when it holds this many small files.
    pub tier_files: u32,
    /// The share of its quota from which a tenant's tables are left alone; `None` for none.
    #[serde(default)]
    pub quota_limit: Option<f64>,
    /// Work that is estimated at more GB-hours than this waits for a person; `None`
    /// lets all go.
    pub review_above_gb_hours: Option<f64>,
    /// Such work is left alone when it drops fewer files than this.
    pub review_min_gain: u64,
    /// When work may begin; at any time where there is none.
    pub windows: Vec<Window>,
    /// Which work begins when.
    #[serde(default)]
    pub pace: Pace,
    /// Users' own filters: all must hold.
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// Users' own traits, to be shown.
    #[serde(default)]
    pub own: Vec<Own>,
    /// Whose ways the triggers and sizes are, where they are another product's.
    #[serde(default)]
    pub preset: Option<Preset>,
    /// Whether the table only holds what others are made of, and is left alone.
    #[serde(default)]
    pub intermediate: bool,
    /// After so long a partition by time is dropped; `None` for never.
    #[serde(default)]
    pub retention_ms: Option<i64>,
    /// A partition that is to be dropped within this time is left alone.
    #[serde(default)]
    pub retention_margin_ms: i64,
    /// How much of the table one piece of work takes.
    #[serde(default)]
    pub scope: Scoping,
    /// The branches that are looked after; at least one.
    #[serde(default = "only_main", skip_serializing_if = "is_only_main")]
    pub branches: Vec<String>,
}

fn only_main() -> Vec<String> {
    vec![MAIN.to_owned()]
}

fn is_only_main(branches: &[String]) -> bool {
    branches.iter().eq([MAIN])
}

impl Policy {
    /// Whether a branch of the table is looked after.
    pub fn looks_after(&self, branch: &str) -> bool {
        self.branches.iter().any(|known| known == branch)
    }

    /// Why work that is asked for by hand on a branch is refused; `None` where the branch is
    /// looked after.
    pub fn refuses(&self, branch: &str) -> Option<Refused> {
        let why = || format!("`{branch}` is another branch than {}; name it in `branches` to have it looked after", named(&self.branches));
        (!self.looks_after(branch)).then(|| Refused::new(Refusal::Branch, why()))
    }
}

/// Names of branches in a sentence.
pub fn named(branches: &[String]) -> String {
    let quoted: Vec<String> = branches.iter().map(|branch| format!("`{branch}`")).collect();
    match quoted.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => quoted.concat(),
    }
}

/// A user's own filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// Must hold for work to begin.
    pub holds: Expression,
}

/// Which files the plan of a user's own trigger takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// As many size tiers, from the smallest up, as rise by it.
    #[default]
    Merge,
    /// The full size tiers.
    FullTiers,
    /// What deletes apply to.
    Deletes,
    /// Every small file, and what deletes apply to.
    All,
}

impl Takes {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Merge, Self::FullTiers, Self::Deletes, Self::All];

    /// Its word in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::FullTiers => "full-tiers",
            Self::Deletes => "deletes",
            Self::All => "all",
        }
    }
}

/// How much of a table one piece of work takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scoping {
    /// A partition.
    #[default]
    Partition,
    /// All partitions of the table that ask for work, ranked as one.
    Table,
    /// What came to a partition since its last rewrite.
    Snapshot,
    /// Of these what gains most for its cost.
    Hybrid,
}

impl Scoping {
    /// All members.
    pub const ALL: [Self; 4] = [Self::Partition, Self::Table, Self::Snapshot, Self::Hybrid];

    /// Its word in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Table => "table",
            Self::Snapshot => "snapshot",
            Self::Hybrid => "hybrid",
        }
    }
}

/// An immediate trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// A size tier holds `tier_files` small files, and the reduction is at least
    /// `min_reduction_ratio` of all files.
    SmallFiles {
        /// Smallest `file_count_reduction / n`, 0.1 by default.
        min_reduction_ratio: f64,
    },
    /// Normalized entropy and small files are at least these.
    Entropy {
        /// Smallest `file_entropy / T²`, 0.6 by default.
        min_entropy: f64,
        /// Smallest `small_file_count`, 8 by default.
        min_small_files: u64,
    },
    /// Deletes weigh on reads.
    Deletes {
        /// Smallest `delete_ratio`, 0.1 by default.
        min_ratio: f64,
        /// Smallest number of delete files that apply to one data file, 16 by default.
        min_files_per_data_file: u64,
    },
    /// A user's own trigger, or a preset's.
    Own {
        /// Its name.
        name: String,
        /// Fires when it holds.
        when: Expression,
        /// What its plan takes.
        takes: Takes,
    },
}

impl Rule {
    /// The rule's name in decisions and settings.
    pub fn name(&self) -> &str {
        match self {
            Self::Own { name, .. } => name,
            Self::SmallFiles { .. } => "small-files",
            Self::Entropy { .. } => "entropy",
            Self::Deletes { .. } => "deletes",
        }
    }
}

/// `GBHr = executor_memory_gb × bytes / rewrite_bytes_per_hour + startup_gbhr`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Memory an executor holds while it works, in GB.
    pub executor_memory_gb: f64,
    /// Bytes rewritten an hour.
    pub rewrite_bytes_per_hour: f64,
    /// Fixed cost of a job.
    pub startup_gbhr: f64,
}

impl CostModel {
    /// Cost in GB-hours of rewriting `bytes`.
    pub fn gb_hours(&self, bytes: u64) -> f64 {
        self.executor_memory_gb * bytes as f64 / self.rewrite_bytes_per_hour + self.startup_gbhr
    }

    /// The bytes whose rewriting costs so many GB-hours.
    pub fn bytes(&self, gb_hours: f64) -> u64 {
        ((gb_hours - self.startup_gbhr) * self.rewrite_bytes_per_hour / self.executor_memory_gb.max(f64::MIN_POSITIVE)).round().max(0.0)
            as u64
    }
}

/// The budget that all jobs of the process share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// GB-hours that may be spent in any hour.
    pub gb_hours_per_hour: f64,
    /// Unused budget that may be carried over, as hours of it.
    pub carry_over_hours: f64,
    /// Jobs at one time.
    pub concurrent_jobs: usize,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self { gb_hours_per_hour: 8.0, carry_over_hours: 2.0, concurrent_jobs: 2 }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            scale: SizeScale { target: 512 << 20, small_permille: 750 },
            act: false,
            enabled: true,
            rules: vec![
                Rule::SmallFiles { min_reduction_ratio: 0.1 },
                Rule::Entropy { min_entropy: 0.6, min_small_files: 8 },
                Rule::Deletes { min_ratio: 0.1, min_files_per_data_file: 16 },
            ],
            queue_min_reduction: Some(4),
            min_table_age_ms: 0,
            min_table_bytes: 0,
            quiet_window_ms: 0,
            keep_out_ms: 600_000,
            hold_until_ms: None,
            cooldown_ms: 60_000,
            gain_weight: 0.7,
            cost: CostModel { executor_memory_gb: 1.0, rewrite_bytes_per_hour: 50.0 * 3600.0 * 1e6, startup_gbhr: 0.001 },
            max_job_bytes: 16 << 30,
            max_job_ms: 3_600_000,
            memory_limit: 1 << 30,
            tier_files: 8,
            quota_limit: None,
            review_above_gb_hours: None,
            review_min_gain: 100,
            windows: Vec::new(),
            pace: Pace::default(),
            filters: Vec::new(),
            own: Vec::new(),
            preset: None,
            intermediate: false,
            retention_ms: None,
            retention_margin_ms: 24 * 3_600_000,
            scope: Scoping::Partition,
            branches: only_main(),
        }
    }
}
