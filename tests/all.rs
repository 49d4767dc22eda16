//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod architecture;
mod hazards;
mod laws {
    pub mod world;

    mod budget;
    mod fixed_point;
    mod ranking;
    mod selection;
}
mod observe;
mod serve;
mod hazards;
mod reading;
mod hazards {
    mod h43_invalid_parquet;
    mod h61_metrics_modes;
    mod h63_writer_properties;
    mod h70_bin_over_target;
    mod h83_wide_and_large;
}

mod rewrite {
    mod encode;
    mod metrics;
    mod splice;
    pub mod support;
}
#[allow(dead_code)]
mod fixture;
mod hazards;
mod flow;

mod hazards {
    mod h03_unknown_outcome;
    mod h06_crash_after_commit;
    mod h42_partial_progress;
    mod h54_stuck_committing;
    mod h74_never_commits_under_a_stream;
    mod h75_stale_plan;
}
