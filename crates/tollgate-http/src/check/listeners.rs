//! The listeners of a layer: the user's closures and, with the feature `tracing`, events for the
//! crate `tracing`.

use super::event::{DecisionEvent, SettleEvent};
use crate::head::RequestHead;
use crate::limit::compiled::CompiledLimit;
use crate::warning::BuildWarning;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) type Hook = dyn Fn(&DecisionEvent<'_>) + Send + Sync;
pub(crate) type SettleHook = dyn Fn(&SettleEvent<'_>) + Send + Sync;
pub(crate) type UnknownClass = dyn Fn(&str, &str) + Send + Sync;

/// The listeners of a layer.
pub(crate) struct Listeners {
    hook: Option<Box<Hook>>,
    settle_hook: Option<Box<SettleHook>>,
    unknown_class: Option<Box<UnknownClass>>,
    #[cfg(feature = "tracing")]
    trace: super::trace::Trace,
}

impl Listeners {
    pub(crate) fn new(
        limits: &[CompiledLimit],
        hook: Option<Box<Hook>>,
        settle_hook: Option<Box<SettleHook>>,
        unknown_class: Option<Box<UnknownClass>>,
    ) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = limits;
        Self {
            hook,
            settle_hook,
            unknown_class,
            #[cfg(feature = "tracing")]
            trace: super::trace::Trace::new(limits),
        }
    }

    /// Returns whether there is a listener for decisions. Without one, no event is needed.
    #[inline]
    pub(crate) fn listen(&self) -> bool {
        self.hook.is_some() || cfg!(feature = "tracing")
    }

    /// Returns whether there is a listener for settlements.
    pub(crate) fn listen_to_settlements(&self) -> bool {
        self.settle_hook.is_some() || cfg!(feature = "tracing")
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
        if let Some(hook) = &self.unknown_class {
            hook(limit, class);
        }
    }

    pub(crate) fn notify(&self, event: &DecisionEvent<'_>) {
        #[cfg(feature = "tracing")]
        self.trace.notify(event);
        if let Some(hook) = &self.hook {
            hook(event);
        }
    }

    /// Reports a settlement. If the listener panics, the panic hook reports the panic, but the
    /// panic is then caught, because the other limits of the response must still be settled.
    /// Moreover, if another panic is already dropping the body, a second panic would abort the
    /// process.
    pub(crate) fn notify_settled(&self, event: &SettleEvent<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(feature = "tracing")]
            super::trace::settled(event);
            if let Some(hook) = &self.settle_hook {
                hook(event);
            }
        }));
    }
}
