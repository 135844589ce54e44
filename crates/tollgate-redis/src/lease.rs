//! Leases: tokens that a machine takes in advance, to spend them without asking.
//!
//! # Why it is never over the limit
//!
//! A token that may be spent until `e` is charged as if it were spent at `e`, and counts from the moment it is leased. Let
//! some interval be given, and the tokens that were spent in it: all of them were leased before its end, with an `e` that is
//! not before its beginning. Of a bucket, take the first of these leases in the order of the store: after it the bucket is
//! full no sooner than at `e` and its cost, which is not before the interval's beginning and its cost; each later one adds
//! its own; and the last was granted, so all of them together are at most what the bucket takes in the interval. A log
//! counts each token from before it is spent until a period after. A window's lease ends with the window that has counted it.
//! It does not matter who spends, or when; a machine that stops has spent less. ∎
//!
//! `e` is counted from before the lease was asked for, so on this machine it is over earlier, not later, than in the store.
//!
//! # What it costs
//!
//! - What a machine has leased and does not spend, nobody does: up to twice `lease` tokens of a key for each machine, until the
//!   lease is over: as long as as many tokens take to come, 50 ms at the least and 10 s at the most, and for windows to
//!   their end. A lease is at most half of what the store has left, begins small, and doubles while a key comes
//!   again within a second; so a key that comes rarely leases next to nothing.
//! - A lease whose answer is lost is lost with it, besides; the next one begins small again. A request that is given up does
//!   not take its lease with it.
//! - A bucket or a log that gives leases is charged for them ahead of time, so that its last few tokens are not leased.
//! - What the store has denied is denied here until the time it said, but no longer than a second: what others give
//!   back meanwhile is not noticed. Except by a fixed window it is denied for a quarter of a lease's time at the least:
//!   or at the limit, where tokens come one by one, each would be asked for.
//! - A queue gives no leases: its requests are told when their turn is, and the store alone knows.
//! - Time is this machine's monotonic clock, which stands still while some machines sleep: one that wakes up may spend what
//!   is over in the store by then.
//! - `remaining` and `reset_after` of what is decided here are those of the last answer, less what was spent since.

use crate::core::{Asked, Core};
use crate::name::Name;
use crate::scripts::method::{Answer, Op};
use crate::scripts::script::Failure;
use crate::stats::Event;
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use crate::words::purse::{LAST, MOST, Purses, TICK};
use scc::HashIndex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tollgate::{Decision, DecisionParts, Outcome, Source, Tick};

/// How long a denial is remembered at the most, in ticks.
const DENIED: u64 = 1_000;
/// How long a store that had nothing to lease is left alone, in ticks.
const DRY: u64 = 10;
/// A key that does not come back within so many ticks is not growing.
const GROWS: u64 = 1_000;
/// Keys are looked through for idle ones when there are twice as many as were left the last time, and so many at least.
const FIRST_SWEEP: u64 = 1_024;

pub(crate) struct Leases {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    most: u64,
    /// For how many ticks a denial is remembered at the least.
    rest: u64,
    max_keys: u64,
    start: Instant,
    cells: HashIndex<Name, Arc<Cell>>,
    /// How many cells there are, and with how many they are swept.
    count: AtomicU64,
    sweep_at: AtomicU64,
    sweeping: AtomicBool,
    /// When they may be swept again, in ticks.
    rested_at: AtomicU64,
}

/// Whole ticks, as many as a purse has bits for.
fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / u128::from(TICK)).unwrap_or(LAST).min(LAST)
}

/// What this machine knows of a key.
#[derive(Debug, Default)]
struct Cell {
    purses: Purses,
    /// Told when the store has answered.
    answered: Notify,
    /// Up to when a cost is denied without asking: `until << 24 | cost`; 0 if none is.
    denied: AtomicU64,
    /// When the store has said that it will be there, which may be much later.
    retry_at: AtomicU64,
    /// How many tokens are asked for in advance, and when they were the last time.
    size: AtomicU64,
    asked: AtomicU64,
    /// What the last answer has said: what remains, and when the key is as good as new.
    remaining: AtomicU64,
    reset_at: AtomicU64,
}

/// The right to ask the store. Whoever waits for the answer is told when it is over, however it ends.
struct Right(Arc<Cell>);

impl Drop for Right {
    fn drop(&mut self) {
        self.0.purses.asked();
        self.0.answered.notify_waiters();
    }
}

impl Leases {
    pub(crate) fn new(core: Arc<Core>, most: u64, max_keys: usize) -> Self {
        let shared = Shared {
            rest: ticks(core.method.rest()),
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
        Self { shared: Arc::new(shared) }
    }

    /// Takes tokens that were leased, or asks the store for them and for a lease.
    pub(crate) async fn check(&self, asked: Asked<'_>) -> Decision {
        let shared = &self.shared;
        let core = &shared.core;
        if asked.cost == 0 {
            // Who takes nothing asks how it stands, and the store knows.
            return core.check(asked, None).await;
        }
        let deadline = core.deadline();
        let Some(cell) = shared.cell(&asked.name) else { return core.check(asked, None).await };
        // Where others are always faster, the store is asked beside them in time.
        let patience = deadline - core.deadline / 2;
        loop {
            let answered = cell.answered.notified();
            let now = shared.now();
            if let Some(left) = cell.purses.spend(asked.cost, now) {
                core.counters.count(Event::Ahead);
                core.stand_in.keep_warm(&asked.name, asked.cost);
                shared.ask_early(&cell, &asked, left, now);
                return cell.decision(Outcome::Allowed, &asked, core.method.capacity(), 0, now);
            }
            if let Some(wait) = cell.denied_for(asked.cost, now) {
                core.counters.count(Event::Ahead);
                return cell.decision(Outcome::Denied, &asked, core.method.capacity(), wait, now);
            }
            if cell.purses.ask() {
                let asking = shared.ask(&cell, &asked, asked.cost, deadline);
                return core.decide(asked, asking.await.unwrap_or(Err(Failure::Unknown)));
            }
            if timeout_at(patience, answered).await.is_err() {
                let op = Op::Check { cost: asked.cost, lease: 0 };
                let answer = core.ask_by(deadline, asked.text, op, None).await;
                if let Ok(answer) = &answer {
                    cell.learn(answer, asked.cost, shared.now(), shared.rest);
                }
                return core.decide(asked, answer);
            }
        }
    }

    pub(crate) fn refund(&self, name: &Name, charge: &Decision, tokens: u64) {
        let (shared, spent) = (&self.shared, charge.at().as_nanos() / TICK);
        if let Some(cell) = shared.cells.peek_with(name, |_, cell| Arc::clone(cell)) {
            cell.purses.give_back(tokens, spent, shared.now());
        }
    }

    pub(crate) fn forget(&self, name: &Name) {
        if self.shared.cells.remove_sync(name) {
            // ORDERING: relaxed; a count. A sweep may have left it out already.
            let _ = self.shared.count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Tokens that may be spent, of all keys.
    pub(crate) fn held(&self) -> u64 {
        let now = self.shared.now();
        let mut held = 0;
        self.shared.cells.iter_sync(|_, cell| {
            held += cell.purses.held(now);
            true
        });
        held
    }
}

impl Shared {
    /// Ticks since the limiter was built, from 1.
    fn now(&self) -> u64 {
        let nanos = self.start.elapsed().as_nanos() / u128::from(TICK);
        u64::try_from(nanos).unwrap_or(u64::MAX) + 1
    }

    /// The key's cell; `None` if there are too many.
    fn cell(self: &Arc<Self>, name: &Name) -> Option<Arc<Cell>> {
        if let Some(cell) = self.cells.peek_with(name, |_, cell| Arc::clone(cell)) {
            return Some(cell);
        }
        // ORDERING: relaxed; a count, and when to do something about it.
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

    /// Forgets idle keys, beside the requests.
    fn sweep(self: &Arc<Self>) {
        // ORDERING: relaxed; it protects nothing but the number of tasks.
        if self.now() < self.rested_at.load(Relaxed) || self.sweeping.swap(true, Relaxed) {
            return;
        }
        let sweep = Sweep(Arc::clone(self));
        tokio::task::spawn_blocking(move || {
            let shared = &sweep.0;
            let now = shared.now();
            let mut left = 0;
            shared.cells.retain_sync(|_, cell| {
                // Who has one in his hands may be about to fill it.
                let stays = !cell.is_idle(now) || Arc::strong_count(cell) > 1;
                left += u64::from(stays);
                stays
            });
            // ORDERING: relaxed, as in `cell`. What was inserted meanwhile is counted the next time.
            shared.count.store(left, Relaxed);
            // ORDERING: relaxed, as above.
            shared.sweep_at.store((left * 2).max(FIRST_SWEEP), Relaxed);
            // ORDERING: relaxed, as above. No key is idle sooner.
            shared.rested_at.store(now + GROWS, Relaxed);
        });
    }

    /// Asks the store for `cost` tokens and a lease. Only for those who have the right to, which is given back afterwards.
    /// It is a task of its own: who gives his request up does not take the lease with him.
    fn ask(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        asked: &Asked<'_>,
        cost: u64,
        deadline: Instant,
    ) -> JoinHandle<Result<Answer, Failure>> {
        let (shared, right, text) = (Arc::clone(self), Right(Arc::clone(cell)), asked.text.to_owned());
        tokio::spawn(async move {
            let cell = &right.0;
            let lease = cell.next_size(shared.most, shared.now());
            let sent = shared.start.elapsed();
            let op = Op::Check { cost, lease };
            let answer = shared.core.ask_by(deadline, &text, op, None).await;
            match &answer {
                Ok(answer) => {
                    if answer.lease > 0 {
                        // `now` counts the tick that has begun, so it gets there before the time does.
                        cell.purses.fill(answer.lease, ticks(sent + answer.hold), || shared.now());
                    } else if cost == 0 {
                        cell.deny(0, shared.now() + DRY);
                    }
                    cell.learn(answer, cost, shared.now(), shared.rest);
                }
                // What was asked for may be lost: not so much again.
                // ORDERING: relaxed, as in `next_size`.
                Err(_) => cell.size.store(0, Relaxed),
            }
            answer
        })
    }

    /// Asks for the next lease while there is something left of this one.
    fn ask_early(self: &Arc<Self>, cell: &Arc<Cell>, asked: &Asked<'_>, left: u64, now: u64) {
        // ORDERING: relaxed; how early is a matter of speed only.
        let size = cell.size.load(Relaxed);
        if left * 2 > size || size < 2 || !cell.purses.has_room(now) {
            return;
        }
        if cell.denied_for(0, now).is_some() || !cell.purses.ask() {
            return;
        }
        drop(self.ask(cell, asked, 0, self.core.deadline()));
    }
}

/// The right to look for idle keys. It is given back also if the runtime ends before they were looked for.
struct Sweep(Arc<Shared>);

impl Drop for Sweep {
    fn drop(&mut self) {
        // ORDERING: relaxed, as in `sweep`.
        self.0.sweeping.store(false, Relaxed);
    }
}

impl Cell {
    /// Ticks until `cost` is asked for again, if the store has denied it.
    fn denied_for(&self, cost: u64, now: u64) -> Option<u64> {
        // ORDERING: relaxed; the word is all there is to know.
        let word = self.denied.load(Relaxed);
        let (until, denied) = (word >> 24, word & MOST);
        // ORDERING: relaxed, as in `learn`.
        let wait = || self.retry_at.load(Relaxed).max(until) - now;
        (until > now && cost >= denied && (denied > 0 || cost == 0)).then(wait)
    }

    /// Remembers that `cost` tokens are not to be had until then; 0: that there was nothing to lease.
    fn deny(&self, cost: u64, until: u64) {
        if cost <= MOST {
            // ORDERING: relaxed, as in `denied_for`.
            self.denied.store(until.min(LAST) << 24 | cost, Relaxed);
        }
    }

    /// Remembers what an answer says.
    fn learn(&self, answer: &Answer, cost: u64, now: u64, rest: u64) {
        let decision = &answer.decision;
        // ORDERING: relaxed; what is told of them may be of two answers. What is leased is counted where it is held.
        self.remaining.store(decision.remaining().saturating_sub(answer.lease), Relaxed);
        // ORDERING: relaxed, as above.
        self.reset_at.store(now.saturating_add(ticks(decision.reset_after())), Relaxed);
        if decision.outcome() == Outcome::Denied
            && let Some(wait) = decision.retry_after()
        {
            // ORDERING: relaxed, as above.
            self.retry_at.store(now.saturating_add(ticks(wait)), Relaxed);
            self.deny(cost, now + ticks(wait).max(rest).min(DENIED));
        }
    }

    /// How much to ask for in advance.
    fn next_size(&self, most: u64, now: u64) -> u64 {
        // ORDERING: relaxed; a size more or less, and only those who have the right to ask come here.
        let (size, asked) = (self.size.load(Relaxed), self.asked.swap(now, Relaxed));
        let next = match asked {
            0 => 0,
            asked if now.saturating_sub(asked) <= GROWS => (size * 2).clamp(1, most),
            _ => size / 2,
        };
        // ORDERING: relaxed, as above.
        self.size.store(next, Relaxed);
        // A request that is too large for what is there gets here however much that is.
        next.min((most * 2).saturating_sub(self.purses.held(now)))
    }

    fn is_idle(&self, now: u64) -> bool {
        // ORDERING: relaxed, as in `next_size`.
        let asked = self.asked.load(Relaxed);
        // ORDERING: relaxed, as in `denied_for`.
        let denied = self.denied.load(Relaxed) >> 24;
        self.purses.held(now) == 0 && denied <= now && asked + GROWS < now
    }

    /// A decision of this machine; `wait` in ticks.
    fn decision(&self, outcome: Outcome, asked: &Asked<'_>, limit: u64, wait: u64, now: u64) -> Decision {
        let duration = |ticks: u64| Duration::from_nanos(ticks.saturating_mul(TICK));
        // ORDERING: relaxed, as in `learn`.
        let (remaining, reset_at) = (self.remaining.load(Relaxed), self.reset_at.load(Relaxed));
        let remaining = remaining.saturating_add(self.purses.held(now)).min(limit);
        let reset = duration(reset_at.saturating_sub(now));
        Decision::from(DecisionParts {
            outcome,
            cost: asked.cost,
            capacity: limit,
            remaining: if outcome == Outcome::Allowed {
                remaining
            } else {
                remaining.min(asked.cost.saturating_sub(1))
            },
            wait: Some(duration(wait)),
            reset_after: reset,
            refill_after: if outcome == Outcome::Allowed { reset } else { duration(wait).min(reset) },
            at: Tick::from_nanos(now.saturating_mul(TICK)),
            source: Source::Prepaid,
        })
    }
}
