//! `afterwrite`: an optimize-after-write sidecar for lakehouse tables.
//!
//! Modules stand in the order of the loop.

pub mod model;

pub mod proto;

pub mod observe;

pub mod orient;

pub mod decide;

pub mod act;

pub mod lake;

pub mod parquet;
pub mod serve;

pub mod cli;

pub mod telemetry;
