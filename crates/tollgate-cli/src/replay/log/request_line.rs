//! Splits request lines, which text logs contain in quotes, and other logs in a field.

use http::Method;
use memchr::{memchr, memrchr};

use super::request::MISSING;

/// A part of a request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Method,
    Target,
    Protocol,
}

impl Part {
    /// Returns the part that the field with this name contains.
    pub(crate) fn named(field: &str) -> Option<Self> {
        match field {
            "method" => Some(Self::Method),
            "uri" => Some(Self::Target),
            "protocol" => Some(Self::Protocol),
            _ => None,
        }
    }

    /// Returns this part of a request line, or `-` if the text is not a request line.
    #[inline]
    pub(crate) fn of_line(self, line: &[u8]) -> &[u8] {
        match self {
            Self::Method => RequestLine::method_of(line),
            Self::Target => RequestLine::split(line).uri,
            Self::Protocol => RequestLine::split(line).protocol,
        }
    }

    /// Returns this part of a value that is a whole request line, such as nginx's `$request`.
    /// Returns any other value unchanged.
    #[inline]
    pub(crate) fn of(self, value: &[u8]) -> &[u8] {
        // A target begins with a slash, so it is not a request line, even if it contains spaces.
        if value.starts_with(b"/") || memchr(b' ', value).is_none() {
            return value;
        }
        match Self::Protocol.of_line(value) == MISSING {
            true => value,
            false => self.of_line(value),
        }
    }
}

/// `METHOD URI PROTOCOL`, or `METHOD URI` as in HTTP/0.9.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestLine<'l> {
    pub(crate) method: &'l [u8],
    pub(crate) uri: &'l [u8],
    pub(crate) protocol: &'l [u8],
}

impl<'l> RequestLine<'l> {
    /// Returns the method, as [`split`](Self::split) does, but faster for most requests.
    #[inline]
    pub(crate) fn method_of(request: &'l [u8]) -> &'l [u8] {
        let letters = request.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        match request[letters..] {
            [b' ', b'/', ..] if letters > 0 => &request[..letters],
            _ => Self::split(request).method,
        }
    }

    pub(crate) fn split(request: &'l [u8]) -> Self {
        let none = Self { method: MISSING, uri: MISSING, protocol: MISSING };
        let Some(space) = memchr(b' ', request) else { return none };
        let (method, rest) = (&request[..space], &request[space + 1..]);
        // Methods consist of letters, and some WebDAV methods also contain a hyphen. Before a URI
        // and a protocol, any other token is also a method.
        let letters = method.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
        // A URI may contain unescaped spaces, so only the last word of the line can be the
        // protocol.
        let (uri, protocol) = match memrchr(b' ', rest) {
            Some(space) if rest[space + 1..].starts_with(b"HTTP/") => (&rest[..space], &rest[space + 1..]),
            _ => (rest, MISSING),
        };
        let is_method = letters || (protocol != MISSING && Method::from_bytes(method).is_ok());
        if !is_method || method.is_empty() || method == MISSING || uri.is_empty() {
            return none;
        }
        Self { method, uri, protocol }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_method_is_the_one_of_the_split_line(request in "[Aa/ :-]{0,8}( HTTP/1.1)?") {
            let request = request.as_bytes();
            prop_assert_eq!(RequestLine::method_of(request), RequestLine::split(request).method);
        }
    }
}
