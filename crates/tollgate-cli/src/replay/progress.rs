//! Shows the progress of a long replay on standard error, if standard error is a terminal. There
//! are up to two phases: reading the log and, if the replay sorts the log, judging its requests.

use std::io::Read;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressBarIter, ProgressDrawTarget, ProgressStyle};

/// How long a replay runs before it shows its progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of lines processed between two readings of the clock.
const LINES_PER_LOOK: u64 = 1 << 14;

/// The progress of a replay through its inputs.
pub struct Progress {
    /// The bar of this phase. While the log is read, its position is the number of bytes read.
    bar: ProgressBar,
    /// The number of requests to judge, in the second phase.
    requests: Option<u64>,
    /// The number of lines read so far or, in the second phase, of requests judged so far.
    done: u64,
    started: Instant,
}

impl Progress {
    /// `length` is the number of bytes to read, if it is known.
    pub fn new(length: Option<u64>) -> Self {
        let template = match length {
            Some(_) => "{bar:30} {bytes} of {total_bytes}, {msg}",
            None => "{spinner} {bytes}, {msg}",
        };
        Self { bar: hidden(length, template), requests: None, done: 0, started: Instant::now() }
    }

    /// Counts the bytes that are read from an input.
    pub(crate) fn counted<R: Read>(&self, from: R) -> ProgressBarIter<R> {
        self.bar.wrap_read(from)
    }

    /// Starts the phase in which this many requests are sorted and judged.
    pub(crate) fn judge(&mut self, requests: u64) {
        self.bar.finish_and_clear();
        self.bar = hidden(Some(requests), "{bar:30} {msg}");
        (self.requests, self.done) = (Some(requests), 0);
        self.show();
    }

    /// Counts a line or a judged request.
    #[inline]
    pub(crate) fn tick(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(LINES_PER_LOOK) {
            self.show();
        }
    }

    #[cold]
    fn show(&self) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        if self.bar.is_hidden() {
            // Without a terminal, the bar stays hidden.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.requests.is_some() {
            self.bar.set_position(self.done);
        }
        self.bar.set_message(self.message());
    }

    fn message(&self) -> String {
        match (self.requests, self.done) {
            (None, lines) => format!("{lines} lines"),
            (Some(_), 0) => "sorting by time".into(),
            (Some(requests), done) => format!("{done} of {requests} requests judged"),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

fn hidden(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sorted_log_is_not_counted_twice() {
        let mut progress = Progress::new(None);
        (0..3).for_each(|_| progress.tick());
        assert_eq!(progress.message(), "3 lines");
        progress.judge(2);
        assert_eq!(progress.message(), "sorting by time");
        progress.tick();
        assert_eq!(progress.message(), "1 of 2 requests judged");
    }

    #[test]
    fn the_bar_counts_the_bytes_read() {
        let progress = Progress::new(Some(9));
        let mut text = String::new();
        let read = progress.counted(&b"a log"[..]).read_to_string(&mut text);
        assert_eq!((read.ok(), progress.bar.position()), (Some(5), 5));
    }
}
