//! The demo.
pub mod generate;

/// x
pub async fn run(_args: &crate::cli::args::Demo, _json: bool) -> anyhow::Result<crate::cli::Exit> {
    anyhow::bail!("not yet")
}
