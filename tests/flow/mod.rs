//! The whole act on a lake in memory: whatever fails, rows stay right, no file is
//! unaccounted for, and no job or lease is stuck.

pub mod fake;
pub mod world;

mod faults;
mod join;
mod kills;
mod random;
mod run;
mod undo;
