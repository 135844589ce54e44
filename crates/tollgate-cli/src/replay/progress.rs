//! Shows the progress of a long replay on standard error, if standard error is a terminal. There
//! are up to two phases: reading the log and, if the replay sorts the log, judging its requests.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How long a replay runs before it shows its progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of lines processed between two readings of the clock.
const LINES_PER_LOOK: u64 = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `length` is the number of bytes to read, if it is known.
    Reading {
        length: Option<u64>,
    },
    Judging {
        requests: u64,
    },
}

/// The progress of a replay through its inputs.
pub struct Progress {
    bytes_read: Rc<Cell<u64>>,
    phase: Phase,
    /// The number of lines read so far or, in the second phase, of requests judged so far.
    done: u64,
    started: Instant,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `length` is the number of bytes to read, if it is known.
    pub fn new(length: Option<u64>) -> Self {
        Self {
            bytes_read: Rc::default(),
            phase: Phase::Reading { length },
            done: 0,
            started: Instant::now(),
            terminal: io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Returns the counter of bytes read. Readers update this counter.
    pub(crate) fn bytes_read(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.bytes_read)
    }

    /// Starts the phase in which this many requests are sorted and judged.
    pub(crate) fn judge(&mut self, requests: u64) {
        self.phase = Phase::Judging { requests };
        self.done = 0;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if self.terminal {
            self.show();
        }
    }

    /// Counts a line or a judged request.
    #[inline]
    pub(crate) fn tick(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(LINES_PER_LOOK) && self.terminal {
            self.show();
        }
    }

    #[cold]
    fn show(&mut self) {
        if self.bar.is_none() && self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let (bar, template) = match self.phase {
                Phase::Reading { length: Some(length) } => {
                    (ProgressBar::new(length), "{bar:30} {bytes} of {total_bytes}, {msg}")
                }
                Phase::Reading { length: None } => (ProgressBar::no_length(), "{spinner} {bytes}, {msg}"),
                Phase::Judging { requests } => (ProgressBar::new(requests), "{bar:30} {msg}"),
            };
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        bar.set_position(match self.phase {
            Phase::Reading { .. } => self.bytes_read.get(),
            Phase::Judging { .. } => self.done,
        });
        bar.set_message(message(self.phase, self.done));
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn message(phase: Phase, done: u64) -> String {
    match phase {
        Phase::Reading { .. } => format!("{done} lines"),
        Phase::Judging { requests: _ } if done == 0 => "sorting by time".into(),
        Phase::Judging { requests } => format!("{done} of {requests} requests judged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sorted_log_is_not_counted_twice() {
        let mut progress = Progress::new(None);
        (0..3).for_each(|_| progress.tick());
        assert_eq!(message(progress.phase, progress.done), "3 lines");
        progress.judge(2);
        assert_eq!(message(progress.phase, progress.done), "sorting by time");
        progress.tick();
        assert_eq!(message(progress.phase, progress.done), "1 of 2 requests judged");
    }
}
