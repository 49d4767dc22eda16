//! Compiles the public protocol, without `protoc`, and keeps its descriptors
//! for reflection.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 3] = ["afterwrite/v1/table.proto", "afterwrite/v1/commit_hook.proto", "afterwrite/v1/layout.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("afterwrite.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
