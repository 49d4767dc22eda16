//! Compiles the public protocol, without `protoc`, and keeps its descriptors
//! for reflection.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 4] =
    ["afterwrite/v1/table.proto", "afterwrite/v1/commit_hook.proto", "afterwrite/v1/layout.proto", "afterwrite/v1/statistics.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("afterwrite.v1.bin"), descriptors.encode_to_vec())?;
    // of these the JSON is that of the message
    let told = [".afterwrite.v1.Traits", ".afterwrite.v1.Check", ".afterwrite.v1.LastJob"];
    let said = |how: &str| format!("#[serde(serialize_with = \"crate::serve::told::{how}\")]");
    told.iter()
        .fold(tonic_prost_build::configure().build_server(false), |build, message| {
            build.type_attribute(message, "#[derive(serde::Serialize)]")
        })
        .field_attribute(".afterwrite.v1.Traits.small_tiers", "#[serde(skip)]")
        .field_attribute(".afterwrite.v1.Traits.outside", said("by_name"))
        .field_attribute(".afterwrite.v1.Check.kind", said("kind"))
        .field_attribute(".afterwrite.v1.LastJob.path", said("unless_empty"))
        .field_attribute(".afterwrite.v1.LastJob.path_reason", said("unless_empty"))
        .compile_fds(descriptors.clone())?;
    // the services take our own words of a message that cannot be read
    let services = out.join("services");
    std::fs::create_dir_all(&services)?;
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".afterwrite.v1.SequencedEvent", "crate::proto::Sequenced")
        .extern_path(".afterwrite.v1", "crate::proto::v1")
        .codec_path("crate::proto::Codec")
        .out_dir(&services)
        .compile_fds(descriptors)?;
    Ok(())
}
