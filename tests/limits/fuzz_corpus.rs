//! Runs the fuzz targets of `make fuzz` on the inputs that fuzzing has found, and on new inputs for
//! a few seconds.
//!
//! The bodies are those of the fuzz targets. An input that fails there belongs in
//! `crates/tollgate-testing/corpus`.

use tollgate_testing::fuzz::input::Input;
use tollgate_testing::fuzz::saved::try_all;
use tollgate_testing::fuzz::{limiter, quota, rule, state};

#[test]
fn numbers_are_of_every_size_and_end_with_the_bytes() {
    let mut input = Input(&[64, 255, 255, 255, 255, 255, 255, 255, 255, 9, 255, 255, 130, 7]);
    assert_eq!((input.number(), input.number(), input.number()), (u64::MAX, 511, 0));
    assert_eq!((input.byte(), input.is_empty(), input.number()), (7, true, 0));
}

#[test]
fn rules_decide_as_their_oracles_for_what_was_fuzzed() {
    try_all("rule", rule::body, 6_000);
}

#[test]
fn limiters_decide_as_a_map_that_never_forgets_for_what_was_fuzzed() {
    try_all("limiter", limiter::body, 6_000);
}

#[test]
fn forged_files_are_refused_or_make_a_limiter_that_works_for_what_was_fuzzed() {
    try_all("state", state::body, 20_000);
}

#[test]
fn texts_of_quotas_are_read_or_refused_for_what_was_fuzzed() {
    try_all("quota", quota::body, 50_000);
}
