//! As `fuzz_corpus`, for the log reader of `tollgate replay`.
//!
//! The program's own modules, included by their path; built without the test harness, so that their own tests
//! don't come along.

// There is no use for some of what they offer.
#[allow(dead_code, unused_imports)]
#[path = "../src/bin/tollgate/replay/mod.rs"]
mod replay;

mod fuzz {
    // Other targets read more out of their bytes.
    #[allow(dead_code)]
    pub(crate) mod input;
    pub(crate) mod log;
    pub(crate) mod saved;
}

fn main() {
    fuzz::saved::try_all("log", fuzz::log::body, 3_000);
    println!("logs are read or refused, and every line counted, for what was fuzzed");
}
