//! `afterwrite`: an optimize-after-write sidecar for lakehouse tables.
//!
//! Modules stand in the order of the loop.

/// Shared words: plain data, no IO.
pub mod settings;

pub mod model;

/// What users ask for: files, environment, table properties.
pub mod settings;

/// The doors: what is heard of commits.
pub mod observe;

/// What a commit changed, and the layout traits that follow.
pub mod orient;

/// What to do, as a pure function.
pub mod decide;

/// Doing it, journaled and guarded.
pub mod act;

/// Ports to tables, and the formats behind them.
pub mod lake;

/// Parquet at the page level; knows nothing of tables.
pub mod parquet;

/// The loop that joins the rooms.
pub mod ooda;

/// The services: gRPC, metrics, health.
pub mod serve;

/// The public protocol, generated.
pub mod proto;

/// Every metric and span name, once.
pub mod telemetry;

/// The command line's words and its output.
pub mod cli;
