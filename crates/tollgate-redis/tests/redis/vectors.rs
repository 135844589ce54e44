//! The store and this process make the same decisions on the same requests, to the microsecond.

use crate::load::{has_burst, on_client, patient};
use std::time::{Duration, Instant};
use tollgate::store::ExactKeys;
use tollgate::{Algorithm, Decision, Limiter, Quota, Tick, WindowAlign};
use tollgate_redis::{Client, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::server::Server;

/// A random number generator. It starts from a seed, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Returns the limiter in this process. Its windows start at the same times as the store's windows.
fn limiter(algorithm: Algorithm, quota: Quota, max_debt: u64) -> Limiter<String, ExactKeys<String>> {
    let builder = Limiter::builder(quota).algorithm(algorithm).max_debt(max_debt);
    let has_windows = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
    let builder = if has_windows { builder.align(WindowAlign::ClockStart) } else { builder };
    builder.exact_keys().build().unwrap()
}

/// Returns the figures of a decision. Times are whole microseconds, as in the store, and waits are
/// rounded up.
fn figures(decision: &Decision) -> String {
    let micros = |time: Duration| time.as_nanos().div_ceil(1000);
    let wait = decision.retry_after().map(micros);
    let figures = (
        decision.outcome(),
        decision.capacity(),
        decision.remaining(),
        wait,
        micros(decision.reset_after()),
        // The store's time is rounded to milliseconds.
        decision.refill_after().as_nanos().div_ceil(1_000_000),
        micros(decision.start_after()),
    );
    format!("{figures:?}")
}

fn quotas(algorithm: Algorithm) -> Vec<Quota> {
    let mut quotas = vec![
        Quota::per_second(10),
        Quota::per_minute(60),
        Quota::new(5, Duration::from_millis(10)),
        Quota::per_day(1),
        Quota::new(1, Duration::from_secs(30 * 24 * 3600)),
    ];
    if has_burst(algorithm) {
        // Either a token does not refill in a whole number of microseconds, or several tokens
        // refill in one microsecond.
        quotas.extend([
            Quota::per_second(7).burst(3),
            Quota::per_hour(999).burst(40),
            Quota::per_second(3_000_000).burst(2_000),
            Quota::new(3, Duration::from_nanos(1_000)),
        ]);
    } else {
        quotas.extend([Quota::per_second(7), Quota::per_hour(999)]);
    }
    quotas
}

/// How long the store keeps an expired state, measured by its own clock. The requests have their
/// own times.
const KEPT: Duration = Duration::from_secs(1);

/// Makes the same requests for a key in the store and in this process, and compares each answer.
/// With some seeds, the key belongs to a class whose quota differs from the limit's.
///
/// Returns false if the machine was so slow that the store may have removed the state.
async fn run_alike(client: &Client, algorithm: Algorithm, quota: Quota, seed: u64, attempt: u32) -> bool {
    let name = format!("{algorithm}-{}-{seed}-{attempt}", quota.to_string().replace(' ', "-"));
    let is_class = seed % 3 == 2;
    let debt = if algorithm == Algorithm::SlidingLog { 0 } else { 2 * (seed % 4) };
    let there: SharedLimiter<str> =
        // The deadline is long because the server may be late on a busy machine. With a shorter
        // deadline, the fallback would decide.
        SharedLimiter::builder(client, name, if is_class { Quota::per_hour(3) } else { quota })
            .class(if is_class { "paid" } else { "other" }, quota)
            .algorithm(algorithm)
            .max_debt(debt)
            .deadline(Duration::from_secs(60))
            .build()
            .unwrap();
    let there = there.class("paid").unwrap_or(there);
    let here = limiter(algorithm, quota, debt);
    let mut numbers = Numbers(seed);
    let period = u64::try_from(quota.period().as_micros()).unwrap();
    let mut micros = if seed.is_multiple_of(2) { 1_790_000_000_000_000 } else { 5 * period + 17 };
    // If several tokens refill in one microsecond, the store's bucket rounds refunds.
    let refunds = quota.period().as_micros().is_multiple_of(quota.tokens().into());
    let mut charges: Vec<(Decision, Decision)> = Vec::new();
    // The store keeps the state until this time.
    let mut kept: Option<Instant> = None;
    for step in 0..60 {
        let sent = Instant::now();
        micros += match numbers.below(6) {
            0 | 1 => 0,
            2 => 1,
            3 => numbers.below(period / quota.tokens() * 2 + 2),
            4 => numbers.below(period + 1),
            _ if step % 7 == 0 => period * numbers.below(4) + numbers.below(3),
            _ => period / quota.tokens(),
        };
        let now = Tick::from_nanos(micros * 1000);
        let capacity = here.at(now).peek_n("key", 0).capacity();
        let cost = match numbers.below(8) {
            0 => 0,
            1 => capacity + numbers.below(2),
            2 => numbers.below(capacity + 1),
            _ => 1 + numbers.below(2),
        };
        let about = format!("{algorithm} {quota} seed {seed} step {step}: {cost} at {micros}");
        let (mut wrote, mut pairs) = (false, Vec::new());
        match numbers.below(10) {
            0 if refunds && !charges.is_empty() => {
                let at = usize::try_from(numbers.below(charges.len() as u64)).unwrap();
                let (ours, theirs) = charges.swap_remove(at);
                here.at(now).refund("key", &ours);
                there.at(now).refund("key", &theirs).await;
                let shorter = sent + KEPT + here.at(now).peek_n("key", 0).reset_after();
                kept = kept.map(|kept| kept.min(shorter));
            }
            1 => {
                let tokens = numbers.below(capacity + debt + 3);
                let ours = here.at(now).force("key", tokens);
                wrote = ours > 0;
                let theirs = there.at(now).force("key", tokens).await;
                pairs.push(("force", format!("{ours}"), format!("{theirs}")));
            }
            2 if step % 3 == 0 => {
                let time = match numbers.below(4) {
                    0 => numbers.below(3 * period),
                    _ => numbers.below(3 * period / quota.tokens() + 2),
                };
                let time = Duration::from_micros(time);
                wrote = !time.is_zero();
                here.at(now).pause("key", time).unwrap();
                there.at(now).pause("key", time).await.unwrap();
            }
            2 | 3 => {
                let (ours, theirs) =
                    (here.at(now).peek_n("key", cost), there.at(now).peek_n("key", cost).await);
                pairs.push(("peek", figures(&ours), figures(&theirs)));
            }
            _ => {
                let (ours, theirs) =
                    (here.at(now).check_n("key", cost), there.at(now).check_n("key", cost).await);
                wrote = ours.charged() > 0;
                pairs.push(("check", figures(&ours), figures(&theirs)));
                pairs.push(("charge", format!("{}", ours.charged()), format!("{}", theirs.charged())));
                if wrote {
                    charges.push((ours, theirs));
                }
            }
        }
        let (ours, theirs) = (here.at(now).peek("key"), there.at(now).peek("key").await);
        pairs.push(("after", figures(&ours), figures(&theirs)));
        if kept.is_some_and(|kept| kept <= Instant::now()) {
            return false;
        }
        if wrote {
            kept = Some(sent + KEPT + here.at(now).peek_n("key", 0).reset_after());
        }
        for (what, ours, theirs) in pairs {
            assert_eq!(ours, theirs, "{what} {about}");
        }
    }
    let stats = there.stats();
    assert_eq!((stats.by_fallback, stats.store_errors, stats.unanswered), (0, 0, 0), "{stats:?}");
    true
}

#[test]
fn the_store_decides_as_the_rules_do() {
    for_each_server(async |program: Program| {
        let server = Server::of(program);
        let client = patient(server.url());
        client.connect().await.unwrap();
        for algorithm in Algorithm::ALL {
            for quota in quotas(algorithm) {
                for seed in 0..6 {
                    // The test's deadline ends futile attempts.
                    let mut attempts = 0..;
                    while !run_alike(&client, algorithm, quota, seed, attempts.next().unwrap()).await {}
                }
            }
        }
    });
}

/// Charges a key under one quota and peeks under another. The numbers are so large that their
/// products exceed 2^53, up to which the scripts' numbers are exact. The expected figures are
/// computed with integers of 128 bits.
#[test]
fn a_change_of_quota_keeps_charged_tokens_to_the_last_unit() {
    for_each_server(async |program: Program| {
        let server = Server::of(program);
        let client = patient(server.url());
        client.connect().await.unwrap();
        let limiter = |algorithm, quota| -> SharedLimiter<str> {
            let builder = SharedLimiter::builder(&client, format!("{algorithm}"), quota);
            // A limiter in this process does not support such large bursts.
            let builder = builder.when_unavailable(WhenUnavailable::Deny);
            builder.algorithm(algorithm).deadline(Duration::from_secs(60)).build().unwrap()
        };
        let at = |micros: u128| Tick::from(Duration::from_micros(u64::try_from(micros).unwrap()));
        let start: u128 = 1_790_000_000_000_000;
        let mut numbers = Numbers(11);
        let mut below = |end: u64| u128::from(numbers.below(end));
        for case in 0..100 {
            let key = format!("{case}");
            let quota = |tokens: u128, micros: u128| {
                let micros = Duration::from_micros(u64::try_from(micros).unwrap());
                Quota::new(u64::try_from(tokens).unwrap(), micros)
            };

            // A token is `unit` units, and a microsecond refills one unit.
            let mut bucket = |least: u64| {
                let unit = u128::from(least) + below(least);
                let burst = (1 << 52) / unit;
                (quota(1, unit).burst(u64::try_from(burst).unwrap()), unit, burst)
            };
            let ((here, unit, burst), (there, other_unit, most)) = (bucket(1 << 30), bucket(1 << 29));
            let debt = burst * unit;
            let elapsed = below(1 << 30);
            let charged = limiter(Algorithm::TokenBucket, here)
                .at(at(start))
                .check_n(&key, u64::try_from(burst).unwrap())
                .await;
            assert!(charged.is_allowed(), "{case}: {charged:?}");
            let peeked = limiter(Algorithm::TokenBucket, there).at(at(start + elapsed));
            let peeked = peeked.peek_n(&key, u64::try_from(most).unwrap()).await;
            let owed = ((debt - elapsed) * other_unit).div_ceil(unit);
            let wait = peeked.retry_after().unwrap().as_micros();
            let expected = (most - owed.div_ceil(other_unit), owed);
            assert_eq!((u128::from(peeked.remaining()), wait), expected, "{case}: {here:?} {there:?}");

            let mut window = || {
                let limit = (1 << 48) + below(1 << 30) * below(1 << 17);
                let length = (1 << 30) + below(1 << 30) * below(1 << 10);
                (quota(limit, length), limit, length)
            };
            let ((here, limit, length), (there, most, _)) = (window(), window());
            let begin = start.next_multiple_of(length);
            let elapsed = (below(1 << 30) * length) >> 30;
            let charged = limiter(Algorithm::SlidingWindow, here)
                .at(at(begin))
                .check_n(&key, u64::try_from(limit).unwrap())
                .await;
            assert!(charged.is_allowed(), "{case}: {charged:?}");
            // Under the first quota, the charge is now in the previous window.
            let peeked = limiter(Algorithm::SlidingWindow, there).at(at(begin + length + elapsed));
            let peeked = peeked.peek_n(&key, 0).await;
            let used = (limit * (length - elapsed)).div_ceil(length);
            assert_eq!(
                u128::from(peeked.remaining()),
                most.saturating_sub(used),
                "{case}: {here:?} {there:?}"
            );
        }
    });
}

/// A request arrives every 10 ms, for 200 periods. As in this process, a sliding window admits all
/// tokens of the first period, and then one token less than its limit in each period.
#[test]
fn a_saturated_sliding_window_admits_one_token_less_than_its_limit() {
    const STEP: u64 = 10_000_000;
    on_client(async |_, client| {
        for (limit, expected) in [(1, 100), (2, 201), (3, 401), (10, 1_801)] {
            let quota = Quota::new(limit, Duration::from_secs(10));
            let builder = SharedLimiter::<str>::builder(&client, format!("saturated-{limit}"), quota);
            let builder = builder.algorithm(Algorithm::SlidingWindow).deadline(Duration::from_secs(60));
            let limiter = builder.build().unwrap();
            let begin = 1_790_000_000_000_000_000;
            let (mut now, mut admitted) = (begin, 0);
            while now < begin + 200_000 * STEP {
                let decision = limiter.at(Tick::from_nanos(now)).check("alice").await;
                admitted += decision.charged();
                // Requests before the end of the wait would be denied, and would change nothing.
                let wait = decision.retry_after().unwrap_or_default().as_nanos();
                now += u64::try_from(wait).unwrap().next_multiple_of(STEP).max(STEP);
            }
            assert_eq!(admitted, expected, "{limit} in 10 s");
        }
    });
}
