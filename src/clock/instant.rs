//! std's monotonic clock, which replaces `system.rs` on systems other than Linux, and in models.

use crate::time::Tick;
use std::time::{Duration, Instant};

/// The monotonic clock of the system, counted from an origin.
#[derive(Clone, Debug)]
pub(super) struct System(Instant);

impl System {
    /// The monotonic clock, counted from now.
    pub(super) fn monotonic() -> Self {
        Self(Instant::now())
    }

    /// Always `None`: other systems have no coarse clock, or it was not tried.
    pub(super) fn coarse(_resolution: Duration) -> Option<Self> {
        None
    }

    pub(super) fn is_coarse(&self) -> bool {
        false
    }

    /// This method is not inlined: it makes a call and takes several more steps, and would cost
    /// registers in callers that use a faster clock.
    #[inline(never)]
    pub(super) fn now(&self) -> Tick {
        Tick::from(self.0.elapsed())
    }
}
