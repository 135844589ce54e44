//! Who is told of what limits say: metrics, and `tracing` where that feature is on.

use super::event::Event;

pub(crate) type Hook = dyn Fn(&Event<'_>) + Send + Sync;

/// Who is told.
pub(crate) struct Listeners {
    hook: Option<Box<Hook>>,
    #[cfg(feature = "tracing")]
    trace: super::trace::Trace,
}

impl Listeners {
    pub(crate) fn new(hook: Option<Box<Hook>>) -> Self {
        Self {
            hook,
            #[cfg(feature = "tracing")]
            trace: super::trace::Trace::default(),
        }
    }

    /// Is there anybody? If not, an event need not be made.
    #[inline]
    pub(crate) fn listen(&self) -> bool {
        self.hook.is_some() || cfg!(feature = "tracing")
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        #[cfg(feature = "tracing")]
        self.trace.tell(event);
        if let Some(hook) = &self.hook {
            hook(event);
        }
    }
}
