//! Apache Iceberg behind the [`Format`](crate::lake::Format) port.

pub mod catalog;
pub mod metrics;
pub mod properties;
pub mod read;
pub mod rewrite;
pub mod table;
