//! The name of a key in the store.
//!
//! A name is `tollgate:<limit>:<letter>:<32 hexadecimal digits>`. A named class of callers adds
//! `<class>:` before the digits. The digits are the first half of the key's SHA-256. Untrusted
//! clients choose the keys; if the hash were weaker, a client could construct a key that collides
//! with another client's key.
//!
//! The letter marks the kind of state. If a limit's algorithm changes, the limit therefore never
//! reads the old algorithm's state.

use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A key of a shared limit. Its bytes identify the key on all machines.
///
/// This trait is not based on `Hash`, because the bytes that a type feeds to a hasher may differ
/// between platforms and versions.
///
/// ```
/// use tollgate_redis::StoreKey;
///
/// struct Tenant { region: u8, id: u64 }
///
/// impl StoreKey for Tenant {
///     fn write(&self, bytes: &mut Vec<u8>) {
///         bytes.push(self.region);
///         bytes.extend(self.id.to_be_bytes());
///     }
/// }
/// ```
pub trait StoreKey {
    /// Appends the bytes of the key. Equal keys must write equal bytes, and different keys must
    /// write different bytes.
    fn write(&self, bytes: &mut Vec<u8>);
}

impl StoreKey for [u8] {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }
}

impl StoreKey for str {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().write(bytes);
    }
}

impl StoreKey for Vec<u8> {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.as_slice().write(bytes);
    }
}

impl StoreKey for String {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.as_str().write(bytes);
    }
}

impl StoreKey for u64 {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_be_bytes());
    }
}

impl StoreKey for Ipv4Addr {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.octets());
    }
}

impl StoreKey for Ipv6Addr {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.octets());
    }
}

impl StoreKey for IpAddr {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::V4(address) => address.write(bytes),
            Self::V6(address) => address.write(bytes),
        }
    }
}

/// The only key of a limit that applies to all requests together.
impl StoreKey for () {
    fn write(&self, _bytes: &mut Vec<u8>) {}
}

impl<K: StoreKey + ?Sized> StoreKey for &K {
    fn write(&self, bytes: &mut Vec<u8>) {
        K::write(self, bytes);
    }
}

/// Writes the length of the first element before its bytes, so that `("ab", "c")` differs from
/// `("a", "bc")`.
impl<A: StoreKey, B: StoreKey> StoreKey for (A, B) {
    fn write(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend([0; 8]);
        self.0.write(bytes);
        let length = (bytes.len() - start - 8) as u64;
        bytes[start..start + 8].copy_from_slice(&length.to_be_bytes());
        self.1.write(bytes);
    }
}

/// The maximum length of a readable key in a name, in characters.
const READABLE: usize = 200;

/// The short form in which this machine stores a key: the first half of the key's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Name([u8; 16]);

/// Creates the names of the keys of one limit.
#[derive(Debug)]
pub(crate) struct Naming {
    prefix: String,
    readable: bool,
}

impl Naming {
    /// `class` is the name of a class of callers, or `None` for the default class.
    pub(crate) fn new(limit: &str, letter: char, class: Option<&str>, readable: bool) -> Self {
        let mut prefix = String::from("tollgate:");
        escape(limit.as_bytes(), &mut prefix);
        prefix.push(':');
        prefix.push(letter);
        prefix.push(':');
        if let Some(class) = class {
            // In names of the default class, the part after the letter contains no colon, so the
            // names of other classes can't collide with them.
            escape(class.as_bytes(), &mut prefix);
            prefix.push(':');
        }
        Self { prefix, readable }
    }

    /// Returns the prefix shared by the names of all the limit's keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns both names of a key: its short form, and its name in the store.
    pub(crate) fn name<K: StoreKey + ?Sized>(&self, key: &K) -> (Name, String) {
        let name = Name::of(key);
        (name, self.text(&name, key))
    }

    /// Returns a key's name in the store. `name` is the short form of the same key.
    pub(crate) fn text<K: StoreKey + ?Sized>(&self, name: &Name, key: &K) -> String {
        let mut text = String::with_capacity(self.prefix.len() + 32);
        text.push_str(&self.prefix);
        if self.readable {
            // A digest never contains `=`, so the two forms of a name can't collide.
            text.push('=');
            let start = text.len();
            with_bytes(key, |bytes| escape(bytes, &mut text));
            if text.len() - start <= READABLE {
                return text;
            }
            text.truncate(start - 1);
        }
        for byte in name.0 {
            hexadecimal(byte, &mut text);
        }
        text
    }
}

impl Name {
    pub(crate) fn of<K: StoreKey + ?Sized>(key: &K) -> Self {
        let digest = with_bytes(key, |bytes| Sha256::digest(bytes));
        let mut name = [0; 16];
        name.copy_from_slice(&digest[..16]);
        Self(name)
    }
}

/// The maximum number of bytes that a thread keeps for the next key.
const KEPT: usize = 1_024;

thread_local! {
    /// Keys write their bytes here, so that a check that is decided on this machine allocates
    /// nothing.
    static BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn with_bytes<K: StoreKey + ?Sized, T>(key: &K, with: impl FnOnce(&[u8]) -> T) -> T {
    // While the thread ends, and inside another key's `write`, the bytes are allocated.
    let mut bytes = BYTES.try_with(Cell::take).unwrap_or_default();
    key.write(&mut bytes);
    let result = with(&bytes);
    if bytes.capacity() <= KEPT {
        bytes.clear();
        let _ = BYTES.try_with(|kept| kept.set(bytes));
    }
    result
}

/// Appends `bytes` to `text`. Letters, digits and a few signs are kept. All other bytes become %xx,
/// including bytes with a special meaning in a name or for a cluster.
fn escape(bytes: &[u8], text: &mut String) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.@/+".contains(&byte) {
            text.push(byte.into());
        } else {
            text.push('%');
            hexadecimal(byte, text);
        }
    }
}

/// Appends the two hexadecimal digits of `byte`. A formatter would be slower, and every check
/// creates a name.
fn hexadecimal(byte: u8, text: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        text.push(b"0123456789abcdef"[usize::from(digit)].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<K: StoreKey + ?Sized>(readable: bool, key: &K) -> String {
        Naming::new("api", 'b', None, readable).name(key).1
    }

    #[test]
    fn a_name_says_nothing_about_its_key_unless_it_is_asked_to() {
        // sha256sum of "alice"
        assert_eq!(text(false, "alice"), "tollgate:api:b:2bd806c97f0e00af1a1fc3328fa763a9");
        assert_eq!(text(true, "alice"), "tollgate:api:b:=alice");
    }

    #[test]
    fn names_are_bounded_and_have_no_hash_tags() {
        let long = "{x}".repeat(10_000);
        for readable in [false, true] {
            let name = text(readable, &*long);
            assert_eq!(name.len(), 47, "{name}");
            assert!(!text(readable, "{user}:7").contains(['{', '}', ' ']));
        }
        assert_eq!(text(true, "{user}:7"), "tollgate:api:b:=%7buser%7d%3a7");
        assert!(text(true, &*"x".repeat(READABLE)).ends_with('x'));
        assert!(!text(true, &*"x".repeat(READABLE + 1)).ends_with('x'));
    }

    #[test]
    fn keys_that_differ_have_other_names() {
        let names = [
            text(false, &("ab", "c")),
            text(false, &("a", "bc")),
            text(false, "abc"),
            text(false, &7_u64),
            text(false, &()),
            text(false, &IpAddr::from([127, 0, 0, 1])),
            text(true, "2bd806c97f0e00af1a1fc3328fa763a9"),
            text(false, "alice"),
        ];
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name}");
        }
    }
}
