//! Fields of a message, by their names.

use http::header::{HeaderMap, HeaderName};

/// Removes the fields with these names. To look at the few names that a message has is cheaper than
/// to look up each name that it might have.
pub(super) fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in &removed {
        headers.remove(name);
    }
}
