//! The listeners of a layer: the user's closures and, with the feature `tracing`, events for the
//! crate `tracing`.

use super::event::{DecisionEvent, SettleEvent};
use crate::head::RequestHead;
use crate::limit::compiled::CompiledLimit;
use crate::warning::BuildWarning;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Hook = Box<dyn Fn(&DecisionEvent<'_>) + Send + Sync>;
type SettleHook = Box<dyn Fn(&SettleEvent<'_>) + Send + Sync>;
type UnknownClass = Box<dyn Fn(&str, &str) + Send + Sync>;

/// The user's closures, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) decision: Vec<Hook>,
    pub(crate) settled: Vec<SettleHook>,
    pub(crate) unknown_class: Vec<UnknownClass>,
}

/// The listeners of a layer.
pub(crate) struct Listeners {
    hooks: Hooks,
    #[cfg(feature = "tracing")]
    trace: super::trace::Trace,
}

impl Listeners {
    pub(crate) fn new(limits: &[CompiledLimit], hooks: Hooks) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = limits;
        Self {
            hooks,
            #[cfg(feature = "tracing")]
            trace: super::trace::Trace::new(limits),
        }
    }

    /// Returns whether there is a listener for decisions. Without one, no event is needed.
    #[inline]
    pub(crate) fn listen(&self) -> bool {
        !self.hooks.decision.is_empty() || cfg!(feature = "tracing")
    }

    /// Returns whether there is a listener for settlements.
    pub(crate) fn listen_to_settlements(&self) -> bool {
        !self.hooks.settled.is_empty() || cfg!(feature = "tracing")
    }

    /// Reports warnings about a layer's configuration.
    pub(crate) fn warn(&self, warnings: &[BuildWarning]) {
        #[cfg(feature = "tracing")]
        warnings.iter().for_each(super::trace::warn);
        #[cfg(not(feature = "tracing"))]
        let _ = warnings;
    }

    /// Reports a request from a trusted proxy that does not report its clients.
    pub(crate) fn look(&self, head: RequestHead<'_>) {
        #[cfg(feature = "tracing")]
        self.trace.look(head);
        #[cfg(not(feature = "tracing"))]
        let _ = head;
    }

    /// Reports a request whose class the limit does not have.
    pub(crate) fn unknown_class(&self, limit: &str, class: &str) {
        #[cfg(feature = "tracing")]
        self.trace.unknown_class(limit, class);
        self.hooks.unknown_class.iter().for_each(|hook| hook(limit, class));
    }

    pub(crate) fn notify(&self, event: &DecisionEvent<'_>) {
        #[cfg(feature = "tracing")]
        self.trace.notify(event);
        self.hooks.decision.iter().for_each(|hook| hook(event));
    }

    /// Reports a settlement. If the listener panics, the panic hook reports the panic, but the
    /// panic is then caught, because the other limits of the response must still be settled.
    /// Moreover, if another panic is already dropping the body, a second panic would abort the
    /// process.
    pub(crate) fn notify_settled(&self, event: &SettleEvent<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(feature = "tracing")]
            super::trace::settled(event);
            self.hooks.settled.iter().for_each(|hook| hook(event));
        }));
    }
}
