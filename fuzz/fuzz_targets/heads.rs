//! See `crates/tollgate-testing/src/fuzz/heads.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::heads::body(data));
