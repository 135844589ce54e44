//! Writes decisions to the dynamic metadata of a stream, where access logs, header rules and other
//! filters can read them.
//!
//! The keys are `LIMIT.outcome`, a string, and `LIMIT.remaining`, a number.

use crate::abi::{self, EnvoyStream};
use tollgate::DecisionSource;
use tollgate_http::DecisionEvent;
use tollgate_http::settings::LimitPart;

/// The names under which a configuration writes its decisions.
pub(crate) struct DecisionMetadata {
    namespace: String,
    keys: Vec<Keys>,
}

/// The keys of a limit.
struct Keys {
    limit: String,
    outcome: String,
    remaining: String,
}

impl DecisionMetadata {
    pub(crate) fn new<'p>(namespace: &str, parts: impl Iterator<Item = &'p LimitPart>) -> Self {
        let keys = parts.map(|LimitPart { name, .. }| Keys {
            limit: name.clone(),
            outcome: format!("{name}.outcome"),
            remaining: format!("{name}.remaining"),
        });
        Self { namespace: namespace.to_owned(), keys: keys.collect() }
    }

    /// Writes a decision about the request of a stream. If this limit had room but another limit
    /// refused the request, only the remaining tokens are written.
    #[allow(unsafe_code)]
    pub(crate) fn write(&self, stream: *mut EnvoyStream, event: &DecisionEvent<'_>) {
        let Some(keys) = self.keys.iter().find(|keys| keys.limit == event.limit_name) else { return };
        if let Some(outcome) = event.outcome() {
            // SAFETY: the stream belongs to the running hook, and the texts outlive the call.
            unsafe {
                abi::envoy_dynamic_module_callback_http_set_dynamic_metadata_string(
                    stream,
                    self.namespace.as_str().into(),
                    keys.outcome.as_str().into(),
                    outcome.into(),
                );
            }
        }
        // If a policy decided, it is unknown how many tokens are left.
        if let Some(decision) = event.decision.filter(|it| it.source() != DecisionSource::Policy) {
            #[allow(clippy::cast_precision_loss)]
            let remaining = decision.remaining() as f64;
            // SAFETY: as above.
            unsafe {
                abi::envoy_dynamic_module_callback_http_set_dynamic_metadata_number(
                    stream,
                    self.namespace.as_str().into(),
                    keys.remaining.as_str().into(),
                    remaining,
                );
            }
        }
    }
}
