//! The store of fingerprints: keys are known by their hashes, and their states are in the table.

use super::hash::{FoldHash, KeyHash};
use super::method::Method;
use super::store::{Backing, Figures, Holds, Lookup, MemoryShort, Settings, Store, is_turn};
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::exact::{Counts, ExactRule, Shared, Wanted};
use crate::forgetting::Sweep;
use crate::packed::Judged;
use crate::quota::{Enforced, Quota};
use crate::reclaim;
use crate::rule::{AnyRule, LeakyBucket, Rule, Word};
use crate::sync::Atomic;
use crate::table::{Fingerprint, Line, Miss, Table, View};
use crate::time::Tick;
use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// The store that a limiter has unless it is told otherwise: 24 bytes for each key, whatever it is (32 in a small
/// table). It knows a key by a 64-bit hash and does not keep it. See [`Limiter`](crate::Limiter). Which hash, `H` says: see
/// [`KeyHash`].
pub struct Fingerprints<H = FoldHash> {
    table: Table,
    hash: H,
}

impl<H: KeyHash> Backing for Fingerprints<H> {
    type Guard = reclaim::Guard;
    type Rule = Enforced<AnyRule>;
    const STEP: usize = Table::STEP;

    fn rule_of(method: Method, quota: Quota) -> Result<Enforced<AnyRule>, ConfigError> {
        method.packed(quota)
    }

    fn new(settings: Settings) -> Result<Self, ConfigError> {
        let rule = Self::rule_of(settings.method, settings.quota)?;
        Ok(Self { table: Table::new(settings.max_keys, settings.grace, rule)?, hash: H::random() })
    }

    #[inline]
    fn pin() -> reclaim::Guard {
        reclaim::pin()
    }

    #[inline(always)]
    fn pin_at_once() -> Option<reclaim::Guard> {
        reclaim::pin_at_once()
    }

    #[inline(always)]
    fn is_old(guard: &reclaim::Guard) -> bool {
        guard.is_old()
    }

    fn repin(guard: &mut reclaim::Guard) {
        guard.repin();
    }

    fn has_room(&self, now: Tick, guard: &reclaim::Guard) -> bool {
        self.table.has_room(now, guard)
    }

    fn tend(&self, steps: usize, now: Tick, guard: &reclaim::Guard) -> bool {
        self.table.tend(steps, now, guard)
    }

    fn begin_sweep(&self, now: Tick, first: Tick, guard: &reclaim::Guard) -> Sweep {
        self.table.begin_sweep(now, first, guard)
    }

    fn begin_turnover(&self, now: Tick, guard: &reclaim::Guard) -> bool {
        self.table.begin_turnover(now, guard)
    }

    fn note(&self, now: Tick, guard: &reclaim::Guard) {
        self.table.note(now, guard);
    }

    fn reset_all(&self, guard: &reclaim::Guard) {
        self.table.each(guard, |state| state.reset());
    }

    fn changes(&self, guard: &reclaim::Guard) -> u64 {
        self.table.rules(guard).changes()
    }

    fn default_rule(&self, guard: &reclaim::Guard) -> Wanted {
        let rules = self.table.rules(guard);
        let Enforced { rule, quota } = *rules.default();
        let rule = Shared { rule: ExactRule::Packed(rule), quota, counts: Counts::new() };
        Wanted { rule: Arc::new(rule), changes: rules.changes(), since: rules.since() }
    }

    fn default_quota(&self, guard: &reclaim::Guard) -> Quota {
        self.table.rules(guard).default().quota
    }

    fn set_default_rule(&self, rule: Enforced<AnyRule>, now: Tick) -> Result<(), MemoryShort> {
        self.change(now, Some(rule), &[])
    }

    fn len(&self, guard: &reclaim::Guard) -> usize {
        self.table.len(guard)
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn figures(&self, guard: &reclaim::Guard) -> Figures {
        Figures {
            keys: self.table.len(guard),
            capacity: self.table.capacity(guard),
            max_keys: self.table.max_keys(),
            turnovers: self.table.turnovers(),
            evicted: self.table.evicted(),
            own_quotas: self.table.rules(guard).count(),
            bytes: self.bytes(),
        }
    }
}

impl<H: KeyHash, Q: Hash + ?Sized> Lookup<Q> for Fingerprints<H> {
    type Key<'q>
        = Fingerprint
    where
        Q: 'q;

    #[inline]
    fn key(&self, key: &Q) -> Fingerprint {
        Fingerprint::of_hash(self.hash.hash(key))
    }

    #[inline]
    fn is_turn_of(key: Fingerprint, now: Tick) -> bool {
        is_turn(key.bits(), now)
    }

    type View<'g> = View<'g>;

    #[inline(always)]
    fn view<'g>(&'g self, guard: &'g reclaim::Guard) -> View<'g> {
        self.table.view(guard)
    }

    type Spot<'g> = &'g Line;

    #[inline(always)]
    fn spot<'g>(&'g self, view: View<'g>, key: Fingerprint) -> &'g Line {
        view.spot(key)
    }

    type Found<'g> = &'g Atomic<Word>;

    type Miss<'g> = Miss<'g>;

    #[inline(always)]
    fn find<'g>(&'g self, spot: &'g Line, key: Fingerprint) -> Result<&'g Atomic<Word>, Miss<'g>> {
        spot.find(key)
    }

    #[inline(always)]
    fn find_ahead<'g>(&'g self, spot: &'g Line, key: Fingerprint) -> Option<&'g Atomic<Word>> {
        spot.find_or_prefetch(key)
    }

    #[inline(always)]
    fn bucket<'g>(&'g self, view: View<'g>) -> Option<LeakyBucket> {
        view.bucket()
    }

    #[inline(always)]
    fn charge_found<'g>(
        &'g self,
        bucket: LeakyBucket,
        found: &'g Atomic<Word>,
        now: Tick,
        cost: u64,
    ) -> Option<Judged> {
        Judged::charge(bucket, found, now, cost)
    }

    #[inline(always)]
    fn charge_by_rule<'g>(
        &'g self,
        view: View<'g>,
        found: &'g Atomic<Word>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<(Decision, bool)> {
        view.state(key, found).charge_slowly(now, cost)
    }

    #[inline(always)]
    fn charge_further<'g>(
        &'g self,
        bucket: LeakyBucket,
        view: View<'g>,
        miss: Miss<'g>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<Judged> {
        view.charge_further(bucket, miss, key, now, cost)
    }

    fn charge_anywhere<'g>(
        &'g self,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &'g reclaim::Guard,
        refused: impl FnOnce() -> Decision,
    ) -> Decision {
        let view = self.table.view(guard);
        let by_rule = view.bucket().is_none().then(|| view.insert_by_rule(key, now, cost));
        let charged = match by_rule {
            Some(Ok(rule)) => return rule.answer(Word::FRESH, now, cost),
            Some(Err(Some(known))) => known.charge_slowly(now, cost),
            Some(Err(None)) | None => None,
        };
        let charged = charged.or_else(|| self.table.charge(key, now, cost, guard));
        let Some((decision, is_charged)) = charged else { return refused() };
        if is_charged {
            Lookup::<Q>::follow_up(self, true, key, cost, now);
        }
        decision
    }

    fn peek(&self, key: Fingerprint, now: Tick, cost: u64, guard: &reclaim::Guard) -> Option<Decision> {
        self.table.known(key, guard, |state| state.peek(now, cost))
    }

    fn refund(
        &self,
        key: Fingerprint,
        now: Tick,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
    ) {
        self.table.known(key, &reclaim::pin(), |state| state.refund(now, charge, tokens, &is_current));
    }

    fn reset(&self, key: Fingerprint) {
        self.table.known(key, &reclaim::pin(), |state| state.reset());
    }

    fn fresh(&self, key: Fingerprint, now: Tick, cost: u64, guard: &reclaim::Guard) -> Decision {
        self.table.fresh(key, now, cost, guard)
    }

    fn own_quota(&self, key: Fingerprint, guard: &reclaim::Guard) -> Option<Quota> {
        self.table.rules(guard).own_quota(key)
    }

    fn set_rules(
        &self,
        rules: &[(Fingerprint, Option<Enforced<AnyRule>>)],
        now: Tick,
    ) -> Result<(), MemoryShort> {
        self.change(now, None, rules)
    }

    fn remove_rule(&self, key: Fingerprint, now: Tick) -> Result<bool, MemoryShort> {
        if self.table.rules(&reclaim::pin()).own_quota(key).is_none() {
            return Ok(false);
        }
        // As it was when the change was made: another thread may have been first.
        let had_one = Cell::new(false);
        let removed = self.table.change(now, |rules, memory| {
            had_one.set(rules.own_quota(key).is_some());
            rules.changed(now, None, &[(key, None)], memory)
        });
        if removed { Ok(had_one.get()) } else { Err(MemoryShort) }
    }

    #[inline]
    fn note_denial(&self, _key: Fingerprint) {}
}

impl<H> Fingerprints<H> {
    fn change(
        &self,
        now: Tick,
        default: Option<Enforced<AnyRule>>,
        keys: &[(Fingerprint, Option<Enforced<AnyRule>>)],
    ) -> Result<(), MemoryShort> {
        let changed = self.table.change(now, |rules, memory| rules.changed(now, default, keys, memory));
        if changed { Ok(()) } else { Err(MemoryShort) }
    }
}

impl<H: KeyHash> Store for Fingerprints<H> {}
impl<H: KeyHash, Q: Hash + ?Sized> Holds<Q> for Fingerprints<H> {}

impl<H> fmt::Debug for Fingerprints<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprints").finish_non_exhaustive()
    }
}
