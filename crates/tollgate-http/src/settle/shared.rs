//! The charges of one response to a shared limit. They belong to a task from the head of the
//! response on, so that the body never waits for the store, and a drop only has to wake the task.
//!
//! ```text
//! the body                        the task
//! a frame passes    -> Needs ->   charges what is missing, and a step ahead
//! hears of it with a later frame  <- granted or denied
//! ends, is cut off or dropped -> Ends -> gives back what is too much, or charges what is owed
//! ```
//!
//! # Steps
//!
//! A step is a quarter of what was charged so far. It is asked for when less than half of it is
//! left, one at a time. A limit that has less than that gives what it has left, as far as that
//! covers what was spent. So what a stream holds and has not spent is at most half of what it has
//! spent, or one token, or the estimate.
//!
//! # Bound
//!
//! While an answer is under way, frames pass unpaid: at most what is sent until the limiter answers
//! (it does by its deadline, also where the store is away), and never more than the limit's
//! capacity, because no answer could grant more. The first frame after a denial, or beyond the
//! capacity, is not passed by a limit that cuts. What passed unpaid is charged at the end, into
//! debt as far as that goes.
//!
//! # Invariants
//!
//! 1. The task owns each charge, also one that is granted when the body is gone. It does what it is
//!    told one after the other, and the end comes last. So each charge is settled once.
//! 2. Where the task is dropped, because its runtime ends, all charges stay. A stream of a limit
//!    that cuts ends with the first frame that is not paid for.

use super::charges::Charges;
use crate::limit::any_limiter::OwnedShared;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::stream::StreamExt;
use std::fmt;
use tollgate::{Decision, Settlement};

/// A step is this part of what was charged so far.
const STEP: u64 = 4;

/// What a body tells the task.
enum Told {
    /// `missing` tokens are spent and not charged, and `ahead` may be spent soon. Answered with
    /// what was charged; `None` if not even the missing ones were there.
    Needs { missing: u64, ahead: u64, answer: oneshot::Sender<Option<u64>> },
    /// The response is over.
    Ends { cost: u64, settled: Box<Done> },
}

/// Called with the result of a settlement.
type Done = dyn FnOnce(Settlement) + Send;

/// The side of the body.
pub(crate) struct SharedHold {
    task: UnboundedSender<Told>,
    /// What the estimate was charged.
    estimate: u64,
    /// What the limit has charged, or a policy let pass, as far as this side has heard.
    allowance: u64,
    /// The most that one charge can take.
    capacity: u64,
    /// The request that is under way, with what was missing then.
    asked: Option<Asked>,
    /// Whether the last answer granted all that was asked for, so that a step ahead is asked for.
    looks_ahead: bool,
    /// Whether tokens that are spent were denied.
    is_denied: bool,
}

struct Asked {
    missing: u64,
    wanted: u64,
    answer: oneshot::Receiver<Option<u64>>,
}

impl SharedHold {
    /// Starts the task that owns the charges of a response.
    pub(crate) fn start(shared: OwnedShared, charges: Charges) -> Self {
        let (task, told) = unbounded();
        let (estimate, allowance) = (charges.estimate(), charges.allowance());
        let capacity = shared.limiter.quota().capacity();
        let limiter = std::sync::Arc::clone(&shared.limiter);
        limiter.spawn(Box::pin(keep(shared, charges, told)));
        Self { task, estimate, allowance, capacity, asked: None, looks_ahead: true, is_denied: false }
    }

    /// Returns what the estimate was charged.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Notes that the response has spent `spent` tokens with its next frame. Returns whether they
    /// are paid for, as far as is known: false if the limit has denied tokens of an earlier frame,
    /// or can't ever grant these. Then the next call asks again.
    pub(crate) fn spend(&mut self, spent: u64) -> bool {
        self.hear();
        let missing = spent.saturating_sub(self.allowance);
        if std::mem::take(&mut self.is_denied) && missing > 0 || missing > self.capacity {
            return false;
        }
        let step = if self.looks_ahead { (self.allowance / STEP).max(1) } else { 0 };
        let is_due = missing > 0 || self.allowance.saturating_sub(spent) < step / 2;
        if self.asked.is_some() || !is_due {
            return true;
        }
        let (sender, answer) = oneshot::channel();
        let ahead = step.min(self.capacity - missing);
        self.asked = Some(Asked { missing, wanted: missing + ahead, answer });
        let is_told = self.task.unbounded_send(Told::Needs { missing, ahead, answer: sender }).is_ok();
        is_told || missing == 0
    }

    /// Hears of the answer, if there is one.
    fn hear(&mut self) {
        let Some(asked) = &mut self.asked else { return };
        let granted = match asked.answer.try_recv() {
            Ok(None) => return,
            Ok(Some(granted)) => granted,
            // The task is gone.
            Err(oneshot::Canceled) => None,
        };
        self.looks_ahead = granted == Some(asked.wanted);
        self.is_denied = granted.is_none() && asked.missing > 0;
        self.allowance = self.allowance.saturating_add(granted.unwrap_or(0));
        self.asked = None;
    }

    /// Settles the charges with this cost, without waiting for it. Called once.
    pub(crate) fn settle(&self, cost: u64, settled: impl FnOnce(Settlement) + Send + 'static) {
        // Without the task, all charges stay.
        let _ = self.task.unbounded_send(Told::Ends { cost, settled: Box::new(settled) });
    }
}

impl fmt::Debug for SharedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowance, is_denied, .. } = self;
        let mut debug = f.debug_struct("SharedHold");
        debug.field("allowance", allowance).field("is_denied", is_denied).finish_non_exhaustive()
    }
}

/// Keeps the charges of a response until it is over. A body that says nothing of its end, because
/// there was no response, leaves them as they are.
async fn keep(shared: OwnedShared, mut charges: Charges, mut told: UnboundedReceiver<Told>) {
    while let Some(told) = told.next().await {
        match told {
            Told::Needs { missing, ahead, answer } => {
                let growth = grow(&shared, missing, ahead).await;
                if let Some((tokens, charge)) = growth {
                    charges.add(tokens, charge);
                }
                // If nobody listens, the end is what is told next.
                let _ = answer.send(growth.map(|(tokens, _)| tokens));
            }
            Told::Ends { cost, settled } => {
                settled(settle(&shared, &charges, cost).await);
                return;
            }
        }
    }
}

/// Charges what is missing and the step ahead, or what the limit has left of it, or what is
/// missing alone. Returns the tokens with the charge.
async fn grow(shared: &OwnedShared, missing: u64, ahead: u64) -> Option<(u64, Decision)> {
    let mut tokens = missing + ahead;
    let mut has_looked = false;
    loop {
        let charge = shared.limiter.check_n(&shared.key, tokens).await;
        if charge.is_allowed() {
            return Some((tokens, charge));
        }
        let left = charge.remaining().min(tokens - 1);
        if tokens == missing || left == 0 || left < missing {
            return None;
        }
        // Another request may take what was left.
        tokens = if has_looked { missing } else { left };
        has_looked = true;
        if tokens == 0 {
            return None;
        }
    }
}

/// Gives back what was too much, one charge after the other, or charges what is owed. Nobody waits
/// for it, and a response that was charged a thousand times must not keep its store from others.
async fn settle(shared: &OwnedShared, charges: &Charges, cost: u64) -> Settlement {
    for (charge, tokens) in charges.back(cost) {
        shared.limiter.refund_n(&shared.key, charge, tokens).await;
    }
    let owed = charges.owed(cost);
    let paid = if owed > 0 { shared.limiter.force(&shared.key, owed).await } else { 0 };
    charges.settlement(cost, paid)
}
