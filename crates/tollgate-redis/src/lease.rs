//! Leases: tokens that a machine takes in advance and spends without a round trip.
//!
//! # Why leases never exceed the limit
//!
//! Every lease has an end, and all of its tokens are charged when it is granted. The scripts keep
//! this charge as follows:
//!
//! - *Bucket.* The state counts the leased tokens. They do not refill, until the machine settles
//!   the lease or the lease ends. The leased tokens and the tokens left in the bucket are therefore
//!   together at most the capacity.
//! - *Log.* The log records the tokens at the end of the lease.
//! - *Window.* The lease ends with the window that counted it.
//!
//! `docs/design.md` proves that the tokens spent in any interval are then within the bound of the
//! algorithm (*Why is a token charged before it may be spent?*).
//!
//! This machine measures the end of a lease from a moment before it requested the lease. On this
//! machine, the lease therefore ends no later than in the store.
//!
//! # Settling
//!
//! Before this machine requests a lease, it closes the leases that are spent or have ended. If the
//! leases cannot pay for a request, it closes all of them. No token of a closed lease is ever
//! spent. The same request to the store then reports the closed leases: the unspent tokens return
//! to the key, and the spent tokens of a bucket refill from then on. The report is sent at most
//! once, so a lost report counts as no report, and the store keeps the charge until the lease ends.
//!
//! # How rarely the store is asked
//!
//! A call brings at most `lease` tokens, and each machine must ask again when its lease ends. A
//! bucket of rate `r` and capacity `c` therefore costs at least `r / lease` calls a second for a
//! key that is at its limit, and about `4 * r / (3 * c)` for each machine on which any other key is
//! in use, because its leases last for `c / (2 * r)` to `c / r`. A key at its limit costs more than
//! that: each machine asks about once in the time of a denial, below.
//!
//! For example, four machines check 1,000 keys by Zipf's law, with 100 tokens a second, a capacity
//! of 1,000 and leases of 100. The key of rank 100 uses just its limit, so all machines together
//! get 75,000 requests a second. At least 580 calls a second are necessary, one for 129 requests.
//! The test `the_store_is_asked_for_few_of_the_requests` has this load. In 100 s (`make calls`),
//! the server counted one call for 63 requests, and with a sliding window of 6,000 tokens a minute,
//! one for 33. Windows of a second cannot approach this: each machine must ask about each key in
//! each window, once for at most 19 requests.
//!
//! # Costs and limitations
//!
//! - Tokens that a machine has leased but not spent are unavailable to all other machines until the
//!   lease ends. In a bucket, spent tokens do not refill until the machine has settled them or
//!   their lease ends. For each key, both are together up to twice `lease` tokens on each machine,
//!   and in a bucket at most half of the capacity on all machines. In a window or a log, a lease is
//!   at most half of the tokens that are left in the store.
//! - If all machines use the same quota, a lease of a bucket lasts for the time in which half of
//!   the capacity refills, from 50 ms to 5 s, and for up to twice this time. A lease of a log lasts
//!   as long as `lease` tokens take to refill, at least 50 ms and at most 10 s. A window's lease
//!   lasts until the window ends.
//! - A lease has as many tokens as the key spends on this machine while a lease lasts, judged by
//!   the time since the last request. Leases start small and grow by a factor of at most four, so a
//!   rarely used key leases almost nothing.
//! - If the answer to a lease is lost, its tokens are lost as well until the lease ends, together
//!   with those of the leases that the request has closed. The next lease starts small again.
//!   Cancelling a request does not cancel its lease.
//! - While other machines hold leases of a bucket, a request that costs more than half of the
//!   capacity may be denied again and again. The retry time of such a denial is the latest possible
//!   one: the time until the leases have ended and their tokens have refilled. Use no lease for
//!   requests of such costs.
//! - The `reset_after` of a charged request does not include the leased tokens of a bucket.
//! - A lease has at most 2^22 - 1 tokens.
//! - A log records a lease at its end, so the tokens of a lease leave the log later than others.
//! - If the leased tokens cannot pay a request, the request first gives them back to the store, in
//!   the same round trip. The request can thus spend the tokens of this machine together with the
//!   tokens in the store. If the answer is lost, the leased tokens are lost as well. Forced charges
//!   and the requests of a batch give tokens back in the same way; the requests of one key are
//!   checked one after the other.
//! - After the store has denied a cost, this machine denies the cost until the retry time, but for
//!   at most a second, and only until this machine gives tokens back. It does the same for any cost
//!   if the store's last answer left no token in a bucket. During this time, the machine does not
//!   notice the refunds of other machines. Except with a fixed window, the denial lasts for
//!   some time even if the retry time is earlier: for the time in which `lease` tokens refill (in a
//!   log, a quarter of it; in a sliding window, at most a twentieth of the period), less up to a
//!   quarter of it at random. Without this minimum, each token would cost a round trip when a key
//!   is at its limit, where tokens return one by one. No token is lost, because a bucket has room
//!   for them. With a penalty, this machine only repeats denials of the store, and only until their
//!   retry time, because each denial pauses the key.
//! - A leaky queue grants no leases. It assigns a turn to each request, and only the store knows
//!   that turn.
//! - Time is measured by this machine's monotonic clock, which stops during sleep on some machines.
//!   A machine that wakes up may spend a lease that has already ended in the store.
//! - A decision made on this machine reports the `remaining` and `reset_after` of the store's last
//!   answer, less the tokens spent since then.

mod cell;
mod demand;

use crate::core::{Core, Request};
use crate::name::Name;
use crate::runtime::MARGIN;
use crate::scripts::rule::{Answer, Op, Settled, Settlement};
use crate::scripts::script::Failure;
use crate::stats::Event;
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use crate::words::pool::{MOST, TICK};
use cell::{Cell, ClosedLeases, IDLE, settled, ticks};
use futures_util::future::join_all;
use scc::HashIndex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tollgate::{Decision, Outcome};

/// If the store leased less than half of the requested tokens, this machine requests no lease early
/// for this many ticks.
const DRY: u64 = 10;
/// A sweep for idle keys starts when there are at least this many keys, and at least twice as many
/// keys as after the last sweep.
const FIRST_SWEEP: u64 = 1_024;

pub(crate) struct Leases {
    state: Arc<LeaseState>,
}

struct LeaseState {
    core: Arc<Core>,
    most: u64,
    /// The minimum time for which a denial is remembered, in ticks.
    rest: u64,
    /// Whether an answer that leaves no token counts as a denial of any cost.
    denies_empty: bool,
    /// The time for which a lease can usually be kept, in ticks.
    hold: u64,
    max_keys: u64,
    start: Instant,
    cells: HashIndex<Name, Arc<Cell>>,
    /// The number of cells, and the number of cells at which the next sweep starts.
    count: AtomicU64,
    sweep_at: AtomicU64,
    sweeping: AtomicBool,
    /// The earliest time of the next sweep, in ticks.
    rested_at: AtomicU64,
}

/// The right to ask the store. Dropping this value wakes all callers that wait for the answer, even
/// if the task fails.
struct AskPermit(Arc<Cell>);

impl Drop for AskPermit {
    fn drop(&mut self) {
        self.0.pool.asked();
        self.0.answered.notify_waiters();
    }
}

impl Leases {
    /// If `is_penalized` is true, the limit has a penalty. This machine then denies no longer than
    /// the store, because a repeated denial pauses the key.
    pub(crate) fn new(core: Arc<Core>, most: u64, max_keys: usize, is_penalized: bool) -> Self {
        let state = LeaseState {
            rest: if is_penalized { 0 } else { ticks(core.rule.rest()) },
            // `refill_after` is the time until the next token only if the tokens refill one by one.
            denies_empty: core.rule.refills_steadily() && !is_penalized,
            hold: ticks(core.rule.hold()),
            core,
            most: most.min(MOST),
            max_keys: max_keys as u64,
            start: Instant::now(),
            cells: HashIndex::new(),
            count: AtomicU64::new(0),
            sweep_at: AtomicU64::new(FIRST_SWEEP),
            sweeping: AtomicBool::new(false),
            rested_at: AtomicU64::new(0),
        };
        Self { state: Arc::new(state) }
    }

    /// Checks the requests of each key in the given order. Different keys are checked at the same
    /// time. All checks complete by the deadline of a single check.
    pub(crate) async fn check_many(&self, requests: &[Request<'_>]) -> Vec<Decision> {
        let deadline = self.state.core.deadline();
        let mut keys: HashMap<Name, Vec<usize>> = HashMap::new();
        for (place, request) in requests.iter().enumerate() {
            keys.entry(request.name).or_default().push(place);
        }
        let of_key = async |places: Vec<usize>| {
            let mut decisions = Vec::with_capacity(places.len());
            for place in places {
                decisions.push((place, self.check_by(deadline, requests[place]).await));
            }
            decisions
        };
        let mut decisions: Vec<_> = join_all(keys.into_values().map(of_key)).await.concat();
        decisions.sort_unstable_by_key(|(place, _)| *place);
        decisions.into_iter().map(|(_, decision)| decision).collect()
    }

    /// Decides with leased tokens, or repeats a denial, if that is possible without a request to
    /// the store. `text` returns the key's name in the store, for a request for the next lease.
    pub(crate) fn check_here(
        &self,
        name: &Name,
        cost: u64,
        text: impl FnOnce() -> String,
    ) -> Option<Decision> {
        if !self.state.may_decide(cost) {
            return None;
        }
        let decide = |_: &Name, cell: &Arc<Cell>| self.state.decide_here(cell, name, cost, text);
        self.state.cells.peek_with(name, decide).flatten()
    }

    /// Spends leased tokens. If there are not enough, asks the store for the cost and a lease.
    pub(crate) async fn check_by(&self, deadline: Instant, request: Request<'_>) -> Decision {
        let state = &self.state;
        let core = &state.core;
        if !state.may_decide(request.cost) {
            return core.check_by(deadline, request, None).await;
        }
        let Some(cell) = state.cell(&request.name) else {
            return core.check_by(deadline, request, None).await;
        };
        // If other requests keep spending the leased tokens first, this request asks the store
        // directly while there is still time.
        let patience = deadline - core.deadline / 2;
        loop {
            let answered = cell.answered.notified();
            let text = || request.text.to_owned();
            if let Some(decision) = state.decide_here(&cell, &request.name, request.cost, text) {
                return decision;
            }
            if cell.pool.ask() {
                let asking = state.ask(&cell, text(), request.cost, deadline);
                return core.decide(request, answer_of(asking, deadline).await);
            }
            if timeout_at(patience, answered).await.is_err() {
                let answer = core.ask_by(deadline, request.text, Op::check(request.cost), None).await;
                if let Ok(answer) = &answer {
                    state.record(&cell, answer, request.cost);
                }
                return core.decide(request, answer);
            }
        }
    }

    /// Charges tokens that are already spent, and returns how many were charged. The charge takes
    /// leased tokens, or gives them back to the store and charges the store.
    pub(crate) async fn force(&self, request: Request<'_>) -> u64 {
        let (state, core) = (&self.state, &self.state.core);
        let deadline = core.deadline();
        let patience = deadline - core.deadline / 2;
        let cell = state.cells.peek_with(&request.name, |_, cell| Arc::clone(cell));
        while let Some(cell) = &cell {
            let answered = cell.answered.notified();
            if cell.pool.spend(request.cost, state.now()).is_some() {
                core.counters.count(Event::ByLease);
                let _ = core.fallback.force(&request.name, request.cost);
                return request.cost;
            }
            if cell.pool.ask() {
                let asking = state.force(cell, request.text.to_owned(), request.cost, deadline);
                return core.forced(request, answer_of(asking, deadline).await);
            }
            if timeout_at(patience, answered).await.is_err() {
                break;
            }
        }
        let op = Op::Force { tokens: request.cost, settled: [None; 2] };
        core.forced(request, core.ask_by(deadline, request.text, op, None).await)
    }

    pub(crate) fn refund(&self, name: &Name, decision: &Decision, tokens: u64) {
        let (state, spent) = (&self.state, decision.at().as_nanos() / TICK);
        if let Some(cell) = state.cells.peek_with(name, |_, cell| Arc::clone(cell))
            && cell.pool.give_back(tokens, spent, state.now())
        {
            cell.forget_denial();
        }
    }

    /// Forgets that the store has denied a key. Called after a refund to the key.
    pub(crate) fn ask_again(&self, name: &Name) {
        if let Some(cell) = self.state.cells.peek_with(name, |_, cell| Arc::clone(cell)) {
            cell.forget_denial();
        }
    }

    pub(crate) fn forget(&self, name: &Name) {
        if self.state.cells.remove_sync(name) {
            // ORDERING: relaxed, because this is only a count. A sweep may already have subtracted
            // this cell.
            let _ = self.state.count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Returns how many leased tokens may still be spent, for all keys together.
    pub(crate) fn held(&self) -> u64 {
        let now = self.state.now();
        let mut held = 0;
        self.state.cells.iter_sync(|_, cell| {
            held += cell.pool.held(now);
            true
        });
        held
    }
}

/// A task that asks the store; `None` if there is no runtime for the task.
type Asking = Option<JoinHandle<Result<Answer, Failure>>>;

/// Returns the answer of the store, unless the runtime of the task has ended or does not run the
/// task in time. The task owns the right to ask and the leases, so nothing is lost in either case.
async fn answer_of(asking: Asking, deadline: Instant) -> Result<Answer, Failure> {
    let asking = asking.ok_or(Failure::Unavailable)?;
    match timeout_at(deadline + MARGIN, asking).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Err(Failure::Unknown),
    }
}

/// Returns whether the store may have granted a lease or closed leases without a readable answer.
fn may_be_lost(answer: &Result<Answer, Failure>) -> bool {
    answer.as_ref().is_err_and(|failure| !failure.was_not_run())
}

impl LeaseState {
    /// Returns the ticks since the limiter was built, starting at 1.
    fn now(&self) -> u64 {
        let nanos = self.start.elapsed().as_nanos() / u128::from(TICK);
        u64::try_from(nanos).unwrap_or(u64::MAX) + 1
    }

    /// Returns false if only the store can decide. A request for 0 tokens reads the state, which
    /// only the store knows. A request that can never pass must not receive a remembered denial,
    /// because such a denial reports when to retry.
    fn may_decide(&self, cost: u64) -> bool {
        cost > 0 && cost <= self.core.rule.capacity()
    }

    /// Decides with the tokens and the denials of a cell. Returns `None` if the store must be
    /// asked.
    fn decide_here(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        name: &Name,
        cost: u64,
        text: impl FnOnce() -> String,
    ) -> Option<Decision> {
        let (core, now) = (&self.core, self.now());
        if let Some(left) = cell.pool.spend(cost, now) {
            core.counters.count(Event::ByLease);
            core.fallback.keep_warm(name, cost);
            self.ask_early(cell, text, left, now);
            return Some(cell.decision(Outcome::Allowed, cost, core.rule.capacity(), 0, now));
        }
        // The tokens of two leases may pay the cost together, once they are given back.
        if cell.pool.held(now) >= cost {
            return None;
        }
        let wait = cell.denied_for(cost, now)?;
        core.counters.count(Event::ByLease);
        Some(cell.decision(Outcome::Denied, cost, core.rule.capacity(), wait, now))
    }

    /// Returns the key's cell, or `None` if there are too many cells.
    fn cell(self: &Arc<Self>, name: &Name) -> Option<Arc<Cell>> {
        if let Some(cell) = self.cells.peek_with(name, |_, cell| Arc::clone(cell)) {
            return Some(cell);
        }
        // ORDERING: relaxed; the count only decides when to sweep.
        let count = self.count.load(Relaxed);
        // ORDERING: relaxed, as above.
        if count >= self.sweep_at.load(Relaxed) || count >= self.max_keys {
            self.sweep();
        }
        if count >= self.max_keys {
            return None;
        }
        if self.cells.insert_sync(*name, Arc::default()).is_ok() {
            // ORDERING: relaxed, as above.
            self.count.fetch_add(1, Relaxed);
        }
        self.cells.peek_with(name, |_, cell| Arc::clone(cell))
    }

    /// Removes idle keys, in a separate task.
    fn sweep(self: &Arc<Self>) {
        // ORDERING: relaxed; the flag only bounds the number of tasks.
        if self.now() < self.rested_at.load(Relaxed) || self.sweeping.swap(true, Relaxed) {
            return;
        }
        let sweep = Sweep(Arc::clone(self));
        self.core.client.runtime().spawn_blocking(move || {
            let state = &sweep.0;
            let now = state.now();
            let mut left = 0;
            state.cells.retain_sync(|_, cell| {
                // A task that owns the cell may be about to fill it.
                let stays = !cell.is_idle(now) || Arc::strong_count(cell) > 1;
                left += u64::from(stays);
                stays
            });
            // ORDERING: relaxed, as in `cell`. Cells inserted during this sweep are counted by the
            // next sweep.
            state.count.store(left, Relaxed);
            // ORDERING: relaxed, as above.
            state.sweep_at.store((left * 2).max(FIRST_SWEEP), Relaxed);
            // ORDERING: relaxed, as above. No key becomes idle before this time.
            state.rested_at.store(now + IDLE, Relaxed);
        });
    }

    /// Asks the store for `cost` tokens and a lease. The caller must own the right to ask. A
    /// separate task sends the request, so that cancelling the caller's request does not lose the
    /// lease. The task returns the right to ask when it ends.
    fn ask(self: &Arc<Self>, cell: &Arc<Cell>, text: String, cost: u64, deadline: Instant) -> Asking {
        let (state, permit) = (Arc::clone(self), AskPermit(Arc::clone(cell)));
        self.core.client.runtime().spawn(async move {
            let cell = &permit.0;
            let lease = cell.next_lease(cost, state.most, state.hold, state.now());
            // The leases cannot pay this cost, but together with the tokens in the store they may.
            let closed = cell.close(cost > 0, || state.now());
            // Tokens that were given back may take the place of an early lease.
            let Some(place) = closed.iter().position(Option::is_some) else {
                return Err(Failure::Unavailable);
            };
            let sent = state.start.elapsed();
            let op = |settled| Op::Check { cost, lease, settled };
            let answer = state.settle_and_ask(cell, &closed, deadline, &text, op).await;
            if let Ok(answer) = &answer {
                if answer.lease > 0 {
                    // The current tick counts as passed, so the lease never ends late.
                    let (charge, granted) = (answer.charge, answer.lease);
                    let lease = Settlement { charge, granted, unspent: granted };
                    cell.fill(place, ticks(sent + answer.hold), lease);
                }
                let is_dry = cost == 0 && answer.lease * 2 < lease;
                if is_dry && cell.denied_for(u64::MAX, state.now()).is_none() {
                    cell.deny(0, state.now() + DRY);
                }
                state.record(cell, answer, cost);
            }
            cell.note_answer(ticks(state.start.elapsed() - sent), may_be_lost(&answer));
            answer
        })
    }

    /// Gives all leases back to the store, and charges `tokens`, in a separate task like
    /// [`ask`](Self::ask). The caller must own the right to ask.
    fn force(self: &Arc<Self>, cell: &Arc<Cell>, text: String, tokens: u64, deadline: Instant) -> Asking {
        let (state, permit) = (Arc::clone(self), AskPermit(Arc::clone(cell)));
        self.core.client.runtime().spawn(async move {
            let cell = &permit.0;
            let closed = cell.close(true, || state.now());
            let sent = state.start.elapsed();
            let op = |settled| Op::Force { tokens, settled };
            let answer = state.settle_and_ask(cell, &closed, deadline, &text, op).await;
            cell.note_answer(ticks(state.start.elapsed() - sent), may_be_lost(&answer));
            answer
        })
    }

    /// Asks the store, which first settles the closed leases. Opens them again if it is certain
    /// that the store has not done so. Requires the right to ask.
    async fn settle_and_ask(
        &self,
        cell: &Cell,
        closed: &ClosedLeases,
        deadline: Instant,
        text: &str,
        op: impl FnOnce(Settled) -> Op,
    ) -> Result<Answer, Failure> {
        let answer = self.core.ask_by(deadline, text, op(settled(closed)), None).await;
        if answer.as_ref().is_err_and(Failure::was_not_run) {
            cell.reopen(closed);
        }
        answer
    }

    fn record(&self, cell: &Cell, answer: &Answer, cost: u64) {
        // The rest is random, so that machines do not ask in the same order each time. The first
        // one would always find the most tokens.
        let rest = self.rest - fastrand::u64(..=self.rest / 4);
        cell.record(answer, cost, rest, self.denies_empty, self.now());
    }

    /// Requests the next lease before all tokens of the current lease are spent.
    fn ask_early(self: &Arc<Self>, cell: &Arc<Cell>, text: impl FnOnce() -> String, left: u64, now: u64) {
        if !cell.is_due(left, now) || !cell.pool.ask() {
            return;
        }
        drop(self.ask(cell, text(), 0, self.core.deadline()));
    }
}

/// The right to sweep. Dropping this value returns the right, even if the runtime ends before the
/// sweep.
struct Sweep(Arc<LeaseState>);

impl Drop for Sweep {
    fn drop(&mut self) {
        // ORDERING: relaxed, as in `sweep`.
        self.0.sweeping.store(false, Relaxed);
    }
}
