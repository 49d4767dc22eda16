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
