//! [`PendingCheck`]: a check that waits for the store, for callers that have no runtime.

use super::class::Class;
use crate::core::Request;
use crate::name::Name;
use crate::runtime::{MARGIN, block_until};
use crate::stats::Event;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::Instant;
use tollgate::{Decision, Tick};

/// A check for which the store is being asked. Returned by
/// [`SharedLimiter::try_check`](crate::SharedLimiter::try_check).
///
/// A task in the client's runtime asks the store. The decision is available to any executor,
/// because this value is a future that needs no runtime, and to a thread, by [`wait`](Self::wait).
/// Both complete by the limit's deadline, like
/// [`SharedLimiter::check`](crate::SharedLimiter::check): if the store has not answered by then,
/// [`WhenUnavailable`](crate::WhenUnavailable) decides. It also decides if the runtime has ended.
/// The future has no timer, because the task keeps the deadline. If the runtime exists, but no
/// thread drives it, only `wait` completes.
///
/// Dropping this value forgets the answer, but the store may count the request. With a
/// [`lease`](crate::SharedBuilder::lease), the store is asked nonetheless, and later checks of the
/// key find the leased tokens.
///
/// ```no_run
/// # use tollgate_redis::SharedLimiter;
/// /// Decides on a packet. The first packets of a key pass while the store is being asked.
/// fn may_pass(limiter: &SharedLimiter<str>, source: &str) -> bool {
///     match limiter.try_check(source) {
///         Ok(decision) => decision.is_allowed(),
///         Err(_pending) => true,
///     }
/// }
/// ```
#[must_use = "the answer of a check decides whether the request may pass"]
pub struct PendingCheck {
    class: Arc<Class>,
    name: Name,
    cost: u64,
    /// The decision, if only its penalty is missing.
    decided: Option<Box<Decision>>,
    deadline: Instant,
    answer: Receiver<Decision>,
    /// Whether a task was started.
    has_task: bool,
}

impl PendingCheck {
    /// Starts a task that completes a check. `text` is the key's name in the store. `decided` is
    /// the decision, if only the penalty is missing. If there is no runtime for the task, the check
    /// is decided without the store.
    pub(crate) fn start(
        class: &Arc<Class>,
        (name, text): (Name, String),
        cost: u64,
        now: Option<Tick>,
        decided: Option<Decision>,
    ) -> Self {
        let deadline = class.core.deadline();
        let (tell, answer) = channel();
        let checked = Arc::clone(class);
        let network = &class.core.client.network;
        let task = network.runtime.spawn(async move {
            let request = Request { name, text: &text, cost };
            let check = async {
                match decided {
                    Some(decision) => checked.penalize(request, decision, now, deadline).await,
                    None => checked.check(request, now, deadline).await,
                }
            };
            tell_unless_forgotten(tell, deadline, check).await;
        });
        let has_task = task.is_some();
        if !has_task {
            network.note_missing_runtime();
        }
        let decided = decided.map(Box::new);
        Self { class: Arc::clone(class), name, cost, decided, deadline, answer, has_task }
    }

    /// Blocks this thread until the check is decided, at most until the limit's deadline.
    ///
    /// Do not call this method in a task of the client's own runtime: the task that asks the store
    /// might not run, and [`WhenUnavailable`](crate::WhenUnavailable) then decides.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # fn ask(limiter: SharedLimiter<str>) {
    /// let decision = limiter.try_check("alice").unwrap_or_else(|pending| pending.wait());
    /// # }
    /// ```
    pub fn wait(mut self) -> Decision {
        let last = self.deadline.into_std() + MARGIN;
        if let Some(decision) = block_until(&mut self, last) {
            return decision;
        }
        // From here on, the task counts nothing. It may have decided a moment ago.
        self.answer.close();
        self.answer.try_recv().unwrap_or_else(|_| self.decide_alone())
    }

    fn decide_alone(&self) -> Decision {
        // A task whose runtime has ended may have sent the request.
        let event = if self.has_task { Event::Unanswered } else { Event::Unsent };
        self.class.decide_alone(&self.name, self.cost, self.decided.as_deref(), event)
    }
}

/// Sends the output of a future. If the receiver is closed, drops the future. Before the deadline,
/// polls the future at least once, because a check that was polled has asked the store.
async fn tell_unless_forgotten(
    mut tell: Sender<Decision>,
    deadline: Instant,
    check: impl Future<Output = Decision>,
) {
    let mut check = pin!(check);
    let mut has_asked = false;
    let decision = poll_fn(|context| {
        let is_forgotten = tell.poll_closed(context).is_ready();
        // The thread that waited for this check has decided and counted the request itself.
        if is_forgotten && (has_asked || Instant::now() >= deadline) {
            return Poll::Ready(None);
        }
        has_asked = true;
        match check.as_mut().poll(context) {
            Poll::Ready(decision) => Poll::Ready(Some(decision)),
            Poll::Pending if is_forgotten => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    if let Some(decision) = decision {
        let _ = tell.send(decision);
    }
}

impl Future for PendingCheck {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        // An error means that the runtime has ended, or that there was none.
        let answered = ready!(Pin::new(&mut self.answer).poll(context));
        Poll::Ready(answered.unwrap_or_else(|_| self.decide_alone()))
    }
}

impl fmt::Debug for PendingCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output does not contain the key.
        f.debug_struct("PendingCheck").field("cost", &self.cost).finish_non_exhaustive()
    }
}
