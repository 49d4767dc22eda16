//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod catalog;
