//! The trait of limits on what is in flight that take time to answer.

use crate::key::parts::Key;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Decision, Denied};

/// A place among the requests in flight of a key, and the decision that gave it. The place is free
/// again when the permit is dropped, whatever it is.
pub type AsyncPermit = (Decision, Box<dyn Send + Sync>);

/// A limit on what is in flight that takes time to answer, because several machines share its
/// places. [`Limit::shared_in_flight`](crate::Limit::shared_in_flight) makes a limit of it.
///
/// There are no errors but refusals: the limit itself decides what to answer while the places
/// cannot be reached, and how long to wait for them.
///
/// ```
/// use std::future::Future;
/// use std::pin::Pin;
/// use tollgate::{Chargeable, Denied, InFlight};
/// use tollgate_http::{AsyncInFlight, AsyncPermit, Key};
///
/// /// Places on another machine, for which local ones stand in here.
/// struct Elsewhere(InFlight<Key>);
///
/// impl AsyncInFlight for Elsewhere {
///     fn acquire<'a>(
///         &'a self,
///         key: &'a Key,
///     ) -> Pin<Box<dyn Future<Output = Result<AsyncPermit, Denied>> + Send + 'a>> {
///         Box::pin(async move {
///             let permit = self.0.for_owned_key(key.clone());
///             let decision = permit.check_n(1).into_result()?;
///             Ok((decision, Box::new(permit) as _))
///         })
///     }
///
///     fn limit(&self) -> u64 {
///         self.0.limit()
///     }
/// }
/// ```
pub trait AsyncInFlight: Send + Sync {
    /// Takes a place of `key`, if one is free.
    ///
    /// When a client hangs up, the future is dropped at any point. Then no place may stay taken.
    fn acquire<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<AsyncPermit, Denied>> + Send + 'a>>;

    /// Returns how many requests of a key may be in flight at once, for `RateLimit-Policy`.
    fn limit(&self) -> u64;
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
}
