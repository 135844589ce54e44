//! See `crates/tollgate-testing/src/fuzz/limiter.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::limiter::body(data));
