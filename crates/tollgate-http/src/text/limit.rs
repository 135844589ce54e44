//! A limit as text: `logins=5/min by ip for POST /login`.

use super::allowance::{Allowance, Allowances};
use super::classes::{self, ClassByText, ClassText, ListedText};
use super::error::TextError;
#[cfg(feature = "unstable-program")]
use super::fact::Fact;
use super::printable::printable;
use super::scope::Scope;
use super::words::Words;
use crate::key::by::{KeyBy, NOT_IN_PARAMETERS};
use crate::limit::named::WhenNoKey;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tollgate::Quota;

/// A named limit, parsed from text: `per-ip=100/s burst 20 by ip`. See the
/// [form](crate::settings#form-of-a-limit).
///
/// The output of `Display` can be parsed into an equal limit. If the parsed text contained terminal
/// control characters, the output contains them as well.
///
/// ```
/// # use tollgate_http::settings::LimitText;
/// let text = "a=10/min class paid 99/min by ip for POST /login class by header x-class";
/// let limit: LimitText = text.parse()?;
/// assert_eq!(limit.name, "a");
/// assert_eq!(limit.to_string(), text);
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitText {
    /// The name of the limit, which responses show.
    pub name: String,
    /// What each key may do.
    pub(super) allowances: Allowances,
    /// The classes of callers besides the default class.
    pub(super) classes: Vec<ClassText>,
    /// The key; `None` if all requests are counted together.
    pub(crate) key: Option<KeyText>,
    /// The requests to which the limit applies; `None` for all requests.
    pub(crate) only: Option<Scope>,
    /// The requests to which the limit does not apply.
    pub(crate) except: Option<Scope>,
    /// How a request's class is found; `None` without classes.
    pub(crate) class_by: Option<ClassByText>,
    /// How long a refused key is paused; `None` if refusals pause no key.
    pub(super) penalty: Option<Duration>,
}

/// A limit in the form that a layer enforces, with one rate or one number of requests at once.
///
/// A limit's text usually becomes one part. A text with several rates becomes several parts, each
/// with its own name, such as `api-per-s` and `api-per-d`. Each part has the classes in the text,
/// plus one class for each quota that a [file of
/// classes](crate::settings#form-of-a-file-of-classes) assigns to single keys. Such a class is
/// named after the text of its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitPart {
    /// The name, which responses show.
    pub name: String,
    /// The name of the limit in the text.
    pub text_name: String,
    /// What each key of the default class may do.
    pub allowance: Allowance,
    /// The other classes of callers, with the allowance for each of their keys. Empty if all
    /// requests are counted together.
    pub classes: Vec<(String, Allowance)>,
    /// How many classes at the end of `classes` a file has added.
    pub(crate) from_file: usize,
    /// The key; `None` if all requests are counted together.
    pub(crate) key: Option<KeyText>,
    /// How long a refused key is paused; `None` if refusals pause no key.
    pub penalty: Option<Duration>,
}

/// A key with alternatives. A request's key is the first alternative whose parts all occur in the
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyText {
    /// The alternatives, in the order in which they are tried. Each alternative has at least one
    /// part.
    pub alternatives: Vec<Vec<PartText>>,
    /// What happens to requests without any of the alternatives; `None` if the text does not
    /// specify it.
    pub otherwise: Option<WhenNoKey>,
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartText {
    /// The address of the client. The caller of [`KeyText::key_by`] specifies how to find it.
    Ip,
    /// The method of the request.
    Method,
    /// The path of the request without its query. The caller of [`KeyText::key_by`] specifies the
    /// form of the path.
    Path,
    /// The header with this name.
    Header(String),
    /// The query parameter with this name.
    Query(String),
    /// A header or a query parameter, if its value is known.
    Known {
        /// The header or the query parameter.
        part: Box<Self>,
        /// The file of known values: see [`KeyBy::known_file`]. Without this file, the known values
        /// are those in the file of classes.
        file: Option<String>,
    },
}

const FORM: &str = "NAME=QUOTA by KEY, as in `per-ip=100/s burst 20 by ip` or `all=1000/s by nothing`";
const PARTS: &str = "`ip`, `method`, `path`, `header NAME`, `query NAME` (both also with `known FILE`), several \
    joined with `+`, as in `ip+path`, or `nothing`";

/// The words that end a key.
const AFTER_KEY: [&str; 5] = ["else", "for", "except", "class", "then"];

impl FromStr for LimitText {
    type Err = TextError;

    /// # Errors
    ///
    /// Returns a [`TextError`] that describes the mistake and the expected form.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let invalid = |how: &str| {
            TextError::new(format!("invalid limit `{}` {how}: expected {FORM}", printable(text.as_bytes())))
        };
        let (name, rest) = text.split_once('=').ok_or_else(|| invalid("without `=`"))?;
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err(invalid("with an empty name"));
        }
        let mut words = Words::new(rest);
        let mut ahead = words.clone();
        ahead.take_until(|words| words.start_with(&["by"]));
        if ahead.peek().is_none() {
            return Err(invalid("without `by`"));
        }
        let allowances = Allowances::take(&mut words)?;
        let classes = classes::take_classes(&mut words)?;
        words.take("by");
        let key = KeyText::take(&mut words)?;
        let only = words.take("for").then(|| Scope::take(&mut words)).transpose()?;
        let except = words.take("except").then(|| Scope::take(&mut words)).transpose()?;
        let class_by = classes::take_class_by(&mut words)?;
        let penalty = words.take("then").then(|| take_penalty(&mut words)).transpose()?;
        if let Some(word) = words.peek() {
            return Err(TextError::new(format!(
                "`{}` is unexpected here: expected `for ...`, `except ...`, `class by ...` and `then pause ...`, in this \
                 order, or the end",
                printable(word.as_bytes())
            )));
        }
        Self { name, allowances, classes, key, only, except, class_by, penalty }.checked()
    }
}

impl LimitText {
    /// Checks that the parts of the text agree.
    pub(super) fn checked(self) -> Result<Self, TextError> {
        classes::check(&self.classes, self.class_by.as_ref(), self.key.is_some())?;
        let is_listed = matches!(&self.class_by, Some(ClassByText::In { what: ListedText::Key, .. }));
        self.check_penalty()?;
        let parts = self.key.iter().flat_map(|key| key.alternatives.iter().flatten());
        for part in parts {
            part.checked()?;
            if let (PartText::Known { file: None, .. }, false) = (part, is_listed) {
                return Err(TextError::new(
                    "missing file after `known`: expected a file with one key a line, as in `header x-api-key known \
                     /etc/tollgate/keys`, or `class by key in FILE` at the end, whose keys are known then; the name \
                     of a file has no space and no `+`",
                ));
            }
        }
        if let Some(twice) = self.key.as_ref().and_then(KeyText::twice) {
            return Err(TextError::new(format!(
                "`{}` twice in a key, which changes nothing: expected it once",
                printable(twice.as_bytes())
            )));
        }
        let parts = self.parts(&[]);
        let twice = parts
            .iter()
            .enumerate()
            .find(|(place, part)| parts[..*place].iter().any(|earlier| earlier.name == part.name));
        if let Some((_, part)) = twice {
            return Err(TextError::new(format!(
                "two rates would both be called `{}`: expected rates of different periods, as in `10/s and 1000/d`; \
                 leave one of the two out, or make it a separate limit",
                printable(part.name.as_bytes())
            )));
        }
        let dead = self.only.as_ref().zip(self.except.as_ref());
        if let Some((only, except)) = dead.filter(|(only, except)| only.is_within(&[except])) {
            let scopes = printable(format!("for {only} except {except}").as_bytes());
            return Err(TextError::new(format!(
                "`{scopes}` is for no request: expected exceptions that leave some; drop `except`, or the limit"
            )));
        }
        Ok(self)
    }

    /// Checks that a penalty has a key to pause, and a rate whose refusals start it.
    fn check_penalty(&self) -> Result<(), TextError> {
        if self.penalty.is_none() {
            return Ok(());
        }
        if self.key.is_none() {
            return Err(TextError::new(
                "`then pause` with `by nothing`, which would pause all requests after one refusal: expected a key, \
                 such as `ip`",
            ));
        }
        if self.all().any(|it| it.at_once().is_some()) {
            return Err(TextError::new(
                "`then pause` beside `at once`, whose refusals pause no key: expected rates; write `at once` as a \
                 separate limit",
            ));
        }
        let is_listed = matches!(self.class_by, Some(ClassByText::In { .. }));
        if !is_listed && !self.all().any(|it| it.rates().next().is_some()) {
            return Err(TextError::new(
                "`then pause` without a rate, whose refusals would start the pause: expected a quota, as in \
                 `5/min by ip then pause 10min`",
            ));
        }
        Ok(())
    }

    /// Returns the names of the files of known keys and of classes.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn files_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let parts = self.key.iter_mut().flat_map(|key| key.alternatives.iter_mut().flatten());
        let known = parts.filter_map(|part| match part {
            PartText::Known { file, .. } => file.as_mut(),
            _ => None,
        });
        let classes = match &mut self.class_by {
            Some(ClassByText::In { file, .. }) => Some(file),
            Some(ClassByText::Header(_)) | None => None,
        };
        known.chain(classes)
    }

    /// Returns the allowances of the default class and of each class in the text.
    fn all(&self) -> impl Iterator<Item = &Allowances> {
        std::iter::once(&self.allowances).chain(self.classes.iter().map(|(_, it)| it))
    }

    /// Returns whether the text allows everything to everybody. A file of classes may list limited
    /// keys.
    pub(crate) fn limits_nothing(&self) -> bool {
        let is_listed = matches!(self.class_by, Some(ClassByText::In { .. }));
        !is_listed && self.all().all(|it| it.0 == [Allowance::Unlimited])
    }

    /// Returns the parts that together enforce the text. There is one part for each rate, and one
    /// for requests in flight if they are limited. `listed` contains the classes added by a file.
    pub(crate) fn parts(&self, listed: &[ClassText]) -> Vec<LimitPart> {
        let every = || self.all().chain(listed.iter().map(|(_, allowances)| allowances));
        let rates = every().map(|it| it.rates().count()).max().unwrap_or(0);
        let at_once = every().any(|it| it.at_once().is_some());
        let part = |name: String, of: &dyn Fn(&Allowances) -> Option<Allowance>| {
            let of = |it: &Allowances| of(it).unwrap_or_else(|| it.otherwise());
            LimitPart {
                name,
                text_name: self.name.clone(),
                allowance: of(&self.allowances),
                classes: (self.classes.iter().chain(listed))
                    .map(|(name, allowances)| (name.clone(), of(allowances)))
                    .collect(),
                from_file: listed.len(),
                key: self.key.clone(),
                penalty: self.penalty,
            }
        };
        let rate = |number: usize| move |it: &Allowances| it.rates().nth(number).map(Allowance::Rate);
        if rates + usize::from(at_once) <= 1 {
            let only = |it: &Allowances| rate(0)(it).or_else(|| it.at_once());
            return vec![part(self.name.clone(), &only)];
        }
        let mut parts: Vec<LimitPart> = (0..rates)
            .map(|number| {
                let quota = every().find_map(|it| it.rates().nth(number));
                let period = quota.map_or(String::new(), period);
                part(format!("{}-per-{period}", self.name), &rate(number))
            })
            .collect();
        if at_once {
            parts.push(part(format!("{}-at-once", self.name), &Allowances::at_once));
        }
        parts
    }

    /// Parses the class that a file assigns to a key. Returns `None` if the limit has the class.
    /// Otherwise, returns a new class, named after the text of its allowance.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is neither a class name nor a quota.
    pub(crate) fn class_of_text(&self, text: &str) -> Result<Option<ClassText>, TextError> {
        let is_named = text == classes::DEFAULT || self.classes.iter().any(|(name, _)| name == text);
        if is_named {
            return Ok(None);
        }
        Ok(Some((text.to_owned(), Allowances::parse(text)?)))
    }

    /// Returns the facts that the limit reads from a request. A fact may occur more than once.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn facts(&self) -> Vec<Fact> {
        let scopes = self.only.iter().chain(&self.except).flat_map(Scope::facts);
        let key = self.key.iter().flat_map(|key| key.alternatives.iter().flatten()).map(PartText::fact);
        let class = match &self.class_by {
            Some(ClassByText::Header(name)) => Some(Fact::header(name)),
            Some(ClassByText::In { what, .. }) => match what {
                ListedText::Key => None,
                ListedText::Ip => Some(Fact::Ip),
                ListedText::Header(name) => Some(Fact::header(name)),
                ListedText::Query(name) => Some(Fact::Query(name.clone())),
            },
            None => None,
        };
        scopes.chain(key).chain(class).collect()
    }

    /// Returns the names of all classes in the text.
    pub(crate) fn class_names(&self) -> Vec<String> {
        let default = std::iter::once(classes::DEFAULT.to_owned());
        default.chain(self.classes.iter().map(|(name, _)| name.clone())).collect()
    }
}

/// Parses the words after `then`.
pub(super) fn take_penalty(words: &mut Words<'_>) -> Result<Duration, TextError> {
    let mut ahead = words.clone();
    let text = if ahead.take("pause") { ahead.next() } else { None };
    // A quota has the period as its second half, in the same spelling as a penalty.
    let time = text.and_then(|time| format!("1/{time}").parse::<Quota>().ok()).map(|quota| quota.period());
    let time = time.filter(|time| !time.is_zero());
    *words = ahead;
    time.ok_or_else(|| {
        TextError::new(format!(
            "invalid words after `then`: expected `pause` and a time from 1ns to {:?}, as in `then pause 10min`",
            Quota::MAX_PERIOD
        ))
    })
}

/// Returns a quota's period as text, such as `s` for `10/s` or `10s` for `5/10s`.
fn period(quota: Quota) -> String {
    let text = Quota::new(quota.tokens(), quota.period()).to_string();
    text.split_once('/').map_or(String::new(), |(_, period)| period.to_owned())
}

impl KeyText {
    /// Parses a key and its `else`. Returns `None` for `nothing`.
    pub(super) fn take(words: &mut Words<'_>) -> Result<Option<Self>, TextError> {
        if words.take("nothing") {
            return match words.peek().filter(|word| !AFTER_KEY[1..].contains(word)) {
                None => Ok(None),
                Some(_) => Err(TextError::new(
                    "`nothing` beside other words of a key: expected it alone, for all requests together",
                )),
            };
        }
        let mut alternatives = vec![vec![PartText::take(words)?]];
        loop {
            let mut ahead = words.clone();
            match ahead.next_of_key() {
                Some("+") => {
                    *words = ahead;
                    let part = PartText::take(words)?;
                    alternatives.last_mut().expect("there is one").push(part);
                }
                Some("or") => {
                    *words = ahead;
                    alternatives.push(vec![PartText::take(words)?]);
                }
                _ => break,
            }
        }
        let otherwise = words.take("else").then(|| policy_of(words.next())).transpose();
        let otherwise = otherwise.map_err(TextError::new)?;
        Ok(Some(Self { alternatives, otherwise }))
    }

    /// Returns what happens to requests without a key.
    pub fn no_key(&self) -> WhenNoKey {
        self.otherwise.unwrap_or(WhenNoKey::Deny)
    }

    /// Returns a text that is equal for keys that have the same values. Which values are known, and
    /// what happens to requests without a key, makes no difference.
    pub(crate) fn values(&self) -> String {
        let part = |part: &PartText| match part {
            PartText::Known { part, .. } => part.to_string(),
            part => part.to_string(),
        };
        let all = self.alternatives.iter().map(|parts| parts.iter().map(part).collect::<Vec<_>>().join("+"));
        all.collect::<Vec<_>>().join(" or ")
    }

    /// Returns a part that occurs twice in an alternative, or an alternative that occurs twice.
    fn twice(&self) -> Option<String> {
        let alternatives: Vec<String> = self.alternatives.iter().map(|parts| joined(parts)).collect();
        let parts = self.alternatives.iter().map(|parts| parts.iter().map(PartText::to_string).collect());
        let mut lists = parts.chain([alternatives]);
        lists.find_map(|list: Vec<String>| {
            list.iter().enumerate().find(|(place, it)| list[..*place].contains(it)).map(|(_, it)| it.clone())
        })
    }

    /// Returns the part of the text that no request ever reaches, because it follows a key that
    /// every request has.
    pub(crate) fn unreached(&self) -> Option<String> {
        let is_always = |parts: &Vec<PartText>| parts.iter().all(PartText::is_always);
        let always = self.alternatives.iter().position(is_always)?;
        let next = self.alternatives.get(always + 1);
        let text = |parts: &[PartText]| format!("or {}", joined(parts));
        next.map(|parts| text(parts)).or_else(|| self.otherwise.map(|it| format!("else {}", word_of(it))))
    }

    /// Converts this key to a [`KeyBy`]. `client` creates the `KeyBy` for [`PartText::Ip`], and
    /// `path` creates the `KeyBy` for [`PartText::Path`]. This call reads the files of known keys.
    /// If a part names no file, `known` returns the part's known keys, given the indices of the
    /// alternative and of the part.
    ///
    /// # Panics
    ///
    /// Panics if there is no alternative, or if an alternative has no part. This never happens for
    /// a parsed key.
    pub fn key_by(
        &self,
        client: impl Fn() -> KeyBy,
        path: impl Fn() -> KeyBy,
        known: impl Fn(usize, usize) -> Option<Vec<Box<[u8]>>>,
    ) -> KeyBy {
        let part = |place: (usize, usize), part: &PartText| {
            let by = part.key_by(&client, &path);
            match part {
                PartText::Known { file: None, .. } => match known(place.0, place.1) {
                    Some(known) => by.known(known),
                    None => by,
                },
                _ => by,
            }
        };
        let together = |(number, parts): (usize, &Vec<PartText>)| {
            let parts = parts.iter().enumerate().map(|(place, it)| part((number, place), it));
            parts.reduce(KeyBy::and).expect("an alternative has a part")
        };
        let all = self.alternatives.iter().enumerate().map(together);
        all.reduce(KeyBy::or).expect("a key has an alternative")
    }
}

impl PartText {
    #[cfg(feature = "unstable-program")]
    fn fact(&self) -> Fact {
        match self {
            Self::Ip => Fact::Ip,
            Self::Method => Fact::Method,
            Self::Path => Fact::Path,
            Self::Header(name) => Fact::header(name),
            Self::Query(name) => Fact::Query(name.clone()),
            Self::Known { part, .. } => part.fact(),
        }
    }

    fn take(words: &mut Words<'_>) -> Result<Self, TextError> {
        let ends = |word: &str| word == "+" || word == "or" || AFTER_KEY.contains(&word);
        let mut start = words.clone();
        let mut ahead = words.clone();
        let Some(first) = ahead.next_of_key().filter(|word| !ends(word)) else {
            return Err(TextError::new(format!("missing key: expected {PARTS}")));
        };
        *words = ahead;
        let part = match first {
            "ip" => Some(Self::Ip),
            "method" => Some(Self::Method),
            "path" => Some(Self::Path),
            "header" | "query" => {
                let name = words.next_of_key().filter(|&word| word != "+");
                let name = name.ok_or_else(|| {
                    TextError::new(format!(
                        "missing name after `{first}`: expected `header NAME` or `query NAME`, as in `header x-api-key`"
                    ))
                })?;
                let name = name.to_owned();
                Some(if first == "header" { Self::Header(name) } else { Self::Query(name) })
            }
            "nothing" => {
                return Err(TextError::new(
                    "`nothing` beside other words of a key: expected it alone, for all requests together",
                ));
            }
            _ => None,
        };
        let mut next = words.clone();
        let mut following = next.next_of_key();
        let part = match part {
            Some(part @ (Self::Header(_) | Self::Query(_))) if following == Some("known") => {
                *words = next.clone();
                let file = next.next_of_key().filter(|word| !ends(word)).map(str::to_owned);
                if file.is_some() {
                    *words = next;
                }
                following = words.clone().next_of_key();
                Some(Self::Known { part: Box::new(part), file })
            }
            part => part,
        };
        match part {
            Some(part) if following.is_none_or(ends) => Ok(part),
            _ => {
                let all = std::iter::from_fn(|| start.next_of_key().filter(|word| !ends(word)));
                let others = all.collect::<Vec<&str>>().join(" ");
                let others = printable(others.as_bytes());
                Err(TextError::new(format!("invalid key `{others}`: expected {PARTS}")))
            }
        }
    }

    /// Returns an error if the text for a query parameter contains more than the parameter's name.
    fn checked(&self) -> Result<(), TextError> {
        match self {
            Self::Query(name) if name.contains(NOT_IN_PARAMETERS) => Err(TextError::new(format!(
                "invalid query parameter `{}`: expected its name alone, decoded and without `?`, `&`, `=` and quotes, \
                 as in `query api_key`",
                printable(name.as_bytes())
            ))),
            Self::Known { part, .. } => part.checked(),
            _ => Ok(()),
        }
    }

    /// Returns whether every request has this part, apart from requests without an address.
    const fn is_always(&self) -> bool {
        matches!(self, Self::Ip | Self::Method | Self::Path)
    }

    fn key_by(&self, client: &impl Fn() -> KeyBy, path: &impl Fn() -> KeyBy) -> KeyBy {
        match self {
            Self::Ip => client(),
            Self::Method => KeyBy::method(),
            Self::Path => path(),
            Self::Header(name) => KeyBy::header(name),
            Self::Query(name) => KeyBy::query(name),
            Self::Known { part, file: Some(file) } => part.key_by(client, path).known_file(file),
            Self::Known { part, file: None } => part.key_by(client, path),
        }
    }
}

impl fmt::Display for LimitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.allowances)?;
        for (name, allowances) in &self.classes {
            write!(f, " class {name} {allowances}")?;
        }
        f.write_str(" by ")?;
        match &self.key {
            Some(key) => key.fmt(f)?,
            None => f.write_str("nothing")?,
        }
        self.only.as_ref().map_or(Ok(()), |scope| write!(f, " for {scope}"))?;
        self.except.as_ref().map_or(Ok(()), |scope| write!(f, " except {scope}"))?;
        self.class_by.as_ref().map_or(Ok(()), |by| write!(f, " {by}"))?;
        self.penalty.map_or(Ok(()), |time| {
            let time = period(Quota::new(1, time));
            // The text of a quota omits the number of its period if the number is 1.
            let one = if time.starts_with(char::is_alphabetic) { "1" } else { "" };
            write!(f, " then pause {one}{time}")
        })
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, parts) in self.alternatives.iter().enumerate() {
            write!(f, "{}{}", if number == 0 { "" } else { " or " }, joined(parts))?;
        }
        self.otherwise.map_or(Ok(()), |otherwise| write!(f, " else {}", word_of(otherwise)))
    }
}

fn joined(parts: &[PartText]) -> String {
    let parts: Vec<String> = parts.iter().map(PartText::to_string).collect();
    parts.join("+")
}

impl fmt::Display for PartText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Known { part, file: Some(file) } => write!(f, "{part} known {file}"),
            Self::Known { part, file: None } => write!(f, "{part} known"),
        }
    }
}

const fn word_of(no_key: WhenNoKey) -> &'static str {
    match no_key {
        WhenNoKey::Deny => "deny",
        WhenNoKey::Allow => "allow",
        WhenNoKey::Share => "share",
    }
}

fn policy_of(word: Option<&str>) -> Result<WhenNoKey, String> {
    match word {
        Some("deny") => Ok(WhenNoKey::Deny),
        Some("allow") => Ok(WhenNoKey::Allow),
        Some("share") => Ok(WhenNoKey::Share),
        Some(other) => Err(format!(
            "invalid word `{}` after `else`: expected `deny`, `allow` or `share`",
            printable(other.as_bytes())
        )),
        None => Err("missing word after `else`: expected `deny`, `allow` or `share`".to_owned()),
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

    fn rate(quota: Quota) -> Allowances {
        Allowances(vec![Allowance::Rate(quota)])
    }

    #[test]
    fn a_limit_has_a_name_a_quota_and_a_key() {
        let limit = parsed("per-ip=100/s burst 20 by ip");
        assert_eq!(
            (limit.name.as_str(), limit.allowances.clone()),
            ("per-ip", rate(Quota::per_second(100).burst(20)))
        );
        assert_eq!(limit.to_string(), "per-ip=100/s burst 20 by ip");
        let alternatives = vec![vec![PartText::Ip]];
        assert_eq!(limit.key, Some(KeyText { alternatives, otherwise: None }));
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
        let known = PartText::Known { part: Box::new(header()), file: Some("/etc/keys".to_owned()) };
        assert_eq!(
            key("header x-api-key known /etc/keys+method or ip").alternatives,
            [vec![known, PartText::Method], vec![PartText::Ip]]
        );
        let known = PartText::Known { part: Box::new(header()), file: None };
        assert_eq!(
            key("header x-api-key known or ip class by key in f").alternatives,
            [vec![known], vec![PartText::Ip]]
        );
        assert_eq!((key("ip else allow").no_key(), key("ip").no_key()), (WhenNoKey::Allow, WhenNoKey::Deny));
        assert_eq!(key("header x-api-key else share").no_key(), WhenNoKey::Share);
    }

    #[test]
    fn a_limit_has_classes_and_a_way_to_find_them() {
        let text = "a=10/min class paid 1000/min burst 50 class partner 5/s by header x-api-key known f or ip \
            else share class by header x-class";
        let limit = parsed(text);
        assert_eq!(limit.to_string(), text);
        assert_eq!(limit.classes[0], ("paid".to_owned(), rate(Quota::per_minute(1000).burst(50))));
        assert_eq!((limit.classes[1].0.as_str(), limit.classes.len()), ("partner", 2));
        assert_eq!(limit.class_by, Some(ClassByText::Header("x-class".to_owned())));
        let by = |text: &str| parsed(&format!("a=1/s class b 2/s by ip {text}")).class_by.unwrap();
        let listed = |what| ClassByText::In { what, file: "f".to_owned() };
        let name = || "k".to_owned();
        assert_eq!(by("class by header k in f"), listed(ListedText::Header(name())));
        assert_eq!(by("class by query k in f"), listed(ListedText::Query(name())));
        assert_eq!(by("class by ip in f"), listed(ListedText::Ip));
        assert_eq!(by("class by key in f"), listed(ListedText::Key));
        // Words of the form can be names as well.
        let odd = parsed("class=1/s class header 2/s by header class class by header class");
        assert_eq!(odd.to_string(), "class=1/s class header 2/s by header class class by header class");
        assert_eq!(parsed("a=1/s by header class").class_by, None);
        assert_eq!(parsed("a=1/s by header for for GET").only, Some("GET".parse().unwrap()));
    }

    #[test]
    fn a_penalty_is_the_last_part_of_a_limit() {
        let penalty = |text: &str| {
            let limit = parsed(text);
            assert_eq!(limit.to_string(), text);
            limit.parts(&[]).iter().map(|part| part.penalty.unwrap()).collect::<Vec<_>>()
        };
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(penalty("a=5/min by ip then pause 10min"), [minutes(10)]);
        assert_eq!(
            penalty("a=5/min by header then for POST /login then pause 90s"),
            [minutes(1) + minutes(1) / 2]
        );
        let text =
            "a=5/min and 9/d class b unlimited by ip else deny except GET class by header then then pause 1h";
        assert_eq!(penalty(text), [minutes(60), minutes(60)]);
        assert_eq!(
            penalty("a=blocked class b 1/s by ip class by key in f then pause 1ns"),
            [Duration::from_nanos(1)]
        );
        assert_eq!(penalty("a=unlimited by ip class by key in f then pause 1s"), [Duration::from_secs(1)]);
    }

    #[test]
    fn a_limit_allows_rates_a_number_at_once_everything_or_nothing() {
        let parts = |text: &str| {
            let parts = parsed(text).parts(&[]);
            let part = |it: &LimitPart| {
                let classes = it.classes.iter().map(|(name, allowed)| format!("; {name} {allowed}"));
                format!("{}={}{}", it.name, it.allowance, classes.collect::<String>())
            };
            parts.iter().map(part).collect::<Vec<String>>()
        };
        assert_eq!(parts("a=10/s by ip"), ["a=10/s"]);
        assert_eq!(parts("a=8 at once by ip"), ["a=8 at once"]);
        assert_eq!(parts("a=100/min strict by ip"), ["a=90/min burst 10"]);
        assert_eq!(parts("a=10/s and 100/10s by ip"), ["a-per-s=10/s", "a-per-10s=100/10s"]);
        assert_eq!(parts("a=10/s and 8 at once by ip"), ["a-per-s=10/s", "a-at-once=8 at once"]);
        assert_eq!(
            parts("a=10/s class b 1000/min class c unlimited class d blocked by ip class by header k in f"),
            ["a=10/s; b 1000/min; c unlimited; d blocked"]
        );
        assert_eq!(
            parts("a=10/s class b 20/s and 99/d class c 2 at once class d blocked by ip class by header k"),
            [
                "a-per-s=10/s; b 20/s; c unlimited; d blocked",
                "a-per-d=unlimited; b 99/d; c unlimited; d blocked",
                "a-at-once=unlimited; b unlimited; c 2 at once; d blocked",
            ]
        );
        assert_eq!(parts("a=blocked by nothing for /admin"), ["a=blocked"]);
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
            ("a=1/s by header k known class by ip in f", "missing file after `known`"),
            ("a=1/s and unlimited by ip", "`unlimited` beside another allowance: expected it alone"),
            ("a=1 at once and 2 at once by ip", "`at once` twice"),
            ("a=1/s and 2/s by ip", "two rates would both be called `a-per-s`: expected rates of different"),
            ("a=0 at once by ip", "invalid number `0` before `at once`: expected 1 to 1000000"),
            ("a=1/s by ip for", "missing condition: expected a method"),
            ("a=1/s by ip for post /login", "invalid condition `post`: expected a method in capitals"),
            ("a=1/s by ip for /a /b", "`/a` and `/b` in one alternative: expected conditions"),
            ("a=1/s by ip for GET preflight", "`GET` and `preflight` in one alternative"),
            ("a=1/s by ip for from ten", "invalid network `ten` after `from`"),
            ("a=1/s by ip for host", "missing name after `host`"),
            ("a=1/s by ip for host a/b", "invalid host `a/b`: expected a name"),
            ("a=1/s by ip for header x=", "invalid header `x=`: expected `header NAME`"),
            (
                "a=1/s by ip for /login except POST or /login",
                "`for /login except POST or /login` is for no request",
            ),
            (
                "a=1/s by ip for header x=\u{1b} header x",
                "`header x=\\u{1b}` and `header x` in one alternative",
            ),
            (
                "a=1/s by ip for header x=\u{1b} except header x",
                "`for header x=\\u{1b} except header x` is for no",
            ),
            ("a=1/s by ip except GET for /a", "invalid condition `for`: expected a method"),
            ("a=1/s by ip else deny or ip", "`or` is unexpected here: expected `for ...`"),
            ("a=1/s class default 2/s by ip class by key in f", "has the name of the default class"),
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
            (
                "a=1/s by ip class by header p",
                "`class by header` without classes: expected `class NAME QUOTA`",
            ),
            ("a=1/s class b 2/s by nothing class by header p", "`class by` with `by nothing`"),
            ("a=1/s class b 2/s by ip class by ip", "invalid `class by ip`: expected `class by key in FILE`"),
            ("a=1/s class b 2/s by ip class by query p", "invalid `class by query p`: expected"),
            ("a=1/s class b 2/s by ip class by header p in a b", "invalid `class by header p in a b`"),
            ("a=1/s class b 2/s by ip class by", "invalid `class by `: expected"),
            ("a=1/s by ip then", "invalid words after `then`: expected `pause` and a time from 1ns to"),
            ("a=1/s by ip then pause", "invalid words after `then`"),
            ("a=1/s by ip then pause 10", "invalid words after `then`"),
            ("a=1/s by ip then pause 0s", "invalid words after `then`"),
            ("a=1/s by ip then pause 9999999d", "invalid words after `then`"),
            ("a=1/s by ip then block 10min", "invalid words after `then`"),
            (
                "a=1/s by ip then pause 10min for POST",
                "`for` is unexpected here: expected `for ...`, `except",
            ),
            ("a=1/s by ip for then pause 1s", "missing condition"),
            ("a=1/s by nothing then pause 1s", "`then pause` with `by nothing`, which would pause all"),
            ("a=1/s and 2 at once by ip then pause 1s", "`then pause` beside `at once`"),
            ("a=blocked by ip then pause 1s", "`then pause` without a rate"),
        ];
        for (text, part) in table {
            let message = refused(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
