//! The counts of a layer's limits in a file, so that a restart keeps them.
//!
//! # What is in a file
//!
//! ```text
//! file:   "tollgate-http", version (2 bytes), head, checksum of the head (8 bytes), state*
//! head:   JSON, in chunks: the limit, the class and the key of each state
//! state:  what `Limiter::save` or `SingleLimiter::save` writes, in chunks
//! chunks: (length (4 bytes, 1 to 65,536), that many bytes)*, length 0
//! ```
//!
//! Numbers are little-endian. The chunks make it possible to skip a state that no limiter can use.
//! The checksum is FNV-1a, which detects damage; each state has its own checksum.
//!
//! Fingerprints keep their meaning only as long as [`Key`](crate::Key) is hashed in the same way.
//! If a test finds another hash, raise [`VERSION`].

use crate::warning::BuildWarning;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;
use tollgate::{ConfigError, LoadError};

const MAGIC: &[u8; 13] = b"tollgate-http";
const VERSION: u16 = 1;
const MAX_CHUNK: usize = 1 << 16;

/// Writes the state of a limiter.
pub(crate) type WriteState = dyn Fn(&mut dyn Write) -> io::Result<()> + Send + Sync;

/// A limiter of rates whose state can be saved: that of a limit, or of one of its classes.
pub(crate) struct Savable {
    /// The name of the class; `None` for the default class.
    pub(crate) class: Option<String>,
    /// What the keys consist of.
    pub(crate) key: Arc<str>,
    pub(crate) write: Box<WriteState>,
}

/// Whose state follows in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateName {
    pub(crate) limit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    pub(crate) key: String,
}

/// The saved counts of a layer, as [`RateLimitLayer::save`](crate::RateLimitLayer::save) has
/// written them. [`LayerSettings::builder_from`](crate::settings::LayerSettings::builder_from)
/// continues them.
///
/// The default value is the state of a layer that was never saved.
#[derive(Clone, Default)]
pub struct SavedLimits {
    states: Vec<(StateName, Arc<[u8]>)>,
    /// Whether this was read from a file.
    is_saved: bool,
    warnings: Vec<BuildWarning>,
}

impl SavedLimits {
    /// Reads saved counts. Exactly their bytes are read from `from`, and collected in memory: about
    /// 20 bytes for each key.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Read`] with the errors of `from`, and [`LoadError::Unusable`] if the
    /// bytes are not the saved counts of a layer, if they are damaged or truncated, or if another
    /// version has written them. Whether a limit can use its counts is found out when it is built.
    ///
    /// ```
    /// use tollgate_http::settings::SavedLimits;
    ///
    /// let refused = SavedLimits::read(&b"something else"[..]).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "the saved state is unusable: it does not begin with \"tollgate-http\", so it is not that \
    ///      of a layer"
    /// );
    /// ```
    pub fn read(mut from: impl Read) -> Result<Self, LoadError> {
        let from: &mut dyn Read = &mut from;
        let (mut magic, mut version, mut sum) = ([0; MAGIC.len()], [0; 2], [0; 8]);
        take(from, &mut magic)?;
        if magic != *MAGIC {
            return Err(unusable("it does not begin with \"tollgate-http\", so it is not that of a layer"));
        }
        take(from, &mut version)?;
        let version = u16::from_le_bytes(version);
        if version != VERSION {
            return Err(unusable(&format!(
                "its version is {version}; allowed: {VERSION}; another release of tollgate has saved it"
            )));
        }
        let head = read_chunks(from)?;
        take(from, &mut sum)?;
        let names: Option<Vec<StateName>> = serde_json::from_slice(&head).ok();
        let names = names.filter(|_| u64::from_le_bytes(sum) == checksum(&head)).ok_or_else(damaged)?;
        let states = names.into_iter().map(|name| Ok((name, read_chunks(from)?.into())));
        Ok(Self { states: states.collect::<Result<_, LoadError>>()?, is_saved: true, warnings: Vec::new() })
    }

    /// Returns a limiter that continues its saved state or, with a warning, one that does not.
    pub(crate) fn limiter<L>(
        &mut self,
        name: StateName,
        load: impl FnOnce(&[u8]) -> Result<L, LoadError>,
        build: impl FnOnce() -> Result<L, ConfigError>,
    ) -> Result<L, ConfigError> {
        let is_its =
            |(saved, _): &(StateName, Arc<[u8]>)| saved.limit == name.limit && saved.class == name.class;
        let why = match self.states.iter().position(is_its).map(|place| self.states.swap_remove(place)) {
            Some((saved, _)) if saved.key != name.key => {
                format!("its saved counts are by `{}`, and it counts by `{}` now", saved.key, name.key)
            }
            Some((_, state)) => match load(&state) {
                Ok(limiter) => return Ok(limiter),
                Err(LoadError::Config(error)) => return Err(error),
                Err(error) => error.to_string(),
            },
            None if self.is_saved => "the saved state does not contain it".to_owned(),
            None => return build(),
        };
        let StateName { limit, class, .. } = name;
        self.warnings.push(BuildWarning::StartsFresh { limit, class, why });
        build()
    }

    /// Returns the counts that no limit has continued, and what did not continue so far. A limit
    /// that is built later, and that these counts do not contain, is not worth a warning.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn into_remaining(self) -> (Self, Vec<BuildWarning>) {
        (Self { states: self.states, ..Self::default() }, self.warnings)
    }

    /// Returns these counts as they are saved again, each with the name of its limit.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn savable(&self) -> Vec<(String, Savable)> {
        let savable = |(name, state): (StateName, Arc<[u8]>)| {
            let write: Box<WriteState> = Box::new(move |to| to.write_all(&state));
            (name.limit, Savable { class: name.class, key: name.key.into(), write })
        };
        self.states.iter().cloned().map(savable).collect()
    }

    /// Returns what did not continue, after all limiters were built.
    pub(crate) fn into_warnings(self) -> impl Iterator<Item = BuildWarning> {
        let dropped = self.states.into_iter().map(|(name, _)| {
            let StateName { limit, class, .. } = name;
            BuildWarning::CountsDropped { limit, class }
        });
        self.warnings.into_iter().chain(dropped)
    }
}

impl fmt::Debug for SavedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states.iter().map(|(name, _)| name)).finish()
    }
}

/// Writes the states of limits, each with the name of its limit.
pub(crate) fn write<'l>(
    limits: impl Iterator<Item = (&'l str, &'l Savable)> + Clone,
    to: &mut dyn Write,
) -> io::Result<()> {
    let name = |(limit, saved): (&str, &Savable)| StateName {
        limit: limit.to_owned(),
        class: saved.class.clone(),
        key: (*saved.key).to_owned(),
    };
    let head = serde_json::to_vec(&limits.clone().map(name).collect::<Vec<_>>())?;
    to.write_all(MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    write_chunks(to, |to| to.write_all(&head))?;
    to.write_all(&checksum(&head).to_le_bytes())?;
    for (_, saved) in limits {
        write_chunks(to, &saved.write)?;
    }
    to.flush()
}

/// Writes each slice as a chunk.
struct Chunks<'w>(&'w mut dyn Write);

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = &bytes[..bytes.len().min(MAX_CHUNK)];
        // A chunk is never longer than `MAX_CHUNK`.
        #[allow(clippy::cast_possible_truncation)]
        let length = chunk.len() as u32;
        // Without bytes, nothing is written, because the length 0 ends the chunks.
        if length > 0 {
            self.0.write_all(&length.to_le_bytes())?;
            self.0.write_all(chunk)?;
        }
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_chunks(to: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut chunks = BufWriter::with_capacity(MAX_CHUNK, Chunks(&mut *to));
    write(&mut chunks)?;
    chunks.flush()?;
    drop(chunks);
    to.write_all(&0_u32.to_le_bytes())
}

/// Reads all chunks. Memory is allocated only for bytes that were read.
fn read_chunks(from: &mut dyn Read) -> Result<Vec<u8>, LoadError> {
    let mut all = Vec::new();
    loop {
        let mut length = [0; 4];
        take(from, &mut length)?;
        match u32::from_le_bytes(length) as usize {
            0 => return Ok(all),
            length if length <= MAX_CHUNK => {
                let begin = all.len();
                all.resize(begin + length, 0);
                take(from, &mut all[begin..])?;
            }
            _ => return Err(damaged()),
        }
    }
}

fn take(from: &mut dyn Read, to: &mut [u8]) -> Result<(), LoadError> {
    from.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => unusable("it is truncated"),
        _ => LoadError::Read(error),
    })
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn damaged() -> LoadError {
    unusable("it is damaged: its contents and its checksum disagree")
}

fn unusable(why: &str) -> LoadError {
    LoadError::Unusable(why.to_owned())
}
