//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod flow;

mod hazards {
    mod h03_unknown_outcome;
    mod h06_crash_after_commit;
    mod h42_partial_progress;
    mod h54_stuck_committing;
    mod h74_never_commits_under_a_stream;
    mod h75_stale_plan;
}
