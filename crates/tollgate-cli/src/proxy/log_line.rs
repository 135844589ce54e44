//! Lines on standard error, for the operator of the proxy.

use std::fmt;
use std::io::{self, Write};

/// Writes one line to standard error, and ignores a failure, because it could not be reported.
pub(crate) fn log_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "tollgate: {line}");
}
