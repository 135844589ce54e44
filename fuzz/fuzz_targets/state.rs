//! See `crates/tollgate-testing/src/fuzz/state.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_testing::fuzz::state::body(data));
