//! Lines on standard error, for the operator of the proxy.

use std::fmt;
use std::io::{self, Write};

use tollgate::{Quota, SingleLimiter};

/// Writes one line to standard error, and ignores a failure, because it could not be reported.
pub(crate) fn log_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "tollgate: {line}");
}

/// A line about something that each request may run into. It is written at most once a minute.
pub(crate) struct RareLine(Option<SingleLimiter>);

impl RareLine {
    pub(crate) fn new() -> Self {
        Self(SingleLimiter::builder(Quota::per_minute(1)).build().ok())
    }

    /// Returns whether the line was written.
    pub(crate) fn log(&self, line: fmt::Arguments<'_>) -> bool {
        let is_due = self.0.as_ref().is_some_and(|lines| lines.check().is_allowed());
        if is_due {
            log_line(line);
        }
        is_due
    }
}
