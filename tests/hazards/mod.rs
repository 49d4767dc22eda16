//! One file a hazard, named after it.

mod h103_report_before_commit;
mod h113_quadratic_rewriting;
mod h70_bin_just_over_target;
mod h76_policy_loops;
mod h92_commit_storm;
mod h97_silent_without_applying_deletes;
mod h98_work_that_changes_nothing;
//! One file for each hazard: its tests hold it, or show the named refusal.

mod h114_planted_readers;
mod h14_whole_files;
mod h19_delete_reach;
mod h20_position_delete_bounds;
mod h22_both_kinds_of_delete;
mod h32_files_without_ids;
mod h43_invalid_parquet;
mod h80_many_deletes;
mod h83_wide_and_big;
//! One file a hazard: each holds a promise, or shows that the case is refused.

mod h01_delete_during_rewrite;
mod h02_starting_sequence_number;
mod h04_refused_replay;
//mod h15_compaction_is_a_replace;
//mod h16_dead_entries_stay_dead;
//mod h17_survivors_keep_their_history;
//mod h19_scope_of_equality_deletes;
//mod h20_position_deletes_and_bounds;
//mod h36_same_tuple_other_spec;
//mod h39_retry_from_fresh_base;
//mod h86_manifests_stay_few;
//mod h97_dangling_deletes;
//mod h111_rollback_before_commit;
