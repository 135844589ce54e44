//! The client names in a page, which may be hashed.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::failure::Failure;
use crate::printable::cut;

/// The maximum length of a shown name, in characters.
const LONGEST: usize = 120;

/// Maps keys to the names under which a page shows them.
pub(crate) struct ClientNames {
    /// The secret key for the hashes, if names are hashed. It is never written anywhere.
    secret: Option<[u8; 16]>,
}

impl ClientNames {
    /// # Errors
    ///
    /// Returns an error if the system provides no random numbers.
    pub(crate) fn new(are_hashed: bool) -> Result<Self, Failure> {
        let mut secret = None;
        if are_hashed {
            let bytes = secret.insert([0; 16]);
            getrandom::fill(bytes)
                .map_err(|error| Failure::refused(format!("--hash-clients: no random numbers: {error}")))?;
        }
        Ok(Self { secret })
    }

    pub(crate) fn are_hashed(&self) -> bool {
        self.secret.is_some()
    }

    /// Returns the name of a key whose printable form is given.
    pub(crate) fn shown(&self, key: &str) -> String {
        match &self.secret {
            None => cut(key, LONGEST).into_owned(),
            Some(secret) => hashed(key.as_bytes(), secret),
        }
    }
}

fn hashed(key: &[u8], secret: &[u8; 16]) -> String {
    let mut hasher = SipHasher13::new_with_key(secret);
    hasher.write(key);
    format!("client {:016x}", hasher.finish())
}
