//! The public protocol, `afterwrite.v1`, generated from `proto/`.

/// Messages and services, version 1.
#[allow(missing_docs, clippy::all, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub mod v1 {
    tonic::include_proto!("afterwrite.v1");
}

/// The protocol's descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/afterwrite.v1.bin"));
