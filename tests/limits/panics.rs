//! A panic in a key's `Hash`, `Eq` or `Clone`, in `ToKey` or in an iterator passes through a
//! limiter without damage: no place of the cap is lost, every count is correct, and later calls
//! work.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;
use tollgate::store::{Accepts, ExactKeys, Store};
use tollgate::{DecisionSource, Limiter, ManualClock, Quota};

const MAX_KEYS: usize = 64;

/// A kind of call to a key's code.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Hash,
    Eq,
    Clone,
}

thread_local! {
    /// The kind of the call that panics, and the number of calls of this kind before it.
    static FUSE: Cell<Option<(Call, u32)>> = const { Cell::new(None) };
    /// How many calls have panicked.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Panics if it is this call's turn.
fn reach(call: Call) {
    match FUSE.get() {
        Some((armed, 0)) if armed == call => {
            FUSE.set(None);
            PANICS.set(PANICS.get() + 1);
            // The panic prints no message.
            resume_unwind(Box::new(call));
        }
        Some((armed, before)) if armed == call => FUSE.set(Some((armed, before - 1))),
        _ => {}
    }
}

/// Both keys of a pair have the same hash, so the store of exact keys compares them.
#[derive(Debug, Eq)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        reach(Call::Hash);
        state.write_u64(self.0 / 2);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        reach(Call::Eq);
        self.0 == other.0
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        reach(Call::Clone);
        Self(self.0)
    }
}

/// Calls `body` repeatedly while a different `call` panics each time, until none does. Returns the
/// number of panics.
fn with_panics(call: Call, mut body: impl FnMut()) -> u32 {
    let before = PANICS.get();
    for nth in 0.. {
        FUSE.set(Some((call, nth)));
        let result = catch_unwind(AssertUnwindSafe(&mut body));
        let has_panicked = FUSE.take().is_none();
        assert_eq!(result.is_err(), has_panicked);
        if !has_panicked {
            break;
        }
    }
    PANICS.get() - before
}

/// Runs all operations of a limiter on keys. Each call of this kind to the key's code panics once.
fn panic_everywhere<S: Store + Accepts<Key>>(
    limiter: &Limiter<Key, S>,
    clock: &ManualClock,
    call: Call,
) -> u32 {
    let mut panics = 0;
    for round in 0..40 {
        // The first of the two keys is already in the store, and the second is compared with it.
        let (known, new) = (Key(4 * round), Key(4 * round + 1));
        let _ = limiter.check(&known);
        let mut decisions = Vec::new();
        panics += with_panics(call, || _ = limiter.check(&new));
        panics += with_panics(call, || _ = limiter.at(limiter.clock().now()).check(&known));
        panics +=
            with_panics(call, || limiter.check_many(&[Key(4 * round + 2), Key(4 * round)], &mut decisions));
        panics += with_panics(call, || _ = limiter.peek(&known));
        panics += with_panics(call, || {
            let charge = limiter.check(&known);
            limiter.refund(&known, &charge);
        });
        panics += with_panics(call, || limiter.reset(&new));
        let quotas = || [(&new, Some(Quota::per_hour(9))), (&known, Some(Quota::per_hour(8)))];
        panics += with_panics(call, || limiter.set_key_quotas(quotas()).unwrap());
        panics += with_panics(call, || _ = limiter.key_quota(&known));
        panics += with_panics(call, || limiter.set_quota(Quota::per_hour(2)).unwrap());
        panics += with_panics(call, || {
            limiter.set_key_quota(&new, None).unwrap();
            limiter.set_key_quota(&known, None).unwrap();
        });
        panics += with_panics(call, || while limiter.sweep(64) {});
        panics += with_panics(call, || limiter.clear());
        clock.advance(Duration::from_secs(2));
    }
    panics
}

/// Asserts that the limiter can hold as many keys as its cap allows, so the panicking calls have
/// left nothing behind.
fn is_whole<S: Store + Accepts<Key>>(limiter: &Limiter<Key, S>, clock: &ManualClock) {
    assert_eq!(limiter.stats().own_quotas, 0);
    for _ in 0..2 {
        limiter.clear();
        assert_eq!(limiter.len(), 0);
        let source = |key| limiter.check(&Key(key)).source();
        let keys = (0..MAX_KEYS as u64).map(|key| 1_000 + 2 * key);
        assert!(keys.clone().all(|key| source(key) == DecisionSource::Key));
        assert_eq!((limiter.len(), source(9_000)), (MAX_KEYS, DecisionSource::Policy));
        assert!(keys.clone().all(|key| !limiter.check_n(&Key(key), 2).is_allowed()));
        clock.advance(Duration::from_secs(2));
    }
}

#[test]
fn a_panic_of_a_key_leaves_a_limiter_of_fingerprints_whole() {
    let clock = ManualClock::new();
    let builder = Limiter::builder(Quota::per_hour(2)).max_keys(MAX_KEYS).clock(&clock);
    let limiter: Limiter<Key> = builder.build().unwrap();
    assert!(panic_everywhere(&limiter, &clock, Call::Hash) > 200);
    is_whole(&limiter, &clock);
}

#[test]
fn a_panic_of_a_key_leaves_a_limiter_of_exact_keys_whole() {
    for (call, least) in [(Call::Hash, 200), (Call::Eq, 200), (Call::Clone, 100)] {
        let clock = ManualClock::new();
        let builder = Limiter::<Key>::builder(Quota::per_hour(2)).max_keys(MAX_KEYS).clock(&clock);
        let limiter = builder.exact_keys().count_denials().build().unwrap();
        let panics = panic_everywhere(&limiter, &clock, call);
        assert!(panics > least, "{panics} panics in {call:?}");
        is_whole(&limiter, &clock);
        list(&limiter, call);
    }
}

/// Lists keys while calls to the keys' code panic.
fn list(limiter: &Limiter<Key, ExactKeys<Key>>, call: Call) {
    limiter.set_key_quota(&Key(1_001), Quota::per_hour(7)).unwrap();
    let panics = with_panics(call, || assert_eq!(limiter.keys().count(), MAX_KEYS))
        + with_panics(call, || assert!(!limiter.most_denied(3).is_empty()));
    assert_eq!(panics > 0, call == Call::Eq);
    assert_eq!((limiter.keys().count(), limiter.len()), (MAX_KEYS, MAX_KEYS));
}

/// Charges before the panic have their decisions. Nothing else is charged.
#[test]
fn a_panic_of_the_iterator_leaves_the_decisions_made_before() {
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
    let keys: Vec<u64> = (0..100).collect();
    let mut decisions = Vec::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        limiter.check_many(keys.iter().inspect(|key| assert!(**key < 80)), &mut decisions);
    }));
    assert!(result.is_err());
    let charged = keys.iter().filter(|key| !limiter.peek(*key).is_allowed()).count();
    assert!((1..=80).contains(&charged), "{charged}");
    assert_eq!((decisions.len(), limiter.len()), (charged, charged));
    let quotas = keys.iter().map(|key| (key, (*key < 50).then(|| Quota::per_hour(5))));
    let result = catch_unwind(AssertUnwindSafe(|| {
        limiter.set_key_quotas(quotas.inspect(|(key, _)| assert!(**key < 80)))
    }));
    assert!(result.is_err());
    assert_eq!(limiter.stats().own_quotas, 0);
}
