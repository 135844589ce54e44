//! Clients' keys. A key consists of the limit's name and a few parts, each of which is hashed with
//! its kind and length.
//!
//! A [`KeyRef`] borrows its parts from the request. It becomes an owned [`Key`] only if it must
//! outlive the request: in a store of exact keys, or for a charge that may be refunded. There are
//! two types rather than one type with a lifetime, so that a limiter's type has no lifetime.

use crate::client::address;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use tollgate::store::{Equivalent, ToKey};

/// The number of parts that fit in a key without an allocation.
const INLINE: usize = 3;

/// One part of a key. Parts of different kinds are never equal.
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_http::KeyPart;
///
/// // IPv4-mapped addresses become IPv4, IPv6 addresses are cut to a prefix.
/// let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
/// assert_eq!(KeyPart::address(mapped, 64), KeyPart::from(IpAddr::from([192, 0, 2, 1])));
/// let one: IpAddr = "2001:db8::1".parse().unwrap();
/// let other: IpAddr = "2001:db8::2".parse().unwrap();
/// assert_eq!(KeyPart::address(one, 64), KeyPart::address(other, 64));
/// assert_ne!(KeyPart::address(one, 128), KeyPart::address(other, 128));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyPart<'a> {
    /// An address. IPv4-mapped addresses are stored as IPv4, and IPv6 addresses are cut to a
    /// prefix.
    Address(IpAddr),
    /// Text or bytes.
    Bytes(Cow<'a, [u8]>),
    /// A number.
    Number(u64),
    /// Marks which alternative of a [`KeyBy::or`](crate::KeyBy::or) found the parts that follow.
    Alternative(u8),
    /// The only part of the key that all requests without a key share
    /// ([`WhenNoKey::Share`](crate::WhenNoKey::Share)).
    Missing,
}

impl<'a> KeyPart<'a> {
    /// Creates a part from an address. An IPv4-mapped address becomes IPv4. An IPv6 address is cut
    /// to its first `ipv6_prefix` bits (values above 128 count as 128).
    ///
    /// ```
    /// # use std::net::IpAddr;
    /// # use tollgate_http::KeyPart;
    /// let customer: IpAddr = "2001:db8:0:1::".parse().unwrap();
    /// let address: IpAddr = "2001:db8:0:1:2:3:4:5".parse().unwrap();
    /// assert_eq!(KeyPart::address(address, 64), KeyPart::from(customer));
    /// ```
    pub fn address(address: IpAddr, ipv6_prefix: u8) -> Self {
        Self::Address(address::client(address, ipv6_prefix))
    }

    /// Returns a part that borrows the bytes of this part.
    fn borrowed(&self) -> KeyPart<'_> {
        match self {
            Self::Bytes(bytes) => KeyPart::Bytes(Cow::Borrowed(bytes)),
            other => other.clone(),
        }
    }

    /// Returns a part that owns its bytes.
    fn into_owned(self) -> KeyPart<'static> {
        match self {
            Self::Address(address) => KeyPart::Address(address),
            Self::Bytes(bytes) => KeyPart::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Number(number) => KeyPart::Number(number),
            Self::Alternative(which) => KeyPart::Alternative(which),
            Self::Missing => KeyPart::Missing,
        }
    }
}

impl<'a> From<&'a str> for KeyPart<'a> {
    fn from(text: &'a str) -> Self {
        text.as_bytes().into()
    }
}

impl<'a> From<&'a [u8]> for KeyPart<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a> From<Cow<'a, [u8]>> for KeyPart<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<String> for KeyPart<'_> {
    fn from(text: String) -> Self {
        Self::Bytes(Cow::Owned(text.into_bytes()))
    }
}

impl From<u64> for KeyPart<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<IpAddr> for KeyPart<'_> {
    /// Creates a part from all bits of the address. An IPv4-mapped address becomes IPv4.
    fn from(address: IpAddr) -> Self {
        Self::address(address, 128)
    }
}

/// The key of a client in one limit, for a [`Limiter<Key>`](tollgate::Limiter).
///
/// The layer creates keys from requests. Create a key yourself to check or change a limiter outside
/// of the layer.
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_http::Key;
/// use tollgate::{Limiter, Quota};
///
/// let limiter: Limiter<Key> = Limiter::builder(Quota::per_hour(1)).build()?;
/// let client = IpAddr::from([192, 0, 2, 1]);
/// let key = Key::new("per-address", [client]);
/// assert!(limiter.check(&key).is_allowed());
/// assert!(!limiter.check(&key).is_allowed());
///
/// // The limit's name is part of the key.
/// assert!(limiter.check(&Key::new("logins", [client])).is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    limit: Arc<str>,
    parts: SmallVec<[KeyPart<'static>; INLINE]>,
}

impl Key {
    /// Creates the key of these parts in the limit named `limit`.
    ///
    /// ```
    /// # use tollgate_http::{Key, KeyPart};
    /// // Parts are kept apart, although both keys would be the same text when joined.
    /// assert_ne!(Key::new("api", ["ab", "c"]), Key::new("api", ["a", "bc"]));
    /// assert_ne!(Key::new("api", ["7"]), Key::new("api", [7]));
    /// // The key that `KeyBy::header("x-api-key").or(KeyBy::peer())` makes from a header.
    /// let key = Key::new("api", [KeyPart::Alternative(0), "secret".into()]);
    /// ```
    pub fn new<'p, P: Into<KeyPart<'p>>>(limit: &str, parts: impl IntoIterator<Item = P>) -> Self {
        let parts = parts.into_iter().map(|part| part.into().into_owned()).collect();
        Self { limit: limit.into(), parts }
    }

    /// Returns the name of the limit that the key belongs to.
    ///
    /// ```
    /// # use tollgate_http::Key;
    /// assert_eq!(Key::new("api", ["secret"]).limit_name(), "api");
    /// ```
    pub fn limit_name(&self) -> &str {
        &self.limit
    }

    /// Returns the parts.
    ///
    /// ```
    /// # use tollgate_http::{Key, KeyPart};
    /// assert_eq!(Key::new("user", [7]).parts(), [KeyPart::Number(7)]);
    /// ```
    pub fn parts(&self) -> &[KeyPart<'static>] {
        &self.parts
    }

    /// Borrows the key as a [`KeyRef`], for functions that accept both kinds of keys.
    pub(crate) fn borrowed(&self) -> KeyRef<'_> {
        let parts = self.parts.iter().map(KeyPart::borrowed).collect();
        KeyRef { limit: &self.limit, parts }
    }

    /// Appends an encoding of the key to a vector. On all machines, equal keys have equal bytes,
    /// and different keys have different bytes.
    ///
    /// Limiters that store their counts on other machines use this encoding. `Hash` is not
    /// suitable, because the bytes that it passes to a hasher may differ between platforms and
    /// versions.
    ///
    /// ```
    /// # use tollgate_http::Key;
    /// let bytes = |key: Key| {
    ///     let mut bytes = Vec::new();
    ///     key.write_to(&mut bytes);
    ///     bytes
    /// };
    /// assert_eq!(bytes(Key::new("api", ["ab"])), bytes(Key::new("api", ["ab"])));
    /// assert_ne!(bytes(Key::new("api", ["ab", "c"])), bytes(Key::new("api", ["a", "bc"])));
    /// ```
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        // Writes the limit's name or a part's bytes, preceded by the kind and the length.
        fn put(bytes: &mut Vec<u8>, kind: u8, part: &[u8]) {
            bytes.push(kind);
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        put(bytes, b'l', self.limit_name().as_bytes());
        for part in self.parts() {
            match part {
                KeyPart::Address(IpAddr::V4(address)) => put(bytes, b'4', &address.octets()),
                KeyPart::Address(IpAddr::V6(address)) => put(bytes, b'6', &address.octets()),
                KeyPart::Bytes(part) => put(bytes, b'b', part),
                KeyPart::Number(number) => put(bytes, b'n', &number.to_be_bytes()),
                KeyPart::Alternative(which) => put(bytes, b'a', &[*which]),
                KeyPart::Missing => put(bytes, b'm', &[]),
            }
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(&self.limit, &self.parts, state);
    }
}

/// Hashes borrowed and owned keys alike. The name and all bytes are hashed with their length, and
/// each part is hashed with its kind.
///
/// Saved states contain hashes of keys. This function therefore passes the same values to the
/// hasher with every version of Rust, which the implementations of `Hash` in the standard library
/// do not promise.
fn hash<H: Hasher>(limit: &str, parts: &[KeyPart<'_>], state: &mut H) {
    fn put<H: Hasher>(state: &mut H, bytes: &[u8]) {
        state.write_u64(bytes.len() as u64);
        state.write(bytes);
    }
    put(state, limit.as_bytes());
    state.write_u64(parts.len() as u64);
    for part in parts {
        match part {
            KeyPart::Address(IpAddr::V4(address)) => {
                state.write_u8(b'4');
                state.write_u32(address.to_bits());
            }
            KeyPart::Address(IpAddr::V6(address)) => {
                state.write_u8(b'6');
                state.write_u128(address.to_bits());
            }
            KeyPart::Bytes(bytes) => {
                state.write_u8(b'b');
                put(state, bytes);
            }
            KeyPart::Number(number) => {
                state.write_u8(b'n');
                state.write_u64(*number);
            }
            KeyPart::Alternative(which) => {
                state.write_u8(b'a');
                state.write_u8(*which);
            }
            KeyPart::Missing => state.write_u8(b'm'),
        }
    }
}

/// A [`Key`] that borrows from a request.
///
/// This type is public because it appears in the trait bounds of the conversions into a
/// [`Backend`](crate::Backend).
#[derive(Debug)]
pub struct KeyRef<'a> {
    limit: &'a Arc<str>,
    parts: SmallVec<[KeyPart<'a>; INLINE]>,
}

impl<'a> KeyRef<'a> {
    pub(crate) fn new(limit: &'a Arc<str>) -> Self {
        Self { limit, parts: SmallVec::new() }
    }

    pub(crate) fn parts(&self) -> &[KeyPart<'a>] {
        &self.parts
    }

    pub(crate) fn push(&mut self, part: KeyPart<'a>) {
        self.parts.push(part);
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.parts.truncate(len);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(self.limit, &self.parts, state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        **self.limit == *key.limit && *self.parts == *key.parts
    }
}

impl ToKey<Key> for KeyRef<'_> {
    fn to_key(&self) -> Key {
        let parts = self.parts.iter().map(|part| part.clone().into_owned()).collect();
        Key { limit: Arc::clone(self.limit), parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    fn of<'a>(limit: &'a Arc<str>, parts: &[KeyPart<'a>]) -> KeyRef<'a> {
        let mut key = KeyRef::new(limit);
        parts.iter().for_each(|part| key.push(part.clone()));
        key
    }

    #[test]
    fn a_borrowed_key_is_found_by_its_owned_form_and_no_other() {
        let names: [Arc<str>; 2] = ["a".into(), "b".into()];
        let parts: [&[KeyPart<'_>]; 12] = [
            &[],
            &[KeyPart::Missing],
            &[KeyPart::Number(0)],
            &[KeyPart::Alternative(0)],
            &["".into()],
            &["a".into()],
            &["ab".into(), "c".into()],
            &["a".into(), "bc".into()],
            &["abc".into()],
            &["1.2.3.4".into()],
            &[IpAddr::from([1, 2, 3, 4]).into()],
            &[KeyPart::Alternative(1), IpAddr::from([1, 2, 3, 4]).into()],
        ];
        let all = || names.iter().flat_map(|name| parts.iter().map(move |parts| of(name, parts)));
        let seed = RandomState::new();
        for (i, one) in all().enumerate() {
            for (j, other) in all().enumerate() {
                let owned = other.to_key();
                assert_eq!(one.equivalent(&owned), i == j, "{one:?} {owned:?}");
                assert_eq!(owned.borrowed().equivalent(&one.to_key()), i == j, "{one:?} {owned:?}");
                assert_eq!(seed.hash_one(&one) == seed.hash_one(&owned), i == j, "{one:?} {owned:?}");
            }
        }
    }

    /// Saved states contain hashes of keys. If this test fails, they are of no use any more: raise
    /// the version in `limit/saved.rs`.
    #[test]
    fn a_key_is_hashed_as_in_every_saved_state() {
        #[derive(Default)]
        struct Calls(String);
        impl Calls {
            fn add(&mut self, call: &str, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{call} {value:?}, "));
            }
        }
        impl Hasher for Calls {
            fn finish(&self) -> u64 {
                0
            }
            fn write(&mut self, bytes: &[u8]) {
                self.add("bytes", &bytes);
            }
            fn write_u8(&mut self, value: u8) {
                self.add("u8", &(value as char));
            }
            fn write_u32(&mut self, value: u32) {
                self.add("u32", &value);
            }
            fn write_u64(&mut self, value: u64) {
                self.add("u64", &value);
            }
            fn write_u128(&mut self, value: u128) {
                self.add("u128", &value);
            }
        }
        let v6: IpAddr = "::1:2".parse().unwrap();
        let parts = [KeyPart::Alternative(b'1'), IpAddr::from([0, 0, 1, 2]).into(), v6.into()];
        let parts = parts.into_iter().chain(["ab".into(), 7.into(), KeyPart::Missing]);
        let mut calls = Calls::default();
        Key::new("api", parts).hash(&mut calls);
        assert_eq!(
            calls.0,
            "u64 3, bytes [97, 112, 105], u64 6, u8 'a', u8 '1', u8 '4', u32 258, u8 '6', u128 65538, \
             u8 'b', u64 2, bytes [97, 98], u8 'n', u64 7, u8 'm', "
        );
    }

    #[test]
    fn keys_that_differ_are_written_differently() {
        let written = |key: Key| {
            let mut bytes = Vec::new();
            key.write_to(&mut bytes);
            bytes
        };
        let address = IpAddr::from([97, 98, 99, 100]);
        let keys = [
            Key::new("api", ["ab", "c"]),
            Key::new("api", ["a", "bc"]),
            Key::new("apia", ["b", "c"]),
            Key::new("api", [KeyPart::Number(0x6162)]),
            Key::new("api", ["\0\0\0\0\0\0ab"]),
            Key::new("api", [address]),
            Key::new("api", ["abcd"]),
            Key::new("api", [KeyPart::Alternative(0), "abcd".into()]),
            Key::new("api", [KeyPart::Alternative(1), "abcd".into()]),
            Key::new("api", [KeyPart::Missing]),
            Key::new("api", [""]),
            Key::new("api", Vec::<KeyPart<'_>>::new()),
        ];
        let bytes: Vec<_> = keys.into_iter().map(written).collect();
        for (i, one) in bytes.iter().enumerate() {
            assert!(!bytes[..i].contains(one), "{i}");
        }
    }
}
