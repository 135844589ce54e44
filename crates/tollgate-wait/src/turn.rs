//! What a wait gives.

use std::ops::Deref;
use tollgate::Decision;

/// The turn of a caller that has waited: its tokens are charged, and it may go ahead.
///
/// It is the [`Decision`] of the charge, whose figures it gives, and which a refund takes.
///
/// ```
/// # use tollgate::{Quota, SingleLimiter};
/// # use tollgate_wait::WaitQueue;
/// let queue = WaitQueue::new(SingleLimiter::builder(Quota::per_hour(5)).build()?);
/// let turn = queue.block_until_n(&(), 2)?;
/// assert_eq!((turn.charged(), turn.remaining()), (2, 3));
/// queue.limiter().refund(&turn);
/// assert_eq!(queue.limiter().peek().remaining(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(pub(crate) Decision);

impl Deref for Turn {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}
