//! The guard of permits in flight. Dropping the guard returns its permits.
//!
//! # State
//!
//! The state is one number, which is 0 if the guard is empty. Otherwise, its bits are:
//!
//! | bits | meaning |
//! |---|---|
//! | 21 to 63 | the generation to which the permits are returned (see `rule/permits.rs`) |
//! | 1 to 20 | the number of permits |
//! | 0 | whether the permits are returned to the shared state of keys without a slot |
//!
//! # Invariants
//!
//! 1. The number represents the part of the limit's charge that has not been refunded. A call that
//!    subtracts permits from the number returns these permits to the limit. Each permit is
//!    therefore returned once.
//! 2. A guard holds at most one charge. While it holds a charge, it refuses any other.
//!
//! # Orderings
//!
//! All orderings are relaxed, because the number publishes no other data. The modification order of
//! this single atomic is sufficient.

use crate::decision::{Decision, DecisionSource, Figures, Outcome};
use crate::limiter::together::chargeable::Chargeable;
use crate::sync::{Atomic, Ordering::Relaxed};
use crate::time::Tick;
use std::fmt;

/// A request's right to be in flight. Dropping the permit releases this right.
///
/// There are three ways to obtain a permit. [`InFlight::acquire`](crate::InFlight::acquire) borrows
/// the limit. [`acquire_owned`](crate::InFlight::acquire_owned) is for a task or a response body
/// that outlives the caller. [`empty_permit`](crate::InFlight::empty_permit) is for
/// [`check_all`](crate::check_all), which charges the permit together with other limits.
///
/// If a permit is never dropped (because of [`std::mem::forget`] or a hung task), it remains
/// outstanding until its key is [reset](crate::InFlight::reset). Nothing else keeps track of the
/// permit.
#[must_use = "a permit that is dropped at once comes back at once"]
pub struct Permit<C: Chargeable = Box<dyn Chargeable + Send + Sync>> {
    limit: C,
    held: Atomic<u64>,
}

/// The contents of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    permits: u64,
    generation: u64,
    is_shared: bool,
}

impl Held {
    /// Returns the permits that a charge has acquired, or `None` if the charge acquired none.
    fn of(charge: &Decision) -> Option<Self> {
        let (Figures::Permits { generation, .. }, permits @ 1..) = (charge.figures, charge.charged()) else {
            return None;
        };
        Some(Self { permits, generation, is_shared: charge.source == DecisionSource::Overflow })
    }

    fn unpack(held: u64) -> Option<Self> {
        let is_shared = held & 1 != 0;
        (held != 0).then_some(Self { permits: held >> 1 & 0xf_ffff, generation: held >> 21, is_shared })
    }

    fn pack(this: Option<Self>) -> u64 {
        this.map_or(0, |it| it.generation << 21 | it.permits << 1 | u64::from(it.is_shared))
    }

    /// Converts the contents to a charge, for a refund.
    fn charge(self) -> Decision {
        let Self { permits: cost, generation, is_shared } = self;
        let figures = Figures::Permits { out: cost, generation };
        let source = if is_shared { DecisionSource::Overflow } else { DecisionSource::Key };
        Decision { source, ..Decision::of_key(Outcome::Allowed, cost, cost, Tick::ZERO, figures) }
    }
}

impl<C: Chargeable> Permit<C> {
    /// Returns an empty permit.
    pub(crate) fn of(limit: C) -> Self {
        Self { limit, held: Atomic::new(0) }
    }

    fn held(&self) -> Option<Held> {
        // ORDERING: relaxed, because the number publishes no other data.
        Held::unpack(self.held.load(Relaxed))
    }

    /// Returns how many requests the permit counts as. The number is 0 before the permit is
    /// acquired, or if [`WhenFull::Allow`](crate::WhenFull::Allow) has admitted the request.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(3).build()?;
    /// let permit = downloads.acquire_n("alice", 2).unwrap();
    /// assert_eq!(permit.count(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn count(&self) -> u64 {
        self.held().map_or(0, |held| held.permits)
    }

    /// Releases the permits. This is the same as dropping the permit.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(3).build()?;
    /// downloads.acquire("alice").unwrap().release();
    /// assert_eq!(downloads.in_flight("alice"), 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn release(self) {}

    /// Returns a denial of the second charge if the guard already holds a charge.
    fn refusal(&self, cost: u64) -> Option<Decision> {
        self.held().filter(|_| cost > 0)?;
        let answer = self.limit.peek_n(cost);
        let outcome = if answer.outcome == Outcome::TooCostly { answer.outcome } else { Outcome::Denied };
        Some(Decision { cost, outcome, ..answer })
    }

    /// Releases at most `permits` of the permits that the guard holds.
    fn give_back(&self, permits: u64) {
        let rest = |held: u64| {
            let held = Held::unpack(held)?;
            let rest = held.permits.saturating_sub(permits);
            Some(Held::pack((rest > 0).then_some(Held { permits: rest, ..held })))
        };
        // ORDERING: both are relaxed, because the number publishes no other data.
        if let Some(held) = self.held.fetch_update(Relaxed, Relaxed, rest).ok().and_then(Held::unpack) {
            self.limit.refund_n(&held.charge(), permits);
        }
    }
}

/// Allows [`check_all`](crate::check_all) and [`reserve_all`](crate::reserve_all) to charge a
/// permit. A check stores its charge in the permit. A permit that holds a charge refuses a second
/// charge.
impl<C: Chargeable> Chargeable for Permit<C> {
    fn check_n(&self, cost: u64) -> Decision {
        if let Some(refusal) = self.refusal(cost) {
            return refusal;
        }
        let answer = self.limit.check_n(cost);
        let taken = Held::of(&answer);
        // ORDERING: both are relaxed, because the number publishes no other data.
        if taken.is_some() && self.held.compare_exchange(0, Held::pack(taken), Relaxed, Relaxed).is_err() {
            // Another thread has charged this permit in the meantime.
            self.limit.refund(&answer);
            return Decision { outcome: Outcome::Denied, ..answer };
        }
        answer
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.refusal(cost).unwrap_or_else(|| self.limit.peek_n(cost))
    }

    /// Releases at most `tokens` permits, and never more than the check charged or the permit still
    /// holds. Has no effect if the check charged nothing, for example because its cost was zero.
    fn refund_n(&self, decision: &Decision, tokens: u64) {
        self.give_back(tokens.min(decision.charged()));
    }
}

impl<C: Chargeable> Drop for Permit<C> {
    #[inline]
    fn drop(&mut self) {
        self.give_back(u64::MAX);
    }
}

impl<C: Chargeable> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_number_and_overlap_nowhere() {
        let most = Held { permits: 1_000_000, generation: (1 << 43) - 1, is_shared: true };
        let least = Held { permits: 1, generation: 1, is_shared: false };
        for held in [most, least, Held { generation: 1, ..most }, Held { generation: 1 << 42, ..least }] {
            assert_eq!(Held::unpack(Held::pack(Some(held))), Some(held));
            assert_eq!(Held::of(&held.charge()), Some(held));
        }
        assert_eq!(Held::unpack(Held::pack(None)), None);
    }
}
