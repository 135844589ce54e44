//! The rules that the words of one era were made under.

use super::slot::Fingerprint;
use crate::rule::AnyRule;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// The rule of all keys but those that have one of their own. Never changed: an era with other rules follows.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    default: AnyRule,
    /// None if no key has a rule of its own: then a lookup does not even look here.
    own: Option<Arc<Own>>,
    /// How many changes there were before these.
    changes: u64,
}

/// The hash of a fingerprint is the fingerprint: it is one.
type Own = HashMap<Fingerprint, AnyRule, BuildHasherDefault<Given>>;

impl Rules {
    pub(super) fn new(default: AnyRule) -> Self {
        Self { default, own: None, changes: 0 }
    }

    /// The rule of a key.
    #[inline(always)]
    pub(crate) fn of(&self, key: Fingerprint) -> &AnyRule {
        match &self.own {
            None => &self.default,
            Some(own) => self.own_or_default(own, key),
        }
    }

    // Not inlined: the lookups of those who have no such rules stay small.
    #[inline(never)]
    fn own_or_default<'r>(&'r self, own: &'r Own, key: Fingerprint) -> &'r AnyRule {
        own.get(&key).unwrap_or(&self.default)
    }

    /// The rule of keys that have none of their own.
    pub(crate) fn default(&self) -> &AnyRule {
        &self.default
    }

    /// How many changes there were before these rules.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Has a key a rule of its own?
    pub(crate) fn has_own(&self, key: Fingerprint) -> bool {
        self.own.as_ref().is_some_and(|own| own.contains_key(&key))
    }

    /// The bytes that the rules of single keys take: a map keeps a byte beside each entry.
    pub(crate) fn bytes(&self) -> usize {
        let entry = size_of::<(Fingerprint, AnyRule)>() + 1;
        self.own.as_ref().map_or(0, |own| own.capacity() * entry)
    }

    /// How many keys have a rule of their own.
    pub(crate) fn count(&self) -> usize {
        self.own.as_ref().map_or(0, |own| own.len())
    }

    /// Are these the same rules, and not only alike?
    #[inline]
    pub(super) fn are(&self, others: &Self) -> bool {
        self.changes == others.changes
    }

    /// These rules after a change: another default, and keys that get a rule of their own or lose it.
    pub(crate) fn changed(&self, default: Option<AnyRule>, keys: &[(Fingerprint, Option<AnyRule>)]) -> Self {
        let mut own: Own = self.own.as_deref().cloned().unwrap_or_default();
        for &(key, rule) in keys {
            match rule {
                Some(rule) => own.insert(key, rule),
                None => own.remove(&key),
            };
        }
        Self {
            default: default.unwrap_or(self.default),
            own: (!own.is_empty()).then(|| Arc::new(own)),
            changes: self.changes + 1,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Given(u64);

impl Hasher for Given {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a fingerprint writes one u64");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        // The map takes the group from the low bits and the tag from the highest seven; all are random.
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
