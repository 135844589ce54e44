//! In place of `system.rs` where the system is not Linux, and in models: std's monotonic clock.

use crate::time::Tick;
use std::time::{Duration, Instant};

/// The system's monotonic clock, counted from an origin.
#[derive(Clone, Debug)]
pub(super) struct System(Instant);

impl System {
    /// The monotonic clock, from now on.
    pub(super) fn monotonic() -> Self {
        Self(Instant::now())
    }

    /// `None`: other systems have no coarse clock, or it was not tried.
    pub(super) fn coarse(_resolution: Duration) -> Option<Self> {
        None
    }

    pub(super) fn is_coarse(&self) -> bool {
        false
    }

    /// Not inlined: it is a call and several steps more, and would take registers from callers that
    /// have a faster clock.
    #[inline(never)]
    pub(super) fn now(&self) -> Tick {
        Tick::from(self.0.elapsed())
    }
}
