//! The trait of limiters that take time to answer.

use crate::figure::Figure;
use crate::key::parts::Key;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Decision, Quota};

/// A limiter that takes time to answer, because several machines share its counts.
/// [`Limit::new`](crate::Limit::new) accepts it directly.
///
/// The promises of a layer depend on those of the limiter: [`check_n`](Self::check_n) charges all
/// of the cost or nothing, [`refund_n`](Self::refund_n) gives back a charge that `check_n` made,
/// and [`force`](Self::force) charges tokens that are already spent.
///
/// There are no errors: the limiter itself decides what to answer while its store is unreachable,
/// and how long to wait for the store. The layer has no timer, so a future that is never ready
/// keeps its request forever.
///
/// When a client hangs up, these futures are dropped at any point. That must be safe. Whether a
/// charge in progress is made is left to the limiter.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the limiter of a `Limit`",
    note = "keys of a layer are `tollgate_http::Key`: leave the type of a limiter to be inferred, or write `Limiter<Key>`"
)]
pub trait AsyncLimiter: Send + Sync {
    /// Charges `cost` tokens to `key` if it has that many, and nothing otherwise.
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;

    /// Gives back at most `tokens` of the charge of `decision`, which is a decision of
    /// [`check_n`](Self::check_n) for the same key. The layer gives each token of a decision back
    /// at most once.
    ///
    /// If the response [decides on its charge](crate::Limit::charge_if), the layer waits for the
    /// refund before it passes the response on: see [the
    /// reasons](crate#limits-that-other-machines-share). A limiter whose refunds should delay no
    /// response hands them to a task of its own and returns a future that is ready.
    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        decision: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Charges `key` for `tokens` that are already spent, and returns how many were charged. A
    /// limit that [settles](crate::Limit::settle) calls this for tokens beyond its charges.
    ///
    /// The default implementation has no debt: it charges all of the tokens, or none if they do not
    /// fit.
    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>> {
        Box::pin(async move { self.check_n(key, tokens).await.charged() })
    }

    /// Returns the quota of each key, for `RateLimit-Policy`. A layer whose requests each cost more
    /// than its [capacity](Quota::capacity) is refused when it is built.
    fn quota(&self) -> Quota;

    /// Runs a task to its end in the background, without waiting for it. The task owns the charges
    /// of a response, requests more from this limiter while the response passes, and settles them
    /// when the response has ended or was dropped: see [`Limit::settle`](crate::Limit::settle).
    /// Limits that do not settle never call this method.
    ///
    /// The layer has no runtime, and a body that is dropped cannot wait. The layer calls this
    /// method in the task that awaits the handler's response, so the current runtime of that task
    /// is suitable. If a task is dropped before its end, its charges stay.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Returns the figures of this limiter for the [`Metrics`](crate::Metrics) of its layer, each
    /// time that the metrics are read. The figures have the name of the limit, for all classes
    /// together, so the layer calls only the limiter of the default class. The default
    /// implementation returns none.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// Returns the classes of callers: the name of each class and its limiter, the default class
    /// first. If there is any class, the limit needs [`class_by`](crate::Limit::class_by). The
    /// default implementation returns no classes.
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
