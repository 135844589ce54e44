//! Counts that are synchronized in the background. The divergence between machines is bounded.
//!
//! Each machine counts its admissions and reports them to the store in the background. On each
//! machine, a key never has more than `max_unsynced` tokens that the store has not confirmed. A
//! machine admits nothing that would raise the admissions known to it above the limit.
//!
//! # Bound
//!
//! In each window, N machines admit at most the limit plus `(N - 1) * max_unsynced` tokens. This
//! bound holds for any traffic, whether or not the store is reachable. (Before its first answer, a
//! machine may exceed the bound, because it uses its own clock: see the end of this section.)
//!
//! *Proof.* Each machine judged its last admission based on an answer from the store. Let the
//! machine's *knowledge* be the moment at which the store gave that answer.
//!
//! Let X be the machine with the latest knowledge, `k`. X judged by the sum of two numbers. The
//! first is a total of everything that the store had counted at `k`, including X's own share. The
//! second is everything else that X had admitted. Therefore X's admissions, together with the
//! admissions that other machines had reported to the store until `k`, are within the limit.
//!
//! Any other machine Y received no answer later than `k` before its last admission. Consider the
//! tokens that Y has admitted in total and that the store had not counted at `k`. At Y's last
//! admission, all of them were unconfirmed, so there are at most `max_unsynced` of them. ∎
//!
//! The proof requires a total that never loses anything, but the store may lose everything when it
//! is killed. A machine therefore remembers the highest count that it has received for the other
//! machines, and always reports all its admissions in the window, not the difference.
//!
//! A machine reports all counts of the current windows again in two cases: when it has a new
//! connection, and when an answer shows that the store knew less than the machine had reported. A
//! machine without requests checks five times a second. (If a connection leads to
//! the same server process as the one before it, that process has lost nothing. The connection then
//! does not count as new. This requires that the user may run INFO.)
//!
//! In both cases, the machine then waits two seconds for the other machines to report again,
//! because they may take that long to notice that the store is back. Until then, the machine does
//! not treat an answer as a confirmation. It spends the rest of its `max_unsynced`, and receives no
//! more.
//!
//! The bound therefore holds even if a server is killed and restarts empty, provided that all
//! machines with admissions in the window reach the server within these two seconds.
//!
//! A new machine does not know of a loss. With a cluster or a proxy, a machine notices a loss only
//! if it has reported something before. A restarted process counts as another machine, and forgets
//! the admissions that it had not reported.
//!
//! A reset deletes both the key in the store and this machine's admissions. Other machines treat
//! the deletion as a loss.
//!
//! After a window has ended, its counts are still reported to that window, because a sliding window
//! weighs them. The counts are dropped once the next window has also ended, because they then have
//! no effect.
//!
//! Windows follow the store's time. Each answer contains that time, and this machine's clock
//! continues from it. Until the first answer, a machine uses its own clock, and the bound holds for
//! the windows of that clock. In a window of the store, such a machine may admit up to
//! `max_unsynced` tokens more, or twice as many if its clock differs by a period or longer.
//!
//! If `at` or `client_clock` specifies the time of a request, the request counts in the window of
//! that time. The bound holds for each of these windows. A window before the preceding one is
//! forgotten when a request arrives in a new present window, and then counts from zero.
//!
//! # What a request waits for
//!
//! A request does not wait while both the limit and `max_unsynced` have room. This also holds for
//! new keys, which count from zero within the bound.
//!
//! If `max_unsynced` is used up, the check waits for the store's answer, up to its deadline, before
//! it is denied. If there is no connection, [`WhenUnavailable`](crate::WhenUnavailable) decides,
//! and denies by default. (These admissions are not included in the bound.) A request that costs
//! more than `max_unsynced` asks the store.

mod counts;
mod push;

use crate::connection::trial::Trial;
use crate::core::{self, Core, Request};
use crate::error::Refused;
use crate::name::{Name, Naming};
use crate::scripts::script::{Call, Script};
use crate::stats::{Event, SharedStats};
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use crate::words::count::{Full, MOST_LIMIT, MOST_UNSYNCED};
use crate::words::recovery::Recovery;
use counts::{Counted, UnsyncedState};
use push::PushPermit;
use scc::{HashIndex, Queue};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tollgate::{Algorithm, Decision, DecisionSource, Limiter, Quota, Tick};

pub(crate) struct Unsynced {
    pub(crate) state: Arc<UnsyncedState>,
}

fn script() -> Script {
    Script::new(include_str!("scripts/counts.lua"))
}

/// Returns the trial of a limit with unsynchronized counts. If checks send the time, `now` is the
/// time that the trial sends.
pub(crate) fn trial(limit: &str, naming: &Naming, period: u64, now: Option<Tick>) -> Arc<Trial> {
    let window = core::system_time().as_nanos() / 1000 / period;
    let script = script();
    let call = Call::new(&script, "", now).text("push").text("trial").numbers([period, window, 1]);
    Trial::new(limit, naming, call, now.is_some())
}

impl Unsynced {
    /// Checks that the settings are within range.
    pub(crate) fn check_settings(
        algorithm: Algorithm,
        tokens: u64,
        max_unsynced: u64,
    ) -> Result<(), Refused> {
        if !matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow) {
            return Err(Refused::UnsyncedAlgorithm { algorithm });
        }
        if tokens > MOST_LIMIT {
            return Err(Refused::UnsyncedQuota { tokens, most: MOST_LIMIT });
        }
        let most = MOST_UNSYNCED.min(tokens);
        if max_unsynced == 0 || max_unsynced > most {
            return Err(Refused::MaxUnsynced { max_unsynced, most });
        }
        Ok(())
    }

    pub(crate) fn new(
        core: Arc<Core>,
        most: u64,
        max_keys: usize,
        period: u64,
        sliding: bool,
    ) -> Result<Self, Refused> {
        let now = core::system_time();
        core.client.network.tell_again();
        let state = UnsyncedState {
            script: script(),
            node: format!("{:016x}", fastrand::u64(..)),
            most,
            limit: core.rule.capacity(),
            period,
            sliding,
            // A key may have two windows.
            max_keys: (max_keys as u64).saturating_mul(2),
            start: Instant::now(),
            origin: AtomicU64::new(now.as_nanos() / 1000),
            counts: HashIndex::new(),
            size: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            dirty: Queue::default(),
            woken: Notify::new(),
            urgent: Notify::new(),
            pushing: AtomicBool::new(false),
            recovery: Recovery::default(),
            pauses: Limiter::builder(Quota::per_second(1)).max_keys(max_keys).build()?,
            has_paused: AtomicBool::new(false),
            core,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Checks a request at `now`. Without `now`, uses the store's time as this machine knows it.
    pub(crate) async fn check(&self, request: Request<'_>, now: Option<Tick>, deadline: Instant) -> Decision {
        self.charge(request, now, deadline, true).await
    }

    /// Decides a request, unless `max_unsynced` is used up. `text` returns the key's name in the
    /// store.
    pub(crate) fn check_here(
        &self,
        name: &Name,
        cost: u64,
        text: impl FnOnce() -> String,
        now: Option<Tick>,
    ) -> Option<Decision> {
        let at = self.state.at(now);
        let window = at / self.state.period;
        // If there are too many counts, the check falls back.
        let count = self.state.count(*name, text, window)?;
        self.admit(&count, cost, at, true).ok()
    }

    /// Admits or denies a request by the counts known to this machine. Returns an error if the
    /// request fits the limit, but not `max_unsynced`.
    fn admit(&self, count: &Arc<Counted>, cost: u64, now: u64, keeps_pauses: bool) -> Result<Decision, ()> {
        let (state, core) = (&self.state, &self.state.core);
        let (name, window) = (count.name, count.window);
        let before = state.before(name, window);
        let decided = |granted: bool, present: u64, paused: u64| {
            core.counters.count(Event::ByLease);
            state.decision(granted, cost, window, (before, present), now, paused)
        };
        let paused = if keeps_pauses && cost > 0 { state.paused(name, now) } else { 0 };
        if paused > 0 {
            return Ok(decided(false, count.fields().present(), paused));
        }
        let room = state.limit.saturating_sub(state.weighed(before, now));
        match count.admit(cost, room, state.most) {
            Ok(fields) => {
                if cost > 0 {
                    core.fallback.keep_warm(&name, cost);
                    state.push_later(count);
                    if fields.unsynced() * 2 >= state.most {
                        state.urgent.notify_one();
                    }
                }
                Ok(decided(true, fields.present(), 0))
            }
            Err(Full::Limit) => Ok(decided(false, count.fields().present(), 0)),
            Err(Full::Unsynced) => Err(()),
        }
    }

    /// Checks a request. If `keeps_pauses` is false, the decision ignores a pause of the key.
    async fn charge(
        &self,
        request: Request<'_>,
        now: Option<Tick>,
        deadline: Instant,
        keeps_pauses: bool,
    ) -> Decision {
        let state = &self.state;
        let core = &state.core;
        let fall_back = || core.fall_back(&request.name, request.cost);
        loop {
            let (given, now) = (now, state.at(now));
            let window = now / state.period;
            let Some(count) = state.count(request.name, || request.text.to_owned(), window) else {
                return fall_back();
            };
            let answered = count.answered.notified();
            if let Ok(decision) = self.admit(&count, request.cost, now, keeps_pauses) {
                return decision;
            }
            if !core.client.is_up(request.text) {
                // The task that connects is started here if it is not running.
                state.push_later(&count);
                return fall_back();
            }
            if request.cost > state.most && count.push() {
                let permit = PushPermit::new(state, &count);
                return match state.take(permit, request.cost, keeps_pauses, deadline).await {
                    Ok((granted, present)) => {
                        core.fallback.keep_warm(&request.name, if granted { request.cost } else { 0 });
                        // The answer may have changed the clock, the pause and the counts.
                        let (now, before) = (state.at(given), state.before(request.name, window));
                        let is_held_back = keeps_pauses && request.cost > 0;
                        let paused = if is_held_back { state.paused(request.name, now) } else { 0 };
                        core.counters.count(Event::ByLease);
                        state.decision(granted, request.cost, window, (before, present), now, paused)
                    }
                    Err(_) => fall_back(),
                };
            }
            state.push_later(&count);
            state.urgent.notify_one();
            if timeout_at(deadline, answered).await.is_err() {
                return fall_back();
            }
        }
    }

    /// Returns the decision of a check, based on the counts known to this machine, without taking
    /// anything. If too much is unconfirmed and the store is unreachable, the fallback decides.
    pub(crate) fn peek(&self, request: Request<'_>, now: Option<Tick>) -> Decision {
        let (known, unsynced) = self.known(request, now);
        let Core { client, fallback, rule, .. } = &*self.state.core;
        let is_full = unsynced.saturating_add(request.cost) > self.state.most;
        if known.is_allowed() && is_full && !client.is_up(request.text) {
            return fallback.peek(&request.name, request.cost, rule.capacity());
        }
        known
    }

    /// Returns the decision of a check, based on the counts known to this machine, and how many
    /// tokens in the window the store has not confirmed.
    fn known(&self, request: Request<'_>, now: Option<Tick>) -> (Decision, u64) {
        let state = &self.state;
        let now = state.at(now);
        let window = now / state.period;
        let fields = state.counts.peek_with(&(request.name, window), |_, count| count.fields());
        let (present, unsynced) = fields.map_or((0, 0), |fields| (fields.present(), fields.unsynced()));
        let before = state.before(request.name, window);
        let used = present.saturating_add(state.weighed(before, now)).saturating_add(request.cost);
        let paused = if request.cost > 0 { state.paused(request.name, now) } else { 0 };
        let granted = used <= state.limit && paused == 0 || request.cost == 0;
        (state.decision(granted, request.cost, window, (before, present), now, paused), unsynced)
    }

    /// Charges tokens that are already spent, as far as there is room, and returns how many were
    /// charged.
    pub(crate) async fn force(&self, request: Request<'_>, now: Option<Tick>, deadline: Instant) -> u64 {
        let mut room = u64::MAX;
        loop {
            let left = self.known(Request { cost: 0, ..request }, now).0.remaining();
            let cost = left.min(request.cost);
            // Each iteration finds less room than the one before, unless the store knows of charges
            // that this machine has not received.
            if cost == 0 || left >= room {
                return 0;
            }
            room = left;
            let decision = self.charge(Request { cost, ..request }, now, deadline, false).await;
            if decision.charged() > 0 || decision.source() != DecisionSource::Lease {
                return decision.charged();
            }
        }
    }

    /// Gives back tokens that have not been reported to the store.
    pub(crate) fn refund(&self, name: Name, decision: &Decision, tokens: u64) {
        let window = decision.at().as_nanos() / 1000 / self.state.period;
        if let Some(count) = self.state.counts.peek_with(&(name, window), |_, count| Arc::clone(count)) {
            count.give_back(tokens);
        }
    }

    /// Removes the key's pause, and its admissions in the windows at `now` and at the store's time,
    /// as this machine knows it. The store has deleted all windows of the key.
    pub(crate) fn forget(&self, name: Name, now: Option<Tick>) {
        self.state.pauses.reset(&name);
        let [given, present] = [now, None].map(|now| self.state.at(now) / self.state.period);
        for window in [given.wrapping_sub(1), given, present.wrapping_sub(1), present] {
            if self.state.counts.remove_sync(&(name, window)) {
                // ORDERING: relaxed, because this is only a count. A sweep may already have
                // subtracted this window.
                let _ = self.state.size.fetch_update(Relaxed, Relaxed, |size| size.checked_sub(1));
            }
        }
    }

    /// Reports all unreported counts to the store, for at most a check's deadline.
    pub(crate) async fn flush(&self) {
        let state = &self.state;
        let all = async {
            loop {
                let mut unsynced = 0;
                state.each(|count| {
                    if count.fields().unsynced() > 0 && state.is_of_interest(count) {
                        unsynced += 1;
                        state.enqueue(count);
                    }
                });
                if unsynced == 0 {
                    return;
                }
                state.push_round().await;
                // Another task may be pushing some of the counts, or there may be no connection.
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(state.core.deadline, all).await;
    }

    /// Adds the numbers of tokens that are unsynchronized now.
    pub(crate) fn add_to(&self, stats: &mut SharedStats) {
        let SharedStats { unsynced, unsynced_sent, most_unsynced, .. } = self.state.unsynced();
        stats.unsynced += unsynced;
        stats.unsynced_sent += unsynced_sent;
        stats.most_unsynced = stats.most_unsynced.max(most_unsynced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::limiter::SharedLimiter;
    use crate::limiter::class::Mode;

    #[tokio::test]
    async fn after_a_clock_goes_back_each_window_is_still_removed() {
        let client = Client::open("redis://127.0.0.1:1").unwrap();
        let builder = SharedLimiter::<str>::builder(&client, "back", Quota::per_second(10));
        let limiter = builder.algorithm(Algorithm::FixedWindow).max_unsynced(2).build().unwrap();
        let class = limiter.own_class();
        let Mode::Unsynced(Unsynced { state }) = &class.mode else { panic!("another mode") };
        let (name, text) = class.naming.name("alice");
        let count_at = |now| {
            state.adjust_clock(now, state.elapsed());
            assert!(state.count(name, || text.clone(), state.now() / state.period).is_some());
        };
        let until_left = async |left| {
            while state.counts.len() > left {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let start = state.now();
        let removed = async {
            count_at(start);
            count_at(start + 3_600 * state.period);
            until_left(1).await;
            for window in 0..20 {
                count_at(start + window * state.period);
            }
            // The present window, the one before it and the one ahead remain.
            until_left(3).await;
        };
        timeout(Duration::from_secs(10), removed).await.expect("the other windows are removed");
    }
}
