//! See `crates/tollgate-testing/src/fuzz/rule.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::rule::body(data));
