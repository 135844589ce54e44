//! The rules under which the words of one array were made.

use super::memory::{Memory, Permit};
use super::space::Fingerprint;
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Gcra};
use crate::sync::Given;
use crate::time::Tick;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// A default rule, and the rules for individual keys. These rules are immutable: to change them,
/// the table builds an array with new rules.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The default rule, if that rule is a bucket and no key has its own rule.
    pub(super) bucket: Option<Gcra>,
    default: Enforced<AnyRule>,
    /// The rules for individual keys. `None` if no key has its own rule, so that a lookup skips the
    /// map.
    own: Option<Arc<Own>>,
    /// The size in bytes of the largest rules for individual keys so far.
    largest: u64,
    /// How many changes have led to these rules.
    changes: u64,
    /// The time of the latest change.
    since: Tick,
}

/// The rules for individual keys. Their memory is counted and bounded, because each retired array
/// keeps its rules until the array is freed.
#[derive(Debug)]
struct Own {
    rules: Map,
    /// The permit for this memory. It is returned once no array uses these rules any more.
    _permit: Permit,
}

/// A map that uses a fingerprint as its own hash.
// A hash map derives an entry's group from the low bits of the hash, and its tag from the highest
// seven bits. Both work here, because all bits of a fingerprint are random.
type Map = HashMap<Fingerprint, Enforced<AnyRule>, BuildHasherDefault<Given>>;

impl Rules {
    pub(super) fn new(default: Enforced<AnyRule>) -> Self {
        Self { bucket: default.rule.as_gcra(), default, own: None, largest: 0, changes: 0, since: Tick::ZERO }
    }

    /// Returns the rule for a key.
    #[inline]
    pub(crate) fn of(&self, key: Fingerprint) -> &AnyRule {
        match &self.own {
            None => &self.default.rule,
            Some(own) => self.own_or_default(own, key),
        }
    }

    // Not inlined, so that lookups stay small in tables without rules for individual keys.
    #[inline(never)]
    fn own_or_default<'r>(&'r self, own: &'r Own, key: Fingerprint) -> &'r AnyRule {
        &own.rules.get(&key).unwrap_or(&self.default).rule
    }

    /// Returns the rule that applies to all keys without a rule of their own.
    pub(crate) fn default(&self) -> &Enforced<AnyRule> {
        &self.default
    }

    /// Returns how many changes have led to these rules.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the key's own quota, if the key has one.
    pub(crate) fn own_quota(&self, key: Fingerprint) -> Option<Quota> {
        Some(self.own.as_ref()?.rules.get(&key)?.quota)
    }

    /// Returns the time of the latest change.
    pub(crate) fn since(&self) -> Tick {
        self.since
    }

    /// Returns the number of keys that have their own rule.
    pub(crate) fn count(&self) -> usize {
        self.own.as_ref().map_or(0, |own| own.rules.len())
    }

    /// Returns whether both sets of rules were created by the same change. Equal rules created by
    /// different changes count as different.
    #[inline]
    pub(super) fn are(&self, others: &Self) -> bool {
        self.changes == others.changes
    }

    /// Returns the rules that result from a change at `now`. The change may replace the default,
    /// give keys their own rules, or remove such rules. Returns `None` if the memory is not
    /// permitted. The rules of all arrays not yet freed may together occupy up to four times the
    /// memory of the largest rules so far, because a stopped thread may keep the largest rules.
    pub(crate) fn changed(
        &self,
        now: Tick,
        default: Option<Enforced<AnyRule>>,
        keys: &[(Fingerprint, Option<Enforced<AnyRule>>)],
        memory: &Arc<Memory>,
    ) -> Option<Self> {
        let since = self.since.max(now);
        let after = |new: Enforced<AnyRule>, before: &AnyRule| Enforced {
            rule: new.rule.after(before, since),
            ..new
        };
        let mut default = default.map_or(self.default, |new| after(new, &self.default.rule));
        let (own, largest) = if keys.is_empty() {
            (self.own.clone(), self.largest)
        } else {
            let mut rules = self.own.as_ref().map(|own| own.rules.clone()).unwrap_or_default();
            for &(key, rule) in keys {
                if let Some(rule) = rule {
                    rules.insert(key, after(rule, self.of(key)));
                } else if let Some(own) = rules.remove(&key) {
                    // From now on, the default applies to this key.
                    default = after(default, &own.rule);
                }
            }
            rules.shrink_to_fit();
            let bytes = bytes_of(rules.len());
            let largest = self.largest.max(bytes);
            match rules.is_empty() {
                true => (None, largest),
                false => {
                    let _permit = Permit::take_up_to(memory, bytes, 4 * largest)?;
                    (Some(Arc::new(Own { rules, _permit })), largest)
                }
            }
        };
        let bucket = if own.is_none() { default.rule.as_gcra() } else { None };
        Some(Self { bucket, default, own, largest, changes: self.changes + 1, since })
    }
}

/// Returns the size in bytes of a map of `count` rules that has no room for more. The number of its
/// places is a power of two. At least an eighth of them are vacant, and each requires one extra
/// byte.
fn bytes_of(count: usize) -> u64 {
    let places = (8 * count).div_ceil(7).next_power_of_two().max(4);
    (places * (size_of::<(Fingerprint, Enforced<AnyRule>)>() + 1)) as u64
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use std::hash::BuildHasher;
    use std::time::Duration;

    /// With any other hash, the map would find the same rules, but more slowly.
    #[test]
    fn the_hash_of_a_fingerprint_is_the_fingerprint() {
        let hashes = BuildHasherDefault::<Given>::default();
        for hash in [2, 1 << 40, u64::MAX] {
            assert_eq!(hashes.hash_one(Fingerprint::of_hash(hash)), hash);
        }
    }

    #[test]
    fn rules_of_keys_are_counted_and_four_times_as_many_are_permitted() {
        let quota = Quota::per_second(1);
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        let rule = Enforced { rule, quota };
        // Enough keys to require a map of 512 places, with some places to spare.
        let keys: Vec<_> = (2..402).map(|hash| (Fingerprint::of_hash(hash), Some(rule))).collect();
        let bytes = 512 * (size_of::<(Fingerprint, Enforced<AnyRule>)>() as u64 + 1);
        let memory = Memory::new(0);
        let mut kept = vec![Rules::new(rule)];
        for count in 1..=4 {
            let last = &kept[kept.len() - 1];
            kept.push(last.changed(Tick::from_nanos(count), None, &keys, &memory).unwrap());
            assert_eq!((kept[kept.len() - 1].count(), memory.bytes()), (keys.len(), count * bytes));
        }
        let changed = |rules: &Rules, now| rules.changed(Tick::from_nanos(now), None, &keys, &memory);
        assert!(changed(&kept[4], 5).is_none(), "nothing is freed yet");
        kept.remove(1);
        // Turning the clock back does not turn back the time of the latest change.
        let last = changed(&kept[3], 1).unwrap();
        assert_eq!((last.changes(), last.since()), (5, Tick::from_nanos(4)));
        assert!(last.are(&last.clone()) && !last.are(&kept[3]));
        // If only the default changes, the existing rules for individual keys are kept, so the
        // change costs no memory. Once no key has its own rule, no memory is counted for rules.
        let _default = last.changed(Tick::ZERO, Some(rule), &[], &memory).unwrap();
        assert_eq!(memory.bytes(), 4 * bytes);
        let none: Vec<_> = keys.iter().map(|&(key, _)| (key, None)).collect();
        let last = last.changed(Tick::ZERO, None, &none, &memory).unwrap();
        assert_eq!((last.count(), last.own_quota(keys[0].0)), (0, None));
    }

    /// A stopped thread may keep the earlier rules for as long as it is stopped.
    #[test]
    fn few_rules_are_permitted_beside_many_that_are_not_freed_yet() {
        let quota = Quota::per_second(1);
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        let rule = Enforced { rule, quota };
        let keys: Vec<_> = (2..402).map(|hash| (Fingerprint::of_hash(hash), Some(rule))).collect();
        let none: Vec<_> = keys.iter().map(|&(key, _)| (key, None)).collect();
        let memory = Memory::new(0);
        let changed = |rules: &Rules, keys: &[_]| rules.changed(Tick::ZERO, None, keys, &memory).unwrap();
        let many = changed(&Rules::new(rule), &keys);
        let bytes = memory.bytes();
        let one = changed(&changed(&many, &none), &keys[..1]);
        // The smallest map has four places.
        assert_eq!((one.count(), memory.bytes()), (1, bytes + bytes / 128));
        // A map from which keys were removed becomes smaller.
        drop(one);
        let one = changed(&many, &none[1..]);
        drop(many);
        assert_eq!((one.count(), memory.bytes()), (1, bytes / 128));
    }
}
