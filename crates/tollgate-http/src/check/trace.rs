//! Events for the `tracing` crate, with the target `tollgate_http`.
//!
//! The levels of the events are:
//!
//! - DEBUG for refusals (a flood of requests causes many), for responses that are cut off, and for
//!   tokens that could not be charged;
//! - INFO for a request that a limit in shadow mode would have refused;
//! - WARN, at most once an hour for each kind, for requests without a key, with what is missing and
//!   what to do about it, and for requests with an unknown class (otherwise DEBUG);
//! - WARN, once, if a trusted proxy does not send the field with the client's address.

use super::event::{DecisionEvent, SettleEvent};
use crate::client::watch::FieldWatch;
use crate::head::RequestHead;
use crate::key::by::How;
use crate::limit::compiled::CompiledLimit;
use crate::response::refusal::RefusalReason;
use crate::warning::BuildWarning;
use tollgate::{Quota, SingleLimiter};
use tracing::{debug, info};

const TARGET: &str = "tollgate_http";

/// Emits a warning about a layer's configuration.
pub(super) fn warn(warning: &BuildWarning) {
    tracing::warn!(target: TARGET, "{warning}");
}

/// Emits an event for a settlement that cut a response off or left tokens unpaid.
pub(super) fn settled(event: &SettleEvent<'_>) {
    let (limit, class, shadow) = (event.limit_name, event.class, event.is_shadow);
    let (cost, charged, unpaid) = (event.cost, event.settlement.charged, event.settlement.unpaid);
    if event.is_cut {
        debug!(target: TARGET, limit, class, cost, charged, unpaid, "a response was cut off");
    } else if unpaid > 0 {
        debug!(target: TARGET, limit, class, shadow, cost, charged, unpaid, "tokens could not be charged");
    }
}

/// Allows one event an hour.
struct Once(Option<SingleLimiter>);

impl Default for Once {
    fn default() -> Self {
        Self(SingleLimiter::builder(Quota::per_hour(1)).build().ok())
    }
}

impl Once {
    fn is_due(&self) -> bool {
        self.0.as_ref().is_some_and(|once| once.check().is_allowed())
    }
}

#[derive(Default)]
pub(crate) struct Trace {
    /// Limits the warnings about requests without a key.
    without_key: Once,
    /// Limits the warnings about unknown classes.
    unknown_class: Once,
    /// The fields in which the limits look for the client's address, each once.
    fields: Vec<FieldWatch>,
}

impl Trace {
    pub(crate) fn new(limits: &[CompiledLimit]) -> Self {
        let mut fields: Vec<FieldWatch> = Vec::new();
        for walk in limits.iter().filter_map(|limit| limit.how()?.walk()) {
            if !fields.iter().any(|field| field.walk() == walk) {
                fields.push(FieldWatch::new(walk.clone()));
            }
        }
        Self { fields, ..Self::default() }
    }

    /// Looks for the fields in which trusted proxies report the client's address.
    pub(crate) fn look(&self, head: RequestHead<'_>) {
        for warning in self.fields.iter().filter_map(|field| field.look(head)) {
            tracing::warn!(target: TARGET, "{warning}");
        }
    }

    pub(crate) fn unknown_class(&self, limit: &str, class: &str) {
        if self.unknown_class.is_due() {
            tracing::warn!(target: TARGET, limit, class, "a class that the limit does not have");
        } else {
            debug!(target: TARGET, limit, class, "a class that the limit does not have");
        }
    }

    pub(crate) fn notify(&self, event: &DecisionEvent<'_>) {
        let (limit, class, shadow) = (event.limit_name, event.class, event.is_shadow);
        let Some(decision) = event.decision else {
            let refused = event.is_refused;
            match event.reason {
                Some(RefusalReason::Blocked) => {
                    debug!(target: TARGET, limit, class, shadow, refused, "a request of a blocked caller");
                }
                Some(RefusalReason::AmbiguousKey) => {
                    debug!(target: TARGET, limit, shadow, refused, "a request with several keys");
                }
                _ if self.without_key.is_due() => {
                    let missing = event.how.and_then(How::may_miss).unwrap_or_default();
                    tracing::warn!(target: TARGET, limit, shadow, refused, missing, "a request without a key");
                }
                _ => debug!(target: TARGET, limit, shadow, refused, "a request without a key"),
            }
            return;
        };
        let Some(reason) = event.reason else { return };
        let (remaining, retry_after) = (decision.remaining(), decision.retry_after());
        if shadow {
            info!(target: TARGET, limit, class, remaining, ?retry_after, ?reason, "a request would have been refused");
        } else {
            let binding = event.is_binding;
            debug!(target: TARGET, limit, class, remaining, ?retry_after, ?reason, binding, "a request was refused");
        }
    }
}
