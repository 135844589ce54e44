//! The data from which the figures of a decision are computed.

use crate::grain::Grain;
use std::hash::{Hash, Hasher};

/// Identifies the period of time in which the charge of a decision may be refunded: the sum of the
/// limiter's number of resets and the stamp of the rule that made the charge (see
/// `limiter/resets.rs`). The stamp is not part of the answer: two decisions are equal if they
/// differ only in their stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp(u32);

impl Stamp {
    /// The stamp of a decision made outside the limiters of this crate, and of a limiter's first
    /// rule.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the stamp for this number of resets.
    #[inline(always)]
    pub(crate) const fn of_resets(number: u64) -> Self {
        // A decision has room for 32 bits.
        #[allow(clippy::cast_possible_truncation)]
        Self(number as u32)
    }

    /// Returns the stamp of the rule that the change with this number has put in force.
    ///
    /// The factor is 2^32 divided by the golden ratio, whose multiples are evenly spread. After `n`
    /// further changes and `k` further resets, the sum is an earlier sum again only if `n * k` is
    /// at least 333 million (found by trying all), or if either number is a multiple of 2^31.
    #[inline]
    pub(crate) const fn of_change(number: u64) -> Self {
        Self(Self::of_resets(number).0.wrapping_mul(0x9E37_79B9))
    }

    #[inline(always)]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns true if both stamps have the same number. (`==` holds for all stamps.)
    #[inline(always)]
    pub(crate) const fn is(self, other: Self) -> bool {
        self.0 == other.0
    }
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

/// The data from which a decision's figures are computed. Most callers only check whether a request
/// is allowed. The figures of a bucket require divisions, so they are computed on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Figures {
    /// The figures were already computed.
    Known {
        remaining: u64,
        /// Nanoseconds until a retry succeeds, or until an admitted request may start; [`NEVER`] if
        /// no retry can succeed.
        wait: u64,
        /// Nanoseconds until the state is idle; [`NEVER`] if that is after the last tick.
        reset: u64,
    },
    /// A charge to a window or a log, counted for exactly `period` nanoseconds. The window or log
    /// identifies the charge by these numbers, even after a change of quota.
    Held {
        remaining: u64,
        /// The time at which the charge stops counting, in nanoseconds; never earlier than `at`.
        until: u64,
        /// How long the charge counts, in nanoseconds. This is the period of a log, or the total
        /// length of the windows in which the charge has weight.
        period: u64,
    },
    /// A bucket with a capacity of `limit` tokens.
    Bucket {
        /// The grain at which the bucket will be full after this decision; never earlier than the
        /// grain of `at`.
        full: u64,
        grain: Grain,
        /// True if allowed requests start in turn.
        queue: bool,
    },
    /// Like `Held`, but for a fresh key (forgotten or never seen) that is charged later than the
    /// time of its request. Because the key was fresh, `remaining` can be computed from the limit.
    LateHeld {
        /// The time from the request to the charge, in nanoseconds.
        late: u64,
        until: u64,
        period: u64,
    },
    /// Like `Bucket`, but for a fresh key (forgotten or never seen) that is charged `late`
    /// nanoseconds after the time of its request. The key's bucket was full.
    LateBucket { late: u64, grain: Grain, queue: bool },
    /// Tokens that were spent from a lease of the thread's core.
    Leased {
        /// The tokens that are left of the lease.
        remaining: u64,
        /// Nanoseconds from the time of the lease until the bucket is full; `u64::MAX` if that
        /// is after the last tick.
        reset: u64,
        lease: LeaseId,
    },
    /// Permits of a key, which are returned when their owners finish.
    Permits {
        /// The number of permits in use after this decision.
        out: u64,
        /// The generation of the word. The permits of this charge are returned to this generation.
        generation: u64,
    },
    /// The figures of a [`DecisionParts`].
    Told {
        remaining: u64,
        /// Nanoseconds until a retry succeeds, or until an admitted request may start; [`NEVER`] if
        /// no retry can succeed.
        wait: u64,
        reset: u64,
        /// Milliseconds until more tokens are available, rounded up. `u32::MAX` means that number
        /// or more. (A larger type would make `Figures` larger than a bucket's figures require.)
        refill: u32,
    },
}

/// Identifies the lease of a charge: the number of its line, and the generation of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId(pub(crate) u64);

impl Figures {
    /// Returns the time at which a window or a log stops counting this charge, and how long the
    /// charge counts. Both are in nanoseconds. Returns `None` for other rules.
    pub(crate) const fn held(self) -> Option<(u64, u64)> {
        match self {
            Self::Held { until, period, .. } | Self::LateHeld { until, period, .. } => Some((until, period)),
            _ => None,
        }
    }

    /// Returns how many permits of the key are in use after this decision, or `None` for rates.
    pub(crate) const fn permits_out(self) -> Option<u64> {
        match self {
            Self::Permits { out, .. } => Some(out),
            _ => None,
        }
    }
}
