//! The script of buckets with leases, at times that the tests choose: random histories of several
//! machines, and single requests.

use std::time::Duration;
use tollgate_testing::store::server::Server;

/// A hundred tokens a second, in the units of the script.
const UNIT: u64 = 10_000;
const BURST: u64 = 60;
/// In this time, half of the burst refills.
const STEP: u64 = BURST / 2 * UNIT;
const SECOND: u64 = 1_000_000;
const START: u64 = 1_000_000_000 * SECOND;

/// The bucket of one key in a server, as the machines of one configuration use it.
struct Bucket {
    connection: redis::Connection,
    key: String,
    burst: u64,
    max_debt: u64,
    step: u64,
}

/// The answer of the script, in whole tokens and microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    is_granted: bool,
    leased: u64,
    missing: u64,
    until: u64,
}

/// The end of a settled lease, its tokens, and those of them that were not spent.
type Settlement = (u64, u64, u64);

impl Bucket {
    fn new(server: &Server, key: &str) -> Self {
        let connection = server.client().get_connection().unwrap();
        Self { connection, key: key.to_owned(), burst: BURST, max_debt: 0, step: STEP }
    }

    fn ask(&mut self, now: u64, op: &str, tokens: u64, second: u64, settled: &[Settlement]) -> Answer {
        let code = concat!(
            include_str!("../../src/scripts/common.lua"),
            "\n",
            include_str!("../../src/scripts/bucket.lua")
        );
        let most = self.burst + self.max_debt;
        let mut numbers = vec![UNIT, 1, self.burst, most, tokens, second, self.step];
        settled.iter().for_each(|(until, granted, unspent)| numbers.extend([until, granted, unspent]));
        let numbers: Vec<_> = numbers.into_iter().map(|number| (number as f64).to_le_bytes()).collect();
        let request = [op.as_bytes(), b"\0", numbers.as_flattened()].concat();
        let mut eval = redis::cmd("EVAL");
        eval.arg(code).arg(1).arg(&self.key).arg(request).arg(now);
        let answer: Vec<u8> = eval.query(&mut self.connection).unwrap();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let numbers: Vec<u64> =
            answer.as_chunks().0.iter().map(|it| f64::from_le_bytes(*it) as u64).collect();
        let missing = numbers[2].div_ceil(UNIT);
        Answer { is_granted: numbers[0] > 0, leased: numbers[1], missing, until: numbers[5] }
    }

    fn check(&mut self, now: u64, cost: u64) -> bool {
        self.ask(now, "check", cost, 0, &[]).is_granted
    }

    fn lease(&mut self, now: u64, tokens: u64, settled: &[Settlement]) -> Answer {
        self.ask(now, "check", 0, tokens, settled)
    }

    fn missing(&mut self, now: u64) -> u64 {
        self.ask(now, "peek", 0, 0, &[]).missing
    }
}

/// Counts the tokens that are spent. It panics if more are spent in any interval than the burst and
/// the tokens that refill in the interval.
#[derive(Default)]
struct Meter {
    level: u64,
    at: u64,
}

impl Meter {
    fn spend(&mut self, tokens: u64, now: u64) {
        self.level = self.level.saturating_sub(now - self.at) + tokens * UNIT;
        self.at = now;
        assert!(self.level <= BURST * UNIT, "{} tokens too many", self.level / UNIT - BURST);
    }
}

/// A lease on a machine.
#[derive(Clone, Copy, Debug)]
struct Lease {
    until: u64,
    granted: u64,
    unspent: u64,
}

#[test]
fn no_history_of_leases_exceeds_the_bound_of_one_bucket() {
    let server = Server::start();
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bucket = Bucket::new(&server, &format!("history {seed}"));
        let (mut meter, mut now) = (Meter::default(), START);
        let mut machines = vec![Vec::<Lease>::new(); 3];
        for _ in 0..400 {
            now += match random.u8(..20) {
                0 => random.u64(..3 * STEP),
                1..6 => random.u64(..STEP / 4),
                _ => random.u64(..2 * UNIT),
            };
            let machine = &mut machines[random.usize(..3)];
            match random.u8(..10) {
                // A machine spends what it may spend.
                0..5 => {
                    for lease in machine.iter_mut().filter(|lease| now < lease.until) {
                        let tokens = random.u64(..=lease.unspent);
                        lease.unspent -= tokens;
                        meter.spend(tokens, now);
                    }
                }
                5 => {
                    let cost = random.u64(1..=BURST);
                    meter.spend(u64::from(bucket.check(now, cost)) * cost, now);
                }
                // A machine settles its leases, the spent and the ended ones or all of them, and
                // takes another one.
                what => {
                    let all = what == 6;
                    let closes = |lease: &mut Lease| all || lease.unspent == 0 || lease.until <= now;
                    let closed: Vec<_> = machine.extract_if(.., closes).collect();
                    if machine.len() == 2 {
                        continue;
                    }
                    let settled: Vec<_> =
                        closed.iter().map(|lease| (lease.until, lease.granted, lease.unspent)).collect();
                    let wanted = random.u64(1..=BURST / 2);
                    match random.u8(..10) {
                        // The request is lost.
                        0 => machine.extend(closed),
                        // The answer is lost.
                        1 => drop(bucket.lease(now, wanted, &settled)),
                        _ => {
                            let Answer { leased, until, .. } = bucket.lease(now, wanted, &settled);
                            if leased > 0 {
                                assert!(until > now + STEP && until <= now + 2 * STEP, "{until}");
                                machine.push(Lease { until, granted: leased, unspent: leased });
                            }
                        }
                    }
                }
            }
        }
        // Once the leases have ended and the bucket has refilled, nothing is missing.
        now += 2 * STEP + BURST * UNIT;
        assert_eq!(bucket.missing(now), 0);
        assert!(bucket.check(now, BURST));
    }
}

#[test]
fn leased_tokens_do_not_refill_until_they_are_settled_or_their_lease_ends() {
    let server = Server::start();
    let mut bucket = Bucket::new(&server, "key");
    let first = bucket.lease(START, 20, &[]);
    // A lease takes at most half of the tokens that can be leased: half of the burst.
    assert_eq!((first.leased, first.missing, first.until), (15, 15, START + 2 * STEP));
    // Another lease ends at the same time.
    let now = START + STEP / 2;
    let second = bucket.lease(now, 5, &[]);
    assert_eq!((second.leased, second.missing, second.until), (5, 20, first.until));
    let others: Vec<_> = (0..5).map(|_| bucket.lease(now, 20, &[]).leased).collect();
    assert_eq!(others, [5, 3, 1, 1, 0]);
    // The other half of the burst stays for requests without a lease.
    assert_eq!(bucket.missing(START + 2 * STEP - 1), 30);
    assert!(!bucket.check(now, 31) && bucket.check(now, 30));
    // The other tokens refill.
    let now = START + STEP + STEP / 2;
    assert_eq!(bucket.missing(now), 30);
    // The machine has spent 12 of 15 tokens. These refill from now on; the other three return.
    assert_eq!(bucket.ask(now, "check", 0, 0, &[(first.until, 15, 3)]).missing, 27);
    assert_eq!(bucket.missing(now + 7 * UNIT), 20);
    assert_eq!(bucket.missing(first.until - 1), 15);
    // From its end on, a lost lease refills. A lease is not settled after its end.
    let now = first.until;
    assert_eq!(bucket.missing(now), 15);
    assert_eq!(bucket.lease(now, 0, &[(first.until, 5, 5)]).missing, 15);
    assert_eq!(bucket.missing(now + 4 * UNIT), 11);
}

/// A machine with a smaller burst or a smaller maximum debt settles its lease with a request. The
/// request is denied if the rest of the debt exceeds what this machine counts.
#[test]
fn a_machine_with_a_smaller_quota_settles_and_charges_all_that_it_is_granted() {
    let server = Server::start();
    let (mut large, mut small) = (Bucket::new(&server, "burst"), Bucket::new(&server, "burst"));
    (large.burst, small.burst) = (100, 10);
    let lease = small.lease(START, 3, &[]);
    assert!(large.check(START, 40));
    let answer = small.ask(START, "check", 4, 1, &[(lease.until, lease.leased, lease.leased)]);
    assert_eq!((answer.is_granted, answer.leased), (false, 0));
    assert_eq!(large.missing(START), 40);

    let (mut owing, mut other) = (Bucket::new(&server, "debt"), Bucket::new(&server, "debt"));
    owing.max_debt = 100;
    let lease = other.lease(START, 10, &[]);
    assert_eq!(owing.ask(START, "force", 120, 0, &[]).leased, 120);
    let answer = other.ask(START, "force", 50, 0, &[(lease.until, lease.leased, lease.leased)]);
    assert_eq!((answer.leased, owing.missing(START)), (0, 120));
}

/// The first lease after a change of configuration lasts as long as the new configuration says,
/// also while an earlier lease has not ended.
#[test]
fn leases_last_as_the_last_configuration_says() {
    let server = Server::start();
    let (mut short, mut long) = (Bucket::new(&server, "key"), Bucket::new(&server, "key"));
    short.step = STEP / 10;
    assert_eq!(short.lease(START, 1, &[]).until, START + STEP / 5);
    // Both leases end in the same step, because they began in the same step.
    assert_eq!(long.lease(START + 1, 1, &[]).until, START + STEP / 5);
    let now = START + STEP / 10;
    assert_eq!(long.lease(now, 1, &[]).until, START + STEP / 5 + STEP);
}

/// Other machines keep leasing, and still the lease of a machine that has died ends.
#[test]
fn a_lost_lease_ends_while_other_machines_lease() {
    let server = Server::start();
    let mut bucket = Bucket::new(&server, "key");
    assert_eq!(bucket.lease(START, 15, &[]).leased, 15);
    let (mut now, mut settled) = (START, Vec::new());
    while now < START + 2 * STEP {
        let Answer { leased, until, missing, .. } = bucket.lease(now, 5, &settled);
        assert_eq!(leased, 5);
        assert!(missing >= 20);
        settled = vec![(until, leased, leased)];
        now += STEP / 10;
    }
    now += 15 * UNIT;
    assert_eq!(bucket.lease(now, 5, &settled).missing, 5);
}

/// A charge that the bucket can give back is given back beside a lease, and a charge that has
/// refilled is not. In neither case does the lease's own charge return.
#[test]
fn a_refund_returns_nothing_that_is_leased() {
    let server = Server::start();
    let mut bucket = Bucket::new(&server, "key");
    assert_eq!(bucket.lease(START, 15, &[]).leased, 15);
    assert_eq!(bucket.ask(START, "check", 30, 0, &[]).missing, 45);
    // The bucket holds the charge until only the leased tokens are missing.
    let charge = START + 30 * UNIT;
    assert_eq!(bucket.ask(START + 10 * UNIT, "refund", 30, charge, &[]).missing, 15);
    assert_eq!(bucket.ask(START + 10 * UNIT, "refund", 30, charge, &[]).missing, 15);
    // Another charge has taken the place of the first one, which has refilled.
    assert!(bucket.check(START + 40 * UNIT, 30));
    assert_eq!(bucket.ask(START + 40 * UNIT, "refund", 30, charge, &[]).missing, 45);
}

/// A state outlives the leases that it counts.
#[test]
fn the_store_keeps_a_bucket_until_its_leases_have_ended() {
    let server = Server::start();
    let mut bucket = Bucket::new(&server, "key");
    bucket.lease(START, 1, &[]);
    let left: u64 = redis::cmd("PTTL").arg("key").query(&mut bucket.connection).unwrap();
    let least = Duration::from_micros(2 * STEP + UNIT).as_millis();
    assert!(u128::from(left) + 100 >= least && u128::from(left) <= least + 2_000, "{left}");
}
