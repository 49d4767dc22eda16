//! One file a hazard, named after it.

mod h103_report_before_commit;
mod h113_quadratic_rewriting;
mod h70_bin_just_over_target;
mod h76_policy_loops;
mod h92_commit_storm;
mod h97_silent_without_applying_deletes;
mod h98_work_that_changes_nothing;
