//! Reads the proxy's options from a TOML file, for `--config FILE`.
//!
//! A setting is an option without its dashes: `max-keys = 1000` means `--max-keys 1000`. The
//! settings are converted to arguments, so a single parser provides the defaults and checks the
//! values of both forms. A limit may also be written as a table of its parts, which is converted to
//! the limit's text, and `charge-if` as a table of limits and statuses.
//!
//! An option on the command line or in the environment replaces the file's setting; a list is
//! replaced as a whole. A message about a setting starts with the file name and the line number.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, Command, parser::ValueSource};
use serde::Deserialize;
use tollgate_http::settings::LimitText;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::bounded_file;
use crate::failure::Failure;
use crate::printable::{cut, printable, printable_path};

/// The maximum size of a file of settings, in bytes.
const MOST_SETTINGS: u64 = 16 << 20;

/// The options that a file cannot set.
const NOT_SETTINGS: [&str; 4] = ["check", "config", "help", "version"];

/// The part of an error message that explains how to write settings, for a line that is not TOML.
const AS_WRITTEN: &str = "expected each setting once, as NAME = VALUE, with texts, times and quotas in quotes: \
     listen = \"127.0.0.1:8080\", max-keys = 1000, limit = [\"a=1/s by ip\", \"b=9/s by ip\"]";

/// A message shows at most this many characters of a line.
const LINE_SHOWN: usize = 100;

/// An unknown setting is treated as a misspelling of a known setting if their similarity exceeds
/// this bound. clap uses the same measure and the same bound.
const NEAR: f64 = 0.7;

/// The settings of a file.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    /// The path, safe to print.
    name: String,
    /// The folder of the file.
    folder: PathBuf,
    settings: Vec<Setting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    option: String,
    line: usize,
    values: Vec<Value>,
}

#[derive(Clone, Debug)]
struct Value {
    /// The text of the value, or `None` for a flag that is set.
    text: Option<String>,
    line: usize,
}

/// Values are compared without their line numbers.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Value {}

/// Returns the option that names a file, `--config` or `--check`, and the file. Returns `None` if
/// neither option is given, or if both are given, because clap refuses that combination.
pub(crate) fn path(given: &ArgMatches) -> Option<(&'static str, PathBuf)> {
    match ["config", "check"].map(|option| given.get_one::<PathBuf>(option)) {
        [Some(path), None] => Some(("--config", path.clone())),
        [None, Some(path)] => Some(("--check", path.clone())),
        _ => None,
    }
}

impl ConfigFile {
    /// Reads a file that contains options of `command`. `option` names the file. Skips settings
    /// whose options are `given` on the command line or in the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not TOML, if a setting is unknown, or if a
    /// value has the wrong type.
    pub(crate) fn read(
        option: &str,
        path: &Path,
        command: &Command,
        given: &ArgMatches,
    ) -> Result<Self, Failure> {
        let name = printable_path(path);
        let source = format!("the file of {option}, {name}");
        let bytes = bounded_file::read(path, MOST_SETTINGS, &source, &source)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].split(|&byte| byte == b'\n').count();
            Failure::refused(format!("{name}:{line}: a byte that is not UTF-8: expected a text in UTF-8"))
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self::parse(name, folder, text, command, given)
    }

    fn parse(
        name: String,
        folder: PathBuf,
        text: &str,
        command: &Command,
        given: &ArgMatches,
    ) -> Result<Self, Failure> {
        let line_of = |at: usize| text.as_bytes()[..at.min(text.len())].split(|&byte| byte == b'\n').count();
        let refused = |line: usize, why: &str| Failure::refused(format!("{name}:{line}: {why}"));
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(span.start));
            let (shown, why) = (shown(text, line), printable(error.message().as_bytes()));
            refused(line, &format!("`{shown}` is no setting ({why}): {AS_WRITTEN}"))
        })?;
        let mut settings = Vec::new();
        for (key, value) in table.get_ref() {
            let (option, line) = (key.get_ref().as_ref(), line_of(key.span().start));
            let argument = command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(option) && !NOT_SETTINGS.contains(&option))
                .ok_or_else(|| refused(line, &unknown(option, value.get_ref(), command)))?;
            let values = values(option, argument.get_action(), value, &line_of).map_err(|(line, why)| {
                refused(line, &format!("invalid {option} {why}, in `{}`", shown(text, line)))
            })?;
            let is_given = matches!(
                given.value_source(argument.get_id().as_str()),
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            );
            if !is_given {
                settings.push(Setting { option: option.to_owned(), line, values });
            }
        }
        settings.sort_by_key(|setting| setting.line);
        Ok(Self { name, folder, settings })
    }

    /// Returns whether the file contains a setting.
    pub(crate) fn sets(&self, option: &str) -> bool {
        self.settings.iter().any(|setting| setting.option == option)
    }

    /// Returns the folder of the file. The names of the files in a limit are relative to it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path, safe to print.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the settings as arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> {
        let values =
            self.settings.iter().flat_map(|setting| setting.values.iter().map(move |it| (setting, it)));
        values.map(|(Setting { option, .. }, value)| match &value.text {
            Some(text) => format!("--{option}={text}").into(),
            None => format!("--{option}").into(),
        })
    }

    /// Adds the file name and the line number to a message, if the message names an option that the
    /// file sets.
    pub(crate) fn located(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused(message) => Failure::Refused(self.with_line(&message)),
            other => other,
        }
    }

    /// Returns a message as [`ConfigFile::located`] changes it.
    pub(crate) fn with_line(&self, message: &str) -> String {
        let named = |setting: &&Setting| {
            let option = format!("--{}", setting.option);
            let after = |(at, _): (usize, _)| message[at + option.len()..].chars().next();
            let ends = |next: Option<char>| next.is_none_or(|it| !it.is_ascii_alphanumeric() && it != '-');
            let mut found = message.match_indices(&option);
            found.find(|&it| ends(after(it))).map(|(at, _)| at)
        };
        let first = self.settings.iter().filter_map(|setting| Some((named(&setting)?, setting)));
        let Some((_, setting)) = first.min_by_key(|&(at, _)| at) else { return message.to_owned() };
        let is_quoted = |text: &str| {
            let text = printable(text.as_bytes());
            message.contains(&format!("'{text}'")) || message.contains(&format!("`{text}`"))
        };
        // A message about a limit quotes either the whole limit or the limit's name.
        let is_meant = |value: &&Value| {
            value.text.as_deref().is_some_and(|text| {
                is_quoted(text) || text.split_once('=').is_some_and(|(name, _)| is_quoted(name.trim()))
            })
        };
        let line = setting.values.iter().find(is_meant).map_or(setting.line, |value| value.line);
        format!("{}:{line}: {message}", self.name)
    }

    /// Returns the options whose values differ between the two files.
    pub(crate) fn changed<'c>(&'c self, other: &'c Self) -> Vec<&'c str> {
        let missing = |from: &'c Self, to: &'c Self| {
            let has = |setting: &Setting| {
                to.settings.iter().any(|it| it.option == setting.option && it.values == setting.values)
            };
            from.settings.iter().filter(move |setting| !has(setting)).map(|setting| setting.option.as_str())
        };
        let mut changed: Vec<&str> = missing(self, other).chain(missing(other, self)).collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

/// Returns a line of the file for display in a message. If the line contains a URL with a password,
/// the URL is cut after its scheme.
fn shown(text: &str, line: usize) -> String {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
    let line = match line.split_once("://") {
        Some((before, after)) if after.contains('@') => Cow::Owned(format!("{before}://...")),
        _ => Cow::Borrowed(line),
    };
    cut(&printable(line.as_bytes()), LINE_SHOWN).into_owned()
}

fn unknown(option: &str, value: &DeValue<'_>, command: &Command) -> String {
    let shown = printable(option.as_bytes());
    if matches!(value, DeValue::Table(_)) {
        return format!(
            "unknown table `{shown}`: expected settings, and tables for limits only, as [[limit]]"
        );
    }
    let known = command.get_arguments().filter_map(|argument| argument.get_long());
    let known: Vec<&str> = known.filter(|option| !NOT_SETTINGS.contains(option)).collect();
    let letters = |name: &str| {
        let letters = name.chars().filter(|it| it.is_alphanumeric()).map(|it| it.to_ascii_lowercase());
        letters.collect::<String>()
    };
    let (meant, plain) = (letters(option), letters(option.strip_suffix('s').unwrap_or(option)));
    let same = known.iter().find(|known| [&meant, &plain].contains(&&letters(known)));
    let near = || {
        let near = known.iter().map(|known| (strsim::jaro(option, known), known));
        near.filter(|(near, _)| *near > NEAR).max_by(|(one, _), (other, _)| one.total_cmp(other))
    };
    match same.or_else(|| near().map(|(_, known)| known)) {
        Some(known) => format!("unknown setting `{shown}`: did you mean `{known}`?"),
        None => format!("unknown setting `{shown}`: expected one of {}", known.join(", ")),
    }
}

/// Returns the text of a limit written as a table.
fn table(value: &Spanned<DeValue<'_>>, line_of: &impl Fn(usize) -> usize) -> Result<Value, (usize, String)> {
    let line = line_of(value.span().start);
    match LimitText::deserialize(ValueDeserializer::from(value.clone())) {
        Ok(limit) => Ok(Value { text: Some(limit.to_string()), line }),
        Err(error) => {
            let line = error.span().map_or(line, |span| line_of(span.start));
            Err((line, format!("table: {}", error.message())))
        }
    }
}

/// Returns the values of a setting. An error contains the line number and the reason.
fn values(
    option: &str,
    action: &ArgAction,
    value: &Spanned<DeValue<'_>>,
    line_of: &impl Fn(usize) -> usize,
) -> Result<Vec<Value>, (usize, String)> {
    let line = line_of(value.span().start);
    let is_flag = !action.takes_values();
    let refused = |line: usize, value: &DeValue<'_>, expected: &str| {
        (line, format!("of the type {}: expected {expected}", value.type_str()))
    };
    let scalar = |value: &Spanned<DeValue<'_>>, expected: &str| {
        let line = line_of(value.span().start);
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => number.to_string(),
            },
            DeValue::Float(number) => number.to_string(),
            other => return Err(refused(line, other, expected)),
        };
        Ok(Value { text: Some(text), line })
    };
    match value.get_ref() {
        DeValue::Boolean(set) if is_flag => {
            Ok(set.then_some(Value { text: None, line }).into_iter().collect())
        }
        other if is_flag => Err(refused(line, other, "true or false, without quotes")),
        DeValue::Array(values) if matches!(action, ArgAction::Append) => {
            let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
                DeValue::Table(_) if option == "limit" => table(value, line_of),
                _ => scalar(value, "a text in quotes"),
            };
            values.iter().map(one).collect()
        }
        DeValue::Table(all) if option == "charge-if" => {
            let one = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                let Value { text, line } = scalar(value, "a text in quotes, as in \"401, 403\"")?;
                Ok(Value { text: text.map(|text| format!("{}={text}", name.get_ref())), line })
            };
            all.iter().map(one).collect()
        }
        _ if matches!(action, ArgAction::Append) => {
            Ok(vec![scalar(value, "a text in quotes, or an array of them")?])
        }
        _ => Ok(vec![scalar(value, "a text in quotes, or a number")?]),
    }
}
