//! The limits' decisions, counted by limit and class.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_http::{DecisionEvent, KeyPart};

use crate::replay::log::key::KeyShape;

/// The counts for all limits.
pub(crate) struct Tally {
    pub(crate) limits: Vec<OfLimit>,
    /// How many bits of an IPv6 address count.
    ipv6_prefix: u8,
    /// The refusal of the current request, or `None` if no limit has refused it.
    refusal: Option<Refusal>,
    /// The limits that have let the current request through without a key.
    without_key: Vec<usize>,
}

/// The refusal of a request.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    /// The index of the limit that refused the request.
    pub(crate) limit: usize,
    pub(crate) outcome: &'static str,
    pub(crate) retry_after: Option<Duration>,
}

/// The counts for one limit.
pub(crate) struct OfLimit {
    pub(crate) name: String,
    pub(crate) is_shadow: bool,
    pub(crate) classes: Vec<OfClass>,
    /// How often each key was refused, including refusals that took no effect because of shadow
    /// mode. [`written`] defines the form of the keys.
    refused_keys: HashMap<Box<[u8]>, u64, foldhash::fast::RandomState>,
    /// The number of requests for each class that the limit does not define.
    pub(crate) unknown_classes: HashMap<String, u64>,
}

/// The counts for one class of callers. A limit without classes has a single unnamed class.
#[derive(Default)]
pub(crate) struct OfClass {
    pub(crate) name: Option<String>,
    pub(crate) counts: Counts,
}

/// The number of requests for each answer of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) full: u64,
    pub(crate) blocked: u64,
    /// Requests that were refused because they had no key.
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
        self.denied + self.full + self.blocked + self.no_key
    }

    fn add(&mut self, event: &DecisionEvent<'_>) {
        let count = match event.outcome() {
            Some("allowed") => &mut self.passed,
            Some("full") => &mut self.full,
            Some("blocked") => &mut self.blocked,
            Some("no-key") if event.would_refuse() => &mut self.would_refuse,
            Some("no-key") => &mut self.no_key,
            Some("shadow") => &mut self.would_refuse,
            Some(_) => &mut self.denied,
            None => &mut self.refused_by_another,
        };
        *count += 1;
    }
}

impl Tally {
    pub(crate) fn new(limits: impl Iterator<Item = (String, bool)>, ipv6_prefix: u8) -> Self {
        let limit = |(name, is_shadow)| OfLimit {
            name,
            is_shadow,
            classes: Vec::new(),
            refused_keys: HashMap::default(),
            unknown_classes: HashMap::new(),
        };
        Self { limits: limits.map(limit).collect(), ipv6_prefix, refusal: None, without_key: Vec::new() }
    }

    /// Counts the answer of a limit to the current request.
    pub(crate) fn add(&mut self, event: &DecisionEvent<'_>) {
        let prefix = self.ipv6_prefix;
        let Some(index) = self.limits.iter().position(|limit| limit.name == event.limit_name) else { return };
        if event.reason.is_none() && event.outcome() == Some("no-key") {
            // Another limit may still refuse the request.
            self.without_key.push(index);
            return;
        }
        let limit = &mut self.limits[index];
        limit.class(event.class).counts.add(event);
        if event.reason.is_some() {
            let key = event.key.map_or_else(Vec::new, |key| written(key, prefix));
            match limit.refused_keys.get_mut(&*key) {
                Some(count) => *count += 1,
                None => drop(limit.refused_keys.insert(key.into(), 1)),
            }
        }
        if event.is_binding {
            let retry_after = event.decision.and_then(tollgate::Decision::retry_after);
            self.refusal =
                Some(Refusal { limit: index, outcome: event.outcome().unwrap_or(""), retry_after });
        }
    }

    /// Ends the current request, and returns its refusal, or `None` if it passed.
    pub(crate) fn end(&mut self) -> Option<Refusal> {
        let refusal = self.refusal.take();
        for index in self.without_key.drain(..) {
            let counts = &mut self.limits[index].class(None).counts;
            match refusal {
                Some(_) => counts.refused_by_another += 1,
                None => counts.passed_without_key += 1,
            }
        }
        refusal
    }

    /// Counts a request whose class the limit does not define.
    pub(crate) fn add_unknown(&mut self, limit: &str, class: &str) {
        if let Some(limit) = self.limits.iter_mut().find(|it| it.name == limit) {
            match limit.unknown_classes.get_mut(class) {
                Some(count) => *count += 1,
                None => drop(limit.unknown_classes.insert(class.to_owned(), 1)),
            }
        }
    }
}

impl OfLimit {
    fn class(&mut self, name: Option<&str>) -> &mut OfClass {
        let found = self.classes.iter().position(|class| class.name.as_deref() == name);
        let index = found.unwrap_or_else(|| {
            self.classes.push(OfClass { name: name.map(str::to_owned), counts: Counts::default() });
            self.classes.len() - 1
        });
        &mut self.classes[index]
    }

    /// Returns the number of refused keys, and the printable forms of the keys refused most often.
    pub(crate) fn most_refused(&self, top: usize) -> (usize, Vec<(String, u64)>) {
        let mut keys: Vec<(&[u8], u64)> =
            self.refused_keys.iter().map(|(key, count)| (&**key, *count)).collect();
        keys.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        let all = keys.len();
        let shown = keys.into_iter().take(top).map(|(key, count)| (shown(key), count));
        (all, shown.collect())
    }
}

/// The first byte of a written key without a numbered alternative.
const ONLY: u8 = u8::MAX;

/// Encodes a key as bytes: the number of its alternative, the number of values, and the values. The
/// result is empty for a request without a key.
fn written(parts: &[KeyPart<'_>], ipv6_prefix: u8) -> Vec<u8> {
    let mut alternative = ONLY;
    let mut values: Vec<Vec<u8>> = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            KeyPart::Alternative(number) => alternative = *number,
            KeyPart::Address(ip) if ip.is_ipv6() && ipv6_prefix < 128 => {
                values.push(format!("{ip}/{ipv6_prefix}").into_bytes());
            }
            KeyPart::Address(ip) => values.push(ip.to_string().into_bytes()),
            KeyPart::Bytes(bytes) => values.push(bytes.to_vec()),
            KeyPart::Number(number) => values.push(number.to_string().into_bytes()),
            _ => values.push(b"-".to_vec()),
        }
    }
    let mut key = vec![alternative, u8::try_from(values.len()).unwrap_or(u8::MAX)];
    for value in &values {
        KeyShape::new(values.len()).push(&mut key, value);
    }
    key
}

fn shown(key: &[u8]) -> String {
    match key {
        [] => "(no key)".to_owned(),
        [_, 0] => "(all)".to_owned(),
        [_, values, key @ ..] => KeyShape::new(usize::from(*values)).show(key),
        [_] => String::new(),
    }
}
