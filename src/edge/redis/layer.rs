//! Shared limits in front of HTTP services.

use super::limiter::SharedLimiter;
use super::name::StoreKey;
use crate::http::{AsyncLimiter, Key, KeyPart};
use crate::{Decision, Quota};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl AsyncLimiter for SharedLimiter<Key> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Answer<'a, Decision> {
        Box::pin(Self::check_n(self, key, cost))
    }

    fn refund<'a>(&'a self, key: &'a Key, charge: &'a Decision) -> Answer<'a, ()> {
        Box::pin(Self::refund(self, key, charge))
    }

    fn quota(&self) -> Quota {
        Self::quota(self)
    }

    fn capacity(&self) -> u64 {
        Self::capacity(self)
    }
}

/// The limit's name and the parts, each with its kind and length.
impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        fn put(bytes: &mut Vec<u8>, kind: u8, part: &[u8]) {
            bytes.push(kind);
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        put(bytes, b'l', self.limit().as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_are_written_differently() {
        let written = |key: Key| {
            let mut bytes = Vec::new();
            key.write(&mut bytes);
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
