//! What was decided about a scope, with its numbers and its reason.

use serde::{Deserialize, Serialize};

use super::ident::{TableIdent, TableName};
use super::partition::PartitionKey;
use super::refusal::Refused;
use super::traits::Traits;

/// A decision about one partition, kept so that it can be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The table.
    pub table: TableIdent,
    /// Its name at the time.
    pub name: TableName,
    /// The partition.
    pub scope: PartitionKey,
    /// The snapshot whose layout was judged.
    pub snapshot_id: i64,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// What was decided.
    pub verdict: Verdict,
    /// Whether the settings let it be carried out, or it is advice.
    pub act: bool,
    /// Every check made, in order, with each number against its threshold.
    pub checks: Vec<Check>,
    /// The traits judged.
    pub traits: Traits,
    /// When work may begin at the earliest, in milliseconds since the epoch, as far as only
    /// time holds it back; `None` where nothing does, or something else does too.
    #[serde(default)]
    pub eligible_ms: Option<i64>,
}

/// One check of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// A filter's, rule's or trait's name.
    pub name: String,
    /// The number found.
    pub value: f64,
    /// The number it was held against.
    pub threshold: f64,
    /// Whether the check let the scope pass (filters) or fired (rules).
    pub passed: bool,
    /// What the numbers mean, in words.
    pub note: String,
}

/// What a check is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// Lets the scope pass, or holds it back.
    Filter,
    /// Asks for work when it fires.
    Rule,
    /// One of the numbers of a rule.
    Number,
    /// A table property that could not be used.
    Property,
}

const FILTERS: [&str; 17] = [
    "refusals",
    "enabled",
    "paused",
    "hold",
    "table-age",
    "table-bytes",
    "cooldown",
    "quiet-window",
    "keep-out",
    "other-sidecar",
    "in-flight",
    "windows",
    "review",
    "mode",
    "intermediate",
    "retention",
    "quota",
];

/// Before the names of users' own filters.
pub const OWN_FILTER: &str = "filter.";

impl Check {
    /// By its name: a rule's numbers have the rule's and their own.
    pub fn kind(&self) -> CheckKind {
        match self.name.as_str() {
            name if FILTERS.contains(&name) || name.starts_with(OWN_FILTER) => CheckKind::Filter,
            name if name.starts_with("property.") => CheckKind::Property,
            name if name.contains('.') => CheckKind::Number,
            _ => CheckKind::Rule,
        }
    }
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Compact at once, budget permitting.
    Now {
        /// The rule that fired.
        rule: String,
        /// Estimated cost in GB-hours.
        gb_hours: f64,
        /// Estimated reduction in files.
        gain: u64,
    },
    /// Wait for a round, ranked.
    Queued {
        /// Estimated cost in GB-hours.
        gb_hours: f64,
        /// Estimated reduction in files.
        gain: u64,
        /// The rule that fired, where what triggers ask for is ranked too.
        #[serde(default)]
        rule: Option<String>,
    },
    /// Dearer than the settings let by themselves, and worth it: waits for a person.
    Review {
        /// Estimated cost in GB-hours.
        gb_hours: f64,
        /// Estimated reduction in files.
        gain: u64,
    },
    /// Left alone, for now or for good.
    Not {
        /// The reason.
        reason: Reason,
    },
}

/// Why a scope is left alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Reason {
    /// A named refusal.
    Refused(Refused),
    /// Switched off by the settings or a table property.
    Disabled,
    /// Paused by hand.
    Paused,
    /// Created too recently.
    TooNew {
        /// When it becomes eligible, in milliseconds since the epoch.
        until_ms: i64,
    },
    /// Fewer bytes than are worth a job.
    TooSmall,
    /// Rewritten too recently, or a rewrite gained nothing.
    CoolingDown {
        /// When it becomes eligible.
        until_ms: i64,
    },
    /// Written to too recently.
    QuietWindow {
        /// When it becomes eligible if nobody writes.
        until_ms: i64,
    },
    /// Somebody asked that the table be left alone.
    Held {
        /// Until when.
        until_ms: i64,
        /// Who asked.
        by: String,
    },
    /// A writer is expected before a rewrite would have landed: the rewrite would make
    /// its statement fail. Or another sidecar rewrites in the table.
    KeptOut {
        /// When it becomes eligible if nobody writes.
        until_ms: i64,
    },
    /// Outside the hours in which the settings let work begin.
    OutsideWindows {
        /// When the next of them begins.
        until_ms: i64,
    },
    /// Not a time of the schedule, or not an off-peak hour.
    NotDue {
        /// When the next one begins.
        until_ms: i64,
    },
    /// The schedule has no time any more.
    NeverDue,
    /// Less of the quota is in use than makes work due.
    NoPressure,
    /// A user's own filter holds it back.
    OwnFilter {
        /// Its name.
        name: String,
        /// Why it could not be asked; `None` when it does not hold.
        failure: Option<String>,
    },
    /// The settings say that the table only holds what others are made of.
    Intermediate,
    /// It will be dropped soon.
    SoonDropped,
    /// So much of the quota is in use that a rewrite's new files, which come before the
    /// old ones go, could pass it.
    QuotaUsed,
    /// Work on it is under way.
    InFlight,
    /// No rule fires and there is nothing to gain.
    Healthy,
    /// A rule would fire but the plan it would make is empty.
    NothingToGain,
    /// Dearer than the settings let by themselves, and gains too little to ask a person.
    TooDear,
}

impl Reason {
    /// Its stable name, in figures and recordings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Disabled => "disabled",
            Self::Paused => "paused",
            Self::TooNew { .. } => "too-new",
            Self::TooSmall => "too-small",
            Self::CoolingDown { .. } => "cooling-down",
            Self::QuietWindow { .. } => "quiet-window",
            Self::Held { .. } => "hold",
            Self::KeptOut { .. } => "keep-out",
            Self::OutsideWindows { .. } => "outside-windows",
            Self::NotDue { .. } => "not-due",
            Self::NeverDue => "never-due",
            Self::NoPressure => "no-quota-pressure",
            Self::OwnFilter { .. } => "own-filter",
            Self::Intermediate => "intermediate",
            Self::SoonDropped => "soon-dropped",
            Self::QuotaUsed => "quota-used",
            Self::InFlight => "in-flight",
            Self::Healthy => "healthy",
            Self::NothingToGain => "nothing-to-gain",
            Self::TooDear => "too-dear",
        }
    }
}
