//! A limit of a replay: its keys, and the answers of its classes.

use std::cmp::Reverse;
use std::net::IpAddr;

use serde::Serialize;
use tollgate_http::KeyPart;
use tollgate_http::program;
use tollgate_http::settings::{Allowance, LimitPart};

use crate::printable::printable;
use crate::replay::keys::{KeyId, Keys};
use crate::replay::log::key::KeyShape;

/// A limit, with the counts of its answers.
pub(crate) struct Limit {
    pub(crate) part: LimitPart,
    pub(crate) is_shadow: bool,
    /// The shape of the key, if the limit counts by fields of the log: see `--key`.
    pub(crate) fields: Option<KeyShape>,
    /// How many bits of an IPv6 address count.
    ipv6_prefix: u8,
    /// The name and the allowance of each class. The default class is the first.
    pub(crate) classes: Vec<(Option<String>, Allowance)>,
    /// The counts of each class, and the counts of the requests without a key.
    counts: Vec<Counts>,
    pub(crate) keys: Keys,
}

/// The number of requests for each answer of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) full: u64,
    /// Requests of a key that an earlier denial has paused.
    pub(crate) paused: u64,
    pub(crate) blocked: u64,
    /// Requests that were refused because they had no key, or several.
    pub(crate) no_key: u64,
    /// Requests without a key that passed.
    pub(crate) passed_without_key: u64,
    /// Requests that the limit would have refused without shadow mode.
    pub(crate) would_refuse: u64,
    /// Requests that this limit would have admitted, but that another limit refused.
    pub(crate) refused_by_another: u64,
}

impl Counts {
    pub(crate) fn refused(&self) -> u64 {
        self.denied + self.full + self.paused + self.blocked + self.no_key
    }
}

/// The key under which refused requests without a key are counted. No other key has these bytes.
pub(crate) const NO_KEY: &[u8] = &[u8::MAX];

impl Limit {
    pub(crate) fn new(part: LimitPart, is_shadow: bool, fields: Option<KeyShape>, ipv6_prefix: u8) -> Self {
        let classes: Vec<_> =
            program::classes(&part).map(|(name, it)| (name.map(str::to_owned), it)).collect();
        let counts = vec![Counts::default(); classes.len() + 1];
        Self { part, is_shadow, fields, ipv6_prefix, classes, counts, keys: Keys::default() }
    }

    /// Returns the counts of a class.
    pub(crate) fn class(&mut self, class: usize) -> &mut Counts {
        &mut self.counts[class]
    }

    /// Returns the counts of the requests without a key. Their class is unknown.
    pub(crate) fn without_key(&mut self) -> &mut Counts {
        let place = if self.classes.len() == 1 { 0 } else { self.classes.len() };
        &mut self.counts[place]
    }

    /// Returns the names of the classes to which requests have belonged, sorted, each with its
    /// counts. The requests without a key have no class.
    pub(crate) fn counts(&self) -> Vec<(Option<&str>, Counts)> {
        let names = self.classes.iter().map(|(name, _)| name.as_deref()).chain([None]);
        let all = names.zip(self.counts.iter().copied());
        let mut all: Vec<_> = all.filter(|(_, counts)| *counts != Counts::default()).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// Returns the number of keys with refused requests, and the keys that were refused most often:
    /// each in its printable form, with its refused requests and all its requests. `refused`
    /// returns the number of refused requests of a key.
    pub(crate) fn most_refused(
        &self,
        top: usize,
        refused: impl Fn(KeyId) -> u64,
    ) -> (usize, Vec<RefusedKey>) {
        let keys = self.keys.by_id();
        let mut ids: Vec<(u64, KeyId)> =
            (0..keys.len()).map(|id| (refused(id), id)).filter(|(refused, _)| *refused > 0).collect();
        let all = ids.len();
        ids.sort_unstable_by_key(|(refused, _)| Reverse(*refused));
        // Of the keys that were refused equally often, those that are first by name are shown.
        let least = top.checked_sub(1).and_then(|last| ids.get(last)).map_or(0, |(refused, _)| *refused);
        let row = |&(refused, id): &(u64, KeyId)| RefusedKey {
            key: self.shown(keys[id]),
            refused,
            requests: self.keys.requests()[id],
            #[cfg(feature = "html")]
            id,
        };
        let mut rows: Vec<RefusedKey> =
            ids.iter().take_while(|(refused, _)| *refused >= least).map(row).collect();
        rows.sort_by(|one, other| other.refused.cmp(&one.refused).then_with(|| one.key.cmp(&other.key)));
        rows.truncate(top);
        (all, rows)
    }

    /// Returns the printable form of a key.
    pub(crate) fn shown(&self, key: &[u8]) -> String {
        match self.fields {
            Some(fields) => fields.show(key),
            None if key == NO_KEY => "(no key)".to_owned(),
            None if key.is_empty() => "(all)".to_owned(),
            None => shown(key, self.ipv6_prefix),
        }
    }

    /// Returns the limit's name, safe to print.
    pub(crate) fn name(&self) -> String {
        printable(self.part.name.as_bytes())
    }
}

/// A key with refused requests.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedKey {
    pub(crate) key: String,
    pub(crate) refused: u64,
    pub(crate) requests: u64,
    #[cfg(feature = "html")]
    #[serde(skip)]
    pub(crate) id: KeyId,
}

/// The first byte of each part of a written key. The length of the part's bytes follows it, as 32
/// bits, and then the bytes.
mod kind {
    pub(super) const ADDRESS: u8 = 0;
    pub(super) const BYTES: u8 = 1;
    pub(super) const NUMBER: u8 = 2;
    pub(super) const ALTERNATIVE: u8 = 3;
    pub(super) const MISSING: u8 = 4;
}

/// Appends a key's parts. Different keys have different bytes.
#[inline]
pub(crate) fn write_key(parts: &[KeyPart<'_>], key: &mut Vec<u8>) {
    let mut push = |kind: u8, bytes: &[u8]| {
        key.push(kind);
        // A line of a log is much shorter than 4 GiB.
        key.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        key.extend_from_slice(bytes);
    };
    for part in parts {
        match part {
            KeyPart::Address(IpAddr::V4(ip)) => push(kind::ADDRESS, &ip.octets()),
            KeyPart::Address(IpAddr::V6(ip)) => push(kind::ADDRESS, &ip.octets()),
            KeyPart::Bytes(bytes) => push(kind::BYTES, bytes),
            KeyPart::Number(number) => push(kind::NUMBER, &number.to_le_bytes()),
            KeyPart::Alternative(number) => push(kind::ALTERNATIVE, &[*number]),
            _ => push(kind::MISSING, b""),
        }
    }
}

/// Returns the printable form of a [written](write_key) key: the values without the numbers of
/// alternatives.
fn shown(mut key: &[u8], ipv6_prefix: u8) -> String {
    let mut values: Vec<Vec<u8>> = Vec::new();
    while let Some(([kind, length @ ..], rest)) = key.split_first_chunk::<5>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (bytes, rest) = rest.split_at(length.min(rest.len()));
        key = rest;
        let [v4, v6] = [
            <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
            <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        ];
        values.push(match (*kind, v4.or(v6)) {
            (kind::ALTERNATIVE, _) => continue,
            (kind::MISSING, _) => b"-".to_vec(),
            (kind::ADDRESS, Some(ip)) if ip.is_ipv6() && ipv6_prefix < 128 => {
                format!("{ip}/{ipv6_prefix}").into_bytes()
            }
            (kind::ADDRESS, Some(ip)) => ip.to_string().into_bytes(),
            (kind::NUMBER, _) => {
                let number = bytes.try_into().map_or(0, u64::from_le_bytes);
                number.to_string().into_bytes()
            }
            _ => bytes.to_vec(),
        });
    }
    let shape = KeyShape::new(values.len());
    let mut key = Vec::new();
    values.iter().for_each(|value| shape.push(&mut key, value));
    shape.show(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_by_its_values() {
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 0]));
        let table: [(&[KeyPart<'_>], &str); 6] = [
            (&[v4.into()], "192.0.2.1"),
            (&[KeyPart::Alternative(1), v6.into(), "/a".into()], "2001:db8:0:1::/64 + /a"),
            (&[KeyPart::Missing], "-"),
            (&[KeyPart::Number(7), "".into()], "7 + \"\""),
            (&["\x1b".into()], "\\u{1b}"),
            (&["a + b".into(), "c".into()], "a \\+ b + c"),
        ];
        for (parts, expected) in table {
            let mut key = Vec::new();
            write_key(parts, &mut key);
            assert_eq!(shown(&key, 64), expected);
        }
    }
}
