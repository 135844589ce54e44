//! See `tests/fuzz/log.rs`.

#![no_main]

#[allow(dead_code, unused_imports)]
#[path = "../../src/bin/tollgate/replay/mod.rs"]
mod replay;

#[path = "../../tests/fuzz"]
mod fuzz {
    #[allow(dead_code)]
    pub(crate) mod input;
    pub(crate) mod log;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log::body(data));
