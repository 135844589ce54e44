//! Other limiters, each set up as its own documentation advises.
//!
//! Not included are `ratelimit_meter` (the predecessor of governor), `tower_governor` and
//! `actix-governor` (wrappers of governor), `limitador` (it evaluates an expression for every
//! check, which would dominate the measurement), and limiters that are part of a web framework.

use super::{Built, ONE_RESOURCE, Quota, Rows, Setting, Upkeep, each, kept};
use crate::keys::Key;
use governor::clock::QuantaUpkeepClock;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, RateLimiter};
use std::num::NonZeroU32;
use std::sync::{LazyLock, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

const TEXT_ONLY: &str = "takes text as keys only";

pub fn all<K: Key>() -> Rows<K> {
    vec![
        (super::BASE, |setting| {
            let limiter = DefaultKeyedRateLimiter::<K>::keyed(governor_quota(setting));
            let check = |limiter: &DefaultKeyedRateLimiter<K>, key: &K| limiter.check_key(key).is_ok();
            let sweep = |limiter: &DefaultKeyedRateLimiter<K>| limiter.retain_recent();
            kept(limiter, check, Upkeep { sweep: Some(sweep), needs_sweeps: true, ..Upkeep::NONE })
        }),
        ("governor, foldhash", |setting| {
            let hasher = foldhash::fast::RandomState::default();
            let limiter = RateLimiter::<K, _, _>::dashmap_with_hasher(governor_quota(setting), hasher);
            each(move |key: &K| limiter.check_key(key).is_ok())
        }),
        ("governor, coarse clock", |setting| {
            // The process may have only one upkeep thread.
            static CLOCK: LazyLock<Result<QuantaUpkeepClock, ()>> =
                LazyLock::new(|| QuantaUpkeepClock::from_interval(Duration::from_millis(1)).map_err(drop));
            let clock = CLOCK.clone().map_err(|()| "its clock's thread did not start")?;
            let limiter = RateLimiter::<K, _, _>::dashmap_with_clock(governor_quota(setting), clock);
            each(move |key: &K| limiter.check_key(key).is_ok())
        }),
        ("governor, one resource", |setting| {
            one_resource(setting)?;
            let limiter = DefaultDirectRateLimiter::direct(governor_quota(setting));
            each(move |_| limiter.check().is_ok())
        }),
        ("rate-net", |setting| {
            type Limiter = rate_net::RateLimiter<clock_lib::SystemClock>;
            let check = |limiter: &Limiter, key: &K| limiter.check(key.rate_net()).is_allow();
            // This limiter bounds its own memory, so sweeping is optional.
            let sweep = |limiter: &Limiter| _ = limiter.retain_recent();
            let upkeep = Upkeep { sweep: Some(sweep), clear: Some(Limiter::clear), ..Upkeep::NONE };
            kept(rate_net(setting).build(), check, upkeep)
        }),
        ("rate-net, coarse clock", |setting| {
            static CLOCK: LazyLock<Option<rate_net::CoarseClock>> =
                LazyLock::new(|| rate_net::CoarseClock::spawn(Duration::from_millis(1)).ok());
            let clock = CLOCK.clone().ok_or("its clock's thread did not start")?;
            let limiter = rate_net(setting).clock(clock).build();
            each(move |key: &K| limiter.check(key.rate_net()).is_allow())
        }),
        ("rate-net, one resource", |setting| {
            one_resource(setting)?;
            let limiter = rate_net(setting).build_direct();
            each(move |_| limiter.check().is_allow())
        }),
        ("gcra", |setting| {
            let quota = setting.quota;
            let whole = Duration::from_nanos(quota.interval() * u64::from(quota.burst()));
            let limit = gcra::RateLimit::new(quota.burst(), whole);
            let limiter = gcra::RateLimiter::<K>::new(setting.keys);
            // Its check is an async function that never waits.
            each(move |key: &K| {
                let check = std::pin::pin!(limiter.check(key.clone(), &limit, 1));
                matches!(check.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_)))
            })
        }),
        ("pingora-limits (estimate)", |setting| {
            // This limiter counts in windows of a second, in a table that all keys share. Its
            // counts are estimates.
            let rate = pingora_limits::rate::Rate::new(Duration::from_secs(1));
            let most = setting.quota.burst() as isize;
            each(move |key: &K| rate.observe(key, 1) <= most)
        }),
        ("throttlecrab", |setting| {
            text_only::<K>()?;
            // This limiter is not made for threads, and its documentation advises wrapping it.
            let store = throttlecrab::AdaptiveStore::with_capacity(setting.keys);
            let limiter = Mutex::new(throttlecrab::RateLimiter::new(store));
            let (count, period) = match setting.quota {
                Quota::Ample => (10, 1),
                Quota::Lasting => (1, 60),
                Quota::UsedUp => (2, 3600),
            };
            let burst = setting.quota.burst().into();
            each(move |key: &K| {
                let (key, now) = (key.text().unwrap_or_default(), SystemTime::now());
                let answer = limiter.lock().unwrap().rate_limit(key, burst, count, period, 1, now);
                answer.is_ok_and(|(admitted, _)| admitted)
            })
        }),
        ("tokio-rate-limit", |setting| {
            text_only::<K>()?;
            let builder = tokio_rate_limit::RateLimiter::builder();
            let rate = if setting.quota == Quota::Ample { 10 } else { 1 };
            let builder = builder.requests_per_second(rate).burst(setting.quota.burst().into());
            let limiter = builder.build().map_err(|_| "refuses the quota")?;
            each(move |key: &K| limiter.check(key.text().unwrap_or_default()).permitted)
        }),
        ("trypema", trypema),
        ("ratelimit", |setting| {
            one_resource(setting)?;
            let burst = setting.quota.burst().into();
            let builder = ratelimit::Ratelimiter::builder(1).max_tokens(burst).initial_available(burst);
            let builder = builder.period(Duration::from_nanos(setting.quota.interval()));
            let limiter = builder.build().map_err(|_| "refuses the quota")?;
            each(move |_| limiter.try_wait().is_ok())
        }),
        ("leaky-bucket", |setting| {
            one_resource(setting)?;
            let burst = setting.quota.burst() as usize;
            let mut builder = leaky_bucket::RateLimiter::builder();
            builder.max(burst).initial(burst).refill(1);
            let limiter = builder.interval(Duration::from_nanos(setting.quota.interval())).build();
            each(move |_| limiter.try_acquire(1))
        }),
    ]
}

fn one_resource(setting: Setting) -> Result<(), &'static str> {
    if setting.keys == 1 { Ok(()) } else { Err(ONE_RESOURCE) }
}

fn text_only<K: Key>() -> Result<(), &'static str> {
    if K::numbered(0).text().is_some() { Ok(()) } else { Err(TEXT_ONLY) }
}

fn governor_quota(setting: Setting) -> governor::Quota {
    let burst = NonZeroU32::new(setting.quota.burst()).unwrap_or(NonZeroU32::MIN);
    governor::Quota::with_period(Duration::from_nanos(setting.quota.interval()))
        .unwrap_or(governor::Quota::per_second(burst))
        .allow_burst(burst)
}

/// The limiter has twice the room, as its documentation advises, so that it never has to evict.
fn rate_net(setting: Setting) -> rate_net::Builder<clock_lib::SystemClock> {
    rate_net::RateLimiter::builder()
        .quota(1, Duration::from_nanos(setting.quota.interval()))
        .burst(setting.quota.burst())
        .eviction(rate_net::Eviction::capacity((2 * setting.keys).max(rate_net::DEFAULT_MAX_KEYS)))
}

/// The limiter has a window of a minute in steps of ten milliseconds, as in its first example.
fn trypema<K: Key>(setting: Setting) -> Built<K> {
    use trypema::local::LocalRateLimiterProvider;
    use trypema::{BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

    text_only::<K>()?;
    let provider = LocalRateLimiterProvider::builder()
        .window_size(WindowSize::minutes_or_panic(1))
        .bucket_size(BucketSize::milliseconds_or_panic(10))
        .cleanup_interval(Duration::from_secs(30))
        .build()
        .map_err(|_| "could not be built")?;
    let limit = RateLimit::per_minute(setting.quota.burst().into()).map_err(|_| "refuses the quota")?;
    each(move |key: &K| {
        let decision = provider.absolute().inc(key.text().unwrap_or_default(), &limit, 1);
        matches!(decision, RateLimitDecision::Allowed)
    })
}
