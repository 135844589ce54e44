//! Keys with their classes: a list, or a file with the lines `key,class`.

use crate::error::Fault;
use crate::head::RequestHead;
use crate::key::by::{How, KeyBy};
use crate::key::known::{self, MAX_FILE};
use crate::text::printable::printable;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::path::Path;

/// The keys, and the number of the class of each.
#[derive(Default)]
pub(crate) struct KeyClasses {
    names: Vec<String>,
    keys: HashMap<Box<[u8]>, usize>,
}

pub(crate) struct Listed {
    how: How,
    classes: KeyClasses,
}

impl Listed {
    /// # Errors
    ///
    /// A key that is not found in one place of a request, or an error of the list.
    pub(super) fn new(
        key: KeyBy,
        classes: impl FnOnce(&How) -> Result<KeyClasses, Fault>,
    ) -> Result<Self, Fault> {
        match key.checked()? {
            how @ (How::Header(_) | How::Query(_) | How::ApiKey { .. }) => {
                Ok(Self { classes: classes(&how)?, how })
            }
            how => Err(refused(format!(
                "the class of a key by {how:?}: expected `KeyBy::header`, `KeyBy::query` or `KeyBy::api_key`, \
                 without `.known(...)`, `.or(...)` and `.and(...)`"
            ))),
        }
    }

    pub(super) fn class(&self, head: RequestHead<'_>) -> Option<&str> {
        let class = self.classes.keys.get(&*self.how.value(head)?)?;
        Some(&self.classes.names[*class])
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.classes.names.iter().map(String::as_str)
    }
}

/// Reads the file of keys and classes, where `how` finds the keys.
///
/// # Errors
///
/// A file that cannot be read, has no key, a line without a class, or a key twice.
pub(super) fn read(path: &Path, how: &How) -> Result<KeyClasses, Fault> {
    let name = format!("the file `{}`", printable(path.as_os_str().as_encoded_bytes()));
    let text = known::read(path).map_err(|error| {
        refused(format!("{name} cannot be read ({error}): expected a text with lines `key,class`"))
    })?;
    if text.len() as u64 > MAX_FILE {
        let most = MAX_FILE >> 20;
        return Err(refused(format!(
            "{name} is larger than {most} MiB: expected lines `key,class`; look up more with `ClassLookup`"
        )));
    }
    let mut pairs = Vec::new();
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii)) {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        // A key may have a comma, and the names of classes are one's own.
        let comma = line.iter().rposition(|&byte| byte == b',');
        let (key, class) = comma.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
        let (key, class) = (key.trim_ascii(), class.trim_ascii());
        match std::str::from_utf8(class) {
            // Without the key, which is a secret.
            Ok(class) if !key.is_empty() && !class.is_empty() => pairs.push((key.into(), class.to_owned())),
            _ => {
                return Err(refused(format!(
                    "line {number} of {name} is not `key,class`: expected a key, a comma and the name of a class; \
                     leave out a key that is of the default class"
                )));
            }
        }
    }
    classes(pairs.into_iter(), &name, how)
}

/// Makes a list of these keys and classes, where `how` finds the keys.
///
/// # Errors
///
/// No key, or one that is listed twice.
pub(super) fn classes(
    pairs: impl Iterator<Item = (Box<[u8]>, String)>,
    name: &str,
    how: &How,
) -> Result<KeyClasses, Fault> {
    let mut classes = KeyClasses::default();
    let mut numbers = HashMap::new();
    for (place, (key, class)) in (1..).zip(pairs) {
        let number = *numbers.entry(class).or_insert_with_key(|class| {
            classes.names.push(class.clone());
            classes.names.len() - 1
        });
        match classes.keys.entry(how.listed(key)) {
            Entry::Vacant(entry) => entry.insert(number),
            Entry::Occupied(_) => {
                return Err(refused(format!(
                    "key {place} of {name} is there twice, so its class is not known: expected each key once; \
                     leave one of them out"
                )));
            }
        };
    }
    if classes.keys.is_empty() {
        return Err(refused(format!(
            "{name} has 0 keys, so all requests would be of the default class: expected at least 1"
        )));
    }
    Ok(classes)
}

fn refused(why: String) -> Fault {
    Fault::KeyClasses { why }
}

/// Keys are secrets, so only their number is shown.
impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} keys", self.how, self.classes.keys.len())
    }
}
