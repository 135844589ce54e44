//! See `crates/tollgate-testing/src/fuzz/limit_text.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::limit_text::body(data));
