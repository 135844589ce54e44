//! Finds the cost stated in a response, as a number in headers, trailers or JSON.

use crate::error::Fault;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

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
        // Invalid Unicode is replaced, because it can only be part of strings.
        let text = String::from_utf8_lossy(text);
        let Self(names) = self;
        if let (None, Some(elements)) = (index(&names[0]), elements(&text)) {
            return elements.iter().rev().find_map(|element| number(element.get(), names));
        }
        number(&text, names)
    }
}

/// Returns the number to which these names lead from a JSON text.
fn number(text: &str, names: &[Box<str>]) -> Option<u64> {
    names.iter().try_fold(text, |text, name| value(text, name))?.parse().ok()
}

/// Returns the value with this name in an object, or with this index in an array.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let of_array = || elements(text)?.get(index(name)?).copied();
    let of_object = || {
        let mut text = serde_json::Deserializer::from_str(text);
        let found = text.deserialize_map(Member(name)).ok()?;
        text.end().ok().and(found)
    };
    of_array().or_else(of_object).map(RawValue::get)
}

/// Returns the elements of a text that is an array.
fn elements(text: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(text).ok()
}

/// Parses the index of an array. `+1` and `01` are not indices.
fn index(name: &str) -> Option<usize> {
    name.parse().ok().filter(|index: &usize| index.to_string() == name)
}

/// Finds the last value with this name in an object.
struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some((name, value)) = object.next_entry::<&RawValue, &RawValue>()? {
            // A name that is half a surrogate pair is not a string, and thus another name.
            if serde_json::from_str::<String>(name.get()).is_ok_and(|name| name == self.0) {
                found = Some(value);
            }
        }
        Ok(found)
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
