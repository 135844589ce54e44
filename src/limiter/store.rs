//! What a limiter asks of its store of keys.
//!
//! A limiter's methods are written once, over the two traits that are hidden here. Each store
//! answers them by static calls, so what one store costs is not paid with the other.

use super::method::Method;
use super::resets::Resets;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::exact::Wanted;
use crate::forgetting::{Sweep, WITNESSES};
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// How many keys [`Lookup::charge_many`] hashes and prefetches before it charges the first.
pub(super) const BATCH: usize = 32;

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

/// What a limiter passes to its store with each charge.
#[derive(Clone, Copy)]
pub struct Request<'l, R> {
    pub(super) cost: u64,
    pub(super) resets: &'l Resets,
    /// Answers for a new key that finds no place, given the cost, the time, and the answer to a
    /// fresh key.
    pub(super) refuse: R,
}

/// Does a charge of this key do a step of upkeep? One in 2048 keys does at a time, and a key in one
/// of 2048 milliseconds (of 2^20 nanoseconds).
///
/// A turnover must go on, and a table that is far too large shrink, also where no new keys come. A
/// step takes about a microsecond, several times a check: so fewer than one in a thousand checks,
/// which a 99.9th percentile tells, must do one. Denials write nothing, so they do none.
#[inline]
pub(super) const fn is_turn(hash: u64, now: Tick) -> bool {
    (hash ^ (now.as_nanos() >> 20)).is_multiple_of(2048)
}

/// What a handle holds while it reads a store.
pub trait Pin {
    /// Begins to read.
    fn pin() -> Self;
    /// Ends what was read so far and goes on, if something may wait for that to be freed.
    fn renew(&mut self);
}

/// What a limiter asks of its store, whatever the keys are. An empty store is made from its settings.
pub trait Backing: TryFrom<Settings, Error = ConfigError> {
    /// Held by whoever charges keys.
    type Guard: Pin;
    /// How many changes of quotas there were: to be read before a rule is asked for.
    fn changes(&self) -> u64;
    /// The rule of the keys that have no quota of their own.
    fn default_rule(&self) -> Wanted;
    /// Replaces it.
    fn set_quota(&self, quota: Quota, now: Tick) -> Result<(), ConfigError>;
    /// Looks for idle keys in so many places, or does what else there is to do; true if there is
    /// more.
    fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool;
    /// Makes every key as good as new, and forgets the idle ones.
    fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets);
    /// How many keys are there.
    fn len(&self) -> usize;
    /// How large the store is and what it has done. This may go over all keys.
    fn figures(&self) -> Figures;
}

/// What a limiter asks of its store for a key of type `Q`.
pub trait Lookup<Q: ?Sized>: Backing {
    /// Charges a key, after inserting it if it is new and the request charges anything.
    ///
    /// `now` is asked after the key's memory was prefetched.
    fn charge(
        &self,
        key: &Q,
        now: impl FnOnce() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
        guard: &Self::Guard,
    ) -> Decision;
    /// Charges each of many keys one token, [`BATCH`] at a time, at one time for each batch; adds
    /// the answers to `decisions`.
    fn charge_many<'k>(
        &self,
        keys: impl Iterator<Item = &'k Q>,
        now: impl Fn() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision + Copy>,
        decisions: &mut Vec<Decision>,
    ) where
        Q: 'k;
    /// What a request would be answered. `Err` for a key that is not there: with the answer to a
    /// fresh key, before a charge, and whether it would find a place.
    fn peek(&self, key: &Q, cost: u64, now: Tick) -> Result<Decision, (Decision, bool)>;
    /// Gives back at most `tokens` of what `charge` took, if the key is there and `is_current` says
    /// so of the charge then.
    fn refund(&self, key: &Q, now: Tick, charge: &Decision, tokens: u64, is_current: impl Fn() -> bool);
    /// Makes a key as good as new, if it is there.
    fn reset(&self, key: &Q);
    /// The quota of its own that a key has.
    fn own_quota(&self, key: &Q) -> Option<Quota>;
    /// Gives keys a quota of their own, or takes it from them; had any of the latter one?
    fn set_own_quotas(&self, quotas: &[(&Q, Option<Quota>)], now: Tick) -> Result<bool, ConfigError>;
}

/// How many steps of upkeep are done under one guard: what they retire can be freed after these.
const STEPS: usize = 64;

/// A sweep by steps of so many places: begins one and does as many steps as `places` allow.
pub(super) fn sweep_by_steps(
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
            // A clock that is wrong once is not believed, so it is read again.
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

/// The end of a clear, after all keys were reset: forgets them.
pub(super) fn forget_all(
    clock: &dyn Fn() -> Tick,
    note: impl Fn(Tick),
    begin: impl Fn(Tick) -> bool,
    tend: impl Fn(usize, Tick) -> bool,
) {
    (0..WITNESSES).for_each(|_| note(clock()));
    let now = clock();
    // A turnover that is under way may have moved keys before they were reset. The next one
    // forgets them.
    while tend(STEPS, now) {}
    if begin(now) {
        while tend(STEPS, now) {}
    }
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
pub trait Accepts<Q: ?Sized>: Store + Lookup<Q> {}

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
/// assert!(limiter.check(&Parts(7, "/login")).is_allowed());
/// assert!(!limiter.check(&(7, "/login".to_owned())).is_allowed());
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
