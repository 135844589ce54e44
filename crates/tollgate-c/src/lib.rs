//! The C library of [tollgate](https://docs.rs/tollgate), a lock-free keyed rate limiter.
//!
//! C programs include `tollgate.h` and link to `libtollgate`. `README.md` explains the steps from
//! `make install-c` to a first program. The header is generated from this crate, and the header's
//! first comment states the rules for all functions.
//!
//! The Rust crate is for programs that share a limiter with code written in C:
//!
//! ```
//! use tollgate::{Limiter, Quota};
//! use tollgate_c::{TOLLGATE_ADMITTED, TOLLGATE_DENIED, tollgate_check, tollgate_limiter};
//!
//! let shared = tollgate_limiter::from(Limiter::builder(Quota::per_hour(2)).build()?);
//! assert!(shared.limiter().check(&b"alice"[..]).is_allowed());
//!
//! // What C does with the handle `&shared` and the same bytes.
//! let ask = || unsafe { tollgate_check(&shared, "alice".as_ptr().cast(), 5, std::ptr::null_mut()) };
//! assert_eq!(ask(), TOLLGATE_ADMITTED);
//! assert_eq!(ask(), TOLLGATE_DENIED);
//! # Ok::<(), tollgate::ConfigError>(())
//! ```
//!
//! # Files
//!
//! `types.rs` defines the structs of the header. `results.rs` defines the header's numbers and
//! their texts. `settings.rs` parses texts. `pointers.rs` checks arguments from C and writes
//! results to C. `functions.rs` defines the exported functions. Only `pointers.rs` and
//! `functions.rs` contain unsafe code.

mod functions;
mod pointers;
mod results;
mod settings;
mod types;

pub use functions::{
    tollgate_check, tollgate_check_all, tollgate_check_at, tollgate_check_many, tollgate_check_n,
    tollgate_check_u64, tollgate_limiter_free, tollgate_limiter_new, tollgate_limiter_open,
    tollgate_limiter_save, tollgate_now, tollgate_peek, tollgate_peek_at, tollgate_refund,
    tollgate_refund_at, tollgate_set_key_quotas, tollgate_set_quota, tollgate_stats_of, tollgate_strerror,
    tollgate_version,
};
pub use results::{
    TOLLGATE_ADMITTED, TOLLGATE_DENIED, TOLLGATE_ERR_DECISION, TOLLGATE_ERR_MEMORY, TOLLGATE_ERR_NULL,
    TOLLGATE_ERR_PANIC, TOLLGATE_ERR_SETTING, TOLLGATE_ERR_SIZE, TOLLGATE_ERR_STATE, TOLLGATE_ERR_UNKNOWN,
    TOLLGATE_NEVER, TOLLGATE_SOURCE_KEY, TOLLGATE_SOURCE_OVERFLOW, TOLLGATE_SOURCE_POLICY,
    TOLLGATE_TOO_COSTLY,
};
pub use types::{
    tollgate_charge, tollgate_decision, tollgate_key, tollgate_key_quota, tollgate_limiter, tollgate_options,
    tollgate_stats,
};
