//! Decisions recorded with all that they depended on, made again, and tried under
//! other policies.
//!
//! * [`lines`]: what a recording holds; [`recorder`] writes one, [`read`] reads it;
//! * [`exact`]: every decision and every round of a recording made again, and held
//!   against what was decided;
//! * [`trace`] and [`history`]: what writers did, from a recording or from a table's own
//!   snapshots;
//! * [`part`] and [`play`]: a policy at work on a trace, as a model, with its
//!   [`totals`];
//! * [`tune`]: the policy that does best on a trace.

pub mod exact;
pub mod history;
pub mod lines;
pub mod part;
pub mod play;
pub mod read;
pub mod recorder;
pub mod totals;
pub mod trace;
pub mod tune;
