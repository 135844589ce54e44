//! Whose time a call is decided by: the limiter's clock's, or the caller's.

use super::look::Look;
use crate::clock::Clock;
use crate::time::Tick;

/// The time for which a limiter decides.
pub(super) trait Time: Copy {
    /// The time of a call.
    fn now(self, clock: &Clock) -> Tick;
    /// The time of a look, which looks of one call share where they read the same counter.
    fn of_look(self, clock: &Clock, look: &Look<'_>) -> Tick;
}

/// The time of the limiter's clock.
#[derive(Clone, Copy)]
pub(super) struct OwnClock;

impl Time for OwnClock {
    #[inline(always)]
    fn now(self, clock: &Clock) -> Tick {
        clock.now()
    }

    #[inline(always)]
    fn of_look(self, clock: &Clock, look: &Look<'_>) -> Tick {
        look.now(clock)
    }
}

impl Time for Tick {
    #[inline(always)]
    fn now(self, _: &Clock) -> Tick {
        self
    }

    #[inline(always)]
    fn of_look(self, _: &Clock, _: &Look<'_>) -> Tick {
        self
    }
}
