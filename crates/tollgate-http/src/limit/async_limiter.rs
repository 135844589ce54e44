//! Limiters that must be waited for.

use crate::key::parts::Key;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Decision, Quota};

/// A limiter that must be waited for: one whose counts several machines share. [`Limit::shared`](crate::Limit::shared)
/// makes a limit of it.
///
/// What a layer promises follows from what the limiter promises: [`check_n`](Self::check_n) charges all of the cost or
/// nothing, and [`refund`](Self::refund) gives back a charge that it made. There are no errors here: what is answered
/// while the counts can't be reached is for the limiter to say. So is how long it waits for them, for the layer has
/// no timer: a future that is never ready keeps its request for ever.
///
/// A client that hangs up drops these futures, wherever they are. That must be safe; what becomes of the charge under
/// way is left open.
///
/// ```
/// use std::future::Future;
/// use std::pin::Pin;
/// use tollgate_http::{AsyncLimiter, Key};
/// use tollgate::{Decision, Limiter, Quota};
///
/// /// Asks another machine, for which a limiter of this one stands here.
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
///     fn refund<'a>(
///         &'a self,
///         key: &'a Key,
///         charge: &'a Decision,
///     ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
///         Box::pin(async move { self.0.refund(key, charge) })
///     }
///
///     fn quota(&self) -> Quota {
///         self.0.quota()
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
    /// Charges `cost` tokens to `key` if it has as many, else nothing.
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;

    /// Gives back what `charge`, a decision of [`check_n`](Self::check_n) for the same key, took.
    ///
    /// The layer waits for it before it answers: see [what that is for](crate#limits-that-other-machines-share). A
    /// limiter whose refunds nobody should wait for hands them to a task of its own, and is ready at once.
    fn refund<'a>(
        &'a self,
        key: &'a Key,
        charge: &'a Decision,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// The quota of each key, as `RateLimit-Policy` tells it.
    fn quota(&self) -> Quota;

    /// The most tokens that a request can take at once: the burst of a bucket, the limit of a window. A layer whose
    /// requests all cost more is refused when it is built. Unless a limiter says it more exactly, the larger one
    /// of its quota's limit and burst.
    fn capacity(&self) -> u64 {
        let quota = self.quota();
        quota.tokens().max(quota.explicit_burst().unwrap_or(0))
    }
}

impl<L: AsyncLimiter + ?Sized> AsyncLimiter for Arc<L> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        (**self).check_n(key, cost)
    }

    fn refund<'a>(
        &'a self,
        key: &'a Key,
        charge: &'a Decision,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        (**self).refund(key, charge)
    }

    fn quota(&self) -> Quota {
        (**self).quota()
    }

    fn capacity(&self) -> u64 {
        (**self).capacity()
    }
}
