//! The trait for limiters that need time to answer.

use crate::figure::Figure;
use crate::key::parts::Key;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Decision, Quota};

/// A limiter whose counts are shared by several machines, so each answer takes time.
/// [`Limit::new`](crate::Limit::new) accepts such a limiter directly.
///
/// The guarantees of a layer depend on the limiter. [`check_n`](Self::check_n) must charge the
/// whole cost or nothing, [`refund_n`](Self::refund_n) must give back a charge made by `check_n`,
/// and [`force`](Self::force) must charge tokens that are already spent.
///
/// The methods return no errors. The limiter decides what to answer while its store is unreachable,
/// and how long to wait for the store. The layer has no timer, so a request waits forever if the
/// limiter's future never becomes ready.
///
/// If a client hangs up, these futures may be dropped at any point, which must be safe. The limiter
/// may either make or abandon a charge in progress.
///
/// ```
/// use std::future::Future;
/// use std::pin::Pin;
/// use tollgate_http::{AsyncLimiter, Key};
/// use tollgate::{Decision, Limiter, Quota};
///
/// /// A limiter on another machine, for which a local limiter stands in here.
/// struct Elsewhere(Limiter<Key>);
///
/// impl AsyncLimiter for Elsewhere {
///     fn check_n<'a>(
///         &'a self,
///         key: &'a Key,
///         cost: u64,
///     ) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
///         Box::pin(async move { self.0.check_n(key, cost) })
///     }
///
///     fn refund_n<'a>(
///         &'a self,
///         key: &'a Key,
///         decision: &'a Decision,
///         tokens: u64,
///     ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
///         Box::pin(async move { self.0.refund_n(key, decision, tokens) })
///     }
///
///     fn quota(&self) -> Quota {
///         self.0.quota()
///     }
///
///     fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
///         // With a runtime: `tokio::spawn(task);`
///         std::thread::spawn(|| pollster::block_on(task));
///     }
/// }
///
/// let limiter = Elsewhere(Limiter::builder(Quota::per_hour(1)).build()?);
/// let key = Key::new("per-key", ["secret"]);
/// # pollster::block_on(async {
/// assert!(limiter.check_n(&key, 1).await.is_allowed());
/// assert!(!limiter.check_n(&key, 1).await.is_allowed());
/// # });
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait AsyncLimiter: Send + Sync {
    /// Charges `cost` tokens to `key` if the key has enough tokens, and nothing otherwise.
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;

    /// Gives back at most `tokens` tokens of an earlier charge to the same key. `decision` is the
    /// result of the [`check_n`](Self::check_n) that made this charge. The layer gives back each
    /// token of a decision at most once.
    ///
    /// If the response [decides on its charge](crate::Limit::charge_if), the layer waits for the
    /// refund before it passes the response on: see [the
    /// reasons](crate#limits-that-other-machines-share). If refunds should not delay responses, the
    /// limiter can pass them to its own task and return a future that is ready.
    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        decision: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Charges `key` for `tokens` that are already spent. Returns how many tokens were charged. A
    /// limit that [settles](crate::Limit::settle) calls this method for tokens beyond its charges.
    ///
    /// The default implementation never puts a key into debt. It charges all of the tokens if the
    /// key has enough, and none otherwise.
    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>> {
        Box::pin(async move { self.check_n(key, tokens).await.charged() })
    }

    /// Returns each key's quota, for `RateLimit-Policy`. Building a layer fails if every request
    /// would cost more than the quota's [capacity](Quota::capacity).
    fn quota(&self) -> Quota;

    /// Runs a task to its end in the background, without waiting for the task. The task owns the
    /// charges of one response. While the response passes, the task requests more tokens from this
    /// limiter. When the response has ended or was dropped, the task settles the charges: see
    /// [`Limit::settle`](crate::Limit::settle). Limits that do not settle never call this method.
    ///
    /// This method is needed because the layer has no runtime, and a dropped body cannot wait. The
    /// layer calls `spawn` in the task that awaits the handler's response, so that task's current
    /// runtime is suitable. If a spawned task is dropped before its end, its charges are kept.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Returns this limiter's figures for the [`Metrics`](crate::Metrics) of its layer. The metrics
    /// call this method whenever they are read. The figures are shown under the limit's name and
    /// cover all classes, so this method is called only on the default class's limiter. The default
    /// implementation returns none.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// Returns the name and the limiter of each class of callers, starting with the default class.
    /// If there are classes, the limit requires [`class_by`](crate::Limit::class_by). The default
    /// implementation returns no classes.
    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        Vec::new()
    }
}

impl<L: AsyncLimiter + ?Sized> AsyncLimiter for Arc<L> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        (**self).check_n(key, cost)
    }

    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        decision: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        (**self).refund_n(key, decision, tokens)
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>> {
        (**self).force(key, tokens)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        (**self).spawn(task);
    }

    fn quota(&self) -> Quota {
        (**self).quota()
    }

    fn figures(&self) -> Vec<Figure> {
        (**self).figures()
    }

    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        L::classes(Arc::clone(&*self))
    }
}
