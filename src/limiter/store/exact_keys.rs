//! The store of exact keys: an index that maps the keys themselves to their states.

use super::hash::FoldHash;
use super::interface::{Accepts, Cost, Request, Settings, Store, ToKey, forget_all, sweep_by_steps};
use crate::decision::Decision;
use crate::error::Refused;
use crate::exact::{Asked, ExactStore, StoreFull, spread};
use crate::limiter::build::method::Method;
use crate::limiter::resets::Resets;
use crate::quota::Quota;
use crate::state::{AnyState, Since, Wanted};
use crate::stats::Stats;
use crate::table::is_turn;
use crate::time::Tick;
use equivalent::Equivalent;
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// The store that contains the keys themselves. [`exact_keys`](crate::Builder::exact_keys) selects
/// this store.
///
/// Two keys never share a state, and the keys can be [listed](crate::Limiter::keys). `H` is the
/// hash for looking up keys. It may be any [`BuildHasher`], set by
/// [`hasher`](crate::Builder::hasher). The store compares keys, so the hash affects only the speed.
/// If strangers choose keys, use a keyed hash, such as the default or
/// [`RandomState`](std::hash::RandomState).
///
/// # Progress
///
/// Checks of known keys are lock-free. Like checks with
/// [`Fingerprints`](crate::store::Fingerprints), they do not allocate, except with a [sliding
/// log](crate::Algorithm::SlidingLog). Inserting a key allocates, and locks one bucket of the index
/// (an [`scc::HashIndex`](https://docs.rs/scc)). Forgetting a key also locks its bucket. Keys are
/// forgotten in calls that insert keys, in sweeps, and occasionally in charges of known keys. A
/// check of a known key that was idle may also lock the bucket, if another thread is forgetting the
/// key at that moment: the check then forgets the key itself and inserts it again. If a thread is
/// stopped while it holds such a lock, these calls are blocked in that bucket.
///
/// # The code of a key
///
/// `Eq`, [`Equivalent`](crate::store::Equivalent) and `Drop` of a key must not call the limiter
/// that contains the key, because such a call may wait for a lock forever. The index compares keys
/// while it holds the lock of a bucket, and a call by any thread may drop forgotten keys under that
/// lock. If one of these methods panics, the panic hook runs under that lock as well.
///
/// Make such calls outside of the key: for example, in the destructor of a connection rather than
/// the destructor of the connection's key. [`Fingerprints`](crate::store::Fingerprints) neither
/// compare nor store keys.
///
/// `Hash` and [`ToKey`] run without a lock and may call the limiter.
///
/// # The end of a thread
///
/// In the destructor of a thread-local variable, the index may be unable to use its own
/// thread-local variable. Each lookup, insertion and removal then starts a thread and waits for it.
/// The answers are the same, but such a call takes up to a millisecond, and it panics if the system
/// refuses a thread. (If other code has used the crate scc on a thread, and such a destructor makes
/// the thread's first call of a limiter of exact keys, the call panics.)
///
/// # Fork
///
/// A child of `fork` must not use a limiter of exact keys that its parent has built. If another
/// thread of the parent held the lock of a bucket during the fork, no thread releases that lock in
/// the child. A check in the child may then wait forever. Build another limiter in the child, or
/// use [`Fingerprints`](crate::store::Fingerprints), which have no lock.
///
/// # Memory
///
/// A key of 8 bytes requires up to about 125 bytes, plus the memory that the key owns. If keys are
/// inserted and forgotten continually, forgotten keys remain in the index until their bucket is
/// full. The index then requires up to two and a half times as much memory.
/// [`max_keys`](crate::Builder::max_keys) is a hard cap on the number of tracked keys.
///
/// This store also supports the [sliding log](crate::Algorithm::SlidingLog). Each key then requires
/// 8 to 24 additional bytes for each admission that still counts, plus a few hundred bytes. This
/// memory is allocated when it is needed, and freed as admissions stop counting and keys are
/// forgotten. For each key it never exceeds `450 + 24 * limit` bytes, or `900 + 130 * limit` bytes
/// if charges are refunded. Freed memory may wait for a while, as with all algorithms.
pub struct ExactKeys<K: 'static, H = FoldHash> {
    pub(crate) store: ExactStore<K>,
    pub(super) method: Method,
    counts_denials: bool,
    hash: H,
}

impl<K: Eq + Send + Sync + 'static, H: BuildHasher + Clone + Send + Sync + 'static> Store
    for ExactKeys<K, H>
{
    type Hash = H;

    fn empty(settings: Settings, hash: H) -> Result<Self, Refused> {
        let Settings { quota, method, max_keys, grace, count_denials } = settings;
        let store = ExactStore::new(max_keys, grace, method.any(quota)?)?;
        Ok(Self { store, method, counts_denials: count_denials, hash })
    }

    fn of_times(&self) -> Result<Self, Refused> {
        let (method, quota) = Method::of_times();
        let store = self.store.beside(method.any(quota)?)?;
        Ok(Self { store, method, counts_denials: false, hash: self.hash.clone() })
    }

    fn another(hash: &H) -> H {
        hash.clone()
    }

    fn changes(&self) -> u64 {
        self.store.changes()
    }

    fn default_rule(&self) -> Wanted {
        self.store.default_rule()
    }

    fn default_quota(&self) -> Quota {
        self.store.default_rule().rule.quota
    }

    fn set_quota(&self, quota: Quota, since: &Since) -> Result<(), Refused> {
        self.store.set_default_rule(self.method.any(quota)?, since);
        Ok(())
    }

    fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool {
        let begin = |now, first| self.store.begin_sweep(now, first);
        sweep_by_steps(places, ExactStore::<K>::STEP, clock, begin, |steps, now| self.tend(steps, now))
    }

    fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets) {
        resets.note(|| self.store.reset_all());
        let begin = |now| self.store.begin_round(now);
        forget_all(clock, |now| self.store.note(now), begin, |steps, now| self.tend(steps, now));
    }

    fn keys(&self) -> usize {
        self.store.len()
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}

impl<K, H, Q> Accepts<Q> for ExactKeys<K, H>
where
    K: Eq + Send + Sync + 'static,
    H: BuildHasher + Clone + Send + Sync + 'static,
    Q: Hash + Equivalent<K> + ToKey<K> + ?Sized,
{
    #[inline]
    fn check(
        &self,
        key: &Q,
        now: impl FnOnce() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> Decision {
        let (asked, now) = (self.asked(key), now());
        let (cost, stamp) = (request.cost, request.resets.stamp());
        let decision = match self.store.known(asked, |state| state.charge(now, cost)) {
            Some((decision, is_charged)) => {
                if is_charged && is_turn(asked.hash, now) {
                    self.tend(1, now);
                }
                self.count_if_denied(is_charged, cost, asked);
                decision
            }
            None => self.insert_and_charge(asked, now, request),
        };
        decision.stamped(stamp)
    }

    fn check_batch<C: Cost>(
        &self,
        keys: &[(&Q, C)],
        now: impl Fn() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision + Copy>,
        decisions: &mut Vec<Decision>,
    ) {
        let now = now();
        for &(key, cost) in keys {
            decisions.push(self.check(key, || now, Request { cost: cost.tokens(), ..request }));
        }
    }

    fn missing(&self, key: &Q, cost: u64, now: Tick) -> (Decision, bool) {
        let fresh = |cost| self.store.fresh(self.asked(key), now, cost);
        (Decision::before_charge(cost, fresh), self.store.has_room(now))
    }

    fn known<T>(&self, key: &Q, visit: impl Fn(AnyState<'_>) -> Option<T>) -> Option<T> {
        self.store.known(self.asked(key), visit)
    }

    fn note_denial(&self, key: &Q, cost: u64) {
        self.count_if_denied(false, cost, self.asked(key));
    }

    fn force(&self, key: &Q, now: Tick, tokens: u64) -> Result<u64, u64> {
        let (asked, force) = (self.asked(key), |state: AnyState<'_>| state.force(now, tokens));
        match self.store.known(asked, force) {
            Some(charged) => Ok(charged),
            None => self.store.insert(asked, || key.to_key(), now, force).map_err(|StoreFull| tokens),
        }
    }

    fn own_quota(&self, key: &Q) -> Option<Quota> {
        self.store.own_quota(self.asked(key))
    }

    fn set_own_quotas(&self, quotas: &[(&Q, Option<Quota>)], since: &Since) -> Result<(), Refused> {
        let rule = |quota| self.method.any(quota);
        let rules = quotas.iter().map(|&(key, quota)| Ok((key, quota.map(rule).transpose()?)));
        let rules = rules.collect::<Result<Vec<_>, Refused>>()?;
        let is_new = |key| self.store.own_quota(self.asked(key)).is_none();
        let new = rules.iter().filter(|&&(key, rule)| rule.is_some() && is_new(key)).count();
        if new > 0 && !self.store.has_room_for_rules(new) {
            return Err(Refused::QuotaNotChanged { bytes: self.store.stats().bytes });
        }
        for (key, rule) in rules {
            let asked = self.asked(key);
            match rule {
                Some(rule) => self.store.set_rule(asked, key.to_key(), rule, since),
                None => self.store.remove_rule(asked, since),
            }
        }
        Ok(())
    }
}

impl<K: Eq + Send + Sync + 'static, H: BuildHasher> ExactKeys<K, H> {
    #[inline]
    pub(super) fn asked<'q, Q: Hash + ?Sized>(&self, key: &'q Q) -> Asked<'q, Q> {
        Asked { hash: spread(self.hash.hash_one(key)), key }
    }
}

impl<K: Eq + Send + Sync + 'static, H> ExactKeys<K, H> {
    fn tend(&self, steps: usize, now: Tick) -> bool {
        (0..steps).all(|_| self.store.tend(now))
    }

    /// Inserts and charges a new key if the request charges anything.
    #[cold]
    fn insert_and_charge<Q: Equivalent<K> + ToKey<K> + ?Sized>(
        &self,
        asked: Asked<'_, Q>,
        now: Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> Decision {
        let cost = request.cost;
        let fresh = self.store.fresh(asked, now, cost);
        if !fresh.is_allowed() || cost == 0 {
            return fresh;
        }
        match self.store.insert(asked, || asked.key.to_key(), now, |state| state.charge(now, cost)) {
            Ok((decision, is_charged)) => {
                // The charge may be denied, because another thread may have inserted the key and
                // charged its last tokens in the meantime.
                self.count_if_denied(is_charged, cost, asked);
                decision
            }
            Err(StoreFull) => (request.refuse)(cost, now, fresh),
        }
    }

    /// Counts a denial if the limiter counts denials.
    #[inline]
    fn count_if_denied<Q: Equivalent<K> + ?Sized>(&self, is_charged: bool, cost: u64, asked: Asked<'_, Q>) {
        if self.counts_denials && !is_charged && cost > 0 {
            self.store.count_denial(asked);
        }
    }
}

impl<K, H> fmt::Debug for ExactKeys<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactKeys").field("counts_denials", &self.counts_denials).finish_non_exhaustive()
    }
}
