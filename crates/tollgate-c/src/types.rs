//! The structs of the header, under their C names.
#![allow(non_camel_case_types)]

use crate::results::{
    TOLLGATE_ADMITTED, TOLLGATE_DENIED, TOLLGATE_NEVER, TOLLGATE_SOURCE_KEY, TOLLGATE_SOURCE_OVERFLOW,
    TOLLGATE_SOURCE_POLICY, TOLLGATE_TOO_COSTLY,
};
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;
use tollgate::{Decision, DecisionSource, Limiter, Outcome, StateFile, Stats};

/// A limiter for many keys. `tollgate_limiter_new` and `tollgate_limiter_open` create a limiter,
/// and `tollgate_limiter_free` frees it.
///
/// If a function takes the limiter as `const`, any number of threads may call the function at once.
#[derive(Debug)]
pub struct tollgate_limiter {
    limiter: Limiter<[u8]>,
    /// The file in which the state of this limiter is saved, if it has one.
    file: Option<StateFile>,
}

impl tollgate_limiter {
    pub(crate) fn with_file(limiter: Limiter<[u8]>, file: StateFile) -> Self {
        Self { limiter, file: Some(file) }
    }

    /// Writes the limiter's state to its file. Returns `None` if the limiter has no file.
    pub(crate) fn save(&self) -> Option<io::Result<()>> {
        Some(self.file.as_ref()?.write(|file| self.limiter.save(file)))
    }

    /// Returns the limiter behind the handle, for parts of the program that are written in Rust. A
    /// key consists of the same bytes in Rust and in C.
    pub const fn limiter(&self) -> &Limiter<[u8]> {
        &self.limiter
    }
}

impl From<Limiter<[u8]>> for tollgate_limiter {
    /// Creates a handle for C. The handle's address remains valid until this value is moved or
    /// dropped. A boxed handle may be passed to C with `Box::into_raw`, and C then frees the handle
    /// with `tollgate_limiter_free`.
    fn from(limiter: Limiter<[u8]>) -> Self {
        Self { limiter, file: None }
    }
}

/// The options of a limiter. Clear the struct to zero, and then set `size`. Zero and NULL select
/// the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_options {
    /// `sizeof(tollgate_options)`.
    pub size: usize,
    /// The maximum number of tracked keys, which bounds memory usage: 24 to 32 bytes per key, and
    /// four times as much while the table grows. 0 means one million.
    pub max_keys: u64,
    /// "token-bucket" (the default), "leaky-bucket", "leaky-queue", "fixed-window" or
    /// "sliding-window".
    pub algorithm: *const c_char,
    /// The policy for new keys while `max_keys` other keys are in use: "deny" (the default),
    /// "allow", or "share". With "share", all such keys share one state.
    pub when_full: *const c_char,
    /// The clock: "counter" (the default), "system", or "coarse" (up to 10 ms late). "counter" uses
    /// the processor's counter and checks it against the system's clock. None of the clocks starts
    /// a thread.
    pub clock: *const c_char,
}

/// The answer to a request. Before you pass the struct to a function, set `size`; no other field
/// needs a value. Functions write the struct when they admit or deny a request, and leave it
/// unchanged on an error.
///
/// Times are in nanoseconds. `TOLLGATE_NEVER` means that no time can be guaranteed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_decision {
    /// `sizeof(tollgate_decision)`.
    pub size: usize,
    /// `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or `TOLLGATE_TOO_COSTLY`.
    pub outcome: i32,
    /// `TOLLGATE_SOURCE_KEY`, `TOLLGATE_SOURCE_OVERFLOW` or `TOLLGATE_SOURCE_POLICY`. Later
    /// versions may add sources.
    pub source: u32,
    /// The number of tokens that this request was charged.
    pub charged: u64,
    /// The maximum number of tokens that a request can charge at once.
    pub capacity: u64,
    /// The number of tokens that remain after this decision, from 0 to `capacity`.
    pub remaining: u64,
    /// How long to wait until the same request would pass, provided that no other request is
    /// charged in between. 0 if the request was admitted.
    pub retry_after_ns: u64,
    /// How long it takes until `capacity` tokens remain, provided that the key is not charged in
    /// between.
    pub reset_after_ns: u64,
    /// With the algorithm "leaky-queue", how long an admitted request must wait before it starts. 0
    /// for all other algorithms.
    pub start_after_ns: u64,
    /// The time at which the request was decided, according to the limiter's clock.
    pub at_ns: u64,
    /// A mark that identifies decisions written by the library.
    pub mark: u64,
    /// The charge, for `tollgate_refund`. Copy this field together with the struct, and do not
    /// modify it.
    pub charge: [MaybeUninit<u64>; 8],
}

/// The figures of a limiter. Before you pass the struct to `tollgate_stats_of`, set `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_stats {
    /// `sizeof(tollgate_stats)`.
    pub size: usize,
    /// The number of tracked keys.
    pub keys: u64,
    /// How many keys fit into the table before it grows or evicts idle keys.
    pub room: u64,
    /// The maximum number of tracked keys.
    pub max_keys: u64,
    /// How many times the table was replaced, either to grow, to evict idle keys, or to apply a new
    /// quota.
    pub turnovers: u64,
    /// The number of evicted keys. Only idle keys are evicted, which changes no decision.
    pub evicted: u64,
    /// How many checks of new keys were decided by `when_full` because the table was full.
    pub refused: u64,
    /// The number of keys that have their own quota, including keys that are not tracked.
    pub own_quotas: u64,
    /// The total size in bytes of the limiter and of all memory that it has allocated.
    pub bytes: u64,
}

/// A key for `tollgate_check_many`. It may consist of any bytes. A key of length 0 is a key like
/// any other, and its pointer may be NULL.
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
    /// The quota as a string, such as "100/s burst 20". If this is NULL, the key's own quota is
    /// removed, and the limiter's quota applies to the key again.
    pub quota: *const c_char,
}

/// A limit for `tollgate_check_all`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tollgate_charge {
    /// The limiter. Several charges may name the same limiter, but with different keys.
    pub limiter: *const tollgate_limiter,
    /// The first byte of the key.
    pub key: *const c_void,
    /// The number of bytes.
    pub key_len: usize,
    /// The number of tokens to charge.
    pub cost: u64,
    /// Where this limit's decision is written, or NULL.
    pub decision: *mut tollgate_decision,
    /// Must be 0. Later versions may give these fields a meaning.
    pub reserved: [u64; 2],
}

/// The mark in decisions that this library has written.
pub(crate) const MARK: u64 = u64::from_le_bytes(*b"tollgate");

impl tollgate_decision {
    /// Returns the figures of a decision, without the charge that a refund requires.
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

/// Returns the result with which a function reports this decision.
#[inline]
pub(crate) const fn result_of(decision: &Decision) -> c_int {
    if decision.is_allowed() { TOLLGATE_ADMITTED } else { TOLLGATE_DENIED }
}

/// Converts a time to nanoseconds. A time that is too large becomes `TOLLGATE_NEVER`.
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

    /// Programs compiled with an earlier header use structs of these sizes.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structs_keep_their_sizes() {
        assert_eq!(size_of::<tollgate_options>(), 40);
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
