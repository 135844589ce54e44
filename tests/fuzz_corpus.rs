//! The fuzz targets of `make fuzz`, on what it has found so far and for some seconds more.
//!
//! The bodies are the ones that are fuzzed; an input that fails there belongs into `tests/fuzz/corpus`.

mod oracle;

mod fuzz {
    pub(crate) mod input;
    pub(crate) mod limiter;
    pub(crate) mod quota;
    pub(crate) mod rule;
    pub(crate) mod saved;
}

use fuzz::input::Input;
use fuzz::saved::try_all;

#[test]
fn numbers_are_of_every_size_and_end_with_the_bytes() {
    let mut input = Input(&[64, 255, 255, 255, 255, 255, 255, 255, 255, 9, 255, 255, 130, 7]);
    assert_eq!((input.number(), input.number(), input.number()), (u64::MAX, 511, 0));
    assert_eq!((input.byte(), input.is_empty(), input.number()), (7, true, 0));
}

#[test]
fn rules_decide_as_their_oracles_for_what_was_fuzzed() {
    try_all("rule", fuzz::rule::body, 6_000);
}

#[test]
fn limiters_decide_as_a_map_that_never_forgets_for_what_was_fuzzed() {
    try_all("limiter", fuzz::limiter::body, 6_000);
}

#[test]
fn texts_of_quotas_are_read_or_refused_for_what_was_fuzzed() {
    try_all("quota", fuzz::quota::body, 50_000);
}
