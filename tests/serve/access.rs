//! Tokens, TLS, and addresses that may not be listened on.

use std::net::SocketAddr;

use afterwrite::serve::client::{self, Client, Target};
use afterwrite::serve::{Error, Tls, Token};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;

fn target(scheme: &str, running: &Running, token: Option<&str>) -> Target {
    let server = format!("{scheme}://localhost:{}", running.grpc_addr().port());
    Target { server, token: token.map(|t| Token::new(t).unwrap()), ca: None }
}

async fn report(target: &Target) -> Result<v1::Ack, client::Error> {
    Client::connect(target).await?.report(thin("lake.db.t")).await
}

fn code(result: Result<v1::Ack, client::Error>) -> Code {
    match result {
        Ok(_) => Code::Ok,
        Err(client::Error::Answered { code, .. }) => code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_call_without_the_token_is_turned_away_and_health_needs_none() {
    let fake = Fake::new();
    let running = running(&fake, &Options { token: Token::new("s3cret"), ..options() }).await;
    let mut codes = Vec::new();
    for token in [None, Some("wrong"), Some("s3cre"), Some("s3cret")] {
        codes.push(code(report(&target("http", &running, token)).await));
    }
    assert_eq!(codes, [Code::Unauthenticated, Code::Unauthenticated, Code::Unauthenticated, Code::Ok]);
    assert_eq!(fake.heard.lock().unwrap().len(), 1);
    let health = HealthClient::new(channel(&running).await).check(HealthCheckRequest { service: String::new() }).await;
    assert_eq!(health.unwrap().into_inner().status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    let layout = layouts(&running).await.get_layout(v1::GetLayoutRequest::default()).await;
    assert_eq!(layout.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn each_service_says_whether_it_serves() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut health = HealthClient::new(channel(&running).await);
    for service in ["", "afterwrite.v1.CommitHook", "afterwrite.v1.Layout", "afterwrite.v1.Statistics"] {
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner();
        assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving, "{service}");
    }
    let unknown = health.check(HealthCheckRequest { service: "x".into() }).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn tls_is_spoken_with_certificate_and_key_from_pem_files() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tls = Tls { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&tls.cert, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let fake = Fake::new();
    let running = running(&fake, &Options { tls: Some(tls.clone()), token: Token::new("s3cret"), ..options() }).await;
    let trusting = Target { ca: Some(tls.cert), ..target("https", &running, Some("s3cret")) };
    assert_eq!(code(report(&trusting).await), Code::Ok);
    let distrusting = report(&target("https", &running, Some("s3cret"))).await.unwrap_err();
    assert!(matches!(distrusting, client::Error::Unreachable { .. }), "{distrusting}");
    assert_eq!(fake.heard.lock().unwrap().len(), 1);
}

async fn refused(options: Options) -> Error {
    let metrics = afterwrite::telemetry::recorder().unwrap().handle();
    start(Fake::new(), &options, metrics).await.err().unwrap()
}

#[tokio::test]
async fn what_is_wrong_with_tls_files_is_said_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let tls = Tls { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let missing = refused(Options { tls: Some(tls.clone()), ..options() }).await.to_string();
    assert!(missing.contains("cert.pem: No such file"), "{missing}");
    std::fs::write(&tls.cert, "no pem").unwrap();
    std::fs::write(&tls.key, "no pem").unwrap();
    let wrong = refused(Options { tls: Some(tls), ..options() }).await.to_string();
    assert!(wrong.contains("are not a PEM certificate chain and its key"), "{wrong}");
}

#[tokio::test]
async fn an_open_address_without_tls_and_token_is_not_listened_on() {
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let grpc = refused(Options { grpc: open, ..options() }).await;
    assert!(matches!(&grpc, Error::Open(r) if r.missing == "neither TLS nor a token is configured"), "{grpc}");
    let http = refused(Options { http: Some(open), ..options() }).await;
    assert!(matches!(http, Error::Open(_)), "{http}");
    let fake = Fake::new();
    let running = running(&fake, &Options { grpc: open, insecure: true, ..options() }).await;
    assert_eq!(code(report(&target("http", &running, None)).await), Code::Ok);
}

#[tokio::test]
async fn a_taken_address_is_told() {
    let taken = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let error = refused(Options { grpc: taken.local_addr().unwrap(), ..options() }).await.to_string();
    assert!(error.contains("is another afterwrite running?"), "{error}");
}

#[tokio::test]
async fn a_client_without_a_server_is_told_what_to_do() {
    let free = tokio::net::TcpListener::bind(loopback()).await.unwrap().local_addr().unwrap();
    let at = |server: String| Target { server, token: None, ca: None };
    let error = report(&at(format!("http://{free}"))).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("no sidecar answers at http://{free}: ")) && error.contains("afterwrite serve"), "{error}");
    for wrong in ["", "localhost:7411", "ftp://x", "http://"] {
        let error = report(&at(wrong.into())).await.unwrap_err();
        assert!(matches!(error, client::Error::Address(_)), "{wrong}: {error}");
    }
}
