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
    let near = REGISTERED.into_iter().map(|method| (strsim::osa_distance(&name, method), method));
    let (edits, method) = near.min()?;
    (edits <= name.len() / 2 && edits <= 2).then_some(method)
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
