//! Notices that a trusted proxy does not report its clients.

use super::forwarded::Walk;
use crate::atomics::{AtomicBool, Relaxed};
use crate::head::RequestHead;

/// Looks for the field with the client's address in the requests of trusted proxies, until one of
/// them has it or a warning is due.
pub struct FieldWatch {
    walk: Walk,
    is_over: AtomicBool,
}

impl FieldWatch {
    pub(crate) fn new(walk: Walk) -> Self {
        Self { walk, is_over: AtomicBool::new(false) }
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Returns a warning if this is the first request from a trusted proxy and lacks the field.
    /// Later calls return `None`.
    pub fn look(&self, head: RequestHead<'_>) -> Option<String> {
        // ORDERING: relaxed here and below, because the flag publishes no other data.
        if self.is_over.load(Relaxed) {
            return None;
        }
        let is_absent = self.walk.is_absent(head)?;
        // ORDERING: relaxed, as above. One thread wins the swap and reports.
        if self.is_over.swap(true, Relaxed) || !is_absent {
            return None;
        }
        let field = self.walk.header();
        let peer = head.peer().map_or_else(String::new, |peer| format!(" {}", peer.ip().to_canonical()));
        Some(format!(
            "the trusted proxy{peer} has sent a request without the field `{field}`, so all clients behind it would be \
             counted as one: let the proxy set the field in each request, or choose the field that it sets"
        ))
    }
}
