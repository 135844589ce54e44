//! Tests client processes that obey a server's limits, in a short trial of `make bench-outbound`.
//!
//! The trials measure shares and the order of requests, so they are not in the binary of the other
//! tests, which would run at the same time and keep the processors busy.

#![cfg(unix)]

#[path = "../benches/outbound/trial.rs"]
mod trial;

use std::env;
use std::process::Command;
use std::time::Duration;
use trial::{Keys, Plan, child, run};

/// The entry point of a client process. This test does nothing unless a trial has started it.
#[test]
fn a_process_of_clients_does_what_it_is_told() {
    child();
}

/// On a busy machine, a late request counts as refused or not served. The bounds are therefore
/// wider than in the full trial, and the trial runs up to three times. If other work stops a
/// process until nobody waits, several clients ask the store at the same time, in no order.
fn keep_to_the_servers_quotas(keys: Keys) {
    let (warm_up, measured) = (Duration::from_secs(4), Duration::from_secs(8));
    let plan = Plan { clients: 50, warm_up, measured, keys };
    let is_kept = || {
        let report = run(&plan, || {
            let mut command = Command::new(env::current_exe().unwrap());
            let name = "a_process_of_clients_does_what_it_is_told";
            command.args([name, "--exact", "--nocapture"]);
            command
        });
        println!("{report}");
        report.refused_share() <= 0.01 && report.served_share() >= 0.8 && report.overtaking() == 0
    };
    assert!((0..3).any(|_| is_kept()));
}

#[test]
fn processes_with_own_keys_keep_to_the_quotas_of_a_server() {
    keep_to_the_servers_quotas(Keys::Own);
}

#[test]
fn processes_that_share_a_key_keep_to_the_quotas_of_a_server() {
    keep_to_the_servers_quotas(Keys::Shared);
}
