//! Orient against a table in memory.

pub mod fake;

pub mod absorb;
mod checkpoint;
mod identity;
mod killed;
