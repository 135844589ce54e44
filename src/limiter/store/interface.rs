//! The interface between a limiter and its store of keys.
//!
//! The methods of a limiter are written once, in terms of the two traits in this module. The
//! methods of these traits are hidden. Each store implements both traits and is called statically,
//! so the cost of one store does not affect the other. No other crate can implement the traits,
//! because only this crate can name the types of their arguments.

use crate::decision::Decision;
use crate::error::Refused;
use crate::forgetting::{Sweep, WITNESSES};
use crate::limiter::build::method::Method;
use crate::limiter::resets::Resets;
use crate::limiter::together::look::Look;
use crate::quota::Quota;
use crate::state::{AnyState, Since, Wanted};
use crate::stats::Stats;
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;
use std::time::Duration;

/// The maximum number of keys that [`Accepts::check_batch`] hashes and prefetches before it charges
/// the first of them.
pub(crate) const BATCH: usize = 32;

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) quota: Quota,
    pub(crate) method: Method,
    pub(crate) max_keys: usize,
    pub(crate) grace: Duration,
    pub(crate) count_denials: bool,
}

/// The parts of a charge that the store does not know.
#[derive(Clone, Copy)]
pub struct Request<'l, R> {
    pub(crate) cost: u64,
    pub(crate) resets: &'l Resets,
    /// Answers a request for a new key that finds no slot. The arguments are the cost, the time,
    /// and the answer for a fresh key.
    pub(crate) refuse: R,
}

/// The cost of a request in a batch.
pub trait Cost: Copy {
    fn tokens(self) -> u64;
}

/// One token. A batch of requests for one token each stores no costs.
#[derive(Clone, Copy)]
pub(crate) struct OneToken;

impl Cost for OneToken {
    #[inline(always)]
    fn tokens(self) -> u64 {
        1
    }
}

impl Cost for u64 {
    #[inline(always)]
    fn tokens(self) -> u64 {
        self
    }
}

/// A store for the keys of a [`Limiter`](crate::Limiter). It is either
/// [`Fingerprints`](crate::store::Fingerprints) or [`ExactKeys`](crate::store::ExactKeys).
///
/// Use this trait in code that supports both stores. No other type can implement the trait.
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
    /// Returns an empty store.
    #[doc(hidden)]
    fn empty(settings: Settings, hash: Self::Hash) -> Result<Self, Refused>;
    /// Returns an empty store for the same number of keys, with the rule [`Method::of_times`].
    #[doc(hidden)]
    fn of_times(&self) -> Result<Self, Refused>;
    /// Returns the hash for another store with the same settings.
    #[doc(hidden)]
    fn another(hash: &Self::Hash) -> Self::Hash;
    /// Returns how often quotas have been changed so far. A caller must read this number before it
    /// reads a rule.
    #[doc(hidden)]
    fn changes(&self) -> u64;
    /// Returns the default rule, which applies to keys without a separate quota.
    #[doc(hidden)]
    fn default_rule(&self) -> Wanted;
    /// Returns the default quota, which applies to keys without a separate quota.
    #[doc(hidden)]
    fn default_quota(&self) -> Quota;
    /// Replaces the default quota, which applies to keys without a separate quota.
    #[doc(hidden)]
    fn set_quota(&self, quota: Quota, since: &Since) -> Result<(), Refused>;
    /// Looks for idle keys in up to `places` slots, or performs other upkeep. Returns true if more
    /// upkeep is left to do.
    #[doc(hidden)]
    fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool;
    /// Resets every key to the state of a new key, and forgets the idle keys.
    #[doc(hidden)]
    fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets);
    /// Returns an upper bound on the number of keys.
    #[doc(hidden)]
    fn keys(&self) -> usize;
    /// Returns the statistics of the store, such as its size and its turnovers. This method may
    /// visit all keys. The limiter, not the store, counts the checks that found no slot.
    #[doc(hidden)]
    fn stats(&self) -> Stats;
}

/// A key, or a borrowed form of a key, of a limiter whose keys have the type `K`.
///
/// Every type that implements [`Hash`] and [`Equivalent<K>`](crate::store::Equivalent) implements
/// this trait. A type `K` is equivalent to itself if it implements [`Eq`], and so are its borrowed
/// forms: a `Limiter<String>` accepts `&str` and `&String`, but a `Limiter<str>` accepts only
/// `&str`.
///
/// ```
/// # use tollgate::{Limiter, Quota};
/// let name = String::from("alice");
/// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(2)).build()?;
/// assert!(limiter.check("alice").is_allowed());
/// assert!(limiter.check(&name).is_allowed());
/// assert!(!limiter.check(&name).is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// ```compile_fail,E0277
/// # use tollgate::{Limiter, Quota};
/// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(2)).build()?;
/// // A limiter of `str` keys does not accept a key of type `String`.
/// let decision = limiter.check(&String::from("alice"));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a limiter of `{K}` keys does not accept a key of type `{Self}`",
    label = "not a key of this limiter",
    note = "a `Limiter<String>` accepts `&str` and `&String`; a `Limiter<str>` accepts only `&str`, such as `name.as_str()`",
    note = "a key implements `Hash` and, unless it is a borrowed form of the limiter's keys, `Eq`: see `tollgate::store::KeyOf`"
)]
pub trait KeyOf<K: ?Sized>: Hash + Equivalent<K> {}

// As a result, the compiler's errors name this trait, rather than the trait `Borrow` behind
// `Equivalent`.
#[diagnostic::do_not_recommend]
impl<Q: Hash + Equivalent<K> + ?Sized, K: ?Sized> KeyOf<K> for Q {}

/// A [`Store`] that accepts keys of type `Q`.
///
/// [`Fingerprints`](crate::store::Fingerprints) accepts every type that implements
/// [`Hash`](std::hash::Hash). [`ExactKeys`](crate::store::ExactKeys) accepts types that are also
/// [`Equivalent`](crate::store::Equivalent) to its keys and can be converted to a key ([`ToKey`]).
/// No other type can implement this trait.
#[diagnostic::on_unimplemented(
    message = "this limiter's store does not accept keys of type `{Q}`",
    note = "a limiter of exact keys stores its keys, so it must be able to convert a `{Q}` to an owned key: see `tollgate::store::ToKey`"
)]
pub trait Accepts<Q: ?Sized>: Store {
    /// Charges a key. If the key is new and the request charges anything, inserts the key first.
    ///
    /// This method calls `now` after it has prefetched the key's memory.
    #[doc(hidden)]
    fn check(
        &self,
        key: &Q,
        now: impl FnOnce() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> Decision;
    /// Charges each of 1 to [`BATCH`] keys for its cost, and appends the answers to `decisions`.
    /// All keys are charged at the same time. The cost in `request` is ignored.
    #[doc(hidden)]
    fn check_batch<C: Cost>(
        &self,
        keys: &[(&Q, C)],
        now: impl Fn() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision + Copy>,
        decisions: &mut Vec<Decision>,
    );
    /// Returns the answer to a request for a missing key, before a charge. Also returns whether the
    /// key would find a slot.
    #[doc(hidden)]
    fn missing(&self, key: &Q, cost: u64, now: Tick) -> (Decision, bool);
    /// Looks at a known key. If a store can't lend out its states, the look sees nothing.
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
    /// Passes the state of a key to `visit`. Returns `None` if the key is missing. `visit` must
    /// return `None` only if the state is frozen or sealed.
    #[doc(hidden)]
    fn known<T>(&self, key: &Q, visit: impl Fn(AnyState<'_>) -> Option<T>) -> Option<T>;
    /// Counts a denial that this store has not made, if the store counts denials and contains the
    /// key.
    #[doc(hidden)]
    fn note_denial(&self, _key: &Q, _cost: u64) {}
    /// Charges a key for `tokens` that are already spent, and inserts the key first if it is new.
    /// Returns how many tokens were charged. If the key finds no slot, returns the number of
    /// uncharged tokens as an error.
    #[doc(hidden)]
    fn force(&self, key: &Q, now: Tick, tokens: u64) -> Result<u64, u64>;
    /// Returns the separate quota of a key, or `None` if the key has none.
    #[doc(hidden)]
    fn own_quota(&self, key: &Q) -> Option<Quota>;
    /// Sets or removes the separate quotas of keys.
    #[doc(hidden)]
    fn set_own_quotas(&self, quotas: &[(&Q, Option<Quota>)], since: &Since) -> Result<(), Refused>;
}

/// Passes the items to `each`, [`BATCH`] at a time.
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
        // An iterator that has ended must not be called again, because the iterator might start
        // over.
        if filled < BATCH {
            return;
        }
    }
}

/// The number of upkeep steps between two collections. Each collection frees the memory retired by
/// the steps before it.
const STEPS: usize = 64;

/// Starts a sweep, and performs as many steps of `step` slots as `places` allows.
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
            // A single reading of a clock may be wrong, so the clock is read again.
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

/// Completes a clear by forgetting the keys. All keys have already been reset.
pub(crate) fn forget_all(
    clock: &dyn Fn() -> Tick,
    note: impl Fn(Tick),
    begin: impl Fn(Tick) -> bool,
    tend: impl Fn(usize, Tick) -> bool,
) {
    (0..WITNESSES).for_each(|_| note(clock()));
    let now = clock();
    // A turnover that is already in progress may have moved keys before they were reset. The next
    // turnover forgets these keys.
    while tend(STEPS, now) {}
    if begin(now) {
        while tend(STEPS, now) {}
    }
}

/// Converts a borrowed form of a key to an owned key. [`ExactKeys`](crate::store::ExactKeys) uses
/// this trait to insert a key.
///
/// The owned key must be equal to the borrowed form, according to
/// [`Equivalent`](crate::store::Equivalent), and must have the same hash.
///
/// Calls with a form that breaks this contract still return an answer. If the two forms are not
/// equal, a check charges the owned key, or answers as if the store were full. Calls that insert
/// nothing, such as a peek, a reset or a refund, do not find the key. A refund then has no effect,
/// and a permit remains outstanding. If the hashes differ, each form has a separate state.
///
/// Every type that implements [`ToOwned`] also implements this trait: a `str` is converted to a
/// `String`, and a `u64` remains a `u64`. Implement the trait for your own borrowed forms.
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
