//! Hears of commits: the doors, and the inbox behind them.
//!
//! Every door turns what it hears into an [`Event`](crate::model::event::Event)
//! and gives it to the [`Inbox`], which merges any number of events about one
//! branch of one table into one look at it. The [`poll`]er makes every other
//! door merely a speed-up.

pub mod grpc;
pub mod inbox;
mod memory;
pub mod poll;
pub mod proxy;
mod queue;
pub mod roster;

pub use inbox::{Inbox, Look};
pub use roster::{Known, Roster};
