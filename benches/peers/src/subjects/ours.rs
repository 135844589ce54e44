//! This library, with each kind of check.

use super::{
    Built, EMPTY_LOOP, ONE_RESOURCE, OWN, Quota, Rows, Setting, Subject, Upkeep, counter, each, kept,
};
use crate::keys::Key;
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Duration;
use tollgate::{Chargeable, Clock, Decision, Limiter, SingleLimiter};

pub fn all<K: Key>() -> Rows<K> {
    vec![
        (EMPTY_LOOP, |_| {
            let check = |(): &(), key: &K| {
                black_box(key);
                true
            };
            // A single state has nothing to sweep, so sweeping and clearing do nothing, and it can
            // be compared with all other subjects.
            kept((), check, Upkeep { sweep: Some(|()| ()), clear: Some(|()| ()), ..Upkeep::NONE })
        }),
        (OWN, |setting| checked(setting, Some(counter()))),
        ("tollgate, a time for 32", |setting| Ok(Box::new(InTurns(limiter::<K>(setting, Some(counter()))?)))),
        ("tollgate, batches of 32", |setting| Ok(Box::new(Batches(limiter::<K>(setting, Some(counter()))?)))),
        ("tollgate, system clock", |setting| checked(setting, Some(Clock::system()))),
        ("tollgate, coarse clock", |setting| checked(setting, Some(coarse()))),
        ("tollgate, one resource", |setting| {
            if setting.keys > 1 {
                return Err(ONE_RESOURCE);
            }
            let single = SingleLimiter::builder(quota(setting)).clock(counter()).build();
            let single = single.map_err(|_| "refuses the quota")?;
            each(move |_| single.check().is_allowed())
        }),
        ("tollgate, one resource, leases", |setting| {
            if setting.keys > 1 {
                return Err(ONE_RESOURCE);
            }
            let quota = quota(setting).burst(u64::from(setting.quota.burst()).max(LEASING_BURST));
            let single = SingleLimiter::builder(quota).clock(counter()).core_leases().build();
            let single = single.map_err(|_| "refuses the quota")?;
            contend(&single);
            if setting.quota == Quota::UsedUp {
                leave(&single, setting.quota.burst().into());
            }
            each(move |_| single.check().is_allowed())
        }),
    ]
}

/// A burst that is large enough for leases to a thousand cores.
const LEASING_BURST: u64 = 1 << 17;

/// Checks on two threads until the cores have leases, as they have after the first moments of a
/// limiter that several threads use.
fn contend(limiter: &SingleLimiter) {
    let check = |_| limiter.refund(&limiter.check());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..100_000_000).take_while(|_| limiter.leased() == 0).for_each(check));
        }
    });
}

/// Takes all tokens, those on lease as well, but for these.
fn leave(limiter: &SingleLimiter, tokens: u64) {
    let now = limiter.at(limiter.clock().now());
    let costs = (0..u64::BITS).rev().map(|power| 1 << power);
    let charged = |cost| std::iter::repeat_with(move || now.check_n(cost)).take_while(Decision::is_allowed);
    let charges = costs.flat_map(charged);
    let largest = charges.reduce(|first, _| first);
    now.refund_n(&largest.expect("a new limiter has tokens"), tokens);
}

/// Returns this library with its default clock.
pub fn defaults<K: Key>() -> Rows<K> {
    vec![(OWN, |setting| checked(setting, None))]
}

fn checked<K: Key>(setting: Setting, clock: Option<Clock>) -> Built<K> {
    let upkeep = Upkeep {
        // This sweeps like the library's own sweeper.
        sweep: Some(|limiter: &Limiter<K>| while limiter.sweep(1024) {}),
        needs_sweeps: false,
        clear: Some(Limiter::clear),
        turnovers: Some(|limiter| limiter.stats().turnovers),
        bytes: Some(memory),
    };
    kept(limiter(setting, clock)?, |limiter: &Limiter<K>, key: &K| limiter.check(key).is_allowed(), upkeep)
}

/// Returns the bytes of a table alone. A few hundred bytes besides the table are allocated, and
/// counted.
fn memory<K>(limiter: &Limiter<K>) -> u64 {
    limiter.stats().bytes as u64
}

fn limiter<K>(setting: Setting, clock: Option<Clock>) -> Result<Limiter<K>, &'static str> {
    let builder = Limiter::builder(quota(setting)).max_keys(setting.keys);
    let builder = match clock {
        Some(clock) => builder.clock(clock),
        None => builder,
    };
    let builder = match setting.sweeps {
        // A sweep does nothing within the grace after the last one.
        Some(every) => builder.grace(every / 2),
        None => builder,
    };
    builder.build().map_err(|_| "refuses the quota")
}

fn quota(setting: Setting) -> tollgate::Quota {
    let interval = Duration::from_nanos(setting.quota.interval());
    tollgate::Quota::new(1, interval).burst(Quota::burst(setting.quota).into())
}

/// Returns the coarse clock of the system for all subjects. Its ticks are 1 to 10 ms long.
pub fn coarse() -> Clock {
    static COARSE: LazyLock<Clock> = LazyLock::new(|| Clock::coarse(Duration::from_millis(10)));
    COARSE.clone()
}

/// Reads the clock once for 32 checks, as an event loop does in each of its turns.
struct InTurns<K>(Limiter<K>);

impl<K: Key> Subject<K> for InTurns<K> {
    fn decide(&self, keys: &[K]) -> u64 {
        let admitted = keys.chunks(32).map(|turn| {
            let gate = self.0.at(self.0.clock().now());
            turn.iter().map(|key| u64::from(gate.check(key).is_allowed())).sum::<u64>()
        });
        admitted.sum()
    }

    fn bytes(&self) -> u64 {
        memory(&self.0)
    }
}

/// Calls `check_many` with 32 keys at a time.
struct Batches<K>(Limiter<K>);

impl<K: Key> Subject<K> for Batches<K> {
    fn decide(&self, keys: &[K]) -> u64 {
        thread_local! {
            static DECISIONS: RefCell<Vec<Decision>> = const { RefCell::new(Vec::new()) };
        }
        DECISIONS.with_borrow_mut(|decisions| {
            let mut admitted = 0;
            for batch in keys.chunks(32) {
                decisions.clear();
                self.0.check_many(batch, decisions);
                admitted += decisions.iter().filter(|decision| decision.is_allowed()).count() as u64;
            }
            admitted
        })
    }

    fn bytes(&self) -> u64 {
        memory(&self.0)
    }
}
