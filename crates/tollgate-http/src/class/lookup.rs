//! Finds classes with a user's function, for example in a database, and caches the answers.
//!
//! # State
//!
//! A bounded cache stores, for each key, the last answer with its expiry, or the question in
//! progress. A question is a future shared by all requests with the same key. Whichever of these
//! requests is polled drives the future. The cache holds only a weak reference to a question. A
//! question is therefore dropped, together with any connection that it holds, as soon as no request
//! waits for its answer.
//!
//! # Progress
//!
//! Finding an answer briefly locks one bucket of the cache. No lock is held while a user's function
//! runs, except for the key's `Hash`, `Eq` and `Clone`.

use crate::error::Fault;
use crate::head::RequestHead;
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use scc::HashCache;
use scc::hash_cache::Entry;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Clock, Tick};

/// The maximum number of answers in the cache.
const MAX_KEYS: usize = 1 << 24;
/// The longest time for which an answer may be used.
const MAX_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the earlier answer is used after a question has failed, before the question is asked
/// again.
const RETRY: Duration = Duration::from_secs(1);

/// Finds a caller's class with a function, for example by querying a database. Pass a lookup to
/// [`Limit::class_by`](crate::Limit::class_by).
///
/// `who` returns a request's caller. `ask` returns the name of that caller's class, or `None` for
/// the default class.
///
/// ```
/// use std::time::Duration;
/// use tollgate_http::{ClassBy, ClassLookup};
///
/// #[derive(Clone)]
/// struct User(u64);
///
/// # #[derive(Debug)]
/// # struct Error;
/// async fn class_of(user: u64) -> Result<Option<String>, Error> {
///     // Query the database. The query needs a time limit, such as `tokio::time::timeout`.
///     Ok((user == 7).then(|| "paid".to_owned()))
/// }
///
/// let lookup = ClassLookup::new(|head| Some(head.extensions().get::<User>()?.0), class_of)
///     .keep_for(Duration::from_secs(30))
///     .max_keys(100_000);
/// let by = ClassBy::from(lookup);
/// ```
///
/// # While the class is looked up
///
/// A request waits for the answer if its class is unknown, so a paying caller has the right quota
/// from the first request. All requests with the same key wait for the same question, even if the
/// question replaces an expired answer. No question is asked if a limit with a known class refuses
/// the request.
///
/// The layer has no timer, so `ask` itself must ensure that it returns. If a question fails (with
/// an error or a panic), the key keeps its earlier class or, if there is none, has the default
/// class. The question is asked again after a second.
///
/// If all clients that wait for a question have hung up, the question is dropped before it has
/// finished.
///
/// Keys invented by clients also cause questions. Therefore use a verified key, or put a
/// per-address limit into an outer layer, so that this limit is charged before any question is
/// asked.
///
/// # What is cached
///
/// Each answer is used for a minute ([`keep_for`](Self::keep_for)), including the answer `None`. A
/// change of class therefore takes effect within a minute.
///
/// The cache stores answers for about 10,000 keys ([`max_keys`](Self::max_keys)). Beyond that
/// number, the least recently used answers are evicted. The function is called again when an
/// evicted answer is needed.
///
/// # Progress
///
/// Unlike the checks, a lookup is not lock-free, because finding an answer briefly locks one bucket
/// of scc's cache. A thread stopped while it holds this lock delays all requests with keys in the
/// same bucket.
#[must_use]
pub struct ClassLookup<K> {
    who: Box<Who<K>>,
    ask: Box<Ask<K>>,
    max_keys: usize,
    keep: Duration,
    clock: Clock,
}

type Who<K> = dyn Fn(RequestHead<'_>) -> Option<K> + Send + Sync;
type Ask<K> = dyn Fn(K) -> Pin<Box<dyn Future<Output = LookupAnswer> + Send>> + Send + Sync;
/// The answer of the function; `Err` if the function has failed.
type LookupAnswer = Result<Option<String>, ()>;

/// The name of a class, or `None` for the default class.
pub(crate) type Name = Option<Arc<str>>;

/// A question whose answer several requests may wait for.
pub(crate) type Question = Shared<ClassFuture>;
type ClassFuture = Pin<Box<dyn Future<Output = Name> + Send>>;

impl<K> ClassLookup<K> {
    /// Creates a lookup from two functions. If `who` returns `None`, no question is asked, and the
    /// request belongs to the default class.
    ///
    /// ```
    /// # use tollgate_http::ClassLookup;
    /// let lookup = ClassLookup::new(
    ///     |head| head.header("x-api-key").map(std::borrow::Cow::into_owned),
    ///     async |key: Vec<u8>| {
    ///         // The error type of the real database.
    ///         Ok::<_, std::io::Error>(key.starts_with(b"p-").then(|| "paid".to_owned()))
    ///     },
    /// );
    /// ```
    pub fn new<W, F, A, E>(who: W, ask: F) -> Self
    where
        W: Fn(RequestHead<'_>) -> Option<K> + Send + Sync + 'static,
        F: Fn(K) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Option<String>, E>> + Send + 'static,
    {
        Self {
            who: Box::new(who),
            ask: Box::new(move |key| {
                let answer = ask(key);
                Box::pin(async { answer.await.map_err(drop) })
            }),
            max_keys: 10_000,
            keep: Duration::from_secs(60),
            clock: Clock::default(),
        }
    }

    /// Sets the maximum number of cached answers, from 1 to 16,777,216. The number is rounded up to
    /// a power of two, and to at least 64. The default is 10,000.
    ///
    /// ```
    /// # use tollgate_http::ClassLookup;
    /// # let ask = async |_: u64| Ok::<_, ()>(None);
    /// let lookup = ClassLookup::new(|_| Some(7), ask).max_keys(1_000_000);
    /// ```
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Sets how long an answer is used, from a millisecond to a day. The default is a minute.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_http::ClassLookup;
    /// # let ask = async |_: u64| Ok::<_, ()>(None);
    /// let lookup = ClassLookup::new(|_| Some(7), ask).keep_for(Duration::from_secs(5));
    /// ```
    pub fn keep_for(self, keep: Duration) -> Self {
        Self { keep, ..self }
    }

    /// Sets the clock that determines when answers expire, such as a manual clock in tests.
    ///
    /// ```
    /// # use tollgate::ManualClock;
    /// # use tollgate_http::ClassLookup;
    /// # let ask = async |_: u64| Ok::<_, ()>(None);
    /// let clock = ManualClock::new();
    /// let lookup = ClassLookup::new(|_| Some(7), ask).clock(&clock);
    /// ```
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: clock.into(), ..self }
    }

    /// # Errors
    ///
    /// Returns an error if the number of keys or the time is out of range.
    pub(super) fn checked(self) -> Result<Arc<dyn Lookup>, Fault>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let Self { who, ask, max_keys, keep, clock } = self;
        let refused = |why| Err(Fault::ClassLookup { why });
        if !(1..=MAX_KEYS).contains(&max_keys) {
            return refused(format!(
                "invalid max_keys {max_keys}: expected 1 to {MAX_KEYS}; choose the number of callers that come \
                 within the time for which an answer counts"
            ));
        }
        if !(Duration::from_millis(1)..=MAX_KEEP).contains(&keep) {
            return refused(format!(
                "invalid time {keep:?} for an answer to count: expected 1ms to 24h; choose how late a new plan may \
                 take effect"
            ));
        }
        let answers = HashCache::with_capacity(0, max_keys);
        Ok(Arc::new(Cache { who, ask, keep, clock, answers }))
    }
}

/// A [`ClassLookup`] with any type of key.
pub(crate) trait Lookup: Send + Sync {
    /// Returns a request's class, or the question that the request must wait for.
    fn class(self: Arc<Self>, head: RequestHead<'_>) -> Found;
}

/// The result of a lookup.
pub(crate) enum Found {
    Known(Name),
    Asked(Question),
}

struct Cache<K> {
    who: Box<Who<K>>,
    ask: Box<Ask<K>>,
    keep: Duration,
    clock: Clock,
    answers: HashCache<K, CachedClass>,
}

/// A key's state in the cache.
enum CachedClass {
    Known {
        class: Name,
        until: Tick,
    },
    Asking {
        question: Option<WeakShared<ClassFuture>>,
        /// The answer before this question.
        earlier: Name,
    },
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Lookup for Cache<K> {
    fn class(self: Arc<Self>, head: RequestHead<'_>) -> Found {
        let Some(key) = (self.who)(head) else { return Found::Known(None) };
        let now = self.clock.now();
        match self.answers.entry_sync(key.clone()) {
            Entry::Vacant(entry) => {
                let question = question(&self, key, None);
                entry.put_entry(CachedClass::Asking { question: question.downgrade(), earlier: None });
                Found::Asked(question)
            }
            Entry::Occupied(mut entry) => {
                let earlier = match entry.get() {
                    CachedClass::Known { class, until } if now < *until => {
                        return Found::Known(class.clone());
                    }
                    CachedClass::Known { class, .. } => class.clone(),
                    CachedClass::Asking { question, earlier } => {
                        match question.as_ref().and_then(WeakShared::upgrade) {
                            Some(question) => return Found::Asked(question),
                            None => earlier.clone(),
                        }
                    }
                };
                let question = question(&self, key, earlier.clone());
                entry.put(CachedClass::Asking { question: question.downgrade(), earlier });
                Found::Asked(question)
            }
        }
    }
}

/// Creates the question about a key. Polling the question calls the user's function.
fn question<K>(cache: &Arc<Cache<K>>, key: K, earlier: Name) -> Question
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let cache = Arc::clone(cache);
    let asked: ClassFuture = Box::pin(async move {
        let asked = key.clone();
        let answer = AssertUnwindSafe(async { (cache.ask)(asked).await }).catch_unwind().await;
        let (class, keep) = match answer {
            Ok(Ok(class)) => (class.map(Arc::from), cache.keep),
            Ok(Err(())) | Err(_) => (earlier, RETRY.min(cache.keep)),
        };
        cache.learn(key, &class, keep);
        class
    });
    asked.shared()
}

impl<K: Hash + Eq> Cache<K> {
    fn learn(&self, key: K, class: &Name, keep: Duration) {
        let keep = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
        let until = Tick::from_nanos(self.clock.now().as_nanos().saturating_add(keep));
        let known = CachedClass::Known { class: class.clone(), until };
        match self.answers.entry_sync(key) {
            Entry::Occupied(mut entry) => drop(entry.put(known)),
            Entry::Vacant(entry) => drop(entry.put_entry(known)),
        }
    }
}

impl<K> fmt::Debug for ClassLookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassLookup")
            .field("max_keys", &self.max_keys)
            .field("keep_for", &self.keep)
            .finish_non_exhaustive()
    }
}
