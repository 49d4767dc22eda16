//! Compiles the public protocol.

fn main() {}
