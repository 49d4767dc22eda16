//! Binds the addresses, runs the services, and drains them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::{Router, Server};
use tonic::transport::{Identity, ServerTlsConfig};
use tonic_health::server::HealthReporter;

use super::backend::Backend;
use super::guard::{Guard, Token};
use super::hook::Hook;
use super::http;
use super::layout::Layouts;
use super::listen::{Refusal, check_listen};
use super::plain::Plain;
use super::statistics::Told;
use super::tls::settle_provider;
use crate::proto::DESCRIPTORS;
use crate::proto::services::commit_hook_server::CommitHookServer;
use crate::proto::services::layout_server::LayoutServer;
use crate::proto::services::statistics_server::StatisticsServer;

/// What to listen on, and who may call.
#[derive(Clone, Debug)]
pub struct Options {
    /// gRPC address; port 0 takes a free one.
    pub grpc: SocketAddr,
    /// HTTP address of `/metrics`, `/healthz` and the HTTP door; `None` for none.
    pub http: Option<SocketAddr>,
    /// The token that callers must show: of all gRPC services but health, and of
    /// the HTTP door.
    pub token: Option<Token>,
    /// Certificate and key of the gRPC address.
    pub tls: Option<Tls>,
    /// Addresses beyond loopback are meant, even without TLS and token.
    pub insecure: bool,
    /// Largest message taken, in bytes.
    pub max_message_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self { grpc: loopback(7411), http: Some(loopback(7412)), token: None, tls: None, insecure: false, max_message_bytes: 4 << 20 }
    }
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why the services do not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address would be open to others.
    #[error(transparent)]
    Open(#[from] Refusal),
    /// The address cannot be listened on.
    #[error("{addr}: {source}; is another afterwrite running? choose another address with {option}")]
    Bind {
        /// The option that names it, and its key in the settings.
        option: &'static str,
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A PEM file cannot be read.
    #[error("TLS file {path}: {source}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The services cannot be set up.
    #[error("the services cannot be set up: {0}")]
    Setup(String),
}

/// Services that run. Dropping it leaves them running; [`Running::drain`] ends them.
pub struct Running {
    grpc: SocketAddr,
    http: Option<SocketAddr>,
    stop: CancellationToken,
    health: HealthReporter,
    tasks: Vec<JoinHandle<()>>,
}

/// Starts the services on a `backend`. `metrics` is rendered at `/metrics`.
///
/// # Errors
/// When an address may not or cannot be listened on, or a TLS file is not valid.
/// Nothing runs then.
pub async fn start(backend: Arc<dyn Backend>, options: &Options, metrics: PrometheusHandle) -> Result<Running, Error> {
    check_listen(options.grpc, options.tls.is_some(), options.token.is_some(), options.insecure)?;
    if let Some(http) = options.http {
        check_listen(http, false, false, options.insecure).map_err(|refusal| Refusal { missing: "it speaks no TLS", ..refusal })?;
    }
    let stop = CancellationToken::new();
    let (health, router) = services(&backend, options, &stop).await?;
    let (grpc, grpc_addr) = bind(options.grpc, "--listen or server.listen").await?;
    let mut http_addr = None;
    let mut tasks = Vec::new();
    if let Some(addr) = options.http {
        let (listener, bound) = bind(addr, "--http or server.http").await?;
        http_addr = Some(bound);
        let router = http::router(backend.clone(), metrics.clone(), Guard(options.token.clone()), options.max_message_bytes);
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        tasks.push(tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the HTTP service ended");
            }
        }));
    }
    tasks.push(tokio::spawn(keep_up(metrics, stop.clone())));
    let ended = stop.clone().cancelled_owned();
    tasks.push(tokio::spawn(async move {
        if let Err(error) = router.serve_with_incoming_shutdown(TcpListenerStream::new(grpc), ended).await {
            tracing::error!(%error, "the gRPC service ended");
        }
    }));
    Ok(Running { grpc: grpc_addr, http: http_addr, stop, health, tasks })
}

/// Folds recorded durations into their buckets, which a scrape does too: without
/// either they would pile up.
async fn keep_up(metrics: PrometheusHandle, stop: CancellationToken) {
    let mut beat = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = beat.tick() => metrics.run_upkeep(),
        }
    }
}

async fn bind(addr: SocketAddr, option: &'static str) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Bind { addr, option, source };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Every service, with the token asked for by all but health.
async fn services(backend: &Arc<dyn Backend>, options: &Options, stop: &CancellationToken) -> Result<(HealthReporter, Router), Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let guard = Guard(options.token.clone());
    let hook = CommitHookServer::new(Hook { backend: backend.clone(), stop: stop.clone() });
    let layout = LayoutServer::new(Layouts { backend: backend.clone(), stop: stop.clone() });
    let statistics = StatisticsServer::new(Told { backend: backend.clone() }).max_decoding_message_size(options.max_message_bytes);
    let hook = hook.max_decoding_message_size(options.max_message_bytes);
    let layout = layout.max_decoding_message_size(options.max_message_bytes);
    reporter.set_serving::<CommitHookServer<Hook>>().await;
    reporter.set_serving::<LayoutServer<Layouts>>().await;
    reporter.set_serving::<StatisticsServer<Told>>().await;
    let setup = |e: tonic_reflection::server::Error| Error::Setup(e.to_string());
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let v1 = describe().build_v1().map_err(setup)?;
    let v1alpha = describe().build_v1alpha().map_err(setup)?;
    let router = builder(options)
        .await?
        .add_service(health)
        .add_service(InterceptedService::new(Plain(hook), guard.clone()))
        .add_service(InterceptedService::new(Plain(layout), guard.clone()))
        .add_service(InterceptedService::new(Plain(statistics), guard.clone()))
        .add_service(InterceptedService::new(v1, guard.clone()))
        .add_service(InterceptedService::new(v1alpha, guard));
    Ok((reporter, router))
}

async fn builder(options: &Options) -> Result<Server, Error> {
    let server = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .max_concurrent_streams(256)
        .http2_max_header_list_size(16 << 10);
    let Some(tls) = &options.tls else { return Ok(server) };
    settle_provider();
    let identity = Identity::from_pem(read(&tls.cert).await?, read(&tls.key).await?);
    server.tls_config(ServerTlsConfig::new().identity(identity)).map_err(|e| {
        let cause = std::error::Error::source(&e).map(|s| format!(": {s}")).unwrap_or_default();
        Error::Setup(format!(
            "TLS: {} and {} are not a PEM certificate chain and its key: {e}{cause}",
            tls.cert.display(),
            tls.key.display()
        ))
    })
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    tokio::fs::read(path).await.map_err(|source| Error::Pem { path: path.clone(), source })
}

impl Running {
    /// The gRPC address bound.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc
    }

    /// The HTTP address bound.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Takes no new call, ends the streams, lets calls under way finish for at
    /// most `patience`. Returns whether all finished.
    pub async fn drain(self, patience: Duration) -> bool {
        self.health.set_not_serving::<CommitHookServer<Hook>>().await;
        self.health.set_not_serving::<LayoutServer<Layouts>>().await;
        self.health.set_not_serving::<StatisticsServer<Told>>().await;
        self.health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        self.stop.cancel();
        let deadline = tokio::time::sleep(patience);
        tokio::pin!(deadline);
        let mut all = true;
        for mut task in self.tasks {
            tokio::select! {
                _ = &mut task => {}
                () = &mut deadline, if all => {
                    all = false;
                    task.abort();
                }
                () = std::future::ready(()), if !all => task.abort(),
            }
        }
        all
    }
}
