//! Classes of callers: a limiter for each, such as for free and paid plans, behind one type.
//!
//! A class is a whole [`Limiter`]: its rule, its store, its share of the keys. So a charge knows
//! one rule, as without classes, and no word has to say which class made it. What holds of a
//! limiter holds of each class, and two classes share no state that a race could spoil.
//!
//! Why not one table for all classes? A slot would have to name its class, in bits of the
//! fingerprint, and each check would look the rule up. And the keys of one class, which may be
//! strangers', could take all places from those of another.

use super::fingerprints::Fingerprints;
use super::keyed::Limiter;
use super::store::{Accepts, Store};
use crate::decision::Decision;
use crate::stats::Stats;
use equivalent::Equivalent;
use std::fmt;
use std::hash::Hash;

/// A class of callers of one [`ClassLimiter`]: one of the quotas that its builder was given.
///
/// A `Class` belongs to the limiter that returned it. A limiter with fewer classes takes the class
/// of another limiter for the default class, `Class::default()`.
///
/// ```
/// # use tollgate::{Class, Limiter, Quota};
/// let limiter =
///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(50)).build()?;
/// assert_ne!(limiter.class("paid"), Some(Class::default()));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class(usize);

/// A rate limiter whose callers are of several classes, each with a quota and an algorithm of its
/// own.
///
/// Made by [`Builder::class`](crate::Builder::class). The caller of a check says which class a key
/// is of: [`of`](Self::of) returns the class's own [`Limiter`], which has every method of one. The
/// limiter keeps no list of keys. A new customer needs no call, and a customer with a new plan is
/// checked in another class from the next request on.
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
/// let (free, paid) = (limiter.class("free").unwrap_or_default(), limiter.class("paid").unwrap());
///
/// let estimate = limiter.of(free).check_n("alice", 10);
/// assert!(!limiter.of(free).check("alice").is_allowed());
/// limiter.of(free).refund_n("alice", &estimate, 1);
/// assert!(limiter.of(free).check("alice").is_allowed());
///
/// // Alice pays from now on. Later her plan gets a larger quota, for all who have it.
/// assert_eq!(limiter.of(paid).check("alice").remaining(), 999);
/// limiter.of(paid).set_quota(Quota::per_minute(2_000))?;
/// assert_eq!(limiter.of(paid).peek("alice").capacity(), 2_000);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// [`SingleLimiter`]: crate::SingleLimiter
/// [`check_all`]: crate::check_all
/// [`ClassSettings::max_keys`]: crate::ClassSettings::max_keys
pub struct ClassLimiter<K: ?Sized, S = Fingerprints> {
    /// The names of all classes but the default.
    names: Box<[String]>,
    /// One for each class, the default first. There is always one more than there are names.
    limiters: Box<[Limiter<K, S>]>,
}

impl<K: ?Sized, S: Store> ClassLimiter<K, S> {
    /// Puts classes behind one type. The first limiter is that of the default class.
    pub(super) fn new(names: Vec<String>, limiters: Vec<Limiter<K, S>>) -> Self {
        debug_assert_eq!(names.len() + 1, limiters.len(), "each class has one limiter");
        Self { names: names.into(), limiters: limiters.into() }
    }

    /// The class of this name, or `None` if the builder was given none. The default class, of the
    /// builder's own quota, has no name: it is `Class::default()`.
    ///
    /// Compares the names one by one. Keep the class of a caller, and not its name, where each
    /// nanosecond counts.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(50)).build()?;
    /// assert!(limiter.class("paid").is_some() && limiter.class("free").is_none());
    /// // An unknown plan gets the default quota.
    /// let class = limiter.class("free").unwrap_or_default();
    /// assert_eq!(limiter.of(class).quota(), Quota::per_hour(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn class(&self, name: &str) -> Option<Class> {
        self.names.iter().position(|other| other == name).map(|place| Class(place + 1))
    }

    /// The limiter of a class, for checks, peeks, refunds, batches, resets, quotas and lists of its
    /// keys.
    ///
    /// # Progress
    ///
    /// Wait-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let paid = limiter.class("paid").unwrap();
    /// let charges = [(); 3].map(|()| limiter.of(paid).check("alice").is_allowed());
    /// assert_eq!(charges, [true, true, false]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn of(&self, class: Class) -> &Limiter<K, S> {
        self.limiters.get(class.0).unwrap_or(&self.limiters[0])
    }

    /// All classes: the name of each (`None` for the default class, which comes first), and its
    /// limiter.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// for (name, class) in limiter.classes() {
    ///     println!("{}: {} keys", name.unwrap_or("free"), class.len());
    ///     // Forgets the keys that are idle.
    ///     while class.sweep(4_096) {}
    /// }
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn classes(&self) -> impl Iterator<Item = (Option<&str>, &Limiter<K, S>)> {
        let names = [None].into_iter().chain(self.names.iter().map(|name| Some(&**name)));
        names.zip(&self.limiters)
    }

    /// Checks one request of each key under the quota of its class: adds one decision for each to
    /// `decisions`, in their order.
    ///
    /// Neighbours of one class are decided together, as [`Limiter::check_many`] does. So sort a
    /// large batch by class.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check_many`].
    ///
    /// ```
    /// # use tollgate::{Class, Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let (free, paid) = (Class::default(), limiter.class("paid").unwrap());
    /// let mut decisions = Vec::new();
    /// let batch = [(free, "alice"), (free, "alice"), (paid, "bob"), (paid, "bob")];
    /// limiter.check_many_as(&batch, &mut decisions);
    /// let allowed: Vec<bool> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    /// assert_eq!(allowed, [true, false, true, true]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn check_many_as<Q>(&self, requests: &[(Class, &Q)], decisions: &mut Vec<Decision>)
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        for neighbours in requests.chunk_by(|(one, _), (next, _)| one == next) {
            let keys = neighbours.iter().map(|&(_, key)| key);
            self.of(neighbours[0].0).check_many(keys, decisions);
        }
    }

    /// What all classes hold and have done: the sums of their [`Limiter::stats`]. For one class ask
    /// its limiter, [`of`](Self::of).
    ///
    /// # Progress
    ///
    /// As [`Limiter::stats`].
    ///
    /// ```
    /// # use tollgate::{Class, Limiter, Quota};
    /// let builder = Limiter::<str>::builder(Quota::per_hour(1)).max_keys(1_000);
    /// let limiter = builder.class("paid", Quota::per_hour(2)).build()?;
    /// for class in [Class::default(), limiter.class("paid").unwrap()] {
    ///     let _ = limiter.of(class).check("alice");
    /// }
    /// let stats = limiter.stats();
    /// assert_eq!((stats.keys, stats.max_keys), (2, 1_000));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let mut sum = self.limiters[0].stats();
        for stats in self.limiters[1..].iter().map(Limiter::stats) {
            sum.keys += stats.keys;
            sum.capacity += stats.capacity;
            sum.max_keys += stats.max_keys;
            sum.turnovers += stats.turnovers;
            sum.evicted += stats.evicted;
            sum.no_room += stats.no_room;
            sum.own_quotas += stats.own_quotas;
            sum.bytes += stats.bytes;
        }
        sum.bytes += self.bytes_beside();
        sum
    }

    /// The number of keys in all classes, as an upper bound: see [`Limiter::len`]. A key that is in
    /// two classes counts twice.
    ///
    /// # Progress
    ///
    /// Lock-free.
    pub fn len(&self) -> usize {
        self.limiters.iter().map(Limiter::len).sum()
    }

    /// Whether no class holds a key.
    ///
    /// # Progress
    ///
    /// Lock-free.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that all classes take now: see [`Limiter::bytes`].
    ///
    /// # Progress
    ///
    /// As [`Limiter::stats`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let classes: usize = limiter.classes().map(|(_, class)| class.bytes()).sum();
    /// assert!(classes < limiter.bytes());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn bytes(&self) -> usize {
        self.bytes_beside() + self.limiters.iter().map(Limiter::bytes).sum::<usize>()
    }

    /// Makes every key of every class as good as new, and forgets all keys, as [`Limiter::clear`]
    /// does.
    ///
    /// # Progress
    ///
    /// As [`Limiter::clear`].
    ///
    /// ```
    /// # use tollgate::{Class, Limiter, Quota};
    /// let limiter =
    ///     Limiter::<str>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let free = limiter.of(Class::default());
    /// assert!(free.check("alice").is_allowed() && !free.check("alice").is_allowed());
    /// limiter.clear();
    /// assert!(limiter.is_empty() && free.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clear(&self) {
        self.limiters.iter().for_each(Limiter::clear);
    }

    /// The bytes beside those of the limiters, which count themselves.
    fn bytes_beside(&self) -> usize {
        let names = self.names.iter().map(|name| size_of::<String>() + name.capacity());
        size_of::<Self>() + names.sum::<usize>()
    }
}

impl<K: ?Sized, S: Store> fmt::Debug for ClassLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.classes()).finish()
    }
}
