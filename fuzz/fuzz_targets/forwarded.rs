//! See `tests/fuzz/forwarded.rs`.

#![no_main]

#[path = "../../tests/fuzz"]
mod fuzz {
    pub(crate) mod forwarded;
    #[allow(dead_code)]
    pub(crate) mod input;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::forwarded::body(data));
