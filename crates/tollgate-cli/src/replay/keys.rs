//! Stores the keys of one limit, with the number of requests of each.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;

/// The index of a key, in the order in which keys first appear.
pub(crate) type KeyId = usize;

/// The keys of one limit. A replay's memory grows with the number of distinct keys, not with the
/// number of lines.
#[derive(Default)]
pub(crate) struct Keys {
    ids: HashMap<Key, KeyId, RandomState>,
    /// The number of requests with each key.
    requests: Vec<u64>,
}

/// A key. Most keys are short, and a short key is stored in the map itself, so that a lookup reads
/// only one place in memory.
enum Key {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

/// The maximum length of a key that is stored in the map itself. This is long enough for an
/// address, and keeps a [`Key`] at three words.
const SHORT: usize = 22;

impl Key {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(short), Ok(length)) => {
                short.copy_from_slice(key);
                Self::Short { length, bytes }
            }
            _ => Self::Long(key.into()),
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let (one, other): (&[u8], &[u8]) = (self.borrow(), other.borrow());
        one == other
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let key: &[u8] = self.borrow();
        key.hash(state);
    }
}

impl Keys {
    /// Returns the key's id. A new key receives a new id.
    #[inline]
    pub(crate) fn id(&mut self, key: &[u8]) -> KeyId {
        if let Some(&id) = self.ids.get(key) {
            return id;
        }
        let id = self.requests.len();
        self.requests.push(0);
        self.ids.insert(Key::new(key), id);
        id
    }

    /// Counts a request.
    #[inline]
    pub(crate) fn count(&mut self, id: KeyId) {
        self.requests[id] += 1;
    }

    /// Returns the number of requests with each key, by id.
    pub(crate) fn requests(&self) -> &[u64] {
        &self.requests
    }

    /// Returns the number of keys that requests have.
    pub(crate) fn seen(&self) -> usize {
        self.requests.iter().filter(|&&requests| requests > 0).count()
    }

    /// Returns the bytes of all keys, by id.
    pub(crate) fn by_id(&self) -> Vec<&[u8]> {
        let mut keys: Vec<&[u8]> = vec![&[]; self.requests.len()];
        for (key, &id) in &self.ids {
            keys[id] = key.borrow();
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_are_told_apart() {
        let mut keys = Keys::default();
        let texts: Vec<Vec<u8>> = (0..100).flat_map(|length| [vec![0; length], vec![1; length]]).collect();
        let ids: Vec<KeyId> = texts.iter().map(|text| keys.id(text)).collect();
        assert_eq!(keys.requests().len(), 199, "the empty one is there twice");
        assert_eq!(texts.iter().map(|text| keys.id(text)).collect::<Vec<_>>(), ids);
        assert!(texts.iter().zip(ids).all(|(text, id)| keys.by_id()[id] == text));
    }

    #[test]
    fn a_key_keeps_its_id() {
        let mut keys = Keys::default();
        let ids = [&b"a"[..], b"b", b"a", b"", b"b"].map(|key| keys.id(key));
        assert_eq!(ids, [0, 1, 0, 2, 1]);
        assert_eq!(keys.by_id(), [&b"a"[..], b"b", b""]);
        keys.count(1);
        assert_eq!((keys.requests(), keys.seen()), (&[0, 1, 0][..], 1));
    }
}
