//! The trait for limits on requests in flight with shared permits.

use crate::figure::Figure;
use crate::key::parts::Key;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Decision, Denied};

/// A permit for one request in flight, granted by an [`AsyncInFlight`].
///
/// The permit is free again when the guard is dropped.
pub struct AsyncPermit {
    /// The decision that granted the permit.
    pub decision: Decision,
    /// The value that gives the permit back when it is dropped.
    pub guard: Box<dyn Send + Sync>,
}

impl fmt::Debug for AsyncPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncPermit").field("decision", &self.decision).finish_non_exhaustive()
    }
}

/// A limit on requests in flight whose permits are shared by several machines, so each answer takes
/// time. [`Backend::in_flight`](crate::Backend::in_flight) turns such a limit into a backend.
///
/// The only error is a denial. The implementation decides what to answer while its store is
/// unreachable, and how long to wait for the store.
///
/// ```
/// use std::future::Future;
/// use std::pin::Pin;
/// use tollgate::{Chargeable, Denied, InFlight};
/// use tollgate_http::{AsyncInFlight, AsyncPermit, Key};
///
/// /// Permits on another machine, for which local ones stand in here.
/// struct Elsewhere(InFlight<Key>);
///
/// impl AsyncInFlight for Elsewhere {
///     fn acquire<'a>(
///         &'a self,
///         key: &'a Key,
///     ) -> Pin<Box<dyn Future<Output = Result<AsyncPermit, Denied>> + Send + 'a>> {
///         Box::pin(async move {
///             let permit = self.0.empty_permit_owned(key.clone());
///             let decision = permit.check();
///             decision.ok()?;
///             Ok(AsyncPermit { decision, guard: Box::new(permit) })
///         })
///     }
///
///     fn limit(&self) -> u64 {
///         self.0.limit()
///     }
/// }
/// ```
pub trait AsyncInFlight: Send + Sync {
    /// Acquires a permit for `key`, if a permit is free.
    ///
    /// If a client hangs up, the future may be dropped at any point. The permit must then be
    /// released.
    fn acquire<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<AsyncPermit, Denied>> + Send + 'a>>;

    /// Returns how many requests with the same key may be in flight at once, for
    /// `RateLimit-Policy`.
    fn limit(&self) -> u64;

    /// Returns this limit's figures for the [`Metrics`](crate::Metrics) of its layer, as
    /// [`AsyncLimiter::figures`](crate::AsyncLimiter::figures) does. The default implementation
    /// returns none.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}

impl<L: AsyncInFlight + ?Sized> AsyncInFlight for Arc<L> {
    fn acquire<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<AsyncPermit, Denied>> + Send + 'a>> {
        (**self).acquire(key)
    }

    fn limit(&self) -> u64 {
        (**self).limit()
    }

    fn figures(&self) -> Vec<Figure> {
        (**self).figures()
    }
}
