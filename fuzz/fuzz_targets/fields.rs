//! See `tests/fuzz/fields.rs`.

#![no_main]

// For the rules' quotas.
#[allow(dead_code)]
#[path = "../../tests/oracle/mod.rs"]
mod oracle;

#[path = "../../tests/http_sockets/structured.rs"]
mod structured;

#[path = "../../tests/fuzz"]
mod fuzz {
    pub(crate) mod fields;
    pub(crate) mod input;
    #[allow(dead_code)]
    pub(crate) mod rule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::fields::body(data));
