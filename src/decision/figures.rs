//! The source of a decision's figures.

use crate::grain::Grain;
use std::hash::{Hash, Hasher};

/// The number of resets that the limiter had counted when it made a decision. It is not part of the
/// answer: two decisions that differ only in their stamps are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp(pub(crate) u32);

impl Stamp {
    /// The stamp of a decision that no limiter of this crate made.
    pub(crate) const NONE: Self = Self(0);
}

impl PartialEq for Stamp {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Stamp {}

impl Hash for Stamp {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

/// The source of a decision's figures. Most callers only check whether a request is allowed, so the
/// figures of a bucket, which take divisions, are computed on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Figures {
    /// The figures themselves.
    Known {
        remaining: u64,
        /// Nanoseconds until a retry passes, or until an admitted request may start; [`NEVER`] if
        /// no retry passes.
        wait: u64,
        /// Nanoseconds until the state is idle; [`NEVER`] if that is after the last tick.
        reset: u64,
    },
    /// A charge by a window or a log, which counts for `period` nanoseconds and no longer. The
    /// window or log identifies the charge by these numbers, even after a change of quota.
    Held {
        remaining: u64,
        /// When the charge stops counting, in nanoseconds; not before `at`.
        until: u64,
        /// How long the charge counts, in nanoseconds: the period of a log, or the length of all
        /// windows in which the charge has weight.
        period: u64,
    },
    /// A bucket that holds `limit` tokens.
    Bucket {
        /// When the bucket will be full after this decision, in grains; not before the grain of
        /// `at`.
        full: u64,
        grain: Grain,
        /// Whether allowed requests start in turn.
        queue: bool,
    },
    /// As `Held`, for a key that was forgotten or never seen, and is charged later than the time of
    /// its request. The key was fresh, so `remaining` follows from the limit.
    LateHeld {
        /// The time from the request to the charge, in nanoseconds.
        late: u64,
        until: u64,
        period: u64,
    },
    /// As `Bucket`, for a key that was forgotten or never seen, and is charged `late` nanoseconds
    /// after the time of its request. Its bucket was full.
    LateBucket { late: u64, grain: Grain, queue: bool },
    /// Permits of a key, which are returned when their holders end.
    Permits {
        /// The number of permits that are held after this decision.
        out: u64,
        /// The generation of the word, to which the permits of this charge are returned.
        generation: u64,
    },
    /// The figures of a [`DecisionParts`].
    Told {
        remaining: u64,
        /// Nanoseconds until a retry passes, or until an admitted request may start; [`NEVER`] if
        /// no retry passes.
        wait: u64,
        reset: u64,
        /// Milliseconds until more remains, rounded up; `u32::MAX` stands for that many or more. (A
        /// larger type would make `Figures` larger than the figures of a bucket require.)
        refill: u32,
    },
}

impl Figures {
    /// The time until which a window or a log counts this charge, and how long it counts, in
    /// nanoseconds. `None` for other rules.
    pub(crate) const fn held(self) -> Option<(u64, u64)> {
        match self {
            Self::Held { until, period, .. } | Self::LateHeld { until, period, .. } => Some((until, period)),
            _ => None,
        }
    }

    /// The permits of the key that are held after this decision; `None` for rates.
    pub(crate) const fn permits_out(self) -> Option<u64> {
        match self {
            Self::Permits { out, .. } => Some(out),
            _ => None,
        }
    }
}
