//! The time of a change of quota.

use crate::clock::Clock;
use crate::time::Tick;
use std::sync::Arc;

/// When a quota was changed. A limiter's own clock is read again whenever a state is moved to the
/// new rule; a time passed by the caller is the only time that the change knows.
#[derive(Clone, Debug)]
pub struct Since {
    at: Tick,
    /// The limiter's own clock, or `None` if the caller passed the time.
    clock: Option<Arc<Clock>>,
}

impl Since {
    /// The time of a rule that was never changed.
    pub(crate) const START: Self = Self::at(Tick::ZERO);

    /// A time passed by the caller.
    pub(crate) const fn at(now: Tick) -> Self {
        Self { at: now, clock: None }
    }

    /// The present time of the limiter's clock.
    pub(crate) fn by(clock: &Clock) -> Self {
        Self { at: clock.now(), clock: Some(Arc::new(clock.clone())) }
    }

    /// Returns the time at which the change was requested.
    pub(crate) const fn requested(&self) -> Tick {
        self.at
    }

    /// Returns the time at which a state moves to the new rule. The caller must have frozen the
    /// state: the result is then not earlier than any charge that was timed by the same clock.
    pub(crate) fn binding(&self) -> Tick {
        self.clock.as_ref().map_or(self.at, |clock| self.at.max(clock.now()))
    }

    /// Returns the later of two changes.
    pub(crate) fn later(self, other: Self) -> Self {
        Self { at: self.at.max(other.at), clock: self.clock.or(other.clock) }
    }
}
