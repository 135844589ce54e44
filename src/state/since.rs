//! The time of a change of quota.

use crate::clock::Clock;
use crate::time::Tick;

/// When a quota was changed. A limiter's own clock is read again whenever a state is moved to the
/// new rule; a time passed by the caller is the only time that the change knows.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    at: Tick,
    is_by_clock: bool,
}

impl Since {
    /// The time of a rule that was never changed.
    pub(crate) const START: Self = Self::at(Tick::ZERO);

    /// A time passed by the caller.
    pub(crate) const fn at(now: Tick) -> Self {
        Self { at: now, is_by_clock: false }
    }

    /// The present time of the limiter's clock.
    pub(crate) fn by(clock: &Clock) -> Self {
        Self { at: clock.now(), is_by_clock: true }
    }

    /// Returns the time at which the change was requested.
    pub(crate) const fn requested(self) -> Tick {
        self.at
    }

    /// Returns the time at which a state moves to the new rule. The caller must have frozen the
    /// state: the result is then not earlier than any charge that was timed by the same clock.
    pub(crate) fn binding(self, clock: &Clock) -> Tick {
        if self.is_by_clock { self.at.max(clock.now()) } else { self.at }
    }

    /// Returns the later of two changes.
    pub(crate) fn later(self, other: Self) -> Self {
        Self { at: self.at.max(other.at), is_by_clock: self.is_by_clock || other.is_by_clock }
    }
}
