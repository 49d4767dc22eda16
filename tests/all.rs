//! One integration-test binary: linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod architecture;
mod catalog;
mod command;
mod crash;
mod demo;
#[allow(dead_code)]
mod fixture;
mod flow;
mod hazards;
mod laws {
    pub mod world;

    mod budget;
    mod fixed_point;
    mod presets;
    mod ranking;
    mod replay;
    mod scopes;
    mod selection;
}
mod observe;
mod orient;
mod proxy;
mod reading;
mod rewrite {
    mod ahead;
    mod cut_encodings;
    mod encode;
    pub mod faults;
    mod metrics;
    mod nanos;
    mod odd;
    pub mod repack;
    mod run;
    mod splice;
    pub mod support;
    pub mod walker;
}
mod serve;
mod sim;
mod stores;
mod whole;
