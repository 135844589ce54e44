//! Figures of a cost in a response: numbers in headers, trailers and JSON.

use crate::error::BuildError;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The place of a number in a JSON text: the names, or the indices of arrays, that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath(Box<[Box<str>]>);

impl JsonPath {
    /// Parses names that are separated by dots.
    pub(crate) fn parse(path: &str) -> Result<Self, BuildError> {
        if path.split('.').any(str::is_empty) {
            return Err(BuildError::JsonPath { path: path.to_owned() });
        }
        Ok(Self(path.split('.').map(Box::from).collect()))
    }

    /// Returns the number at this place of a JSON text, if there is a whole one that is not
    /// negative. Of a name that occurs twice in one object, the last one counts.
    ///
    /// What is elsewhere is skipped, and only its structure is checked. So nothing that a client
    /// may have brought into the text hides the number: half a surrogate pair, a number that is too
    /// large, or a thousand brackets.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u64> {
        let mut text = serde_json::Deserializer::from_slice(text);
        let found = Place(&self.0).deserialize(&mut text).ok()?;
        text.end().ok()?;
        found
    }
}

/// Finds the number to which these names lead.
struct Place<'p>(&'p [Box<str>]);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Option<u64>, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<u64>, E> {
        Ok(self.0.is_empty().then_some(number))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Option<u64>, A::Error> {
        let name = self.0.first().map(AsRef::as_ref);
        let mut found = None;
        while let Some(is_it) = object.next_key_seed(Is(name))? {
            if is_it {
                found = object.next_value_seed(Place(&self.0[1..]))?;
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<u64>, A::Error> {
        let index = self.0.first().and_then(|name| {
            let index: usize = name.parse().ok()?;
            // Not `+1` or `01`.
            (index.to_string() == **name).then_some(index)
        });
        for _ in 0..index.unwrap_or(0) {
            if array.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = match index {
            Some(_) => array.next_element_seed(Place(&self.0[1..]))?.flatten(),
            None => None,
        };
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// Returns whether a name is this one. It is read as bytes, because it need not be Unicode.
struct Is<'n>(Option<&'n str>);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        name.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<bool, E> {
        Ok(self.0.is_some_and(|it| it.as_bytes() == name))
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
        let json = json.to_string();
        let find = |path: &str| JsonPath::parse(path).unwrap().find(json.as_bytes());
        assert_eq!(find("usage.total_tokens"), Some(7));
        assert_eq!(find("a/b.~.1"), Some(2));
        assert_eq!(find("most"), Some(u64::MAX));
        for missing in
            ["usage", "usage.cost", "usage.none", "usage.text", "usage.less", "x.y", "total_tokens"]
        {
            assert_eq!(find(missing), None, "{missing}");
        }
    }

    /// As serde_json finds it in the whole text.
    #[test]
    fn a_path_finds_what_a_json_pointer_does() {
        let texts = [
            r#"{"a":{"b":7}}"#,
            r#"{"a":{"b":7},"a":{"b":8}}"#,
            r#"{"a":{"b":7},"a":{}}"#,
            r#"{"a":{"b":7},"a":"x"}"#,
            r#"{"a":{"b":7,"b":null}}"#,
            r#"{"b":{"a":1},"a":[{"b":3},{"b":4}]}"#,
            r#" [ {"b":1}, {"b":18446744073709551615}, [2, {"a":{"b":5}}] ] "#,
            r#"{"1":{"b":6},"a":{"b":9}}"#,
            r#"{"a":{"b":18446744073709551616}}"#,
            r#"{"a":{"b":12.5}}"#,
            r#"{"a":{"b":7.0}}"#,
            r#"{"a":{"b":-1}}"#,
            r#"{"a":{"b":-0}}"#,
            r#"{"a":{"b":1e400}}"#,
            r#"{"a":{"b":true}}"#,
            r#"{"a":{"b":"7"}}"#,
            r#"{"a":{"b":[7]}}"#,
            r#"{"a":{"b":{"b":7}}}"#,
            r#"{"a":{"b":7}} {}"#,
            r#"{"a":{"b":7},}"#,
            r#"{"a":{"b":7}"#,
            r#"[1,2"#,
            "7",
            "",
        ];
        let paths = ["a.b", "a", "b", "1.b", "01.b", "+1.b", "a.1.b", "a.2.b", "2.1.a.b", "a.b.0", "a.b.b"];
        let mut found = 0;
        for (text, path) in texts.iter().flat_map(|text| paths.map(|path| (text, path))) {
            let json: Option<serde_json::Value> = serde_json::from_str(text).ok();
            let pointer = format!("/{}", path.replace('.', "/"));
            let expected = json.and_then(|json| json.pointer(&pointer)?.as_u64());
            assert_eq!(JsonPath::parse(path).unwrap().find(text.as_bytes()), expected, "{path} in {text}");
            found += u64::from(expected.is_some());
        }
        assert_eq!(found, 9);
    }

    #[test]
    fn a_path_with_an_empty_name_is_refused() {
        for path in ["", ".", "usage.", ".usage", "usage..total_tokens"] {
            assert_eq!(JsonPath::parse(path), Err(BuildError::JsonPath { path: path.to_owned() }));
        }
    }
}
