//! See `crates/tollgate-testing/src/fuzz/fields.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::fields::body(data));
