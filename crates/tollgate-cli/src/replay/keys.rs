//! Stores the keys of one limit, with the number of requests of each.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

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
/// only one place in memory. 24 bytes are enough for an IPv4 address and for an IPv6 network.
type Key = SmallVec<[u8; 24]>;

impl Keys {
    /// Returns the key's id. A new key receives a new id.
    #[inline]
    pub(crate) fn id(&mut self, key: &[u8]) -> KeyId {
        if let Some(&id) = self.ids.get(key) {
            return id;
        }
        let id = self.requests.len();
        self.requests.push(0);
        self.ids.insert(Key::from_slice(key), id);
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

    /// Returns the number of keys with at least one request.
    pub(crate) fn seen(&self) -> usize {
        self.requests.iter().filter(|&&requests| requests > 0).count()
    }

    /// Returns the bytes of all keys, by id.
    pub(crate) fn by_id(&self) -> Vec<&[u8]> {
        let mut keys: Vec<&[u8]> = vec![&[]; self.requests.len()];
        for (key, &id) in &self.ids {
            keys[id] = key;
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
