//! Classes of callers, such as free and paid plans. A class limiter contains a limiter for each
//! class.
//!
//! Each class is a complete [`Limiter`], with its own rule, its own store, and a share of the keys.
//! Each charge therefore uses a single rule, just as it does without classes, and no word has to
//! record which class charged it. All properties of a limiter hold for each class, and two classes
//! share no state that a race could corrupt.
//!
//! Why not one table for all classes? A slot would have to store its class in bits of the
//! fingerprint, and each check would have to look up the rule. Moreover, strangers may choose the
//! keys of one class, and could fill the slots of all other classes with such keys.

use super::limiter::Limiter;
use crate::limiter::build::kind::{Kind, Sweepable};
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::interface::Store;
use crate::quota::Quota;
use crate::stats::Stats;
use std::fmt;
use std::sync::Arc;

/// A rate limiter for several classes of callers. Each class has a separate quota and algorithm.
///
/// Created by [`Builder::class`](crate::Builder::class). The caller of a check chooses the class of
/// a key. [`class`](Self::class) returns the [`Limiter`] of a class, with all its methods. The
/// class limiter does not record which class a key belongs to, so adding a customer requires no
/// call. If a customer's plan changes, check their next request in the new class.
///
/// # A key in two classes
///
/// Each class counts a key separately. A key that moves to another class starts afresh there. If
/// the key returns to its first class, its earlier charges still count there, except for tokens
/// that have been refilled.
///
/// A key may be checked in two classes, even at the same time. Each class then admits what its
/// quota allows, so the total is at most the sum of both bounds. Choose the class based on what
/// your service knows about the caller, not on the contents of the request. To enforce a limit
/// across all classes, also charge a [`SingleLimiter`], with [`check_all`].
///
/// Refund a charge in the class that made it. In any other class, the refund has no effect, because
/// that class treats the charge as made by another limiter.
///
/// # Memory
///
/// [`max_keys`](crate::Builder::max_keys) is the cap for all classes together, and each class has a
/// fixed share of this cap. The share is either configured ([`ClassSettings::max_keys`]) or an
/// equal part of the remaining keys.
///
/// A class never uses the slots of another class. A flood of new keys in one class, such as a class
/// of strangers, therefore fills only that class's table. The drawback is that a full class answers
/// new keys according to [`WhenFull`](crate::WhenFull), even if other classes have room. Under
/// [`WhenFull::Share`](crate::WhenFull::Share), each class has its own shared state.
///
/// Each class requires as much [memory](Limiter#memory) as a limiter whose `max_keys` is the share
/// of the class. This is at most `4 * 24.1` bytes for each key of the share, or 1 MiB if that is
/// more. If the share is at most 8,192 keys, each key requires at most `4 * 32` bytes.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::<String>::builder(Quota::per_minute(10))
///     .class("paid", Quota::per_minute(1_000))
///     .build()?;
/// // A plan that is not a class has the default quota.
/// let free = limiter.class("free").unwrap_or(limiter.default_class());
/// let paid = limiter.class("paid").unwrap();
///
/// let estimate = free.check_n("alice", 10);
/// assert!(!free.check("alice").is_allowed());
/// free.refund_n("alice", &estimate, 1);
/// assert!(free.check("alice").is_allowed());
///
/// // Alice pays from now on. Later the quota of her plan is raised for all of its customers.
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
    /// The classes with their names. The default class is the first, and always exists.
    classes: Box<[Class<K, S>]>,
}

/// The name of a class, and its limiter.
type Class<K, S> = (String, Arc<Limiter<K, S>>);

impl<K: ?Sized, S: Store> ClassLimiter<K, S> {
    /// Returns a limiter with these classes. The first class is the default class.
    pub(crate) fn new(classes: impl Iterator<Item = (String, Limiter<K, S>)>) -> Self {
        Self { classes: classes.map(|(name, limiter)| (name, Arc::new(limiter))).collect() }
    }

    /// Returns the limiter of the class with this name, or `None` if there is no such class. Use
    /// the limiter for checks, peeks, refunds, batches, resets, quotas and lists of the class's
    /// keys.
    ///
    /// The lookup compares the names one by one. If every nanosecond counts, store the limiter of
    /// the caller's class rather than the class name.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<String>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// let paid = limiter.class("paid").unwrap();
    /// let charges = [(); 3].map(|()| paid.check("alice").is_allowed());
    /// assert_eq!(charges, [true, true, false]);
    /// assert!(limiter.class("free").is_none());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn class(&self, name: &str) -> Option<&Arc<Limiter<K, S>>> {
        self.classes.iter().find(|(other, _)| other == name).map(|(_, class)| class)
    }

    /// Returns the limiter of the default class, which enforces the builder's quota.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<String>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
    /// // An unknown plan gets the default quota.
    /// let class = limiter.class("free").unwrap_or(limiter.default_class());
    /// assert_eq!(class.quota(), Quota::per_hour(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn default_class(&self) -> &Arc<Limiter<K, S>> {
        &self.classes[0].1
    }

    /// Iterates over the names and limiters of all classes. The default class is the first.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<String>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
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

    /// Returns the [`Limiter::stats`] of all classes, added up. A key that is tracked in two
    /// classes counts twice. For the statistics of a single class, call `stats` on its limiter.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let builder = Limiter::<String>::builder(Quota::per_hour(1)).max_keys(1_000);
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
        // An `Arc` stores two counts before its value, in as many bytes as the value's alignment.
        const { assert!(align_of::<Limiter<K, S>>() >= 2 * size_of::<usize>()) };
        let class = size_of::<Class<K, S>>() + align_of::<Limiter<K, S>>();
        let classes = self.classes.iter().map(|(name, _)| class + name.capacity());
        sum.bytes += size_of::<Self>() + classes.sum::<usize>();
        sum
    }

    /// Resets every key of every class and forgets all keys, like [`Limiter::clear`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<String>::builder(Quota::per_hour(1)).class("paid", Quota::per_hour(2)).build()?;
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
    type Limit = Quota;
    type Hash = S::Hash;
}

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
