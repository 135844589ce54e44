//! A limit as it is given to a program: `per-ip=100/s burst 20 by ip`.

use super::error::TextError;
use super::printable::printable;
use super::quota::parse_quota;
use crate::key::by::KeyBy;
use crate::limit::named::WhenNoKey;
use std::str::FromStr;
use tollgate::Quota;

/// A named limit: how much, and of whom. See the [form](crate::text#form).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitText {
    /// The name of the limit, by which responses tell it.
    pub name: String,
    /// How much is allowed.
    pub quota: Quota,
    /// Who is limited, as it was written: 'by ip'.
    pub by: String,
    /// `None`: all requests together.
    pub key: Option<KeyText>,
}

/// Who a client is: the first of several alternatives that a request has, each of some parts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyText {
    /// In the order in which they are tried. None is empty.
    pub alternatives: Vec<Vec<Part>>,
    /// What becomes of requests that have none of them.
    pub no_key: WhenNoKey,
}

/// One thing that clients are told apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The address of the client.
    Ip,
    /// The method of the request.
    Method,
    /// The path of the request, without its query.
    Path,
    /// A header field, by its name.
    Header(String),
    /// A parameter of the query, by its name.
    Query(String),
}

const FORM: &str = "NAME=QUOTA by KEY, as in 'per-ip=100/s burst 20 by ip' or 'all=1000/s by nothing'";
const PARTS: &str =
    "ip, method, path, header NAME, query NAME, or several joined with '+', as in ip+path; or nothing";

impl FromStr for LimitText {
    type Err = TextError;

    /// # Errors
    ///
    /// What of the text means nothing, and what is allowed there.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let refused = |why: &str| TextError::new(why);
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
        let quota = parse_quota(rest[..by.0].trim())?;
        let written = printable(rest[by.0..].trim().as_bytes());
        let words: Vec<&str> = words.map(|(_, word)| word).collect();
        Ok(Self { name, quota, by: written, key: key(&words).map_err(|why| refused(&why))? })
    }
}

impl KeyText {
    /// How this key is found in a request, where `client` finds the address.
    ///
    /// # Panics
    ///
    /// If there is no alternative, or one has no part; no text is read as such a key.
    pub fn key_by(&self, client: impl Fn() -> KeyBy) -> KeyBy {
        let part = |part: &Part| match part {
            Part::Ip => client(),
            Part::Method => KeyBy::method(),
            Part::Path => KeyBy::path(),
            Part::Header(name) => KeyBy::header(name),
            Part::Query(name) => KeyBy::query(name),
        };
        let together =
            |parts: &Vec<Part>| parts.iter().map(part).reduce(KeyBy::and).expect("an alternative has a part");
        self.alternatives.iter().map(together).reduce(KeyBy::or).expect("a key has an alternative")
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
        [.., "else"] => return Err("after 'else' there is nothing; allowed: deny, allow, share".to_owned()),
        words => (words, WhenNoKey::Deny),
    };
    let alternatives: Result<_, String> = words.split(|&word| word == "or").map(parts).collect();
    Ok(Some(KeyText { alternatives: alternatives?, no_key }))
}

fn policy_of(word: &str) -> Result<WhenNoKey, String> {
    match word {
        "deny" => Ok(WhenNoKey::Deny),
        "admit" => Ok(WhenNoKey::Allow),
        "share" => Ok(WhenNoKey::Share),
        other => Err(format!(
            "'{}' says nothing about requests without a key; allowed after 'else': deny, allow, share",
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
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<LimitText>().expect_err(text).to_string()
    }

    #[test]
    fn a_limit_has_a_name_a_quota_and_a_key() {
        let limit = parsed("per-ip=100/s burst 20 by ip");
        assert_eq!((limit.name.as_str(), limit.quota), ("per-ip", Quota::per_second(100).burst(20)));
        assert_eq!(limit.by, "by ip");
        let alternatives = vec![vec![Part::Ip]];
        assert_eq!(limit.key, Some(KeyText { alternatives, no_key: WhenNoKey::Deny }));
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
        assert_eq!(key("ip else allow").no_key, WhenNoKey::Allow);
        assert_eq!(key("header x-api-key else share").no_key, WhenNoKey::Share);
    }

    #[test]
    fn what_means_nothing_is_named_with_what_is_allowed() {
        let table = [
            ("100/s", "no '='"),
            ("=100/s by ip", "name before '=' is empty"),
            ("a=100/s", "no 'by'"),
            ("a=100 by ip", "invalid quota"),
            ("a=100/fortnight by ip", "unknown unit \"fortnight\""),
            ("a=1/s by", "a key is missing"),
            ("a=1/s by ip+", "a key is missing"),
            ("a=1/s by ip or", "a key is missing"),
            ("a=1/s by address", "'address' is no key; allowed: ip, method"),
            ("a=1/s by header", "after 'header' there is no name"),
            ("a=1/s by ip else", "after 'else' there is nothing"),
            ("a=1/s by ip else admit", "allowed after 'else': deny, allow, share"),
            ("a=1/s by nothing else deny", "alone"),
            ("a=1/s by \u{1b}[2J", "\\u{1b}"),
        ];
        for (text, part) in table {
            let message = refused(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
