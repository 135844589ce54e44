//! See `tests/fuzz/quota.rs`.

#![no_main]

// For the rules' quotas.
#[allow(dead_code)]
#[path = "../../tests/oracle/mod.rs"]
mod oracle;

#[path = "../../tests/fuzz"]
mod fuzz {
    pub(crate) mod input;
    pub(crate) mod quota;
    #[allow(dead_code)]
    pub(crate) mod rule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::quota::body(data));
