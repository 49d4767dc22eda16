//! The simulation alone, for its long form and for planted bugs: a binary that is
//! quicker to build than that of all tests, in which `cargo test` runs it too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[allow(dead_code, unused_imports)]
mod fixture;
mod sim;

/// As in the product's own binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;
