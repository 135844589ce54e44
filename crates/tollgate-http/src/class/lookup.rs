//! Classes that a function is asked for, such as a database. Its answers are kept for a while.
//!
//! # State
//!
//! A cache of bounded size has for each key the last answer with its end, or the question that is
//! being asked. A question is a future that all requests of its key share: whichever of them is
//! polled drives it. The cache refers to it weakly, so that a question that nobody waits for any
//! more is dropped, with the connection that it may hold.
//!
//! # Progress
//!
//! Finding an answer locks one bucket of the cache for a moment. No lock is held while a function
//! of the user runs, but for `Hash`, `Eq` and `Clone` of the key.

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

/// The most answers that may be kept.
const MAX_KEYS: usize = 1 << 24;
/// The longest time for which an answer may count.
const MAX_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the earlier answer counts after a question that failed, before the next is asked.
const RETRY: Duration = Duration::from_secs(1);

/// A function that is asked for the class of a caller, such as a database.
/// [`Limit::class_by`](crate::Limit::class_by) takes it.
///
/// `who` takes from a request whom to ask about, and `ask` says of which class that is: its name,
/// or `None` for the default class.
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
///     // Ask the database. It has a time limit of its own, such as `tokio::time::timeout`.
///     Ok((user == 7).then(|| "paid".to_owned()))
/// }
///
/// let lookup = ClassLookup::new(|head| Some(head.extensions().get::<User>()?.0), class_of)
///     .keep_for(Duration::from_secs(30))
///     .max_keys(100_000);
/// let by = ClassBy::from(lookup);
/// ```
///
/// # While it is asked
///
/// A request whose class is not known waits for the answer: a paying caller has their quota from
/// the first request on. Requests of one key wait for one question together, also when its answer
/// has become too old. A limit whose class is known, and that refuses the request, does so before
/// any question.
///
/// The layer has no timer, so `ask` has to end by itself. A question that fails (an error, or a
/// panic) gives the class that the key had before, or the default class, and is asked again after a
/// second.
///
/// A question that no request waits for any more, because clients have hung up, is dropped where
/// it stands.
///
/// A key that a client makes up is a question, too. So take a key that was verified, or put a limit
/// by address into a layer outside: it is charged before anything is asked.
///
/// # What is kept
///
/// An answer counts for a minute ([`keep_for`](Self::keep_for)), also `None`. A new class therefore
/// takes effect within that time. The answers about 10,000 keys are kept
/// ([`max_keys`](Self::max_keys)); of more, those that were not used for longest are forgotten, and
/// asked for again.
///
/// # Progress
///
/// Not lock-free, as the checks are: finding an answer locks one bucket of scc's cache for a
/// moment. A thread that is stopped there holds up the requests whose keys are in the same bucket.
#[must_use]
pub struct ClassLookup<K> {
    who: Box<Who<K>>,
    ask: Box<Ask<K>>,
    max_keys: usize,
    keep: Duration,
    clock: Clock,
}

type Who<K> = dyn Fn(RequestHead<'_>) -> Option<K> + Send + Sync;
type Ask<K> = dyn Fn(K) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync;
/// What the function says; `Err` if it has failed.
type Answer = Result<Option<String>, ()>;

/// The name of a class, or `None` for the default class.
pub(crate) type Name = Option<Arc<str>>;

/// A question that several requests may wait for.
pub(crate) type Question = Shared<Asked>;
type Asked = Pin<Box<dyn Future<Output = Name> + Send>>;

impl<K> ClassLookup<K> {
    /// Makes a lookup of these functions. Where `who` returns `None`, nothing is asked, and the
    /// request is of the default class.
    ///
    /// ```
    /// # use tollgate_http::ClassLookup;
    /// let lookup = ClassLookup::new(
    ///     |head| head.header("x-api-key").map(std::borrow::Cow::into_owned),
    ///     async |key: Vec<u8>| {
    ///         // An error of the real database.
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

    /// Sets how many answers are kept, from 1 to 16,777,216; it is rounded up to a power of two, at
    /// least 64. The default is 10,000.
    ///
    /// ```
    /// # use tollgate_http::ClassLookup;
    /// # let ask = async |_: u64| Ok::<_, ()>(None);
    /// let lookup = ClassLookup::new(|_| Some(7), ask).max_keys(1_000_000);
    /// ```
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Sets how long an answer counts, from a millisecond to a day. The default is a minute.
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

    /// Sets the clock by which answers become too old: a manual one in tests.
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
    /// A number of keys or a time out of range.
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

/// A [`ClassLookup`], whatever its keys are.
pub(crate) trait Lookup: Send + Sync {
    /// Returns the class of a request, or the question to wait for.
    fn class(self: Arc<Self>, head: RequestHead<'_>) -> Found;
}

/// What a lookup knows of a request.
pub(crate) enum Found {
    Known(Name),
    Asked(Question),
}

struct Cache<K> {
    who: Box<Who<K>>,
    ask: Box<Ask<K>>,
    keep: Duration,
    clock: Clock,
    answers: HashCache<K, State>,
}

/// What is known of a key.
enum State {
    Known {
        class: Name,
        until: Tick,
    },
    Asking {
        question: Option<WeakShared<Asked>>,
        /// The answer before.
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
                entry.put_entry(State::Asking { question: question.downgrade(), earlier: None });
                Found::Asked(question)
            }
            Entry::Occupied(mut entry) => {
                let earlier = match entry.get() {
                    State::Known { class, until } if now < *until => return Found::Known(class.clone()),
                    State::Known { class, .. } => class.clone(),
                    State::Asking { question, earlier } => {
                        match question.as_ref().and_then(WeakShared::upgrade) {
                            Some(question) => return Found::Asked(question),
                            None => earlier.clone(),
                        }
                    }
                };
                let question = question(&self, key, earlier.clone());
                entry.put(State::Asking { question: question.downgrade(), earlier });
                Found::Asked(question)
            }
        }
    }
}

/// Returns the question about a key, which is asked when it is polled.
fn question<K>(cache: &Arc<Cache<K>>, key: K, earlier: Name) -> Question
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let cache = Arc::clone(cache);
    let asked: Asked = Box::pin(async move {
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
        let known = State::Known { class: class.clone(), until };
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
