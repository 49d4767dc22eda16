//! The whole loop over real Iceberg tables in memory: the real inbox, orient,
//! decide, act and Iceberg room, with a clock that a test moves by hand.

mod ahead;
mod branches;
mod budgets;
mod conflicts;
mod doors;
mod economy;
mod events;
mod loops;
mod memory;
mod modes;
mod recording;
mod restarts;
mod scoping;
mod sidecars;
mod spy;
mod tables;
mod tiers;
mod time;
mod troubles;
pub mod world;
mod yielding;
