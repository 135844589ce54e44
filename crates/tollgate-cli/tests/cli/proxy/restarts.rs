//! Restarts of the proxy under load, with `--state`. Clients keep sending while the proxy ends and
//! starts, and their admissions are added up over all lives of the proxy.
//!
//! TOLLGATE_RESTARTS sets the number of restarts; `make restarts` sets it to 100.

use super::running::{Proxy, until};
use super::state::state;
use super::upstream::{Upstream, hello};
use std::collections::HashMap;
use std::env;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

fn restarts(default: usize) -> usize {
    env::var("TOLLGATE_RESTARTS").map_or(default, |count| count.parse().expect("a number"))
}

/// What the clients of one key have seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    admitted: Vec<SystemTime>,
    refused: usize,
    /// The requests without a response. The proxy may have charged them.
    unknown: usize,
}

/// Clients that send one request after the other to the proxy that runs at the time. They end when
/// this value is dropped.
#[derive(Default)]
struct Load {
    proxy: Arc<Mutex<Option<SocketAddr>>>,
    seen: Arc<Mutex<HashMap<String, Seen>>>,
    clients: JoinSet<()>,
}

impl Load {
    /// Adds a client that pauses after each request.
    fn client(&mut self, path: &'static str, key: &str, pause: Duration) {
        let (proxy, seen, key) = (Arc::clone(&self.proxy), Arc::clone(&self.seen), key.to_owned());
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\nConnection: close\r\n\r\n");
        self.clients.spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let address = *proxy.lock().unwrap();
                let Some(address) = address else { continue };
                let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                let mut reply = Vec::new();
                let _ = stream.write_all(request.as_bytes()).await;
                let _ = stream.read_to_end(&mut reply).await;
                let mut seen = seen.lock().unwrap();
                let seen = seen.entry(key.clone()).or_default();
                match reply.get(9..12) {
                    Some(b"200") => seen.admitted.push(SystemTime::now()),
                    Some(b"429") => seen.refused += 1,
                    None => seen.unknown += 1,
                    other => panic!("{other:?}"),
                }
            }
        });
    }

    fn seen(&self, key: &str) -> Seen {
        self.seen.lock().unwrap().get(key).cloned().unwrap_or_default()
    }

    fn start(&self, upstream: &Upstream, state: &Path, args: &[&str]) -> Proxy {
        let proxy = Proxy::start(upstream.address, &[&["--state", state.to_str().unwrap()], args].concat());
        *self.proxy.lock().unwrap() = Some(proxy.address);
        proxy
    }
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// How many requests of a key each life of the proxy admits, at least.
const SHARE: usize = 60;

/// Restarts the proxy while clients keep sending. For a quota of a day, each key is admitted as
/// often in all lives together as in one.
async fn forgive_no_key(algorithm: &str, test: &str) {
    let (upstream, state, count) = (Upstream::start(hello).await, state(test), restarts(5));
    let quota = SHARE * (count + 1);
    let day = format!("day={quota}/d by header x-api-key for /day");
    let mut args = vec!["--algorithm", algorithm, "--limit", &day];
    let mut load = Load::default();
    for key in KEYS {
        for _ in 0..2 {
            load.client("/day", key, Duration::from_millis(5));
        }
    }
    // A sliding log has no burst.
    let has_burst = algorithm == "token-bucket";
    if has_burst {
        args.extend(["--limit", "fast=50/s burst 100 by header x-api-key for /fast"]);
        load.client("/fast", "fast", Duration::from_millis(5));
    }
    let begin = Instant::now();
    let mut proxy = load.start(&upstream, &state, &args);
    for life in 1..=count {
        until("each key has its share", || {
            KEYS.iter().all(|key| load.seen(key).admitted.len() >= life * SHARE)
        });
        proxy.signal("TERM");
        assert!(proxy.ended().success(), "{}", proxy.said());
        proxy = load.start(&upstream, &state, &args);
    }
    let before = KEYS.map(|key| load.seen(key).refused);
    until("all keys are refused", || {
        KEYS.iter().zip(before).all(|(key, before)| load.seen(key).refused > before + 10)
    });
    let seen = load.seen.lock().unwrap().clone();
    // A bucket refills a little in the time of the test, and a log does not.
    let elapsed = begin.elapsed();
    let millis = usize::try_from(elapsed.as_millis()).unwrap();
    let most = quota + if has_burst { quota * millis / (24 * 3_600_000) } else { 0 };
    for key in KEYS {
        let Seen { admitted, refused, unknown } = &seen[key];
        let admitted = admitted.len();
        println!(
            "{key}: {admitted} of {quota} to {most} admitted in {elapsed:?}, {refused} refused, {unknown} without a response"
        );
        assert!(admitted <= most, "{key}: {admitted} of {most} in {elapsed:?}");
        assert!(admitted + *unknown >= quota, "{key}: {admitted} and {unknown} of {quota}");
    }
    if has_burst {
        let admitted = seen["fast"].admitted.len();
        let most = 100.0 + 50.0 * elapsed.as_secs_f64();
        println!("fast: {admitted} of at most {most:.0} admitted");
        assert!(admitted as f64 <= most, "{admitted} of {most}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_forgive_no_key_of_a_bucket() {
    forgive_no_key("token-bucket", "restarts_bucket").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_forgive_no_key_of_a_log() {
    forgive_no_key("sliding-log", "restarts_log").await;
}

/// Kills the proxy at random moments. A key is forgiven what it was admitted since the last write
/// of the file, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn kills_forgive_what_was_admitted_since_the_last_write() {
    const QUOTA: usize = 100;
    let (upstream, state, count) = (Upstream::start(hello).await, state("restarts_killed"), restarts(2));
    // Eager clients use up their quota before the first write, and slow ones later.
    let (eager, slow) = (["a", "b"], ["c", "d"]);
    let mut load = Load::default();
    eager.iter().for_each(|key| load.client("/", key, Duration::from_millis(5)));
    slow.iter().for_each(|key| load.client("/", key, Duration::from_millis(150)));
    let limit = format!("day={QUOTA}/d by header x-api-key");
    let args = ["--limit", &limit];
    let mut forgiven: HashMap<&str, usize> = HashMap::new();
    let mut moments = Vec::new();
    for life in 0..count {
        let start = SystemTime::now();
        let mut proxy = load.start(&upstream, &state, &args);
        if life == 0 {
            until("the file is written", || state.exists());
        }
        let moment = Duration::from_millis(RandomState::new().hash_one(life) % 8_000);
        moments.push(moment);
        tokio::time::sleep(moment).await;
        proxy.signal("KILL");
        proxy.ended();
        // The write may have begun earlier than the file was changed for the last time.
        let written = fs::metadata(&state).unwrap().modified().unwrap() - Duration::from_secs(1);
        for key in eager.iter().chain(&slow) {
            let lost = load.seen(key).admitted.iter().filter(|&&at| at >= start.max(written)).count();
            *forgiven.entry(key).or_default() += lost;
        }
    }
    let _proxy = load.start(&upstream, &state, &args);
    let refused = || eager.map(|key| load.seen(key).refused);
    let before = refused();
    until("eager clients are refused", || {
        refused().iter().zip(before).all(|(now, before)| *now > before + 10)
    });
    for key in eager.iter().chain(&slow) {
        let (admitted, forgiven) = (load.seen(key).admitted.len(), forgiven[key]);
        println!("{key}: {admitted} admitted, of {QUOTA} and {forgiven} forgiven");
        assert!(admitted <= QUOTA + forgiven, "{key}: {admitted}, {forgiven} forgiven, {moments:?}");
    }
    // The eager clients were refused before the first write.
    assert!(eager.iter().all(|key| load.seen(key).admitted.len() <= QUOTA), "{moments:?}");
}
