//! A runtime for each test, with a deadline; what the limits in these tests are made of.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, SingleLimiter};
use tollgate_http::{BuildError, Key, KeyBy, Limit, RateLimitBuilder, RateLimitLayer, WhenNoKey};

/// Far more than any test takes, so that none of them hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test on a runtime of its own. Its servers and connections end with it.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await }).expect("over in time");
}

pub(crate) fn keyed(quota: Quota, clock: &ManualClock) -> Arc<Limiter<Key>> {
    Arc::new(Limiter::builder(quota).clock(clock.clone()).build().unwrap())
}

pub(crate) fn single(quota: Quota, clock: &ManualClock) -> Arc<SingleLimiter> {
    Arc::new(SingleLimiter::builder(quota).clock(clock.clone()).build().unwrap())
}

/// A limit by address, called `per-address`.
pub(crate) fn per_address(limiter: &Arc<Limiter<Key>>) -> Limit {
    Limit::new("per-address", Arc::clone(limiter), KeyBy::peer()).when_no_key(WhenNoKey::Deny)
}

/// A limit by the header `x-api-key`, called `per-key`; requests without one are not limited.
pub(crate) fn per_key(limiter: &Arc<Limiter<Key>>) -> Limit {
    Limit::new("per-key", Arc::clone(limiter), KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Allow)
}

/// A layer that finds the peer wherever the servers of these tests put it.
pub(crate) fn builder() -> RateLimitBuilder {
    RateLimitLayer::builder()
        .peer_from(|peer: &axum::extract::ConnectInfo<std::net::SocketAddr>| peer.0)
        .peer_from(|peer: &tonic::transport::server::TcpConnectInfo| peer.remote_addr())
}

/// A layer with these limits and nothing else.
pub(crate) fn layer(limits: impl IntoIterator<Item = Limit>) -> RateLimitLayer {
    let built: Result<RateLimitLayer, BuildError> =
        limits.into_iter().fold(builder(), RateLimitBuilder::limit).build();
    built.unwrap()
}
