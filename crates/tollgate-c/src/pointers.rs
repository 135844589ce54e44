//! Checks the arguments that C passes, and writes the results that C receives. No panic unwinds
//! from this module into C.
#![allow(unsafe_code)]

use crate::results::{TOLLGATE_ERR_DECISION, TOLLGATE_ERR_NULL, TOLLGATE_ERR_PANIC, TOLLGATE_ERR_SIZE};
use crate::settings::{self, Options, Refusal};
use crate::types::{
    MARK, result_of, tollgate_charge, tollgate_decision, tollgate_key, tollgate_key_quota, tollgate_limiter,
    tollgate_options, tollgate_stats,
};
use smallvec::SmallVec;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::{ptr, slice};
use tollgate::{Charge, Decision, Limiter, Quota, check_all};

/// The largest allowed `size` of a struct. A larger value shows that the caller never set the
/// field.
const MOST_BYTES: usize = 4096;

// A decision fits into the words of the field `charge`.
const _: () = assert!(size_of::<Decision>() <= size_of::<[u64; 8]>());
const _: () = assert!(align_of::<Decision>() <= align_of::<u64>());

/// Runs `body`. Returns an error code if `body` panics, because a panic must not unwind into C.
#[inline]
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    // A limiter continues to work after a panic in a check, so callers cannot observe a broken
    // state.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result) | Err(result)) => result,
        Err(_) => TOLLGATE_ERR_PANIC,
    }
}

/// Runs `body`. If `body` fails or panics, writes the error's text to `message`.
///
/// # Safety
///
/// `message` is NULL or has `message_size` bytes.
pub(crate) unsafe fn explained(
    message: *mut c_char,
    message_size: usize,
    body: impl FnOnce() -> Result<(), Refusal>,
) -> c_int {
    let mut refusal = Refusal::from(TOLLGATE_ERR_PANIC);
    let result = guarded(|| match body() {
        Ok(()) => Ok(0),
        Err(error) => {
            refusal = error;
            Err(refusal.result)
        }
    });
    if result != 0 && !message.is_null() && message_size > 0 {
        let text = &refusal.message[..fitting(&refusal.message, message_size)];
        // SAFETY: the text is at most one byte shorter than the caller's buffer.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), message.cast(), text.len()) };
        // SAFETY: the byte after the text is in the buffer.
        unsafe { message.wrapping_add(text.len()).write(0) };
    }
    result
}

/// Creates a limiter from a quota and options, and writes its handle to `limiter`. If `make` fails
/// or panics, writes the error's text to the message.
///
/// # Safety
///
/// `limiter` is NULL or valid, `quota` satisfies the preconditions of `text_of`, `options` those of
/// `options_of`, and the message those of `explained`.
pub(crate) unsafe fn made(
    limiter: *mut *mut tollgate_limiter,
    (quota, options): (*const c_char, *const tollgate_options),
    (message, message_size): (*mut c_char, usize),
    make: impl FnOnce(Option<String>, &Options) -> Result<tollgate_limiter, Refusal>,
) -> c_int {
    let write = || {
        if limiter.is_null() {
            return Err(TOLLGATE_ERR_NULL.into());
        }
        // SAFETY: the caller guarantees this.
        let quota = unsafe { text_of(quota) };
        // SAFETY: the caller guarantees this.
        let options = unsafe { options_of(options) }?;
        let made = Box::new(make(quota, &options)?);
        // SAFETY: the caller guarantees this.
        unsafe { limiter.write(Box::into_raw(made)) };
        Ok(())
    };
    // SAFETY: the caller guarantees this.
    unsafe { explained(message, message_size, write) }
}

/// Returns the length of the longest prefix of `text` that fits into `size` bytes together with a
/// terminating 0.
fn fitting(text: &str, size: usize) -> usize {
    (0..size.min(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns the limiter behind a handle.
///
/// # Safety
///
/// `limiter` is NULL or a handle that is live for `'a`.
#[inline]
pub(crate) unsafe fn limiter_of<'a>(limiter: *const tollgate_limiter) -> Result<&'a Limiter<[u8]>, c_int> {
    // SAFETY: the caller guarantees this.
    let handle = unsafe { limiter.as_ref() };
    Ok(handle.ok_or(TOLLGATE_ERR_NULL)?.limiter())
}

/// Returns the bytes of a key.
///
/// # Safety
///
/// `key` has `key_len` bytes that are valid for `'a`, or `key_len` is 0.
#[inline]
pub(crate) unsafe fn key_of<'a>(key: *const c_void, key_len: usize) -> Result<&'a [u8], c_int> {
    if key_len == 0 {
        return Ok(&[]);
    }
    if key.is_null() {
        return Err(TOLLGATE_ERR_NULL);
    }
    if key_len > isize::MAX as usize {
        return Err(TOLLGATE_ERR_SIZE);
    }
    // SAFETY: the caller guarantees the pointer, and the length was just checked.
    Ok(unsafe { slice::from_raw_parts(key.cast(), key_len) })
}

/// Returns an array from C. The pointer may be NULL if the array is empty.
///
/// # Safety
///
/// `first` has `count` elements that are valid for `'a`, or `count` is 0.
unsafe fn array_of<'a, T>(first: *const T, count: usize) -> Result<&'a [T], c_int> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(TOLLGATE_ERR_NULL);
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(TOLLGATE_ERR_SIZE);
    }
    // SAFETY: the caller guarantees the pointer, and the length was just checked.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Returns a string from C, or `None` for NULL. Bytes that are not UTF-8 are replaced by characters
/// that the parser refuses.
///
/// # Safety
///
/// `text` is NULL or ends with a byte 0.
pub(crate) unsafe fn text_of(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees this.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Returns a path from C, or `None` for NULL.
///
/// # Safety
///
/// `path` is NULL or ends with a byte 0.
pub(crate) unsafe fn path_of(path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees this.
    let path = unsafe { CStr::from_ptr(path) };
    #[cfg(unix)]
    let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes());
    #[cfg(not(unix))]
    let path = &*path.to_string_lossy();
    Some(path.into())
}

/// Returns the options from C, or the defaults for NULL.
///
/// # Safety
///
/// `options` is NULL or has as many bytes as its `size` states. Its strings satisfy the
/// preconditions of `text_of`.
pub(crate) unsafe fn options_of(options: *const tollgate_options) -> Result<Options, c_int> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: `size` is the first field of each version.
    let size = unsafe { options.cast::<usize>().read() };
    // The first version ends with `clock`. A smaller size is a mistake, such as the size of a
    // pointer.
    let first = offset_of!(tollgate_options, clock) + size_of::<*const c_char>();
    if !(first..=MOST_BYTES).contains(&size) {
        return Err(TOLLGATE_ERR_SIZE);
    }
    // SAFETY: the caller promises that the struct has as many bytes.
    let bytes = unsafe { slice::from_raw_parts(options.cast::<u8>(), size) };
    let known = size.min(size_of::<tollgate_options>());
    settings::unless_zero(&bytes[known..])?;
    let mut own = tollgate_options {
        size,
        max_keys: 0,
        algorithm: ptr::null(),
        when_full: ptr::null(),
        clock: ptr::null(),
    };
    // SAFETY: both structs have `known` bytes. Fields that an older version lacks remain 0.
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut own).cast(), known) };
    // SAFETY: the caller guarantees this for every string in `options`.
    let algorithm = unsafe { text_of(own.algorithm) };
    // SAFETY: see above.
    let when_full = unsafe { text_of(own.when_full) };
    // SAFETY: see above.
    let clock = unsafe { text_of(own.clock) };
    Ok(Options { max_keys: own.max_keys, algorithm, when_full, clock })
}

/// A struct from C that the library will write to, or NULL.
pub(crate) struct Place<T> {
    place: *mut T,
    size: usize,
}

impl<T> Place<T> {
    /// # Safety
    ///
    /// `place` is NULL, or points to a struct that starts with its `size`. That many bytes must
    /// stay valid until this library has written the struct.
    #[inline]
    pub(crate) unsafe fn of(place: *mut T) -> Result<Self, c_int> {
        if place.is_null() {
            return Ok(Self { place, size: 0 });
        }
        // SAFETY: the caller guarantees this.
        let size = unsafe { place.cast::<usize>().read() };
        if (size_of::<T>()..=MOST_BYTES).contains(&size) {
            Ok(Self { place, size })
        } else {
            Err(TOLLGATE_ERR_SIZE)
        }
    }

    /// Calls `value` with the size of the struct, and writes the returned value unless the place is
    /// NULL. Fields that exist only in a newer version are set to zero.
    #[inline(always)]
    fn write(self, value: impl FnOnce(usize) -> T) {
        if self.place.is_null() {
            return;
        }
        // SAFETY: the caller of `of` has promised `size` bytes, and `size` is at least the size of
        // a `T`.
        unsafe { self.place.write(value(self.size)) };
        if self.size > size_of::<T>() {
            // SAFETY: the place has `size` bytes.
            let rest = unsafe { self.place.add(1) }.cast::<u8>();
            // SAFETY: see above.
            unsafe { rest.write_bytes(0, self.size - size_of::<T>()) };
        }
    }
}

impl Place<tollgate_decision> {
    /// Writes a decision, including its figures and the charge that a refund requires.
    #[inline(always)]
    pub(crate) fn put(self, decision: &Decision) {
        let place = self.place;
        self.write(|size| tollgate_decision::figures_of(decision, size));
        if !place.is_null() {
            let kept = place.wrapping_byte_add(offset_of!(tollgate_decision, charge)).cast::<Decision>();
            // SAFETY: `charge` is large enough for a decision and sufficiently aligned. The
            // decision and its figures are written separately, so that neither passes through
            // memory twice.
            unsafe { kept.write(*decision) };
        }
    }
}

/// Checks one key in a limiter. Writes the decision unless `decision` is NULL.
///
/// `quiet` and `ask` make the same check. Each closure has a single call site and is therefore
/// inlined, so the branch without a decision neither computes nor stores any figures.
///
/// # Safety
///
/// The preconditions of `limiter_of`, `key_of` and `Place::of` apply.
#[inline(always)]
pub(crate) unsafe fn decide(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    decision: *mut tollgate_decision,
    quiet: impl FnOnce(&Limiter<[u8]>, &[u8]) -> Decision,
    ask: impl FnOnce(&Limiter<[u8]>, &[u8]) -> Decision,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller guarantees this.
        let limiter = unsafe { limiter_of(limiter) }?;
        // SAFETY: the caller guarantees this.
        let key = unsafe { key_of(key, key_len) }?;
        if decision.is_null() {
            // Only the result is computed, without the figures of a decision.
            return Ok(result_of(&quiet(limiter, key)));
        }
        // SAFETY: the caller guarantees this.
        let place = unsafe { Place::of(decision) }?;
        let answer = ask(limiter, key);
        place.put(&answer);
        Ok(result_of(&answer))
    })
}

/// Refunds a decision's charge by calling `refund`.
///
/// # Safety
///
/// The preconditions of `limiter_of` and `key_of` apply. `decision` is NULL or has as many bytes as
/// its `size` states. A decision that contains this library's mark was written by this library.
pub(crate) unsafe fn give_back(
    limiter: *const tollgate_limiter,
    key: *const c_void,
    key_len: usize,
    decision: *const tollgate_decision,
    refund: impl FnOnce(&Limiter<[u8]>, &[u8], &Decision),
) -> c_int {
    guarded(|| {
        // SAFETY: the caller guarantees this.
        let limiter = unsafe { limiter_of(limiter) }?;
        // SAFETY: the caller guarantees this.
        let key = unsafe { key_of(key, key_len) }?;
        if decision.is_null() {
            return Err(TOLLGATE_ERR_NULL);
        }
        // SAFETY: the caller guarantees this, and the decision is not written to.
        unsafe { Place::of(decision.cast_mut()) }?;
        // Each field is read separately, because the fields of an unwritten decision may be
        // uninitialized.
        let field = |offset| decision.cast::<u8>().wrapping_add(offset);
        // SAFETY: the decision has at least the bytes of this version.
        let mark = unsafe { field(offset_of!(tollgate_decision, mark)).cast::<u64>().read() };
        if mark != MARK {
            return Err(TOLLGATE_ERR_DECISION);
        }
        // SAFETY: the mark shows that `Place::put` has written a decision there.
        let kept = unsafe { field(offset_of!(tollgate_decision, charge)).cast::<Decision>().read() };
        refund(limiter, key, &kept);
        Ok(0)
    })
}

/// How many keys are checked at a time. The core prefetches the same number of keys.
const BATCH: usize = 32;

/// Checks many keys.
///
/// # Safety
///
/// The preconditions of `limiter_of` apply, and for each key the preconditions of `key_of`.
/// `results` and `decisions` are NULL or have `count` elements. The first decision states the size
/// of all decisions.
pub(crate) unsafe fn decide_many(
    limiter: *const tollgate_limiter,
    keys: *const tollgate_key,
    count: usize,
    results: *mut c_int,
    decisions: *mut tollgate_decision,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller guarantees this.
        let limiter = unsafe { limiter_of(limiter) }?;
        // SAFETY: the caller guarantees this.
        let keys = unsafe { array_of(keys, count) }?;
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the caller guarantees this for the first decision.
        let first = unsafe { Place::of(decisions) }?;
        // With any other size, the second decision would be misaligned.
        if !first.size.is_multiple_of(align_of::<tollgate_decision>()) {
            return Err(TOLLGATE_ERR_SIZE);
        }
        // All keys are validated before any key is charged.
        // SAFETY: the caller guarantees this.
        keys.iter().try_for_each(|one| unsafe { key_of(one.key, one.key_len) }.map(drop))?;
        let (mut result, mut answers) = (0, Vec::with_capacity(BATCH.min(count)));
        for (nth, some) in keys.chunks(BATCH).enumerate() {
            // SAFETY: the caller guarantees this.
            let bytes = some.iter().map(|one| unsafe { key_of(one.key, one.key_len) }.unwrap_or_default());
            limiter.check_many(bytes, &mut answers);
            for (at, answer) in answers.drain(..).enumerate() {
                let (index, one) = (nth * BATCH + at, result_of(&answer));
                result = result.max(one);
                if !results.is_null() {
                    // SAFETY: `index` is below `count`.
                    unsafe { results.wrapping_add(index).write(one) };
                }
                if !decisions.is_null() {
                    // SAFETY: `index` is below `count`, and all decisions have the same size as the
                    // first decision.
                    let place = unsafe { decisions.byte_add(index * first.size) };
                    Place { place, size: first.size }.put(&answer);
                }
            }
        }
        Ok(result)
    })
}

/// Checks one request against several limits.
///
/// # Safety
///
/// `charges` has `count` elements, which satisfy the preconditions of `limiter_of`, `key_of` and
/// `Place::of`. `denied_by` is NULL or has room for an index.
pub(crate) unsafe fn decide_all(
    charges: *const tollgate_charge,
    count: usize,
    denied_by: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller guarantees this.
        let charges = unsafe { array_of(charges, count) }?;
        let mut limits = SmallVec::<[_; 8]>::new();
        for charge in charges {
            settings::unless_zero(&charge.reserved.map(|word| u8::from(word != 0)))?;
            // SAFETY: the caller guarantees this.
            let limiter = unsafe { limiter_of(charge.limiter) }?;
            // SAFETY: the caller guarantees this.
            let key = unsafe { key_of(charge.key, charge.key_len) }?;
            // SAFETY: the caller guarantees this.
            unsafe { Place::of(charge.decision) }?;
            limits.push(limiter.for_key(key));
        }
        let mut asked: SmallVec<[_; 8]> =
            limits.iter().zip(charges).map(|(limit, charge)| Charge::new(limit, charge.cost)).collect();
        let answer = check_all(&mut asked);
        for (one, charge) in asked.iter().zip(charges) {
            if let Some(decision) = one.decision() {
                // SAFETY: the caller guarantees this, and the size was checked above.
                unsafe { Place::of(charge.decision) }?.put(decision);
            }
        }
        let Err(denied) = answer else { return Ok(0) };
        if let (false, Some(index)) = (denied_by.is_null(), denied.index()) {
            // SAFETY: the caller guarantees this.
            unsafe { denied_by.write(index) };
        }
        Ok(result_of(&denied.decision()))
    })
}

/// Sets or removes the quotas of single keys.
///
/// # Safety
///
/// The preconditions of `limiter_of` apply. `quotas` has `count` elements, which satisfy the
/// preconditions of `key_of` and `text_of`.
pub(crate) unsafe fn set_key_quotas(
    limiter: *const tollgate_limiter,
    quotas: *const tollgate_key_quota,
    count: usize,
) -> Result<(), Refusal> {
    // SAFETY: the caller guarantees this.
    let limiter = unsafe { limiter_of(limiter) }?;
    // SAFETY: the caller guarantees this.
    let quotas = unsafe { array_of(quotas, count) }?;
    let mut read: Vec<(&[u8], Option<Quota>)> = Vec::with_capacity(quotas.len());
    for one in quotas {
        // SAFETY: the caller guarantees this.
        let key = unsafe { key_of(one.key, one.key_len) }?;
        // SAFETY: the caller guarantees this.
        let text = unsafe { text_of(one.quota) };
        read.push((key, text.map(|text| settings::quota(Some(text))).transpose()?));
    }
    Ok(limiter.set_key_quotas(read)?)
}

/// Writes the figures of a limiter.
///
/// # Safety
///
/// The preconditions of `limiter_of` apply, and for `stats` the preconditions of `Place::of`.
pub(crate) unsafe fn write_stats(limiter: *const tollgate_limiter, stats: *mut tollgate_stats) -> c_int {
    guarded(|| {
        // SAFETY: the caller guarantees this.
        let limiter = unsafe { limiter_of(limiter) }?;
        if stats.is_null() {
            return Err(TOLLGATE_ERR_NULL);
        }
        // SAFETY: the caller guarantees this.
        let place = unsafe { Place::of(stats) }?;
        let figures = limiter.stats();
        place.write(|size| tollgate_stats::of(&figures, size));
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results;

    #[test]
    fn a_panic_becomes_a_result() {
        assert_eq!(guarded(|| panic!("what C must not see")), TOLLGATE_ERR_PANIC);
        assert_eq!(guarded(|| Ok(1)), 1);
    }

    #[test]
    fn a_panic_is_explained() {
        let mut message = [c_char::MAX; 200];
        // SAFETY: the buffer has 200 bytes.
        let result = unsafe { explained(message.as_mut_ptr(), 200, || panic!("what C must not see")) };
        // SAFETY: the text in the buffer ends with a 0.
        let text = unsafe { CStr::from_ptr(message.as_ptr()) };
        assert_eq!((result, text), (TOLLGATE_ERR_PANIC, results::text_of(TOLLGATE_ERR_PANIC)));
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let lengths = [0, 1, 2, 3, 4, 5, 6].map(|size| fitting("aäb", size));
        assert_eq!(lengths, [0, 0, 1, 1, 3, 4, 4]);
    }
}
