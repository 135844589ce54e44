//! Pushes counts to the store. One task pushes the counts in batches, and repeats each push until
//! the store confirms the counts.

use super::counts::{Counted, UnsyncedState};
use crate::core::Request;
use crate::scripts::script::{Call, Failure, Reply};
use crate::words::atomics::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tollgate::Tick;

/// The mean time for which counts are gathered before a push. Each pause is a random time from half
/// of this value to one and a half times this value.
const INTERVAL: Duration = Duration::from_millis(20);
/// The maximum number of counts in one write.
const BATCH: usize = 128;

/// The right to push a count. Dropping this value queues the count again if the store has not
/// confirmed the count.
pub(crate) struct PushPermit<'s> {
    state: &'s UnsyncedState,
    count: &'s Arc<Counted>,
    answered: bool,
}

impl<'s> PushPermit<'s> {
    /// Creates the permit for a caller that has acquired the right with
    /// [`Count::push`](crate::words::count::Count::push).
    pub(crate) fn new(state: &'s UnsyncedState, count: &'s Arc<Counted>) -> Self {
        Self { state, count, answered: false }
    }
}

impl Drop for PushPermit<'_> {
    fn drop(&mut self) {
        self.count.pushed();
        self.count.answered.notify_waiters();
        // Without an answer, the store may also have lost counts that it had confirmed.
        if (!self.answered || self.count.fields().unsynced() > 0) && self.state.is_of_interest(self.count) {
            self.state.enqueue(self.count);
            self.state.woken.notify_one();
        }
    }
}

/// The outcome of a push of some counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    /// There were no counts to push.
    Nothing,
    /// The store answered for at least one count.
    Answered,
    /// The store did not answer.
    Unanswered,
}

impl UnsyncedState {
    pub(crate) fn enqueue(&self, count: &Arc<Counted>) {
        if count.enqueue() {
            self.dirty.push(Arc::clone(count));
        }
    }

    /// Queues `count` for a push, and starts the task if it is not running.
    pub(crate) fn push_later(self: &Arc<Self>, count: &Arc<Counted>) {
        self.enqueue(count);
        // ORDERING: relaxed; the flag only bounds the number of tasks.
        if !self.pushing.load(Relaxed) && !self.pushing.swap(true, Relaxed) {
            self.core.client.runtime().spawn(PushTask(Arc::downgrade(self)).run());
        }
        self.woken.notify_one();
    }

    /// Pushes the queued counts, batch by batch, until the store does not answer. Counts that are
    /// queued during the push are pushed in the next round.
    pub(crate) async fn push_round(&self) -> PushOutcome {
        let mut rounds = self.dirty.len().div_ceil(BATCH);
        let mut outcome = PushOutcome::Nothing;
        while rounds > 0 {
            outcome = self.push_batch().await;
            rounds = if outcome == PushOutcome::Answered { rounds - 1 } else { 0 };
        }
        outcome
    }

    /// Pushes one batch of queued counts.
    async fn push_batch(&self) -> PushOutcome {
        let mut counts = Vec::new();
        while counts.len() < BATCH
            && let Some(count) = self.dirty.pop()
        {
            let count = Arc::clone(&count);
            count.dequeued();
            if !self.holds(&count) {
                // The store must not receive a count that a reset has removed. The checks that wait
                // for an answer continue with the key's new count.
                count.answered.notify_waiters();
            } else if count.push() {
                counts.push(count);
            }
        }
        if counts.is_empty() {
            return PushOutcome::Nothing;
        }
        // The permits are guards, so a dropped future also returns them.
        let mut permits: Vec<_> = counts.iter().map(|count| PushPermit::new(self, count)).collect();
        let told: Vec<u64> = counts.iter().map(|count| count.send()).collect();
        let calls: Vec<_> =
            counts.iter().zip(&told).map(|(count, &told)| self.call("push", count, told)).collect();
        let sent = self.elapsed();
        let answers = self.core.client.call_all(&calls, self.core.deadline()).await;
        self.notice_connection();
        let mut outcome = PushOutcome::Unanswered;
        for ((permit, &told), answer) in permits.iter_mut().zip(&told).zip(answers) {
            match self.core.counters.note(answer.and_then(CountsReply::read)) {
                Ok(reply) => {
                    outcome = PushOutcome::Answered;
                    self.apply(permit, &reply, told, 0, sent);
                }
                Err(failure) if failure.was_not_run() => permit.count.unsent(),
                Err(_) => {}
            }
        }
        outcome
    }

    pub(crate) fn is_of_interest(&self, count: &Counted) -> bool {
        count.window + 1 >= self.now() / self.period
    }

    /// Applies the store's answer to a push. The push reported `told` tokens, and the store granted
    /// `more` tokens.
    fn apply(&self, permit: &mut PushPermit<'_>, reply: &CountsReply, told: u64, more: u64, sent: u64) {
        let count = permit.count;
        permit.answered = true;
        self.adjust_clock(reply.now, sent);
        self.note_pause(count.name, reply.now, reply.left);
        if reply.before < count.confirmed() && !self.recovery.has_just_begun(self.elapsed()) {
            self.recovery.begin(self.elapsed());
            self.push_all_again();
        }
        // If the answer to a grant was lost, the store has counted more tokens for this machine
        // than this machine has admitted.
        let own = reply.before.max(told) + more;
        let others = reply.total.saturating_sub(own);
        if self.recovers() {
            count.note_others(others);
        } else {
            count.confirm(told + more, others);
        }
        if self.sliding {
            self.add_previous(count, reply.previous.saturating_sub(reply.share));
        }
    }

    /// Stores the admissions of other machines in the previous window.
    fn add_previous(&self, count: &Counted, others: u64) {
        let Some(window) = count.window.checked_sub(1).filter(|_| others > 0) else { return };
        let key = (count.name, window);
        if self.counts.peek_with(&key, |_, before| before.note_others(others)).is_none() {
            let before = Counted::new(count.name, count.text.clone(), window);
            before.note_others(others);
            if self.counts.insert_sync(key, Arc::new(before)).is_ok() {
                // ORDERING: relaxed; this is only a count.
                self.size.fetch_add(1, Relaxed);
            }
        }
    }

    /// Starts a recovery after a reconnect, because the store may have lost reported counts.
    fn notice_connection(&self) {
        if self.recovery.notice(self.core.client.connections(), self.elapsed()) {
            self.push_all_again();
        }
    }

    fn push_all_again(&self) {
        self.each(|count| self.enqueue(count));
        self.woken.notify_one();
    }

    /// Queues one count that the store could lose, so that a machine without requests also notices
    /// a new connection.
    fn push_one_again(&self) {
        self.counts.iter_sync(|_, count| {
            let is_told = count.confirmed() > 0 && self.is_of_interest(count);
            if is_told {
                self.enqueue(count);
            }
            !is_told
        });
    }

    /// Returns true if it is too soon to treat an answer as a confirmation, because other machines
    /// may still have to report counts that the store has lost.
    fn recovers(&self) -> bool {
        self.recovery.is_on(self.elapsed())
    }

    fn call<'s>(&'s self, op: &str, count: &'s Counted, told: u64) -> Call<'s> {
        let call = Call::new(&self.script, &count.text, self.core.now()).text(op).text(&self.node);
        call.numbers([self.period, count.window, told])
    }

    /// Pauses a key for `time` microseconds, on this machine, in the store, and on all machines
    /// that learn of the pause.
    pub(crate) async fn pause(
        &self,
        request: Request<'_>,
        time: u64,
        now: Option<Tick>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let here = self.at(now);
        self.note_pause(request.name, here, time);
        // A pause reports no admission, so it requires no permit.
        let call = Call::new(&self.script, request.text, now.or_else(|| self.core.now()));
        let call = call.text("pause").text(&self.node);
        let call = call.numbers([self.period, here / self.period, 0, time]);
        let sent = self.elapsed();
        let answer = self.core.client.call(&call, deadline).await;
        self.notice_connection();
        let reply = self.core.counters.note(answer.and_then(CountsReply::read))?;
        // Without this adjustment, this machine's clock might still be behind the start of the
        // pause.
        if now.is_none() {
            self.adjust_clock(reply.now, sent);
        }
        self.note_pause(request.name, reply.now, reply.left);
        Ok(())
    }

    /// Asks the store for `cost` tokens. If `keeps_pauses` is false, the store ignores a pause of
    /// the key. Returns whether the tokens were granted, and the resulting number of tokens.
    pub(crate) async fn take(
        &self,
        mut permit: PushPermit<'_>,
        cost: u64,
        keeps_pauses: bool,
        deadline: Instant,
    ) -> Result<(bool, u64), Failure> {
        if self.recovers() {
            return Err(Failure::Unavailable);
        }
        let count = permit.count;
        let told = count.send();
        let call = self.call("take", count, told);
        let call = call.numbers([cost, self.limit, self.sliding.into(), (!keeps_pauses).into()]);
        let sent = self.elapsed();
        let answer = self.core.client.call(&call, deadline).await;
        self.notice_connection();
        match self.core.counters.note(answer.and_then(CountsReply::read)) {
            Ok(reply) => {
                if self.recovers() || reply.before < count.confirmed() {
                    // The store granted the tokens without knowing all counts.
                    self.apply(&mut permit, &reply, told, 0, sent);
                    return Err(Failure::Unknown);
                }
                self.apply(&mut permit, &reply, told, if reply.granted { cost } else { 0 }, sent);
                Ok((reply.granted, count.fields().present()))
            }
            Err(failure) => {
                // If the script may have run, the store may have counted tokens that this machine
                // did not admit. The store's count for this machine is then too high, until the
                // machine's own count reaches it.
                if failure.was_not_run() {
                    count.unsent();
                }
                Err(failure)
            }
        }
    }
}

/// The store's answer to a push.
struct CountsReply {
    granted: bool,
    /// The store's count for this machine, before the push.
    before: u64,
    total: u64,
    previous: u64,
    /// This machine's share of `previous`.
    share: u64,
    now: u64,
    /// How long the key stays paused, in microseconds.
    left: u64,
}

impl CountsReply {
    fn read(reply: Reply) -> Result<Self, Failure> {
        let numbers: Vec<u64> = reply.iter().map(|&number| u64::try_from(number).unwrap_or(0)).collect();
        let &[granted, before, total, previous, share, now, left] = &*numbers else {
            return Err(Failure::Unknown);
        };
        Ok(Self { granted: granted == 1, before, total, previous, share, now, left })
    }
}

/// The task that pushes counts. It ends with the limiter.
struct PushTask(Weak<UnsyncedState>);

impl PushTask {
    async fn run(self) {
        let mut outcome = PushOutcome::Nothing;
        loop {
            let Some(state) = self.0.upgrade() else { return };
            if state.dirty.is_empty() {
                // The wait has a timeout because the limiter cannot end while this task owns it.
                if timeout(INTERVAL * 10, state.woken.notified()).await.is_err() {
                    state.push_one_again();
                }
                continue;
            }
            let pause = INTERVAL.mul_f32(0.5 + fastrand::f32());
            if outcome == PushOutcome::Unanswered || state.recovers() {
                // The store does not answer or is recovering, so there is no reason to hurry.
                sleep(pause).await;
            } else {
                let _ = timeout(pause, state.urgent.notified()).await;
            }
            outcome = state.push_round().await;
        }
    }
}

impl Drop for PushTask {
    /// This destructor also runs when the runtime ends. The next request, in another runtime, can
    /// therefore start a new task.
    fn drop(&mut self) {
        if let Some(state) = self.0.upgrade() {
            // ORDERING: relaxed, as in `push_later`.
            state.pushing.store(false, Relaxed);
        }
    }
}
