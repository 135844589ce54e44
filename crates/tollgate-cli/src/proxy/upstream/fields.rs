//! Removes fields from a message, and joins the lines of a field.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Removes all fields whose names match. A message contains only a few names, so iterating over
/// them is cheaper than looking up every name that might be present.
pub(super) fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in &removed {
        headers.remove(name);
    }
}

/// Adds an element to a list field, and joins the list into a single line. Recipients may combine
/// the lines of a field (RFC 9110, 5.3), but many servers read only the first line.
pub(super) fn add_element(headers: &mut HeaderMap, name: &HeaderName, element: HeaderValue) {
    headers.append(name, element);
    join_lines(headers, name, b", ");
}

/// Joins the lines of a field into one.
pub(super) fn join_lines(headers: &mut HeaderMap, name: &HeaderName, separator: &[u8]) {
    if headers.get_all(name).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> =
        headers.get_all(name).iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty()).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(separator)) {
        headers.insert(name, joined);
    }
}
