//! One file a hazard: each holds a promise, or shows that the case is refused.

mod h01_delete_during_rewrite;
mod h02_starting_sequence_number;
mod h04_refused_replay;
mod h111_rollback_before_commit;
mod h15_compaction_is_a_replace;
mod h16_dead_entries_stay_dead;
mod h17_survivors_keep_their_history;
mod h19_scope_of_equality_deletes;
mod h20_position_deletes_and_bounds;
mod h36_same_tuple_other_spec;
mod h39_retry_from_fresh_base;
mod h86_manifests_stay_few;
mod h97_dangling_deletes;
