//! Deserializes settings that have a limited range. The range is checked during parsing, so that
//! the file's parser can report the line of a mistake.

use crate::client::forwarded::TrustedProxies;
use http::StatusCode;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Reads a number; `what` names it in the error.
fn within<'de, D, T>(deserializer: D, what: &str, range: RangeInclusive<T>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64> + PartialOrd + Display,
{
    let number = i64::deserialize(deserializer)?;
    T::try_from(number).ok().filter(|it| range.contains(it)).ok_or_else(|| {
        D::Error::custom(format!("invalid {what} {number}: expected {} to {}", range.start(), range.end()))
    })
}

pub(super) fn ipv6_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    within(deserializer, "number of bits", 1..=128)
}

pub(super) fn hops<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    within(deserializer, "number of trusted hops", 1..=TrustedProxies::MAX_HOPS).map(Some)
}

/// Reads a list of networks. Each text must be a network, and together the networks must not cover
/// every address.
pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let networks: Vec<String> = Vec::deserialize(deserializer)?;
    if networks.is_empty() {
        return Ok(networks);
    }
    let checked = TrustedProxies::networks(networks.clone()).check();
    checked.map(|()| networks).map_err(D::Error::custom)
}

pub(super) fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StatusCode, D::Error> {
    let status = within(deserializer, "status of a refusal", 400..=599)?;
    StatusCode::from_u16(status).map_err(D::Error::custom)
}

pub(super) fn write_status<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
