//! What the process answers to the outside: gRPC services, health, reflection,
//! metrics.

mod api;
pub mod backend;
pub mod client;
mod guard;
mod hold;
mod hook;
mod http;
mod layout;
mod listen;
mod map;
mod plain;
mod server;
mod statistics;
mod tls;
pub mod told;

pub use backend::Backend;
pub use guard::Token;
pub use listen::{Refusal as ListenRefusal, check_listen};
pub use map::decision as decision_message;
pub use server::{Error, Options, Running, Tls, start};
pub use tls::settle_provider;
