//! [`SharedPermit`], and the task that keeps its entry in the store.
//!
//! Each permit has a task that requests, renews and removes an entry in the store. The entry
//! therefore has a single owner from the first request, whatever happens to the caller. The task
//! removes the entry if the caller stops waiting or the answer is late. Dropping a permit merely
//! wakes the task.
//!
//! ```text
//! asks -> denied                      there is no entry
//! asks -> no answer                   removes the entry, which a late answer may have created
//! asks -> granted -> nobody waits     removes the entry
//! granted -> held -> held             renews the entry after each third of the lifetime
//! held -> over                        removes the entry, when the permit is dropped or released
//! ```
//!
//! If the store does not answer the removal, the task repeats the request until the store answers
//! or the entry's lifetime has passed. The task does not give up earlier, because an open breaker
//! sends nothing, and because a lifetime may be much longer than a store outage.
//!
//! # Invariants
//!
//! 1. Each entry has a unique name. A removal, even if late or repeated, therefore never removes
//!    another entry.
//! 2. `until` is measured from a moment before the renewal is sent. This machine therefore never
//!    treats a permit as held for longer than the store does.
//! 3. An entry has at most one request under way. A renewal can therefore follow the removal only
//!    if a connection is lost in between. In that case, the entry expires at the end of its
//!    lifetime.

use crate::client::Client;
use crate::scripts::script::{Call, Failure, Reply, Script};
use crate::stats::{Counters, Event};
use crate::words::atomics::{AtomicU64, Relaxed};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Decision, DecisionParts, DecisionSource, Denied, Outcome, Permit, Tick};

/// The number of renewals in a lifetime.
const RENEWALS: u32 = 3;

/// The data that a limit's permits need for their requests to the store.
#[derive(Debug)]
pub(super) struct StorePermits {
    pub(super) client: Client,
    pub(super) script: Script,
    pub(super) limit: u64,
    pub(super) lifetime: Duration,
    pub(super) deadline: Duration,
    pub(super) counters: Counters,
    pub(super) start: Instant,
}

/// This value is dropped once a permit has been returned, wherever the permit was held. The drop
/// wakes a caller that waits for a permit.
pub(crate) type After = Option<Arc<dyn Send + Sync>>;

/// The entry of one permit in the store.
struct StoreEntry {
    permits: Arc<StorePermits>,
    /// The key's name in the store.
    text: String,
    /// The name of this entry; no other entry has the same name.
    name: String,
    _after: After,
}

/// A permit for one request in flight. All machines share a key's permits. A permit is held until
/// it is dropped.
///
/// Created by [`SharedInFlight::acquire`](crate::SharedInFlight::acquire). A permit owns all its
/// data, so a task or a response body can own the permit.
///
/// While the permit lives, a task renews it in the store every third of the
/// [lifetime](crate::SharedBuilder::lifetime). Dropping the permit returns it in the background,
/// from any thread; [`release`](Self::release) waits until it has been returned. If the store does
/// not answer, the task repeats the request until the store answers or the lifetime has passed. If
/// the process dies, the runtime ends, or the store stays unreachable, the permit becomes free at
/// the end of its lifetime.
///
/// A permit that is never dropped, for example after [`std::mem::forget`] or in a task that hangs,
/// is held as long as its process runs.
#[must_use = "a permit that is dropped at once is given back"]
pub struct SharedPermit {
    decision: Decision,
    /// The permit that this machine's limiter granted for the same request, so that the limiter
    /// knows the traffic when it has to decide.
    local: Option<Permit>,
    stored: Option<Stored>,
    // Fields are dropped in the order of their declaration.
    after: After,
}

/// A permit that is held in the store.
struct Stored {
    /// Dropping the sender ends the task.
    end: Sender<()>,
    task: JoinHandle<()>,
    permits: Arc<StorePermits>,
    /// The time until which the permit is certain to be held, in microseconds since the limit was
    /// built.
    until: Arc<AtomicU64>,
}

/// The store's answer to a request for a permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct PermitReply {
    pub(super) is_granted: bool,
    pub(super) out: u64,
}

/// Returns the decision on one permit. The reply reports how many other permits were in use.
pub(super) fn decision(limit: u64, reply: PermitReply, source: DecisionSource) -> Decision {
    let outcome = if reply.is_granted { Outcome::Allowed } else { Outcome::Denied };
    Decision::from(DecisionParts {
        outcome,
        cost: 1,
        capacity: limit,
        remaining: limit.saturating_sub(reply.out).saturating_sub(u64::from(reply.is_granted)),
        // It is unknown when a permit will be free.
        wait: reply.is_granted.then_some(Duration::ZERO),
        reset_after: Duration::MAX,
        refill_after: Duration::MAX,
        at: Tick::ZERO,
        source,
    })
}

impl StorePermits {
    pub(super) fn call<'s>(&'s self, key: &'s str, op: &str, name: &str) -> Call<'s> {
        let lifetime = u64::try_from(self.lifetime.as_micros()).unwrap_or(u64::MAX);
        Call::new(&self.script, key, None).text(op).text(name).numbers([lifetime, self.limit])
    }

    pub(super) async fn ask(&self, key: &str, op: &str, name: &str) -> Result<PermitReply, Failure> {
        let answered = self.client.call(&self.call(key, op, name), Instant::now() + self.deadline).await;
        let read = |reply: Reply| match &*reply {
            &[granted, out] => {
                Ok(PermitReply { is_granted: granted == 1, out: u64::try_from(out).unwrap_or(0) })
            }
            _ => Err(Failure::Unknown),
        };
        self.counters.note(answered.and_then(read))
    }

    /// Acquires one of the key's permits in the store, in a separate task.
    pub(super) async fn hold(
        self: &Arc<Self>,
        text: String,
        after: After,
    ) -> Result<Result<SharedPermit, Denied>, Failure> {
        let name = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let entry = StoreEntry { permits: Arc::clone(self), text, name, _after: after.clone() };
        let until = Arc::new(AtomicU64::new(0));
        let (answer, answered) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let spawned = self.client.runtime().spawn(entry.live(Arc::clone(&until), answer, ended));
        let Some(task) = spawned else {
            self.client.network.note_missing_runtime();
            self.counters.count(Event::Unsent);
            return Err(Failure::Unavailable);
        };
        // An error means that the task has ended together with its runtime.
        let reply = answered.await.unwrap_or(Err(Failure::Unknown))?;
        let stored = Some(Stored { end, task, permits: Arc::clone(self), until });
        let decision = decision(self.limit, reply, DecisionSource::Store);
        Ok(decision.ok().map(|()| SharedPermit { decision, local: None, stored, after }))
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl StoreEntry {
    async fn live(
        self,
        until: Arc<AtomicU64>,
        answer: Sender<Result<PermitReply, Failure>>,
        mut ended: Receiver<()>,
    ) {
        let asked = self.renew(&until).await;
        let may_be_held = match &asked {
            Ok(reply) => reply.is_granted,
            // Another error may be that of a proxy, after the server has executed the request. The
            // lifetime then ends the permit: a proxy without a server refuses every release.
            Err(failure) => *failure == Failure::Unknown,
        };
        let is_held = matches!(&asked, Ok(reply) if reply.is_granted);
        let is_heard = answer.send(asked).is_ok();
        if is_held && is_heard {
            while timeout(self.permits.lifetime / RENEWALS, &mut ended).await.is_err() {
                let _ = self.renew(&until).await;
            }
        }
        if may_be_held && self.give_back().await.is_err() {
            // A new task retries, because callers of `release` wait for only one attempt.
            let client = self.permits.client.clone();
            client.runtime().spawn(self.give_back_later());
        }
    }

    async fn give_back(&self) -> Result<PermitReply, Failure> {
        self.permits.ask(&self.text, "release", &self.name).await
    }

    /// Repeats the request until the store answers, or until the entry has expired.
    async fn give_back_later(self) {
        let StorePermits { lifetime, deadline, .. } = *self.permits;
        let over = Instant::now() + lifetime;
        let mut pause = deadline;
        while Instant::now() < over {
            sleep(pause).await;
            if self.give_back().await.is_ok() {
                return;
            }
            pause = (pause * 2).min(lifetime / RENEWALS);
        }
    }

    /// Extends the permit by another lifetime. If the permit was lost, acquires it again if one is
    /// free.
    async fn renew(&self, until: &AtomicU64) -> Result<PermitReply, Failure> {
        let sent = self.permits.elapsed();
        let asked = self.permits.ask(&self.text, "hold", &self.name).await;
        if let Ok(reply) = &asked {
            let lifetime = u64::try_from(self.permits.lifetime.as_micros()).unwrap_or(u64::MAX);
            let end = if reply.is_granted { sent.saturating_add(lifetime) } else { 0 };
            // ORDERING: relaxed, because only this task writes this single number.
            until.store(end, Relaxed);
        }
        asked
    }
}

impl SharedPermit {
    /// Creates a permit that is counted only by the limiter on this machine, or not at all.
    pub(super) fn of_fallback(decision: Decision, local: Option<Permit>, after: After) -> Self {
        Self { decision, local, stored: None, after }
    }

    /// Adds the permit that this machine's limiter granted for the same request.
    pub(super) fn with(self, local: Option<Permit>) -> Self {
        Self { local, ..self }
    }

    /// Returns the decision that granted the permit. The decision's figures do not change later.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedInFlight;
    /// # async fn ask(jobs: SharedInFlight<str>) -> Result<(), tollgate::Denied> {
    /// let permit = jobs.acquire("alice").await?;
    /// println!("{} more may come", permit.decision().remaining());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns whether the permit is certain to be held, because the store has confirmed it within
    /// the last lifetime, or because this machine's limiter has granted it.
    ///
    /// The result becomes false if no renewal is answered for a whole lifetime. It becomes true
    /// again when a renewal finds a free permit. If the work must never exceed the limit, stop it
    /// once the result is false.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedInFlight;
    /// # async fn ask(jobs: SharedInFlight<str>) -> Result<(), tollgate::Denied> {
    /// let permit = jobs.acquire("alice").await?;
    /// assert!(permit.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_held(&self) -> bool {
        match &self.stored {
            // ORDERING: relaxed, as in `renew`.
            Some(stored) => stored.permits.elapsed() < stored.until.load(Relaxed),
            None => self.local.is_some(),
        }
    }

    /// Returns the permit. Waits until the store has answered or the deadline has passed. If the
    /// store has not answered by then, a background task repeats the request.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedInFlight;
    /// # async fn ask(jobs: SharedInFlight<str>) -> Result<(), tollgate::Denied> {
    /// jobs.acquire("alice").await?.release().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) {
        let Self { local, stored, after, .. } = self;
        drop(local);
        if let Some(Stored { end, task, .. }) = stored {
            drop(end);
            // An error means that the runtime is ending.
            let _ = task.await;
        }
        drop(after);
    }
}

impl fmt::Debug for SharedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_stored = self.stored.is_some();
        f.debug_struct("SharedPermit")
            .field("is_stored", &is_stored)
            .field("is_held", &self.is_held())
            .finish()
    }
}
