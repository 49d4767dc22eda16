//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod observe;
mod serve;

mod hazards {
    mod h103_report_before_commit;
    mod h92_commit_storm;
}
