//! Accepts connections, and lets them end.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::forward;
use super::gate::Gate;
use super::headers::Asked;

/// How long a client may take for its half of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, which happens when the
/// process is out of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Listens until `stop`. Returns the address bound.
pub async fn listen(addr: SocketAddr, gate: Arc<Gate>, tls: Option<TlsAcceptor>, stop: CancellationToken) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Bind { addr, source };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let tracker = gate.tracker.clone();
    tracker.spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => drop(gate.tracker.spawn(connection(Arc::clone(&gate), stream, peer, tls.clone(), stop.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "the proxy could not accept a connection");
                        tokio::time::sleep(BREATH).await;
                    }
                },
            }
        }
    });
    Ok(bound)
}

async fn connection(gate: Arc<Gate>, stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, stop: CancellationToken) {
    let Ok(local) = stream.local_addr() else { return };
    let _only_slower = stream.set_nodelay(true);
    let asked = Asked { peer, local, tls: tls.is_some() };
    let Some(tls) = tls else { return serve(gate, stream, asked, stop).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(gate, stream, asked, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, %peer, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
    }
}

/// Serves one connection. Idle connections stay open for as long as the client
/// likes: one closed by us in the wrong moment would look like a lost answer.
async fn serve<S>(gate: Arc<Gate>, stream: S, asked: Asked, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| forward::answer(Arc::clone(&gate), asked.clone(), request));
    let connection = http1::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// TLS with a certificate chain and key from PEM files.
pub async fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, Error> {
    let wrong = |path: &Path, why: String| Error::Pem { path: path.to_owned(), why };
    let chain = tokio::fs::read(cert).await.map_err(|e| wrong(cert, e.to_string()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|e| wrong(cert, e.to_string()))?;
    let secret = tokio::fs::read(key).await.map_err(|e| wrong(key, e.to_string()))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|e| wrong(key, format!("holds no private key: {e}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(cert, e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| wrong(cert, format!("is not a certificate chain for the key: {e}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
