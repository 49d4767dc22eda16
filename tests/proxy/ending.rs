//! How a proxy comes up, guards itself, and keeps secrets.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use afterwrite::lake::clock::SystemClock;
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::proxy::{self, Error, Ledger, Options, Ports};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing_subscriber::fmt::MakeWriter;

use super::Stage;
use super::upstream::{Fault, append};

fn ports() -> Ports {
    let inbox = Inbox::new(Arc::new(SystemClock), Limits::default());
    Ports { inbox, heeds: Arc::new(Ledger::default()), clock: Arc::new(SystemClock) }
}

async fn refused(change: impl FnOnce(&mut Options)) -> Error {
    let mut options = Options::new("lake", "http://127.0.0.1:1");
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    change(&mut options);
    proxy::start(&options, ports()).await.err().unwrap()
}

#[tokio::test]
async fn an_address_that_others_reach_needs_tls_or_the_users_word() {
    let open = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(refused(|o| o.listen = open).await, Error::Open(addr) if addr == open));
    let mut meant = Options::new("lake", "http://127.0.0.1:1");
    (meant.listen, meant.insecure) = (open, true);
    proxy::start(&meant, ports()).await.unwrap().drain(std::time::Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_with_the_reason() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    assert!(matches!(refused(|o| o.listen = taken.local_addr().unwrap()).await, Error::Bind { .. }));
    assert!(matches!(refused(|o| o.upstream = "sqlite:///x".into()).await, Error::Upstream(_)));
    let missing = std::path::PathBuf::from("/no/such/file.pem");
    assert!(matches!(refused(|o| o.tls = Some((missing.clone(), missing.clone()))).await, Error::Pem { path, .. } if path == missing));
}

#[tokio::test]
async fn tls_is_spoken_with_certificate_and_key_from_pem_files() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let stage = Stage::with(|options| options.tls = Some((cert, key))).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(stage.proxy.addr()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    stream.write_all(b"GET /v1/namespaces/db/tables/t HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let head = &stage.world.hits()[0].head;
    assert!(head.contains("x-forwarded-proto: https") && head.contains("x-forwarded-port: 443"), "{head}");
    assert!(stage.proxy.url().starts_with("https://127.0.0.1:"));
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Heard {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn secrets_are_never_logged() {
    let log = Heard::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let stage = Stage::new(300).await;
    stage.world.table("/v1/namespaces/db/tables/t", &[1]);
    for fault in [Fault::After(500), Fault::AfterDrop, Fault::Before(503), Fault::BeforeDrop] {
        stage.world.table("/v1/namespaces/db/tables/t", &[1]);
        stage.world.fault(fault);
        stage.commit("/v1/namespaces/db/tables/t", &append(Some(1), &[2]).to_string()).await;
    }
    let form = b"grant_type=client_credentials&client_secret=hidden-s3cret";
    stage.ask("POST", "/v1/oauth/tokens", &[], form).await.unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("looked at the table"), "the log was heard: {text}");
    for secret in ["s3cret", "vended", "Bearer"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
