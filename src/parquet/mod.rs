//! Parquet files as such: what a footer claims and how far it can be believed,
//! and pages: chunks of one column joined without decoding their values.
//! Knows nothing of tables.

pub mod anew;
pub mod body;
pub mod chunk;
pub mod codec;
pub mod compare;
pub mod delta;
pub mod dictionary;
pub mod ends;
pub mod fault;
pub mod gather;
pub mod header;
pub mod hybrid;
pub mod index;
pub mod pieces;
pub mod repack;
pub mod rooms;
pub mod sequence;
pub mod statistics;
pub mod tap;
pub mod thrift;
pub mod trust;
pub mod whole;
pub mod window;
