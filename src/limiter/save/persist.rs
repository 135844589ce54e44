//! The interface between a saved limiter and its store of keys.

use super::format::{FileReader, FileWriter};
use crate::error::{LoadError, Refused};
use crate::limiter::store::interface::{Settings, Store};
use crate::quota::Quota;
use crate::state::SavedState;
use crate::time::Tick;
use std::hash::Hash;
use std::io;

/// A [`Store`] whose keys can be saved with [`Limiter::save`](crate::Limiter::save) and loaded with
/// [`Builder::load`](crate::Builder::load).
///
/// [`Fingerprints`](crate::store::Fingerprints) can be saved with either of its hashes. With the
/// feature `serde`, [`ExactKeys`](crate::store::ExactKeys) can also be saved. serde writes each key
/// as JSON, and the key that is read must equal the key that was written. Otherwise the written key
/// loses its state: `Some(None)`, for example, is read as `None`, and an IPv6 socket address
/// without its flow label. No other type can implement this trait.
#[diagnostic::on_unimplemented(
    message = "the keys of this limiter's store cannot be saved",
    note = "`Limiter::save` supports fingerprints and, with `serde`, exact keys: see `tollgate::store::Persist`"
)]
pub trait Persist: Store {
    /// The form in which a key is saved.
    #[doc(hidden)]
    type Name: Clone + Eq + Hash;
    /// Names the kind of keys in files and errors.
    #[doc(hidden)]
    const KIND: &'static str;
    #[doc(hidden)]
    fn write_name(name: &Self::Name, to: &mut FileWriter<'_>) -> io::Result<()>;
    #[doc(hidden)]
    fn read_name(from: &mut FileReader<'_>) -> Result<Self::Name, LoadError>;
    /// Returns the seeds of the hash, and the hashes of fixed inputs. Returns `None` if the names
    /// do not depend on a hash.
    #[doc(hidden)]
    fn seeds(&self) -> Option<SavedHash>;
    /// Returns the hash with the saved seeds, or an error if the seeds now produce another
    /// function. If the names do not depend on a hash, returns `hash`, the hash of the builder.
    #[doc(hidden)]
    fn hash_of(saved: Option<SavedHash>, hash: Self::Hash) -> Result<Self::Hash, LoadError>;
    /// Returns the number of parts in which to visit the keys.
    #[doc(hidden)]
    fn parts(&self) -> u64;
    /// Returns the charged keys of a part, with their present states. A key that was charged before
    /// the first part was visited, and is not idle, is in one part.
    #[doc(hidden)]
    fn part(&self, part: u64, parts: u64) -> Vec<Exported<Self::Name>>;
    /// Returns the keys with their own quotas.
    #[doc(hidden)]
    fn own_quotas(&self) -> Vec<(Self::Name, Quota)>;
    /// Returns the mark. It covers all keys that were forgotten before the call.
    #[doc(hidden)]
    fn mark(&self) -> Tick;
    /// Returns a store that contains these keys.
    #[doc(hidden)]
    fn restored(
        settings: Settings,
        hash: Self::Hash,
        contents: Contents<Self::Name>,
        now: Tick,
    ) -> Result<Self, Refused>;
}

/// A key of a store, with its state.
#[derive(Debug)]
pub struct Exported<N> {
    pub(crate) name: N,
    pub(crate) quota: Quota,
    pub(crate) is_own: bool,
    pub(crate) state: SavedState,
}

/// The contents of a store that is being restored. The states are valid under the store's rules.
#[derive(Debug)]
pub struct Contents<N> {
    pub(crate) own: Vec<(N, Quota)>,
    pub(crate) keys: Vec<(N, SavedState)>,
    pub(crate) mark: Tick,
}

/// The seeds of a hash, and its values for fixed inputs. If the same seeds produce other values,
/// the hash has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedHash {
    pub(crate) seeds: [u64; 2],
    pub(crate) proof: [u64; 10],
}
