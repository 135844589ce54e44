//! Lines on standard error: what whoever started the proxy should know.

use std::fmt;
use std::io::{self, Write};

/// Writes one line. Without standard error there is nobody to tell.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "tollgate: {line}");
}
