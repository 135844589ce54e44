//! The keys that a limit accepts, from a list, a file, or a function. See [`KeyBy::known`].
//!
//! [`KeyBy::known`]: crate::KeyBy::known

use crate::error::Fault;
use crate::text::printable::printable;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The maximum size of a file in bytes, enough for about a million keys.
pub(crate) const MAX_FILE: u64 = 64 << 20;

type IsKnown = dyn Fn(&[u8]) -> bool + Send + Sync;

pub(crate) enum Known {
    Listed(HashSet<Box<[u8]>>),
    Asked(Box<IsKnown>),
}

impl Known {
    /// Accepts these keys, compared byte by byte.
    ///
    /// # Errors
    ///
    /// Returns an error if the list is empty.
    pub(super) fn list<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Result<Self, Fault> {
        listed(keys.into_iter().map(|key| key.as_ref().into()), "the list")
    }

    /// Accepts the keys in a file, one per line.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, contains no key, or is too large.
    pub(super) fn file(path: &Path) -> Result<Self, Fault> {
        let name = format!("the file `{}`", printable(path.as_os_str().as_encoded_bytes()));
        match read(path) {
            Ok(text) if text.len() as u64 > MAX_FILE => Err(Fault::KnownKeys {
                why: format!(
                    "{name} is larger than {} MiB: expected one key a line; leave keys out that are no longer used",
                    MAX_FILE >> 20
                ),
            }),
            Ok(text) => {
                let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
                listed(
                    lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).map(Into::into),
                    &name,
                )
            }
            Err(error) => Err(Fault::KnownKeys {
                why: format!("{name} cannot be read ({error}): expected a text with one key a line"),
            }),
        }
    }
}

/// The byte order mark that some editors write at the beginning of a file. The first key does not
/// include it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a file, up to one byte more than the maximum size.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut text)?;
    // If the file is too large, the caller recognizes this by the length of the result.
    if text.len() as u64 <= MAX_FILE && text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

fn listed(keys: impl Iterator<Item = Box<[u8]>>, name: &str) -> Result<Known, Fault> {
    let keys: HashSet<Box<[u8]>> = keys.collect();
    if keys.is_empty() {
        let why = format!("{name} has 0 keys, so none would ever be known: expected at least 1");
        return Err(Fault::KnownKeys { why });
    }
    Ok(Known::Listed(keys))
}

impl Known {
    /// Converts each of these keys with `form`.
    pub(super) fn in_form(self, form: impl FnMut(Box<[u8]>) -> Box<[u8]>) -> Self {
        match self {
            Self::Listed(keys) => Self::Listed(keys.into_iter().map(form).collect()),
            Self::Asked(is_known) => Self::Asked(is_known),
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Listed(keys) => keys.contains(key),
            Self::Asked(is_known) => is_known(key),
        }
    }
}

/// Keys are secrets, so only their number is shown.
impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(keys) => write!(f, "{} keys", keys.len()),
            Self::Asked(_) => f.write_str("closure"),
        }
    }
}
