//! An older checkout of this library, with the same kinds of checks as this library: `make peers
//! BASELINE=...`.
//!
//! This file uses the interface of commit 6d56f904, and keeps using it while the library changes.
//! Other revisions can be baselines if this file compiles with them. Each row has the same clock as
//! the row in `ours` that it is compared with. In `defaults`, each has its own default clock, and
//! these may differ.

use super::{BASELINE, Built, ONE_RESOURCE, Quota, Rows, Setting, Subject, Upkeep, each, kept};
use crate::keys::Key;
use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::Duration;
use tollgate_baseline::{Clock, Decision, Limiter, Outcome, SingleLimiter};

pub fn all<K: Key>() -> Rows<K> {
    vec![
        (BASELINE, |setting| checked(setting, Some(counter()))),
        ("tollgate baseline, batches of 32", |setting| {
            Ok(Box::new(Batches(limiter::<K>(setting, Some(counter()))?)))
        }),
        ("tollgate baseline, system clock", |setting| checked(setting, Some(Clock::system()))),
        ("tollgate baseline, coarse clock", |setting| checked(setting, Some(coarse()))),
        ("tollgate baseline, one resource", |setting| {
            if setting.keys > 1 {
                return Err(ONE_RESOURCE);
            }
            let single = SingleLimiter::builder(quota(setting)).clock(counter()).build();
            let single = single.map_err(|_| "refuses the quota")?;
            each(move |_| single.check().outcome() == Outcome::Allowed)
        }),
    ]
}

pub fn defaults<K: Key>() -> Rows<K> {
    vec![(BASELINE, |setting| checked(setting, None))]
}

fn counter() -> Clock {
    #[cfg(feature = "counter")]
    return Clock::counter();
    #[cfg(not(feature = "counter"))]
    unreachable!("built without the feature `counter`");
}

fn coarse() -> Clock {
    static COARSE: LazyLock<Clock> = LazyLock::new(|| Clock::coarse(Duration::from_millis(10)));
    COARSE.clone()
}

fn checked<K: Key>(setting: Setting, clock: Option<Clock>) -> Built<K> {
    let upkeep = Upkeep {
        sweep: Some(|limiter: &Limiter<K>| while limiter.sweep(1024) {}),
        needs_sweeps: false,
        clear: Some(Limiter::clear),
        turnovers: Some(|limiter| limiter.stats().turnovers),
        bytes: Some(memory),
    };
    kept(
        limiter(setting, clock)?,
        |limiter: &Limiter<K>, key: &K| limiter.check(key).outcome() == Outcome::Allowed,
        upkeep,
    )
}

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
        Some(every) => builder.grace(every / 2),
        None => builder,
    };
    builder.build().map_err(|_| "refuses the quota")
}

fn quota(setting: Setting) -> tollgate_baseline::Quota {
    let interval = Duration::from_nanos(setting.quota.interval());
    tollgate_baseline::Quota::new(1, interval).burst(Quota::burst(setting.quota).into())
}

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
                admitted +=
                    decisions.iter().filter(|decision| decision.outcome() == Outcome::Allowed).count() as u64;
            }
            admitted
        })
    }

    fn bytes(&self) -> u64 {
        memory(&self.0)
    }
}
