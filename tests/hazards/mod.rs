//! One file for each hazard: its tests hold it, or show the named refusal.

mod h103_report_before_commit;
mod h113_quadratic_rewriting;
mod h43_spliced_files;
mod h61_metrics_modes;
mod h63_writer_properties;
mod h70_bin_just_over_target;
mod h70_even_outputs;
mod h76_policy_loops;
mod h83_wide_and_large;
mod h92_commit_storm;
mod h97_silent_without_applying_deletes;
mod h98_work_that_changes_nothing;
