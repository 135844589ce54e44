//! Counts decisions in Envoy's own stats, with one counter for each limit, class and outcome.
//!
//! The counters are named `tollgate.FILTER.LIMIT.OUTCOME`, or `tollgate.FILTER.LIMIT.CLASS.OUTCOME`
//! for a limit with classes. Envoy's namespace for module stats precedes these names.
//! [`DecisionEvent::outcome`] lists the outcomes. The counters have no labels, because Envoy would
//! look up a labelled counter on every request.

use crate::abi::{self, EnvoyConfig, EnvoyStream};
use std::ptr;
use tollgate_http::DecisionEvent;
use tollgate_http::program;
use tollgate_http::settings::LimitPart;

/// The possible outcomes of a limit.
const OUTCOMES: [&str; 8] =
    ["allowed", "denied", "paused", "full", "no-key", "blocked", "shadow", "unavailable"];

/// The outcome of limits in a store only.
const OF_STORES: &str = "unavailable";

/// The counters of a configuration.
pub(crate) struct Counters(Vec<Row>);

struct Row {
    limit: String,
    class: Option<String>,
    /// The counters of the outcomes. An element is `None` if Envoy did not create its counter.
    ids: [Option<usize>; OUTCOMES.len()],
}

impl Counters {
    /// Creates the counters. `config` is either null or a configuration that is currently being
    /// created. Each part is paired with whether it counts in a store.
    pub(crate) fn new<'p>(
        config: *mut EnvoyConfig,
        filter: &str,
        parts: impl Iterator<Item = (&'p LimitPart, bool)>,
    ) -> Self {
        let mut rows = Vec::new();
        for (part, is_shared) in parts {
            for (class, _) in program::classes(part) {
                let named = |outcome: &str| match class {
                    Some(class) => format!("tollgate.{filter}.{}.{class}.{outcome}", part.name),
                    None => format!("tollgate.{filter}.{}.{outcome}", part.name),
                };
                let has = |outcome: &str| is_shared || outcome != OF_STORES;
                let ids = OUTCOMES
                    .map(|outcome| has(outcome).then(|| define(config, &named(outcome), true)).flatten());
                rows.push(Row { limit: part.name.clone(), class: class.map(str::to_owned), ids });
            }
        }
        Self(rows)
    }

    /// Counts a decision about the request of a stream, in a hook of the stream.
    pub(crate) fn count(&self, stream: *mut EnvoyStream, event: &DecisionEvent<'_>) {
        let Some(outcome) = event.outcome() else { return };
        // A request without a key has no class. It is counted in its limit's first row.
        let of = |row: &&Row| {
            row.limit == event.limit_name && (event.class.is_none() || row.class.as_deref() == event.class)
        };
        let place = OUTCOMES.iter().position(|it| *it == outcome);
        if let (Some(row), Some(place)) = (self.0.iter().find(of), place)
            && let Some(id) = row.ids[place]
        {
            add(stream, id, 1);
        }
    }
}

/// Defines a counter, or a gauge if the value does not only grow. `config` is either null or a
/// configuration that is currently being created. Returns `None` if Envoy refuses the definition.
#[allow(unsafe_code)]
pub(crate) fn define(config: *mut EnvoyConfig, name: &str, grows: bool) -> Option<usize> {
    let mut id = 0;
    let define = match grows {
        true => abi::envoy_dynamic_module_callback_http_filter_config_define_counter,
        false => abi::envoy_dynamic_module_callback_http_filter_config_define_gauge,
    };
    // SAFETY: the configuration is being created, and the name and the number outlive the call.
    let result = unsafe { define(config, name.into(), ptr::null(), 0, &raw mut id) };
    (result == abi::SUCCESS).then_some(id)
}

/// Adds to a counter, in a hook of a stream whose configuration has defined the counter.
#[allow(unsafe_code)]
pub(crate) fn add(stream: *mut EnvoyStream, id: usize, by: u64) {
    // SAFETY: the stream belongs to the running hook, and its configuration contains the counter.
    unsafe {
        abi::envoy_dynamic_module_callback_http_filter_increment_counter(stream, id, ptr::null(), 0, by);
    }
}

/// Sets a gauge, in a hook of a stream whose configuration has defined the gauge.
#[allow(unsafe_code)]
pub(crate) fn set(stream: *mut EnvoyStream, id: usize, value: u64) {
    // SAFETY: the stream belongs to the running hook, and its configuration contains the gauge.
    unsafe {
        abi::envoy_dynamic_module_callback_http_filter_set_gauge(stream, id, ptr::null(), 0, value);
    }
}
