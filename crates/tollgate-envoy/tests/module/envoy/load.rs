//! Tests Envoy under load: exact limits across workers, listeners and protocols, as well as reloads
//! and memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use http::{HeaderValue, Method, StatusCode};

use super::client::{BlockingClient, Client, from, run, upstream};
use super::process::{Envoy, Front, newest};

/// Counts the answers that clients received.
#[derive(Default)]
struct Tally {
    admitted: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    fn add(&self, status: StatusCode) {
        let count = match status.as_u16() {
            200 => &self.admitted,
            429 => &self.refused,
            other => panic!("status {other}"),
        };
        // ORDERING: relaxed, because the tasks end before the counts are read.
        count.fetch_add(1, Relaxed);
    }

    fn counts(&self) -> (u64, u64) {
        // ORDERING: relaxed, as above.
        (self.admitted.load(Relaxed), self.refused.load(Relaxed))
    }
}

/// Sends a single client's requests over several connections, for as long as `goes_on` returns
/// true.
async fn load(
    port: u16,
    connections: u64,
    tally: &Arc<Tally>,
    goes_on: impl Fn(u64) -> bool + Clone + Send + 'static,
) {
    let mut tasks = Vec::new();
    for number in 0..connections {
        let (tally, goes_on) = (Arc::clone(tally), goes_on.clone());
        tasks.push(tokio::spawn(async move {
            let is_two = number % 2 == 1;
            let mut client = Client::connect(port, is_two).await;
            let mut sent = 0;
            while goes_on(sent) {
                let mut request = from("192.0.2.1");
                if sent % 3 == 0 {
                    *request.method_mut() = Method::POST;
                    request
                        .headers_mut()
                        .insert("content-type", HeaderValue::from_static("application/grpc"));
                }
                // When a listener is replaced, Envoy closes the listener's HTTP/1.1 connections
                // either before or after a response.
                match client.send(request).await {
                    Ok(response) if response.headers().contains_key("grpc-status") => {
                        assert_eq!(response.headers()["grpc-status"], "8");
                        tally.add(StatusCode::TOO_MANY_REQUESTS);
                    }
                    Ok(response) => tally.add(response.status()),
                    Err(_) => {
                        client = Client::connect(port, is_two).await;
                        continue;
                    }
                }
                sent += 1;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn two_workers_and_two_listeners_admit_exactly_the_quota() {
    run(async {
        let fronts = [(); 2].map(|()| Front::new("exact", "limit = [\"a=10000/30d by ip\"]"));
        let envoy = Envoy::start(&newest(), upstream().await, &fronts);
        let tally = Arc::new(Tally::default());
        let of = |front: &Front| load(front.port, 8, &tally, |sent| sent < 1500);
        tokio::join!(of(&fronts[0]), of(&fronts[1]));
        assert_eq!(tally.counts(), (10_000, 14_000));
        let counted = ["allowed", "denied"].map(|outcome| envoy.counter(&format!("exact.a.{outcome}")));
        assert_eq!(counted, [10_000, 14_000]);
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn reloads_under_load_keep_the_count() {
    run(async {
        let mut front = Front::new("reloads", "limit = [\"a=10000/30d by ip\"]");
        let mut envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        let (tally, ends) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let stops = Arc::clone(&ends);
        // ORDERING: relaxed, because the tasks only need to end soon after the flag is set.
        let loading = load(front.port, 8, &tally, move |_| !stops.load(Relaxed));
        let reloading = async {
            for turn in 0..20 {
                front.config = format!(
                    "# turn {turn}\nlimit = [\"a=10000/30d by ip\", \"b-{turn}=99/s by nothing for /b\"]"
                );
                tokio::task::block_in_place(|| envoy.reload(std::slice::from_ref(&front)));
                let before = tally.counts();
                while tally.counts() == before {
                    tokio::task::yield_now().await;
                }
            }
            while tally.counts().1 < 1000 {
                tokio::task::yield_now().await;
            }
            ends.store(true, Relaxed);
        };
        tokio::join!(loading, reloading);
        assert_eq!(envoy.stat("listener_manager.lds.update_rejected"), 0);
        assert!(envoy.stat("listener_manager.lds.update_success") > 20);
        // A charge counts even if its response was lost together with the connection.
        let allowed = envoy.counter("reloads.a.allowed");
        assert_eq!(allowed, 10_000);
        let (admitted, _) = tally.counts();
        assert!(admitted <= 10_000 && admitted > 9_900, "{admitted}");
        front.config = "limit = [\"a=10000/30d by ip+method\"]".to_owned();
        tokio::task::block_in_place(|| envoy.reload(std::slice::from_ref(&front)));
        let line = "tollgate: filter reloads, limit a: all keys begin anew, because its key has changed";
        assert!(envoy.log().contains(line), "{}", envoy.log());
    });
}

/// The number of distinct keys in the requests.
const KEYS: u64 = 50_000;

/// Sends one request for each of these key numbers over a single connection. Returns the number of
/// admitted requests.
fn one_by_one(port: u16, numbers: Range<u64>) -> u64 {
    let mut client = BlockingClient::connect(port);
    let mut admitted = 0;
    for number in numbers {
        let status = client.send(&format!("x-key: {}\r\n", number % KEYS)).unwrap();
        admitted += u64::from(status == 200);
    }
    admitted
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn memory_does_not_grow_over_a_million_requests() {
    let requests: u64 = std::env::var("TOLLGATE_ENVOY_REQUESTS").map_or(1_000_000, |it| it.parse().unwrap());
    run(async {
        let front = Front::new("many", "limit = [\"a=1/30d by header x-key or ip\"]\nmax-keys = 50000");
        let envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        let begun = Instant::now();
        let mut admitted = 0;
        let mut memory = Vec::new();
        // The first fifth of the requests fills the key table and Envoy's pools.
        for part in 0..5 {
            let share = requests / 5 / 8;
            let from = move |connection: u64| (part * 8 + connection) * share;
            let port = front.port;
            let connections = [0, 1, 2, 3, 4, 5, 6, 7]
                .map(|it| tokio::task::spawn_blocking(move || one_by_one(port, from(it)..from(it + 1))));
            for connection in connections {
                admitted += connection.await.unwrap();
            }
            memory.push(envoy.memory());
        }
        println!("{requests} requests in {:?}; KiB after each fifth: {memory:?}", begun.elapsed());
        assert_eq!(admitted, KEYS, "each key has one");
        assert!(memory[4] < memory[0] + 4096, "memory grows: {memory:?}");
    });
}
