//! What a limiter keeps its keys in, and what it asks of either store.
//!
//! A limiter's methods are written once, over the traits that are hidden here; each store answers them by
//! static calls, so what one costs is not paid with the other.

use super::method::Method;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::exact::Wanted;
use crate::forgetting::Sweep;
use crate::packed::Judged;
use crate::quota::Quota;
use crate::rule::LeakyBucket;
use crate::time::Tick;
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

/// True of one in 2048 keys at a time, and of a key one in 2048 milliseconds (of 2^20 nanoseconds). A step takes about
/// a microsecond, several times a check: so one in a thousand checks, which a 99.9th percentile tells, must not do
/// one. (With one in 256 that of a turnover of a million keys was three times that of a table at rest.)
#[inline]
pub(super) const fn is_turn(hash: u64, now: Tick) -> bool {
    (hash ^ (now.as_nanos() >> 20)).is_multiple_of(2048)
}

/// A change of quotas that can't be made now, because the memory for it is not to be had.
#[derive(Debug)]
pub struct MemoryShort;

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
    /// The same, if it takes no longer than usual.
    fn pin_at_once() -> Option<Self::Guard>;
    /// Is there something to be let go of that may have been read under it?
    fn is_old(guard: &Self::Guard) -> bool;
    /// Ends what was read so far, and goes on.
    fn repin(guard: &mut Self::Guard);
    /// Would a new key find a place?
    fn has_room(&self, now: Tick, guard: &Self::Guard) -> bool;
    /// Does so many steps of what is to be done; true if there is more.
    fn tend(&self, steps: usize, now: Tick, guard: &Self::Guard) -> bool;
    /// Does a step of it.
    #[cold]
    fn tend_once(&self, now: Tick) {
        self.tend(1, now, &Self::pin());
    }
    /// Begins to look for idle keys, unless it was done a moment ago; for a sweep that began at
    /// `first`.
    fn begin_sweep(&self, now: Tick, first: Tick, guard: &Self::Guard) -> Sweep;
    /// The same, however long ago the last time was; true if it is under way.
    fn begin_turnover(&self, now: Tick, guard: &Self::Guard) -> bool;
    /// Notes a time at which somebody looks after the store.
    fn note(&self, now: Tick, guard: &Self::Guard);
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
    fn key<'q>(&self, key: &'q Q) -> Self::Key<'q>;
    /// Is it this key's turn to do a step of upkeep? See [`is_turn`].
    fn is_turn_of(key: Self::Key<'_>, now: Tick) -> bool;
    /// What keys are looked for in.
    type View<'g>: Copy
    where
        Self: 'g;
    /// That, as it is now.
    fn view<'g>(&'g self, guard: &'g Self::Guard) -> Self::View<'g>;
    /// Where a key is looked for first.
    type Spot<'g>: Copy
    where
        Self: 'g;
    /// Where that is. Its memory is on its way.
    fn spot<'g>(&'g self, view: Self::View<'g>, key: Self::Key<'_>) -> Self::Spot<'g>;
    /// Where a key was found.
    type Found<'g>: Copy
    where
        Self: 'g;
    /// What is known of a key that was not found.
    type Miss<'g>: Copy + Default
    where
        Self: 'g;
    /// Looks for a key there, and nowhere else.
    fn find<'g>(
        &'g self,
        spot: Self::Spot<'g>,
        key: Self::Key<'_>,
    ) -> Result<Self::Found<'g>, Self::Miss<'g>>;
    /// The same. If it is not there, the memory of where to look next is on its way.
    fn find_ahead<'g>(&'g self, spot: Self::Spot<'g>, key: Self::Key<'_>) -> Option<Self::Found<'g>>;
    /// The bucket by which the requests of all keys are judged, if that is all there is to know.
    fn bucket<'g>(&'g self, view: Self::View<'g>) -> Option<LeakyBucket>;
    /// Charges a key that was found, by this bucket. Misses one whose state has moved on.
    fn charge_found<'g>(
        &'g self,
        bucket: LeakyBucket,
        found: Self::Found<'g>,
        now: Tick,
        cost: u64,
    ) -> Option<Judged>;
    /// Charges a key that was not found there but is further on, or new, by this bucket. Misses one that is elsewhere, and one that
    /// can't be inserted at once.
    fn charge_further<'g>(
        &'g self,
        bucket: LeakyBucket,
        view: Self::View<'g>,
        miss: Self::Miss<'g>,
        key: Self::Key<'_>,
        now: Tick,
        cost: u64,
    ) -> Option<Judged>;
    /// Charges a key that was found, by its rule, or misses one whose state has moved on; was anything charged?
    fn charge_by_rule<'g>(
        &'g self,
        view: Self::View<'g>,
        found: Self::Found<'g>,
        key: Self::Key<'_>,
        now: Tick,
        cost: u64,
    ) -> Option<(Decision, bool)>;
    /// Charges a key that was missed, wherever it is, after inserting it if it is new and the request charges anything. If there is
    /// no place for it, `refused` answers.
    fn charge_anywhere<'g>(
        &'g self,
        key: Self::Key<'_>,
        now: Tick,
        cost: u64,
        guard: &'g Self::Guard,
        refused: impl FnOnce() -> Decision,
    ) -> Decision;
    /// What a request that was judged at once has to do besides.
    #[inline(always)]
    fn follow_up(&self, is_charged: bool, key: Self::Key<'_>, cost: u64, now: Tick) {
        if !is_charged && cost > 0 {
            self.note_denial(key);
        }
        // A turnover must go on, and a table that is far too large shrink, also where no new keys come. So
        // one in 2048 charges does a step, chosen by what is at hand: the key, and the time in
        // units of about a millisecond. Denials write nothing, so they don't.
        if is_charged && Self::is_turn_of(key, now) {
            self.tend_once(now);
        }
    }
    /// What a request would be answered, for a key that is there.
    fn peek(&self, key: Self::Key<'_>, now: Tick, cost: u64, guard: &Self::Guard) -> Option<Decision>;
    /// Gives back at most `tokens` of what `charge` took, if the key is there and `is_current` says so of the charge then.
    fn refund(
        &self,
        key: Self::Key<'_>,
        now: Tick,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
    );
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

/// What a [`Limiter`](crate::Limiter) keeps its keys in: [`Fingerprints`](crate::Fingerprints) or
/// [`ExactKeys`](crate::ExactKeys). Sealed.
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
/// [`Fingerprints`](crate::Fingerprints) take anything that is [`Hash`](std::hash::Hash); [`ExactKeys`](crate::ExactKeys) what
/// is also [`Equivalent`](crate::Equivalent) to a key and can become one ([`ToKey`]).
#[diagnostic::on_unimplemented(
    message = "this limiter's store can't be asked with keys of type `{Q}`",
    note = "a limiter of exact keys keeps them, so it needs to make an owned key of a `{Q}`: see `tollgate::ToKey`"
)]
pub trait Holds<Q: ?Sized>: Store + Lookup<Q> {}

/// How a key that is asked for becomes one that is kept: for [`ExactKeys`](crate::ExactKeys), which call it when they insert a
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
