//! Figures of a cost in a response: numbers in headers, trailers and JSON.

use crate::error::BuildError;
use http::HeaderName;
use http::header::HeaderMap;
use serde_json::Value;

/// Returns the number in a header or trailer that occurs once and has nothing but digits.
pub(crate) fn in_headers(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let is_number = value.as_bytes().iter().all(u8::is_ascii_digit);
    value.to_str().ok()?.parse().ok().filter(|_| is_number)
}

/// The place of a number in a JSON text, as a JSON Pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath(Box<str>);

impl JsonPath {
    /// Parses names that are separated by dots.
    pub(crate) fn parse(path: &str) -> Result<Self, BuildError> {
        if path.split('.').any(str::is_empty) {
            return Err(BuildError::JsonPath { path: path.to_owned() });
        }
        let escaped = path.replace('~', "~0").replace('/', "~1");
        Ok(Self(format!("/{}", escaped.replace('.', "/")).into()))
    }

    /// Returns the number at this place, if there is a whole one that is not negative.
    pub(crate) fn find(&self, json: &Value) -> Option<u64> {
        json.pointer(&self.0)?.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_finds_whole_numbers_only() {
        let json = serde_json::json!({
            "usage": {"total_tokens": 7, "cost": 0.5, "none": null, "text": "7", "less": -7},
            "a/b": {"~": [1, 2]},
            "most": u64::MAX,
        });
        let find = |path: &str| JsonPath::parse(path).unwrap().find(&json);
        assert_eq!(find("usage.total_tokens"), Some(7));
        assert_eq!(find("a/b.~.1"), Some(2));
        assert_eq!(find("most"), Some(u64::MAX));
        for missing in
            ["usage", "usage.cost", "usage.none", "usage.text", "usage.less", "x.y", "total_tokens"]
        {
            assert_eq!(find(missing), None, "{missing}");
        }
    }

    #[test]
    fn a_path_with_an_empty_name_is_refused() {
        for path in ["", ".", "usage.", ".usage", "usage..total_tokens"] {
            assert_eq!(JsonPath::parse(path), Err(BuildError::JsonPath { path: path.to_owned() }));
        }
    }

    #[test]
    fn a_number_in_headers_occurs_once_and_has_digits_only() {
        let name = HeaderName::from_static("x-tokens");
        let number = |values: &[&str]| {
            let pairs = values.iter().map(|value| (name.clone(), value.parse().unwrap()));
            in_headers(&pairs.collect(), &name)
        };
        assert_eq!(number(&["12"]), Some(12));
        for values in [&[][..], &["12", "12"], &["+12"], &["-1"], &["1.5"], &[""], &["99999999999999999999"]]
        {
            assert_eq!(number(values), None, "{values:?}");
        }
    }
}
