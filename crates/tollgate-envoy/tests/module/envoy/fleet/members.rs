//! Four Envoys, and a store.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::block_in_place;
use tollgate::Algorithm;
use tollgate_testing::store::program::Program;
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;

use super::clock;
use super::demand::Demand;
use super::traffic::{Rate, Traffic};
use crate::envoy::client::{run, upstream};
use crate::envoy::process::{Envoy, Front, found, newest};

pub(super) const ENVOYS: usize = 4;
const ALGORITHMS: [Algorithm; 3] = [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::SlidingLog];

/// How a fleet is set up. Each Envoy has a listener for each algorithm, with the same rate.
#[derive(Clone)]
pub(super) struct Plan {
    /// The settings that name the store.
    pub(super) store: String,
    pub(super) rate: Rate,
    /// The setting `redis-lease` of each Envoy.
    pub(super) leases: [u64; ENVOYS],
    /// How many seconds the time of day of each Envoy is ahead.
    pub(super) ahead: [u64; ENVOYS],
    /// The setting `redis-deadline`.
    pub(super) deadline: &'static str,
}

impl Plan {
    /// Returns the plan of a fleet with this store and rate. The deadline is so long that a busy
    /// machine does not reach it.
    pub(super) fn new(store: &str, tokens: u64, period: Duration) -> Self {
        Self {
            store: format!("redis = \"{store}\""),
            rate: Rate { tokens, period },
            leases: [tokens / 10; ENVOYS],
            ahead: [0; ENVOYS],
            deadline: "10s",
        }
    }

    /// Returns the most tokens that the fleet can hold: two leases on each Envoy.
    pub(super) fn held(&self) -> i64 {
        i64::try_from(2 * self.leases.iter().sum::<u64>()).unwrap()
    }
}

/// Starts a Valkey that keeps no data.
pub(super) fn valkey() -> Server {
    Setup::new(Program::Valkey).start()
}

/// Runs a test with the port of an upstream.
pub(super) fn with_upstream(test: impl Fn(u16)) {
    let rounds = std::env::var("TOLLGATE_FLEET_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        run(async {
            let upstream = upstream().await;
            block_in_place(|| test(upstream));
        });
    }
}

pub(super) fn sleep(time: Duration) {
    thread::sleep(time);
}

/// Returns this many milliseconds.
pub(super) fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Lets Envoy write its access logs soon.
fn with_log(envoy: &mut Command) -> &mut Command {
    envoy.args(["--disable-hot-restart", "--file-flush-interval-msec", "100"])
}

struct Member {
    envoy: Envoy,
    fronts: Vec<Front>,
}

pub(super) struct Fleet {
    members: Vec<Member>,
    plan: Plan,
    _folder: TempDir,
}

impl Fleet {
    /// Starts the Envoys, and waits until each of them has reached the store.
    pub(super) fn start(plan: Plan, upstream: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = plan.ahead.iter().any(|&ahead| ahead > 0).then(|| clock::library(folder.path()));
        let member = |number: usize| {
            let fronts = ALGORITHMS.map(|algorithm| {
                let log = folder.path().join(format!("{number}-{algorithm}.log"));
                plan.front(number, algorithm, log)
            });
            let (ahead, library) = (plan.ahead[number], library.as_deref());
            let envoy = Envoy::start_with(
                |envoy| clock::set_ahead(with_log(envoy), ahead, library),
                &newest(),
                upstream,
                &fronts,
            );
            found("Envoy reaches the store", || {
                // The listeners share a connection.
                envoy.log().contains("limits are shared with all proxies").then_some(())
            });
            Member { envoy, fronts: fronts.into() }
        };
        let members = thread::scope(|scope| {
            let members = [0, 1, 2, 3].map(|number| scope.spawn(move || member(number)));
            members.map(|member| member.join().unwrap())
        });
        Self { members: members.into(), plan, _folder: folder }
    }

    /// Returns the Envoy with this number.
    pub(super) fn envoy(&self, number: usize) -> &Envoy {
        &self.members[number].envoy
    }

    pub(super) fn held(&self) -> i64 {
        self.plan.held()
    }

    /// Starts clients of these Envoys. Each of their listeners gets `per_second` requests.
    pub(super) fn demand(&self, numbers: impl IntoIterator<Item = usize>, per_second: u64) -> Demand {
        let fronts = numbers.into_iter().flat_map(|number| &self.members[number].fronts);
        Demand::start(fronts.map(|front| front.port), per_second)
    }

    /// Sends requests to all Envoys for this time.
    pub(super) fn load(&self, time: Duration, per_second: u64) {
        let demand = self.demand(0..ENVOYS, per_second);
        sleep(time);
        demand.end();
    }

    /// Ends the Envoys, and returns the requests of each algorithm.
    pub(super) fn finish(self) -> Vec<Traffic> {
        let mut all = ALGORITHMS.map(|algorithm| Traffic::new(algorithm, self.plan.rate));
        for (member, ahead) in self.members.into_iter().zip(self.plan.ahead) {
            let (status, log) = member.envoy.end("TERM");
            assert!(status.success() && !log.contains("critical"), "{status}: {log}");
            for (traffic, front) in all.iter_mut().zip(&member.fronts) {
                traffic.read(front.access_log.as_ref().unwrap(), ahead);
            }
        }
        all.into()
    }
}

impl Plan {
    fn front(&self, number: usize, algorithm: Algorithm, log: PathBuf) -> Front {
        let Self { store, rate: Rate { tokens, period }, leases, deadline, .. } = self;
        let config = format!(
            "limit = [\"{algorithm}={tokens}/{}s by nothing\"]\nalgorithm = \"{algorithm}\"\n{store}\n\
             redis-lease = {}\nredis-deadline = \"{deadline}\"\nredis-when-unavailable = \"deny\"",
            period.as_secs(),
            leases[number],
        );
        let mut front = Front::new(&algorithm.to_string(), &config);
        front.access_log = Some(log);
        front
    }
}
