//! Runs each test on its own runtime with a deadline, and creates limits for the tests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, SingleLimiter};
use tollgate_http::{Key, KeyBy, LayerError, Limit, RateLimitBuilder, RateLimitLayer, WhenNoKey};

/// The deadline of a test, which prevents the test from hanging. It is far longer than any test
/// needs, even on a machine that is ten times slower or busier.
const DEADLINE: Duration = Duration::from_secs(600);

/// Runs a test on its own runtime. Its servers and connections end with the runtime.
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

/// Creates a limit for each address, named `per-address`.
pub(crate) fn per_address(limiter: &Arc<Limiter<Key>>) -> Limit {
    Limit::new("per-address", Arc::clone(limiter)).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny)
}

/// Creates a limit named `per-key`, by the header `x-api-key`. Requests without the header are not
/// limited.
pub(crate) fn per_key(limiter: &Arc<Limiter<Key>>) -> Limit {
    Limit::new("per-key", Arc::clone(limiter)).by(KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Allow)
}

/// Returns a layer builder. The layer reads the peer's address from the extensions that these
/// tests' servers set.
pub(crate) fn builder() -> RateLimitBuilder {
    RateLimitLayer::builder()
        .peer_from(|peer: &axum::extract::ConnectInfo<std::net::SocketAddr>| peer.0)
        .peer_from(|peer: &tonic::transport::server::TcpConnectInfo| peer.remote_addr())
}

/// Creates a layer with these limits.
pub(crate) fn layer(limits: impl IntoIterator<Item = Limit>) -> RateLimitLayer {
    let built: Result<RateLimitLayer, LayerError> =
        limits.into_iter().fold(builder(), RateLimitBuilder::limit).build();
    built.unwrap()
}
