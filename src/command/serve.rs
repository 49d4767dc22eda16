//! `serve`: the sidecar, until a signal ends it.

use crate::app::App;
use crate::cli::Exit;
use crate::cli::args::Serve;
use crate::serve::{Options, Tls, Token};
use crate::settings::{Server, Settings};
use crate::telemetry;

use super::Failure;
use super::signals::Signals;

/// Runs until SIGINT or SIGTERM, then drains; a second signal ends at once.
pub async fn run(settings: Settings, args: &Serve) -> Result<Exit, Failure> {
    let options = options(&settings.server, args)?;
    let app = App::new(settings).await?;
    let sidecar = app.serve(&options, telemetry::install()?).await?;
    eprintln!("grpc listens on {}", sidecar.running().grpc_addr());
    if let Some(http) = sidecar.running().http_addr() {
        eprintln!("http listens on http://{http} (/metrics, /healthz, /readyz)");
    }
    for proxy in sidecar.proxies() {
        eprintln!("proxy of catalog {} listens on {}, in front of {}", proxy.catalog(), proxy.url(), proxy.upstream());
    }
    if app.settings.catalogs.is_empty() {
        eprintln!("no catalog is configured: nothing will be looked after; `afterwrite config --example` shows how");
    }
    let signals = Signals::listen("draining")?;
    signals.asked().await;
    sidecar.stop().await;
    Ok(Exit::Done)
}

/// The settings, with what the command line says instead.
fn options(server: &Server, args: &Serve) -> Result<Options, Failure> {
    let token = args.token.as_ref().or(server.token.as_ref()).filter(|t| !t.is_empty());
    let token = token
        .map(|text| {
            Token::new(text).ok_or_else(|| Failure::new(Exit::Settings, "server.token: write visible ASCII characters without spaces"))
        })
        .transpose()?;
    let cert = args.tls_cert.clone().or_else(|| server.tls_cert.clone());
    let key = args.tls_key.clone().or_else(|| server.tls_key.clone());
    Ok(Options {
        grpc: args.listen.unwrap_or(server.listen),
        http: Some(args.http.unwrap_or(server.http)),
        token,
        tls: cert.zip(key).map(|(cert, key)| Tls { cert, key }),
        insecure: args.insecure || server.insecure,
        max_message_bytes: usize::try_from(server.max_message_bytes).unwrap_or(usize::MAX),
    })
}
