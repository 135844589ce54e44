//! With leases, the store is asked for few of the requests. The server counts the calls.
//!
//! Four processes check 1,000 keys, which are requested by Zipf's law: the key of rank `k` gets `1
//! / k` of the requests of the first one. The key of rank 100 gets as many requests as its quota
//! allows, so a tenth of the keys are over their quota. One thread in each process sends requests
//! at a fixed rate, with `check_blocking`.
//!
//! `make calls` runs this load for 100 s. The tests run it for a few seconds and with fewer keys,
//! and most of the calls are made while the leases grow.

use serde_json::json;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tollgate::{Algorithm, Quota};
use tollgate_redis::{Client, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::server::Server;

const PROCESSES: usize = 4;
const LEASE: u64 = 100;
/// The environment variable with the duration of the load in seconds.
const SECONDS: &str = "TOLLGATE_CALLS_SECONDS";

/// The number of keys, and the duration of the load.
fn size() -> (usize, Duration) {
    match std::env::var(SECONDS) {
        Ok(seconds) => (1_000, Duration::from_secs(seconds.parse().unwrap())),
        Err(_) => (200, Duration::from_secs(6)),
    }
}

/// The quota of each key: 100 requests a second.
fn quota(algorithm: Algorithm) -> Quota {
    match algorithm {
        // Leases last as long as half of the capacity takes to refill.
        _ if algorithm.has_burst() => Quota::per_second(100).burst(1_000),
        // Every machine must ask about each of its keys in each window.
        _ => Quota::per_minute(6_000),
    }
}

/// Returns for each rank the share of the requests that the key and all keys before it get.
fn shares(keys: usize) -> Vec<f64> {
    let all: f64 = (1..=keys).map(|rank| 1.0 / rank as f64).sum();
    let sum_up = |sum: &mut f64, rank: usize| {
        *sum += 1.0 / rank as f64 / all;
        Some(*sum)
    };
    (1..=keys).scan(0.0, sum_up).collect()
}

/// Returns how many requests all processes send in a second. The key at a tenth of the ranks gets
/// as many as its quota allows.
fn per_second(algorithm: Algorithm, keys: usize) -> f64 {
    let quota = quota(algorithm);
    let first = quota.tokens() as f64 / quota.period().as_secs_f64() * (keys / 10) as f64;
    first / shares(keys)[0]
}

#[test]
#[ignore = "a node that other tests start"]
fn loading_node() {
    node(|node| {
        let algorithm = Algorithm::ALL.into_iter().find(|a| a.to_string() == node.var("ALGORITHM")).unwrap();
        let (number, time) = size();
        let client = Client::builder(node.var("URL")).runtime_thread().build().unwrap();
        let limiter = SharedLimiter::<str>::builder(&client, "rarely", quota(algorithm))
            .algorithm(algorithm)
            .lease(LEASE)
            // A decision of the fallback would cost no call.
            .deadline(Duration::from_secs(20))
            .when_unavailable(WhenUnavailable::Deny)
            .build()
            .unwrap();
        let _ = limiter.check_blocking("connects");
        let keys: Vec<String> = (1..=number).map(|rank| format!("key {rank}")).collect();
        let shares = shares(number);
        let per_second = per_second(algorithm, number) / PROCESSES as f64;
        let (mut requests, mut waited) = (0_u64, 0_u64);
        let mut admitted = vec![0_u64; number];
        node.ready();
        let begun = Instant::now();
        while begun.elapsed() < time {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let due = (begun.elapsed().as_secs_f64() * per_second) as u64;
            while requests < due && begun.elapsed() < time {
                let share = fastrand::f64();
                let key = shares.partition_point(|sum| *sum <= share).min(number - 1);
                requests += 1;
                let decision = limiter.try_check(&keys[key]).unwrap_or_else(|pending| {
                    waited += 1;
                    pending.wait()
                });
                admitted[key] += decision.charged();
            }
            sleep(Duration::from_millis(1));
        }
        let stats = limiter.stats();
        assert_eq!((stats.by_fallback, stats.unanswered), (0, 0), "{stats:?}");
        let took = begun.elapsed().as_secs_f64();
        node.say(json!({ "requests": requests, "waited": waited, "admitted": admitted, "took": took }));
    });
}

/// Runs the load and returns how many requests there were for each call to the store. Returns
/// `None` if the machine is too busy for this load.
fn load(algorithm: Algorithm) -> Option<f64> {
    let (keys, _) = size();
    let server = Server::start();
    let variables = [("URL", &*server.url()), ("ALGORITHM", &*algorithm.to_string())];
    let mut nodes = Nodes::start(PROCESSES, "rarely::loading_node", &variables);
    let calls = || server.calls("evalsha") + server.calls("eval");
    let before = calls();
    nodes.go();
    let said = nodes.finish();
    let calls = calls() - before;
    let sum = |name: &str| said.iter().map(|said| said[name].as_u64().unwrap()).sum::<u64>();
    let (requests, waited) = (sum("requests"), sum("waited"));
    let took = said.iter().map(|said| said["took"].as_f64().unwrap()).fold(0.0, f64::max);
    let admitted =
        |key: usize| said.iter().map(|said| said["admitted"][key].as_u64().unwrap()).sum::<u64>() as f64;
    let quota = quota(algorithm);
    // The processes do not begin at the same moment.
    let refilled = quota.tokens() as f64 / quota.period().as_secs_f64() * (took + 0.5);
    let windows = (took / quota.period().as_secs_f64()).ceil() + 1.0;
    let most = match algorithm.has_burst() {
        true => quota.capacity() as f64 + refilled,
        false => quota.tokens() as f64 * windows,
    };
    for key in 0..keys {
        assert!(admitted(key) <= most, "{algorithm}: key {} got {} of {most}", key + 1, admitted(key));
    }
    let full: f64 = (0..keys / 20).map(admitted).sum::<f64>() / (keys / 20) as f64;
    let ratio = requests as f64 / calls as f64;
    println!(
        "{algorithm}: {requests} requests in {took:.0} s, {calls} calls: {ratio:.1} requests for each call; {waited} \
         requests waited; a key that asks for twice its quota or more got {full:.0}, and at most {most:.0} were allowed"
    );
    let share = requests as f64 / per_second(algorithm, keys) / took;
    if share < 0.9 {
        println!("NOT SHOWN: the machine is too busy, and sent {:.0} % of the requests", share * 100.0);
        return None;
    }
    if algorithm.has_burst() {
        // Two leases of each process may be missing.
        let leased = (2 * LEASE * PROCESSES as u64) as f64;
        let least = 0.95 * (refilled + quota.capacity() as f64 - leased);
        assert!(full >= least, "{algorithm}: {full}, expected at least {least}");
    }
    Some(ratio)
}

#[test]
fn the_store_is_asked_for_few_of_the_requests() {
    // In the first seconds, most calls are made while the leases grow. A sliding window leases at
    // most half of the remaining tokens, so a key at its limit asks several times before it is
    // denied.
    let is_long = size().1 >= Duration::from_secs(100);
    for (algorithm, in_long) in [(Algorithm::TokenBucket, 50.0), (Algorithm::SlidingWindow, 25.0)] {
        let least = if is_long { in_long } else { 10.0 };
        if let Some(ratio) = load(algorithm) {
            assert!(ratio >= least, "{algorithm}: one call for {ratio:.1} requests");
        }
    }
}
