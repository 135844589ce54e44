//! Shared limits in front of HTTP services.

use crate::health::StoreProblem;
use crate::in_flight::SharedInFlight;
use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use crate::stats::{ClientStats, SharedStats};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tollgate::{Decision, Denied, Quota};
use tollgate_http::{AsyncInFlight, AsyncLimiter, AsyncPermit, Backend, Figure, Key};

impl AsyncLimiter for SharedLimiter<Key> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> BoxFuture<'a, Decision> {
        Box::pin(Self::check_n(self, key, cost))
    }

    fn refund_n<'a>(&'a self, key: &'a Key, decision: &'a Decision, tokens: u64) -> BoxFuture<'a, ()> {
        Box::pin(Self::refund_n(self, key, decision, tokens))
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> BoxFuture<'a, u64> {
        Box::pin(Self::force(self, key, tokens))
    }

    fn quota(&self) -> Quota {
        Self::quota(self)
    }

    /// Runs the task in the client's runtime, or in the current runtime, which then also sends
    /// requests to the store. Without a runtime, no request was ever sent to the store, so the task
    /// is dropped.
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.client().runtime().spawn(task);
    }

    fn figures(&self) -> Vec<Figure> {
        figures(&self.stats(), &self.client().stats())
    }

    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        let of_class = |name: &str| -> Option<(String, Arc<dyn AsyncLimiter>)> {
            Some((name.to_owned(), Arc::new(self.class(name)?)))
        };
        self.class_names().filter_map(of_class).collect()
    }
}

impl AsyncInFlight for SharedInFlight<Key> {
    fn acquire<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<AsyncPermit, Denied>> {
        Box::pin(async move {
            let permit = Self::acquire(self, key).await?;
            Ok(AsyncPermit { decision: *permit.decision(), guard: Box::new(permit) })
        })
    }

    fn limit(&self) -> u64 {
        Self::limit(self)
    }

    fn figures(&self) -> Vec<Figure> {
        figures(&self.stats(), &self.client().stats())
    }
}

impl From<SharedInFlight<Key>> for Backend {
    fn from(limit: SharedInFlight<Key>) -> Self {
        Self::in_flight(limit)
    }
}

impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_to(bytes);
    }
}

/// Returns a limit's figures for the metrics of the layer.
fn figures(limit: &SharedStats, client: &ClientStats) -> Vec<Figure> {
    let is_up = client.problems.iter().all(StoreProblem::is_warning);
    vec![
        Figure::gauge(
            "tollgate_store_up",
            "Whether the store answers checks, as far as is known",
            u64::from(is_up),
        ),
        Figure::counter(
            "tollgate_store_breaker_trips",
            "How often the circuit breaker has opened",
            client.breaker_trips,
        ),
        Figure::counter("tollgate_shared_by_store", "Decisions of the store", limit.by_store),
        Figure::counter(
            "tollgate_shared_by_lease",
            "Decisions from tokens that are leased or may stay unsynced",
            limit.by_lease,
        ),
        Figure::counter(
            "tollgate_shared_by_fallback",
            "Decisions that were made in place of the store",
            limit.by_fallback,
        ),
        Figure::counter(
            "tollgate_shared_unanswered",
            "Checks that the store may have counted without an answer in time",
            limit.unanswered,
        ),
        Figure::counter(
            "tollgate_shared_store_errors",
            "Checks that the store answered with an error",
            limit.store_errors,
        ),
        Figure::counter(
            "tollgate_shared_unsent",
            "Checks that were not sent, without a connection or with an open breaker",
            limit.unsent,
        ),
        Figure::gauge("tollgate_shared_leased", "Tokens leased and not spent", limit.leased),
        Figure::gauge(
            "tollgate_shared_unsynced",
            "Tokens admitted and not confirmed by the store",
            limit.unsynced,
        ),
        Figure::gauge(
            "tollgate_shared_unsynced_sent",
            "Tokens sent to the store and not confirmed yet",
            limit.unsynced_sent,
        ),
        Figure::gauge(
            "tollgate_shared_most_unsynced",
            "The most unconfirmed tokens of one key",
            limit.most_unsynced,
        ),
    ]
}
