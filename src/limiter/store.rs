//! What a limiter keeps its keys in, and what it asks of either store.
//!
//! A limiter's methods are written once, over the two traits that are hidden here; each store answers them by
//! static calls, so what one costs is not paid with the other.

use super::method::Method;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::exact::{self, Asked, Counts, ExactRule, ExactStore, Shared, Wanted};
use crate::packed::Judged;
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Rule, Word};
use crate::sync;
use crate::table::{Fingerprint, Miss, NotInserted, Spot, Table};
use crate::time::Tick;
use equivalent::Equivalent;
use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub(super) quota: Quota,
    pub(super) method: Method,
    pub(super) max_keys: usize,
    pub(super) grace: Duration,
    pub(super) count_denials: bool,
}

/// What a store says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub(super) keys: usize,
    pub(super) capacity: usize,
    pub(super) max_keys: usize,
    pub(super) turnovers: u64,
    pub(super) evicted: u64,
    pub(super) own_quotas: usize,
    pub(super) bytes: usize,
}

/// What decides for exact keys.
#[derive(Clone, Copy, Debug)]
pub struct Ruled(Enforced<ExactRule>);

/// True of one in 2048 keys at a time, and of a key one in 2048 milliseconds (of 2^20 nanoseconds). A step takes about
/// a microsecond, several times a check: so one in a thousand checks, which a 99.9th percentile tells, must not do
/// one. (With one in 256 that of a turnover of a million keys was three times that of a table at rest.)
#[inline]
const fn is_turn(hash: u64, now: Tick) -> bool {
    (hash ^ (now.as_nanos() >> 20)).is_multiple_of(2048)
}

/// A change of quotas that can't be made now, because the memory for it is not to be had.
#[derive(Debug)]
pub struct MemoryShort;

/// A request that a store has judged.
pub trait Judgement {
    /// Was anything charged?
    fn is_charged(&self) -> bool;
    /// The answer to the same request.
    fn answer(&self, now: Tick, cost: u64) -> Decision;
}

impl Judgement for Judged<'_> {
    #[inline(always)]
    fn is_charged(&self) -> bool {
        Judged::is_charged(self)
    }

    #[inline(always)]
    fn answer(&self, now: Tick, cost: u64) -> Decision {
        Judged::answer(self, now, cost)
    }
}

impl Judgement for (Decision, bool) {
    fn is_charged(&self) -> bool {
        self.1
    }

    fn answer(&self, _now: Tick, _cost: u64) -> Decision {
        self.0
    }
}

/// What a limiter asks of its store, whatever the keys are.
pub trait Backing: Sized {
    /// Held by who reads.
    type Guard;
    /// What decides.
    type Rule: Copy;
    /// The rule of a quota.
    fn rule_of(method: Method, quota: Quota) -> Result<Self::Rule, ConfigError>;
    /// How many keys' places one step of upkeep goes over at the most.
    const STEP: usize;
    /// An empty store.
    fn new(settings: Settings) -> Result<Self, ConfigError>;
    /// Begins to read.
    fn pin() -> Self::Guard;
    /// Ends what was read so far, and goes on.
    fn repin(guard: &mut Self::Guard);
    /// Would a new key find a place?
    fn has_room(&self, now: Tick, guard: &Self::Guard) -> bool;
    /// Does so many steps of what is to be done; true if there is more.
    fn tend(&self, steps: usize, now: Tick, guard: &Self::Guard) -> bool;
    /// Begins to look for idle keys, unless it was done a moment ago; true if that is under way.
    fn begin_sweep(&self, now: Tick, guard: &Self::Guard) -> bool;
    /// The same, however long ago the last time was.
    fn begin_turnover(&self, now: Tick, guard: &Self::Guard) -> bool;
    /// Makes every key as good as new.
    fn reset_all(&self, guard: &Self::Guard);
    /// How many changes of quotas there were: to be read before the rule is asked for.
    fn changes(&self, guard: &Self::Guard) -> u64;
    /// The rule of the keys that have none of their own.
    fn default_rule(&self, guard: &Self::Guard) -> Wanted;
    /// The quota of the keys that have none of their own.
    fn default_quota(&self, guard: &Self::Guard) -> Quota;
    /// Replaces it.
    fn set_default_rule(&self, rule: Self::Rule, now: Tick) -> Result<(), MemoryShort>;
    /// How many keys are there.
    fn len(&self, guard: &Self::Guard) -> usize;
    /// The bytes it takes.
    fn bytes(&self) -> usize;
    /// All figures.
    fn figures(&self, guard: &Self::Guard) -> Figures;
}

/// What a limiter asks of its store for a key of type `Q`.
pub trait Lookup<Q: ?Sized>: Backing {
    /// What stands for a key while it is looked up.
    type Key<'q>: Copy
    where
        Q: 'q;
    /// The key, with its hash.
    fn key(hash: u64, key: &Q) -> Self::Key<'_>;
    /// Is it this key's turn to do a step of upkeep? See [`is_turn`].
    fn is_turn_of(key: Self::Key<'_>, now: Tick) -> bool;
    /// A request that was judged.
    type Judged<'g>: Judgement
    where
        Self: 'g;
    /// Where a key is looked for first.
    type Spot<'g>: Copy
    where
        Self: 'g;
    /// Where that is. Its memory is on its way.
    fn spot<'g>(&'g self, key: Self::Key<'_>, guard: &'g Self::Guard) -> Self::Spot<'g>;
    /// Judges a request for a key that is found there.
    fn charge<'g>(
        &'g self,
        spot: Self::Spot<'g>,
        key: Self::Key<'_>,
        now: Tick,
        cost: u64,
        guard: &'g Self::Guard,
    ) -> Result<Self::Judged<'g>, Self::Miss<'g>>;
    /// What is known of a key that was not.
    type Miss<'g>
    where
        Self: 'g;
    /// The same for such a key, if it is there.
    fn charge_elsewhere<'g>(
        &'g self,
        miss: Self::Miss<'g>,
        key: Self::Key<'_>,
        now: Tick,
        cost: u64,
        guard: &'g Self::Guard,
    ) -> Result<Self::Judged<'g>, Self::Miss<'g>>;
    /// Judges a request for a key that was not there, and inserts the key if that charges anything.
    fn insert<'g>(
        &'g self,
        miss: Self::Miss<'g>,
        key: Self::Key<'_>,
        now: Tick,
        cost: u64,
        guard: &'g Self::Guard,
    ) -> Result<Self::Judged<'g>, NotInserted>;
    /// What a request would be answered, for a key that is there.
    fn peek(&self, key: Self::Key<'_>, now: Tick, cost: u64, guard: &Self::Guard) -> Option<Decision>;
    /// Gives back at most `tokens` of what `charge` took, if the key is there.
    fn refund(&self, key: Self::Key<'_>, now: Tick, charge: &Decision, tokens: u64);
    /// Makes a key as good as new, if it is there.
    fn reset(&self, key: Self::Key<'_>);
    /// The answer to a request if the key had never been seen. The figures of one that is allowed may be those
    /// before the charge, or after.
    fn fresh(&self, key: Self::Key<'_>, now: Tick, cost: u64, guard: &Self::Guard) -> Decision;
    /// The quota of its own that a key has.
    fn own_quota(&self, key: Self::Key<'_>, guard: &Self::Guard) -> Option<Quota>;
    /// Gives keys a rule of their own, or takes it from them.
    fn set_rules(&self, rules: &[(Self::Key<'_>, Option<Self::Rule>)], now: Tick) -> Result<(), MemoryShort>;
    /// Takes its own rule from a key; had it one?
    fn remove_rule(&self, key: Self::Key<'_>, now: Tick) -> Result<bool, MemoryShort>;
    /// Counts a denial, if that was asked for.
    fn note_denial(&self, key: Self::Key<'_>);
}

/// What a [`Limiter`](crate::Limiter) keeps its keys in: [`Fingerprints`] or [`ExactKeys`]. Sealed.
///
/// ```
/// use tollgate::{Limiter, Quota, Store};
///
/// fn report<K: ?Sized, S: Store>(limiter: &Limiter<K, S>) -> String {
///     format!("{} keys", limiter.len())
/// }
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1)).build()?;
/// assert_eq!(report(&limiter), "0 keys");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Store: Backing {}

/// A [`Store`] that can be asked with keys of type `Q`. Sealed.
///
/// [`Fingerprints`] take anything that is [`Hash`]; [`ExactKeys`] what is also [`Equivalent`] to a key and
/// can become one ([`ToKey`]).
#[diagnostic::on_unimplemented(
    message = "this limiter's store can't be asked with keys of type `{Q}`",
    note = "a limiter of exact keys keeps them, so it needs to make an owned key of a `{Q}`: see `tollgate::ToKey`"
)]
pub trait Holds<Q: ?Sized>: Store + Lookup<Q> {}

/// How a key that is asked for becomes one that is kept: for [`ExactKeys`], which call it when they insert a
/// key. What is made must be equal to what was asked for, and have the same hash.
///
/// Whatever is [`ToOwned`] has it: a `str` becomes a `String`, a `u64` stays one. Implement it for borrowed
/// forms of your own.
///
/// ```
/// use tollgate::{Equivalent, Limiter, Quota, ToKey};
///
/// #[derive(Hash)]
/// struct Parts<'a>(u64, &'a str);
///
/// impl Equivalent<(u64, String)> for Parts<'_> {
///     fn equivalent(&self, key: &(u64, String)) -> bool {
///         self.0 == key.0 && self.1 == key.1
///     }
/// }
///
/// impl ToKey<(u64, String)> for Parts<'_> {
///     fn to_key(&self) -> (u64, String) {
///         (self.0, self.1.to_owned())
///     }
/// }
///
/// let limiter = Limiter::<(u64, String)>::builder(Quota::per_hour(1)).exact_keys().build()?;
/// assert!(limiter.check(&Parts(7, "/login")).allowed());
/// assert!(!limiter.check(&(7, "/login".to_owned())).allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait ToKey<K> {
    /// An owned key that is equal to this.
    fn to_key(&self) -> K;
}

impl<K, Q: ToOwned<Owned = K> + ?Sized> ToKey<K> for Q {
    fn to_key(&self) -> K {
        self.to_owned()
    }
}

/// The store that a limiter has unless it is told otherwise: 24 bytes for each key, whatever it is. It knows a
/// key by a 64-bit hash and does not keep it. See [`Limiter`](crate::Limiter).
pub struct Fingerprints {
    table: Table,
}

impl Backing for Fingerprints {
    type Guard = sync::Guard;
    type Rule = Enforced<AnyRule>;
    const STEP: usize = Table::STEP;

    fn rule_of(method: Method, quota: Quota) -> Result<Enforced<AnyRule>, ConfigError> {
        method.packed(quota)
    }

    fn new(settings: Settings) -> Result<Self, ConfigError> {
        let rule = Self::rule_of(settings.method, settings.quota)?;
        Ok(Self { table: Table::new(settings.max_keys, settings.grace, rule)? })
    }

    #[inline]
    fn pin() -> sync::Guard {
        sync::pin()
    }

    fn repin(guard: &mut sync::Guard) {
        guard.repin();
    }

    fn has_room(&self, now: Tick, guard: &sync::Guard) -> bool {
        self.table.has_room(now, guard)
    }

    fn tend(&self, steps: usize, now: Tick, guard: &sync::Guard) -> bool {
        self.table.tend(steps, now, guard)
    }

    fn begin_sweep(&self, now: Tick, guard: &sync::Guard) -> bool {
        self.table.begin_sweep(now, guard)
    }

    fn begin_turnover(&self, now: Tick, guard: &sync::Guard) -> bool {
        self.table.begin_turnover(now, guard)
    }

    fn reset_all(&self, guard: &sync::Guard) {
        self.table.each(guard, |state| state.reset());
    }

    fn changes(&self, guard: &sync::Guard) -> u64 {
        self.table.rules(guard).changes()
    }

    fn default_rule(&self, guard: &sync::Guard) -> Wanted {
        let rules = self.table.rules(guard);
        let Enforced { rule, quota } = *rules.default();
        let rule = Shared { rule: ExactRule::Packed(rule), quota, counts: Counts::new() };
        Wanted { rule: Arc::new(rule), changes: rules.changes(), since: rules.since() }
    }

    fn default_quota(&self, guard: &sync::Guard) -> Quota {
        self.table.rules(guard).default().quota
    }

    fn set_default_rule(&self, rule: Enforced<AnyRule>, now: Tick) -> Result<(), MemoryShort> {
        self.change(now, Some(rule), &[])
    }

    fn len(&self, guard: &sync::Guard) -> usize {
        self.table.len(guard)
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn figures(&self, guard: &sync::Guard) -> Figures {
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

impl<Q: Hash + ?Sized> Lookup<Q> for Fingerprints {
    type Key<'q>
        = Fingerprint
    where
        Q: 'q;

    #[inline]
    fn key(hash: u64, _key: &Q) -> Fingerprint {
        Fingerprint::of_hash(hash)
    }

    #[inline]
    fn is_turn_of(key: Fingerprint, now: Tick) -> bool {
        is_turn(key.bits(), now)
    }

    type Judged<'g> = Judged<'g>;

    type Spot<'g> = Spot<'g>;

    #[inline(always)]
    fn spot<'g>(&'g self, key: Fingerprint, guard: &'g sync::Guard) -> Spot<'g> {
        self.table.spot(key, guard)
    }

    #[inline(always)]
    fn charge<'g>(
        &'g self,
        spot: Spot<'g>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &'g sync::Guard,
    ) -> Result<Judged<'g>, Miss<'g>> {
        self.table.charge(spot, key, now, cost, guard)
    }

    type Miss<'g> = Miss<'g>;

    #[inline]
    fn charge_elsewhere<'g>(
        &'g self,
        miss: Miss<'g>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &'g sync::Guard,
    ) -> Result<Judged<'g>, Miss<'g>> {
        self.table.charge_elsewhere(miss, key, now, cost, guard)
    }

    #[inline]
    fn insert<'g>(
        &'g self,
        miss: Miss<'g>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &'g sync::Guard,
    ) -> Result<Judged<'g>, NotInserted> {
        self.table.insert(miss, key, now, cost, guard)
    }

    fn peek(&self, key: Fingerprint, now: Tick, cost: u64, guard: &sync::Guard) -> Option<Decision> {
        self.table.known(key, guard, |state| state.peek(now, cost))
    }

    fn refund(&self, key: Fingerprint, now: Tick, charge: &Decision, tokens: u64) {
        self.table.known(key, &sync::pin(), |state| state.refund(now, charge, tokens));
    }

    fn reset(&self, key: Fingerprint) {
        self.table.known(key, &sync::pin(), |state| state.reset());
    }

    fn fresh(&self, key: Fingerprint, now: Tick, cost: u64, guard: &sync::Guard) -> Decision {
        self.table.rules(guard).of(key).answer(Word::FRESH, now, cost)
    }

    fn own_quota(&self, key: Fingerprint, guard: &sync::Guard) -> Option<Quota> {
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
        if self.table.rules(&sync::pin()).own_quota(key).is_none() {
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

impl Fingerprints {
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

impl Store for Fingerprints {}
impl<Q: Hash + ?Sized> Holds<Q> for Fingerprints {}

impl fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprints").finish_non_exhaustive()
    }
}

/// The store that keeps the keys themselves, chosen by
/// [`exact_keys`](crate::Builder::exact_keys): no two keys ever share a state, and the keys can be
/// [listed](crate::Limiter::keys).
///
/// # Progress
///
/// Checks of known keys are lock-free and allocate nothing, as with [`Fingerprints`]. Inserting a key
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
pub struct ExactKeys<K: 'static> {
    pub(super) store: ExactStore<K>,
    counts_denials: bool,
}

impl<K: Eq + 'static> Backing for ExactKeys<K> {
    type Guard = sync::Reading;
    type Rule = Ruled;
    const STEP: usize = ExactStore::<K>::STEP;

    fn rule_of(method: Method, quota: Quota) -> Result<Ruled, ConfigError> {
        method.any(quota).map(Ruled)
    }

    fn new(settings: Settings) -> Result<Self, ConfigError> {
        let rule = Self::rule_of(settings.method, settings.quota)?;
        let store = ExactStore::new(settings.max_keys, settings.grace, rule.0)?;
        Ok(Self { store, counts_denials: settings.count_denials })
    }

    #[inline]
    fn pin() -> sync::Reading {
        sync::reading()
    }

    fn repin(guard: &mut sync::Reading) {
        guard.repin();
    }

    fn has_room(&self, now: Tick, _guard: &sync::Reading) -> bool {
        self.store.has_room(now)
    }

    fn tend(&self, steps: usize, now: Tick, _guard: &sync::Reading) -> bool {
        (0..steps).all(|_| self.store.tend(now))
    }

    fn begin_sweep(&self, now: Tick, _guard: &sync::Reading) -> bool {
        self.store.begin_sweep(now)
    }

    fn begin_turnover(&self, now: Tick, _guard: &sync::Reading) -> bool {
        self.store.begin_round(now)
    }

    fn reset_all(&self, _guard: &sync::Reading) {
        self.store.reset_all();
    }

    fn changes(&self, _guard: &sync::Reading) -> u64 {
        self.store.changes()
    }

    fn default_rule(&self, _guard: &sync::Reading) -> Wanted {
        self.store.default_rule()
    }

    fn default_quota(&self, _guard: &sync::Reading) -> Quota {
        self.store.default_quota()
    }

    fn set_default_rule(&self, rule: Ruled, now: Tick) -> Result<(), MemoryShort> {
        if self.store.set_default_rule(rule.0, now) { Ok(()) } else { Err(MemoryShort) }
    }

    fn len(&self, _guard: &sync::Reading) -> usize {
        self.store.len()
    }

    fn bytes(&self) -> usize {
        self.store.bytes()
    }

    fn figures(&self, _guard: &sync::Reading) -> Figures {
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

impl<K, Q> Lookup<Q> for ExactKeys<K>
where
    K: Eq + 'static,
    Q: Hash + Equivalent<K> + ToKey<K> + ?Sized,
{
    type Key<'q>
        = Asked<'q, Q>
    where
        Q: 'q;

    #[inline]
    fn key(hash: u64, key: &Q) -> Asked<'_, Q> {
        Asked { hash: exact::spread(hash), key }
    }

    #[inline]
    fn is_turn_of(key: Asked<'_, Q>, now: Tick) -> bool {
        is_turn(key.hash, now)
    }

    /// The answer itself: a cell is not lent out for longer than it takes to visit it.
    type Judged<'g> = (Decision, bool);

    /// The index is not laid out for it.
    type Spot<'g> = ();

    #[inline]
    fn spot<'g>(&'g self, _key: Asked<'_, Q>, _guard: &'g sync::Reading) {}

    #[inline]
    fn charge<'g>(
        &'g self,
        (): (),
        key: Asked<'_, Q>,
        now: Tick,
        cost: u64,
        _guard: &'g sync::Reading,
    ) -> Result<(Decision, bool), ()> {
        self.store.known(key, |state| state.charge(now, cost)).ok_or(())
    }

    type Miss<'g> = ();

    /// The index knows at once.
    #[inline]
    fn charge_elsewhere<'g>(
        &'g self,
        (): (),
        _key: Asked<'_, Q>,
        _now: Tick,
        _cost: u64,
        _guard: &'g sync::Reading,
    ) -> Result<(Decision, bool), ()> {
        Err(())
    }

    fn insert<'g>(
        &'g self,
        (): (),
        key: Asked<'_, Q>,
        now: Tick,
        cost: u64,
        guard: &'g sync::Reading,
    ) -> Result<(Decision, bool), NotInserted> {
        let fresh = self.fresh(key, now, cost, guard);
        if !fresh.allowed() || cost == 0 {
            return Err(NotInserted::Uncharged(fresh));
        }
        let inserted = self.store.insert(key, || key.key.to_key(), now, |state| state.charge(now, cost));
        inserted.map_err(|_| NotInserted::TableFull)
    }

    fn peek(&self, key: Asked<'_, Q>, now: Tick, cost: u64, _guard: &sync::Reading) -> Option<Decision> {
        self.store.known(key, |state| state.peek(now, cost))
    }

    fn refund(&self, key: Asked<'_, Q>, now: Tick, charge: &Decision, tokens: u64) {
        self.store.known(key, |state| state.refund(now, charge, tokens));
    }

    fn reset(&self, key: Asked<'_, Q>) {
        self.store.known(key, |state| state.reset());
    }

    fn fresh(&self, key: Asked<'_, Q>, now: Tick, cost: u64, _guard: &sync::Reading) -> Decision {
        self.store.rule(key).rule.rule.fresh(now, cost)
    }

    fn own_quota(&self, key: Asked<'_, Q>, _guard: &sync::Reading) -> Option<Quota> {
        self.store.own_quota(key)
    }

    fn set_rules(&self, rules: &[(Asked<'_, Q>, Option<Ruled>)], now: Tick) -> Result<(), MemoryShort> {
        let set = |&(key, rule): &(Asked<'_, Q>, Option<Ruled>)| match rule {
            Some(rule) => self.store.set_rule(key, key.key.to_key(), rule.0, now),
            None => self.store.remove_rule(key, now).is_some(),
        };
        if rules.iter().all(set) { Ok(()) } else { Err(MemoryShort) }
    }

    fn remove_rule(&self, key: Asked<'_, Q>, now: Tick) -> Result<bool, MemoryShort> {
        self.store.remove_rule(key, now).ok_or(MemoryShort)
    }

    #[inline]
    fn note_denial(&self, key: Asked<'_, Q>) {
        if self.counts_denials {
            self.store.count_denial(key);
        }
    }
}

impl<K: Eq + 'static> Store for ExactKeys<K> {}

impl<K, Q> Holds<Q> for ExactKeys<K>
where
    K: Eq + 'static,
    Q: Hash + Equivalent<K> + ToKey<K> + ?Sized,
{
}

impl<K> fmt::Debug for ExactKeys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactKeys").field("counts_denials", &self.counts_denials).finish_non_exhaustive()
    }
}
