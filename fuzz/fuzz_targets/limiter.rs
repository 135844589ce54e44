//! See `tests/fuzz/limiter.rs`.

#![no_main]

// For the rules' quotas.
#[path = "../../tests/oracle/mod.rs"]
mod oracle;

#[path = "../../tests/fuzz"]
mod fuzz {
    pub(crate) mod input;
    pub(crate) mod limiter;
    #[allow(dead_code)]
    pub(crate) mod rule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::limiter::body(data));
