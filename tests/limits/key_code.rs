//! The code of a key. `Hash` and `ToKey` may call the limiter that called them. A borrowed form
//! that is not equal to its owned key still receives an answer.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use tollgate::store::{Equivalent, ExactKeys, ToKey};
use tollgate::{DecisionSource, Limiter, ManualClock, Quota};

/// Only a call that never returns takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` in a separate thread, so that a call that never returns is a failure.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (ended, wait) = channel();
    let thread = thread::spawn(move || {
        body();
        let _ = ended.send(());
    });
    match wait.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("a call of the limiter never returned"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => thread.join().unwrap(),
    }
}

/// The maximum depth of nested checks.
const DEPTH: u32 = 6;

thread_local! {
    static DEEP: Cell<u32> = const { Cell::new(0) };
    static FRESH: Cell<u64> = const { Cell::new(1) };
}

/// Calls `check` with a number that no other call receives, unless `DEPTH` such calls are already
/// nested.
fn deeper(check: impl FnOnce(u64)) {
    if DEEP.get() < DEPTH {
        DEEP.set(DEEP.get() + 1);
        check(FRESH.replace(FRESH.get() + 1));
        DEEP.set(DEEP.get() - 1);
    }
}

/// A key whose hash requires other checks of the same limiter.
#[derive(PartialEq, Eq)]
struct Nested(u64);

static BY_FINGERPRINT: OnceLock<Limiter<Nested>> = OnceLock::new();

impl Hash for Nested {
    fn hash<H: Hasher>(&self, state: &mut H) {
        deeper(|fresh| _ = BY_FINGERPRINT.get().unwrap().check(&Self(fresh)));
        self.0.hash(state);
    }
}

#[test]
fn a_hash_may_check_the_limiter_of_its_key() {
    let limiter = Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
    let limiter = BY_FINGERPRINT.get_or_init(|| limiter);
    ends(|| {
        // The table grows meanwhile.
        for key in 1..=2_000 {
            assert!(limiter.check(&Nested(key << 32)).is_allowed());
        }
        assert!(limiter.len() >= 2_000 * (1 + DEPTH as usize), "{}", limiter.len());
    });
}

/// The borrowed form of an exact key. Computing its hash and its owned form requires other checks.
struct Owning(u64);

static BY_KEY: OnceLock<Limiter<u64, ExactKeys<u64>>> = OnceLock::new();

impl Hash for Owning {
    fn hash<H: Hasher>(&self, state: &mut H) {
        deeper(|fresh| _ = BY_KEY.get().unwrap().check(&Self(fresh)));
        self.0.hash(state);
    }
}

impl Equivalent<u64> for Owning {
    fn equivalent(&self, key: &u64) -> bool {
        self.0 == *key
    }
}

impl ToKey<u64> for Owning {
    fn to_key(&self) -> u64 {
        deeper(|fresh| _ = BY_KEY.get().unwrap().check(&Self(fresh)));
        self.0
    }
}

#[test]
fn hash_and_to_key_of_an_exact_key_may_check_its_limiter() {
    let builder = Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new());
    let limiter = builder.exact_keys().build().unwrap();
    let limiter = BY_KEY.get_or_init(|| limiter);
    ends(|| {
        for key in 1..=200 {
            assert!(limiter.check(&Owning(key << 32)).is_allowed());
        }
        assert!(limiter.len() >= 200 * (1 + DEPTH as usize), "{}", limiter.len());
    });
}

/// A name in any case. Its `Equivalent` is wrong, because it does not fold the case.
struct Name(&'static str);

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_lowercase().hash(state);
    }
}

impl Equivalent<String> for Name {
    fn equivalent(&self, key: &String) -> bool {
        self.0 == key
    }
}

impl ToKey<String> for Name {
    fn to_key(&self) -> String {
        self.0.to_lowercase()
    }
}

fn names(quota: Quota, debt: u64) -> Limiter<String, ExactKeys<String>> {
    let builder = Limiter::builder(quota).clock(ManualClock::new()).max_keys(2).max_debt(debt);
    builder.exact_keys().build().unwrap()
}

#[test]
fn a_form_that_is_not_equal_to_its_owned_key_charges_that_key() {
    ends(|| {
        let limiter = names(Quota::per_hour(3), 0);
        let remaining = [(); 4].map(|()| {
            let decision = limiter.check(&Name("Alice"));
            assert_eq!(decision.source(), DecisionSource::Key);
            (decision.is_allowed(), decision.remaining())
        });
        assert_eq!(remaining, [(true, 2), (true, 1), (true, 0), (false, 0)]);
        assert_eq!(limiter.len(), 1);
        assert!(!limiter.check("alice").is_allowed());
    });
}

#[test]
fn a_form_that_is_not_equal_to_its_owned_key_is_forced_to_its_debt() {
    ends(|| {
        let limiter = names(Quota::per_hour(3), 2);
        assert_eq!([4, 4, 4].map(|tokens| limiter.force(&Name("Alice"), tokens)), [4, 1, 0]);
        assert!(!limiter.check("alice").is_allowed());
        assert_eq!(limiter.len(), 1);
    });
}

/// A full store does not look for the owned key. The policy answers instead.
#[test]
fn a_form_that_is_not_equal_to_its_owned_key_overflows_a_full_store() {
    ends(|| {
        let limiter = names(Quota::per_hour(3), 0);
        assert!(limiter.check("alice").is_allowed() && limiter.check("bob").is_allowed());
        assert_ne!(limiter.check(&Name("Alice")).source(), DecisionSource::Key);
        assert_ne!(limiter.peek(&Name("Alice")).source(), DecisionSource::Key);
        assert_eq!(limiter.peek("alice").remaining(), 2);
    });
}
