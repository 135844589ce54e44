//! Charges whose fate the response decides.

use super::enforced::Enforced;
use super::head::ResponseHead;
use super::key::{Key, KeyRef};
use crate::{Decision, ToKey};
use smallvec::SmallVec;
use std::sync::Arc;

/// A charge, and who was charged.
pub(super) struct Held {
    limit: usize,
    key: Key,
    charge: Decision,
}

impl Held {
    pub(super) fn new(limit: usize, key: &KeyRef<'_>, charge: Decision) -> Self {
        Self { limit, key: key.to_key(), charge }
    }
}

/// The charges of one request that may be given back. Dropped unsettled, they stay.
pub(super) struct Ticket {
    limits: Arc<[Enforced]>,
    held: SmallVec<[Held; 1]>,
}

impl Ticket {
    pub(super) fn new(limits: Arc<[Enforced]>, held: SmallVec<[Held; 1]>) -> Self {
        Self { limits, held }
    }

    /// Gives back what is not to be charged for this response; without one, for a failure of the handler.
    pub(super) fn settle(self, response: Option<ResponseHead<'_>>) {
        for Held { limit, key, charge } in self.held {
            let limit = &self.limits[limit];
            let charges = match (response, &limit.charges) {
                (Some(response), Some(charges)) => charges(response),
                _ => limit.keeps_on_error,
            };
            if !charges {
                limit.enforcer.give_back(&key, &charge);
            }
        }
    }
}
