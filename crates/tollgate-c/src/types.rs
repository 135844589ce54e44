//! The structs of the header, with their names in C.
#![allow(non_camel_case_types)]

use crate::results::{
    TOLLGATE_ADMITTED, TOLLGATE_DENIED, TOLLGATE_NEVER, TOLLGATE_SOURCE_KEY, TOLLGATE_SOURCE_OVERFLOW,
    TOLLGATE_SOURCE_POLICY, TOLLGATE_TOO_COSTLY,
};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;
use tollgate::{Decision, DecisionSource, Limiter, Outcome, Stats};

/// A limiter of many keys. `tollgate_limiter_new` creates it, and `tollgate_limiter_free` frees it.
///
/// Functions that take the limiter as `const` may be called by any number of threads at once.
#[derive(Debug)]
pub struct tollgate_limiter {
    limiter: Limiter<[u8]>,
}

impl tollgate_limiter {
    /// Returns the limiter behind the handle, for the parts of a program that are written in Rust.
    /// A key has the same bytes there as in C.
    pub const fn limiter(&self) -> &Limiter<[u8]> {
        &self.limiter
    }
}

impl From<Limiter<[u8]>> for tollgate_limiter {
    /// Creates a handle for C. Its address remains valid until this value is moved or dropped. A
    /// boxed handle may be passed to C with `Box::into_raw`, and C frees it with
    /// `tollgate_limiter_free`.
    fn from(limiter: Limiter<[u8]>) -> Self {
        Self { limiter }
    }
}

/// The options of a limiter. Clear the struct to zero and set `size`. Zero and NULL mean the
/// default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_options {
    /// `sizeof(tollgate_options)`.
    pub size: usize,
    /// The maximum number of tracked keys. It bounds the memory: 24 to 32 bytes per key, and four
    /// times as much while the table grows. 0 means one million.
    pub max_keys: u64,
    /// The number of tokens that a key may owe. 0 means none.
    pub max_debt: u64,
    /// "token-bucket" (the default), "leaky-bucket", "leaky-queue", "fixed-window" or
    /// "sliding-window".
    pub algorithm: *const c_char,
    /// The policy for new keys while `max_keys` other keys are in use: "deny" (the default),
    /// "allow", or "share" for one state that all such keys share.
    pub when_full: *const c_char,
    /// "counter" (the default: the processor's counter, checked against the system's clock),
    /// "system", or "coarse" (up to 10 ms late). None of the clocks starts a thread.
    pub clock: *const c_char,
}

/// The answer to a request. Set `size` before you pass the struct to a function; no other field
/// needs a value. Functions write it for admissions and denials, and leave it unchanged on an
/// error.
///
/// Times are in nanoseconds. `TOLLGATE_NEVER` means that no time can be promised.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_decision {
    /// `sizeof(tollgate_decision)`.
    pub size: usize,
    /// `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or `TOLLGATE_TOO_COSTLY`.
    pub outcome: i32,
    /// `TOLLGATE_SOURCE_KEY`, `TOLLGATE_SOURCE_OVERFLOW` or `TOLLGATE_SOURCE_POLICY`. Later
    /// versions may have more.
    pub source: u32,
    /// The tokens that this request took.
    pub charged: u64,
    /// The maximum number of tokens that can be taken at once.
    pub capacity: u64,
    /// The tokens that are left after this decision, from 0 to `capacity`.
    pub remaining: u64,
    /// The time until the same request would pass, if no other request is charged first. 0 if the
    /// request was admitted.
    pub retry_after_ns: u64,
    /// The time until all of `capacity` remains, if the key is not charged meanwhile.
    pub reset_after_ns: u64,
    /// The time that an admitted request must wait before it starts, for the algorithm
    /// "leaky-queue". 0 for all other algorithms.
    pub start_after_ns: u64,
    /// The time for which the request was decided, on the limiter's clock.
    pub at_ns: u64,
    /// A mark by which the library recognizes a decision that it has written.
    pub mark: u64,
    /// The charge, for `tollgate_refund`. Copy this field with the struct, and do not change it.
    pub charge: [MaybeUninit<u64>; 8],
}

/// The figures of a limiter. Set `size` before you pass the struct to `tollgate_stats_of`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_stats {
    /// `sizeof(tollgate_stats)`.
    pub size: usize,
    /// The number of keys that are tracked.
    pub keys: u64,
    /// The number of keys that the table has room for before it grows or evicts idle keys.
    pub room: u64,
    /// The maximum number of tracked keys.
    pub max_keys: u64,
    /// The number of times that the table was replaced, to grow, to evict idle keys, or for a new
    /// quota.
    pub turnovers: u64,
    /// The number of idle keys that were evicted. Evicting an idle key changes no decision.
    pub evicted: u64,
    /// The number of checks of new keys that found the table full and were answered by `when_full`.
    pub refused: u64,
    /// The number of keys that have their own quota, whether they are tracked or not.
    pub own_quotas: u64,
    /// The size of the limiter and of all memory that it has allocated, in bytes.
    pub bytes: u64,
}

/// A key for `tollgate_check_many`, which may be any bytes. A key of length 0 is a key like any
/// other, and its pointer may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_key {
    /// The first byte.
    pub key: *const c_void,
    /// The number of bytes.
    pub key_len: usize,
}

/// A key and its quota, for `tollgate_set_key_quotas`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_key_quota {
    /// The first byte of the key.
    pub key: *const c_void,
    /// The number of bytes.
    pub key_len: usize,
    /// The quota as text, such as "100/s burst 20". NULL removes the key's quota, and the limiter's
    /// quota applies to the key again.
    pub quota: *const c_char,
}

/// One limit of `tollgate_check_all`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_charge {
    /// The limiter. Several charges may name one limiter, with different keys.
    pub limiter: *const tollgate_limiter,
    /// The first byte of the key.
    pub key: *const c_void,
    /// The number of bytes.
    pub key_len: usize,
    /// The tokens to charge.
    pub cost: u64,
    /// The place for the decision of this limit, or NULL.
    pub decision: *mut tollgate_decision,
    /// Must be 0. Later versions may give these fields a meaning.
    pub reserved: [u64; 2],
}

/// The mark of a decision that this library has written.
pub(crate) const MARK: u64 = u64::from_le_bytes(*b"tollgate");

impl tollgate_decision {
    /// The figures of a decision, without the charge that a refund needs.
    #[inline(always)]
    pub(crate) fn figures_of(decision: &Decision, size: usize) -> Self {
        let source = match decision.source() {
            DecisionSource::Overflow => TOLLGATE_SOURCE_OVERFLOW,
            DecisionSource::Policy => TOLLGATE_SOURCE_POLICY,
            _ => TOLLGATE_SOURCE_KEY,
        };
        let (outcome, retry_after_ns, start_after_ns) = match decision.outcome() {
            Outcome::Allowed => (TOLLGATE_ADMITTED, 0, nanos(decision.start_after())),
            Outcome::TooCostly => (TOLLGATE_TOO_COSTLY, TOLLGATE_NEVER, 0),
            _ => (TOLLGATE_DENIED, decision.retry_after().map_or(TOLLGATE_NEVER, nanos), 0),
        };
        Self {
            size,
            outcome,
            source,
            charged: decision.charged(),
            capacity: decision.capacity(),
            remaining: decision.remaining(),
            retry_after_ns,
            reset_after_ns: nanos(decision.reset_after()),
            start_after_ns,
            at_ns: decision.at().as_nanos(),
            mark: MARK,
            charge: [MaybeUninit::uninit(); 8],
        }
    }
}

impl tollgate_stats {
    pub(crate) fn of(stats: &Stats, size: usize) -> Self {
        let wide = |count: usize| count as u64;
        Self {
            size,
            keys: wide(stats.keys),
            room: wide(stats.room),
            max_keys: wide(stats.max_keys),
            turnovers: stats.turnovers,
            evicted: stats.evicted,
            refused: stats.refused,
            own_quotas: wide(stats.own_quotas),
            bytes: wide(stats.bytes),
        }
    }
}

/// Returns the result of a function for its decision.
#[inline]
pub(crate) const fn result_of(decision: &Decision) -> c_int {
    if decision.is_allowed() { TOLLGATE_ADMITTED } else { TOLLGATE_DENIED }
}

/// Returns a time in nanoseconds. A time that does not fit becomes `TOLLGATE_NEVER`.
#[inline]
fn nanos(time: Duration) -> u64 {
    if time.as_secs() < TOLLGATE_NEVER / 1_000_000_000 {
        time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
    } else {
        TOLLGATE_NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that were compiled with an earlier header use structs of these sizes.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structs_keep_their_sizes() {
        assert_eq!(size_of::<tollgate_options>(), 48);
        assert_eq!(size_of::<tollgate_decision>(), 144);
        assert_eq!(size_of::<tollgate_stats>(), 72);
        assert_eq!(size_of::<tollgate_charge>(), 56);
    }

    #[test]
    fn a_time_without_end_is_never() {
        assert_eq!(nanos(Duration::MAX), TOLLGATE_NEVER);
        assert_eq!(nanos(Duration::from_nanos(1_500_000_001)), 1_500_000_001);
    }
}
