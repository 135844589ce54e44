//! The counts of all keys on one machine, with their windows, the store's time, and the queue of
//! counts to push.

use crate::core::Core;
use crate::name::Name;
use crate::scripts::rule::Op;
use crate::scripts::script::Script;
use crate::stats::SharedStats;
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use crate::words::count::Count;
use crate::words::recovery::Recovery;
use scc::{HashIndex, Queue};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate::{Decision, DecisionSource, Limiter, Tick};

pub(crate) struct UnsyncedState {
    pub(crate) core: Arc<Core>,
    pub(crate) script: Script,
    /// This machine's identity in the store. Each process has its own identity.
    pub(crate) node: String,
    pub(crate) most: u64,
    pub(crate) limit: u64,
    /// In microseconds.
    pub(crate) period: u64,
    pub(crate) sliding: bool,
    pub(crate) max_keys: u64,
    pub(crate) start: Instant,
    /// The store's time at `start`, in microseconds since the Unix epoch.
    pub(crate) origin: AtomicU64,
    pub(crate) counts: HashIndex<(Name, u64), Arc<Counted>>,
    pub(crate) size: AtomicU64,
    /// The window in which older windows were last removed.
    pub(crate) swept: AtomicU64,
    pub(crate) dirty: Queue<Arc<Counted>>,
    /// Notified when a count is queued, and when a push is urgent.
    pub(crate) woken: Notify,
    pub(crate) urgent: Notify,
    pub(crate) pushing: AtomicBool,
    /// Its times are in microseconds since `start`.
    pub(crate) recovery: Recovery,
    /// The pauses known to this machine, in the store's time. This limiter is used only for pauses.
    pub(crate) pauses: Limiter<Name>,
    /// Whether any key has ever been paused. If none has, checks need not look for pauses.
    pub(crate) has_paused: AtomicBool,
}

/// The count of one window of a key, with the data that the tasks need.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The key, the key's name in the store, and the window.
    pub(crate) name: Name,
    pub(crate) text: Box<str>,
    pub(crate) window: u64,
    count: Count,
    /// Notified after each push, whether or not the store answered.
    pub(crate) answered: Notify,
}

impl Counted {
    pub(crate) fn new(name: Name, text: Box<str>, window: u64) -> Self {
        Self { name, text, window, count: Count::default(), answered: Notify::new() }
    }
}

impl Deref for Counted {
    type Target = Count;

    fn deref(&self) -> &Count {
        &self.count
    }
}

impl UnsyncedState {
    /// Returns the microseconds since the limiter was built.
    pub(crate) fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the store's time, in microseconds since the Unix epoch.
    pub(crate) fn now(&self) -> u64 {
        // ORDERING: relaxed; the number publishes no other data.
        self.origin.load(Relaxed).saturating_add(self.elapsed())
    }

    pub(crate) fn at(&self, now: Option<Tick>) -> u64 {
        now.or_else(|| self.core.now()).map_or_else(|| self.now(), |now| now.as_nanos() / 1000)
    }

    /// Adjusts the clock to an answer. The store's time was `now` at some moment between `sent` and
    /// this call.
    pub(crate) fn adjust_clock(&self, now: u64, sent: u64) {
        let (earliest, latest) = (now.saturating_sub(self.elapsed()), now.saturating_sub(sent));
        // ORDERING: relaxed, as in `now`.
        let origin = self.origin.load(Relaxed);
        if origin < earliest || origin > latest {
            // ORDERING: relaxed, as in `now`.
            self.origin.store(origin.clamp(earliest, latest), Relaxed);
        }
    }

    /// Returns a window's count, or `None` if there are too many counts.
    /// `text` returns the key's name in the store.
    pub(crate) fn count(
        self: &Arc<Self>,
        name: Name,
        text: impl FnOnce() -> String,
        window: u64,
    ) -> Option<Arc<Counted>> {
        let key = (name, window);
        if let Some(count) = self.counts.peek_with(&key, |_, count| Arc::clone(count)) {
            return Some(count);
        }
        self.sweep(window);
        // ORDERING: relaxed; this is only a count.
        if self.size.load(Relaxed) >= self.max_keys {
            return None;
        }
        let count = Counted::new(name, text().into_boxed_str(), window);
        if self.counts.insert_sync(key, Arc::new(count)).is_ok() {
            // ORDERING: relaxed, as above.
            self.size.fetch_add(1, Relaxed);
        }
        self.counts.peek_with(&key, |_, count| Arc::clone(count))
    }

    /// Returns false if the count has been removed.
    pub(crate) fn holds(&self, count: &Arc<Counted>) -> bool {
        let key = (count.name, count.window);
        self.counts.peek_with(&key, |_, held| Arc::ptr_eq(held, count)).unwrap_or(false)
    }

    /// Returns the known admissions in the previous window.
    pub(crate) fn before(&self, name: Name, window: u64) -> u64 {
        if !self.sliding {
            return 0;
        }
        let key = (name, window.wrapping_sub(1));
        self.counts.peek_with(&key, |_, count| count.fields().present()).unwrap_or(0)
    }

    /// Returns how much of the previous window's count applies at `now`, rounded up.
    pub(crate) fn weighed(&self, before: u64, now: u64) -> u64 {
        let rest = self.period - now % self.period;
        let weighed = (u128::from(before) * u128::from(rest)).div_ceil(u128::from(self.period));
        u64::try_from(weighed).unwrap_or(u64::MAX)
    }

    /// Returns how many microseconds after `now` a key's pause ends, as far as this machine knows.
    pub(crate) fn paused(&self, name: Name, now: u64) -> u64 {
        // ORDERING: relaxed, because a check that does not see the flag precedes the first pause.
        if !self.has_paused.load(Relaxed) {
            return 0;
        }
        let paused = self.pauses.at(Tick::from_nanos(now.saturating_mul(1000))).peek(&name);
        let left = paused.retry_after().unwrap_or(Duration::MAX).as_micros();
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    /// Records that a key is paused for `left` microseconds from `now` on.
    pub(crate) fn note_pause(&self, name: Name, now: u64, left: u64) {
        if left > 0 {
            let pauses = self.pauses.at(Tick::from_nanos(now.saturating_mul(1000)));
            // If the limiter is full, this machine learns of the pause again with each answer.
            let _ = pauses.pause(&name, Duration::from_micros(left));
            // ORDERING: relaxed, as in `paused`.
            self.has_paused.store(true, Relaxed);
        }
    }

    /// Removes windows that no longer count. Runs once in each window.
    pub(crate) fn sweep(self: &Arc<Self>, window: u64) {
        // A caller may pass a time far ahead of the times that other callers pass.
        let present = self.now() / self.period;
        let window = window.min(present);
        // ORDERING: relaxed; the value only bounds the number of tasks. If the value is after the
        // present window, it was stored before the clock went back.
        if (window..=present).contains(&self.swept.load(Relaxed))
            || self.swept.swap(window, Relaxed) == window
        {
            return;
        }
        let state = Arc::clone(self);
        self.core.client.runtime().spawn_blocking(move || {
            let mut left = 0;
            state.counts.retain_sync(|&(_, of), _| {
                left += u64::from(of + 1 >= window);
                of + 1 >= window
            });
            // ORDERING: relaxed, because this is only a count. Windows inserted during this sweep
            // are counted by the next sweep.
            state.size.store(left, Relaxed);
        });
    }

    /// Returns the decision on a request in `window`. The window has `present` tokens after the
    /// request, and the previous window had `before` tokens. The key is paused for `paused`
    /// microseconds.
    pub(crate) fn decision(
        &self,
        granted: bool,
        cost: u64,
        window: u64,
        (before, present): (u64, u64),
        now: u64,
        paused: u64,
    ) -> Decision {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let reply = [granted.into(), 0, window, before, present, now, paused].map(number);
        let op = Op::check(cost);
        let answer = self.core.rule.answer(&reply, op, DecisionSource::Lease);
        answer.expect("windows answer with seven numbers").decision
    }

    pub(crate) fn each(&self, mut visit: impl FnMut(&Arc<Counted>)) {
        self.counts.iter_sync(|_, count| {
            visit(count);
            true
        });
    }

    pub(crate) fn unsynced(&self) -> SharedStats {
        let mut stats = SharedStats::default();
        self.each(|count| {
            // A window that no longer counts can't add to an overshoot.
            if !self.is_of_interest(count) {
                return;
            }
            let fields = count.fields();
            stats.unsynced += fields.unsynced();
            stats.unsynced_sent += fields.in_flight;
            stats.most_unsynced = stats.most_unsynced.max(fields.unsynced());
        });
        stats
    }
}
