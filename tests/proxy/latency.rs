//! What the proxy adds to a catalog call. The figures are for reading: run
//! `cargo test --release --test all proxy::latency -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpStream;

use super::upstream::{Reply, append};
use super::{Client, Stage};

const CALLS: usize = 4_000;
const T: &str = "/v1/namespaces/db/tables/t";

#[expect(clippy::disallowed_methods, reason = "the test measures real time")]
async fn measure(client: &mut Client, method: &str, body: &[u8]) -> Vec<Duration> {
    let mut took = Vec::new();
    for call in 0..CALLS + CALLS / 10 {
        let began = Instant::now();
        let answer = client.ask(method, T, &["Authorization: Bearer x"], body).await.unwrap();
        assert_eq!(answer.status, 200);
        if call >= CALLS / 10 {
            took.push(began.elapsed());
        }
    }
    took.sort();
    took
}

fn at(took: &[Duration], share: f64) -> f64 {
    took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn overhead_a_call() {
    let stage = Stage::new(30_000).await;
    let metadata = json!({"metadata-location": "s3://b/1.json", "metadata": {"table-uuid": "d335aecc-04db-4223-a213-c7ac5ffef216", "pad": "x".repeat(16 << 10)}});
    stage.world.script(T, vec![Reply::json(200, &metadata)]);
    let commit = append(Some(1), &[2]).to_string();
    for (what, method, body) in [("load, 16 KiB", "GET", ""), ("commit, 16 KiB", "POST", commit.as_str())] {
        let mut direct = Client(TcpStream::connect(stage.world.addr).await.unwrap());
        let mut through = stage.client().await;
        for side in [&mut direct, &mut through] {
            side.0.set_nodelay(true).unwrap();
        }
        let direct = measure(&mut direct, method, body.as_bytes()).await;
        let through = measure(&mut through, method, body.as_bytes()).await;
        let line = |took: &[Duration]| format!("p50 {:.0} µs, p99 {:.0} µs", at(took, 0.5), at(took, 0.99));
        println!(
            "{what}: direct {}; proxy {}; added p50 {:.0} µs, p99 {:.0} µs",
            line(&direct),
            line(&through),
            at(&through, 0.5) - at(&direct, 0.5),
            at(&through, 0.99) - at(&direct, 0.99)
        );
    }
}
