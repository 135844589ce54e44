//! A request's charges, which are kept, refunded or settled once the response is known.

use crate::head::{RequestHead, ResponseHead};
use crate::key::parts::Key;
use crate::limit::any_limiter::AnyLimiter;
use crate::limit::async_limiter::AsyncLimiter;
use crate::response::fields;
use crate::settle::running::{LimitsAndListeners, PendingRefund, Running};
use futures_util::future::join_all;
use http::Method;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::Decision;

/// A future of the refunds to shared limiters.
pub type Refunds = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The result of settling the charges of one request.
#[derive(Default)]
pub(crate) struct Settled {
    /// The refunds to shared limiters, if any are due.
    pub(crate) refunds: Option<Refunds>,
    /// The number of seconds until the limits that kept their charges have more tokens; 0 if none
    /// of these limits is used up.
    pub(crate) wait: u64,
    /// The charges that the response body will settle, if any.
    pub(crate) running: Option<Box<Running>>,
}

/// The charges of one request that may be refunded or settled. Dropping this value without settling
/// it leaves the charges as they are.
pub(crate) struct PendingRefunds {
    layer: LimitsAndListeners,
    method: Method,
    pending: SmallVec<[PendingRefund; 1]>,
}

impl PendingRefunds {
    pub(crate) fn new(
        layer: LimitsAndListeners,
        head: RequestHead<'_>,
        pending: SmallVec<[PendingRefund; 1]>,
    ) -> Self {
        Self { layer, method: head.method().clone(), pending }
    }

    /// Refunds the charges of limits that do not charge for this response. Without a response,
    /// refunds the charges of limits that do not charge for a failed handler. Refunds to
    /// process-local limiters are made before this method returns. The returned future makes the
    /// refunds to shared limiters.
    ///
    /// If the response reveals the cost of a kept charge, the charge is settled either now or by
    /// the response body.
    pub(crate) fn settle(self, response: Option<ResponseHead<'_>>) -> Settled {
        let mut owed: Vec<(Arc<dyn AsyncLimiter>, Key, Decision)> = Vec::new();
        let mut kept = Vec::new();
        let mut wait = 0;
        for pending in self.pending {
            let limit = &self.layer.limits[pending.limit];
            let keeps = match (response, &limit.charges) {
                (Some(response), Some(charges)) => charges(response),
                (None, Some(_)) => limit.keeps_on_error,
                (_, None) => true,
            };
            if keeps {
                wait = wait.max(fields::wait_for_more(limit, &pending.charge));
                kept.push(pending);
                continue;
            }
            let PendingRefund { class, key, charge, .. } = pending;
            match &limit.class(class).backend {
                AnyLimiter::Local(limiter) => limiter.refund_n(&key.borrowed(), &charge, u64::MAX),
                AnyLimiter::Shared(limiter) => owed.push((Arc::clone(limiter), key, charge)),
                // A response changes neither shared permits nor limits that count nothing.
                AnyLimiter::SharedInFlight(_) | AnyLimiter::Unlimited | AnyLimiter::Blocked => {}
            }
        }
        let running = response.and_then(|response| Running::begin(self.layer, &self.method, kept, response));
        if owed.is_empty() {
            return Settled { refunds: None, wait, running };
        }
        let refunds: Refunds = Box::pin(async move {
            join_all(owed.iter().map(|(limiter, key, charge)| limiter.refund_n(key, charge, u64::MAX))).await;
        });
        Settled { refunds: Some(refunds), wait, running }
    }
}
