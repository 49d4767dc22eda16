//! `afterwrite`: an optimize-after-write sidecar for lakehouse tables.
//!
//! Modules stand in the order of the loop:
//!
//! * [`model`]: shared words, plain data without IO; [`settings`]: what users ask for;
//! * [`observe`]: the doors, what is heard of commits;
//! * [`orient`]: what a commit changed, and the layout traits that follow;
//! * [`decide`]: what to do, as a pure function;
//! * [`act`]: doing it, journaled and guarded;
//! * [`lake`]: ports to tables and the formats behind them, over [`parquet`] at the page level;
//! * [`ooda`]: the loop that joins the rooms;
//! * [`replay`]: decisions recorded, made again, tried under other policies;
//! * [`serve`], [`proto`], [`telemetry`], [`cli`], [`command`]: how it is spoken to, and how it answers;
//! * [`app`]: puts the parts together; [`demo`]: shows them at work.

pub mod model;
pub mod settings;

pub mod observe;

pub mod orient;

pub mod decide;

pub mod act;

pub mod lake;
pub mod parquet;

pub mod ooda;
pub mod replay;

pub mod cli;
pub mod command;
pub mod proto;
pub mod serve;
pub mod telemetry;

pub mod app;
pub mod demo;
