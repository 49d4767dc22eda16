//! Apache Iceberg behind the [`Format`](crate::lake::Format) port.

pub mod catalog;
pub mod hash;
pub mod read;
pub mod rewrite;
pub mod table;
pub mod verify;
