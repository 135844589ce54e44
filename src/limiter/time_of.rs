//! The time of a call, which is read from the limiter's clock or passed by the caller.

use crate::clock::Clock;
use crate::limiter::together::look::Look;
use crate::time::Tick;

/// The source of the time at which a limiter decides.
pub(crate) trait Time: Copy {
    /// Returns the time of a call.
    fn now(self, clock: &Clock) -> Tick;
    /// Returns the time of a look. The looks of one call share a reading if their clocks read the
    /// same counter.
    fn of_look(self, clock: &Clock, look: &Look<'_>) -> Tick;
}

/// Reads the time from the limiter's own clock.
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

/// A view of a limiter that decides at a time passed by the caller.
///
/// Created by [`Limiter::at`](crate::Limiter::at) and
/// [`SingleLimiter::at`](crate::SingleLimiter::at).
///
/// A view has the methods of its limiter that depend on the time, but does not read a clock. Use a
/// view in an event loop that reads the time once per turn, or in a replay or a simulation with its
/// own time.
///
/// # What a view lacks
///
/// | method of the limiter | what to use with a view |
/// |---|---|
/// | `reserve`, `reserve_owned` | `check_n`, and later `refund_n` or `force` of another view: a reservation is settled at a later time |
/// | `for_key_owned` | `for_key` |
/// | `set_key_quota` | `set_key_quotas` with one key |
/// | `most_denied` | `keys`, sorted by [`KeyState::denied`](crate::KeyState::denied) |
/// | `is_idle` | `peek`: the limiter is idle if [`reset_after`](crate::Decision::reset_after) is zero |
///
/// Methods that do not depend on the time, such as `reset`, are called on the limiter itself.
///
/// # Which times
///
/// Times may count from any origin, but the time of a refund must have the same origin as the time
/// of its charge. Do not use views together with the limiter's own clock, unless the times of the
/// views are read from that clock ([`Limiter::clock`](crate::Limiter::clock)).
///
/// If the time of a request is earlier than the time of the key's last request, the request may be
/// denied even though it would be allowed at a later time. An earlier time never admits more, even
/// if the key was forgotten in between (see [Time](crate::Limiter#time)).
///
/// If the algorithm has windows, choose
/// [`WindowAlign::ClockStart`](crate::WindowAlign::ClockStart), which counts windows from tick 0.
/// The default alignment fits only the limiter's own clock.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// /// One turn of an event loop. Returns how many of the received packets are let through.
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
