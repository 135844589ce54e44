//! What a load refuses, what it drops, and how it counts time.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::time::Duration;
use tollgate::store::{Accepts, Persist};
use tollgate::{
    Algorithm, Builder, Chargeable, ClassLimiter, Clock, DecisionSource, Limiter, LoadError, LoadOptions,
    ManualClock, Quota, SingleLimiter, Tick, WhenFull, WindowAlign,
};

const HOUR: Duration = Duration::from_secs(3600);

fn saved(save: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<u8> {
    let mut file = Vec::new();
    save(&mut file).unwrap();
    file
}

fn keyed() -> Builder<Limiter<u64>> {
    Limiter::builder(Quota::per_hour(2)).clock(ManualClock::new())
}

/// Returns a file with one key that has one token left.
fn one_key() -> Vec<u8> {
    let limiter = keyed().build().unwrap();
    assert!(limiter.check(&7).is_allowed());
    saved(|file| limiter.save(file))
}

#[track_caller]
fn refuses<T>(loaded: Result<T, LoadError>, why: &str) {
    match loaded.map(drop) {
        Err(LoadError::Unusable(text)) => assert!(text.contains(why), "{text:?} instead of {why:?}"),
        other => panic!("{other:?} instead of {why:?}"),
    }
}

/// The offset of a file's first block.
const HEAD: usize = 14;

/// Changes the contents of a file with one block, and corrects the checksum.
fn forge(file: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let end = file.len() - 12;
    change(&mut file[HEAD..end]);
    let mut sum = SipHasher13::new();
    sum.write(&file[HEAD..end]);
    let sum = sum.finish().to_le_bytes();
    file[end + 4..].copy_from_slice(&sum);
}

/// Replaces the time of day at which a file was written.
fn forge_time_of_day(file: &mut [u8], of: impl Fn(u64) -> u64) {
    forge(file, |block| {
        let seconds = block.len() - 12;
        let at = &mut block[seconds..seconds + 8];
        let changed = of(u64::from_le_bytes(at[..].try_into().unwrap()));
        at.copy_from_slice(&changed.to_le_bytes());
    });
}

#[test]
fn a_file_that_is_none_or_is_not_whole_is_refused() {
    let file = one_key();
    refuses(keyed().load(&b"[proxy]\nlisten = \"127.0.0.1:0\""[..]), "does not begin with \"tollgate\"");
    refuses(keyed().load(&[][..]), "truncated");
    for length in 0..file.len() {
        refuses(keyed().load(&file[..length]), "truncated");
    }
    for byte in HEAD..file.len() {
        let mut changed = file.clone();
        changed[byte] ^= 0x10;
        assert!(keyed().load(&changed[..]).is_err(), "byte {byte}");
    }
    let mut newer = file;
    newer[8] = 2;
    refuses(keyed().load(&newer[..]), "its version is 2; allowed: 1");
}

#[test]
fn an_error_while_reading_is_passed_on() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let refused = keyed().load(Broken).unwrap_err();
    assert!(matches!(refused, LoadError::Read(_)));
    assert_eq!(refused.to_string(), "the saved state cannot be read: the disk is gone");
}

#[test]
fn a_file_of_another_limiter_is_refused() {
    let single = || SingleLimiter::builder(Quota::per_hour(2)).clock(ManualClock::new());
    let of_single = saved(|file| single().build().unwrap().save(file));
    refuses(single().load(&one_key()[..]), "it is the state of fingerprints of keys");
    refuses(keyed().load(&of_single[..]), "it is the state of one resource");
    refuses(
        keyed().algorithm(Algorithm::FixedWindow).load(&one_key()[..]),
        "it is the state of a token-bucket; this limiter is a fixed-window",
    );
    refuses(single().algorithm(Algorithm::SlidingLog).load(&of_single[..]), "this limiter is a sliding-log");
    let of_classes = saved(|file| keyed().class("paid", Quota::per_hour(9)).build().unwrap().save(file));
    refuses(keyed().load(&of_classes[..]), "it is the state of classes");
    refuses(
        keyed().class("paid", Quota::per_hour(9)).load(&one_key()[..]),
        "this limiter needs the state of classes",
    );
}

/// An update of a dependency may change a hash. All keys would then be new.
#[test]
fn a_hash_that_changed_by_one_bit_is_refused() {
    refuses(
        Limiter::<u64>::builder(Quota::per_hour(2)).keyed_hash().load(&one_key()[..]),
        "another function",
    );
    // Before the seeds are the kind, the algorithm, the phase, the debt, and a flag.
    let seeds = 8 + "fingerprints of keys".len() + 8 + "token-bucket".len() + 12 + 8 + 1;
    for bit in 0..128 {
        let mut file = one_key();
        forge(&mut file, |block| block[seeds + bit / 8] ^= 1 << (bit % 8));
        refuses(keyed().load(&file[..]), "hashed by another function");
    }
}

/// Anyone who can write the file can write any bits into a word.
#[test]
fn a_word_that_no_charge_can_have_made_is_refused() {
    let mut numbers: Vec<_> = (0..64).map(|bit| 1_u64 << bit).collect();
    numbers.extend([0, u64::MAX, u64::MAX >> 1, (1 << 62) + (1 << 61)]);
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let builder = || keyed().algorithm(algorithm);
        let limiter = builder().build().unwrap();
        assert!(limiter.check(&7).is_allowed());
        let file = saved(|file| limiter.save(file));
        // The fingerprint and the word follow the tag and the quota of the key.
        let head = 8 + "fingerprints of keys".len() + 8 + algorithm.to_string().len() + 12 + 8 + 1 + 96;
        let word = head + 1 + 29 + 1 + 8 + 1;
        let mut refused = 0;
        for number in &numbers {
            let mut file = file.clone();
            forge(&mut file, |block| block[word..word + 8].copy_from_slice(&number.to_le_bytes()));
            match builder().load(&file[..]) {
                Err(LoadError::Unusable(why)) => {
                    assert!(why.contains("damaged"), "{why}");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
                // Nothing overflows, whatever the time is.
                Ok(loaded) => [0, 1 << 60, 1 << 61].map(Tick::from_nanos).iter().for_each(|&now| {
                    let decision = loaded.at(now).check(&7);
                    let _ = (decision.retry_after(), decision.reset_after(), loaded.at(now).force(&7, 1));
                }),
            }
        }
        assert!((5..numbers.len()).contains(&refused), "{algorithm}: {refused}");
    }
}

#[test]
fn more_keys_than_places_are_refused_or_the_nearest_to_idle_are_dropped() {
    let clock = ManualClock::new();
    let builder = || Limiter::<u64>::builder(Quota::per_hour(9)).clock(&clock);
    let limiter = builder().build().unwrap();
    for key in 0..6 {
        assert!(limiter.check_n(&key, key + 1).is_allowed());
    }
    let file = saved(|file| limiter.save(file));
    let small = || builder().max_keys(3);
    refuses(small().load(&file[..]), "it contains 6 keys that are not idle; allowed: 3; raise `max_keys`");
    let options = LoadOptions::new().drop_excess_keys();
    let loaded = small().load_with(options, &file[..]).unwrap();
    assert_eq!(loaded.len(), 3);
    for key in 3..6 {
        assert_eq!(loaded.peek(&key).remaining(), 9 - (key + 1));
    }
    let is_denied = |key| loaded.check(&key).source() == DecisionSource::Policy;
    assert!([0, 1, 2, 99].into_iter().all(is_denied));
    // Now the dropped keys are idle, so the other keys are not too many.
    clock.advance(3 * HOUR / 9);
    assert_eq!(small().load(&file[..]).unwrap().len(), 3);
    assert!([0, 1, 2, 99].into_iter().all(is_denied));
    // Key 3 is the first to make room.
    clock.advance(HOUR / 9 + Duration::from_secs(2));
    assert!(!is_denied(2) && is_denied(99));
}

#[test]
fn pauses_and_quotas_of_keys_are_kept() {
    let clock = ManualClock::new();
    let builder = || Limiter::<str>::builder(Quota::per_hour(2)).clock(&clock);
    let limiter = builder().build().unwrap();
    limiter.set_key_quota("alice", Quota::per_hour(100)).unwrap();
    limiter.set_key_quota("bob", Quota::per_hour(50)).unwrap();
    assert!(limiter.check_n("alice", 90).is_allowed());
    limiter.pause("carol", HOUR).unwrap();
    let file = saved(|file| limiter.save(file));

    clock.advance(HOUR / 2);
    let loaded = builder().load(&file[..]).unwrap();
    assert_eq!(loaded.stats().own_quotas, 2);
    assert_eq!((loaded.peek("alice").remaining(), loaded.peek("bob").remaining()), (60, 50));
    let carol = loaded.check("carol");
    assert_eq!((carol.source(), carol.retry_after()), (DecisionSource::Pause, Some(HOUR / 2)));
    // The quotas of the new configuration replace the saved quotas.
    loaded.set_key_quota("alice", Quota::per_hour(10)).unwrap();
    assert_eq!(loaded.key_quota("alice"), Some(Quota::per_hour(10)));

    let without = builder().load_with(LoadOptions::new().drop_key_quotas(), &file[..]).unwrap();
    assert_eq!((without.stats().own_quotas, without.peek("bob").remaining()), (0, 2));
    assert!(!without.check("alice").is_allowed(), "its 40 missing tokens stay missing");

    // A pause that is over is not in the loaded limiter.
    clock.advance(HOUR / 2);
    let loaded = builder().load(&file[..]).unwrap();
    assert!(loaded.check("carol").is_allowed());
}

/// A limiter whose keys may be paused checks more slowly.
/// A pause that was dropped would be forgiven.
#[test]
fn more_pauses_than_places_are_refused_whatever_may_be_dropped() {
    let limiter = keyed().build().unwrap();
    (0..3).for_each(|key| limiter.pause(&key, HOUR).unwrap());
    let file = saved(|file| limiter.save(file));
    let dropping = LoadOptions::new().drop_excess_keys();
    refuses(keyed().max_keys(2).load_with(dropping, &file[..]), "3 keys");
    assert!(keyed().max_keys(3).load(&file[..]).is_ok());
}

#[test]
fn pauses_that_are_over_cost_the_loaded_limiter_nothing() {
    let clock = ManualClock::new();
    let builder = || Limiter::<str>::builder(Quota::per_hour(2)).clock(&clock);
    let limiter = builder().build().unwrap();
    limiter.pause("carol", HOUR).unwrap();
    let bytes = |file: &[u8]| builder().load(file).unwrap().stats().bytes;
    let file = saved(|file| limiter.save(file));
    assert!(bytes(&file) > builder().build().unwrap().stats().bytes);
    clock.advance(HOUR);
    assert_eq!(bytes(&file), builder().build().unwrap().stats().bytes);
}

#[test]
fn a_penalty_goes_on() {
    let clock = ManualClock::new();
    let builder = || Limiter::<str>::builder(Quota::per_second(1)).penalty(HOUR).clock(&clock);
    let limiter = builder().build().unwrap();
    assert!(limiter.check("alice").is_allowed());
    assert!(!limiter.check("alice").is_allowed());
    let file = saved(|file| limiter.save(file));
    clock.advance(HOUR / 2);
    let loaded = builder().load(&file[..]).unwrap();
    assert_eq!(loaded.check("alice").source(), DecisionSource::Pause);
    assert!(loaded.check("bob").is_allowed() && !loaded.check("bob").is_allowed());
    assert_eq!(loaded.check("bob").source(), DecisionSource::Pause);
}

/// The second key finds no slot, so it takes its tokens from the state that such keys share.
#[test]
fn the_state_of_keys_without_a_slot_is_kept() {
    let builder = || keyed().max_keys(1).when_full(WhenFull::Share);
    let limiter = builder().build().unwrap();
    for key in [1, 1, 2] {
        assert!(limiter.check(&key).is_allowed());
    }
    let loaded = builder().load(&saved(|file| limiter.save(file))[..]).unwrap();
    let [third, fourth] = [3, 4].map(|key| loaded.check(&key));
    assert!(third.is_allowed() && !fourth.is_allowed());
    assert_eq!(third.source(), DecisionSource::Overflow);
}

#[test]
fn classes_are_found_by_their_names() {
    type Classes = ClassLimiter<str>;
    let builder = || Limiter::<str>::builder(Quota::per_hour(2)).clock(ManualClock::new());
    let with = |classes: &[(&str, Quota)]| {
        let mut all = builder().class(classes[0].0, classes[0].1);
        for &(name, quota) in &classes[1..] {
            all = all.class(name, quota);
        }
        all
    };
    let (paid, gone) = (("paid", Quota::per_hour(10)), ("gone", Quota::per_hour(20)));
    let limiter: Classes = with(&[paid, gone]).build().unwrap();
    for class in ["default", "paid", "gone"] {
        assert!(limiter.class(class).unwrap().check("alice").is_allowed());
    }
    let file = saved(|file| limiter.save(file));
    let loaded = with(&[("new", Quota::per_hour(30)), paid]).load(&file[..]).unwrap();
    let left = ["default", "new", "paid"].map(|class| loaded.class(class).unwrap().peek("alice").remaining());
    assert_eq!(left, [1, 30, 9]);
    let other = builder()
        .class("paid", tollgate::ClassSettings::from(Quota::per_hour(10)).algorithm(Algorithm::FixedWindow));
    refuses(other.load(&file[..]), "class \"paid\": it is the state of a token-bucket");
    let refused = with(&[("paid", Quota::per_hour(0))]).load(&file[..]).unwrap_err().to_string();
    assert!(refused.starts_with("class \"paid\": 0 tokens"), "{refused}");
}

/// One class has nothing in force, so alone it would start at tick 0.
#[test]
fn classes_that_are_loaded_have_one_clock() {
    let builder = || {
        let builder = Limiter::<str>::builder(Quota::per_hour(2)).class("paid", Quota::per_hour(10));
        builder.class("trial", Quota::per_hour(1)).clock(Clock::system())
    };
    let limiter = builder().build().unwrap();
    let now = Tick::ZERO + 100 * HOUR;
    assert!(limiter.class("paid").unwrap().at(now).check("alice").is_allowed());
    std::thread::sleep(Duration::from_millis(50));
    let loaded = builder().load(&saved(|file| limiter.save(file))[..]).unwrap();
    let [one, two, three] = ["default", "paid", "trial"].map(|class| loaded.class(class).unwrap());
    for _ in 0..100 {
        let (first, second, third) = (one.clock().now(), two.clock().now(), three.clock().now());
        assert!(first <= second && second <= third && third.since(first) < HOUR);
    }
}

/// Under the saved quotas, alice's key is idle after two hours, and bob's after one. Under the new
/// ones, bob's own quota is slower.
#[test]
fn the_keys_that_are_dropped_are_nearest_to_idle_under_the_new_quotas() {
    let clock = ManualClock::new();
    let builder = |limit| Limiter::<str>::builder(Quota::per_hour(limit)).max_keys(9).clock(&clock);
    let limiter = builder(1).build().unwrap();
    assert!(limiter.check("alice").is_allowed());
    limiter.set_key_quota("bob", Quota::per_hour(8)).unwrap();
    assert!(limiter.check_n("bob", 4).is_allowed());
    let file = saved(|file| limiter.save(file));
    let options = LoadOptions::new().drop_excess_keys();
    let loaded = builder(10).max_keys(1).load_with(options, &file[..]).unwrap();
    assert_eq!(loaded.peek("bob").remaining(), 4, "it was not dropped");
    assert_eq!(loaded.check("alice").source(), DecisionSource::Policy);
    clock.advance(HOUR / 2 + Duration::from_secs(2));
    assert_eq!(loaded.check("alice").source(), DecisionSource::Key, "bob has made room");
}

/// Returns limiters whose clocks are real, with one charge that was saved five hours ago.
fn five_hours_ago<const N: usize>(
    algorithms: [Algorithm; N],
    limit: u64,
) -> [(SingleLimiter, tollgate::Decision); N] {
    algorithms.map(|algorithm| {
        let builder = || {
            let builder = SingleLimiter::builder(Quota::per_day(limit)).clock(Clock::system());
            // Windows count from the start of the clock, which is now.
            let align = if algorithm.has_windows() { Builder::align } else { |builder, _| builder };
            align(builder.algorithm(algorithm), WindowAlign::ClockStart)
        };
        let limiter = builder().build().unwrap();
        let charge = limiter.check();
        assert!(charge.is_allowed());
        let mut file = saved(|file| limiter.save(file));
        forge_time_of_day(&mut file, |seconds| seconds - 5 * 3600);
        (builder().load(&file[..]).unwrap(), charge)
    })
}

/// The charge was made before the process began, and counts as long as if it had not ended.
#[test]
fn a_charge_from_before_the_process_counts_to_the_tick() {
    for (limiter, charge) in five_hours_ago([Algorithm::SlidingLog, Algorithm::TokenBucket], 1) {
        let denied = limiter.check();
        assert!(denied.at().since(charge.at()) >= 5 * HOUR);
        assert_eq!(denied.at() + denied.retry_after().unwrap(), charge.at() + 24 * HOUR);
    }
    // A window ends when it would have ended.
    for (limiter, charge) in five_hours_ago([Algorithm::FixedWindow, Algorithm::SlidingWindow], 1) {
        let denied = limiter.check();
        let [then, now] = [charge, denied].map(|decision| decision.at() + decision.reset_after());
        assert_eq!((denied.is_allowed(), then), (false, now));
    }
    for (limiter, _) in five_hours_ago([Algorithm::SlidingLog, Algorithm::FixedWindow], 10) {
        assert_eq!(limiter.peek().remaining(), 9);
    }
}

#[test]
fn a_time_of_day_that_was_set_back_grants_nothing_and_one_set_forward_grants_once() {
    let builder = || SingleLimiter::builder(Quota::per_day(24)).clock(Clock::system());
    let limiter = builder().build().unwrap();
    assert!(limiter.check_n(24).is_allowed());
    let with_age = |hours: i64| {
        let mut file = saved(|file| limiter.save(file));
        forge_time_of_day(&mut file, |seconds| seconds.saturating_add_signed(-hours * 3600));
        builder().load(&file[..]).unwrap()
    };
    for (hours, left) in [(-1_000, 0), (0, 0), (1, 1), (5, 5), (1_000, 24), (400_000, 24)] {
        let loaded = with_age(hours);
        assert_eq!(loaded.peek().remaining(), left, "{hours}");
        // From now on, the clock counts by itself.
        assert!(loaded.check_n(left).is_allowed() && !loaded.check().is_allowed());
    }
    // After a leap of decades, the limiter starts at tick 0.
    assert!(with_age(400_000).clock().now() < Tick::ZERO + HOUR);
}

#[test]
fn another_quota_is_a_change_of_quota() {
    for algorithm in Algorithm::ALL {
        let clock = ManualClock::new();
        let builder =
            |limit| SingleLimiter::builder(Quota::per_hour(limit)).algorithm(algorithm).clock(&clock);
        let limiter = builder(4).build().unwrap();
        assert!(limiter.check_n(3).is_allowed());
        clock.advance(HOUR / 10);
        let file = saved(|file| limiter.save(file));
        for limit in [1, 3, 4, 10] {
            limiter.set_quota(Quota::per_hour(4)).unwrap();
            let loaded = builder(limit).load(&file[..]).unwrap();
            let changed = builder(4).load(&file[..]).unwrap();
            changed.set_quota(Quota::per_hour(limit)).unwrap();
            let figures = |limiter: &SingleLimiter| {
                let decision = limiter.peek();
                (decision.remaining(), decision.retry_after(), decision.reset_after())
            };
            assert_eq!(figures(&loaded), figures(&changed), "{algorithm} to {limit}");
        }
    }
}

/// The first admission has left the window of the saved limiter, and does not enter a longer one.
#[test]
fn a_longer_period_counts_no_admission_that_has_left_the_shorter_one() {
    let clock = ManualClock::new();
    let builder =
        |period| SingleLimiter::builder(Quota::new(3, period)).algorithm(Algorithm::SlidingLog).clock(&clock);
    let limiter = builder(HOUR).build().unwrap();
    for _ in 0..2 {
        assert!(limiter.check().is_allowed());
        clock.advance(HOUR * 2 / 3);
    }
    let loaded = builder(9 * HOUR).load(&saved(|file| limiter.save(file))[..]).unwrap();
    limiter.set_quota(Quota::new(3, 9 * HOUR)).unwrap();
    assert_eq!([&loaded, &limiter].map(|limiter| limiter.peek().remaining()), [2, 2]);
}

/// The file is forged: no limiter has saved a key twice in this order.
#[cfg(feature = "serde")]
#[test]
fn of_two_logs_of_one_key_the_last_applies() {
    let builder = || keyed().exact_keys().algorithm(Algorithm::SlidingLog);
    let limiter = builder().build().unwrap();
    assert!(limiter.at(Tick::ZERO + HOUR / 2).check_n(&8, 2).is_allowed());
    assert!(limiter.at(Tick::ZERO).check(&7).is_allowed());
    let mut file = saved(|file| limiter.save(file));
    forge(&mut file, |block| {
        let name = [1, 0, 0, 0, 0, 0, 0, 0, b'8'];
        let at = block.windows(name.len()).position(|window| window == name).unwrap();
        block[at + 8] = b'7';
    });
    let loaded = builder().load(&file[..]).unwrap();
    assert_eq!(loaded.at(Tick::ZERO + HOUR / 2).peek(&7).remaining(), 1);
}

/// JSON has only texts for the keys of a map.
#[cfg(feature = "serde")]
#[test]
fn a_key_that_json_cannot_express_is_named_as_the_cause() {
    type Map = std::collections::BTreeMap<(u8, u8), u8>;
    let limiter = Limiter::<Map>::builder(Quota::per_hour(2)).exact_keys().build().unwrap();
    assert!(limiter.check(&Map::from([((1, 2), 3)])).is_allowed());
    let refused = limiter.save(Vec::new()).unwrap_err().to_string();
    assert_eq!(refused, "a key cannot be written as JSON: key must be a string");
}

/// The caller's times continue from the time of the save.
#[test]
fn a_view_saves_its_own_time() {
    let limiter = Limiter::<u64>::builder(Quota::per_hour(2)).build().unwrap();
    let now = Tick::ZERO + 1_000 * HOUR;
    assert!(limiter.at(now).check_n(&7, 2).is_allowed());
    let file = saved(|file| limiter.at(now).save(file));
    let loaded = Limiter::<u64>::builder(Quota::per_hour(2)).load(&file[..]).unwrap();
    assert!(loaded.clock().now() >= now);
    assert_eq!(loaded.at(now + HOUR / 2).peek(&7).remaining(), 1);
    let single = SingleLimiter::builder(Quota::per_hour(2)).build().unwrap();
    assert!(single.at(now).check_n(2).is_allowed());
    let file = saved(|file| single.at(now).save(file));
    let loaded = SingleLimiter::builder(Quota::per_hour(2)).load(&file[..]).unwrap();
    assert!(loaded.clock().now() >= now);
}

/// Decisions are tied to the limiter that made them.
#[test]
fn a_charge_of_the_saved_limiter_is_not_refunded_by_the_loaded_one() {
    let limiter = keyed().build().unwrap();
    let charge = limiter.check_n(&7, 2);
    let loaded = keyed().load(&saved(|file| limiter.save(file))[..]).unwrap();
    loaded.refund(&7, &charge);
    assert!(!loaded.check(&7).is_allowed());
}

#[test]
fn two_limiters_in_one_stream_are_loaded_one_after_the_other() {
    let [first, second] = [1, 2].map(|cost| {
        let limiter = keyed().build().unwrap();
        assert!(limiter.check_n(&7, cost).is_allowed());
        saved(|file| limiter.save(file))
    });
    let both = [first, second].concat();
    let mut rest = &both[..];
    let left = [(); 2].map(|()| keyed().load(&mut rest).unwrap().peek(&7).remaining());
    assert_eq!((left, rest.len()), ([1, 0], 0));
}

/// A thread inserts keys while the limiter is saved, so that keys move and idle keys are evicted
/// all the time. Every key that was charged before is in each file.
fn saves_miss_no_key<S: Persist + Accepts<u64>>(
    algorithm: Algorithm,
    of_kind: impl Fn(Builder<Limiter<u64>>) -> Builder<Limiter<u64, S>>,
) {
    let builder = || {
        let builder = Limiter::builder(Quota::per_day(9)).algorithm(algorithm).max_keys(20_000);
        of_kind(builder.grace(Duration::ZERO))
    };
    let limiter = builder().build().unwrap();
    let before: Vec<u64> = (0..2_000).collect();
    for key in &before {
        assert!(limiter.check(key).is_allowed());
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut key = 10_000;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = limiter.check(&key);
                // The key is idle at once, and makes room.
                limiter.reset(&key);
                key += 1;
            }
        });
        for round in 0..20 {
            let loaded = builder().load(&saved(|file| limiter.save(file))[..]).unwrap();
            let missing = before.iter().filter(|key| loaded.peek(*key).remaining() == 9).count();
            // The thread ends even if the test fails.
            is_over.store(missing > 0 || round == 19, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(missing, 0, "{algorithm} in round {round}");
        }
    });
    assert!(limiter.stats().turnovers > 2, "{algorithm}: {:?}", limiter.stats());
}

#[test]
fn saves_beside_insertions_miss_no_key() {
    saves_miss_no_key(Algorithm::TokenBucket, |builder| builder);
    saves_miss_no_key(Algorithm::SlidingWindow, Builder::<Limiter<_>>::keyed_hash);
    #[cfg(feature = "serde")]
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingLog] {
        saves_miss_no_key(algorithm, Builder::<Limiter<_>>::exact_keys);
    }
}

/// A thread changes the quota all the time, so that a save meets states that are being moved to
/// another rule.
#[cfg(feature = "serde")]
#[test]
fn saves_beside_changes_of_quota_miss_no_exact_key() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingLog] {
        let builder = || Limiter::<u64>::builder(Quota::per_day(9)).algorithm(algorithm).exact_keys();
        let limiter = builder().build().unwrap();
        assert!((0..2).all(|key| limiter.check(&key).is_allowed()));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    [8, 9].iter().for_each(|&limit| limiter.set_quota(Quota::per_day(limit)).unwrap());
                }
            });
            let keys =
                (0..20_000).map(|_| builder().load(&saved(|file| limiter.save(file))[..]).unwrap().len());
            let least = keys.min();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(least, Some(2), "{algorithm}");
        });
    }
}
