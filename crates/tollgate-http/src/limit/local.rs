//! Process-local limiters, which answer immediately.

use super::permits::LocalPermit;
use crate::key::parts::{Key, KeyRef};
use std::time::Duration;
use tollgate::store::{Accepts, ToKey};
use tollgate::{Chargeable, Decision, InFlight, Limiter, Look, Quota, SingleLimiter, Stats};

/// A process-local limiter. A limiter without keys ignores the key of a request.
pub(crate) trait Local: Send + Sync {
    /// Returns whether the limiter has a state for each key.
    fn is_keyed(&self) -> bool {
        true
    }
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    /// Looks at a key before it is charged, like [`Chargeable::look`].
    fn look<'m>(&'m self, _key: &KeyRef<'_>, _cost: u64, _look: &mut Look<'m>) {}
    /// Counts a denial that a peek has returned, like [`Chargeable::note_denial`].
    fn note_denial(&self, _key: &KeyRef<'_>, _denied: &Decision) {}
    fn refund_n(&self, key: &KeyRef<'_>, decision: &Decision, tokens: u64);
    fn force(&self, key: &KeyRef<'_>, tokens: u64) -> u64;
    /// Returns the quota of keys that do not have their own quota. The quota of a limit on requests
    /// in flight has a period of 0.
    fn quota(&self) -> Quota;
    /// Returns the figures of a limiter with keys.
    fn stats(&self) -> Option<Stats>;
    /// Returns the key's own quota, if it has one.
    fn quota_of(&self, _key: &KeyRef<'_>) -> Option<Quota> {
        None
    }
    /// For a limit on requests in flight, returns a permit, which is charged and refunded in place
    /// of the limiter.
    fn permit(&self, _key: &KeyRef<'_>) -> Option<LocalPermit> {
        None
    }
}

impl<S> Local for Limiter<Key, S>
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        Limiter::check_n(self, key, cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        Limiter::peek_n(self, key, cost)
    }

    fn look<'m>(&'m self, key: &KeyRef<'_>, cost: u64, look: &mut Look<'m>) {
        Limiter::look(self, key, cost, look);
    }

    fn note_denial(&self, key: &KeyRef<'_>, denied: &Decision) {
        Limiter::note_denial(self, key, denied);
    }

    fn refund_n(&self, key: &KeyRef<'_>, decision: &Decision, tokens: u64) {
        Limiter::refund_n(self, key, decision, tokens);
    }

    fn force(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        Limiter::force(self, key, tokens)
    }

    fn quota(&self) -> Quota {
        Limiter::quota(self)
    }

    fn stats(&self) -> Option<Stats> {
        Some(Limiter::stats(self))
    }

    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        self.key_quota(key)
    }
}

impl Local for SingleLimiter {
    fn is_keyed(&self) -> bool {
        false
    }

    fn check_n(&self, _key: &KeyRef<'_>, cost: u64) -> Decision {
        // A later settlement may refund the charge, so the charge must not spend a lease.
        Chargeable::check_n(self, cost)
    }

    fn peek_n(&self, _key: &KeyRef<'_>, cost: u64) -> Decision {
        SingleLimiter::peek_n(self, cost)
    }

    fn look<'m>(&'m self, _key: &KeyRef<'_>, cost: u64, look: &mut Look<'m>) {
        Chargeable::look(self, cost, look);
    }

    fn refund_n(&self, _key: &KeyRef<'_>, decision: &Decision, tokens: u64) {
        SingleLimiter::refund_n(self, decision, tokens);
    }

    fn force(&self, _key: &KeyRef<'_>, tokens: u64) -> u64 {
        SingleLimiter::force(self, tokens)
    }

    fn quota(&self) -> Quota {
        SingleLimiter::quota(self)
    }

    fn stats(&self) -> Option<Stats> {
        None
    }
}

/// Charges belong to permits. The methods of this implementation have no permit to charge, so they
/// give back each charge before they return.
impl<S> Local for InFlight<Key, S>
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.empty_permit(key).check_n(cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.empty_permit(key).peek_n(cost)
    }

    fn refund_n(&self, _key: &KeyRef<'_>, _decision: &Decision, _tokens: u64) {}

    fn force(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        self.empty_permit(key).force(tokens)
    }

    fn quota(&self) -> Quota {
        Quota::new(self.limit(), Duration::ZERO)
    }

    fn stats(&self) -> Option<Stats> {
        Some(InFlight::stats(self))
    }

    fn permit(&self, key: &KeyRef<'_>) -> Option<LocalPermit> {
        Some(Box::new(self.empty_permit_owned(key.to_key())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// Returns a limiter that grants leases, because two threads have checked it at the same
    /// moment. Nearly nothing refills during a test.
    fn leasing() -> SingleLimiter {
        let quota = Quota::new(1_000_000_000, Duration::from_hours(24 * 30));
        let limiter = SingleLimiter::builder(quota).core_leases().build().unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let checks = (0..10_000_000).take_while(|_| limiter.leased() == 0);
                    checks.for_each(|_| _ = limiter.check());
                });
            }
        });
        let has_cores = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        assert!(limiter.leased() > 0 || !has_cores, "no two threads have checked it at the same moment");
        limiter
    }

    /// The refunds follow after other charges of the same thread, which would have replaced every
    /// lease.
    #[test]
    fn late_refunds_of_a_limiter_with_leases_return_their_tokens() {
        let (limiter, name) = (leasing(), Arc::from("all"));
        let key = &KeyRef::new(&name);
        // The bucket lacks more than the reserve, which the refund of a full bucket omits.
        assert!(Chargeable::check_n(&limiter, 100_000_000).is_allowed());
        let before = limiter.peek().remaining();
        let charges = [(); 100].map(|()| Local::check_n(&limiter, key, 100));
        charges.iter().for_each(|charge| Local::refund_n(&limiter, key, charge, 99));
        let after = limiter.peek().remaining();
        assert!(after + 100 >= before, "{before} tokens remained before, and {after} remain");
    }
}
