//! std's monotonic clock. It replaces `system.rs` on systems other than Linux, and in models.

use crate::time::Tick;
use std::time::{Duration, Instant};

/// The system's monotonic clock, counted from an origin.
#[derive(Clone, Debug)]
pub(super) struct SystemClock {
    start: Instant,
    /// The tick at `start`.
    tick: Tick,
}

impl SystemClock {
    /// Returns the monotonic clock, counted from now.
    pub(super) fn monotonic() -> Self {
        Self { start: Instant::now(), tick: Tick::ZERO }
    }

    /// Always returns `None`, because the system has no coarse clock or its coarse clock was not
    /// tried.
    pub(super) fn coarse(_resolution: Duration) -> Option<Self> {
        None
    }

    /// Moves the origin, so that the clock now reads `tick`.
    pub(super) fn resume_at(&mut self, tick: Tick) {
        *self = Self { start: Instant::now(), tick };
    }

    pub(super) fn is_coarse(&self) -> bool {
        false
    }

    /// This method is not inlined, because its steps would cost registers in callers that use a
    /// faster clock.
    #[inline(never)]
    pub(super) fn now(&self) -> Tick {
        self.tick + self.start.elapsed()
    }
}
