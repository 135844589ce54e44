//! Faults of the store and of an Envoy under full load. Each fault has its own number.
//!
//! If the period is long, nothing refills during a test, so that each token that a fault admits
//! again exceeds the bound.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_testing::store::admissions::now;
use tollgate_testing::store::program::Program;
use tollgate_testing::store::sentinel::{NAME, Watched};
use tollgate_testing::store::server::{Server, field};
use tollgate_testing::store::setup::Setup;
use tollgate_testing::store::wait::until;

use super::demand::CONNECTIONS;
use super::members::{ENVOYS, Fleet, Plan, ms, sleep, valkey, with_upstream};
use super::traffic::Traffic;

const TOKENS: u64 = 200;
/// The number of requests that each Envoy gets per second, for each limit.
const DEMAND: u64 = 100;
const LONG: Duration = Duration::from_secs(60);

/// Sends requests at full load until the store has no tokens left, and some more.
fn use_up(fleet: &Fleet) {
    fleet.load(ms(1500), DEMAND);
}

#[track_caller]
fn assert_at_most(traffic: &Traffic, what: &str, number: i64, most: i64) {
    println!("{}: {number} {what}, at most {most} allowed", traffic.algorithm);
    assert!(number <= most, "{}: {number} {what}, at most {most} allowed", traffic.algorithm);
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn while_the_store_is_stopped_only_leases_are_spent_and_the_bound_holds() {
    with_upstream(|upstream| {
        let store = valkey();
        let mut plan = Plan::new(&store.url(), 60, Duration::from_secs(1));
        plan.deadline = "200ms";
        let fleet = Fleet::start(plan, upstream);
        let demand = fleet.demand(0..ENVOYS, DEMAND);
        sleep(ms(700));
        store.stop();
        let stopped = now();
        sleep(ms(1500));
        let resumed = now();
        store.resume();
        sleep(ms(1500));
        demand.end();
        let held = fleet.held();
        for traffic in fleet.finish() {
            // The store may have answered requests that were decided after it was stopped.
            let meanwhile = traffic.admitted(stopped + 100_000_000, resumed).len();
            assert_at_most(&traffic, "admitted while the store is stopped", signed(meanwhile), held);
            assert!(traffic.count(503, stopped, resumed) > 0, "requests are refused for want of a store");
            assert!(traffic.count(200, resumed, u64::MAX) > 0, "the store decides again");
            assert_at_most(&traffic, "beyond the bound", traffic.beyond(), 0);
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_store_that_is_killed_and_returns_with_its_data_admits_nothing_again() {
    with_upstream(|upstream| {
        let store = Setup::new(Program::Valkey).line("appendonly yes").line("appendfsync always").start();
        let fleet = Fleet::start(Plan::new(&store.url(), TOKENS, LONG), upstream);
        let demand = fleet.demand(0..ENVOYS, DEMAND);
        sleep(ms(300));
        store.kill();
        sleep(ms(300));
        let restarted = now();
        store.restart();
        sleep(ms(2500));
        demand.end();
        for traffic in fleet.finish() {
            assert!(traffic.count(429, restarted, u64::MAX) > 0, "the store decides again");
            assert_at_most(&traffic, "beyond the bound", traffic.beyond(), 0);
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_store_that_is_emptied_admits_one_more_limit_and_the_open_leases() {
    with_upstream(|upstream| {
        let store = valkey();
        let fleet = Fleet::start(Plan::new(&store.url(), TOKENS, LONG), upstream);
        use_up(&fleet);
        let demand = fleet.demand(0..ENVOYS, DEMAND);
        store.command(&["FLUSHALL"]);
        let emptied = now();
        sleep(ms(1500));
        demand.end();
        let held = fleet.held();
        for traffic in fleet.finish() {
            let beyond = traffic.beyond();
            assert!(beyond > signed(TOKENS / 2), "{}: the fault is visible: {beyond}", traffic.algorithm);
            assert_at_most(&traffic, "beyond the bound", beyond, signed(TOKENS));
            let after = traffic.beyond_between(emptied, u64::MAX);
            assert_at_most(&traffic, "beyond the bound afterwards", after, held);
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn after_a_failover_the_charges_that_the_replica_had_not_received_are_admitted_again() {
    with_upstream(|upstream| {
        let watched = Watched::start(Program::Valkey);
        let mut plan = Plan::new("", TOKENS, LONG);
        let sentinels = watched.urls().join(",");
        plan.store = format!("redis = \"redis://{NAME}\"\nredis-sentinel = \"{sentinels}\"");
        let fleet = Fleet::start(plan, upstream);
        fleet.load(ms(200), DEMAND);
        // The replica loses its master, and is refused by it from now on.
        let [master, replica] = watched.servers() else { unreachable!() };
        replica.command(&["CONFIG", "SET", "masterauth", "wrong"]);
        master.command(&["CLIENT", "KILL", "TYPE", "replica"]);
        until("the replica has lost its master", || is_down(replica));
        let cut = now();
        fleet.load(ms(200), DEMAND);
        let killed = now();
        let from = watched.kill_master();
        watched.wait_for_failover(from);
        let demand = fleet.demand(0..ENVOYS, DEMAND);
        sleep(ms(2500));
        demand.end();
        let held = fleet.held();
        for traffic in fleet.finish() {
            let not_received = signed(traffic.admitted(cut, killed).len());
            let beyond = traffic.beyond();
            assert!(beyond > 0, "{}: the fault is visible", traffic.algorithm);
            assert_at_most(&traffic, "beyond the bound", beyond, not_received + held);
            println!("{}: {not_received} admitted that the replica had not received", traffic.algorithm);
        }
    });
}

fn is_down(replica: &Server) -> bool {
    let info: String = replica.ask(&["INFO", "replication"]);
    field(&info, "master_link_status") == Some("down")
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn an_envoy_that_is_stopped_for_longer_than_a_window_spends_no_lease_afterwards() {
    with_upstream(|upstream| {
        let period = Duration::from_secs(1);
        let store = valkey();
        let mut plan = Plan::new(&store.url(), 60, period);
        // The other Envoys hold nearly nothing, so that they use all other tokens.
        plan.leases = [15, 1, 1, 1];
        let fleet = Fleet::start(plan, upstream);
        let window = Duration::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1);
        let at = |since: Duration| {
            let time = UNIX_EPOCH + window + since;
            thread::sleep(time.duration_since(SystemTime::now()).unwrap_or_default());
        };
        at(Duration::ZERO);
        let demand = fleet.demand([0], DEMAND);
        at(period * 3 / 10);
        fleet.envoy(0).stop();
        let stopped = now();
        // The others use the next window up.
        at(period);
        let others = fleet.demand(1..ENVOYS, DEMAND);
        at(period * 18 / 10);
        let resumed = now();
        fleet.envoy(0).resume();
        at(period * 28 / 10);
        demand.end();
        others.end();
        for traffic in fleet.finish() {
            let before = traffic.admitted(0, stopped);
            let by_others = traffic.admitted(stopped, resumed).len();
            let deciding = before.len() - before.within(0, resumed).len();
            println!(
                "{}: {} admitted before the stop, {by_others} by the others meanwhile, {deciding} under way",
                traffic.algorithm,
                before.len()
            );
            assert_at_most(&traffic, "under way", signed(deciding), signed(u64::from(CONNECTIONS)));
            assert_at_most(&traffic, "beyond the bound", traffic.beyond(), 0);
        }
    });
}
