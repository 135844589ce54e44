//! A limit as it is given to the proxy: `per-ip=100/s burst 20 by ip`.

use tollgate::Quota;
use tollgate::http::NoKey;

use crate::replay::{Failure, parse_limit, printable};

/// What `--limit` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitText {
    pub(crate) name: String,
    pub(crate) quota: Quota,
    /// Who is limited, as it was written: 'by ip'.
    pub(crate) by: String,
    /// `None`: all requests together.
    pub(crate) key: Option<KeyText>,
}

/// Who a client is: the first of several alternatives that a request has, each of some parts together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyText {
    pub(crate) alternatives: Vec<Vec<Part>>,
    pub(crate) no_key: NoKey,
}

/// One thing that clients are told apart by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Ip,
    Method,
    Path,
    Header(String),
    Query(String),
}

const FORM: &str = "NAME=QUOTA by KEY, as in 'per-ip=100/s burst 20 by ip' or 'all=1000/s by nothing'";
const PARTS: &str =
    "ip, method, path, header NAME, query NAME, or several joined with '+', as in ip+path; or nothing";

impl LimitText {
    /// # Errors
    ///
    /// What of the text means nothing, and what is allowed there.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let shown = printable(text.as_bytes());
        let refused = |why: &str| Failure::refused(format!("--limit '{shown}': {why}"));
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| refused(&format!("there is no '=' after a name; allowed: {FORM}")))?;
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err(refused(&format!("the name before '=' is empty; allowed: {FORM}")));
        }
        let mut words = words(rest);
        let by = words
            .find(|&(_, word)| word == "by")
            .ok_or_else(|| refused(&format!("there is no 'by' that says who is limited; allowed: {FORM}")))?;
        let quota = parse_limit(rest[..by.0].trim(), format!("--limit '{shown}'"))?;
        let written = printable(rest[by.0..].trim().as_bytes());
        let words: Vec<&str> = words.map(|(_, word)| word).collect();
        Ok(Self { name, quota, by: written, key: key(&words).map_err(|why| refused(&why))? })
    }
}

/// The words of a text and where they begin; a plus sign is a word.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let at = rest + text[rest..].find(|c: char| !c.is_whitespace())?;
        let word = &text[at..];
        let length = match word.find(|c: char| c.is_whitespace() || c == '+') {
            Some(0) => 1,
            Some(end) => end,
            None => word.len(),
        };
        rest = at + length;
        Some((at, &text[at..rest]))
    })
}

fn key(words: &[&str]) -> Result<Option<KeyText>, String> {
    if words == ["nothing"] {
        return Ok(None);
    }
    let (words, no_key) = match words {
        [words @ .., "else", policy] => (words, policy_of(policy)?),
        [.., "else"] => return Err("after 'else' there is nothing; allowed: deny, admit, share".to_owned()),
        words => (words, NoKey::Deny),
    };
    let alternatives: Result<_, String> = words.split(|&word| word == "or").map(parts).collect();
    Ok(Some(KeyText { alternatives: alternatives?, no_key }))
}

fn policy_of(word: &str) -> Result<NoKey, String> {
    match word {
        "deny" => Ok(NoKey::Deny),
        "admit" => Ok(NoKey::Allow),
        "share" => Ok(NoKey::Shared),
        other => Err(format!(
            "'{}' says nothing about requests without a key; allowed after 'else': deny, admit, share",
            printable(other.as_bytes())
        )),
    }
}

fn parts(words: &[&str]) -> Result<Vec<Part>, String> {
    words.split(|&word| word == "+").map(part).collect()
}

fn part(words: &[&str]) -> Result<Part, String> {
    match words {
        ["ip"] => Ok(Part::Ip),
        ["method"] => Ok(Part::Method),
        ["path"] => Ok(Part::Path),
        ["header", name] => Ok(Part::Header((*name).to_owned())),
        ["query", name] => Ok(Part::Query((*name).to_owned())),
        [] => Err(format!("a key is missing; allowed: {PARTS}")),
        [one @ ("header" | "query")] => Err(format!(
            "after '{one}' there is no name; allowed: header NAME, query NAME, as in header x-api-key"
        )),
        ["nothing"] => {
            Err("'nothing' stands for all requests together, alone; leave out what is beside it".to_owned())
        }
        others => {
            let others = printable(others.join(" ").as_bytes());
            Err(format!("'{others}' is no key; allowed: {PARTS}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> LimitText {
        LimitText::parse(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"))
    }

    fn refused(text: &str) -> String {
        match LimitText::parse(text) {
            Err(Failure::Refused(message)) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_limit_has_a_name_a_quota_and_a_key() {
        let limit = parsed("per-ip=100/s burst 20 by ip");
        assert_eq!((limit.name.as_str(), limit.quota), ("per-ip", Quota::per_second(100).burst(20)));
        assert_eq!(limit.by, "by ip");
        let alternatives = vec![vec![Part::Ip]];
        assert_eq!(limit.key, Some(KeyText { alternatives, no_key: NoKey::Deny }));
        assert_eq!(parsed("all = 1000 / s by nothing").key, None);
    }

    #[test]
    fn keys_have_parts_alternatives_and_a_policy() {
        let header = || Part::Header("x-api-key".to_owned());
        let key = |text: &str| parsed(&format!("a=1/s by {text}")).key.expect("a key");
        assert_eq!(key("ip+path").alternatives, [[Part::Ip, Part::Path]]);
        assert_eq!(key("header x-api-key + method").alternatives, [[header(), Part::Method]]);
        assert_eq!(
            key("header x-api-key or query key or ip").alternatives,
            [[header()], [Part::Query("key".to_owned())], [Part::Ip]]
        );
        assert_eq!(key("ip else admit").no_key, NoKey::Allow);
        assert_eq!(key("header x-api-key else share").no_key, NoKey::Shared);
    }

    #[test]
    fn what_means_nothing_is_named_with_what_is_allowed() {
        let table = [
            ("100/s", "no '='"),
            ("=100/s by ip", "name before '=' is empty"),
            ("a=100/s", "no 'by'"),
            ("a=100 by ip", "bad quota"),
            ("a=100/fortnight by ip", "\"fortnight\" is no unit"),
            ("a=1/s by", "a key is missing"),
            ("a=1/s by ip+", "a key is missing"),
            ("a=1/s by ip or", "a key is missing"),
            ("a=1/s by address", "'address' is no key; allowed: ip, method"),
            ("a=1/s by header", "after 'header' there is no name"),
            ("a=1/s by ip else", "after 'else' there is nothing"),
            ("a=1/s by ip else allow", "allowed after 'else': deny, admit, share"),
            ("a=1/s by nothing else deny", "alone"),
            ("a=1/s by \u{1b}[2J", "\\u{1b}"),
        ];
        for (text, part) in table {
            let message = refused(text);
            assert!(message.contains(part) && message.starts_with("--limit '"), "{text}: {message}");
        }
    }
}
