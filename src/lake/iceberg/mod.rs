//! Apache Iceberg behind the [`Format`](crate::lake::Format) port.

pub mod catalog;
pub mod hash;
pub mod lake;
pub mod manifest;
pub mod metrics;
pub mod properties;
pub mod read;
pub mod rewrite;
pub mod store;
pub mod table;
pub mod verify;
