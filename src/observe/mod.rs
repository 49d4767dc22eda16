//! Hears of commits: the doors, and the inbox behind them.
//!
//! Every door turns what it hears into an [`Event`](crate::model::event::Event)
//! and gives it to the [`Inbox`], which merges any number of events about one
//! branch of one table into one look at it. The [`poll`]er makes every other
//! door merely a speed-up.

pub mod branches;
pub mod decode;
pub mod entrance;
pub mod gauge;
pub mod grpc;
pub mod http;
pub mod inbox;
pub mod kafka;
pub mod ledger;
mod memory;
mod owed;
pub mod poll;
pub mod proxy;
mod queue;
pub mod receipt;
pub mod roster;

pub use branches::Branches;
pub use entrance::Entrance;
pub use inbox::{Inbox, Look};
pub use ledger::Ledger;
pub use receipt::Receipt;
pub use roster::{Known, Roster};
