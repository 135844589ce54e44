//! Runs the program's fuzz bodies on saved inputs, and then on new inputs for a few seconds. The
//! bodies test the logs of `tollgate replay`, the limits of `tollgate proxy`, and the heads of
//! proxied messages.

#[cfg(feature = "proxy")]
use tollgate_testing::fuzz::{heads, limit_text};
use tollgate_testing::fuzz::{log, saved};

#[test]
fn logs_are_read_or_refused_and_every_line_counted_for_what_was_fuzzed() {
    saved::try_all("log", log::body, 3_000);
}

#[cfg(feature = "proxy")]
#[test]
fn limits_mean_what_was_written_or_are_refused_for_what_was_fuzzed() {
    saved::try_all("limit_text", limit_text::body, 20_000);
}

#[cfg(feature = "proxy")]
#[test]
fn heads_are_made_plain_or_refused_for_what_was_fuzzed() {
    saved::try_all("heads", heads::body, 20_000);
}
