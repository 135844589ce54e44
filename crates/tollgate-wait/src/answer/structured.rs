//! Parses `RateLimit` and `RateLimit-Policy`, which are structured fields (RFC 9651), in the
//! current form of draft-ietf-httpapi-ratelimit-headers and in the form of its version 07.

use super::ServerLimit;
use http::HeaderMap;
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parameters, Parser};
use std::time::Duration;

/// Returns the limits in both fields. An item of `RateLimit` and the first policy with its name
/// form one limit. Each further policy with this name is a limit whose name contains its quota, so
/// that no policy replaces another one.
pub(super) fn limits(headers: &HeaderMap) -> Vec<ServerLimit> {
    let mut limits = Vec::new();
    for item in items(&field(headers, "ratelimit-policy")) {
        let Some(mut limit) = policy(&item) else { continue };
        if limits.iter().any(|other: &ServerLimit| other.name == limit.name) {
            let window = limit.window.map(|window| format!(";w={}", window.as_secs()));
            let (tokens, window) = (limit.tokens.unwrap_or_default(), window.unwrap_or_default());
            limit.name = format!("{};q={tokens}{window}", limit.name);
        }
        limits.push(limit);
    }
    let policies = limits.len();
    let field = field(headers, "ratelimit");
    if let Some(limit) = version_7(&field).filter(|limit| !complete(&mut limits, limit)) {
        limits.push(limit);
    }
    for item in items(&field) {
        let Some(name) = name(&item) else { continue };
        let (remaining, reset) = (integer(&item.params, "r"), seconds(&item.params, "t"));
        let at = limits.iter().position(|limit| limit.name == name);
        match at.or_else(|| partition(&limits[..policies], &name)).map(|at| &mut limits[at]) {
            Some(limit) => (limit.remaining, limit.reset) = (remaining, reset),
            None => limits.push(ServerLimit { name, remaining, reset, ..ServerLimit::default() }),
        }
    }
    limits
}

/// Returns the index of the only policy with this name and any partition key. Some servers send the
/// partition key only in `RateLimit-Policy`.
fn partition(policies: &[ServerLimit], name: &str) -> Option<usize> {
    let has_name = |policy: &ServerLimit| {
        policy.name.strip_prefix(name).is_some_and(|partition| partition.starts_with(";:"))
    };
    let mut named = (0..policies.len()).filter(|at| has_name(&policies[*at]));
    named.next().filter(|_| named.next().is_none())
}

/// Returns the items of `RateLimit-Limit`, each of which may have a window. The first item is the
/// active limit.
pub(super) fn quotas(text: &str) -> impl Iterator<Item = ServerLimit> {
    items(text).into_iter().filter_map(|item| policy(&item))
}

/// Joins all lines of a field into one list.
pub(super) fn field(headers: &HeaderMap, name: &str) -> String {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.collect::<Vec<_>>().join(",")
}

/// Parses a list's items. Returns no items if `text` is not a list.
fn items(text: &str) -> Vec<Item> {
    let entries = parse::<List>(text).unwrap_or_default().into_iter();
    let items = entries.filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    });
    items.collect()
}

fn parse<T: FieldType>(text: &str) -> Option<T> {
    Parser::new(text).parse().ok()
}

/// Parses a quota: `"name";q=100;w=60`, or `100;w=60` in older versions.
fn policy(item: &Item) -> Option<ServerLimit> {
    let tokens = match &item.bare_item {
        BareItem::Integer(_) => value(&item.bare_item)?,
        _ => integer(&item.params, "q")?,
    };
    let unit = item.params.get("qu").and_then(BareItem::as_string);
    Some(ServerLimit {
        name: name(item)?,
        tokens: Some(tokens),
        window: seconds(&item.params, "w").filter(|window| !window.is_zero()),
        unit: unit.map(|unit| unit.as_str().to_owned()).filter(|unit| unit != "requests"),
        ..ServerLimit::default()
    })
}

/// Parses the form of version 07: `limit=100, remaining=50, reset=5`.
fn version_7(text: &str) -> Option<ServerLimit> {
    let dictionary = parse::<Dictionary>(text)?;
    let integer = |name: &str| match dictionary.get(name) {
        Some(ListEntry::Item(item)) => value(&item.bare_item),
        _ => None,
    };
    let remaining = integer("remaining")?;
    Some(ServerLimit {
        name: "ratelimit".to_owned(),
        tokens: integer("limit"),
        remaining: Some(remaining),
        reset: integer("reset").map(Duration::from_secs),
        ..ServerLimit::default()
    })
}

/// Merges an unnamed limit into the first policy with the same quota and no remaining amount.
/// Returns false if no such policy exists.
pub(super) fn complete(policies: &mut [ServerLimit], limit: &ServerLimit) -> bool {
    let is_same = |policy: &&mut ServerLimit| {
        let has_same_quota = policy.tokens.is_some() && policy.tokens == limit.tokens;
        let has_same_window = limit.window.is_none() || policy.window == limit.window;
        has_same_quota && has_same_window && policy.unit == limit.unit && policy.remaining.is_none()
    };
    let policy = policies.iter_mut().find(is_same);
    policy.map(|policy| (policy.remaining, policy.reset) = (limit.remaining, limit.reset)).is_some()
}

/// Returns the name of an item, with its partition key.
fn name(item: &Item) -> Option<String> {
    let mut name = match &item.bare_item {
        BareItem::String(name) => name.as_str().to_owned(),
        BareItem::Token(name) => name.as_str().to_owned(),
        // Older policies have no names, so their quotas distinguish them.
        BareItem::Integer(tokens) => match integer(&item.params, "w") {
            Some(window) => format!("{tokens};w={window}"),
            None => tokens.to_string(),
        },
        _ => return None,
    };
    if let Some(BareItem::ByteSequence(key)) = item.params.get("pk") {
        name.extend([';', ':']);
        name.extend(key.iter().map(|byte| char::from(*byte)));
    }
    Some(name)
}

fn integer(parameters: &Parameters, name: &str) -> Option<u64> {
    value(parameters.get(name)?)
}

/// Parses a number. A negative number is treated as zero.
fn value(item: &BareItem) -> Option<u64> {
    Some(u64::try_from(i64::from(item.as_integer()?)).unwrap_or(0))
}

fn seconds(parameters: &Parameters, name: &str) -> Option<Duration> {
    integer(parameters, name).map(Duration::from_secs)
}
