//! The store of exact keys: the keys themselves, in an index, with their states beside them.

use super::hash::{FoldHash, KeyHash};
use super::method::Method;
use super::store::{Backing, Figures, Holds, Lookup, MemoryShort, Settings, Store, ToKey, is_turn};
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::exact::{self, Asked, ExactRule, ExactStore, Wanted};
use crate::forgetting::Sweep;
use crate::packed::Judged;
use crate::quota::{Enforced, Quota};
use crate::rule::LeakyBucket;
use crate::time::Tick;
use equivalent::Equivalent;
use std::fmt;
use std::hash::Hash;

/// What decides for exact keys.
#[derive(Clone, Copy, Debug)]
pub struct Ruled(Enforced<ExactRule>);

/// The store that keeps the keys themselves, chosen by
/// [`exact_keys`](crate::Builder::exact_keys): no two keys ever share a state, and the keys can be
/// [listed](crate::Limiter::keys).
///
/// # Progress
///
/// Checks of known keys are lock-free and allocate nothing, as with [`Fingerprints`](crate::Fingerprints). Inserting a key
/// allocates, and takes the lock on one bucket of the index (of [`scc::HashIndex`](https://docs.rs/scc)); so does
/// forgetting one, which happens in calls that insert, in sweeps, and now and then in charges of known keys. A
/// thread that is stopped while it holds such a lock stops insertions into the same bucket.
///
/// # Memory
///
/// Up to about 125 bytes for each key of 8 bytes, and what the key owns; while keys change all the time,
/// the index keeps forgotten ones until their bucket is full: up to two and a half times as much.
/// [`max_keys`](crate::Builder::max_keys) is a hard cap on the keys that are tracked.
///
/// This store also takes the [sliding log](crate::Algorithm::SlidingLog): then each key has, besides, 8 to 24 bytes
/// for each admission that still counts. So the most it can take is `max_keys` times the limit times 24 bytes; it
/// is allocated as it is used, and freed as admissions stop counting and keys are forgotten.
///
/// By which hash keys are looked up, `H` says: see [`KeyHash`].
pub struct ExactKeys<K: 'static, H = FoldHash> {
    pub(super) store: ExactStore<K>,
    counts_denials: bool,
    hash: H,
}

impl<K: Eq + 'static, H: KeyHash> Backing for ExactKeys<K, H> {
    /// The index and the states look after themselves.
    type Guard = ();
    type Rule = Ruled;
    const STEP: usize = ExactStore::<K>::STEP;

    fn rule_of(method: Method, quota: Quota) -> Result<Ruled, ConfigError> {
        method.any(quota).map(Ruled)
    }

    fn new(settings: Settings) -> Result<Self, ConfigError> {
        let rule = Self::rule_of(settings.method, settings.quota)?;
        let store = ExactStore::new(settings.max_keys, settings.grace, rule.0)?;
        Ok(Self { store, counts_denials: settings.count_denials, hash: H::random() })
    }

    #[inline]
    fn pin() {}

    #[inline]
    fn pin_at_once() -> Option<()> {
        Some(())
    }

    #[inline]
    fn is_old((): &()) -> bool {
        false
    }

    #[inline]
    fn repin((): &mut ()) {}

    fn has_room(&self, now: Tick, _guard: &()) -> bool {
        self.store.has_room(now)
    }

    fn tend(&self, steps: usize, now: Tick, _guard: &()) -> bool {
        (0..steps).all(|_| self.store.tend(now))
    }

    fn begin_sweep(&self, now: Tick, first: Tick, _guard: &()) -> Sweep {
        self.store.begin_sweep(now, first)
    }

    fn begin_turnover(&self, now: Tick, _guard: &()) -> bool {
        self.store.begin_round(now)
    }

    fn note(&self, now: Tick, _guard: &()) {
        self.store.note(now);
    }

    fn reset_all(&self, _guard: &()) {
        self.store.reset_all();
    }

    fn changes(&self, _guard: &()) -> u64 {
        self.store.changes()
    }

    fn default_rule(&self, _guard: &()) -> Wanted {
        self.store.default_rule()
    }

    fn default_quota(&self, _guard: &()) -> Quota {
        self.store.default_quota()
    }

    fn set_default_rule(&self, rule: Ruled, now: Tick) -> Result<(), MemoryShort> {
        self.store.set_default_rule(rule.0, now);
        Ok(())
    }

    fn len(&self, _guard: &()) -> usize {
        self.store.len()
    }

    fn bytes(&self) -> usize {
        self.store.bytes()
    }

    fn figures(&self, _guard: &()) -> Figures {
        Figures {
            keys: self.store.len(),
            capacity: self.store.capacity(),
            max_keys: self.store.max_keys(),
            turnovers: self.store.rounds(),
            evicted: self.store.evicted(),
            own_quotas: usize::try_from(self.store.own_rules()).unwrap_or(usize::MAX),
            bytes: self.store.bytes(),
        }
    }
}

impl<K, H, Q> Lookup<Q> for ExactKeys<K, H>
where
    K: Eq + 'static,
    H: KeyHash,
    Q: Hash + Equivalent<K> + ToKey<K> + ?Sized,
{
    type Key<'q>
        = Asked<'q, Q>
    where
        Q: 'q;

    #[inline]
    fn key<'q>(&self, key: &'q Q) -> Asked<'q, Q> {
        Asked { hash: exact::spread(self.hash.hash(key)), key }
    }

    #[inline]
    fn is_turn_of(key: Asked<'_, Q>, now: Tick) -> bool {
        is_turn(key.hash, now)
    }

    /// The index looks after itself, so it is asked at once, and there is nothing to look for before.
    type View<'g> = ();

    #[inline]
    fn view<'g>(&'g self, _guard: &'g ()) {}

    type Spot<'g> = ();

    #[inline]
    fn spot(&self, (): (), _key: Asked<'_, Q>) {}

    type Found<'g> = ();

    type Miss<'g> = ();

    #[inline]
    fn find(&self, (): (), _key: Asked<'_, Q>) -> Result<(), ()> {
        Ok(())
    }

    #[inline]
    fn find_ahead(&self, (): (), _key: Asked<'_, Q>) -> Option<()> {
        Some(())
    }

    /// Each key has its rule with it.
    #[inline]
    fn bucket(&self, (): ()) -> Option<LeakyBucket> {
        None
    }

    #[inline]
    fn charge_found(&self, _bucket: LeakyBucket, (): (), _now: Tick, _cost: u64) -> Option<Judged> {
        None
    }

    #[inline]
    fn charge_by_rule(
        &self,
        (): (),
        (): (),
        key: Asked<'_, Q>,
        now: Tick,
        cost: u64,
    ) -> Option<(Decision, bool)> {
        self.store.known(key, |state| state.charge(now, cost, || self.store.forgotten()))
    }

    #[inline]
    fn charge_further(
        &self,
        _bucket: LeakyBucket,
        (): (),
        (): (),
        _key: Asked<'_, Q>,
        _now: Tick,
        _cost: u64,
    ) -> Option<Judged> {
        None
    }

    fn charge_anywhere<'g>(
        &'g self,
        key: Asked<'_, Q>,
        now: Tick,
        cost: u64,
        guard: &'g (),
        refused: impl FnOnce() -> Decision,
    ) -> Decision {
        let fresh = self.fresh(key, now, cost, guard);
        if !fresh.allowed() || cost == 0 {
            return fresh;
        }
        let inserted = self.store.insert(
            key,
            || key.key.to_key(),
            now,
            |state| state.charge(now, cost, || self.store.forgotten()),
        );
        if let Ok((_, false)) = inserted {
            // Another thread has inserted it meanwhile, and nothing was left.
            self.note_denial(key);
        }
        inserted.map_or_else(|_| refused(), |(decision, _)| decision)
    }

    fn peek(&self, key: Asked<'_, Q>, now: Tick, cost: u64, _guard: &()) -> Option<Decision> {
        self.store.known(key, |state| state.peek(now, cost, || self.store.forgotten()))
    }

    fn refund(
        &self,
        key: Asked<'_, Q>,
        now: Tick,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
    ) {
        self.store.known(key, |state| state.refund(now, charge, tokens, &is_current));
    }

    fn reset(&self, key: Asked<'_, Q>) {
        self.store.known(key, |state| state.reset());
    }

    fn fresh(&self, key: Asked<'_, Q>, now: Tick, cost: u64, _guard: &()) -> Decision {
        self.store.rule(key).rule.rule.fresh(now, self.store.forgotten(), cost)
    }

    fn own_quota(&self, key: Asked<'_, Q>, _guard: &()) -> Option<Quota> {
        self.store.own_quota(key)
    }

    fn set_rules(&self, rules: &[(Asked<'_, Q>, Option<Ruled>)], now: Tick) -> Result<(), MemoryShort> {
        for &(key, rule) in rules {
            match rule {
                Some(rule) => self.store.set_rule(key, key.key.to_key(), rule.0, now),
                None => {
                    self.store.remove_rule(key, now);
                }
            }
        }
        Ok(())
    }

    fn remove_rule(&self, key: Asked<'_, Q>, now: Tick) -> Result<bool, MemoryShort> {
        Ok(self.store.remove_rule(key, now))
    }

    #[inline]
    fn note_denial(&self, key: Asked<'_, Q>) {
        if self.counts_denials {
            self.store.count_denial(key);
        }
    }
}

impl<K: Eq + 'static, H: KeyHash> Store for ExactKeys<K, H> {}

impl<K, H, Q> Holds<Q> for ExactKeys<K, H>
where
    K: Eq + 'static,
    H: KeyHash,
    Q: Hash + Equivalent<K> + ToKey<K> + ?Sized,
{
}

impl<K, H> fmt::Debug for ExactKeys<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactKeys").field("counts_denials", &self.counts_denials).finish_non_exhaustive()
    }
}
