//! Traits of a scope: the numbers that decisions are made of, and the registry that
//! names each of them.

use serde::{Deserialize, Serialize};

use super::layout::{TIERS, Tier};
use super::outside::{Outside, Stat};
use super::writers::Writers;

/// Traits of one partition at one snapshot and one moment. All sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// `n`: live data files.
    pub data_files: u64,
    /// `B`: bytes of the live data files.
    pub data_bytes: u64,
    /// `R`: records of the live data files, deleted rows included.
    pub records: u64,
    /// Files below `ρT`.
    pub small_file_count: u64,
    /// Bytes of the files below `ρT`.
    pub small_bytes: u64,
    /// Small files by size tier; tier 0 is next to the target.
    pub small_tiers: [Tier; TIERS],
    /// `max(0, n_small − outputs(B_small, T))`.
    pub file_count_reduction: u64,
    /// `(1/n) Σ (T − min(s, T))²`, in bytes²; 0 without files.
    pub file_entropy: f64,
    /// `file_entropy / T²`, in [0, 1].
    pub file_entropy_normalized: f64,
    /// Records deleted by deletes that apply to the scope over `R`, at most 1;
    /// an upper bound (global equality deletes included).
    pub delete_ratio: f64,
    /// Live delete files and vectors that may apply to the scope.
    pub delete_file_count: u64,
    /// Position-delete records of the scope.
    pub position_delete_records: u64,
    /// Equality-delete records of the scope and global ones.
    pub equality_delete_records: u64,
    /// GB-hours that rewriting the small files would cost, start included.
    pub compute_cost: f64,
    /// Manifests of the table's head.
    pub manifest_count: u64,
    /// Bytes of those manifests.
    pub metadata_bytes: u64,
    /// Bytes we rewrote here over bytes that users wrote here; 0 when unknown.
    pub write_amplification: f64,
    /// Exponentially weighted foreign commits per hour (half-life one hour).
    pub commit_rate: f64,
    /// Milliseconds since the last foreign commit that touched the scope;
    /// `None` when none was heard.
    pub quiet_for_ms: Option<i64>,
    /// Since when the four history traits are known, in milliseconds since the
    /// epoch; `None` when there is no history.
    pub known_since_ms: Option<i64>,
    /// Scans of the table per hour that were reported (half-life one hour); `None`
    /// where nothing reports scans.
    #[serde(default)]
    pub read_rate: Option<f64>,
    /// Live objects of the tenant over its quota; `None` where it has none.
    #[serde(default)]
    pub quota_used: Option<f64>,
    /// Equality-delete files of the scope and global ones.
    #[serde(default)]
    pub equality_delete_files: u64,
    /// Foreign commits to the table that its metadata still lists, since the scope was
    /// rewritten.
    #[serde(default)]
    pub commits_since_rewrite: Option<u64>,
    /// Milliseconds since the time that a partition by time is of was over; `None` for
    /// others, and before.
    #[serde(default)]
    pub partition_age_ms: Option<i64>,
    /// What others told, and how long ago; `read_rate` and `quota_used` are taken from it
    /// where they are told.
    #[serde(default)]
    pub outside: Outside,
    /// What is known of others who write here.
    #[serde(default)]
    pub writers: Writers,
}

/// What a trait says about a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The more of it, the more a rewrite gains.
    Benefit,
    /// The more of it, the dearer a rewrite is.
    Cost,
    /// What surrounds the scope: it weighs the other two.
    Context,
}

impl Kind {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Benefit => "benefit",
            Self::Cost => "cost",
            Self::Context => "context",
        }
    }
}

/// What a trait counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Files.
    Files,
    /// Manifests.
    Manifests,
    /// Bytes.
    Bytes,
    /// Bytes times bytes.
    SquareBytes,
    /// A ratio.
    Ratio,
    /// GB of memory held, times hours.
    GbHours,
    /// Events an hour.
    PerHour,
    /// Milliseconds.
    Millis,
    /// Commits.
    Commits,
    /// Money, in the currency of the prices.
    Money,
}

impl Unit {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Manifests => "manifests",
            Self::Bytes => "bytes",
            Self::SquareBytes => "bytes²",
            Self::Ratio => "ratio",
            Self::GbHours => "GB-hours",
            Self::PerHour => "per hour",
            Self::Millis => "ms",
            Self::Commits => "commits",
            Self::Money => "money",
        }
    }
}

/// Of what a trait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A partition; a table's is made of its partitions'.
    Partition,
    /// A table as a whole.
    Table,
    /// All tables of a tenant.
    Tenant,
}

impl Scope {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Table => "table",
            Self::Tenant => "tenant",
        }
    }
}

/// A trait by its name.
#[derive(Clone, Copy, Debug)]
pub struct Trait {
    /// Its name, in settings and answers.
    pub name: &'static str,
    /// What it says about a rewrite.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// Of what it is.
    pub scope: Scope,
    /// Its definition, in words.
    pub meaning: &'static str,
    value: fn(&Traits) -> Option<f64>,
}

impl Trait {
    /// Its value; `None` where it is not known.
    pub fn of(&self, traits: &Traits) -> Option<f64> {
        (self.value)(traits)
    }

    /// The trait of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|t| t.name == name)
    }
}

const fn entry(
    name: &'static str,
    (kind, unit, scope): (Kind, Unit, Scope),
    meaning: &'static str,
    value: fn(&Traits) -> Option<f64>,
) -> Trait {
    Trait { name, kind, unit, scope, meaning, value }
}

const OF_FILES: (Kind, Unit, Scope) = (Kind::Benefit, Unit::Files, Scope::Partition);

/// Every trait by which decisions are made.
pub const ALL: &[Trait] = &[
    entry("small_file_count", OF_FILES, "data files below the small-file ratio times the target", |t| Some(t.small_file_count as f64)),
    entry("file_count_reduction", OF_FILES, "files fewer after merging the small ones", |t| Some(t.file_count_reduction as f64)),
    entry("file_entropy", (Kind::Benefit, Unit::SquareBytes, Scope::Partition), "mean squared distance of a file from the target", |t| {
        Some(t.file_entropy)
    }),
    entry("file_entropy_normalized", (Kind::Benefit, Unit::Ratio, Scope::Partition), "the same over the target squared", |t| {
        Some(t.file_entropy_normalized)
    }),
    entry("delete_ratio", (Kind::Benefit, Unit::Ratio, Scope::Partition), "deleted records over records, at most", |t| {
        Some(t.delete_ratio)
    }),
    entry("delete_file_count", OF_FILES, "delete files and vectors that may apply", |t| Some(t.delete_file_count as f64)),
    entry("manifest_count", (Kind::Benefit, Unit::Manifests, Scope::Table), "manifests of the head", |t| Some(t.manifest_count as f64)),
    entry("metadata_bytes", (Kind::Benefit, Unit::Bytes, Scope::Table), "bytes of those manifests", |t| Some(t.metadata_bytes as f64)),
    entry("compute_cost", (Kind::Cost, Unit::GbHours, Scope::Partition), "cost of rewriting the small files", |t| Some(t.compute_cost)),
    entry("write_amplification", (Kind::Cost, Unit::Ratio, Scope::Partition), "bytes rewritten over bytes that users wrote", |t| {
        t.known_since_ms.map(|_| t.write_amplification)
    }),
    entry("commit_rate", (Kind::Context, Unit::PerHour, Scope::Partition), "commits of others, half-life one hour", |t| {
        t.known_since_ms.map(|_| t.commit_rate)
    }),
    entry("quiet_for", (Kind::Context, Unit::Millis, Scope::Partition), "time since the last commit of others", |t| {
        t.quiet_for_ms.map(|ms| ms as f64)
    }),
    entry("read_rate", (Kind::Context, Unit::PerHour, Scope::Table), "scans reported, half-life one hour", |t| t.read_rate),
    entry("quota_used", (Kind::Context, Unit::Ratio, Scope::Tenant), "live objects over the tenant's quota", |t| t.quota_used),
    entry("equality_delete_files", OF_FILES, "equality-delete files that may apply", |t| Some(t.equality_delete_files as f64)),
    entry("commits_since_rewrite", (Kind::Context, Unit::Commits, Scope::Table), "commits of others since the last rewrite", |t| {
        t.commits_since_rewrite.map(|n| n as f64)
    }),
    entry("partition_age", (Kind::Context, Unit::Millis, Scope::Partition), "time since the day, hour or month of the partition", |t| {
        t.partition_age_ms.map(|ms| ms as f64)
    }),
    entry("storage_cost", (Kind::Context, Unit::Money, Scope::Table), "cost of storage a month, as told from outside", |t| {
        t.outside.value(Stat::StorageCost)
    }),
    entry("files_scanned", (Kind::Context, Unit::PerHour, Scope::Table), "files that scans open, as told from outside", |t| {
        t.outside.value(Stat::FilesScanned)
    }),
    entry("open_calls", (Kind::Context, Unit::PerHour, Scope::Table), "calls that open files, as told from outside", |t| {
        t.outside.value(Stat::OpenCalls)
    }),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::outside::Told;

    /// The names of the formulas, and how each is kept.
    const FORMULAS: [(&str, Kind); 13] = [
        ("small_file_count", Kind::Benefit),
        ("file_count_reduction", Kind::Benefit),
        ("file_entropy", Kind::Benefit),
        ("delete_ratio", Kind::Benefit),
        ("delete_file_count", Kind::Benefit),
        ("manifest_count", Kind::Benefit),
        ("metadata_bytes", Kind::Benefit),
        ("compute_cost", Kind::Cost),
        ("write_amplification", Kind::Cost),
        ("commit_rate", Kind::Context),
        ("quiet_for", Kind::Context),
        ("read_rate", Kind::Context),
        ("quota_used", Kind::Context),
    ];

    #[test]
    fn every_trait_of_the_formulas_is_registered_under_its_name_and_kind() {
        let found = FORMULAS.map(|(name, _)| (name, Trait::named(name).map(|t| t.kind)));
        assert_eq!(found, FORMULAS.map(|(name, kind)| (name, Some(kind))));
    }

    #[test]
    fn no_two_traits_have_one_name() {
        assert_eq!(ALL.iter().map(|t| t.name).collect::<BTreeSet<_>>().len(), ALL.len());
        assert!(Trait::named("beauty").is_none());
    }

    #[test]
    fn each_trait_reads_its_own_number() {
        let mut traits = Traits {
            small_file_count: 1,
            file_count_reduction: 2,
            file_entropy: 3.0,
            file_entropy_normalized: 4.0,
            delete_ratio: 5.0,
            delete_file_count: 6,
            manifest_count: 7,
            metadata_bytes: 8,
            compute_cost: 9.0,
            write_amplification: 10.0,
            commit_rate: 11.0,
            quiet_for_ms: Some(12),
            known_since_ms: Some(0),
            read_rate: Some(13.0),
            quota_used: Some(14.0),
            equality_delete_files: 15,
            commits_since_rewrite: Some(16),
            partition_age_ms: Some(17),
            ..Traits::default()
        };
        for (stat, value) in [(Stat::StorageCost, 18.0), (Stat::FilesScanned, 19.0), (Stat::OpenCalls, 20.0)] {
            traits.outside.set(stat, Told { value, age_ms: 0 });
        }
        let values: Vec<f64> = ALL.iter().filter_map(|t| t.of(&traits)).collect();
        assert_eq!(values, (1..=20).map(f64::from).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_never_heard_is_not_known_rather_than_none() {
        let unknown: Vec<&str> = ALL.iter().filter(|t| t.of(&Traits::default()).is_none()).map(|t| t.name).collect();
        let expected = [
            "write_amplification",
            "commit_rate",
            "quiet_for",
            "read_rate",
            "quota_used",
            "commits_since_rewrite",
            "partition_age",
            "storage_cost",
            "files_scanned",
            "open_calls",
        ];
        assert_eq!(unknown, expected);
    }
}
