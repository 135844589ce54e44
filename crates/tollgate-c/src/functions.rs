//! The functions that the library exports.
#![allow(unsafe_code)]

use crate::pointers::{
    decide, decide_all, decide_many, explained, give_back, limiter_of, made, path_of, set_key_quotas,
    text_of, write_stats,
};
use crate::results::{self, TOLLGATE_ERR_NULL};
use crate::settings::{self, Refusal};
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
/// Any thread may call this function. The returned string is static.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Returns a string that describes a result, for logging. The string is never NULL.
///
/// Any thread may call this function. The returned string is static.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_strerror(result: c_int) -> *const c_char {
    results::text_of(result).as_ptr()
}

/// Creates a limiter that enforces `quota` for each key. A quota is a string such as "100/s",
/// "100/s burst 20", "5/10s" or "1000/h strict". The units are ns, us, ms, s, min, h and d.
/// `options` may be NULL.
///
/// On success, returns 0 and writes the handle to `*limiter`. On failure, returns an error and
/// leaves `*limiter` unchanged. If `message` is not NULL, a failure also writes an error text to
/// `message`. The text states the fault and the allowed values, and is truncated to `message_size`
/// bytes, including a terminating 0; 200 bytes suffice for most messages.
///
/// Any thread may call this function. The caller owns the handle, and must free it with
/// `tollgate_limiter_free`. The library copies the strings and the options.
///
/// # Safety
///
/// Every pointer is NULL or valid, strings end with a 0, and `options` has as many bytes as its
/// `size` states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_new(
    quota: *const c_char,
    options: *const tollgate_options,
    limiter: *mut *mut tollgate_limiter,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    // SAFETY: the caller guarantees this.
    unsafe { made(limiter, (quota, options), (message, message_size), settings::limiter) }
}

/// Creates a limiter whose state can be saved in a file, so that the counts survive a restart. If
/// the file exists, the limiter continues the state that `tollgate_limiter_save` has written.
/// Otherwise the limiter is new. `quota` and `options` are as in `tollgate_limiter_new`. They may
/// differ from the saved limiter's, except for the algorithm.
///
/// Until the handle is freed, no other handle can use the file, in this or any other process. A
/// lock file, with the suffix ".lock", is created beside the file and never removed.
/// After a fork, only one of the two processes may save, and the child only if no thread of the
/// parent was saving at the fork. The file stays in use until both processes have ended or freed
/// the handle.
///
/// The time since the save is measured by the time of day. `tollgate_now` continues the time of the
/// saved limiter, or starts at 0 if none of the saved states still counts. If you pass your own
/// times, they must never be earlier than `tollgate_now`, and must continue after a restart.
///
/// On success, returns 0 and writes the handle to `*limiter`. On failure, returns an error, writes
/// a text to `message` as `tollgate_limiter_new` does, and leaves `*limiter` and the file
/// unchanged. The error is `TOLLGATE_ERR_STATE` if the file cannot be used; to start with a new
/// limiter, rename the file.
///
/// Any thread may call this function. The caller owns the handle, and must free it with
/// `tollgate_limiter_free`. The library copies the strings and the options.
///
/// # Safety
///
/// The preconditions of `tollgate_limiter_new` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_open(
    path: *const c_char,
    quota: *const c_char,
    options: *const tollgate_options,
    limiter: *mut *mut tollgate_limiter,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    // SAFETY: the caller guarantees this.
    let path = unsafe { path_of(path) };
    let open = |quota, options: &_| settings::limiter_of_file(path, quota, options);
    // SAFETY: the caller guarantees this.
    unsafe { made(limiter, (quota, options), (message, message_size), open) }
}

/// Writes the state of all keys to the file of a limiter that `tollgate_limiter_open` has created.
/// The file is replaced atomically, so it is complete even if the process is killed during the
/// call.
///
/// The state is saved at the time of `tollgate_now`. If you pass your own times, they must be times
/// of `tollgate_now`: a key that was charged at other times may later be admitted too early.
///
/// Call this function every few seconds, and once more after the last check. After a crash, a key
/// may be admitted again as many tokens as it was admitted since the last save. A million keys take
/// up about 18 MB. Saving them takes about a tenth of a second, plus the time of the disk.
///
/// On success, returns 0. On failure, returns an error and writes a text to `message` as
/// `tollgate_limiter_new` does; unless the disk fails after the replacement, the earlier file
/// remains. The error is `TOLLGATE_ERR_STATE` if the file cannot be written, or if the limiter has
/// no file.
///
/// Any number of threads may call this function at once, while other threads check keys. Calls for
/// the same limiter wait for each other. Keep the file secret, because anyone who can read it can
/// test whether a guessed key was used. On Unix, only the owner of the file can read and write it.
///
/// # Safety
///
/// `limiter` is a live handle or NULL, and `message` is NULL or has `message_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_save(
    limiter: *const tollgate_limiter,
    message: *mut c_char,
    message_size: usize,
) -> c_int {
    let save = || {
        // SAFETY: the caller guarantees this.
        let limiter = unsafe { limiter.as_ref() }.ok_or(TOLLGATE_ERR_NULL)?;
        let no_file = || Refusal::of_state("the limiter has no file; create it with tollgate_limiter_open");
        limiter.save().ok_or_else(no_file)?.map_err(Refusal::of_state)
    };
    // SAFETY: the caller guarantees this.
    unsafe { explained(message, message_size, save) }
}

/// Frees a limiter and the states of all its keys. Ignores NULL.
///
/// Call this function once, on a single thread, after all other threads have stopped using the
/// limiter. Existing decisions remain readable.
///
/// # Safety
///
/// `limiter` is NULL or a live handle from `tollgate_limiter_new` or `tollgate_limiter_open`. The
/// handle is invalid after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_free(limiter: *mut tollgate_limiter) {
    if !limiter.is_null() {
        // SAFETY: the caller passes a live handle, and `tollgate_limiter_new` has boxed the
        // limiter.
        let owned = unsafe { Box::from_raw(limiter) };
        // This function has no result that could report a panic, and a panic must not unwind into
        // C.
        drop(catch_unwind(AssertUnwindSafe(|| drop(owned))));
    }
}

/// Checks whether a request of `key` may proceed now. If so, charges one token.
///
/// Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. Passing NULL as `decision` is
/// allowed, and faster.
///
/// Any number of threads may call this function at once, even for the same key, and no call waits
/// for another call. The library keeps neither the key nor the decision.
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
    // SAFETY: the caller guarantees this.
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

/// Like `tollgate_check`, but charges `cost` tokens, either all or none. A cost of 0 is admitted
/// and charges nothing.
///
/// Any number of threads may call this function at once. The library keeps neither the key nor the
/// decision.
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
    // SAFETY: the caller guarantees this.
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

/// Like `tollgate_check_n`, but for a numeric key. The key consists of the number's eight bytes in
/// memory, so `tollgate_check_n(limiter, &key, 8, cost, decision)` uses the same key.
///
/// Any number of threads may call this function at once. The library does not keep the decision.
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
    // SAFETY: the caller guarantees the other arguments, and `bytes` contains eight bytes.
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

/// Like `tollgate_check_n`, but at a time that the caller passes. The time is in nanoseconds and
/// must be at most 2^61. Use this function to share one reading of `tollgate_now` among several
/// checks, for tests, or for timestamps from a log. Times may go backwards. A time above 2^61
/// counts as 2^61. Use one clock for each limiter: after a charge at the time of another clock,
/// which may be years ahead of `tollgate_now`, a check at `tollgate_now` may be denied for as long.
///
/// Any number of threads may call this function at once. The library keeps neither the key nor the
/// decision.
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
    // SAFETY: the caller guarantees this.
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

/// Returns the answer that `tollgate_check_n` would give now, without charging any tokens. The
/// figures in the decision describe the state before a charge.
///
/// Any number of threads may call this function at once. The library keeps neither the key nor the
/// decision.
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
    // SAFETY: the caller guarantees this.
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

/// Like `tollgate_peek`, but at a time that the caller passes.
///
/// Any number of threads may call this function at once. The library keeps neither the key nor the
/// decision.
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
    // SAFETY: the caller guarantees this.
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

/// Gives back tokens that a check has charged to `key`. `decision` is the decision that the check
/// wrote. At most `tokens` tokens are given back; `UINT64_MAX` means all of them. Tokens that have
/// refilled since the check are not given back a second time. Refund each charge at most once.
///
/// Returns 0 or an error. The result is 0 even if no token was given back.
///
/// Any number of threads may call this function at once. The library keeps neither the key nor the
/// decision.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply. `decision` was written by a function of this
/// library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_refund(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    decision: *const tollgate_decision,
    tokens: u64,
) -> c_int {
    // SAFETY: the caller guarantees this.
    unsafe {
        give_back(limiter, key, key_len, decision, |limiter, key, charge| {
            limiter.refund_n(key, charge, tokens);
        })
    }
}

/// Like `tollgate_refund`, but at a time that the caller passes.
///
/// Any number of threads may call this function at once. The library keeps neither the key nor the
/// decision.
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
    // SAFETY: the caller guarantees this.
    unsafe {
        give_back(limiter, key, key_len, decision, |limiter, key, charge| {
            limiter.at(now).refund_n(key, charge, tokens);
        })
    }
}

/// Like `tollgate_check`, but checks `count` keys in order. The library looks up 32 keys at a time,
/// which is faster than single checks if the keys are not in the processor's caches.
///
/// Writes the result for each key to `results`, and the decision for each key to `decisions`.
/// Either pointer may be NULL. Set the `size` of the first decision, which applies to all
/// decisions. Returns `TOLLGATE_ADMITTED` if all keys are admitted, and `TOLLGATE_DENIED` if any
/// key is denied. If this function returns an error other than `TOLLGATE_ERR_PANIC`, no key is
/// charged.
///
/// Any number of threads may call this function at once. The library keeps none of the arguments.
/// The function allocates a buffer.
///
/// # Safety
///
/// The preconditions of `tollgate_check` apply to each key. `keys` has `count` elements. `results`
/// and `decisions` also have `count` elements, unless they are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_many(
    limiter: *const tollgate_limiter,
    keys: *const tollgate_key,
    count: usize,
    results: *mut c_int,
    decisions: *mut tollgate_decision,
) -> c_int {
    // SAFETY: the caller guarantees this.
    unsafe { decide_many(limiter, keys, count, results, decisions) }
}

/// Checks one request against several limits. If all limits admit the request, it is admitted and
/// all limits are charged. Otherwise, it is denied and no limit is charged. Name each key of a
/// limiter at most once.
///
/// Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. An error charges no limit. If the
/// request is denied and `denied_by` is not NULL, the index of the limit with the longest wait is
/// written to `denied_by`.
///
/// Any number of threads may call this function at once. The library keeps none of the arguments.
/// The function allocates memory if there are more than 8 limits.
///
/// # Safety
///
/// `charges` has `count` elements. The preconditions of `tollgate_check` apply to each element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_all(
    charges: *const tollgate_charge,
    count: usize,
    denied_by: *mut usize,
) -> c_int {
    // SAFETY: the caller guarantees this.
    unsafe { decide_all(charges, count, denied_by) }
}

/// Replaces the quota of all keys that do not have their own quota. Tokens that were already
/// charged remain charged.
///
/// Returns 0 or an error. On an error, the quota is unchanged, and `message` receives a string that
/// states the fault.
///
/// Any number of threads may call this function at once, even during checks. The library copies the
/// string.
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
        // SAFETY: the caller guarantees this.
        let limiter = unsafe { limiter_of(limiter) }?;
        // SAFETY: the caller guarantees this.
        let quota = unsafe { text_of(quota) };
        Ok(limiter.set_quota(settings::quota(quota)?)?)
    };
    // SAFETY: the caller guarantees this.
    unsafe { explained(message, message_size, set) }
}

/// Sets or removes the quotas of individual keys. All keys are changed in a single step, which
/// costs as much as `tollgate_set_quota`. To change many keys, use a single call.
///
/// Returns 0 or an error. On an error, no quota is changed, and `message` receives a string that
/// states the fault.
///
/// Any number of threads may call this function at once, even during checks. The library copies the
/// keys and the strings.
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
    // SAFETY: the caller guarantees this.
    let set = || unsafe { set_key_quotas(limiter, quotas, count) };
    // SAFETY: the caller guarantees this.
    unsafe { explained(message, message_size, set) }
}

/// Writes a limiter's figures to `stats`. This function visits all keys.
///
/// Returns 0 or an error. Any number of threads may call this function at once.
///
/// # Safety
///
/// `limiter` is a live handle, and `stats` has as many bytes as its `size` states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_stats_of(
    limiter: *const tollgate_limiter,
    stats: *mut tollgate_stats,
) -> c_int {
    // SAFETY: the caller guarantees this.
    unsafe { write_stats(limiter, stats) }
}

/// Returns the current time of the limiter's clock in nanoseconds, for functions that accept a
/// time. Returns 0 if `limiter` is NULL.
///
/// Any number of threads may call this function at once.
///
/// # Safety
///
/// `limiter` is a live handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_now(limiter: *const tollgate_limiter) -> u64 {
    // SAFETY: the caller guarantees this.
    let limiter = unsafe { limiter_of(limiter) };
    let read = || limiter.map_or(0, |limiter| limiter.clock().now().as_nanos());
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(0)
}
