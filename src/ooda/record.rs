//! What the loop hands to its recording, where there is one.

use std::sync::Arc;

use crate::act::{JobResult, Verdict};
use crate::model::economy::Prices;
use crate::model::plan::Plan;
use crate::model::policy::Policy;
use crate::model::table::TableView;
use crate::replay::lines::Job;
use crate::replay::recorder::Recorder;

use super::Loop;

impl Loop {
    /// Has what is decided recorded from now on; once, before the loop runs.
    pub fn set_recorder(&self, recorder: Recorder) {
        let _ = self.recorder.set(recorder);
    }

    /// What resources cost.
    pub fn prices(&self) -> &Prices {
        &self.parts.settings.prices
    }

    pub(super) fn begin_recording(&self) {
        if let Some(recorder) = self.recorder.get() {
            recorder.begins(&self.budget(), self.now());
        }
    }

    pub(super) fn record_table(&self, view: &TableView, tenant: Option<&Arc<str>>) {
        if let Some(recorder) = self.recorder.get() {
            recorder.saw(view, tenant);
        }
    }

    pub(super) fn record_job(&self, policy: &Policy, plan: &Plan, result: &JobResult) {
        let Some(recorder) = self.recorder.get() else { return };
        let numbers = &result.numbers;
        recorder.job(Job {
            at_ms: self.now(),
            snapshot_id: numbers.snapshot_id.filter(|_| result.verdict == Verdict::Committed),
            files_out: numbers.files_out,
            bytes_out: numbers.bytes_out,
            millis: numbers.millis,
            gb_hours: numbers.gb_hours,
            requests: numbers.requests.all(),
            ..Job::planned(plan, &policy.scale)
        });
    }
}
