//! Tiers: free callers 10 requests a minute, paying ones 1,000, and 5,000 a second in all.

use std::collections::HashMap;
use tollgate::{
    Charge, ClassLimiter, ConfigError, Denied, Limiter, ManualClock, Quota, SingleLimiter, check_all,
};

struct Service {
    tiers: ClassLimiter<str>,
    all: SingleLimiter,
    /// The plans of the customers. A caller that is not in this list has the free plan.
    plans: HashMap<&'static str, Class>,
}

impl Service {
    fn new(clock: &ManualClock) -> Result<Self, ConfigError> {
        let tiers = Limiter::<str>::builder(Quota::per_minute(10))
            .clock(clock)
            .max_keys(100_000)
            .class("paid", Quota::per_minute(1_000))
            .build()?;
        let all = SingleLimiter::builder(Quota::per_second(5_000)).clock(clock).build()?;
        let paid = tiers.class("paid").unwrap_or_default();
        Ok(Self { tiers, all, plans: HashMap::from([("alice", paid)]) })
    }

    /// Charges the caller's tier and the limit of all, or neither.
    fn admit(&self, caller: &str) -> Result<(), Denied> {
        let class = self.plans.get(caller).copied().unwrap_or_default();
        let tier = self.tiers.of(class).for_key(caller);
        check_all(&mut [Charge::new(&tier, 1), Charge::new(&self.all, 1)])
    }
}

/// Sends requests of a caller, and returns how many were admitted.
fn admitted(service: &Service, caller: &str, requests: usize) -> usize {
    (0..requests).filter(|_| service.admit(caller).is_ok()).count()
}

pub(crate) fn main() -> Result<(), ConfigError> {
    let clock = tollgate::ManualClock::new();
    let service = Service::new(&clock)?;
    assert_eq!(admitted(&service, "alice", 1_200), 1_000);
    assert_eq!(admitted(&service, "bob", 20), 10);
    // A crowd of free callers uses up what is left for all in this second.
    let crowd = (0..500).map(|n| admitted(&service, &format!("free {n}"), 10));
    assert_eq!(crowd.sum::<usize>(), 5_000 - 1_000 - 10);
    // A request that the limit of all refuses is not charged to its tier either.
    assert!(service.admit("carol").is_err());
    assert_eq!(service.tiers.of(Class::default()).peek("carol").remaining(), 10);
    println!("{:?}", service.tiers.stats());
    Ok(())
}
