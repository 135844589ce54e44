//! As `fuzz_corpus`, for what the program reads: the logs of `tollgate replay`, the limits of `tollgate proxy`.
//!
//! The program's own modules, included by their path; built without the test harness, so that their own tests
//! don't come along.

#[allow(unused_imports)]
mod oracle;

// There is no use for some of what they offer.
#[allow(dead_code, unused_imports)]
#[path = "../src/bin/tollgate/replay/mod.rs"]
mod replay;

#[allow(dead_code)]
#[path = "../src/bin/tollgate/proxy"]
mod proxy {
    pub(crate) mod limit_text;
    pub(crate) mod limits;
    pub(crate) mod shared;
}

mod fuzz {
    pub(crate) mod input;
    pub(crate) mod limit_text;
    pub(crate) mod log;
    // Its quotas.
    #[allow(dead_code)]
    pub(crate) mod rule;
    pub(crate) mod saved;
}

fn main() {
    fuzz::saved::try_all("log", fuzz::log::body, 3_000);
    fuzz::saved::try_all("limit_text", fuzz::limit_text::body, 20_000);
    println!("logs are read or refused, and every line counted, for what was fuzzed");
    println!("limits mean what was written, or are refused with what is allowed, for what was fuzzed");
}
