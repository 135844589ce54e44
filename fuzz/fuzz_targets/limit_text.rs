//! See `tests/fuzz/limit_text.rs`.

#![no_main]

// For the rules' quotas.
#[allow(dead_code)]
#[path = "../../tests/oracle/mod.rs"]
mod oracle;

#[allow(dead_code, unused_imports)]
#[path = "../../src/bin/tollgate/replay/mod.rs"]
mod replay;

#[allow(dead_code)]
#[path = "../../src/bin/tollgate/proxy"]
mod proxy {
    pub(crate) mod limit_text;
    pub(crate) mod limits;
    pub(crate) mod shared;
}

#[path = "../../tests/fuzz"]
mod fuzz {
    pub(crate) mod input;
    pub(crate) mod limit_text;
    #[allow(dead_code)]
    pub(crate) mod rule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::limit_text::body(data));
