//! See `tests/fuzz/rule.rs`.

#![no_main]

#[path = "../../tests/oracle/mod.rs"]
mod oracle;

#[path = "../../tests/fuzz"]
mod fuzz {
    pub(crate) mod input;
    pub(crate) mod rule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::rule::body(data));
