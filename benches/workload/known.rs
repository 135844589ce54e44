//! Limiters that already know their keys.

use super::keys::Key;
use tollgate::store::{Accepts, ExactKeys, Fingerprints};
use tollgate::{Builder, Limiter, Quota};

/// A billion tokens per second, and the tokens of years in one burst, so that no check is ever
/// denied.
pub fn ample() -> Quota {
    Quota::per_second(1_000_000_000).burst(1 << 60)
}

/// One token per day, so that a key is denied after its first check.
pub fn used_up() -> Quota {
    Quota::per_day(1)
}

/// Builds a limiter with a certain store.
pub type Build<K, S> = fn(Builder<Limiter<K>>) -> Limiter<K, S>;

pub fn fingerprints<K: Key>(builder: Builder<Limiter<K>>) -> Limiter<K, Fingerprints> {
    builder.build().expect("a valid limiter")
}

pub fn exact_keys<K: Key>(builder: Builder<Limiter<K>>) -> Limiter<K, ExactKeys<K>> {
    builder.exact_keys().build().expect("a valid limiter")
}

/// Makes the first `count` keys known to `limiter` for at least an hour, by taking tokens of each
/// key. No turnover is under way afterwards.
pub fn knowing<K: Key, S: Accepts<K>>(limiter: Limiter<K, S>, count: u64) -> Limiter<K, S> {
    const AN_HOUR_OF_AMPLE: u64 = 3_600_000_000_000;
    for number in 0..count {
        let key = K::numbered(number);
        let cost = AN_HOUR_OF_AMPLE.min(limiter.peek(&key).capacity());
        assert!(limiter.check_n(&key, cost).is_allowed());
    }
    while limiter.sweep(4_096) {}
    assert_eq!(limiter.len() as u64, count);
    limiter
}
