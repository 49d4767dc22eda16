//! Apache Iceberg behind the [`Format`](crate::lake::Format) port.

pub mod catalog;
pub mod commit;
pub mod lake;
pub mod manifest;
pub mod read;
pub mod rewrite;
pub mod scope;
pub mod store;
pub mod table;
