//! What is free, read from an endpoint that answers, fails, and answers again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwrite::observe::gauge::{Gauge, Options, Reading};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use super::HandClock;

const NOW: i64 = 1_700_000_000_000;

/// What the endpoint answers next, and what it was asked last.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<(u16, String, Vec<String>)>>);

impl Page {
    fn set(&self, status: u16, text: &str) {
        let mut page = self.0.lock().unwrap();
        (page.0, page.1) = (status, text.to_owned());
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().2.clone()
    }
}

async fn answer(State(page): State<Page>, uri: Uri, headers: HeaderMap) -> Response {
    let mut page = page.0.lock().unwrap();
    let bearer = headers.get("authorization").map_or("", |v| v.to_str().unwrap());
    page.2.push(format!("{uri} {bearer}"));
    (StatusCode::from_u16(page.0).unwrap(), page.1.clone()).into_response()
}

async fn endpoint() -> (Page, String) {
    let page = Page::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/federate?match[]=free", listener.local_addr().unwrap());
    let router = Router::new().route("/federate", get(answer)).with_state(page.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (page, url)
}

fn options(url: &str) -> Options {
    Options {
        url: url.to_owned(),
        metric: "free".into(),
        labels: BTreeMap::from([("pool".to_owned(), "batch".to_owned())]),
        unit_bytes: 1e6,
        every: Duration::from_secs(30),
        max_age_ms: 60_000,
        token: Some("secret".into()),
    }
}

#[tokio::test]
async fn what_is_free_is_read_with_its_age_and_what_stands_in_the_way_is_named() {
    let (page, url) = endpoint().await;
    let gauge = Gauge::open(options(&url), HandClock::at(NOW)).unwrap();
    page.set(200, "free{pool=\"batch\",n=\"1\"} 1500\nfree{pool=\"batch\",n=\"2\"} 500\nfree{pool=\"other\"} 9\n");
    assert_eq!(gauge.read().await, Ok(Reading { gb: 2.0, until_ms: NOW + 60_000 }));
    assert_eq!(page.asked(), ["/federate?match[]=free Bearer secret"]);
    // a number's own time is what it ages by; one from the future is of now
    page.set(200, &format!("free{{pool=\"batch\"}} 1 {}", NOW - 20_000));
    assert_eq!(gauge.read().await, Ok(Reading { gb: 0.001, until_ms: NOW + 40_000 }));
    page.set(200, &format!("free{{pool=\"batch\"}} 1 {}", NOW + 20_000));
    assert_eq!(gauge.read().await.unwrap().until_ms, NOW + 60_000);
    page.set(200, &format!("free{{pool=\"batch\"}} 1 {}", NOW - 60_000));
    assert_eq!(gauge.read().await, Err("free is 60 s old, and holds for 60 s".into()));
    page.set(200, "other 1");
    assert_eq!(gauge.read().await, Err("there is no sample of free".into()));
    page.set(302, "");
    assert_eq!(gauge.read().await, Err(format!("{url} answers 302 Found")));
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gauge = Gauge::open(options(&format!("http://{nobody}")), HandClock::at(NOW)).unwrap();
    assert!(gauge.read().await.unwrap_err().starts_with(&format!("http://{nobody} does not answer: ")));
}

#[tokio::test]
async fn an_endpoint_that_fails_is_asked_on() {
    let (page, url) = endpoint().await;
    let (clock, stop) = (HandClock::at(NOW), CancellationToken::new());
    let gauge = Gauge::open(options(&url), Arc::clone(&clock) as _).unwrap();
    let told: Arc<Mutex<Vec<f64>>> = Arc::default();
    let (heard, stopped) = (Arc::clone(&told), stop.clone());
    page.set(200, "free{pool=\"batch\"} 1000");
    let running = tokio::spawn(async move { gauge.run(stopped, move |read| heard.lock().unwrap().push(read.gb)).await });
    let asked = async |times: usize| {
        while page.asked().len() < times {
            clock.pass(1000);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    asked(1).await;
    page.set(500, "");
    asked(3).await;
    page.set(200, "free{pool=\"batch\"} 3000");
    asked(6).await;
    stop.cancel();
    running.await.unwrap();
    let told = told.lock().unwrap().clone();
    assert!(told.starts_with(&[1.0]) && told.ends_with(&[3.0]) && told.len() < page.asked().len(), "{told:?}");
}
