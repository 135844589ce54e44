//! Charges whose fate the response decides.

use super::join::Join;
use crate::head::ResponseHead;
use crate::key::parts::Key;
use crate::limit::enforced::Enforced;
use crate::limit::enforcer::Enforcer;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::Decision;

/// A charge, and who was charged.
pub(crate) struct Held {
    pub(crate) limit: usize,
    pub(crate) key: Key,
    pub(crate) charge: Decision,
}

/// What is given back to shared limiters: ready when it is.
pub(crate) type Refunds = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The charges of one request that may be given back. Dropped unsettled, they stay.
pub(crate) struct Ticket {
    limits: Arc<[Enforced]>,
    held: SmallVec<[Held; 1]>,
}

impl Ticket {
    pub(crate) fn new(limits: Arc<[Enforced]>, held: SmallVec<[Held; 1]>) -> Self {
        Self { limits, held }
    }

    /// Gives back what is not to be charged for this response; without one, for a failure of the handler. Limiters of
    /// this process have it when this returns, shared ones when what this returns is ready.
    pub(crate) fn settle(self, response: Option<ResponseHead<'_>>) -> Option<Refunds> {
        let mut owed = Vec::new();
        for Held { limit, key, charge } in self.held {
            let limit = &self.limits[limit];
            let charges = match (response, &limit.charges) {
                (Some(response), Some(charges)) => charges(response),
                _ => limit.keeps_on_error,
            };
            if charges {
                continue;
            }
            match &limit.enforcer {
                Enforcer::Local(limiter) => limiter.give_back(&key, &charge),
                Enforcer::Shared(limiter) => owed.push((Arc::clone(limiter), key, charge)),
            }
        }
        if owed.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            Join::new(owed.iter().map(|(limiter, key, charge)| limiter.refund(key, charge))).await;
        }))
    }
}
