//! Tests of a fleet without faults, and with clocks that differ.

use std::time::Duration;

use tollgate_testing::store::admissions::now;

use super::members::{ENVOYS, Fleet, Plan, sleep, valkey, with_upstream};
use super::traffic::Traffic;

const PERIOD: Duration = Duration::from_secs(1);
const TOKENS: u64 = 60;
/// The number of requests that each Envoy gets per second, for each limit. If an Envoy got fewer
/// requests than the limit admits, its leases would end before they are spent.
const DEMAND: u64 = TOKENS * 3 / 2;

/// Returns how long the full load lasts.
fn load() -> Duration {
    let seconds = std::env::var("TOLLGATE_FLEET_SECONDS").map_or(2.5, |seconds| seconds.parse().unwrap());
    Duration::from_secs_f64(seconds)
}

/// Asserts that no bound is exceeded, and that no more than `most` admissions of this load are
/// missing. On a very busy machine, the clients send too little for the latter.
#[track_caller]
fn assert_between(traffic: &Traffic, what: &str, (from, to): (u64, u64), demand: u64, most: i64) {
    let (beyond, missing) = (traffic.beyond(), traffic.missing(from, to));
    let sent = traffic.count(200, from, to) + traffic.count(429, from, to);
    println!(
        "{}, {what}: {} of {sent} requests admitted, {beyond} beyond the bound, {missing} missing",
        traffic.algorithm,
        traffic.admitted(from, to).len(),
    );
    assert_eq!(traffic.count(503, from, to), 0, "the store decides");
    assert!(beyond <= 0, "{}, {what}: {beyond} beyond the bound", traffic.algorithm);
    let planned = demand * (to - from) / 1_000_000_000;
    if sent * 4 < planned * 3 {
        println!("NOT SHOWN that no more than {most} are missing: the clients sent {sent} of {planned}");
        return;
    }
    assert!(missing <= most, "{}, {what}: {missing} missing, at most {most} allowed", traffic.algorithm);
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_fleet_admits_one_limit_and_misses_no_more_than_its_leases() {
    with_upstream(|upstream| {
        let store = valkey();
        let fleet = Fleet::start(Plan::new(&store.url(), TOKENS, PERIOD), upstream);
        let begun = now();
        fleet.load(load(), DEMAND);
        let ended = now();
        // The leases and both windows end, and the bucket refills.
        sleep(PERIOD * 2 + PERIOD / 5);
        let alone = now();
        let demand = fleet.demand([0], 2 * DEMAND);
        sleep(PERIOD * 3 / 2);
        demand.end();
        let alone = (alone, now());
        let held = fleet.held();
        for traffic in fleet.finish() {
            let fleet = ENVOYS as u64 * DEMAND;
            assert_between(&traffic, "four Envoys", (begun, ended), fleet, held);
            // Only this Envoy's own leases are missing.
            let most = held / 4;
            assert_between(&traffic, "one Envoy afterwards", alone, 2 * DEMAND, most);
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn envoys_whose_clocks_differ_by_three_seconds_admit_one_limit() {
    with_upstream(|upstream| {
        let store = valkey();
        let mut plan = Plan::new(&store.url(), TOKENS, PERIOD);
        plan.ahead = [0, 3, 0, 3];
        let fleet = Fleet::start(plan, upstream);
        let begun = now();
        fleet.load(load(), DEMAND);
        let ended = now();
        let held = fleet.held();
        for traffic in fleet.finish() {
            let demand = ENVOYS as u64 * DEMAND;
            assert_between(&traffic, "clocks 3 s apart", (begun, ended), demand, held);
        }
    });
}
