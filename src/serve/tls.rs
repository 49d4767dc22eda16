//! The one cryptography provider of the process.

/// Makes `ring` the process' provider unless there is one already. Several are
/// compiled in by our dependencies, and rustls panics rather than choose.
pub fn settle_provider() {
    let _already_settled = rustls::crypto::ring::default_provider().install_default();
}
