//! Charges that are kept or refunded when the response is known.

use crate::head::ResponseHead;
use crate::key::parts::Key;
use crate::limit::backend::Backend;
use crate::limit::compiled::CompiledLimit;
use crate::response::fields;
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::Decision;

/// A charge, with its limit, class and key.
pub(crate) struct PendingRefund {
    pub(crate) limit: usize,
    pub(crate) class: usize,
    pub(crate) key: Key,
    pub(crate) charge: Decision,
}

/// A future of the refunds to shared limiters.
pub(crate) type Refunds = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What came of the charges of one request.
#[derive(Default)]
pub(crate) struct Settled {
    /// The refunds to shared limiters, if any are due.
    pub(crate) refunds: Option<Refunds>,
    /// Seconds until the limits that kept their charges have more tokens; 0 if none is used up.
    pub(crate) wait: u64,
}

/// The charges of one request that may be refunded. If they are dropped unsettled, they
/// stay.
pub(crate) struct PendingRefunds {
    limits: Arc<[CompiledLimit]>,
    pending: SmallVec<[PendingRefund; 1]>,
}

impl PendingRefunds {
    pub(crate) fn new(limits: Arc<[CompiledLimit]>, pending: SmallVec<[PendingRefund; 1]>) -> Self {
        Self { limits, pending }
    }

    /// Refunds the charges that this response does not keep; without a response, those that a
    /// failure of the handler does not keep. Refunds to limiters of this process are done when this
    /// returns; those to shared limiters are done by the returned future.
    pub(crate) fn settle(self, response: Option<ResponseHead<'_>>) -> Settled {
        let mut owed = Vec::new();
        let mut wait = 0;
        for PendingRefund { limit, class, key, charge } in self.pending {
            let limit = &self.limits[limit];
            let charges = match (response, &limit.charges) {
                (Some(response), Some(charges)) => charges(response),
                _ => limit.keeps_on_error,
            };
            if charges {
                wait = wait.max(fields::wait_for_more(limit, &charge));
                continue;
            }
            match &limit.class(class).backend {
                Backend::Local(limiter) => limiter.give_back(&key, &charge),
                Backend::Shared(limiter) => owed.push((Arc::clone(limiter), key, charge)),
            }
        }
        if owed.is_empty() {
            return Settled { refunds: None, wait };
        }
        let refunds: Refunds = Box::pin(async move {
            join_all(owed.iter().map(|(limiter, key, charge)| limiter.refund(key, charge))).await;
        });
        Settled { refunds: Some(refunds), wait }
    }
}
