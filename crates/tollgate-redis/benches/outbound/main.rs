//! Four processes of 250 clients each, in front of a server with the layer of `tollgate-http`. Run
//! `make bench-outbound`, or `cargo bench -p tollgate-redis --features http,wait --bench outbound
//! -- --seconds 120 --warm-up 60`.
//!
//! The benchmark prints the share of requests that the server refused after the warm-up, and the
//! share of the allowed requests that were served. It also prints whether each process sent its
//! requests in order.

mod trial;

use std::process::{Command, ExitCode};
use std::time::Duration;
use trial::{Keys, Plan, Report, child, run};

fn main() -> ExitCode {
    if child() {
        return ExitCode::SUCCESS;
    }
    let mut plan = Plan {
        clients: 250,
        warm_up: Duration::from_secs(60),
        measured: Duration::from_secs(120),
        keys: Keys::Own,
    };
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_default();
        match (name.as_str(), value.parse().ok().filter(|number| *number > 0)) {
            ("--seconds", Some(seconds)) => plan.measured = Duration::from_secs(seconds),
            ("--warm-up", Some(seconds)) => plan.warm_up = Duration::from_secs(seconds),
            _ => {
                eprintln!("invalid option `{name} {value}`: expected --seconds N or --warm-up N, above 0");
                return ExitCode::FAILURE;
            }
        }
    }
    let program = std::env::current_exe().expect("the path of this program");
    let mut is_good = true;
    for keys in [Keys::Own, Keys::Shared] {
        let report = run(&Plan { keys, ..plan }, || Command::new(&program));
        println!("{report}");
        is_good &= is_kept(&report);
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns true if at most one request in 1,000 was refused, at least 95 % of the allowed requests
/// were served, and all requests were sent in order.
fn is_kept(report: &Report) -> bool {
    report.refused_share() <= 0.001 && report.served_share() >= 0.95 && report.overtaking() == 0
}
