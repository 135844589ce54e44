//! Parses `RateLimit` and `RateLimit-Policy` with the crate `sfparse`. The layer writes these
//! fields with another crate, `sfv`, so the two crates check each other.

use http::HeaderMap;
use sfparse::{Parser, Value};
use std::collections::BTreeMap;

/// An item of `RateLimit`: the limit's name, `r`, and `t` if it is present.
pub type Left = (String, u64, Option<u64>);

/// An item of `RateLimit-Policy`: the limit's name, `q`, and `w` if it is present.
pub type Policy = (String, u64, Option<u64>);

/// An item of either field: a name and its parameters.
type Item = (String, BTreeMap<String, u64>);

pub fn rate_limit(headers: &HeaderMap) -> Vec<Left> {
    items(headers, "ratelimit", "r", "t")
}

pub fn policies(headers: &HeaderMap) -> Vec<Policy> {
    items(headers, "ratelimit-policy", "q", "w")
}

/// Parses all lines of a field as one list. Each item must have the parameter `need`, and may have
/// the parameter `may`.
fn items(headers: &HeaderMap, field: &str, need: &str, may: &str) -> Vec<(String, u64, Option<u64>)> {
    let lines: Vec<&str> = headers.get_all(field).iter().map(|line| line.to_str().unwrap()).collect();
    let text = lines.join(",");
    let items = list(&text).unwrap_or_else(|error| panic!("{field}: {text}: {error}"));
    let item = |(name, mut parameters): Item| {
        let first = parameters.remove(need).unwrap_or_else(|| panic!("no {need} in {text}"));
        let second = parameters.remove(may);
        assert!(parameters.is_empty(), "{parameters:?} in {text}");
        (name, first, second)
    };
    items.into_iter().map(item).collect()
}

/// Parses a list of strings whose parameters are whole numbers. An item must not contain a
/// parameter twice.
fn list(text: &str) -> Result<Vec<Item>, String> {
    let mut parser = Parser::new(text.as_bytes());
    let mut items = Vec::new();
    while let Some(value) = parser.parse_list().map_err(|error| error.to_string())? {
        let Value::String { range, escape } = value else {
            return Err(format!("expected a String, not {value}"));
        };
        let name = &text[range];
        let name = if escape { name.replace("\\\"", "\"").replace("\\\\", "\\") } else { name.to_owned() };
        let mut parameters = BTreeMap::new();
        while let Some((key, value)) = parser.parse_param().map_err(|error| error.to_string())? {
            let Value::Integer(number) = value else {
                return Err(format!("expected an Integer, not {value}"));
            };
            let number = u64::try_from(number).map_err(|error| error.to_string())?;
            if parameters.insert(key.to_owned(), number).is_some() {
                return Err(format!("{key} is there twice"));
            }
        }
        items.push((name, parameters));
    }
    Ok(items)
}

#[test]
fn the_examples_of_the_draft_are_read_and_what_is_no_such_list_is_refused() {
    let mut headers = HeaderMap::new();
    headers.append("ratelimit-policy", r#""burst";q=100;w=60,"daily";q=1000;w=86400"#.parse().unwrap());
    headers.append("ratelimit", r#""burst";r=50;t=30"#.parse().unwrap());
    headers.append("ratelimit", r#""a \"b\"";r=0"#.parse().unwrap());
    let policies = policies(&headers);
    assert_eq!(policies, [("burst".into(), 100, Some(60)), ("daily".into(), 1000, Some(86400))]);
    assert_eq!(rate_limit(&headers), [("burst".into(), 50, Some(30)), ("a \"b\"".into(), 0, None)]);
    for text in [
        "burst;r=1",
        r#""burst";r=1,"#,
        r#""burst";r=1;"#,
        r#""burst";r=1.5"#,
        r#""burst";r=-1"#,
        r#""burst";r="1""#,
        r#""burst";r"#,
        r#""burst;r=1"#,
        r#""burst"; r=1 "daily";r=1"#,
        r#""burst";r=1;r=2"#,
        r#""burst";r=1000000000000000"#,
        r#""bürst";r=1"#,
        r#"("burst");r=1"#,
    ] {
        assert!(list(text).is_err(), "{text}: {:?}", list(text));
    }
}
