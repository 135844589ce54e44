//! Counts passed and denied requests in each stretch of time, in bounded memory.
//!
//! All stretches have the same width, which starts at one second. When a log needs more than
//! [`MAX_STRETCHES`] stretches, neighbouring stretches are merged into stretches of the next width.
//!
//! Each width divides the next one, and stretches start at multiples of their width since the Unix
//! epoch. Merging therefore never splits a count, and the result does not depend on the order of
//! the lines.

use std::collections::VecDeque;

use serde::Serialize;
use tollgate::Tick;

pub(crate) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The maximum number of stretches while the log is being read.
const MAX_STRETCHES: u64 = 512;

const DAY: u64 = 86_400;
/// The widths in seconds, which are calendar units. After the last of these, each width is twice
/// the previous one.
const WIDTHS: [u64; 13] = [1, 5, 15, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY, 2 * DAY];

fn wider(width: u64) -> u64 {
    WIDTHS.into_iter().find(|&next| next > width).unwrap_or(width * 2)
}

/// The requests of one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
}

impl Count {
    pub(crate) fn total(self) -> u64 {
        self.passed + self.denied
    }

    #[inline]
    pub(crate) fn add(&mut self, passes: bool) {
        if passes {
            self.passed += 1;
        } else {
            self.denied += 1;
        }
    }
}

/// Counts per stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// The width of a stretch in seconds.
    width: u64,
    /// The start of the first stretch, in multiples of `width` since the Unix epoch.
    first: u64,
    counts: VecDeque<Count>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width: WIDTHS[0], first: 0, counts: VecDeque::new() }
    }
}

impl Timeline {
    /// Returns the width of a stretch in seconds.
    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    /// Counts one request at this Unix time.
    #[inline]
    pub(crate) fn count(&mut self, at: Tick, passes: bool) {
        let second = at.as_nanos() / NANOS_PER_SECOND;
        let at = second / self.width;
        let count = match at.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at < self.counts.len() => &mut self.counts[at],
            _ => self.reach(second),
        };
        count.add(passes);
    }

    /// Extends the timeline to a second outside of its range.
    #[cold]
    fn reach(&mut self, second: u64) -> &mut Count {
        loop {
            let at = second / self.width;
            if self.counts.is_empty() {
                self.first = at;
                self.counts.push_back(Count::default());
            }
            let end = self.first + self.counts.len() as u64;
            let (from, to) = (self.first.min(at), end.max(at + 1));
            if to - from > MAX_STRETCHES {
                self.widen();
                continue;
            }
            for _ in from..self.first {
                self.counts.push_front(Count::default());
            }
            for _ in end..to {
                self.counts.push_back(Count::default());
            }
            self.first = from;
            let behind = usize::try_from(to - 1 - at).unwrap_or(0);
            let place = self.counts.len() - 1 - behind;
            return &mut self.counts[place];
        }
    }

    fn widen(&mut self) {
        let width = wider(self.width);
        let ratio = width / self.width;
        let first = self.first / ratio;
        let mut merged: VecDeque<Count> = VecDeque::new();
        for (at, &count) in (self.first..).zip(&self.counts) {
            if at / ratio - first == merged.len() as u64 {
                merged.push_back(Count::default());
            }
            if let Some(last) = merged.back_mut() {
                last.passed += count.passed;
                last.denied += count.denied;
            }
        }
        *self = Self { width, first, counts: merged };
    }

    /// Returns the timeline, merged to at most `stretches` stretches, or to at most two if
    /// `stretches` is smaller than two. A single stretch is not always possible, because two
    /// seconds may lie on different sides of a boundary at every width.
    pub(crate) fn at_most(&self, stretches: usize) -> Self {
        let mut wide = self.clone();
        while wide.counts.len() > stretches.max(2) {
            wide.widen();
        }
        wide
    }

    /// Iterates over the stretches in order of time. Each item contains the Unix second at which
    /// the stretch starts, and the stretch's counts.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (u64, Count)> + '_ {
        (self.first..).map(|at| at * self.width).zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeline(seconds: &[u64]) -> Timeline {
        let mut timeline = Timeline::default();
        for &second in seconds {
            timeline.count(Tick::from_nanos(second * NANOS_PER_SECOND), second % 3 != 0);
        }
        timeline
    }

    #[test]
    fn each_width_divides_the_next() {
        let mut width = WIDTHS[0];
        for _ in 0..30 {
            assert_eq!(wider(width) % width, 0);
            width = wider(width);
        }
    }

    #[test]
    fn a_short_log_is_counted_by_the_second() {
        let timeline = timeline(&[100, 102, 102, 99]);
        let counts: Vec<_> =
            timeline.stretches().map(|(at, count)| (at, count.passed, count.denied)).collect();
        assert_eq!(counts, [(99, 0, 1), (100, 1, 0), (101, 0, 0), (102, 0, 2)]);
    }

    #[test]
    fn stretches_begin_at_multiples_of_their_width() {
        let timeline = timeline(&[86_399, 86_400, 90_000]);
        assert_eq!(timeline.width(), 15);
        let first = timeline.stretches().next();
        assert_eq!(first.map(|(at, count)| (at, count.total())), Some((86_385, 1)));
        let wide = timeline.at_most(4);
        assert_eq!(wide.width(), 1800);
        let totals: Vec<_> = wide.stretches().map(|(at, count)| (at, count.total())).collect();
        assert_eq!(totals, [(84_600, 1), (86_400, 1), (88_200, 0), (90_000, 1)][..]);
    }

    #[test]
    fn nothing_counted_is_an_empty_timeline() {
        assert_eq!(Timeline::default().at_most(10).stretches().count(), 0);
    }

    proptest! {
        #[test]
        fn no_count_is_lost_and_the_order_of_lines_does_not_matter(
            mut seconds in prop::collection::vec(
                prop_oneof![0..2_305_843_009_u64, 1_000_000..1_001_000_u64],
                1..60,
            ),
            stretches in 1..40_usize,
        ) {
            let arrived = timeline(&seconds);
            seconds.sort_unstable();
            let sorted = timeline(&seconds);
            prop_assert_eq!(&arrived, &sorted);
            prop_assert!(arrived.counts.len() as u64 <= MAX_STRETCHES);
            let drawn = arrived.at_most(stretches);
            prop_assert!(drawn.counts.len() <= stretches.max(2));
            for shown in [arrived, drawn] {
                let width = shown.width();
                for (at, count) in shown.stretches() {
                    let inside = seconds.iter().filter(|&&second| (at..at + width).contains(&second));
                    let denied = inside.clone().filter(|&&second| second % 3 == 0).count() as u64;
                    prop_assert_eq!(count.total(), inside.count() as u64);
                    prop_assert_eq!(count.denied, denied);
                }
            }
        }
    }
}
