//! A pause, in which no request is sent.
//!
//! The duration of a pause is limited, so that a server's mistake cannot stop a client for good.
//! The time that the server stated is kept beside it, for the errors of callers that do not wait.

use std::time::Duration;
use tollgate::Tick;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    began: Tick,
    /// No request is sent before this time.
    until: Tick,
    /// The end of the pause according to the server, which may be later than `until`.
    stated: Tick,
}

impl Pause {
    /// Returns a pause of `time`, but of at most `max_pause`.
    pub(super) fn new(time: Duration, now: Tick, max_pause: Duration) -> Self {
        Self { began: now, until: now + time.min(max_pause), stated: now + time }
    }

    /// Prolongs this pause to the end of `other`.
    pub(super) fn extend(&mut self, other: Self, now: Tick) {
        if self.is_over(now) {
            *self = other;
        } else {
            self.until = self.until.max(other.until);
            self.stated = self.stated.max(other.stated);
        }
    }

    pub(super) fn is_over(&self, now: Tick) -> bool {
        self.until <= now
    }

    /// Returns the time at which the first of the refusals arrived that have set this pause.
    pub(super) fn began(&self) -> Tick {
        self.began
    }

    /// Returns the time before which no request is sent.
    pub(super) fn until(&self) -> Tick {
        self.until
    }

    /// Returns how long the pause still lasts.
    pub(super) fn rest(&self, now: Tick) -> Duration {
        self.until.since(now)
    }

    /// Returns how long the pause still lasts according to the server, or zero if it is over.
    pub(super) fn stated(&self, now: Tick) -> Duration {
        if self.is_over(now) { Duration::ZERO } else { self.stated.since(now) }
    }
}
