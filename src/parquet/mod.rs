//! Parquet files as such: what a footer claims, and how far it can be believed.
//! Knows nothing of tables.

pub mod tap;
pub mod trust;
