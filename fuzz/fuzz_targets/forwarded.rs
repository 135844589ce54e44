//! See `crates/tollgate-testing/src/fuzz/forwarded.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::forwarded::body(data));
