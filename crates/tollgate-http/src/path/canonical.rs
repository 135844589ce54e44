//! The canonical form of a path.
//!
//! Servers treat many spellings of a path alike. If a limit distinguished these spellings, a client
//! could evade the limit by spelling the path differently.

use std::borrow::Cow;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Returns the canonical form of a path: see [`RequestHead::path`](crate::RequestHead::path).
/// Limits count a path under this form.
///
/// A path that is already canonical is borrowed without an allocation. The canonical form is always
/// ASCII. Canonicalizing it again changes nothing.
///
/// ```
/// use std::borrow::Cow;
/// use tollgate_http::program::canonical_path;
///
/// assert_eq!(*canonical_path(b"/b/%2e%2e//%6Cogin"), *b"/login");
/// assert!(matches!(canonical_path(b"/login"), Cow::Borrowed(b"/login")));
/// ```
pub fn canonical_path(path: &[u8]) -> Cow<'_, [u8]> {
    if is_canonical(path) {
        return Cow::Borrowed(path);
    }
    let mut decoded = decoded(path);
    decoded.dedup_by(|next, before| *next == b'/' && *before == b'/');
    Cow::Owned(without_dots(&decoded))
}

/// Returns whether a path is canonical, in one pass.
fn is_canonical(path: &[u8]) -> bool {
    if path == b"*" {
        return true;
    }
    let Some(mut rest) = path.strip_prefix(b"/") else { return false };
    let mut segment = 0;
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            // Only the last segment may be empty, so repeated slashes are not canonical, even at
            // the end.
            b'/' if segment == 0 => return false,
            b'/' => segment = 0,
            b'.' if segment == 0 && is_dots(rest) => return false,
            b'%' => match encoded(after) {
                Some(byte) if !is_unreserved(byte) && !after[..2].iter().any(u8::is_ascii_lowercase) => {
                    segment += 1;
                }
                _ => return false,
            },
            byte if is_plain(byte) => segment += 1,
            _ => return false,
        }
        rest = after;
    }
    true
}

/// Returns whether the text begins with the segment `.` or `..`.
fn is_dots(text: &[u8]) -> bool {
    let end = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
    matches!(&text[..end], b"." | b"..")
}

/// Returns the byte encoded by two hexadecimal digits at the beginning of the text.
pub(super) fn encoded(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Returns whether a segment of a path may contain this byte unencoded (RFC 3986, section 3.3).
pub(super) fn is_plain(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

/// Applies step 1, which decodes and encodes bytes. The result begins with a slash.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 1);
    if !path.starts_with(b"/") {
        out.push(b'/');
    }
    let encode = |out: &mut Vec<u8>, byte: u8| {
        out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    };
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, encoded(after)) {
            (b'%', Some(byte)) => {
                rest = &after[2..];
                if is_unreserved(byte) { out.push(byte) } else { encode(&mut out, byte) }
            }
            (b'/', _) => out.push(byte),
            _ if is_plain(byte) => out.push(byte),
            _ => encode(&mut out, byte),
        }
    }
    out
}

/// Applies step 3, which removes dot segments. The path must begin with a slash and contain no
/// repeated slashes.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path[1..].split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"." => {}
            b".." => out.truncate(out.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        // After a dot segment at the end, the path names a folder and ends with a slash.
        if segments.peek().is_none() {
            out.push(b'/');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same rules, each applied to the whole text.
    fn oracle(path: &str) -> String {
        if path == "*" {
            return path.to_owned();
        }
        let mut text = String::new();
        let bytes = path.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let pair = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
            let pair = pair.filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let byte = pair.map_or(bytes[at], |pair| u8::from_str_radix(pair, 16).unwrap());
            let plain = match pair {
                Some(_) => byte.is_ascii_alphanumeric() || "-._~".contains(char::from(byte)),
                None => byte.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/".contains(char::from(byte)),
            };
            text += &if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") };
            at += if pair.is_some() { 3 } else { 1 };
        }
        let mut kept: Vec<&str> = Vec::new();
        let all: Vec<&str> = text.split('/').filter(|segment| !segment.is_empty()).collect();
        for segment in &all {
            match *segment {
                "." => {}
                ".." => drop(kept.pop()),
                segment => kept.push(segment),
            }
        }
        let is_folder = text.ends_with('/') || matches!(all.last(), Some(&("." | "..")));
        let end = if is_folder && !kept.is_empty() { "/" } else { "" };
        format!("/{}{end}", kept.join("/"))
    }

    /// Paths composed of texts that matter to the rules.
    fn paths() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("/"),
            Just("."),
            Just("%2e"),
            Just("%2F"),
            Just("%2f"),
            Just("%"),
            Just("%6c"),
            Just("%4"),
            Just("2e"),
            Just("%25"),
            Just("a"),
            Just("\\"),
            Just(";"),
            Just("{"),
            Just("\u{e9}"),
            Just("?"),
            Just("%C3"),
            Just("*"),
            Just("%zz"),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn a_path_has_the_form_that_the_rules_give(path in paths(), slash in any::<bool>()) {
            let path = if slash { format!("/{path}") } else { path };
            let form = canonical_path(path.as_bytes()).into_owned();
            prop_assert_eq!(String::from_utf8(form).unwrap(), oracle(&path));
        }

        #[test]
        fn a_form_is_its_own_and_is_not_allocated(path in prop::collection::vec(any::<u8>(), 0..40)) {
            let form = canonical_path(&path).into_owned();
            prop_assert!(form.is_ascii());
            prop_assert!(matches!(canonical_path(&form), Cow::Borrowed(again) if again == form));
        }

        #[test]
        fn a_form_of_what_the_rules_are_about_is_its_own(path in paths()) {
            let form = canonical_path(path.as_bytes()).into_owned();
            prop_assert!(matches!(canonical_path(&form), Cow::Borrowed(again) if again == form));
        }
    }
}
