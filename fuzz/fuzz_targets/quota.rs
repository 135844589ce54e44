//! See `crates/tollgate-testing/src/fuzz/quota.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::quota::body(data));
