//! The form of a path in which all spellings that some server treats alike are equal.
//!
//! The [canonical form](super::canonical) equates only paths that every server treats alike, so
//! that an exemption exempts nothing else. A limit must not miss a path that reaches its handler on
//! any server. Limits therefore also compare this form.

use super::canonical::{canonical_path, encoded, is_plain};
use std::borrow::Cow;

/// Returns the form of a path under which the key `path` counts it. In this form, encoded slashes
/// and backslashes separate segments, segments end at a semicolon, characters that a path may
/// contain are not encoded, and there is no slash at the end.
///
/// ```
/// use tollgate_http::program::path_key;
///
/// for spelling in ["/b/login", "/b/login/", "/b%2Flogin", "/b/login;x=1", "/b%5c.;/login"] {
///     assert_eq!(*path_key(spelling.as_bytes()), *b"/b/login");
/// }
/// ```
pub fn path_key(path: &[u8]) -> Cow<'_, [u8]> {
    let path = canonical_path(path);
    let is_own = path.len() < 2 || !path.ends_with(b"/") && !path.iter().any(|byte| b"%;".contains(byte));
    if is_own { path } else { Cow::Owned(respelled(&path)) }
}

/// Returns the [key](path_key) of a path in lower case.
pub(crate) fn without_case(path: &[u8]) -> Cow<'_, [u8]> {
    let path = path_key(path);
    if path.iter().any(u8::is_ascii_uppercase) { Cow::Owned(path.to_ascii_lowercase()) } else { path }
}

/// Converts a path from its canonical form.
fn respelled(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    let mut is_parameter = false;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let meant = encoded(after).filter(|_| byte == b'%');
        match meant.unwrap_or(byte) {
            b'/' | b'\\' => {
                is_parameter = false;
                out.push(b'/');
            }
            b';' => is_parameter = true,
            _ if is_parameter => {}
            plain if is_plain(plain) => out.push(plain),
            _ => {
                out.extend_from_slice(&[b'%', after[0], after[1]]);
            }
        }
        if meant.is_some() {
            rest = &after[2..];
        }
    }
    let mut out = canonical_path(&out).into_owned();
    if out.len() > 1 && out.ends_with(b"/") {
        out.pop();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings_that_some_server_treats_alike_have_one_key() {
        for (key, spellings) in [
            (
                "/b/login",
                &[
                    "/b/login",
                    "/b/login/",
                    "/b/login//",
                    "/b%2Flogin",
                    "/b%2flogin",
                    "/b%5Clogin",
                    "/b\\login",
                    "/b/login;x",
                    "/b;x=1/login;y=/",
                    "/b/login%3Bx",
                    "/b/a%2F..%2flogin",
                    "/b/.;/login",
                    "/a/..;/b/login",
                    "/b/l%6fgin/.",
                ][..],
            ),
            ("/a$b", &["/a$b", "/a%24b"]),
            ("/a%20b", &["/a%20b"]),
            ("/a%252Fb", &["/a%252Fb"]),
            ("/a%25", &["/a%"]),
            ("/", &["/", "", "/;x", "/%2F", "/..;/"]),
            ("*", &["*"]),
        ] {
            for spelling in spellings {
                let found = path_key(spelling.as_bytes());
                assert_eq!(String::from_utf8_lossy(&found), key, "{spelling}");
            }
            assert!(matches!(path_key(spellings[0].as_bytes()), Cow::Borrowed(_)) || key.contains('%'));
        }
        assert_eq!(*without_case(b"/Login;X"), *b"/login");
    }

    proptest! {
        #[test]
        fn a_key_is_ascii_and_is_its_own_key(path in "[/.;%a\\\\2fF5cCb$]{0,16}") {
            let key = path_key(path.as_bytes()).into_owned();
            prop_assert!(key.is_ascii());
            prop_assert_eq!(&*path_key(&key), &*key);
        }
    }
}
