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
//! windows at hand again; one that has no requests looks five times a second. Until the others have had the time to do so (two seconds: as long as they may take to notice that
//! the store is back), it takes no answer for a confirmation: it goes on spending what it has of `max_unsynced`, and gets
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
//! there is no connection, [`OnFailure`](super::OnFailure) answers, which denies unless it was told otherwise. (What it
//! admits is beyond the bound.) A request that costs more than `max_unsynced` asks the store.

use super::atomics::{Acquire, AtomicBool, AtomicU64, Relaxed, Release};
use super::core::{Asked, Core};
use super::count::{Count, Full, MOST_LIMIT, MOST_UNSYNCED};
use super::error::BuildError;
use super::method::Op;
use super::name::Name;
use super::script::Failure;
use super::script::{Call, Reply, Script};
use super::stats::{Event, SharedStats};
use crate::{Algorithm, Decision, Source, Tick};
use scc::{HashIndex, Queue};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long counts are gathered before they are told; drawn at random between half and one and a half of it.
const INTERVAL: Duration = Duration::from_millis(20);
/// How many are told in one write.
const BATCH: usize = 128;
/// How long others may take to tell a store again what it has lost; in microseconds.
const RECOVERY: u64 = 2_000_000;
/// How long an idle state is kept in the store.
const GRACE_MS: u64 = 1000;

pub(super) struct Unsynced {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    script: Script,
    /// By which the store knows this machine: another one each time.
    node: String,
    most: u64,
    limit: u64,
    /// In microseconds.
    period: u64,
    sliding: bool,
    max_keys: u64,
    start: Instant,
    /// The store's time at `start`, in microseconds since the Unix epoch.
    origin: AtomicU64,
    counts: HashIndex<(Name, u64), Arc<Count>>,
    size: AtomicU64,
    /// In which window those of earlier ones were forgotten last.
    swept: AtomicU64,
    dirty: Queue<Arc<Count>>,
    /// Told when there is something to tell, and when it is urgent.
    woken: Notify,
    hurry: Notify,
    telling: AtomicBool,
    /// The connection that was heard last, and until when answers are no confirmations, in microseconds since `start`.
    connection: AtomicU64,
    recovers_until: AtomicU64,
}

/// The right to tell the store a count. Whoever has it sees to it that what is not confirmed is told again.
struct Right<'s> {
    shared: &'s Shared,
    count: &'s Arc<Count>,
    heard: bool,
}

impl<'s> Right<'s> {
    /// For one who was given it by [`Count::push`].
    fn new(shared: &'s Shared, count: &'s Arc<Count>) -> Self {
        Self { shared, count, heard: false }
    }
}

impl Drop for Right<'_> {
    fn drop(&mut self) {
        self.count.pushed();
        // If nothing was heard, the store may have lost also what it had confirmed.
        if (!self.heard || self.count.fields().unsynced() > 0) && self.shared.is_of_interest(self.count) {
            self.shared.enqueue(self.count);
            self.shared.woken.notify_one();
        }
    }
}

/// What became of some counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// There were none.
    None,
    /// The store has answered for one of them at least.
    Some,
    /// It has not.
    Unheard,
}

impl Unsynced {
    /// Is that possible?
    pub(super) fn check_settings(
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

    pub(super) fn new(core: Arc<Core>, most: u64, max_keys: usize, period: u64, sliding: bool) -> Self {
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
            connection: AtomicU64::new(0),
            recovers_until: AtomicU64::new(0),
            core,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Checks; at `now`, or by the store's time as far as it is known.
    pub(super) async fn check(&self, asked: Asked<'_>, now: Option<Tick>, deadline: Instant) -> Decision {
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
    pub(super) fn peek(&self, asked: Asked<'_>, now: Option<Tick>) -> Decision {
        let shared = &self.shared;
        let now = shared.at(now);
        let window = now / shared.period;
        let present = shared.counts.peek_with(&(asked.name, window), |_, count| count.fields().present());
        let (present, before) = (present.unwrap_or(0), shared.before(asked.name, window));
        let used = present.saturating_add(shared.weighed(before, now)).saturating_add(asked.cost);
        shared.decision(used <= shared.limit, asked.cost, window, before, present, now)
    }

    /// Gives back what the store was not told of yet.
    pub(super) fn refund(&self, name: Name, charge: &Decision) {
        let window = charge.at().as_nanos() / 1000 / self.shared.period;
        if let Some(count) = self.shared.counts.peek_with(&(name, window), |_, count| Arc::clone(count)) {
            count.give_back(charge.charged());
        }
    }

    /// Forgets what was admitted in the windows at hand.
    pub(super) fn forget(&self, name: Name) {
        let window = self.shared.now() / self.shared.period;
        for window in [window.wrapping_sub(1), window] {
            if self.shared.counts.remove_sync(&(name, window)) {
                // ORDERING: relaxed; a count. A sweep may have left it out already.
                let _ = self.shared.size.fetch_update(Relaxed, Relaxed, |size| size.checked_sub(1));
            }
        }
    }

    /// Tells the store all that it was not told. Until then, or for as long as a check may take.
    pub(super) async fn flush(&self) {
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
    pub(super) fn add_to(&self, stats: &mut SharedStats) {
        let SharedStats { unsynced, in_flight, most_unsynced, .. } = self.shared.unsynced();
        *stats = SharedStats { unsynced, in_flight, most_unsynced, ..*stats };
    }
}

impl Shared {
    /// Microseconds since the limiter was built.
    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The store's time, in microseconds since the Unix epoch.
    fn now(&self) -> u64 {
        // ORDERING: relaxed; one number.
        self.origin.load(Relaxed).saturating_add(self.elapsed())
    }

    fn at(&self, now: Option<Tick>) -> u64 {
        now.or_else(|| self.core.now()).map_or_else(|| self.now(), |now| now.as_nanos() / 1000)
    }

    /// The store's time was `now` at some moment since `sent`.
    fn learn_time(&self, now: u64, sent: u64) {
        let (earliest, latest) = (now.saturating_sub(self.elapsed()), now.saturating_sub(sent));
        // ORDERING: relaxed, as in `now`.
        let origin = self.origin.load(Relaxed);
        if origin < earliest || origin > latest {
            // ORDERING: relaxed, as in `now`.
            self.origin.store(origin.clamp(earliest, latest), Relaxed);
        }
    }

    /// The count of a window; `None` if there are too many.
    fn count(self: &Arc<Self>, name: Name, text: &str, window: u64) -> Option<Arc<Count>> {
        let key = (name, window);
        if let Some(count) = self.counts.peek_with(&key, |_, count| Arc::clone(count)) {
            return Some(count);
        }
        self.sweep(window);
        // ORDERING: relaxed; a count.
        if self.size.load(Relaxed) >= self.max_keys {
            return None;
        }
        if self.counts.insert_sync(key, Arc::new(Count::new(name, text, window))).is_ok() {
            // ORDERING: relaxed, as above.
            self.size.fetch_add(1, Relaxed);
        }
        self.counts.peek_with(&key, |_, count| Arc::clone(count))
    }

    /// What the window before has admitted, by what is known.
    fn before(&self, name: Name, window: u64) -> u64 {
        if !self.sliding {
            return 0;
        }
        let key = (name, window.wrapping_sub(1));
        self.counts.peek_with(&key, |_, count| count.fields().present()).unwrap_or(0)
    }

    /// How much of it counts at `now`, rounded up.
    fn weighed(&self, before: u64, now: u64) -> u64 {
        let rest = self.period - now % self.period;
        let weighed = (u128::from(before) * u128::from(rest)).div_ceil(u128::from(self.period));
        u64::try_from(weighed).unwrap_or(u64::MAX)
    }

    /// Forgets windows that nobody asks for any more, once in each.
    fn sweep(self: &Arc<Self>, window: u64) {
        // A caller may give a time that is far ahead of those that others ask at.
        let window = window.min(self.now() / self.period);
        // ORDERING: relaxed; it protects nothing but the number of tasks.
        if self.swept.fetch_max(window, Relaxed) >= window {
            return;
        }
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let mut left = 0;
            shared.counts.retain_sync(|&(_, of), _| {
                left += u64::from(of + 1 >= window);
                of + 1 >= window
            });
            // ORDERING: relaxed; a count. What was inserted meanwhile is counted the next time.
            shared.size.store(left, Relaxed);
        });
    }

    fn decision(
        &self,
        granted: bool,
        cost: u64,
        window: u64,
        before: u64,
        present: u64,
        now: u64,
    ) -> Decision {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let reply = [granted.into(), 0, window, before, present, now].map(number);
        let op = Op::Check { cost, lease: 0 };
        let answer = self.core.method.answer(&reply, op, Source::Ahead);
        answer.expect("windows answer with six numbers").decision
    }

    fn each(&self, mut visit: impl FnMut(&Arc<Count>)) {
        self.counts.iter_sync(|_, count| {
            visit(count);
            true
        });
    }

    fn unsynced(&self) -> SharedStats {
        let mut stats = SharedStats::default();
        self.each(|count| {
            // What nobody asks for any more adds to no overshoot.
            if !self.is_of_interest(count) {
                return;
            }
            let fields = count.fields();
            stats.unsynced += fields.unsynced();
            stats.in_flight += fields.in_flight;
            stats.most_unsynced = stats.most_unsynced.max(fields.unsynced());
        });
        stats
    }

    fn enqueue(&self, count: &Arc<Count>) {
        if count.enqueue() {
            self.dirty.push(Arc::clone(count));
        }
    }

    /// Sees to it that the store is told of `count`.
    fn tell_later(self: &Arc<Self>, count: &Arc<Count>) {
        self.enqueue(count);
        // ORDERING: relaxed; it protects nothing but the number of tasks.
        if !self.telling.load(Relaxed) && !self.telling.swap(true, Relaxed) {
            tokio::spawn(Teller(Arc::downgrade(self)).run());
        }
        self.woken.notify_one();
    }

    /// Tells the store what it is to be told now, until it does not answer. What comes meanwhile waits for the next time.
    async fn tell_round(&self) -> Told {
        let mut rounds = self.dirty.len().div_ceil(BATCH);
        let mut told = Told::None;
        while rounds > 0 {
            told = self.tell_some().await;
            rounds = if told == Told::Some { rounds - 1 } else { 0 };
        }
        told
    }

    /// Tells the store some counts that it does not know yet.
    async fn tell_some(&self) -> Told {
        let mut counts = Vec::new();
        while counts.len() < BATCH
            && let Some(count) = self.dirty.pop()
        {
            let count = Arc::clone(&count);
            count.dequeued();
            if count.push() {
                counts.push(count);
            }
        }
        if counts.is_empty() {
            return Told::None;
        }
        // Given back also if this future is dropped.
        let mut rights: Vec<_> = counts.iter().map(|count| Right::new(self, count)).collect();
        let told: Vec<u64> = counts.iter().map(|count| count.send()).collect();
        let calls: Vec<_> =
            counts.iter().zip(&told).map(|(count, &told)| self.call("push", count, told)).collect();
        let sent = self.elapsed();
        let answers = self.core.client.call_all(&calls, self.core.deadline()).await;
        self.notice_connection();
        let mut outcome = Told::Unheard;
        for ((right, &told), answer) in rights.iter_mut().zip(&told).zip(answers) {
            match answer.and_then(Heard::read) {
                Ok(heard) => {
                    outcome = Told::Some;
                    self.core.counters.count(Event::ByStore);
                    self.hear(right, &heard, told, 0, sent);
                }
                Err(failure) => {
                    if failure != Failure::Unknown {
                        right.count.unsent();
                    }
                    self.core.count(&failure);
                }
            }
        }
        outcome
    }

    fn is_of_interest(&self, count: &Count) -> bool {
        count.window + 1 >= self.now() / self.period
    }

    /// The store has answered for a count, of which it was told `told`, and has granted `more`.
    fn hear(&self, right: &mut Right<'_>, heard: &Heard, told: u64, more: u64, sent: u64) {
        let count = right.count;
        right.heard = true;
        self.learn_time(heard.now, sent);
        if heard.before < count.confirmed() && !self.has_just_lost() {
            self.recover();
        }
        // What it knows of this machine may be more than was admitted: a grant whose answer was lost.
        let own = heard.before.max(told) + more;
        let others = heard.total.saturating_sub(own);
        if self.recovers() {
            count.learn(others);
        } else {
            count.confirm(told + more, others);
        }
        if self.sliding {
            self.learn_previous(count, heard.previous.saturating_sub(heard.share));
        }
    }

    /// What others have admitted in the window before.
    fn learn_previous(&self, count: &Count, others: u64) {
        let Some(window) = count.window.checked_sub(1).filter(|_| others > 0) else { return };
        let key = (count.name, window);
        if self.counts.peek_with(&key, |_, before| before.learn(others)).is_none() {
            let before = Count::new(count.name, &count.text, window);
            before.learn(others);
            if self.counts.insert_sync(key, Arc::new(before)).is_ok() {
                // ORDERING: relaxed; a count.
                self.size.fetch_add(1, Relaxed);
            }
        }
    }

    /// If there is a new connection, the store behind it may have lost what it was told.
    fn notice_connection(&self) {
        let connection = self.core.client.connections();
        // ORDERING: acquire: see below.
        let before = self.connection.load(Acquire);
        if before == connection {
            return;
        }
        if before != 0 {
            self.recover();
        }
        // ORDERING: release: who finds that it is known finds that it recovers. So it is stored last.
        self.connection.store(connection, Release);
    }

    /// Tells everything again, and takes no answer for a confirmation until others have done the same.
    fn recover(&self) {
        // ORDERING: relaxed; one number.
        self.recovers_until.store(self.elapsed() + RECOVERY, Relaxed);
        self.each(|count| self.enqueue(count));
        self.woken.notify_one();
    }

    /// Has one count told again, if there is any that the store could lose: a machine without requests has to notice a
    /// new connection, too.
    fn look_after(&self) {
        self.counts.iter_sync(|_, count| {
            let is_told = count.confirmed() > 0 && self.is_of_interest(count);
            if is_told {
                self.enqueue(count);
            }
            !is_told
        });
    }

    fn recovers(&self) -> bool {
        // ORDERING: relaxed, as in `recover`.
        self.elapsed() < self.recovers_until.load(Relaxed)
    }

    /// Is all being told again since so short a time that more news of the loss is no other loss?
    fn has_just_lost(&self) -> bool {
        // ORDERING: relaxed, as in `recover`.
        self.elapsed() + RECOVERY * 3 / 4 < self.recovers_until.load(Relaxed)
    }

    fn call<'s>(&'s self, op: &str, count: &'s Count, told: u64) -> Call<'s> {
        let call = Call::new(&self.script, &count.text).text(op);
        let call = match self.core.now() {
            Some(now) => call.number(now.as_nanos() / 1000),
            None => call.text(""),
        };
        call.number(self.period).number(GRACE_MS).text(&self.node).number(count.window).number(told)
    }

    /// Asks the store for `cost` tokens: were they granted, and what is present then?
    async fn take(&self, mut right: Right<'_>, cost: u64, deadline: Instant) -> Result<(bool, u64), Failure> {
        if self.recovers() {
            return Err(Failure::Unavailable);
        }
        let count = right.count;
        let told = count.send();
        let call = self.call("take", count, told).number(cost).number(self.limit).number(self.sliding.into());
        let sent = self.elapsed();
        let answer = self.core.client.call(&call, deadline).await;
        self.notice_connection();
        match answer.and_then(Heard::read) {
            Ok(heard) => {
                self.core.counters.count(Event::ByStore);
                if self.recovers() || heard.before < count.confirmed() {
                    // It granted without knowing of all.
                    self.hear(&mut right, &heard, told, 0, sent);
                    return Err(Failure::Unknown);
                }
                self.hear(&mut right, &heard, told, if heard.granted { cost } else { 0 }, sent);
                Ok((heard.granted, count.fields().present()))
            }
            Err(failure) => {
                // If that is unknown, the store may have counted what nobody was given: then it knows as much more of this
                // machine than was admitted, until that comes up to it.
                if failure != Failure::Unknown {
                    count.unsent();
                }
                self.core.count(&failure);
                Err(failure)
            }
        }
    }
}

/// What the store has answered.
struct Heard {
    granted: bool,
    /// What it had known of this machine.
    before: u64,
    total: u64,
    previous: u64,
    /// This machine's part of `previous`.
    share: u64,
    now: u64,
}

impl Heard {
    fn read(reply: Reply) -> Result<Self, Failure> {
        let numbers: Vec<u64> = reply.iter().map(|&number| u64::try_from(number).unwrap_or(0)).collect();
        let &[granted, before, total, previous, share, now] = &*numbers else {
            return Err(Failure::Refused("a script has answered with other numbers".to_owned()));
        };
        Ok(Self { granted: granted == 1, before, total, previous, share, now })
    }
}

/// The task that tells the store. It ends with the limiter.
struct Teller(Weak<Shared>);

impl Teller {
    async fn run(self) {
        let mut told = Told::None;
        loop {
            let Some(shared) = self.0.upgrade() else { return };
            if shared.dirty.is_empty() {
                // Not for ever: or the limiter would never end.
                if timeout(INTERVAL * 10, shared.woken.notified()).await.is_err() {
                    shared.look_after();
                }
                continue;
            }
            let pause = INTERVAL.mul_f32(0.5 + fastrand::f32());
            if told == Told::Unheard || shared.recovers() {
                // To hurry would bring nothing.
                sleep(pause).await;
            } else {
                let _ = timeout(pause, shared.hurry.notified()).await;
            }
            told = shared.tell_round().await;
        }
    }
}

impl Drop for Teller {
    /// Also when its runtime ends: then the next request, in another one, starts the next.
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            // ORDERING: relaxed, as in `tell_later`.
            shared.telling.store(false, Relaxed);
        }
    }
}
