//! The rules under which the words of one array were made.
//!
//! # Refunds over a change
//!
//! Each rule has a stamp, the number of the change that put the rule in force for its keys. A
//! refund has no effect if the stamp of the charge is not the stamp of the key's rule: see
//! `limiter/resets.rs`. When a key loses its own rule, the default applies again, with the stamp
//! that the key may have had before. A charge from that time must not be refunded: the key's own
//! rule may have refilled the tokens of the charge, and other requests may have spent them since.
//!
//! The rules therefore keep an entry for a *former* key: the default rule, with a stamp that no
//! other charges have. The entry is needed until the last charge that the key made before it got
//! its own rule has refilled under the default. The next change after that time drops the entry,
//! and so does a turnover if no other entries are left. A change of the default drops all such
//! entries, because the new default has a new stamp.
//!
//! The entries of former keys are permitted only within the memory bound of the own rules, so they
//! do not raise this bound. If there is no memory for them, the change is refused.

use super::memory::{Memory, MemoryGrant};
use super::space::Fingerprint;
use crate::decision::Stamp;
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Gcra};
use crate::state::Since;
use crate::sync::Given;
use crate::time::Tick;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// A default rule, and the rules for individual keys. These rules are immutable: to change them,
/// the table builds an array with new rules.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The default rule, if that rule is a bucket and no key has an entry.
    pub(super) bucket: Option<Gcra>,
    pub(super) default: Stamped,
    /// The time of the latest change of the default.
    default_since: Since,
    /// The entries for individual keys. `None` if there are none, so that a lookup skips the map.
    own: Option<Arc<OwnRules>>,
    /// The size in bytes of the largest rules for individual keys so far, without former keys.
    largest: u64,
    /// How many changes have led to these rules.
    changes: u64,
    /// The time of the latest change.
    since: Since,
}

/// A rule, and the stamp of charges under the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamped {
    pub(super) enforced: Enforced<AnyRule>,
    pub(super) stamp: Stamp,
}

/// The entries for individual keys. Their memory is counted and bounded, because each retired array
/// keeps its rules until the array is freed.
#[derive(Debug)]
struct OwnRules {
    entries: Map,
    /// How many keys have their own rule.
    count: usize,
    /// The time after which no former key needs its entry.
    until: Tick,
    /// The permit for this memory. It is returned once no array uses these rules any more.
    _permit: MemoryGrant,
}

/// The entry of a key.
#[derive(Clone, Copy, Debug)]
struct KeyEntry {
    rule: Stamped,
    /// The time after which no charge that the key made with the stamp of the default is held.
    until: Tick,
    /// True if the key has lost its own rule. `rule` is then the default.
    is_former: bool,
}

/// The result of a change.
#[derive(Debug)]
// The value is used once, on a slow path.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Changed {
    To(Rules),
    /// All quotas are the same as before.
    Nothing,
    /// The memory is not permitted.
    NotPermitted,
}

/// A map that uses a fingerprint as its own hash.
// A hash map derives an entry's group from the low bits of the hash, and its tag from the highest
// seven bits. Both work here, because all bits of a fingerprint are random.
type Map = HashMap<Fingerprint, KeyEntry, BuildHasherDefault<Given>>;

impl Rules {
    pub(super) fn new(default: Enforced<AnyRule>) -> Self {
        let default = Stamped { enforced: default, stamp: Stamp::NONE };
        let [default_since, since] = [Since::START; 2];
        let bucket = default.enforced.rule.as_gcra();
        Self { bucket, default, default_since, own: None, largest: 0, changes: 0, since }
    }

    /// Returns the rule for a key.
    #[inline]
    pub(super) fn of(&self, key: Fingerprint) -> &Stamped {
        match &self.own {
            None => &self.default,
            Some(own) => self.own_or_default(own, key),
        }
    }

    // Not inlined, so that lookups stay small in tables without rules for individual keys.
    #[inline(never)]
    fn own_or_default<'r>(&'r self, own: &'r OwnRules, key: Fingerprint) -> &'r Stamped {
        own.entries.get(&key).map_or(&self.default, |entry| &entry.rule)
    }

    /// Returns the rule that applies to all keys without a rule of their own.
    pub(crate) fn default(&self) -> &Enforced<AnyRule> {
        &self.default.enforced
    }

    /// Returns the time of the latest change of the default.
    pub(crate) fn default_since(&self) -> Since {
        self.default_since.clone()
    }

    /// Returns how many changes have led to these rules.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the key's own quota, if the key has one.
    pub(crate) fn own_quota(&self, key: Fingerprint) -> Option<Quota> {
        let entry = self.own.as_ref()?.entries.get(&key)?;
        (!entry.is_former).then_some(entry.rule.enforced.quota)
    }

    /// Returns the keys that have their own quotas.
    pub(crate) fn own_quotas(&self) -> impl Iterator<Item = (Fingerprint, Quota)> {
        let entries = self.own.iter().flat_map(|own| &own.entries);
        let own = entries.filter(|(_, entry)| !entry.is_former);
        own.map(|(&key, entry)| (key, entry.rule.enforced.quota))
    }

    /// Returns the time for which a word is translated to these rules. The word must be frozen.
    pub(super) fn binding(&self) -> Tick {
        self.since.binding()
    }

    /// Returns the number of keys that have their own rule.
    pub(crate) fn count(&self) -> usize {
        self.own.as_ref().map_or(0, |own| own.count)
    }

    /// Returns whether both sets of rules were created by the same change. Equal rules created by
    /// different changes count as different.
    #[inline]
    pub(super) fn are(&self, others: &Self) -> bool {
        self.changes == others.changes
    }

    /// Returns these rules for an array that is created at `now`. If all entries belong to former
    /// keys, and none of them is needed any more, drops the entries.
    pub(super) fn at(&self, now: Tick) -> Self {
        match &self.own {
            Some(own) if own.count == 0 && own.until < now => {
                Self { bucket: self.default.enforced.rule.as_gcra(), own: None, ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// Returns the rules that result from a change. The change may replace the default, give keys
    /// their own rules, or remove such rules. The rules of all arrays not yet freed may together
    /// occupy up to four times the memory of the largest rules so far, because a stopped thread may
    /// keep the largest rules.
    pub(crate) fn changed(
        &self,
        since: &Since,
        default: Option<Enforced<AnyRule>>,
        keys: &[(Fingerprint, Option<Enforced<AnyRule>>)],
        memory: &Arc<Memory>,
    ) -> Changed {
        let (now, changes) = (since.requested(), self.changes + 1);
        let stamp = Stamp::of_change(changes);
        // A rule that stays the same keeps its stamp.
        let replaced = |enforced: Enforced<AnyRule>, before: &Stamped| {
            let is_same = enforced.rule == before.enforced.rule;
            Stamped { enforced, stamp: if is_same { before.stamp } else { stamp } }
        };
        let default = default.filter(|default| default.quota != self.default.enforced.quota);
        let mut is_changed = default.is_some();
        let (default, default_since) = match default {
            Some(new) => (replaced(new, &self.default), since.clone()),
            None => (self.default, self.default_since.clone()),
        };
        let mut entries = self.own.as_ref().map(|own| own.entries.clone()).unwrap_or_default();
        let has_new_stamp = !default.stamp.is(self.default.stamp);
        entries.retain(|_, entry| !entry.is_former || !has_new_stamp && entry.until >= now);
        // Each charge under the earlier default is refilled at the end of this time.
        let default_until = now + self.default.enforced.rule.longest_hold();
        for &(key, rule) in keys {
            let before = entries.get(&key).copied();
            let own = before.filter(|before| !before.is_former);
            let is_same = own.map(|own| own.rule.enforced.quota) == rule.map(|rule| rule.quota);
            if is_same {
                continue;
            }
            is_changed = true;
            let (last, until) = match before {
                // The key is not charged under the default, or has been charged with another stamp.
                Some(KeyEntry { rule, until, .. }) if !rule.stamp.is(self.default.stamp) => (rule, until),
                Some(KeyEntry { rule, .. }) => (rule, default_until),
                None => (self.default, default_until),
            };
            let rule = match rule {
                Some(rule) => KeyEntry { rule: replaced(rule, &last), until, is_former: false },
                None => KeyEntry { rule: replaced(default.enforced, &last), until, is_former: true },
            };
            let is_default = rule.is_former && (until < now || rule.rule.stamp.is(default.stamp));
            match is_default {
                true => _ = entries.remove(&key),
                false => _ = entries.insert(key, rule),
            }
        }
        if !is_changed {
            return Changed::Nothing;
        }
        entries.shrink_to_fit();
        let former = || entries.values().filter(|entry| entry.is_former);
        let count = entries.len() - former().count();
        let until = former().map(|entry| entry.until).max().unwrap_or(Tick::ZERO);
        let largest = if count == 0 { self.largest } else { self.largest.max(bytes_of(count)) };
        let own = match entries.is_empty() {
            true => None,
            // The entries of the keys are the same, so the memory can be shared.
            false
                if keys.is_empty()
                    && self.own.as_ref().is_some_and(|own| own.entries.len() == entries.len()) =>
            {
                self.own.clone()
            }
            false => match MemoryGrant::take_up_to(memory, bytes_of(entries.len()), 4 * largest) {
                Some(_permit) => Some(Arc::new(OwnRules { entries, count, until, _permit })),
                None => return Changed::NotPermitted,
            },
        };
        let bucket = if own.is_none() { default.enforced.rule.as_gcra() } else { None };
        Changed::To(Self { bucket, default, default_since, own, largest, changes, since: since.clone() })
    }
}

/// Returns the size in bytes of a map of `count` entries that has no room for more. The number of
/// its places is a power of two. At least an eighth of them are vacant, and each requires one extra
/// byte.
fn bytes_of(count: usize) -> u64 {
    let places = (8 * count).div_ceil(7).next_power_of_two().max(4);
    (places * (size_of::<(Fingerprint, KeyEntry)>() + 1)) as u64
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use std::hash::BuildHasher;
    use std::time::Duration;

    type Changes = [(Fingerprint, Option<Enforced<AnyRule>>)];

    fn rule(quota: Quota) -> Enforced<AnyRule> {
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        Enforced { rule, quota }
    }

    fn key(hash: u64) -> Fingerprint {
        Fingerprint::of_hash(hash)
    }

    fn secs(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    fn first(quota: Quota) -> Rules {
        Rules::new(rule(quota))
    }

    fn changed_at(rules: &Rules, now: Tick, keys: &Changes, memory: &Arc<Memory>) -> Option<Rules> {
        match rules.changed(&Since::at(now), None, keys, memory) {
            Changed::To(rules) => Some(rules),
            Changed::Nothing => panic!("something changes"),
            Changed::NotPermitted => None,
        }
    }

    /// Returns the rules of enough keys to require a map of 512 places, with some places to spare.
    fn many(quota: Quota) -> Vec<(Fingerprint, Option<Enforced<AnyRule>>)> {
        (2..402).map(|hash| (key(hash), Some(rule(quota)))).collect()
    }

    const SLOW: Quota = Quota::per_second(1);
    const FAST: Quota = Quota::per_second(2);
    const BYTES: u64 = 512 * (size_of::<(Fingerprint, KeyEntry)>() as u64 + 1);

    /// With any other hash, the map would find the same rules, but more slowly.
    #[test]
    fn the_hash_of_a_fingerprint_is_the_fingerprint() {
        let hashes = BuildHasherDefault::<Given>::default();
        for hash in [2, 1 << 40, u64::MAX] {
            assert_eq!(hashes.hash_one(key(hash)), hash);
        }
    }

    #[test]
    fn rules_of_keys_are_counted_and_four_times_as_many_are_permitted() {
        let memory = Memory::new(0);
        let mut kept = vec![first(SLOW)];
        let quota = |count: u64| Quota::per_second(10 + count);
        for count in 1..=4 {
            let last = &kept[kept.len() - 1];
            kept.push(changed_at(last, Tick::ZERO, &many(quota(count)), &memory).unwrap());
            assert_eq!((kept[kept.len() - 1].count(), memory.bytes()), (400, count * BYTES));
        }
        let changed = |rules: &Rules| changed_at(rules, Tick::ZERO, &many(quota(5)), &memory);
        assert!(changed(&kept[4]).is_none(), "nothing is freed yet");
        kept.remove(1);
        let last = changed(&kept[3]).unwrap();
        assert_eq!(last.changes(), 5);
        assert!(last.are(&last.clone()) && !last.are(&kept[3]));
        // If only the default changes, the existing rules for individual keys are kept, so the
        // change costs no memory.
        let default = last.changed(&Since::START, Some(rule(FAST)), &[], &memory);
        assert!(matches!(default, Changed::To(_)) && memory.bytes() == 4 * BYTES);
        // Once no key has its own rule, no memory is counted for rules.
        drop(kept);
        let none: Vec<_> = many(SLOW).iter().map(|&(key, _)| (key, None)).collect();
        let last = changed_at(&last, secs(2), &none, &memory).unwrap();
        assert_eq!((last.count(), last.own_quota(none[0].0), last.own.is_none()), (0, None, true));
    }

    /// A stopped thread may keep the earlier rules for as long as it is stopped.
    #[test]
    fn few_rules_are_permitted_beside_many_that_are_not_freed_yet() {
        let keys = many(FAST);
        let none: Vec<_> = keys.iter().map(|&(key, _)| (key, None)).collect();
        let memory = Memory::new(0);
        let changed = |rules: &Rules, keys: &_| changed_at(rules, secs(2), keys, &memory).unwrap();
        let many = changed_at(&first(SLOW), Tick::ZERO, &keys, &memory).unwrap();
        let one = changed(&changed(&many, &none), &keys[..1]);
        // The smallest map has four places.
        assert_eq!((one.count(), memory.bytes()), (1, BYTES + BYTES / 128));
        // A map from which keys were removed becomes smaller.
        drop(one);
        let one = changed(&many, &none[1..]);
        drop(many);
        assert_eq!((one.count(), memory.bytes()), (1, BYTES / 128));
    }

    #[test]
    fn equal_quotas_change_nothing() {
        let memory = Memory::new(0);
        let own = changed_at(&first(SLOW), Tick::ZERO, &[(key(2), Some(rule(FAST)))], &memory).unwrap();
        let same = [(key(2), Some(rule(FAST))), (key(3), None)];
        assert!(matches!(own.changed(&Since::START, Some(rule(SLOW)), &same, &memory), Changed::Nothing));
    }

    /// The default refills a whole bucket in one second.
    #[test]
    fn a_key_without_its_quota_has_a_stamp_of_its_own_while_charges_are_held() {
        let memory = Memory::new(1 << 20);
        let stamp = |rules: &Rules| rules.of(key(2)).stamp;
        let default = first(SLOW);
        let own = changed_at(&default, secs(10), &[(key(2), Some(rule(FAST)))], &memory).unwrap();
        let lost = changed_at(&own, secs(11), &[(key(2), None)], &memory).unwrap();
        assert_eq!((lost.count(), lost.own_quota(key(2)), lost.of(key(2)).enforced.quota), (0, None, SLOW));
        for (one, other) in [(&default, &own), (&own, &lost), (&default, &lost)] {
            assert!(!stamp(one).is(stamp(other)));
        }
        assert!(stamp(&default).is(lost.of(key(3)).stamp), "another key keeps its stamp");
        // The entry remains as long as charges from before the key's own rule may be held.
        assert!(lost.at(secs(11)).own.is_some() && lost.bucket.is_none());
        let later = lost.at(secs(12));
        assert!(later.own.is_none() && later.bucket.is_some());
        assert!(later.are(&lost), "no word needs a translation");
        // The next change also drops the entry, and so does a change of the default.
        let other = [(key(3), Some(rule(FAST)))];
        for (now, entries) in [(secs(11), 2), (secs(12), 1)] {
            let changed = changed_at(&lost, now, &other, &memory).unwrap();
            assert_eq!(changed.own.as_ref().unwrap().entries.len(), entries);
        }
        let default = lost.changed(&Since::at(secs(11)), Some(rule(FAST)), &[], &memory);
        assert!(matches!(default, Changed::To(rules) if rules.own.is_none()));
        // After that time, a removal needs no entry.
        let lost = changed_at(&own, secs(12), &[(key(2), None)], &memory).unwrap();
        assert!(lost.own.is_none() && stamp(&lost).is(Stamp::NONE));
    }

    /// While the key's own quota is equal to the default, its charges have the stamp of the
    /// default.
    #[test]
    fn a_quota_equal_to_the_default_does_not_shorten_the_time_of_an_entry() {
        let memory = Memory::new(1 << 20);
        let set = |rules: &Rules, now, quota: Option<Quota>| {
            changed_at(rules, secs(now), &[(key(2), quota.map(rule))], &memory).unwrap()
        };
        let equal = Quota::per_second(1).burst(1);
        let own = set(&set(&first(SLOW), 10, Some(equal)), 20, Some(FAST));
        let lost = set(&own, 21, None);
        assert!(!lost.of(key(2)).stamp.is(Stamp::NONE));
        assert!(set(&own, 22, None).own.is_none());
        // Without another quota in between, nothing is lost.
        let same = set(&set(&first(SLOW), 10, Some(equal)), 10, None);
        assert!(same.own.is_none() && same.of(key(2)).stamp.is(Stamp::NONE));
    }

    #[test]
    fn entries_of_former_keys_are_permitted_within_the_bound_of_the_rules() {
        let memory = Memory::new(0);
        let mut rules = changed_at(&first(Quota::per_hour(1)), secs(1), &many(FAST), &memory).unwrap();
        let mut removed = 0;
        for hash in 1_000.. {
            let Some(own) = changed_at(&rules, secs(2), &[(key(hash), Some(rule(FAST)))], &memory) else {
                break;
            };
            let Some(lost) = changed_at(&own, secs(3), &[(key(hash), None)], &memory) else { break };
            (rules, removed) = (lost, removed + 1);
        }
        assert!(memory.bytes() <= 4 * BYTES, "{}", memory.bytes());
        assert!((40..2_000).contains(&removed), "{removed}");
        // Later, they are dropped.
        let later = changed_at(&rules, secs(4_000), &[(key(999), Some(rule(FAST)))], &memory).unwrap();
        assert_eq!((later.count(), later.own.as_ref().unwrap().entries.len()), (401, 401));
    }
}
