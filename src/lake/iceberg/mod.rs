//! Apache Iceberg behind the [`Format`](crate::lake::Format) port.

pub mod append;
pub mod carry;
pub mod catalog;
pub mod columns;
pub mod commit;
pub mod hash;
pub mod lake;
pub mod lineage;
pub mod manifest;
pub mod metrics;
pub mod port;
pub mod positions;
pub mod properties;
pub mod read;
pub mod rewrite;
pub mod scope;
pub mod spread;
pub mod store;
pub mod table;
pub mod vectors;
pub mod verify;
