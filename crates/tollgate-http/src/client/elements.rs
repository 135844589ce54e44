//! Splits list fields into their elements, from the last element to the first. Proxies append to
//! these fields.
//!
//! A proxy appends its element to the received field, either on the same line or on a new line. The
//! right end of a field therefore contains the elements of trusted proxies. The client may have
//! written everything to the left of these elements. A quote that the client never closes must not
//! swallow a proxy's element. For this reason, lines are read from their end, and quotes are paired
//! from the right.

use http::HeaderMap;
use http::header::HeaderName;
use std::borrow::Cow;

/// Returns the elements of all lines of a field as one list, from right to left. Empty elements are
/// skipped (RFC 9110, section 5.6.1, allows them).
pub(crate) fn from_right<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    quoted: bool,
) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).iter().rev();
    lines.flat_map(move |line| FromRight { rest: Some(line.as_bytes()), quoted }).filter(|it| !it.is_empty())
}

/// An iterator over the elements of one line, from the right.
struct FromRight<'h> {
    rest: Option<&'h [u8]>,
    /// Whether an element may have quoted strings with commas in them.
    quoted: bool,
}

impl<'h> Iterator for FromRight<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        let line = self.rest?;
        let element = match last(line, b',', self.quoted) {
            Some(comma) => {
                self.rest = Some(&line[..comma]);
                &line[comma + 1..]
            }
            None => {
                self.rest = None;
                line
            }
        };
        Some(element.trim_ascii())
    }
}

/// Returns the position of the last `separator` outside of quoted strings. Quotes are paired from
/// the right.
fn last(text: &[u8], separator: u8, quoted: bool) -> Option<usize> {
    let mut inside = false;
    for (at, &byte) in text.iter().enumerate().rev() {
        if quoted && byte == b'"' {
            let escapes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
            if escapes % 2 == 0 {
                inside = !inside;
            }
        } else if byte == separator && !inside {
            return Some(at);
        }
    }
    None
}

/// Returns the value of `for` in an element of `Forwarded`. Returns `None` if the element is not a
/// list of pairs, or if `for` is missing or occurs more than once. Empty pairs are skipped
/// (RFC 7239, section 4, allows them).
pub(crate) fn forwarded_for(element: &[u8]) -> Option<Cow<'_, str>> {
    let mut rest = std::str::from_utf8(element).ok()?;
    let mut found = None;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ';' || c.is_ascii_whitespace());
        if rest.is_empty() {
            return found;
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let value = &after[..end];
                let is_token = !value.is_empty() && !value.contains(|c: char| c == '"' || c.is_whitespace());
                (if is_token { Cow::Borrowed(value) } else { return None }, &after[end..])
            }
        };
        if name.trim_ascii().eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(';') {
            return None;
        }
    }
}

/// Returns the unescaped text before the closing quote, and the rest after the quote.
fn unquote(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut unescaped = String::new();
    let mut from = 0;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' if unescaped.is_empty() => return Some((Cow::Borrowed(&text[from..at]), &text[at + 1..])),
            b'"' => {
                unescaped.push_str(&text[from..at]);
                return Some((Cow::Owned(unescaped), &text[at + 1..]));
            }
            b'\\' => {
                unescaped.push_str(&text[from..at]);
                bytes.next()?;
                from = at + 1;
                if !text.is_char_boundary(from) {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn elements(lines: &[&str], quoted: bool) -> Vec<String> {
        let name = HeaderName::from_static("forwarded");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, HeaderValue::from_str(line).unwrap());
        }
        from_right(&headers, &name, quoted).map(|it| String::from_utf8(it.to_vec()).unwrap()).collect()
    }

    #[test]
    fn several_lines_are_one_list_in_their_order() {
        assert_eq!(elements(&["a, b", "c", "", "d ,e,, "], false), ["e", "d", "c", "b", "a"]);
        assert!(elements(&[], false).is_empty());
    }

    #[test]
    fn a_comma_in_quotes_separates_nothing() {
        assert_eq!(elements(&[r#"for="a,b", for="c\",d""#], true), [r#"for="c\",d""#, r#"for="a,b""#]);
        assert_eq!(elements(&[r#"for="a\\", for=b"#], true), ["for=b", r#"for="a\\""#]);
    }

    #[test]
    fn a_quote_that_a_client_never_closed_swallows_nothing_that_a_proxy_wrote() {
        for client in [r#"for=""#, r#"for="1.1.1.1"#, r#"for="\"#, r#"for=1.1.1.1, for=""#, r#"""""#] {
            let line = format!(r#"{client}, for=9.9.9.9;by="_p,q""#);
            assert_eq!(elements(&[&line], true)[0], r#"for=9.9.9.9;by="_p,q""#, "{client}");
        }
    }

    #[test]
    fn the_parameter_for_is_found_in_any_case_and_place() {
        let found = |element: &str| forwarded_for(element.as_bytes()).map(Cow::into_owned);
        for element in ["for=1.2.3.4", "For=1.2.3.4", "proto=https;FOR=1.2.3.4;by=_x", r#"for="1.2.3.4";"#] {
            assert_eq!(found(element).as_deref(), Some("1.2.3.4"), "{element}");
        }
        assert_eq!(found(r#"by="a;for=6.6.6.6";for="[2001:db8::1]:4711""#).unwrap(), "[2001:db8::1]:4711");
        assert_eq!(found(r#"for="\1.2\.3.4""#).unwrap(), "1.2.3.4");
        for element in [
            "",
            "proto=https",
            "for",
            "for=",
            r#"for=""#,
            r#"for="1.2.3.4"#,
            r#"for="1.2.3.4\"#,
            r#"for="1.2.3.4"x"#,
            "for=1.2.3.4;for=5.6.7.8",
            r#"for=1.2"3.4"#,
            "for=1.2.3.4 5.6.7.8",
        ] {
            assert_eq!(found(element), None, "{element}");
        }
    }
}
