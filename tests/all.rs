//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod architecture;
mod laws {
    pub mod world;

    mod budget;
    mod fixed_point;
    mod ranking;
    mod selection;
}

mod hazards {
    mod h113_quadratic_rewriting;
    mod h70_bin_just_over_target;
    mod h76_policy_loops;
    mod h97_silent_without_applying_deletes;
    mod h98_work_that_changes_nothing;
mod observe;
mod serve;

mod hazards {
    mod h103_report_before_commit;
    mod h92_commit_storm;
}
