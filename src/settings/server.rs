//! The doors.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::section::Section;
use super::units;

/// Where to listen, and who may speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Address of the gRPC door.
    pub listen: SocketAddr,
    /// Address of metrics and health.
    pub http: SocketAddr,
    /// Certificate chain in PEM.
    pub tls_cert: Option<PathBuf>,
    /// Its private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// The bearer token that callers must show.
    pub token: Option<String>,
    /// Listen beyond loopback without TLS and a token.
    pub insecure: bool,
    /// Largest message that is accepted, in bytes.
    pub max_message_bytes: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7411)),
            http: SocketAddr::from(([127, 0, 0, 1], 7412)),
            tls_cert: None,
            tls_key: None,
            token: None,
            insecure: false,
            max_message_bytes: 4 << 20,
        }
    }
}

impl Server {
    pub(super) fn from_section(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let server = Self {
            listen: section.read("listen", address).unwrap_or(default.listen),
            http: section.read("http", address).unwrap_or(default.http),
            tls_cert: section.read("tls_cert", units::word).map(PathBuf::from),
            tls_key: section.read("tls_key", units::word).map(PathBuf::from),
            token: section.read("token", super::uri::token),
            insecure: section.read("insecure", units::flag).unwrap_or(default.insecure),
            max_message_bytes: section.read("max_message_bytes", units::some_size).unwrap_or(default.max_message_bytes),
        };
        server.check(&mut section);
        section.finish();
        server
    }

    /// Whether an address may be listened on is judged by who listens, when the
    /// command line is known as well.
    fn check(&self, section: &mut Section<'_>) {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => section.mistake("tls_key", "tls_cert is set without its key"),
            (None, Some(_)) => section.mistake("tls_cert", "tls_key is set without its certificate"),
            _ => {}
        }
    }
}

/// An address to listen on.
pub(super) fn address(value: &figment::value::Value) -> units::Read<SocketAddr> {
    let written = units::text(value)?;
    written.trim().parse().map_err(|_| format!("`{written}` is not an address; write for example 127.0.0.1:7411 or [::1]:7411"))
}
