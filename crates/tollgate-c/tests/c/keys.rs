//! A limiter that Rust and C share.
#![allow(unsafe_code)]

use std::ptr;
use tollgate::{Limiter, Quota};
use tollgate_c::{
    TOLLGATE_ADMITTED, TOLLGATE_DENIED, tollgate_check, tollgate_check_u64, tollgate_limiter, tollgate_peek,
};

#[test]
fn the_same_bytes_are_the_same_key_in_c_and_in_rust() {
    let shared = tollgate_limiter::from(Limiter::builder(Quota::per_day(2)).build().unwrap());
    let rust = |key: &[u8]| shared.limiter().check(key);
    // SAFETY: the limiter is live, the bytes are a key, and there is no decision.
    let c = |key: &[u8]| unsafe { tollgate_check(&shared, key.as_ptr().cast(), key.len(), ptr::null_mut()) };

    let long = [7; 1000];
    for key in [&b"alice"[..], b"", b"\0", b"\xFF\xFE", &long] {
        assert!(rust(key).is_allowed());
        assert_eq!(c(key), TOLLGATE_ADMITTED);
        assert_eq!(c(key), TOLLGATE_DENIED);
        assert!(!rust(key).is_allowed());
    }
    // A key of length 0 may have a null pointer.
    // SAFETY: see above.
    let nothing = unsafe { tollgate_peek(&shared, ptr::null(), 0, 1, ptr::null_mut()) };
    assert_eq!(nothing, TOLLGATE_DENIED);

    let number = 0x0102_0304_0506_0708_u64;
    // SAFETY: see above.
    let c = |cost| unsafe { tollgate_check_u64(&shared, number, cost, ptr::null_mut()) };
    assert_eq!(c(1), TOLLGATE_ADMITTED);
    assert_eq!(shared.limiter().check_n(&number.to_ne_bytes()[..], 1).remaining(), 0);
    assert_eq!(c(1), TOLLGATE_DENIED);
}
