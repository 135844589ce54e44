//! Runs the layer's fuzz targets on inputs from earlier fuzzing, and then on new inputs for a few
//! seconds.

use tollgate_testing::fuzz::{fields, forwarded, saved};

#[test]
fn clients_behind_proxies_are_whom_the_proxies_name_for_what_was_fuzzed() {
    saved::try_all("forwarded", forwarded::body, 50_000);
}

#[test]
fn fields_of_responses_are_read_back_as_what_was_decided_for_what_was_fuzzed() {
    saved::try_all("fields", fields::body, 6_000);
}
