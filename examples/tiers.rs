//! Tiers: free callers have 10 requests a minute, paying callers 1,000, and all callers together
//! 5,000 a second.

use tollgate::{Charge, Limiter, Quota, SingleLimiter, check_all};

fn main() -> Result<(), tollgate::ConfigError> {
    let tiers = Limiter::<String>::builder(Quota::per_minute(10))
        .class("paid", Quota::per_minute(1_000))
        .default_class("free")
        .build()?;
    let all = SingleLimiter::builder(Quota::per_second(5_000)).build()?;

    let admit = |plan: &str, caller: &str| {
        // A plan without a class counts as the default class.
        let tier = tiers.class(plan).unwrap_or(tiers.default_class()).for_key(caller);
        check_all(&mut [Charge::new(&tier, 1), Charge::new(&all, 1)]).is_ok()
    };
    let admitted = |plan, caller| (0..1_200).filter(|_| admit(plan, caller)).count();
    println!("alice, who pays: {} of 1,200", admitted("paid", "alice"));
    println!("bob, who does not: {} of 1,200", admitted("free", "bob"));
    Ok(())
}
