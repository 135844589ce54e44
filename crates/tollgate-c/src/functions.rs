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

/// Returns the version of the library, such as "0.1.0". `TOLLGATE_VERSION` is the version of the
/// header.
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

/// Returns a text that describes a result, for a log. The text is never NULL.
///
/// Any thread may call it. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_strerror(result: c_int) -> *const c_char {
    results::text_of(result).as_ptr()
}

/// Creates a limiter that enforces `quota` for each key. A quota is a text such as "100/s", "100/s
/// burst 20", "5/10s" or "1000/h strict", with the units ns, us, ms, s, min, h and d. `options` may
/// be NULL.
///
/// On success, returns 0 and writes the handle to `*limiter`. On failure, returns an error, leaves
/// `*limiter` unchanged, and writes a text to `message`, unless that is NULL. The text states the
/// fault and the allowed values. It is cut to `message_size` bytes, including a 0 at the end; 200
/// bytes suffice for most messages.
///
/// Any thread may call it. The caller owns the handle, and must free it with
/// `tollgate_limiter_free`. Texts and options are copied.
///
/// # Safety
///
/// Pointers are NULL or valid, texts end with a 0, and `options` has as many bytes as its `size`
/// states.
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

/// Frees a limiter and the states of all its keys. NULL is ignored.
///
/// One thread may call it, once, after all other threads have stopped using the limiter. Decisions
/// remain readable.
///
/// # Safety
///
/// `limiter` is NULL or a live handle from `tollgate_limiter_new`. The handle is invalid
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_free(limiter: *mut tollgate_limiter) {
    if !limiter.is_null() {
        // SAFETY: the caller's promise; `tollgate_limiter_new` has boxed it.
        let owned = unsafe { Box::from_raw(limiter) };
        // A panic cannot be reported by a function without a result, and it must not unwind into C.
        drop(catch_unwind(AssertUnwindSafe(|| drop(owned))));
    }
}

/// Checks whether a request of `key` may go ahead now, and charges one token if so.
///
/// Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. `decision` may be NULL, which is
/// faster.
///
/// Any number of threads may call it at once, even for the same key. No call waits for another. The
/// library keeps neither the key nor the decision.
///
/// # Safety
///
/// `limiter` is a live handle, `key` has `key_len` bytes, and `decision` is NULL or has as many
/// bytes as its `size` states.
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

/// Like `tollgate_check`, for `cost` tokens, of which it charges all or none. A cost of 0 is
/// admitted and charges nothing.
///
/// Any number of threads may call it at once. The library keeps neither the key nor the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply.
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

/// Like `tollgate_check_n`, for a key that is a number. The key equals the eight bytes of the
/// number in memory: `tollgate_check_n(limiter, &key, 8, cost, decision)`.
///
/// Any number of threads may call it at once. The library does not keep the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_u64(
    limiter: *const tollgate_limiter,
    key: u64,
    cost: u64,
    decision: *mut tollgate_decision,
) -> c_int {
    let bytes = key.to_ne_bytes();
    // SAFETY: the caller's promise; `bytes` has eight bytes.
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

/// Like `tollgate_check_n`, at a time that the caller passes, in nanoseconds and at most 2^61. Use
/// it to make several checks with one reading of `tollgate_now`, in tests, and with times from a
/// log. The time may be earlier than in a previous call.
///
/// Any number of threads may call it at once. The library keeps neither the key nor the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply.
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

/// Returns the answer that `tollgate_check_n` would give now. It charges nothing, and the figures
/// of the decision are those before a charge.
///
/// Any number of threads may call it at once. The library keeps neither the key nor the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply.
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

/// Like `tollgate_peek`, at a time that the caller passes.
///
/// Any number of threads may call it at once. The library keeps neither the key nor the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply.
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

/// Gives back at most `tokens` of the tokens that a check of `key` took when it wrote `decision`;
/// `UINT64_MAX` gives back all of them. Tokens that have refilled since the check are not given
/// back. Refund each charge at most once.
///
/// Returns 0, even if nothing was given back, or an error.
///
/// Any number of threads may call it at once. The library keeps neither the key nor the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply. A function of this library has written `decision`.
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

/// Like `tollgate_refund`, at a time that the caller passes.
///
/// Any number of threads may call it at once. The library keeps neither the key nor the decision.
///
/// # Safety
///
/// The preconditions of `tollgate_refund` apply.
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

/// Like `tollgate_check`, for `count` keys in their order. The library looks up 32 keys at a time,
/// which is faster than single checks if the keys are not in the processor's caches.
///
/// Writes the result of each key to `results` and its decision to `decisions`; either may be NULL.
/// Set the `size` of the first decision, which applies to all of them. Returns `TOLLGATE_ADMITTED`
/// if all keys are admitted, and `TOLLGATE_DENIED` if any key is denied. If it returns an error, no
/// key is charged.
///
/// Any number of threads may call it at once. The library keeps none of the arguments. The function
/// allocates a buffer.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply to each key. `keys` has `count` elements, and so do
/// `results` and `decisions` unless they are NULL.
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

/// Checks one request against several limits. The request is admitted if all of them admit it, and
/// it is charged to all of them or to none. Name each key of a limiter at most once.
///
/// Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. If it returns an error, nothing is
/// charged. For a denial, writes the index of the limit with the longest wait to `denied_by`,
/// unless that is NULL.
///
/// Any number of threads may call it at once. The library keeps none of the arguments. The function
/// allocates memory for more than 8 limits.
///
/// # Safety
///
/// `charges` has `count` elements. The preconditions of `tollgate_check` apply to each of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_all(
    charges: *const tollgate_charge,
    count: usize,
    denied_by: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { decide_all(charges, count, denied_by) }
}

/// Replaces the quota of all keys that do not have their own quota. Tokens that were taken stay
/// taken.
///
/// Returns 0 or an error. On an error, the quota stays as before, and `message` gets a text that
/// states the fault.
///
/// Any number of threads may call it at once, also during checks. The text is copied.
///
/// # Safety
///
/// The preconditions of `tollgate_limiter_new` apply.
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

/// Sets or removes the quotas of single keys. The call is one change, which costs as much as
/// `tollgate_set_quota`, so change many keys in one call.
///
/// Returns 0 or an error. On an error, nothing is changed, and `message` gets a text that states
/// the fault.
///
/// Any number of threads may call it at once, also during checks. Keys and texts are copied.
///
/// # Safety
///
/// The preconditions of `tollgate_limiter_new` apply. `quotas` has `count` elements.
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

/// Writes the figures of a limiter to `stats`. The function visits all keys.
///
/// Returns 0 or an error. Any number of threads may call it at once.
///
/// # Safety
///
/// `limiter` is a live handle, and `stats` has as many bytes as its `size` states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_stats_of(
    limiter: *const tollgate_limiter,
    stats: *mut tollgate_stats,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { write_stats(limiter, stats) }
}

/// Returns the time of the limiter's clock in nanoseconds, for the functions that take a time.
/// Returns 0 for NULL.
///
/// Any number of threads may call it at once.
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
