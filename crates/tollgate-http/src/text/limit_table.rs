//! Support for serde. A limit is read from its text or from a table of its parts. Each part has the
//! same form as in the text.

use super::allowance::Allowances;
use super::classes;
use super::error::TextError;
use super::limit::{KeyText, LimitText, take_penalty};
use super::printable::printable;
use super::scope::Scope;
use super::words::Words;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The parts of a limit.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LimitTable {
    name: String,
    quota: String,
    by: String,
    #[serde(default, rename = "for")]
    only: Texts,
    #[serde(default)]
    except: Texts,
    #[serde(default)]
    class: BTreeMap<String, String>,
    class_by: Option<String>,
    then: Option<String>,
}

/// One text, or several.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Default for Texts {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Texts {
    /// Returns one scope for all texts; `None` if there are none.
    fn scope(self) -> Result<Option<Scope>, TextError> {
        let texts = match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        };
        let scopes: Result<Vec<Scope>, _> = texts.iter().map(|text| text.parse()).collect();
        Ok(Scope::any(scopes?))
    }
}

impl TryFrom<LimitTable> for LimitText {
    type Error = TextError;

    fn try_from(table: LimitTable) -> Result<Self, TextError> {
        let LimitTable { name, quota, by, only, except, class, class_by, then } = table;
        let name = name.trim().to_owned();
        if name.is_empty() || name.contains('=') {
            return Err(TextError::new(format!(
                "invalid name `{}` of a limit: expected at least 1 character, and no `=`",
                printable(name.as_bytes())
            )));
        }
        let mut words = Words::new(&by);
        let key = KeyText::take(&mut words)?;
        if let Some(word) = words.peek() {
            return Err(TextError::new(format!(
                "`{}` after the key: expected the end; `for`, `except` and `class-by` are parts of their own",
                printable(word.as_bytes())
            )));
        }
        let class = class.into_iter().map(|(name, quota)| {
            let is_word = !name.is_empty() && !name.contains(char::is_whitespace) && name != "by";
            let allowances = Allowances::parse(&quota)?;
            is_word.then_some((name, allowances)).ok_or_else(|| {
                TextError::new("the name of a class has spaces, or none: expected one word, but not `by`")
            })
        });
        let penalty = then.map(|text| {
            let mut words = Words::new(&text);
            let penalty = take_penalty(&mut words)?;
            words.peek().is_none().then_some(penalty).ok_or_else(|| {
                TextError::new(
                    "words after the time in `then`: expected `pause TIME` alone, as in `pause 10min`",
                )
            })
        });
        let limit = Self {
            name,
            allowances: Allowances::parse(&quota)?,
            classes: class.collect::<Result<_, _>>()?,
            key,
            only: only.scope()?,
            except: except.scope()?,
            class_by: class_by.map(|text| classes::class_by(&text)).transpose()?,
            penalty: penalty.transpose()?,
        };
        limit.checked()
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = LimitText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit such as \"per-ip=100/s burst 20 by ip\", or a table with name, quota and by")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LimitText, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitText, A::Error> {
        let table = LimitTable::deserialize(MapAccessDeserializer::new(map))?;
        LimitText::try_from(table).map_err(A::Error::custom)
    }
}

impl<'de> Deserialize<'de> for LimitText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable)
    }
}

impl Serialize for LimitText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
