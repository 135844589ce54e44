//! std's monotonic clock. It replaces `system.rs` on systems other than Linux, and in models.

use crate::time::Tick;
use std::time::{Duration, Instant};

/// The system's monotonic clock, counted from an origin.
#[derive(Clone, Debug)]
pub(super) struct SystemClock(Instant);

impl SystemClock {
    /// Returns the monotonic clock, counted from now.
    pub(super) fn monotonic() -> Self {
        Self(Instant::now())
    }

    /// Always returns `None`, because the system has no coarse clock or its coarse clock was not
    /// tried.
    pub(super) fn coarse(_resolution: Duration) -> Option<Self> {
        None
    }

    pub(super) fn is_coarse(&self) -> bool {
        false
    }

    /// This method is not inlined, because its steps would cost registers in callers that use a
    /// faster clock.
    #[inline(never)]
    pub(super) fn now(&self) -> Tick {
        Tick::from(self.0.elapsed())
    }
}
