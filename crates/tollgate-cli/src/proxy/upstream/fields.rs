//! Removes fields of a message, and joins their lines.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Removes the fields whose names match. Iterating over the few names of a message is cheaper than
/// a lookup of each name that might be present.
pub(super) fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in &removed {
        headers.remove(name);
    }
}

/// Adds an element to a list field, and puts the whole list on one line. A recipient may combine
/// the lines of a field (RFC 9110, 5.3), but many servers read only the first.
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
