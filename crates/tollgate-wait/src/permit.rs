//! Permits that wake the next waiter when they are returned.

use crate::line::Ticket;
use crate::lines::{LineId, Lines};
use std::ops::Deref;
use std::sync::Arc;

/// A permit for which a caller has waited. When this value is dropped, the permit is returned, and
/// the first waiter of its key is then woken to take a permit.
///
/// ```
/// use tollgate::InFlight;
/// use tollgate_wait::WaitQueue;
///
/// let downloads = WaitQueue::new(InFlight::<String>::builder(8).build()?);
/// let permit = downloads.block_until_ready("alice")?;
/// assert_eq!(downloads.limiter().in_flight("alice"), 1);
/// // The download runs here.
/// drop(permit);
/// assert_eq!(downloads.limiter().in_flight("alice"), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a permit that is dropped at once is given back at once"]
pub struct Held<P> {
    // Fields are dropped in declaration order.
    permit: P,
    _wakes: Wakes,
}

impl<P> Deref for Held<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.permit
    }
}

/// Wakes the first waiter of a key when it is dropped.
#[derive(Debug)]
struct Wakes {
    lines: Arc<Lines>,
    id: LineId,
    taken_by: Ticket,
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.lines.wake(self.id, self.taken_by);
    }
}

/// A handle that later wakes the first waiter of its key. Implementations of
/// [`Waitable`](crate::Waitable) receive this handle.
#[derive(Clone, Copy, Debug)]
pub struct NextWaiter<'q> {
    pub(crate) lines: &'q Arc<Lines>,
    pub(crate) id: LineId,
    /// The waiter that takes the permit. It is not woken if it returns the permit itself.
    pub(crate) taken_by: Ticket,
}

impl NextWaiter<'_> {
    /// Wraps a permit. After the permit is dropped, the first waiter of its key is woken.
    ///
    /// ```
    /// use std::future::{Future, ready};
    /// use std::time::Duration;
    /// use tollgate::{Chargeable, Decision, InFlight, Permit, Quota};
    /// use tollgate_wait::{Held, NextWaiter, WaitQueue, Waitable};
    ///
    /// /// Connections, which have no keys.
    /// struct Pool(InFlight<()>);
    ///
    /// impl Waitable<()> for Pool {
    ///     type Turn = Held<Permit>;
    ///
    ///     fn take(
    ///         &self,
    ///         _: &(),
    ///         count: u64,
    ///         next: NextWaiter<'_>,
    ///     ) -> impl Future<Output = Result<Held<Permit>, Decision>> + Send {
    ///         let permit = self.0.empty_permit_owned(());
    ///         let answer = permit.check_n(count);
    ///         ready(if answer.is_allowed() { Ok(next.wake_after(permit)) } else { Err(answer) })
    ///     }
    ///
    ///     fn peek_n(&self, _: &(), count: u64) -> impl Future<Output = Decision> + Send {
    ///         ready(self.0.empty_permit(&()).peek_n(count))
    ///     }
    ///
    ///     fn quota(&self, _: &()) -> Quota {
    ///         Quota::new(self.0.limit(), Duration::ZERO)
    ///     }
    /// }
    ///
    /// let pool = WaitQueue::new(Pool(InFlight::builder(4).build()?));
    /// let connections = pool.block_until_n(&(), 3)?;
    /// assert_eq!(connections.count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wake_after<P>(self, permit: P) -> Held<P> {
        let Self { lines, id, taken_by } = self;
        Held { permit, _wakes: Wakes { lines: Arc::clone(lines), id, taken_by } }
    }
}
