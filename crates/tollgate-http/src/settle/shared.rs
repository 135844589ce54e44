//! Manages the charges made to a shared limit for one response. When the response head has arrived,
//! a task takes over the charges. The body therefore never waits for the store, and dropping the
//! body merely wakes the task.
//!
//! ```text
//! the body                        the task
//! a frame passes    -> Needs ->   charges the missing tokens, and a step ahead
//! receives the answer with a later frame  <- granted or denied
//! ends, is cut off or dropped -> Ends -> gives the excess back, or charges the owed tokens
//! ```
//!
//! # Steps
//!
//! A step is a quarter of the tokens charged so far. The body requests one step at a time, when
//! less than half a step is left. If a limit has less than a step left, it grants the remaining
//! tokens, provided that they cover the spent tokens. A limit that does not cut streams grants them
//! in any case. The unspent tokens of a stream are therefore at most the largest of three numbers:
//! half of its spent tokens, one token, and the estimate.
//!
//! # Bound
//!
//! Frames that are sent before the limiter answers pass unpaid. (The limiter answers by its
//! deadline, even if the store is unreachable.) The cost of these frames never exceeds the limit's
//! capacity, because no answer could grant more. A limit that cuts streams does not pass the first
//! frame after a denial or beyond the capacity. Unpaid tokens are charged at the end, and may put
//! the key into debt as far as the limit allows.
//!
//! # Invariants
//!
//! 1. The task owns each charge, including a charge granted after the body was dropped. The task
//!    handles its messages one after the other, and the end is the last message. Each charge is
//!    therefore settled exactly once.
//! 2. If the task is dropped because its runtime ends, all charges are kept. A limit that cuts
//!    streams then ends the stream before the first unpaid frame.

use super::charges::Charges;
use crate::limit::any_limiter::OwnedShared;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::stream::StreamExt;
use std::fmt;
use tollgate::{Decision, Settlement};

/// A step is the number of tokens charged so far, divided by this constant.
const STEP: u64 = 4;

/// A message from the body to the task.
enum Told {
    /// Requests `missing` tokens that are already spent, and `ahead` tokens that may be spent soon.
    /// The answer is the number of tokens charged, or `None` if not even the missing tokens were
    /// available. For a limit that does not cut streams, `None` means that none were available.
    Needs { missing: u64, ahead: u64, answer: oneshot::Sender<Option<u64>> },
    /// The response has ended.
    Ends { cost: u64, settled: Box<Done> },
}

/// Called with the result of a settlement.
type Done = dyn FnOnce(Settlement) + Send;

/// The part that the body owns.
pub(crate) struct SharedHold {
    task: UnboundedSender<Told>,
    /// The charge for the estimate.
    estimate: u64,
    /// The tokens charged by the limit or admitted by a policy, as far as the body knows.
    allowance: u64,
    /// The maximum number of tokens in one charge.
    capacity: u64,
    /// Whether the limit cuts the stream off.
    cuts: bool,
    pending: Option<PendingCharge>,
    /// Whether the last answer granted all requested tokens. If so, the next request includes a
    /// step ahead.
    looks_ahead: bool,
    /// Whether tokens that are already spent were denied.
    is_denied: bool,
}

/// A charge that was requested from the task, and that the task has not answered.
struct PendingCharge {
    /// The number of tokens that were missing at the time of the request.
    missing: u64,
    /// The missing tokens and the step ahead.
    wanted: u64,
    answer: oneshot::Receiver<Option<u64>>,
}

impl SharedHold {
    /// Starts the task that owns the charges of a response.
    pub(crate) fn start(shared: OwnedShared, charges: Charges, cuts: bool) -> Self {
        let (task, told) = unbounded();
        let (estimate, allowance) = (charges.estimate(), charges.allowance());
        let capacity = shared.limiter.quota().capacity();
        let limiter = std::sync::Arc::clone(&shared.limiter);
        limiter.spawn(Box::pin(keep(shared, charges, cuts, told)));
        Self { task, estimate, allowance, capacity, cuts, pending: None, looks_ahead: true, is_denied: false }
    }

    /// Returns the charge for the estimate.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Records that the response will have spent `spent` tokens with its next frame. Returns false
    /// if the limit cuts the stream off before this frame, because it has denied tokens for an
    /// earlier frame, or can never grant these tokens.
    pub(crate) fn spend(&mut self, spent: u64) -> bool {
        self.hear();
        let mut missing = spent.saturating_sub(self.allowance);
        if self.cuts && (self.is_denied && missing > 0 || missing > self.capacity) {
            return false;
        }
        missing = missing.min(self.capacity);
        let step = if self.looks_ahead { (self.allowance / STEP).max(1) } else { 0 };
        let is_due = missing > 0 || self.allowance.saturating_sub(spent) < step / 2;
        if self.pending.is_some() || !is_due {
            return true;
        }
        let (sender, answer) = oneshot::channel();
        let ahead = step.min(self.capacity - missing);
        self.pending = Some(PendingCharge { missing, wanted: missing + ahead, answer });
        let is_told = self.task.unbounded_send(Told::Needs { missing, ahead, answer: sender }).is_ok();
        is_told || missing == 0 || !self.cuts
    }

    /// Receives the answer, if there is one.
    fn hear(&mut self) {
        let Some(pending) = &mut self.pending else { return };
        let granted = match pending.answer.try_recv() {
            Ok(None) => return,
            Ok(Some(granted)) => granted,
            // The task has been dropped.
            Err(oneshot::Canceled) => None,
        };
        self.looks_ahead = granted == Some(pending.wanted);
        self.is_denied = granted.is_none() && pending.missing > 0;
        self.allowance = self.allowance.saturating_add(granted.unwrap_or(0));
        self.pending = None;
    }

    /// Settles the charges with this cost, without waiting for the result. Must be called only
    /// once.
    pub(crate) fn settle(&self, cost: u64, settled: impl FnOnce(Settlement) + Send + 'static) {
        // Without the task, all charges are kept.
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

/// Owns a response's charges until the response has ended. If the body never reports an end,
/// because there was no response, the charges are kept as they are.
async fn keep(shared: OwnedShared, mut charges: Charges, cuts: bool, mut told: UnboundedReceiver<Told>) {
    while let Some(told) = told.next().await {
        match told {
            Told::Needs { missing, ahead, answer } => {
                let growth = grow(&shared, missing, ahead, cuts).await;
                if let Some((tokens, charge)) = growth {
                    charges.add(tokens, charge);
                }
                // If the body no longer waits for the answer, its next message reports the end.
                let _ = answer.send(growth.map(|(tokens, _)| tokens));
            }
            Told::Ends { cost, settled } => {
                settled(settle(&shared, &charges, cost).await);
                return;
            }
        }
    }
}

/// Charges the missing tokens and the step ahead. If that is denied, charges the tokens that the
/// limit has left, or only the missing tokens. A limit that cuts the stream off is charged no fewer
/// than the missing tokens. Returns the number of tokens and the charge.
async fn grow(shared: &OwnedShared, missing: u64, ahead: u64, cuts: bool) -> Option<(u64, Decision)> {
    let least = if cuts { missing.max(1) } else { 1 };
    let mut tokens = missing + ahead;
    // Another request may be charged the remaining tokens before the second attempt. The third
    // attempt is the last.
    for most_next in [u64::MAX, missing, 0] {
        let charge = shared.limiter.check_n(&shared.key, tokens).await;
        if charge.is_allowed() {
            return Some((tokens, charge));
        }
        tokens = charge.remaining().min(tokens - 1).min(most_next);
        if tokens < least {
            break;
        }
    }
    None
}

/// Gives back the excess, one charge at a time, or charges the owed tokens. The refunds are not
/// made concurrently, because nothing waits for them, and a response with a thousand charges must
/// not block the store for other responses.
async fn settle(shared: &OwnedShared, charges: &Charges, cost: u64) -> Settlement {
    for (charge, tokens) in charges.back(cost) {
        shared.limiter.refund_n(&shared.key, charge, tokens).await;
    }
    let owed = charges.owed(cost);
    let paid = if owed > 0 { shared.limiter.force(&shared.key, owed).await } else { 0 };
    charges.settlement(cost, paid)
}
