//! Where log lines go: standard error, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error. `filter` is written as in `RUST_LOG`, such
/// as `info,afterwrite=debug`.
///
/// # Errors
/// When the filter cannot be read, or the process logs already.
pub fn init(format: Format, filter: &str) -> anyhow::Result<()> {
    let parsed =
        EnvFilter::try_new(filter).map_err(|e| anyhow::anyhow!("log filter `{filter}`: {e}; write it like `info,afterwrite=debug`"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(parsed).with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    let done = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
    done.map_err(|e| anyhow::anyhow!("logging: {e}"))
}
