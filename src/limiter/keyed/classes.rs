//! Classes of callers: a limiter for each, such as for free and paid plans, behind one type.
//!
//! A class is a whole [`Limiter`]: its rule, its store, its share of the keys. So a charge knows
//! one rule, as without classes, and no word has to say which class made it. What holds of a
//! limiter holds of each class, and two classes share no state that a race could spoil.
//!
//! Why not one table for all classes? A slot would have to name its class, in bits of the
//! fingerprint, and each check would look the rule up. And the keys of one class, which may be
//! strangers', could take all places from those of another.

use super::limiter::Limiter;
use crate::limiter::build::kind::{Keyed, Kind, Rated, Sweepable};
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::interface::Store;
use crate::stats::Stats;
use std::fmt;
use std::sync::Arc;

/// A rate limiter whose callers are of several classes, each with a quota and an algorithm of its
/// own.
///
/// Made by [`Builder::class`](crate::Builder::class). The caller of a check says which class a key
/// is of: [`class`](Self::class) returns the class's own [`Limiter`], which has every method of
/// one. The limiter keeps no list of keys. A new customer needs no call, and a customer with a new
/// plan is checked in another class from the next request on.
///
/// # A key in two classes
///
/// Each class counts a key by itself. A key that changes its class begins anew there. When it
/// returns, it finds what it used before, as far as that has not come back meanwhile. Checks of one
/// key in two classes, also at the same time, admit what each class's quota allows and no more: in
/// all, the sum of both bounds. So choose the class by what your service knows of the caller, and
/// not by what the request says. For a limit over all classes, charge a [`SingleLimiter`] too, with
/// [`check_all`].
///
/// A refund goes to the class of the charge. Through another class it gives back nothing, as a
/// charge of another limiter.
///
/// # Memory
///
/// [`max_keys`](crate::Builder::max_keys) is the cap for all classes together, and each class has a
/// fixed share of it: the one that it was given ([`ClassSettings::max_keys`]), or an equal part of
/// what these leave. No class takes places of another. So a flood of new keys in one class, such as
/// strangers', fills the table of this class only. The price: a class whose share is full answers
/// new keys as [`WhenFull`](crate::WhenFull) says, while others may have room. Under
/// [`WhenFull::Share`](crate::WhenFull::Share) each class has a shared state of its own.
///
/// Each class takes the [memory](Limiter#memory) of a limiter with its share, so all take at most
/// four times 24.1 bytes for each of `max_keys`, or 1 MiB for each class if that is more (32 bytes
/// a key where a share is up to 8,192).
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::<str>::builder(Quota::per_minute(10))
///     .class("paid", Quota::per_minute(1_000))
///     .build()?;
/// // A plan without a class of its own has the default quota.
/// let free = limiter.class("free").unwrap_or(limiter.default_class());
/// let paid = limiter.class("paid").unwrap();
///
/// let estimate = free.check_n("alice", 10);
/// assert!(!free.check("alice").is_allowed());
/// free.refund_n("alice", &estimate, 1);
/// assert!(free.check("alice").is_allowed());
///
/// // Alice pays from now on. Later her plan gets a larger quota, for all who have it.
/// assert_eq!(paid.check("alice").remaining(), 999);
/// paid.set_quota(Quota::per_minute(2_000))?;
/// assert_eq!(paid.peek("alice").capacity(), 2_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`SingleLimiter`]: crate::SingleLimiter
/// [`check_all`]: crate::check_all
/// [`ClassSettings::max_keys`]: crate::ClassSettings::max_keys
pub struct ClassLimiter<K: ?Sized, S = Fingerprints> {
    /// The classes, each with its name, the default class first. There is at least that.
    classes: Box<[Class<K, S>]>,
}

/// The name of a class, and its limiter.
type Class<K, S> = (String, Arc<Limiter<K, S>>);

impl<K: ?Sized, S: Store> ClassLimiter<K, S> {
    /// Puts classes behind one type. The first is the default class.
    pub(crate) fn new(classes: impl Iterator<Item = (String, Limiter<K, S>)>) -> Self {
        Self { classes: classes.map(|(name, limiter)| (name, Arc::new(limiter))).collect() }
    }

    /// The limiter of the class of this name, for checks, peeks, refunds, batches, resets, quotas
    /// and lists of its keys; `None` if no class has it.
    ///
    /// Compares the names one by one. Where each nanosecond counts, keep the limiter of a caller's
    /// class, and not the name.
    ///
    /// # Progress
    ///
    /// This method is wait-free and does not allocate.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let paid = limiter.class("paid").unwrap();
    /// let charges = [(); 3].map(|()| paid.check("alice").is_allowed());
    /// assert_eq!(charges, [true, true, false]);
    /// assert!(limiter.class("free").is_none());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn class(&self, name: &str) -> Option<&Arc<Limiter<K, S>>> {
        self.classes.iter().find(|(other, _)| other == name).map(|(_, class)| class)
    }

    /// The limiter of the default class, which has the builder's own quota.
    ///
    /// # Progress
    ///
    /// This method is wait-free and does not allocate.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// // An unknown plan gets the default quota.
    /// let class = limiter.class("free").unwrap_or(limiter.default_class());
    /// assert_eq!(class.quota(), Quota::per_hour(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn default_class(&self) -> &Arc<Limiter<K, S>> {
        &self.classes[0].1
    }

    /// All classes: the name of each, and its limiter. The default class comes first.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// for (name, class) in limiter.classes() {
    ///     println!("{name}: {} keys", class.len());
    ///     // Forgets the keys that are idle.
    ///     while class.sweep(4_096) {}
    /// }
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn classes(&self) -> impl Iterator<Item = (&str, &Arc<Limiter<K, S>>)> {
        self.classes.iter().map(|(name, class)| (&**name, class))
    }

    /// What all classes hold and have done: the sums of their [`Limiter::stats`]. For one class ask
    /// its limiter. A key that is in two classes counts twice.
    ///
    /// # Progress
    ///
    /// Same as [`Limiter::stats`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let builder = Limiter::<str>::builder(Quota::per_hour(1)).max_keys(1_000);
    /// let limiter = builder.class("paid", Quota::per_hour(2)).build()?;
    /// for (_, class) in limiter.classes() {
    ///     let _ = class.check("alice");
    /// }
    /// let stats = limiter.stats();
    /// assert_eq!((stats.keys, stats.max_keys), (2, 1_000));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let mut sum = self.default_class().stats();
        for stats in self.classes[1..].iter().map(|(_, class)| class.stats()) {
            sum.keys += stats.keys;
            sum.room += stats.room;
            sum.max_keys += stats.max_keys;
            sum.turnovers += stats.turnovers;
            sum.evicted += stats.evicted;
            sum.refused += stats.refused;
            sum.own_quotas += stats.own_quotas;
            sum.bytes += stats.bytes;
        }
        let names = self.classes.iter().map(|(name, _)| size_of::<String>() + name.capacity());
        sum.bytes += size_of::<Self>() + names.sum::<usize>();
        sum
    }

    /// Makes every key of every class as good as new, and forgets all keys, as [`Limiter::clear`]
    /// does.
    ///
    /// # Progress
    ///
    /// Same as [`Limiter::clear`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let free = limiter.default_class();
    /// assert!(free.check("alice").is_allowed() && !free.check("alice").is_allowed());
    /// limiter.clear();
    /// assert!(free.is_empty() && free.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clear(&self) {
        self.classes.iter().for_each(|(_, class)| class.clear());
    }
}

impl<K: ?Sized, S: Store> Kind for ClassLimiter<K, S> {
    type Hash = S::Hash;
}

impl<K: ?Sized, S: Store> Rated for ClassLimiter<K, S> {}

impl<K: ?Sized, S: Store> Keyed for ClassLimiter<K, S> {}

impl<K: ?Sized, S: Store> Sweepable for ClassLimiter<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        self.classes().for_each(|(_, class)| class.sweep_while(goes_on));
    }
}

impl<K: ?Sized, S: Store> fmt::Debug for ClassLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.classes()).finish()
    }
}
