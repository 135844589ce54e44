//! The store of exact keys: the features that only this store has.

use crate::with_exact_keys::store::{Gate, IntoGate};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::store::{Equivalent, ExactKeys, ToKey};
use tollgate::{
    Algorithm, Charge, DecisionSource, KeyState, Limiter, ManualClock, Quota, SingleLimiter, Tick, check_all,
};

#[test]
fn owned_keys_are_asked_in_borrowed_form() {
    let of_strings: Gate<String> = Limiter::builder(Quota::per_hour(1)).gate();
    assert!(of_strings.check("alice").is_allowed());
    assert!(!of_strings.check(&String::from("alice")).is_allowed());
    let of_bytes: Gate<Vec<u8>> = Limiter::builder(Quota::per_hour(1)).gate();
    assert!(of_bytes.check(&b"alice"[..]).is_allowed());
    assert!(!of_bytes.check(&b"alice".to_vec()).is_allowed());
    let of_strs: Gate<&'static str> = Limiter::builder(Quota::per_hour(1)).gate();
    assert!(of_strs.check(&"alice").is_allowed());
    assert!(!of_strs.check(&"alice").is_allowed());
}

#[test]
fn a_compound_key_can_be_asked_by_its_borrowed_parts() {
    #[derive(Clone, Hash)]
    struct Parts<'a>(u64, &'a str);
    impl Equivalent<(u64, String)> for Parts<'_> {
        fn equivalent(&self, key: &(u64, String)) -> bool {
            self.0 == key.0 && self.1 == key.1
        }
    }
    impl ToKey<(u64, String)> for Parts<'_> {
        fn to_key(&self) -> (u64, String) {
            (self.0, self.1.to_owned())
        }
    }
    let limiter: Gate<(u64, String)> = Limiter::builder(Quota::per_hour(1)).gate();
    assert!(limiter.check(&Parts(7, "/login")).is_allowed());
    assert!(!limiter.check(&(7, "/login".to_owned())).is_allowed());
    assert!(limiter.check(&Parts(7, "/logout")).is_allowed());
    assert!(limiter.check(&Parts(8, "/login")).is_allowed());
}

/// Keys that all have the same hash. Fingerprints would treat them as one key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Colliding(u64);

impl Hash for Colliding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(7);
    }
}

#[test]
fn keys_with_one_hash_share_no_state() {
    let fingerprints: Limiter<Colliding> = Limiter::builder(Quota::per_hour(1)).build().unwrap();
    assert!(fingerprints.check(&Colliding(1)).is_allowed());
    assert!(!fingerprints.check(&Colliding(2)).is_allowed(), "else this test shows nothing");

    let clock = ManualClock::new();
    let limiter: Gate<Colliding> = Limiter::builder(Quota::per_second(1)).clock(&clock).gate();
    for key in 0..200 {
        assert!(limiter.check(&Colliding(key)).is_allowed());
        assert!(!limiter.check(&Colliding(key)).is_allowed());
    }
    assert_eq!(limiter.len(), 200);
    clock.advance(Duration::from_secs(5));
    assert!(limiter.check(&Colliding(7)).is_allowed());
    while limiter.sweep(1_000) {}
    assert_eq!(limiter.len(), 1);
    assert!(!limiter.check(&Colliding(7)).is_allowed());
    assert!(limiter.check(&Colliding(8)).is_allowed());
}

#[test]
fn the_keys_are_listed_with_their_state() {
    let clock = ManualClock::new();
    let limiter: Gate<String> = Limiter::builder(Quota::per_second(10)).clock(&clock).gate();
    for n in 0..100_u64 {
        assert!(limiter.check_n(&format!("user {n}"), n % 10 + 1).is_allowed());
    }
    let listed: HashMap<String, u64> = limiter.keys().map(|key| (key.key().clone(), key.used())).collect();
    assert_eq!(listed.len(), 100);
    for n in 0..100 {
        assert_eq!(listed[&format!("user {n}")], n % 10 + 1);
    }
    let full = limiter.keys().find(|key| key.key() == "user 9").unwrap();
    let figures = |key: &KeyState<String>| (key.decision().remaining(), key.decision().retry_after());
    assert_eq!(figures(&full), (0, Some(Duration::from_millis(100))));
    assert_eq!(full.decision(), limiter.peek("user 9"));
    let other = limiter.keys().find(|key| key.key() == "user 0").unwrap();
    assert_eq!((figures(&other), other.denied()), ((9, Some(Duration::ZERO)), 0));
    clock.advance(Duration::from_secs(5));
    assert_eq!(limiter.keys().map(|key| key.used()).sum::<u64>(), 0);
    while limiter.sweep(1_000) {}
    assert_eq!(limiter.keys().count(), 0);
}

#[test]
fn denials_are_counted_only_where_that_is_asked_for() {
    let counting = Limiter::<u64>::builder(Quota::per_hour(1)).exact_keys().count_denials().build().unwrap();
    let plain: Gate<u64> = Limiter::builder(Quota::per_hour(1)).gate();
    for key in 0..50 {
        for _ in 0..=key {
            let _ = (counting.check(&key), plain.check(&key));
        }
    }
    let most: Vec<(u64, u32)> =
        counting.most_denied(3).iter().map(|key| (*key.key(), key.denied())).collect();
    assert_eq!(most, [(49, 49), (48, 48), (47, 47)]);
    assert_eq!(counting.most_denied(1_000).len(), 49, "0 was never denied");
    assert!(counting.most_denied(0).is_empty());
    assert!(plain.most_denied(3).is_empty());
}

#[test]
fn denials_of_a_paused_key_are_counted_and_peeks_are_not() {
    let builder = Limiter::<u64>::builder(Quota::per_hour(9)).exact_keys().count_denials();
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    assert!(limiter.check(&7).is_allowed());
    limiter.pause(&7, Duration::from_secs(30)).unwrap();
    limiter.check_many(&[7, 7], &mut Vec::new());
    assert!(!limiter.check(&7).is_allowed() && !limiter.peek(&7).is_allowed());
    assert!(limiter.check_n(&7, 0).is_allowed());
    assert_eq!(limiter.most_denied(1)[0].denied(), 3);
}

#[test]
fn a_denial_by_several_limits_is_counted_once_for_each_key_that_denies() {
    let clock = ManualClock::new();
    let builder = Limiter::<u64>::builder(Quota::per_hour(1)).exact_keys().count_denials();
    let limiter = builder.clock(&clock).build().unwrap();
    let all = SingleLimiter::builder(Quota::per_hour(99)).clock(&clock).build().unwrap();
    assert!(limiter.check(&7).is_allowed() && limiter.check(&8).is_allowed());
    limiter.reset(&8);
    let [full, free] = [&7, &8].map(|key| limiter.for_key(key));
    for turn in 0..3 {
        let mut charges = [Charge::new(&full, 1), Charge::new(&all, 1), Charge::new(&free, 1)];
        charges.rotate_left(turn);
        assert!(check_all(&mut charges).is_err());
    }
    let counted: Vec<(u64, u32)> =
        limiter.most_denied(9).iter().map(|key| (*key.key(), key.denied())).collect();
    assert_eq!(counted, [(7, 3)]);
}

/// The key is inserted into the limiter while `to_key` runs, as if by another thread.
struct Late<'l> {
    key: u64,
    limiter: &'l Limiter<u64, ExactKeys<u64>>,
}

impl Hash for Late<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Equivalent<u64> for Late<'_> {
    fn equivalent(&self, key: &u64) -> bool {
        self.key == *key
    }
}

impl ToKey<u64> for Late<'_> {
    fn to_key(&self) -> u64 {
        assert!(self.limiter.check(&self.key).is_allowed());
        self.key
    }
}

#[test]
fn a_denial_is_counted_that_another_insertion_of_the_key_has_led_to() {
    let limiter = Limiter::<u64>::builder(Quota::per_hour(1)).exact_keys().count_denials().build().unwrap();
    assert!(!limiter.check(&Late { key: 7, limiter: &limiter }).is_allowed());
    let counted: Vec<u32> = limiter.most_denied(1).iter().map(|key| key.denied()).collect();
    assert_eq!(counted, [1]);
}

/// Far more keys are used than there is room for, so cells are unlinked and freed all the time.
#[test]
fn cells_that_are_forgotten_are_freed() {
    let builder = Limiter::builder(Quota::per_second(1_000)).max_keys(1_000).grace(Duration::ZERO);
    let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
    let mut most = 0;
    for key in 0..500_000 {
        let now = Tick::from_nanos(key * 100_000);
        assert_eq!(limiter.at(now).check(&key).source(), DecisionSource::Key, "{:?}", limiter.stats());
        most = most.max(limiter.stats().bytes);
    }
    // Cells have 80 bytes, so all of them would occupy 40 megabytes. Some cells are freed later
    // while another test of this process holds a guard.
    assert!(most < 6_000_000, "{most} bytes");
    assert!(limiter.stats().evicted > 490_000);
}

/// A log allocates memory as it is used, and frees the memory when its key is forgotten.
#[test]
fn logs_of_exact_keys_give_their_memory_back() {
    let clock = ManualClock::new();
    let builder = Limiter::builder(Quota::per_hour(10_000)).algorithm(Algorithm::SlidingLog);
    let limiter: Gate<u64> = builder.grace(Duration::ZERO).clock(&clock).gate();
    for key in 0..100 {
        assert!(limiter.check(&key).is_allowed());
    }
    assert!(limiter.stats().bytes < 100_000, "{}", limiter.stats().bytes);
    for key in 0..10 {
        for _ in 0..9_999 {
            clock.advance(Duration::from_nanos(1));
            assert!(limiter.check(&key).is_allowed());
        }
        assert!(!limiter.check(&key).is_allowed());
    }
    let full = limiter.stats().bytes;
    assert!((10 * 80_000..10 * 240_000).contains(&full), "{full}");
    clock.advance(Duration::from_secs(3_600));
    while limiter.sweep(usize::MAX) {}
    assert!(limiter.is_empty());
    // Other tests of this process hold guards, each for a moment.
    let begun = Instant::now();
    while limiter.stats().bytes >= 100_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", limiter.stats().bytes);
        thread::yield_now();
        limiter.sweep(1);
    }
}

#[test]
fn limiters_of_exact_keys_are_shared_between_threads_as_their_keys_are() {
    fn is_shareable<T: Send + Sync + 'static>() {}
    is_shareable::<Limiter<String, ExactKeys<String>>>();
}
