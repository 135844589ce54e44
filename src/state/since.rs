//! The time of a change of quota.

use crate::clock::Clock;
use crate::time::Tick;
use std::sync::Arc;

/// The time at which a quota was changed. If the limiter's own clock measured the time, the clock
/// is read again whenever a state is moved to the new rule. If the caller passed the time, every
/// state is moved at that time.
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::time::Duration;

    /// Before the clock is set back, it may have timed charges as late as the request.
    #[test]
    fn a_change_binds_at_the_present_time_and_not_before_its_request() {
        let clock = ManualClock::new();
        let at = |seconds| Tick::ZERO + Duration::from_secs(seconds);
        let set = |seconds| clock.set(at(seconds));
        set(5);
        let since = Since::by(&Clock::from(&clock));
        for (now, binding) in [(5, 5), (7, 7), (3, 5)] {
            set(now);
            assert_eq!((since.binding(), since.requested()), (at(binding), at(5)));
        }
        for later in [since.clone().later(Since::at(at(6))), Since::at(at(6)).later(since)] {
            set(8);
            assert_eq!((later.binding(), later.requested()), (at(8), at(6)));
            set(3);
            assert_eq!(later.binding(), at(6));
        }
    }
}
