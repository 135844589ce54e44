//! The exported functions.
#![allow(unsafe_code)]

use crate::pointers::{
    decide, decide_all, decide_many, explained, give_back, limiter_of, options_of, set_key_quotas, text_of,
    write_stats,
};
use crate::results::{self, TOLLGATE_ERR_NULL};
use crate::settings;
use crate::types::{
    tollgate_charge, tollgate_decision, tollgate_key, tollgate_key_quota, tollgate_limiter, tollgate_options,
    tollgate_stats,
};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tollgate::Tick;

/// The version of the library, such as "0.1.0". `TOLLGATE_VERSION` is that of the header.
///
/// Any thread may call it. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// The text of a result, for a log. Never NULL.
///
/// Any thread may call it. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_strerror(result: c_int) -> *const c_char {
    results::text_of(result).as_ptr()
}

/// Makes a limiter that enforces `quota` for each key: "100/s", "100/s burst 20", "5/10s",
/// "1000/h strict"; the units are ns, us, ms, s, min, h and d. `options` may be NULL.
///
/// Returns 0 and writes the handle to `*limiter`; or returns an error, leaves `*limiter` as it is,
/// and writes what is wrong and what is allowed to `message` (cut to `message_size` bytes, with a 0
/// at the end), unless that is NULL. 200 bytes suffice for most messages.
///
/// Any thread may call it. The caller owns the handle and frees it with `tollgate_limiter_free`;
/// texts and options are copied.
///
/// # Safety
///
/// Pointers are NULL or valid, texts end with a 0, and `options` has the bytes that its `size`
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_new(
    quota: *const c_char,
    options: *const tollgate_options,
    limiter: *mut *mut tollgate_limiter,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    let make = || {
        if limiter.is_null() {
            return Err(TOLLGATE_ERR_NULL.into());
        }
        // SAFETY: the caller's promise.
        let quota = unsafe { text_of(quota) };
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) }?;
        let made = Box::new(settings::limiter(quota, &options)?);
        // SAFETY: the caller's promise.
        unsafe { limiter.write(Box::into_raw(made)) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { explained(message, message_size, make) }
}

/// Frees a limiter, and all it remembers. NULL is ignored.
///
/// One thread calls it, once, when no other thread uses the limiter any more. Decisions remain
/// readable.
///
/// # Safety
///
/// `limiter` is NULL or a live handle of `tollgate_limiter_new`, which ends here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_free(limiter: *mut tollgate_limiter) {
    if !limiter.is_null() {
        // SAFETY: the caller's promise; `tollgate_limiter_new` has boxed it.
        let owned = unsafe { Box::from_raw(limiter) };
        // A panic has no other way to be told, and must not unwind into C.
        drop(catch_unwind(AssertUnwindSafe(|| drop(owned))));
    }
}

/// May `key` do this now? Charges one token if so.
///
/// Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. `decision` may be NULL, which is
/// faster.
///
/// Any threads may call it at once, also for one key; no call waits for another. Neither the key
/// nor the decision is kept.
///
/// # Safety
///
/// `limiter` is a live handle, `key` has `key_len` bytes, and `decision` is NULL or has the bytes
/// that its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    decision: *mut tollgate_decision,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        decide(
            limiter,
            key,
            key_len,
            decision,
            |limiter, key| limiter.check(key),
            |limiter, key| limiter.check(key),
        )
    }
}

/// `tollgate_check` for `cost` tokens: charges all of them or none. A cost of 0 is admitted and
/// charges nothing.
///
/// Any threads may call it at once. Neither the key nor the decision is kept.
///
/// # Safety
///
/// As `tollgate_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_n(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    cost: u64,
    decision: *mut tollgate_decision,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        decide(
            limiter,
            key,
            key_len,
            decision,
            |limiter, key| limiter.check_n(key, cost),
            |limiter, key| limiter.check_n(key, cost),
        )
    }
}

/// `tollgate_check_n` for a key that is a number. It is the same key as the eight bytes of the
/// number in memory: `tollgate_check_n(limiter, &key, 8, cost, decision)`.
///
/// Any threads may call it at once. The decision is not kept.
///
/// # Safety
///
/// As `tollgate_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_u64(
    limiter: *const tollgate_limiter,
    key: u64,
    cost: u64,
    decision: *mut tollgate_decision,
) -> c_int {
    let bytes = key.to_ne_bytes();
    // SAFETY: the caller's promise; the bytes are these eight.
    unsafe {
        decide(
            limiter,
            bytes.as_ptr().cast(),
            bytes.len(),
            decision,
            |limiter, key| limiter.check_n(key, cost),
            |limiter, key| limiter.check_n(key, cost),
        )
    }
}

/// `tollgate_check_n` at a time of the caller's own, in nanoseconds, at most 2^61 of them: for one
/// reading of `tollgate_now` for several checks, for tests, and for times of a log. Times may go
/// back.
///
/// Any threads may call it at once. Neither the key nor the decision is kept.
///
/// # Safety
///
/// As `tollgate_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_at(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    cost: u64,
    now_ns: u64,
    decision: *mut tollgate_decision,
) -> c_int {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: the caller's promise.
    unsafe {
        decide(
            limiter,
            key,
            key_len,
            decision,
            |limiter, key| limiter.at(now).check_n(key, cost),
            |limiter, key| limiter.at(now).check_n(key, cost),
        )
    }
}

/// What `tollgate_check_n` would answer now. Charges nothing; the figures are those before a
/// charge.
///
/// Any threads may call it at once. Neither the key nor the decision is kept.
///
/// # Safety
///
/// As `tollgate_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_peek(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    cost: u64,
    decision: *mut tollgate_decision,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        decide(
            limiter,
            key,
            key_len,
            decision,
            |limiter, key| limiter.peek_n(key, cost),
            |limiter, key| limiter.peek_n(key, cost),
        )
    }
}

/// `tollgate_peek` at a time of the caller's own.
///
/// Any threads may call it at once. Neither the key nor the decision is kept.
///
/// # Safety
///
/// As `tollgate_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_peek_at(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    cost: u64,
    now_ns: u64,
    decision: *mut tollgate_decision,
) -> c_int {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: the caller's promise.
    unsafe {
        decide(
            limiter,
            key,
            key_len,
            decision,
            |limiter, key| limiter.at(now).peek_n(key, cost),
            |limiter, key| limiter.at(now).peek_n(key, cost),
        )
    }
}

/// Gives back at most `tokens` of what the check of `key` that wrote `decision` took; `UINT64_MAX`
/// for all of it. Only what the charge still holds comes back: what has not refilled since. Each
/// charge is refunded once.
///
/// Returns 0, also if nothing came back, or an error.
///
/// Any threads may call it at once. Neither the key nor the decision is kept.
///
/// # Safety
///
/// As `tollgate_check`, and a function of this library has written `decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_refund(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    decision: *const tollgate_decision,
    tokens: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        give_back(limiter, key, key_len, decision, |limiter, key, charge| {
            limiter.refund_n(key, charge, tokens);
        })
    }
}

/// `tollgate_refund` at a time of the caller's own.
///
/// Any threads may call it at once. Neither the key nor the decision is kept.
///
/// # Safety
///
/// As `tollgate_refund`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_refund_at(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    decision: *const tollgate_decision,
    tokens: u64,
    now_ns: u64,
) -> c_int {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: the caller's promise.
    unsafe {
        give_back(limiter, key, key_len, decision, |limiter, key, charge| {
            limiter.at(now).refund_n(key, charge, tokens);
        })
    }
}

/// `tollgate_check` for `count` keys in their order, 32 at a time, which pays when they are not in
/// the processor's caches.
///
/// `results` gets the result of each key, `decisions` its decision; either may be NULL. Set the
/// `size` of the first decision; it holds for all. Returns `TOLLGATE_ADMITTED` if all keys are
/// admitted, `TOLLGATE_DENIED` if any is denied, or an error, and then no key is charged.
///
/// Any threads may call it at once. Nothing is kept. It allocates a buffer.
///
/// # Safety
///
/// As `tollgate_check` for each key; `keys`, and `results` and `decisions` unless NULL, have
/// `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_many(
    limiter: *const tollgate_limiter,
    keys: *const tollgate_key,
    count: usize,
    results: *mut c_int,
    decisions: *mut tollgate_decision,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { decide_many(limiter, keys, count, results, decisions) }
}

/// Asks several limits for one request, which is admitted if all of them admit it, and charged to
/// all or to none. Name each key of a limiter once.
///
/// Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED`, or an error, and then nothing is charged. For a
/// denial `denied_by`, unless NULL, gets the index of the limit with the longest wait.
///
/// Any threads may call it at once. Nothing is kept. More than 8 limits allocate.
///
/// # Safety
///
/// `charges` has `count` elements, each as `tollgate_check` needs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_all(
    charges: *const tollgate_charge,
    count: usize,
    denied_by: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { decide_all(charges, count, denied_by) }
}

/// Replaces the quota of all keys that have none of their own. Tokens that are taken stay taken.
///
/// Returns 0; or an error, with what is wrong in `message`, and the quota is as before.
///
/// Any threads may call it at once, beside checks. The text is copied.
///
/// # Safety
///
/// As `tollgate_limiter_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_set_quota(
    limiter: *const tollgate_limiter,
    quota: *const c_char,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    let set = || {
        // SAFETY: the caller's promise.
        let limiter = unsafe { limiter_of(limiter) }?;
        // SAFETY: the caller's promise.
        let quota = unsafe { text_of(quota) };
        Ok(limiter.set_quota(settings::quota(quota)?)?)
    };
    // SAFETY: the caller's promise.
    unsafe { explained(message, message_size, set) }
}

/// Gives keys quotas of their own, or removes them. All of it is one change and costs as much as
/// `tollgate_set_quota`, so change many keys by one call.
///
/// Returns 0; or an error, with what is wrong in `message`, and nothing is changed.
///
/// Any threads may call it at once, beside checks. Keys and texts are copied.
///
/// # Safety
///
/// As `tollgate_limiter_new`; `quotas` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_set_key_quotas(
    limiter: *const tollgate_limiter,
    quotas: *const tollgate_key_quota,
    count: usize,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let set = || unsafe { set_key_quotas(limiter, quotas, count) };
    // SAFETY: the caller's promise.
    unsafe { explained(message, message_size, set) }
}

/// The figures of a limiter. It visits all keys.
///
/// Returns 0 or an error. Any threads may call it at once.
///
/// # Safety
///
/// `limiter` is a live handle, and `stats` has the bytes that its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_stats_of(
    limiter: *const tollgate_limiter,
    stats: *mut tollgate_stats,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { write_stats(limiter, stats) }
}

/// The time of the limiter's clock, in nanoseconds, for the functions that take a time; 0 for NULL.
///
/// Any threads may call it at once.
///
/// # Safety
///
/// `limiter` is a live handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_now(limiter: *const tollgate_limiter) -> u64 {
    // SAFETY: the caller's promise.
    let limiter = unsafe { limiter_of(limiter) };
    let read = || limiter.map_or(0, |limiter| limiter.clock().now().as_nanos());
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(0)
}
