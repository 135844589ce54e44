//! The names of methods.
//!
//! Methods are case-sensitive, but some servers handle `post` as `POST`. Limits therefore ignore
//! case, so that a client cannot evade a limit by the case of its method.

use http::Method;

/// The methods that are registered with IANA, and QUERY.
const REGISTERED: [&str; 40] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Returns the registered method that equals `name` if case is ignored.
pub(crate) fn registered(name: &str) -> Option<&'static str> {
    REGISTERED.into_iter().find(|method| method.eq_ignore_ascii_case(name))
}

/// Returns the name under which limits count a method: `POST` for `post`.
pub(crate) fn counted(method: &Method) -> &str {
    let name = method.as_str();
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return name;
    }
    registered(name).unwrap_or(name)
}

/// Returns the registered method for which a user may have meant `name`.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let near = REGISTERED.into_iter().map(|method| (edits(&name, method), method));
    let (edits, method) = near.min()?;
    (edits <= name.len() / 2 && edits <= 2).then_some(method)
}

/// Returns how many bytes must be inserted, removed, replaced or swapped with their neighbor to
/// change one text into the other.
fn edits(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (row, byte) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = rows[row][column] + usize::from(byte != other);
            let mut least = replaced.min(rows[row][column + 1] + 1).min(next[column] + 1);
            if row > 0 && column > 0 && *byte == to[column - 1] && from[row - 1] == *other {
                least = least.min(rows[row - 1][column - 1] + 1);
            }
            next.push(least);
        }
        rows.push(next);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_counted_under_its_registered_name() {
        for (sent, name) in [("post", "POST"), ("Get", "GET"), ("POST", "POST"), ("purge", "purge")] {
            assert_eq!(counted(&Method::from_bytes(sent.as_bytes()).unwrap()), name);
        }
    }

    #[test]
    fn the_nearest_method_is_the_one_that_was_meant() {
        for (written, meant) in [
            ("PSOT", Some("POST")),
            ("post", Some("POST")),
            ("DELTE", Some("DELETE")),
            ("OPTION", Some("OPTIONS")),
            ("GTE", Some("GET")),
            ("X-TAKE", None),
            ("A", None),
        ] {
            assert_eq!(nearest(written), meant, "{written}");
        }
    }
}
