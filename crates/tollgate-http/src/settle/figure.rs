//! Finds the cost stated in a response, as a number in headers, trailers or JSON.

use crate::error::Fault;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// The path to a number in a JSON text. It consists of names and indices of arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath(Box<[Box<str>]>);

impl JsonPath {
    /// Parses names that are separated by dots.
    pub(crate) fn parse(path: &str) -> Result<Self, Fault> {
        // A path of JSONPath would be found in no response.
        if path.split('.').any(str::is_empty) || path.starts_with('$') || path.contains(['[', ']']) {
            return Err(Fault::JsonPath { path: path.to_owned() });
        }
        Ok(Self(path.split('.').map(Box::from).collect()))
    }

    /// Returns the number at this path in a JSON text, if the number is whole and not negative. If
    /// a name occurs twice in one object, the last one counts.
    ///
    /// If the text is an array and the path begins with a name, the path is applied to each
    /// element. The last element that contains the number counts.
    ///
    /// Only the structure of all other parts of the text is checked. A client may have written
    /// these parts, but they cannot hide the number. For example, half a surrogate pair, a number
    /// that is too large, or a thousand brackets are harmless.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u64> {
        let names = Place(&self.0);
        if !text.trim_ascii_start().starts_with(b"[") || names.index().is_some() {
            return parsed(text, names)?;
        }
        parsed(text, PhantomData::<IgnoredAny>)?;
        elements(text).filter_map(|element| parsed(element, Place(&self.0))?).last()
    }
}

/// Parses a whole JSON text.
fn parsed<'t, S: DeserializeSeed<'t>>(text: &'t [u8], seed: S) -> Option<S::Value> {
    let mut text = serde_json::Deserializer::from_slice(text);
    let value = seed.deserialize(&mut text).ok()?;
    text.end().ok().map(|()| value)
}

/// Returns an array's elements. The text must be valid JSON.
fn elements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.trim_ascii();
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    text[1..text.len() - 1].split(move |&byte| {
        if byte == b'"' && !is_escaped {
            in_string = !in_string;
        }
        is_escaped = in_string && byte == b'\\' && !is_escaped;
        match byte {
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
        byte == b',' && depth == 0 && !in_string
    })
}

/// Finds the number to which these names lead.
struct Place<'p>(&'p [Box<str>]);

impl Place<'_> {
    /// Parses the first name as the index of an array. `+1` and `01` are not indices.
    fn index(&self) -> Option<usize> {
        let name = self.0.first()?;
        let index: usize = name.parse().ok()?;
        (index.to_string() == **name).then_some(index)
    }
}

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
        let index = self.index();
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

/// Returns whether a name in the text equals this name. The text is read as bytes, because a name
/// may be invalid Unicode.
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

    /// Finds the figure with serde_json, in the whole text or in the last element of an array that
    /// contains the figure.
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
            r#"[{"a":{"b":1}},{"a":{"b":2}},{"x":",]}\\\"","a":null},"a.b",{}]"#,
            r#" [ {"a":{"b":1},"x":[[{},"]"],{"a":{"b":9}}]} , {"b":[]} ] "#,
            r#"[{"a":{"b":1}},{"a":{"b":2}]"#,
            r#"[[{"a":{"b":1}}]]"#,
            "[]",
            "7",
            "",
        ];
        let paths = ["a.b", "a", "b", "1.b", "01.b", "+1.b", "a.1.b", "a.2.b", "2.1.a.b", "a.b.0", "a.b.b"];
        let mut found = 0;
        for (text, path) in texts.iter().flat_map(|text| paths.map(|path| (text, path))) {
            let json: Option<serde_json::Value> = serde_json::from_str(text).ok();
            let pointer = format!("/{}", path.replace('.', "/"));
            let of = |json: &serde_json::Value| json.pointer(&pointer)?.as_u64();
            let expected = match &json {
                Some(serde_json::Value::Array(elements)) if of(&elements.clone().into()).is_none() => {
                    elements.iter().rev().find_map(of)
                }
                json => json.as_ref().and_then(of),
            };
            assert_eq!(JsonPath::parse(path).unwrap().find(text.as_bytes()), expected, "{path} in {text}");
            found += u64::from(expected.is_some());
        }
        assert_eq!(found, 12);
    }

    #[test]
    fn a_path_with_an_empty_name_or_of_another_language_is_refused() {
        for path in
            ["", ".", "usage.", ".usage", "usage..total_tokens", "$.usage.total_tokens", "$", "a[0].b", "[0]"]
        {
            assert_eq!(JsonPath::parse(path), Err(Fault::JsonPath { path: path.to_owned() }));
        }
    }
}
