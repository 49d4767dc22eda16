//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod architecture;
#[allow(dead_code)]
mod fixture;
mod flow;
mod hazards;
mod laws {
    pub mod world;

    mod budget;
    mod fixed_point;
    mod ranking;
    mod selection;
}
mod observe;
mod reading;
mod rewrite {
    mod encode;
    mod metrics;
    mod run;
    mod splice;
    pub mod support;
}
mod serve;
mod catalog;
mod hazards {
    mod h100_shared_puffin;
    mod h112_silent_writers;
    mod h24_old_pointer;
    mod h91_lost_events;
    mod h96_awkward_partitions;
}

mod orient;
