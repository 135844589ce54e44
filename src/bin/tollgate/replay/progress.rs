//! Shows on a terminal's standard error how far a long replay is.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A shorter replay shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// The clock is read once in so many lines.
const LINES_PER_LOOK: u64 = 1 << 14;

/// The progress of a replay through its inputs.
pub(crate) struct Progress {
    bytes_read: Rc<Cell<u64>>,
    length: Option<u64>,
    lines: u64,
    started: Instant,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `length` is how many bytes there are to read, if that is known.
    pub(crate) fn new(length: Option<u64>) -> Self {
        Self {
            bytes_read: Rc::default(),
            length,
            lines: 0,
            started: Instant::now(),
            terminal: io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// The count that readers keep up to date.
    pub(crate) fn bytes_read(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.bytes_read)
    }

    /// A line was read.
    #[inline]
    pub(crate) fn tick(&mut self) {
        self.lines += 1;
        if self.lines.is_multiple_of(LINES_PER_LOOK) && self.terminal {
            self.show();
        }
    }

    #[cold]
    fn show(&mut self) {
        if self.bar.is_none() && self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let (bar, template) = match self.length {
                Some(length) => (ProgressBar::new(length), "{bar:30} {bytes} of {total_bytes}, {msg}"),
                None => (ProgressBar::no_length(), "{spinner} {bytes}, {msg}"),
            };
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        bar.set_position(self.bytes_read.get());
        bar.set_message(format!("{} lines", self.lines));
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
