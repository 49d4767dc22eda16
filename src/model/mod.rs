//! The shared words of the project: plain data, no IO, nothing of ours imported.

pub mod decision;
pub mod economy;
pub mod estimate;
pub mod event;
pub mod expression;
pub mod file;
pub mod form;
pub mod ident;
pub mod killpoint;
pub mod layout;
pub mod location;
pub mod mode;
pub mod outcome;
pub mod outside;
pub mod partition;
pub mod plan;
pub mod policy;
pub mod preset;
pub mod refusal;
pub mod requests;
pub mod schedule;
pub mod table;
pub mod traits;
pub mod window;
pub mod wire;
pub mod writers;
