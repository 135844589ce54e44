//! See `tests/fuzz/quota.rs`.

#![no_main]

#[path = "../../tests/fuzz/quota.rs"]
mod quota;

libfuzzer_sys::fuzz_target!(|data: &[u8]| quota::body(data));
