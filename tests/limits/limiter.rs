//! The limiters as their users see them: keys, policies, batches, times and threads.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tollgate::rule::{Gcra, Refused, Rule, Word};
use tollgate::store::Equivalent;
use tollgate::{Algorithm, Decision, Limiter, ManualClock, Quota, SingleLimiter, Tick};

fn limiter<K: ?Sized>(quota: Quota) -> Limiter<K> {
    Limiter::builder(quota).clock(ManualClock::new()).build().unwrap()
}

/// Keys of unsized types such as `str`, which only fingerprints accept.
mod keys {
    use super::*;

    #[test]
    fn owned_keys_are_asked_in_borrowed_form() {
        let of_strings: Limiter<String> = limiter(Quota::per_hour(1));
        assert!(of_strings.check("alice").is_allowed());
        assert!(!of_strings.check(&String::from("alice")).is_allowed());

        let of_strs: Limiter<&'static str> = limiter(Quota::per_hour(1));
        assert!(of_strs.check("alice").is_allowed());
        assert!(!of_strs.check(&"alice").is_allowed());

        let of_bytes: Limiter<Vec<u8>> = limiter(Quota::per_hour(1));
        assert!(of_bytes.check(&b"alice"[..]).is_allowed());
        assert!(!of_bytes.check(&b"alice".to_vec()).is_allowed());

        let of_addresses: Limiter<IpAddr> = limiter(Quota::per_hour(1));
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(of_addresses.check(&address).is_allowed());
        assert!(!of_addresses.check(&address).is_allowed());
    }

    #[test]
    fn a_compound_key_can_be_asked_by_its_borrowed_parts() {
        #[derive(Hash)]
        struct Parts<'a>(u64, &'a str);
        impl Equivalent<(u64, String)> for Parts<'_> {
            fn equivalent(&self, key: &(u64, String)) -> bool {
                self.0 == key.0 && self.1 == key.1
            }
        }
        let limiter: Limiter<(u64, String)> = limiter(Quota::per_hour(1));
        assert!(limiter.check(&Parts(7, "/login")).is_allowed());
        assert!(!limiter.check(&(7, "/login".to_owned())).is_allowed());
        assert!(limiter.check(&Parts(7, "/logout")).is_allowed());
        assert!(limiter.check(&Parts(8, "/login")).is_allowed());
    }

    #[test]
    fn a_pair_with_a_borrowed_part_is_a_key() {
        let limiter: Limiter<(IpAddr, &'static str)> = limiter(Quota::per_hour(1));
        let (address, path) = (IpAddr::from(Ipv4Addr::LOCALHOST), String::from("/login"));
        assert!(limiter.check(&(address, path.as_str())).is_allowed());
        assert!(!limiter.check(&(address, "/login")).is_allowed());
        assert!(limiter.check(&(address, "/logout")).is_allowed());
    }
}

mod configuration {
    use super::*;

    /// Every refusal names the value, the range and the fix.
    #[test]
    fn nonsense_is_refused_with_value_range_and_fix() {
        let second = Duration::from_secs(1);
        let cases: [(Algorithm, Quota, [&str; 3]); 9] = [
            (Algorithm::TokenBucket, Quota::per_second(0), ["0 tokens", "allowed: 1 and more", "to close"]),
            (
                Algorithm::TokenBucket,
                Quota::new(1, Duration::ZERO),
                ["period 0", "allowed: 1ns", "one second"],
            ),
            (Algorithm::TokenBucket, Quota::per_second(1).burst(0), ["burst 0", "allowed: 1", "leave"]),
            (
                Algorithm::TokenBucket,
                Quota::new(1, Duration::MAX),
                ["period 1844674407370955", "1ns to 315360000s", "shorter"],
            ),
            (
                Algorithm::LeakyBucket,
                Quota::per_second(u64::MAX),
                ["1844674", "1 to 2000000000", "larger units"],
            ),
            (
                Algorithm::LeakyQueue,
                Quota::per_day(1).burst(1 << 40),
                ["burst 1099511627776", "1 to 26687", "smaller burst"],
            ),
            (Algorithm::FixedWindow, Quota::per_second(1).burst(2), ["burst 2", "no burst", "token-bucket"]),
            (
                Algorithm::SlidingWindow,
                Quota::new(32_768, second),
                ["32768 tokens", "allowed: 1 to 32767", "shorter period"],
            ),
            (
                Algorithm::SlidingWindow,
                Quota::new(1, Duration::from_nanos(1)),
                ["period 1ns", "allowed: 2ns", "longer period"],
            ),
        ];
        for (algorithm, quota, parts) in cases {
            let refused = SingleLimiter::builder(quota).algorithm(algorithm).build().unwrap_err();
            let message = refused.to_string();
            for part in parts {
                assert!(message.contains(part), "{part:?} is not in {message:?}");
            }
        }
    }

    #[test]
    fn what_the_error_names_as_the_most_is_accepted() {
        for algorithm in Algorithm::PACKED {
            for period in [Duration::from_millis(7), Duration::from_secs(1), Duration::from_secs(86_400)] {
                let build = |limit| {
                    SingleLimiter::builder(Quota::new(limit, period)).algorithm(algorithm).build().map(|_| ())
                };
                let most = match *build(u64::MAX).unwrap_err().refused() {
                    Refused::TooManyTokens { most, .. } | Refused::RateTooHigh { most, .. } => most,
                    ref other => panic!("{other}"),
                };
                assert_eq!(build(most), Ok(()), "{algorithm} {period:?}");
                assert!(build(most + 1).is_err(), "{algorithm} {period:?}");
            }
        }
        let burst = |burst| SingleLimiter::builder(Quota::per_day(1).burst(burst)).build().map(|_| ());
        let Refused::BurstTooLarge { most, .. } = *burst(u64::MAX).unwrap_err().refused() else { panic!() };
        assert_eq!(burst(most), Ok(()));
        assert!(burst(most + 1).is_err());
    }

    #[test]
    fn a_quota_without_its_burst_is_the_plain_rate_again() {}

    #[test]
    fn a_cap_of_nothing_or_of_everything_is_refused() {
        for max_keys in [0, usize::MAX] {
            let builder = Limiter::<str>::builder(Quota::per_second(1)).max_keys(max_keys);
            let message = builder.build().unwrap_err().to_string();
            assert!(message.contains(&format!("max_keys {max_keys} is out of range; allowed: 1 to ")));
        }
    }

    #[test]
    fn limiters_are_shared_between_threads() {
        fn is_shareable<T: Send + Sync + 'static>() {}
        is_shareable::<Limiter<str>>();
        is_shareable::<Limiter<*const u8>>();
        is_shareable::<SingleLimiter>();
        is_shareable::<Decision>();
        assert!(size_of::<Decision>() <= 64);
    }
}

#[test]
fn words_and_decisions_are_printed_as_they_are_read() {
    assert_eq!(format!("{:?}", Word::FRESH), "Word(fresh)");
    let rule = Gcra::token_bucket(Quota::per_second(2)).unwrap();
    let (word, decision) = rule.decide(Word::FRESH, Tick::ZERO, 2);
    assert!(format!("{word:?}").starts_with("Word(0x"), "{word:?}");
    let denied = rule.decide(word, Tick::ZERO, 1).1;
    for (decision, figures) in [
        (decision, ["outcome: Allowed", "cost: 2", "capacity: 2", "remaining: 0", "retry_after: Some(0ns)"]),
        (denied, ["outcome: Denied", "cost: 1", "capacity: 2", "remaining: 0", "retry_after: Some(500ms)"]),
    ] {
        let printed = format!("{decision:?}");
        assert!(figures.iter().all(|figure| printed.contains(figure)), "{printed}");
    }
}

#[test]
fn a_refusal_says_why_and_when_it_is_worth_coming_back() {
    let of = |decision: Decision| decision.ok().unwrap_err();
    let rule = Gcra::token_bucket(Quota::per_second(2)).unwrap();
    let (word, _) = rule.decide(Word::FRESH, Tick::ZERO, 2);
    let denied = rule.decide(word, Tick::ZERO, 1).1;
    assert_eq!(of(denied).decision(), denied);
    assert_eq!(of(denied).to_string(), "rate limit exceeded; try again in 500 ms");
    let costly = of(rule.decide(word, Tick::ZERO, 3).1);
    assert_eq!(costly.to_string(), "the request costs 3 tokens, and the limit never has more than 2");
    let (word, _) = rule.decide(Word::FRESH, Tick::MAX, 2);
    let late = of(rule.decide(word, Tick::MAX, 1).1);
    assert_eq!(late.to_string(), "limit exceeded; it is unknown when a retry passes");

    let builder = Limiter::builder(Quota::per_second(1)).max_keys(1).clock(ManualClock::new());
    let full: Limiter<u8> = builder.build().unwrap();
    assert!(full.check(&1).is_allowed());
    let refused = of(full.check(&2));
    assert_eq!(refused.to_string(), "the limiter has no room for a new key, or its store did not answer");
}

/// Both stores, with a hash meant for keys that an attacker chooses.
mod hashes {
    use super::*;
    use std::hash::{BuildHasher, Hasher, RandomState};
    use tollgate::store::{Accepts, ExactKeys, Fingerprints, SipHash, Store};
    use tollgate::{Builder, ManualClock};

    fn each_key_has_its_own_state<S: Store + Accepts<String> + Accepts<str>>(limiter: &Limiter<String, S>) {
        for round in 0..3 {
            for key in 0..5_000 {
                let key = format!("10.0.{}.{}", key / 256, key % 256);
                let allowed =
                    if key.len() % 2 == 0 { limiter.check(&key) } else { limiter.check(key.as_str()) };
                assert_eq!(allowed.is_allowed(), round < 2, "{key} in round {round}");
            }
        }
        assert_eq!(limiter.len(), 5_000);
    }

    #[test]
    fn each_key_has_a_state_of_its_own_in_both_stores() {
        let builder =
            || Limiter::<String>::builder(Quota::per_hour(2)).clock(ManualClock::new()).keyed_hash();
        let of_fingerprints: Limiter<String, Fingerprints<SipHash>> = builder().build().unwrap();
        each_key_has_its_own_state(&of_fingerprints);
        let exact: Limiter<String, ExactKeys<String, RandomState>> =
            exact().hasher(RandomState::new()).build().unwrap();
        each_key_has_its_own_state(&exact);
        assert_eq!(exact.keys().count(), 5_000);
        let keyed = self::exact().hasher(SipHash::default()).count_denials();
        each_key_has_its_own_state(&keyed.build().unwrap());
    }

    fn exact() -> Builder<Limiter<String, ExactKeys<String>>> {
        Limiter::<String>::builder(Quota::per_hour(2)).clock(ManualClock::new()).exact_keys()
    }

    /// A hash that maps all keys to one number.
    #[derive(Clone)]
    struct Constant;

    impl BuildHasher for Constant {
        type Hasher = Constant;

        fn build_hasher(&self) -> Constant {
            Constant
        }
    }

    impl Hasher for Constant {
        fn finish(&self) -> u64 {
            7
        }

        fn write(&mut self, _: &[u8]) {}
    }

    /// Exact keys are compared, so two keys never share a state, whatever their hashes are. Every
    /// class uses the hash that the builder was given.
    #[test]
    fn exact_keys_of_a_poor_hash_have_states_of_their_own() {
        let limiter = exact().hasher(Constant).class("paid", Quota::per_hour(1)).build().unwrap();
        for (class, admitted) in [("default", 2), ("paid", 1)] {
            let class = limiter.class(class).unwrap();
            for key in 0..50 {
                let passed = (0..4).filter(|_| class.check(&key.to_string()).is_allowed()).count();
                assert_eq!(passed, admitted);
            }
        }
    }
}
