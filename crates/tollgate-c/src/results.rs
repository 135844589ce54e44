//! The numbers that functions return and that structs contain. The meaning of a number never
//! changes.

use std::ffi::{CStr, c_int};

/// The request may proceed, and its cost was charged. Functions that do not decide about a request
/// return this number on success.
pub const TOLLGATE_ADMITTED: c_int = 0;
/// The request must not proceed, and nothing was charged. This result is an answer, not an error.
pub const TOLLGATE_DENIED: c_int = 1;
/// An `outcome` of a decision: the cost exceeds the capacity, so the request can never pass.
/// Functions return `TOLLGATE_DENIED` for this outcome.
pub const TOLLGATE_TOO_COSTLY: c_int = 2;

/// A pointer is NULL where NULL is not allowed.
pub const TOLLGATE_ERR_NULL: c_int = -1;
/// The `size` of a struct differs from its `sizeof`, or the length of a key or of an array exceeds
/// the maximum size of an object. A `size` that could be that of another version is not noticed.
pub const TOLLGATE_ERR_SIZE: c_int = -2;
/// A quota or an option is out of range, or its text cannot be parsed, or there is no memory for a
/// new limiter. The message names the setting, the allowed values, and the fix.
pub const TOLLGATE_ERR_SETTING: c_int = -3;
/// No memory is currently available for the change of a quota. The same call may succeed later.
pub const TOLLGATE_ERR_MEMORY: c_int = -4;
/// A reserved field is not zero, or a struct from a newer version sets a field that this library
/// does not support.
pub const TOLLGATE_ERR_UNKNOWN: c_int = -5;
/// The decision was not written by this library.
pub const TOLLGATE_ERR_DECISION: c_int = -6;
/// An internal fault, which the library has reported on stderr. The limiter remains usable.
pub const TOLLGATE_ERR_PANIC: c_int = -7;

/// The file of a saved state cannot be read or written, is unusable, or is used by another limiter.
/// The message contains the reason.
pub const TOLLGATE_ERR_STATE: c_int = -8;

/// In a field that counts nanoseconds, this value means that the time will never be reached.
pub const TOLLGATE_NEVER: u64 = u64::MAX;

/// The `source` of a decision: the key's own state.
pub const TOLLGATE_SOURCE_KEY: u32 = 0;
/// The `source` of a decision: the state that new keys share while the table is full. Requires the
/// value "share" for the option `when_full`.
pub const TOLLGATE_SOURCE_OVERFLOW: u32 = 1;
/// The `source` of a decision: the table is full, so the option `when_full` determined the answer.
pub const TOLLGATE_SOURCE_POLICY: u32 = 2;

/// The text of a result.
pub(crate) const fn text_of(result: c_int) -> &'static CStr {
    match result {
        TOLLGATE_ADMITTED => c"admitted",
        TOLLGATE_DENIED => c"denied",
        TOLLGATE_TOO_COSTLY => c"denied: the cost exceeds the capacity",
        TOLLGATE_ERR_NULL => c"a pointer is NULL that must not be; only key pointers of length 0 may be",
        TOLLGATE_ERR_SIZE => {
            c"a size is wrong; set the field `size` of a struct to its sizeof, key lengths to at most SIZE_MAX / 2"
        }
        TOLLGATE_ERR_SETTING => c"a quota or an option is refused; pass a buffer for the message, which says why",
        TOLLGATE_ERR_MEMORY => c"no memory for the change now; try again later",
        TOLLGATE_ERR_UNKNOWN => {
            c"a reserved field is set, or one of a newer version; clear the struct, or update the library"
        }
        TOLLGATE_ERR_DECISION => c"the decision was not written by this library; pass one of a check",
        TOLLGATE_ERR_PANIC => c"a fault in the library, reported on stderr; please file an issue",
        TOLLGATE_ERR_STATE => {
            c"the file of the saved state cannot be used; pass a buffer for the message, which says why"
        }
        _ => c"unknown result; allowed: what a function of tollgate returned",
    }
}
