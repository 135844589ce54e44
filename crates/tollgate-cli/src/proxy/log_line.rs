//! Writes lines for the proxy's operator to standard error. Each line contains the time in UTC (RFC
//! 3339), the level, and a sentence.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tollgate::{Quota, SingleLimiter};

/// How long [`last`] waits for standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// The severity of a line.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    /// The proxy works as it should.
    Info,
    /// An operation failed, but the proxy continues.
    Warn,
    /// The proxy could not carry out an operator's request.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

pub(crate) fn info(line: fmt::Arguments<'_>) {
    log(Level::Info, line);
}

pub(crate) fn warn(line: fmt::Arguments<'_>) {
    log(Level::Warn, line);
}

pub(crate) fn error(line: fmt::Arguments<'_>) {
    log(Level::Error, line);
}

/// Writes a line while the proxy ends. Returns after a second at the latest, because standard error
/// may be a full pipe, whose reader must not delay the end.
pub(crate) fn last(level: Level, line: String) {
    let (done, written) = mpsc::channel();
    thread::spawn(move || {
        log(level, format_args!("{line}"));
        let _ = done.send(());
    });
    let _ = written.recv_timeout(PATIENCE);
}

/// Writes one line to standard error. If the write fails, the failure is ignored because it cannot
/// be reported.
fn log(level: Level, line: fmt::Arguments<'_>) {
    let at = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
    let _ = writeln!(io::stderr().lock(), "{at} {} {line}", level.name());
}

/// A warning about a problem that may affect every request. The warning is logged at most once a
/// minute.
pub(crate) struct RareLine(Option<SingleLimiter>);

impl RareLine {
    pub(crate) fn new() -> Self {
        Self(SingleLimiter::builder(Quota::per_minute(1)).build().ok())
    }

    /// Returns whether the line was written.
    pub(crate) fn log(&self, line: fmt::Arguments<'_>) -> bool {
        let is_due = self.0.as_ref().is_some_and(|lines| lines.check().is_allowed());
        if is_due {
            warn(line);
        }
        is_due
    }
}
