//! A limit as text: `per-ip=100/s burst 20 by ip`.

use super::classes::{self, ClassByText};
use super::error::TextError;
use super::printable::printable;
use super::words::words;
use crate::key::by::KeyBy;
use crate::limit::named::WhenNoKey;
use std::fmt;
use std::str::FromStr;
use tollgate::Quota;

/// A named limit, parsed from text: `per-ip=100/s burst 20 by ip`. See the
/// [form](crate::settings#form-of-a-limit).
///
/// It is written as the text from which an equal limit is parsed. That text may have characters
/// that steer a terminal, if the parsed text had them.
///
/// ```
/// # use tollgate_http::settings::LimitText;
/// let text = "a=10/min class paid 99/min by ip class by header x-class";
/// let limit: LimitText = text.parse()?;
/// assert_eq!((limit.name.as_str(), limit.quota.tokens()), ("a", 10));
/// assert_eq!(limit.classes[0].0, "paid");
/// assert_eq!(limit.to_string(), text);
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitText {
    /// The name of the limit, which responses show.
    pub name: String,
    /// The quota of each key.
    pub quota: Quota,
    /// The names and the quotas of the classes of callers, besides the default class. There are
    /// none if all requests are counted together.
    pub classes: Vec<(String, Quota)>,
    /// The key; `None` if all requests are counted together.
    pub(crate) key: Option<KeyText>,
    /// How the class of a request is found; `None` without classes.
    pub(crate) class_by: Option<ClassByText>,
}

/// A key with alternatives: the first whose parts are all in the request is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyText {
    /// The alternatives, in the order in which they are tried. Each has at least one part.
    pub alternatives: Vec<Vec<PartText>>,
    /// What happens to requests that have none of them.
    pub no_key: WhenNoKey,
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartText {
    /// The address of the client, found as the program chooses: see [`KeyText::key_by`].
    Ip,
    /// The method of the request.
    Method,
    /// The path of the request, without its query, as the program counts it: see
    /// [`KeyText::key_by`].
    Path,
    /// The header with this name.
    Header(String),
    /// The query parameter with this name.
    Query(String),
    /// A header or a query parameter, if its value is a line of a file.
    Known {
        /// The header or the query parameter.
        part: Box<Self>,
        /// The file: see [`KeyBy::known_file`].
        file: String,
    },
}

const FORM: &str = "NAME=QUOTA by KEY, as in `per-ip=100/s burst 20 by ip` or `all=1000/s by nothing`";
const PARTS: &str = "`ip`, `method`, `path`, `header NAME`, `query NAME` (both also with `known FILE`), several \
    joined with `+`, as in `ip+path`, or `nothing`";

impl FromStr for LimitText {
    type Err = TextError;

    /// # Errors
    ///
    /// A [`TextError`] that says what is wrong and what is expected.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let refused = |why: &str| TextError::new(why);
        let invalid = |how: &str| {
            refused(&format!("invalid limit `{}` {how}: expected {FORM}", printable(text.as_bytes())))
        };
        let (name, rest) = text.split_once('=').ok_or_else(|| invalid("without `=`"))?;
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err(invalid("with an empty name"));
        }
        let mut words = words(rest);
        let by = words.find(|&(_, word)| word == "by").ok_or_else(|| invalid("without `by`"))?;
        let (quota, classes) = classes::quotas(&rest[..by.0])?;
        let words: Vec<&str> = words.map(|(_, word)| word).collect();
        let (words, class_by) = classes::split(&words);
        let key = key(words).map_err(|why| refused(&why))?;
        let class_by = classes::class_by(&classes, class_by, key.is_some()).map_err(|why| refused(&why))?;
        Ok(Self { name, quota, classes, key, class_by })
    }
}

impl KeyText {
    /// Returns the [`KeyBy`] of this key; `client` makes the one for [`PartText::Ip`] and `path`
    /// the one for [`PartText::Path`]. The files of known keys are read now.
    ///
    /// # Panics
    ///
    /// If there is no alternative, or one has no part. A parsed key has both.
    pub fn key_by(&self, client: impl Fn() -> KeyBy, path: impl Fn() -> KeyBy) -> KeyBy {
        let part = |part: &PartText| part.key_by(&client, &path);
        let together = |parts: &Vec<PartText>| {
            parts.iter().map(part).reduce(KeyBy::and).expect("an alternative has a part")
        };
        self.alternatives.iter().map(together).reduce(KeyBy::or).expect("a key has an alternative")
    }
}

impl PartText {
    fn key_by(&self, client: &impl Fn() -> KeyBy, path: &impl Fn() -> KeyBy) -> KeyBy {
        match self {
            Self::Ip => client(),
            Self::Method => KeyBy::method(),
            Self::Path => path(),
            Self::Header(name) => KeyBy::header(name),
            Self::Query(name) => KeyBy::query(name),
            Self::Known { part, file } => part.key_by(client, path).known_file(file),
        }
    }
}

impl fmt::Display for LimitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.quota)?;
        for (name, quota) in &self.classes {
            write!(f, " class {name} {quota}")?;
        }
        f.write_str(" by ")?;
        match &self.key {
            Some(key) => key.fmt(f)?,
            None => f.write_str("nothing")?,
        }
        self.class_by.as_ref().map_or(Ok(()), |by| write!(f, " {by}"))
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, parts) in self.alternatives.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { " or " })?;
            for (number, part) in parts.iter().enumerate() {
                write!(f, "{}{part}", if number == 0 { "" } else { "+" })?;
            }
        }
        match self.no_key {
            WhenNoKey::Deny => Ok(()),
            WhenNoKey::Allow => f.write_str(" else allow"),
            WhenNoKey::Share => f.write_str(" else share"),
        }
    }
}

impl fmt::Display for PartText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Known { part, file } => write!(f, "{part} known {file}"),
        }
    }
}

fn key(words: &[&str]) -> Result<Option<KeyText>, String> {
    if words == ["nothing"] {
        return Ok(None);
    }
    let (words, no_key) = match words {
        [words @ .., "else", policy] => (words, policy_of(policy)?),
        [.., "else"] => {
            return Err("missing word after `else`: expected `deny`, `allow` or `share`".to_owned());
        }
        words => (words, WhenNoKey::Deny),
    };
    let alternatives: Result<_, String> = words.split(|&word| word == "or").map(parts).collect();
    Ok(Some(KeyText { alternatives: alternatives?, no_key }))
}

fn policy_of(word: &str) -> Result<WhenNoKey, String> {
    match word {
        "deny" => Ok(WhenNoKey::Deny),
        "allow" => Ok(WhenNoKey::Allow),
        "share" => Ok(WhenNoKey::Share),
        other => Err(format!(
            "invalid word `{}` after `else`: expected `deny`, `allow` or `share`",
            printable(other.as_bytes())
        )),
    }
}

fn parts(words: &[&str]) -> Result<Vec<PartText>, String> {
    words.split(|&word| word == "+").map(part).collect()
}

fn part(words: &[&str]) -> Result<PartText, String> {
    match words {
        ["ip"] => Ok(PartText::Ip),
        ["method"] => Ok(PartText::Method),
        ["path"] => Ok(PartText::Path),
        ["header", name] => Ok(PartText::Header((*name).to_owned())),
        ["query", name] => Ok(PartText::Query((*name).to_owned())),
        [one @ ("header" | "query"), name, "known", file] => {
            Ok(PartText::Known { part: Box::new(part(&[*one, *name])?), file: (*file).to_owned() })
        }
        [.., "known"] => Err(
            "missing file after `known`: expected a file with one key a line, as in `header x-api-key known \
             /etc/tollgate/keys`; its name has no space and no `+`"
                .to_owned(),
        ),
        [] => Err(format!("missing key: expected {PARTS}")),
        [one @ ("header" | "query")] => Err(format!(
            "missing name after `{one}`: expected `header NAME` or `query NAME`, as in `header x-api-key`"
        )),
        ["nothing"] => {
            Err("`nothing` beside other words: expected it alone, for all requests together".to_owned())
        }
        others => {
            let others = printable(others.join(" ").as_bytes());
            Err(format!("invalid key `{others}`: expected {PARTS}"))
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
        assert_eq!(limit.to_string(), "per-ip=100/s burst 20 by ip");
        let alternatives = vec![vec![PartText::Ip]];
        assert_eq!(limit.key, Some(KeyText { alternatives, no_key: WhenNoKey::Deny }));
        assert_eq!(parsed("all = 1000 / s by nothing").key, None);
    }

    #[test]
    fn keys_have_parts_alternatives_and_a_policy() {
        let header = || PartText::Header("x-api-key".to_owned());
        let key = |text: &str| parsed(&format!("a=1/s by {text}")).key.expect("a key");
        assert_eq!(key("ip+path").alternatives, [[PartText::Ip, PartText::Path]]);
        assert_eq!(key("header x-api-key + method").alternatives, [[header(), PartText::Method]]);
        assert_eq!(
            key("header x-api-key or query key or ip").alternatives,
            [[header()], [PartText::Query("key".to_owned())], [PartText::Ip]]
        );
        let known = PartText::Known { part: Box::new(header()), file: "/etc/keys".to_owned() };
        assert_eq!(
            key("header x-api-key known /etc/keys+method or ip").alternatives,
            [vec![known, PartText::Method], vec![PartText::Ip]]
        );
        assert_eq!(key("ip else allow").no_key, WhenNoKey::Allow);
        assert_eq!(key("header x-api-key else share").no_key, WhenNoKey::Share);
    }

    #[test]
    fn a_limit_has_classes_and_a_way_to_find_them() {
        let text = "a=10/min class paid 1000/min burst 50 class partner 5/s by header x-api-key known f or ip \
            else share class by header x-class";
        let limit = parsed(text);
        assert_eq!(limit.to_string(), text);
        assert_eq!(limit.classes[0], ("paid".to_owned(), Quota::per_minute(1000).burst(50)));
        assert_eq!((limit.classes[1].0.as_str(), limit.classes.len()), ("partner", 2));
        assert_eq!(limit.class_by, Some(ClassByText::Header("x-class".to_owned())));
        let by = |text: &str| parsed(&format!("a=1/s class b 2/s by ip {text}")).class_by.unwrap();
        let (header, file) = ("k".to_owned(), "/etc/classes".to_owned());
        assert_eq!(by("class by header k in /etc/classes"), ClassByText::HeaderIn { header, file });
        let (parameter, file) = ("k".to_owned(), "f".to_owned());
        assert_eq!(by("class by query k in f"), ClassByText::QueryIn { parameter, file });
        // Words of the form are names, too.
        let odd = parsed("class=1/s class header 2/s by header class class by header class");
        assert_eq!(odd.to_string(), "class=1/s class header 2/s by header class class by header class");
        assert_eq!(parsed("a=1/s by header class").class_by, None);
    }

    #[test]
    fn what_means_nothing_is_named_with_what_is_allowed() {
        let table = [
            ("100/s", "invalid limit `100/s` without `=`: expected NAME=QUOTA by KEY"),
            ("=100/s by ip", "with an empty name"),
            ("a=100/s", "without `by`"),
            ("a=100 by ip", "invalid quota"),
            ("a=100/fortnight by ip", "unknown unit \"fortnight\""),
            ("a=1/s by", "missing key"),
            ("a=1/s by ip+", "missing key"),
            ("a=1/s by ip or", "missing key"),
            ("a=1/s by address", "invalid key `address`: expected `ip`, `method`"),
            ("a=1/s by header", "missing name after `header`"),
            ("a=1/s by header k known", "missing file after `known`: expected a file with one key a line"),
            ("a=1/s by ip known keys", "invalid key `ip known keys`: expected `ip`, `method`"),
            ("a=1/s by header k known a b", "invalid key `header k known a b`: expected"),
            ("a=1/s by ip else", "missing word after `else`"),
            ("a=1/s by ip else admit", "after `else`: expected `deny`, `allow` or `share`"),
            ("a=1/s by nothing else deny", "alone"),
            ("a=1/s by \u{1b}[2J", "\\u{1b}"),
            ("a=1/s class by ip", "missing name after `class `: expected `class NAME QUOTA`"),
            ("a=1/s class paid by ip", "missing quota after `class paid`"),
            ("a=1/s class paid many by ip", "invalid quota"),
            (
                "a=1/s class b 2/s by ip",
                "classes (b) without `class by`, so no request would be of one: expected",
            ),
            ("a=1/s by ip class by header p", "`class by` without classes: expected `class NAME QUOTA`"),
            ("a=1/s class b 2/s by nothing class by header p", "classes (b) with `by nothing`"),
            ("a=1/s class b 2/s by ip class by ip", "invalid `class by ip`: expected `class by header NAME`"),
            ("a=1/s class b 2/s by ip class by query p", "invalid `class by query p`: expected"),
            ("a=1/s class b 2/s by ip class by header p in a b", "invalid `class by header p in a b`"),
            ("a=1/s class b 2/s by ip class by", "invalid `class by `: expected"),
        ];
        for (text, part) in table {
            let message = refused(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
