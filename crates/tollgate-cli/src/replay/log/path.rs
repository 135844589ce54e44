//! Converts a request's path from its form in a log to the forms in which the proxy compares and
//! counts paths.

use std::borrow::Cow;

use tollgate_http::program::{PathTemplates, canonical_path, path_key};

use super::formats::Escapes;

/// Returns the path by which the key `path` counts a request. `target` is the target as the client
/// sent it: a path with or without a query, a URL, `*`, or the authority in a CONNECT request. An
/// authority has no path.
pub(crate) fn counted<'v>(target: &'v [u8], templates: Option<&'v PathTemplates>) -> Cow<'v, [u8]> {
    let path = path_of(target);
    match templates {
        Some(templates) => Cow::Borrowed(templates.of(path).as_bytes()),
        None => path_key(path),
    }
}

/// Returns the canonical form of the path of a target.
pub(crate) fn canonical(target: &[u8]) -> Cow<'_, [u8]> {
    canonical_path(path_of(target))
}

fn path_of(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| b"?#".contains(byte)).unwrap_or(target.len());
    let target = &target[..end];
    if target.starts_with(b"/") || target == b"*" {
        return target;
    }
    let authority =
        target.windows(3).position(|three| three == b"://").map_or(target, |at| &target[at + 3..]);
    let slash = authority.iter().position(|&byte| byte == b'/').unwrap_or(authority.len());
    &authority[slash..]
}

/// Reverses the escapes with which the server wrote the text.
pub(crate) fn unescaped(text: &[u8], escapes: Escapes) -> Cow<'_, [u8]> {
    let mark = match escapes {
        Escapes::None => return Cow::Borrowed(text),
        Escapes::Backslash => b'\\',
        Escapes::Hash => b'#',
    };
    if !text.contains(&mark) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |digits: &[u8]| digits.get(..2).and_then(hexadecimal);
        let (found, length) = match (escapes, after) {
            _ if byte != mark => (byte, 0),
            (Escapes::Hash, digits) => hex(digits).map_or((byte, 0), |byte| (byte, 2)),
            (_, [escaped @ (b'"' | b'\\'), ..]) => (*escaped, 1),
            (_, [b'x', digits @ ..]) => hex(digits).map_or((byte, 0), |byte| (byte, 3)),
            _ => (byte, 0),
        };
        out.push(found);
        rest = &after[length..];
    }
    Cow::Owned(out)
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let mut digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
    u8::try_from(digits.next()?? * 16 + digits.next()??).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_path_whatever_its_form() {
        let table = [
            ("/a?b=/c", "/a"),
            ("/a#b?c", "/a"),
            ("/a/;b", "/a"),
            ("//a/b", "/a/b"),
            ("http://example.org/a?b", "/a"),
            ("http://example.org", "/"),
            ("http://example.org?b", "/"),
            ("example.org:443", "/"),
            ("*", "*"),
            ("/http://x/y", "/http:/x/y"),
        ];
        for (target, path) in table {
            assert_eq!(String::from_utf8_lossy(&counted(target.as_bytes(), None)), path, "{target}");
        }
    }

    #[test]
    fn what_servers_escape_is_read_as_it_was() {
        let table: [(&[u8], &[u8]); 6] = [
            (b"/plain", b"/plain"),
            (b"/a\\\"b\\\\c", b"/a\"b\\c"),
            (b"/\\xC3\\xa9", b"/\xc3\xa9"),
            (b"/a\\b\\x1\\", b"/a\\b\\x1\\"),
            (b"\\\\x41", b"\\x41"),
            (b"\\xzz", b"\\xzz"),
        ];
        for (logged, meant) in table {
            assert_eq!(unescaped(logged, Escapes::Backslash), meant);
            assert_eq!(unescaped(logged, Escapes::None), logged);
        }
        assert_eq!(&*unescaped(b"/a#22#20#2#zz#", Escapes::Hash), b"/a\" #2#zz#");
    }
}
