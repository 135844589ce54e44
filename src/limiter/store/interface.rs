//! The interface between a limiter and its store of keys.
//!
//! A limiter's methods are written once, over the two traits of this file, whose methods are
//! hidden. Each store implements them and is called statically, so the cost of one store does not
//! affect the other. Their methods take types that only this crate can name, so no other crate can
//! implement them.

use crate::decision::Decision;
use crate::error::Refused;
use crate::forgetting::{Sweep, WITNESSES};
use crate::limiter::build::method::Method;
use crate::limiter::resets::Resets;
use crate::limiter::together::look::Look;
use crate::quota::Quota;
use crate::state::{AnyState, Wanted};
use crate::stats::Stats;
use crate::time::Tick;
use std::time::Duration;

/// How many keys [`Accepts::check_many`] hashes and prefetches before it charges the first.
pub(crate) const BATCH: usize = 32;

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub(crate) quota: Quota,
    pub(crate) method: Method,
    pub(crate) max_keys: usize,
    pub(crate) grace: Duration,
    pub(crate) count_denials: bool,
}

/// The part of a charge that the store does not know by itself.
#[derive(Clone, Copy)]
pub struct Request<'l, R> {
    pub(crate) cost: u64,
    pub(crate) resets: &'l Resets,
    /// Answers for a new key that finds no slot, given the cost, the time, and the answer that a
    /// fresh key would get.
    pub(crate) refuse: R,
}

/// A store of a [`Limiter`](crate::Limiter)'s keys: [`Fingerprints`](crate::store::Fingerprints) or
/// [`ExactKeys`](crate::store::ExactKeys).
///
/// Code that works with either names this trait. No other type can implement it.
///
/// ```
/// use tollgate::store::Store;
/// use tollgate::{Limiter, Quota};
///
/// fn report<K: ?Sized, S: Store>(limiter: &Limiter<K, S>) -> String {
///     format!("{} keys", limiter.len())
/// }
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1)).build()?;
/// assert_eq!(report(&limiter), "0 keys");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Store: Sized + Send + Sync + 'static {
    /// The hash of the keys.
    #[doc(hidden)]
    type Hash;
    /// An empty store.
    #[doc(hidden)]
    fn empty(settings: Settings, hash: Self::Hash) -> Result<Self, Refused>;
    /// An empty store of as many keys, with the rule [`Method::of_times`].
    #[doc(hidden)]
    fn of_times(&self) -> Result<Self, Refused>;
    /// The hash for another store with the same settings.
    #[doc(hidden)]
    fn another(hash: &Self::Hash) -> Self::Hash;
    /// The number of changes of quotas so far. The caller reads it before it asks for a rule.
    #[doc(hidden)]
    fn changes(&self) -> u64;
    /// The rule of the keys that have no quota of their own.
    #[doc(hidden)]
    fn default_rule(&self) -> Wanted;
    /// The quota of the keys that have none of their own.
    #[doc(hidden)]
    fn default_quota(&self) -> Quota;
    /// Replaces the quota of the keys that have no quota of their own.
    #[doc(hidden)]
    fn set_quota(&self, quota: Quota, now: Tick) -> Result<(), Refused>;
    /// Looks for idle keys in up to `places` slots, or does other upkeep; returns whether more is
    /// left to do.
    #[doc(hidden)]
    fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool;
    /// Makes every key as good as new, and forgets the idle ones.
    #[doc(hidden)]
    fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets);
    /// The number of keys, as an upper bound.
    #[doc(hidden)]
    fn keys(&self) -> usize;
    /// The size of the store and what it has done. This may visit all keys. The limiter counts the
    /// checks that found no room.
    #[doc(hidden)]
    fn stats(&self) -> Stats;
}

/// A [`Store`] that accepts keys of type `Q`.
///
/// [`Fingerprints`](crate::store::Fingerprints) accepts every type that implements
/// [`Hash`](std::hash::Hash). [`ExactKeys`](crate::store::ExactKeys) accepts types that are also
/// [`Equivalent`](crate::store::Equivalent) to its keys and can become one ([`ToKey`]). No other
/// type can implement it.
#[diagnostic::on_unimplemented(
    message = "this limiter's store can't be asked with keys of type `{Q}`",
    note = "a limiter of exact keys keeps them, so it needs to make an owned key of a `{Q}`: see `tollgate::store::ToKey`"
)]
pub trait Accepts<Q: ?Sized>: Store {
    /// Charges a key, after inserting it if it is new and the request charges anything.
    ///
    /// `now` is called after the key's memory was prefetched.
    #[doc(hidden)]
    fn check(
        &self,
        key: &Q,
        now: impl FnOnce() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> Decision;
    /// Charges each of many keys one token, [`BATCH`] at a time, and adds the answers to
    /// `decisions`. All keys of a batch are charged at one time.
    #[doc(hidden)]
    fn check_many<'k>(
        &self,
        keys: impl Iterator<Item = &'k Q>,
        now: impl Fn() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision + Copy>,
        decisions: &mut Vec<Decision>,
    ) where
        Q: 'k;
    /// For a key that is missing: the answer to a request before a charge, and whether the key
    /// would find a slot.
    #[doc(hidden)]
    fn missing(&self, key: &Q, cost: u64, now: Tick) -> (Decision, bool);
    /// Looks at a key that is known. A store that can't hand out its states sees nothing.
    #[doc(hidden)]
    fn look<'m>(
        &'m self,
        _key: &Q,
        _cost: u64,
        _now: impl FnOnce(&Look<'m>) -> Tick,
        _resets: &'m Resets,
        _look: &mut Look<'m>,
    ) {
    }
    /// Passes the state of a key to `visit`; `None` if the key is missing. `visit` returns `None`
    /// only if the state is frozen or sealed.
    #[doc(hidden)]
    fn known<T>(&self, key: &Q, visit: impl Fn(AnyState<'_>) -> Option<T>) -> Option<T>;
    /// Charges a key for `tokens` that are spent already, after inserting it if it is new. Returns
    /// how many were charged. The error is how many are left when the key finds no slot.
    #[doc(hidden)]
    fn force(&self, key: &Q, now: Tick, tokens: u64) -> Result<u64, u64>;
    /// The own quota of a key, if it has one.
    #[doc(hidden)]
    fn own_quota(&self, key: &Q) -> Option<Quota>;
    /// Gives keys quotas of their own, or removes them.
    #[doc(hidden)]
    fn set_own_quotas(&self, quotas: &[(&Q, Option<Quota>)], now: Tick) -> Result<(), Refused>;
}

/// Gives the items to `each`, [`BATCH`] at a time.
#[inline(always)]
pub(crate) fn in_batches<T: Copy>(mut items: impl Iterator<Item = T>, mut each: impl FnMut(&[T])) {
    while let Some(first) = items.next() {
        let mut batch = [first; BATCH];
        let mut filled = 1;
        for (place, item) in batch[1..].iter_mut().zip(&mut items) {
            *place = item;
            filled += 1;
        }
        each(&batch[..filled]);
        // An iterator that has ended is not asked again: it might begin anew.
        if filled < BATCH {
            return;
        }
    }
}

/// The number of upkeep steps after one collection. What they retire is freed before the next.
const STEPS: usize = 64;

/// Sweeps by steps of `step` slots: begins a sweep and does as many steps as `places` allow.
pub(crate) fn sweep_by_steps(
    places: usize,
    step: usize,
    clock: &dyn Fn() -> Tick,
    begin: impl Fn(Tick, Tick) -> Sweep,
    tend: impl Fn(usize, Tick) -> bool,
) -> bool {
    let mut steps = places.div_ceil(step);
    if steps == 0 {
        return false;
    }
    let first = clock();
    let mut now = first;
    while steps > 0 {
        match begin(now, first) {
            Sweep::Nothing => return false,
            Sweep::UnderWay => break,
            // One reading of a clock may be wrong, so it is read again.
            Sweep::NotBelieved => (now, steps) = (clock(), steps - 1),
        }
    }
    while steps > 0 {
        if !tend(steps.min(STEPS), now) {
            return false;
        }
        steps = steps.saturating_sub(STEPS);
    }
    true
}

/// The end of a clear: forgets the keys, which were all reset.
pub(crate) fn forget_all(
    clock: &dyn Fn() -> Tick,
    note: impl Fn(Tick),
    begin: impl Fn(Tick) -> bool,
    tend: impl Fn(usize, Tick) -> bool,
) {
    (0..WITNESSES).for_each(|_| note(clock()));
    let now = clock();
    // A turnover that is under way may have moved keys before they were reset. The next turnover
    // forgets these.
    while tend(STEPS, now) {}
    if begin(now) {
        while tend(STEPS, now) {}
    }
}

/// Makes an owned key of a borrowed form, for [`ExactKeys`](crate::store::ExactKeys), which calls
/// this to insert a key.
///
/// The owned key must be equal to the borrowed form, by [`Equivalent`](crate::store::Equivalent),
/// and have the same hash.
///
/// A form that breaks this contract gets an answer all the same. If the two are not equal, a check
/// charges the owned key, or gets the answer of a full store. Calls that insert nothing, such as a
/// peek, a reset or a refund, do not find the key: a refund gives nothing back, and a permit keeps
/// its place. If the hashes differ, each form has a state of its own.
///
/// Every type that is [`ToOwned`] implements this: a `str` becomes a `String`, a `u64` stays one.
/// Implement it for borrowed forms of your own.
///
/// ```
/// use tollgate::store::{Equivalent, ToKey};
/// use tollgate::{Limiter, Quota};
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
/// assert!(limiter.check(&Parts(7, "/login")).is_allowed());
/// assert!(!limiter.check(&(7, "/login".to_owned())).is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait ToKey<K> {
    /// Returns an owned key that is equal to `self`.
    fn to_key(&self) -> K;
}

impl<K, Q: ToOwned<Owned = K> + ?Sized> ToKey<K> for Q {
    fn to_key(&self) -> K {
        self.to_owned()
    }
}
