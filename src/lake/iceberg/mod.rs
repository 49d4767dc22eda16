//! Apache Iceberg behind the [`Format`](crate::lake::Format) port.

pub mod catalog;
