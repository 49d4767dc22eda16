//! Attempts of a job: one that makes its files, then one for each try to commit.
//!
//! The outputs belong to try 0 and serve every try. The metadata files of a try
//! belong to that try, so that those of a lost try can go while the outputs stay.
//! A try is known to have landed or not before the next begins.

use serde::{Deserialize, Serialize};

use crate::lake::NotLanded;
use crate::model::outcome::{Outcome, Resolution};
use crate::model::plan::{AttemptId, JobId};

/// A journaled attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Its job.
    pub job: JobId,
    /// 0 makes the outputs and never asks the catalog; the others commit.
    pub number: u32,
    /// Where it stands.
    pub state: AttemptState,
}

/// Where an attempt stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum AttemptState {
    /// Files may be begun; the catalog was not asked.
    Writing,
    /// All outputs are written and proven; the catalog was not asked.
    Verified,
    /// The catalog was, or is about to be, asked.
    Committing {
        /// The metadata location that the swap depends on.
        asserted: String,
    },
    /// Its files are in the table.
    Landed {
        /// The snapshot; for an undo, the one rolled back from.
        snapshot_id: i64,
    },
    /// Proven not to be in the table; its files are to be removed.
    Lost {
        /// What proves it.
        loss: Loss,
    },
    /// Not known and given up: its files are left to orphan clean-up. So ends a claim,
    /// too, whose file is the table's and no longer named.
    GivenUp,
}

/// What proves that an attempt is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", content = "found", rename_all = "kebab-case")]
pub enum Loss {
    /// The journal: the catalog was never asked.
    NeverAsked,
    /// The catalog's answer.
    Answered(Outcome),
    /// A later look at the table.
    Seen(Resolution),
}

impl Loss {
    /// The proof that lets files be removed; `None` when this proves nothing.
    pub fn proof(&self, attempt: &AttemptId) -> Option<NotLanded> {
        match self {
            Self::NeverAsked => Some(NotLanded::never_asked(attempt)),
            Self::Answered(outcome) => NotLanded::from_outcome(attempt, outcome),
            Self::Seen(resolution) => NotLanded::from_resolution(attempt, resolution),
        }
    }
}

impl AttemptState {
    /// Whether an attempt may step from this state to `next`; staying is a step.
    ///
    /// Invariants checked: what landed stays landed; what is lost stays lost; a
    /// catalog that may have been asked cannot be un-asked.
    pub fn may_become(&self, next: &Self) -> bool {
        use AttemptState::{Committing, GivenUp, Landed, Lost, Verified, Writing};
        match (self, next) {
            (Landed { .. } | Lost { .. } | GivenUp, _) => self == next,
            (Writing, _) | (Verified, Verified | Committing { .. } | Landed { .. } | Lost { .. } | GivenUp) => true,
            (Committing { asserted }, Committing { asserted: again }) => asserted == again,
            (Committing { .. }, Lost { loss: Loss::NeverAsked }) => false,
            (Committing { .. }, Landed { .. } | Lost { .. } | GivenUp) => true,
            (Verified | Committing { .. }, _) => false,
        }
    }

    /// Whether the attempt is proven not to be in the table.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// The id of a job's `number`th attempt.
pub fn id(job: &JobId, number: u32) -> AttemptId {
    AttemptId(format!("{}.{number}", job.0))
}

/// The id under which files stand that the rewrite named but did not hand over.
pub fn spare_id(job: &JobId) -> AttemptId {
    AttemptId(format!("{}.spare", job.0))
}

/// The id of a job's `number`th claim on its table.
pub fn claim_id(job: &JobId, number: u32) -> AttemptId {
    AttemptId(format!("{}.claim{number}", job.0))
}

/// The number of the attempt that holds spare files.
pub const SPARE: u32 = u32::MAX;

/// The number of claims on the table.
pub const CLAIM: u32 = u32::MAX - 1;

/// Whether an attempt of this number makes or commits the job's outputs.
pub fn is_work(number: u32) -> bool {
    number < CLAIM
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Conflict;

    fn committing() -> AttemptState {
        AttemptState::Committing { asserted: "m1".into() }
    }

    #[test]
    fn an_attempt_that_may_have_asked_is_not_lost_without_a_proof() {
        assert!(!committing().may_become(&AttemptState::Lost { loss: Loss::NeverAsked }));
        assert!(committing().may_become(&AttemptState::Lost { loss: Loss::Seen(Resolution::NotLanded) }));
    }

    #[test]
    fn only_a_proven_loss_lets_files_go() {
        let id = AttemptId("j.1".into());
        assert!(Loss::Answered(Outcome::Conflict(Conflict::MetadataMoved)).proof(&id).is_some());
        assert!(Loss::Answered(Outcome::Unknown { reason: "504".into() }).proof(&id).is_none());
        assert!(Loss::Answered(Outcome::Landed { snapshot_id: 1 }).proof(&id).is_none());
        assert!(Loss::Seen(Resolution::Open { reason: "cut".into() }).proof(&id).is_none());
        assert!(Loss::Seen(Resolution::Landed { snapshot_id: 1 }).proof(&id).is_none());
    }

    #[test]
    fn what_landed_is_never_lost() {
        let landed = AttemptState::Landed { snapshot_id: 4 };
        assert!(!landed.may_become(&AttemptState::Lost { loss: Loss::Seen(Resolution::NotLanded) }));
        assert!(landed.may_become(&landed.clone()));
    }

    #[test]
    fn a_state_is_read_back_from_its_text() {
        let state = AttemptState::Lost { loss: Loss::Answered(Outcome::Conflict(Conflict::InputGone { files: vec!["a".into()] })) };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<AttemptState>(&text).unwrap(), state);
    }
}
