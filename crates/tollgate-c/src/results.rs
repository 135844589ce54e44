//! The numbers that functions return and that structs contain. A number keeps its meaning forever.

use std::ffi::{CStr, c_int};

/// The request may go ahead, and its cost was charged. Functions that do not decide about a request
/// return this number for success.
pub const TOLLGATE_ADMITTED: c_int = 0;
/// The request may not go ahead, and nothing was charged. This is an answer, not an error.
pub const TOLLGATE_DENIED: c_int = 1;
/// An `outcome` of a decision: the cost is above the capacity, so that the request can never pass.
/// Functions return `TOLLGATE_DENIED` for this outcome.
pub const TOLLGATE_TOO_COSTLY: c_int = 2;

/// A pointer that must not be NULL is NULL.
pub const TOLLGATE_ERR_NULL: c_int = -1;
/// The `size` of a struct is not its `sizeof`, or the length of a key is larger than any object.
pub const TOLLGATE_ERR_SIZE: c_int = -2;
/// A quota or an option is out of range, or its text cannot be parsed. The message names it, the
/// allowed values, and the fix.
pub const TOLLGATE_ERR_SETTING: c_int = -3;
/// There is not enough memory for the change. The same call may succeed later.
pub const TOLLGATE_ERR_MEMORY: c_int = -4;
/// A reserved field is not zero, or a struct of a newer version sets a field that this library does
/// not know.
pub const TOLLGATE_ERR_UNKNOWN: c_int = -5;
/// A decision was not written by this library.
pub const TOLLGATE_ERR_DECISION: c_int = -6;
/// A fault in the library, which the library has reported on stderr. The limiter remains usable.
pub const TOLLGATE_ERR_PANIC: c_int = -7;

/// The value of a field in nanoseconds for a time that will never be reached.
pub const TOLLGATE_NEVER: u64 = u64::MAX;

/// The `source` of a decision: the state of the key itself.
pub const TOLLGATE_SOURCE_KEY: u32 = 0;
/// The `source` of a decision: the state that new keys share while the table is full, if the option
/// `when_full` is "share".
pub const TOLLGATE_SOURCE_OVERFLOW: u32 = 1;
/// The `source` of a decision: the table is full, and the option `when_full` answered.
pub const TOLLGATE_SOURCE_POLICY: u32 = 2;

/// The text of a result.
pub(crate) const fn text_of(result: c_int) -> &'static CStr {
    match result {
        TOLLGATE_ADMITTED => c"admitted",
        TOLLGATE_DENIED => c"denied",
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
        _ => c"unknown result; allowed: what a function of tollgate returned",
    }
}
