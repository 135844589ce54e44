//! Whose time a call is decided by: the limiter's clock's, or the caller's.

use crate::clock::Clock;
use crate::limiter::together::look::Look;
use crate::time::Tick;

/// The time for which a limiter decides.
pub(crate) trait Time: Copy {
    /// The time of a call.
    fn now(self, clock: &Clock) -> Tick;
    /// The time of a look, which looks of one call share where they read the same counter.
    fn of_look(self, clock: &Clock, look: &Look<'_>) -> Tick;
}

/// The time of the limiter's clock.
#[derive(Clone, Copy)]
pub(crate) struct OwnClock;

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

/// A view of a limiter that decides at a time which the caller gives, made by
/// [`Limiter::at`](crate::Limiter::at) and [`SingleLimiter::at`](crate::SingleLimiter::at).
///
/// Its methods are those of the limiter, but read no clock. (A reservation is settled later than it
/// is made, so a view has none.) An event loop that reads the time once a turn keeps a view for the
/// turn. A replay or a simulation has a time of its own.
///
/// # Which times
///
/// Times count from any origin that the caller chooses. Don't mix them with the limiter's own clock
/// unless they are read from that clock ([`Limiter::clock`](crate::Limiter::clock)).
///
/// A time before the key's last one can be denied where a later one would be allowed. It never
/// admits more, even if the key was forgotten since (see [Time](crate::Limiter#time)). For
/// algorithms with windows choose [`WindowAlign::ClockStart`](crate::WindowAlign::ClockStart),
/// which counts windows from tick 0; the default alignment fits only the limiter's own clock. A
/// refund has a time of the same origin as its charge.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// /// One turn of an event loop: how many of the packets that have come are let through.
/// fn turn(limiter: &Limiter<u64>, packets: &[u64]) -> usize {
///     let now = limiter.at(limiter.clock().now());
///     packets.iter().filter(|&host| now.check(host).is_allowed()).count()
/// }
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(2)).build()?;
/// assert_eq!(turn(&limiter, &[7, 8, 7, 7]), 3);
/// assert_eq!(turn(&limiter, &[7, 8]), 1);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
#[must_use = "a view does nothing by itself"]
pub struct At<'l, L> {
    pub(crate) limiter: &'l L,
    pub(crate) now: Tick,
}

impl<L> Clone for At<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for At<'_, L> {}
