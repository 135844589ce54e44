//! See `crates/tollgate-testing/src/fuzz/log.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::log::body(data));
