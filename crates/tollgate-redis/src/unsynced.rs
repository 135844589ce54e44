//! Counts that are synchronized beside the requests, with a bound on how far they may be apart.
//!
//! Each machine counts what it admits, and tells the store in the background. It never has more than `max_unsynced` tokens
//! of a key that the store has not confirmed, and admits nothing that is above the limit by what it has heard.
//!
//! # Bound
//!
//! With N machines, in each window: the limit and (N - 1) x `max_unsynced` tokens at the most, whatever the traffic is, and
//! whether or not the store is there. *Proof.* Let each machine's *knowledge* be the moment at which the store gave the
//! answer that the machine's last admission was judged by, and X the one with the latest, at `k`. X judged by a total that
//! holds all that the store had counted at `k`, its own share included, and by all that it had admitted besides: so what X
//! has admitted, and what others had told the store until `k`, is within the limit. Any other machine Y has heard no answer
//! later than `k` before its last admission. So all that it had admitted by then and that the store has not counted until `k`
//! was unconfirmed at that moment: `max_unsynced` at the most. ∎
//!
//! That asks for a total that never loses what it has held. A machine keeps the most it has heard of others. The store may
//! lose everything when it is killed; so each machine tells it all that it has admitted in the window, not what has come since,
//! and when it has a new connection, or hears that less was known of it than it had been told, it tells all counts of the
//! windows at hand again; one that has no requests looks five times a second. Until the others have had the time
//! to do so (two seconds: as long as they may take to notice that the store is back), it takes no answer for a confirmation: it goes on spending what it has of `max_unsynced`, and gets
//! no more. So the bound holds when a server is killed and comes back empty, if all machines that have a part in the window
//! reach it within that time. A machine that is new knows of no loss, and behind a cluster's or a proxy's connection a
//! loss is noticed only by those who have told something before. A process that is started again is another machine: what
//! it had not told when it ended is forgotten.
//!
//! To reset a key deletes it in the store, and what this machine has admitted; others take that for a loss.
//!
//! Counts of a window that is over go to that window: the sliding window weighs them. They are dropped when the window after
//! it is over, too, for nobody asks for them any more.
//!
//! Windows have the store's time: each answer says what it is, and between answers this machine's clock goes on from there.
//!
//! # What a request waits for
//!
//! Nothing, while the limit and `max_unsynced` have room, also of a key that was never seen: it counts from nothing, within the
//! bound. If `max_unsynced` is used up, it waits for the store's answer up to its deadline, rather than be refused; if
//! there is no connection, [`WhenUnavailable`](crate::WhenUnavailable) answers, which denies unless it was told otherwise. (What it
//! admits is beyond the bound.) A request that costs more than `max_unsynced` asks the store.

mod counts;
mod tell;

use crate::core::{Asked, Core};
use crate::error::BuildError;
use crate::name::Name;
use crate::scripts::script::Script;
use crate::stats::{Event, SharedStats};
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use crate::words::count::{Full, MOST_LIMIT, MOST_UNSYNCED};
use crate::words::recovery::Recovery;
use counts::Shared;
use scc::{HashIndex, Queue};
use std::sync::Arc;
use std::time::Duration;
use tell::Right;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tollgate::{Algorithm, Decision, Tick};

pub(crate) struct Unsynced {
    shared: Arc<Shared>,
}

impl Unsynced {
    /// Is that possible?
    pub(crate) fn check_settings(
        algorithm: Algorithm,
        limit: u64,
        max_unsynced: u64,
    ) -> Result<(), BuildError> {
        if !algorithm.has_windows() {
            return Err(BuildError::UnsyncedAlgorithm { algorithm });
        }
        if limit > MOST_LIMIT {
            return Err(BuildError::UnsyncedLimit { limit, most: MOST_LIMIT });
        }
        let most = MOST_UNSYNCED.min(limit);
        if max_unsynced == 0 || max_unsynced > most {
            return Err(BuildError::MaxUnsynced { max_unsynced, most });
        }
        Ok(())
    }

    pub(crate) fn new(core: Arc<Core>, most: u64, max_keys: usize, period: u64, sliding: bool) -> Self {
        let now = core.system_time();
        let shared = Shared {
            script: Script::new(include_str!("scripts/counts.lua")),
            node: format!("{:016x}", fastrand::u64(..)),
            most,
            limit: core.method.capacity(),
            period,
            sliding,
            // Each may have two windows.
            max_keys: (max_keys as u64).saturating_mul(2),
            start: Instant::now(),
            origin: AtomicU64::new(now.as_nanos() / 1000),
            counts: HashIndex::new(),
            size: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            dirty: Queue::default(),
            woken: Notify::new(),
            hurry: Notify::new(),
            telling: AtomicBool::new(false),
            recovery: Recovery::default(),
            core,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Checks; at `now`, or by the store's time as far as it is known.
    pub(crate) async fn check(&self, asked: Asked<'_>, now: Option<Tick>, deadline: Instant) -> Decision {
        let shared = &self.shared;
        let core = &shared.core;
        loop {
            let now = shared.at(now);
            let window = now / shared.period;
            let Some(count) = shared.count(asked.name, asked.text, window) else {
                return core.stand_in(asked);
            };
            let before = shared.before(asked.name, window);
            let weighed = shared.weighed(before, now);
            let answered = count.answered.notified();
            let decided = |granted: bool, present: u64| {
                core.counters.count(Event::Ahead);
                shared.decision(granted, asked.cost, window, before, present, now)
            };
            let room = shared.limit.saturating_sub(weighed);
            match count.admit(asked.cost, room, shared.most) {
                Ok(fields) => {
                    if asked.cost > 0 {
                        core.stand_in.keep_warm(&asked.name, asked.cost);
                        shared.tell_later(&count);
                        if fields.unsynced() * 2 >= shared.most {
                            shared.hurry.notify_one();
                        }
                    }
                    return decided(true, fields.present());
                }
                Err(Full::Limit) => return decided(false, count.fields().present()),
                Err(Full::Unsynced) if !core.client.is_up(asked.text) => {
                    // Asks for the connection, if nobody does.
                    shared.tell_later(&count);
                    return core.stand_in(asked);
                }
                Err(Full::Unsynced) if asked.cost > shared.most && count.push() => {
                    return match shared.take(Right::new(shared, &count), asked.cost, deadline).await {
                        Ok((granted, present)) => {
                            core.stand_in.keep_warm(&asked.name, if granted { asked.cost } else { 0 });
                            decided(granted, present)
                        }
                        Err(_) => core.stand_in(asked),
                    };
                }
                Err(Full::Unsynced) => {
                    shared.tell_later(&count);
                    shared.hurry.notify_one();
                    if timeout_at(deadline, answered).await.is_err() {
                        return core.stand_in(asked);
                    }
                }
            }
        }
    }

    /// What a check would be answered by what is known here.
    pub(crate) fn peek(&self, asked: Asked<'_>, now: Option<Tick>) -> Decision {
        let shared = &self.shared;
        let now = shared.at(now);
        let window = now / shared.period;
        let present = shared.counts.peek_with(&(asked.name, window), |_, count| count.fields().present());
        let (present, before) = (present.unwrap_or(0), shared.before(asked.name, window));
        let used = present.saturating_add(shared.weighed(before, now)).saturating_add(asked.cost);
        shared.decision(used <= shared.limit, asked.cost, window, before, present, now)
    }

    /// Gives back what the store was not told of yet.
    pub(crate) fn refund(&self, name: Name, charge: &Decision, tokens: u64) {
        let window = charge.at().as_nanos() / 1000 / self.shared.period;
        if let Some(count) = self.shared.counts.peek_with(&(name, window), |_, count| Arc::clone(count)) {
            count.give_back(tokens);
        }
    }

    /// Forgets what was admitted in the windows at hand.
    pub(crate) fn forget(&self, name: Name) {
        let window = self.shared.now() / self.shared.period;
        for window in [window.wrapping_sub(1), window] {
            if self.shared.counts.remove_sync(&(name, window)) {
                // ORDERING: relaxed; a count. A sweep may have left it out already.
                let _ = self.shared.size.fetch_update(Relaxed, Relaxed, |size| size.checked_sub(1));
            }
        }
    }

    /// Tells the store all that it was not told. Until then, or for as long as a check may take.
    pub(crate) async fn flush(&self) {
        let shared = &self.shared;
        let all = async {
            loop {
                let mut unsynced = 0;
                shared.each(|count| {
                    if count.fields().unsynced() > 0 && shared.is_of_interest(count) {
                        unsynced += 1;
                        shared.enqueue(count);
                    }
                });
                if unsynced == 0 {
                    return;
                }
                shared.tell_round().await;
                // Another task may have the right to tell some of them, or there is no connection.
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(shared.core.deadline, all).await;
    }

    /// Adds what is unsynchronized just now.
    pub(crate) fn add_to(&self, stats: &mut SharedStats) {
        let SharedStats { unsynced, in_flight, most_unsynced, .. } = self.shared.unsynced();
        *stats = SharedStats { unsynced, in_flight, most_unsynced, ..*stats };
    }
}
