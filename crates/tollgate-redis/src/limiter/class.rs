//! [`Class`]: one class of callers of a limit, with its quota, the names of its keys, and its state
//! on this machine.

use crate::core::{self, Core, Request};
use crate::health::{Problem, StoreProblem};
use crate::lease::Leases;
use crate::name::{Name, Naming};
use crate::scripts::rule::Op;
use crate::scripts::script::Failure;
use crate::stats::{Event, SharedStats};
use crate::unsynced::Unsynced;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tollgate::{Decision, DecisionParts, DecisionSource, Outcome, Quota, Tick};

pub(crate) struct Class {
    pub(crate) core: Arc<Core>,
    pub(crate) naming: Naming,
    pub(crate) mode: Mode,
    pub(crate) quota: Quota,
    /// How long a denial pauses its key; `None` if denials pause no key.
    pub(crate) penalty: Option<Duration>,
}

pub(crate) enum Mode {
    Exact,
    Lease(Leases),
    Unsynced(Unsynced),
}

impl Class {
    /// Returns how this machine counts. A future without a timer can wait neither for a lease nor
    /// for a report, and the requests of the exact mode then fail without a wait.
    fn mode(&self) -> &Mode {
        match self.core.client.runtime().has_timer() {
            true => &self.mode,
            false => &Mode::Exact,
        }
    }

    /// Checks a request at `now`, or according to the limit's own clock if `now` is `None`. If the
    /// caller chooses the time, the request bypasses the lease.
    pub(crate) async fn check(&self, request: Request<'_>, now: Option<Tick>, deadline: Instant) -> Decision {
        let decision = match (self.mode(), now) {
            (Mode::Lease(leases), None) => leases.check_by(deadline, request).await,
            (Mode::Unsynced(counts), _) => counts.check(request, now, deadline).await,
            (Mode::Exact | Mode::Lease(_), _) => self.core.check_by(deadline, request, now).await,
        };
        self.penalize(request, decision, now, deadline).await
    }

    /// Decides a request if that is possible without the store. This is the first step of
    /// [`check`](Self::check). `text` returns the key's name in the store.
    pub(crate) fn check_here(
        &self,
        name: &Name,
        cost: u64,
        text: impl FnOnce() -> String,
        now: Option<Tick>,
    ) -> Option<Decision> {
        match (&self.mode, now) {
            (Mode::Lease(leases), None) => leases.check_here(name, cost, text),
            (Mode::Unsynced(counts), _) => counts.check_here(name, cost, text, now),
            (Mode::Exact | Mode::Lease(_), _) => None,
        }
    }

    /// Decides a request in place of the store. `decided` is the decision of
    /// [`check_here`](Self::check_here), if there was one: a denial whose penalty the store has not
    /// confirmed. `event` states what became of the request to the store.
    pub(crate) fn decide_alone(
        &self,
        name: &Name,
        cost: u64,
        decided: Option<&Decision>,
        event: Event,
    ) -> Decision {
        self.core.counters.count(event);
        let decision = decided.copied().unwrap_or_else(|| self.core.fall_back(name, cost));
        let Some(penalty) = self.penalty_of(&decision) else { return decision };
        self.core.fallback.pause(name, penalty);
        held_back(cost, &decision, penalty)
    }

    pub(crate) async fn peek(&self, request: Request<'_>, now: Option<Tick>) -> Decision {
        let decision = if let Mode::Unsynced(counts) = &self.mode {
            counts.peek(request, now)
        } else {
            match self.core.ask(request.text, Op::Peek { cost: request.cost }, now).await {
                Ok(answer) => answer.decision,
                Err(_) => self.core.fallback.peek(&request.name, request.cost, self.core.rule.capacity()),
            }
        };
        match self.penalty_of(&decision) {
            Some(penalty) => held_back(request.cost, &decision, penalty),
            None => decision,
        }
    }

    /// Returns how long `decision` pauses its key. Only the state of the key can start a penalty,
    /// and the state of a key that is paused already does not.
    pub(crate) fn penalty_of(&self, decision: &Decision) -> Option<Duration> {
        let is_of_key =
            matches!(decision.source(), DecisionSource::Store | DecisionSource::Lease | DecisionSource::Key);
        self.penalty.filter(|_| is_of_key && decision.outcome() == Outcome::Denied)
    }

    /// Pauses the key of a denied request, if the limit has a penalty. Returns the decision, which
    /// then reports the end of the pause.
    pub(crate) async fn penalize(
        &self,
        request: Request<'_>,
        decision: Decision,
        now: Option<Tick>,
        deadline: Instant,
    ) -> Decision {
        let Some(penalty) = self.penalty_of(&decision) else { return decision };
        if decision.source() == DecisionSource::Key {
            // The store did not answer the check, so it is not asked again.
            self.core.fallback.pause(&request.name, penalty);
        } else {
            let _ = self.pause_by(deadline, request, penalty, now).await;
        }
        held_back(request.cost, &decision, penalty)
    }

    /// Returns the quota that `decision` used: the fallback's share, or the class's own quota.
    #[cfg(feature = "wait")]
    pub(crate) fn quota_of(&self, decision: &Decision) -> Quota {
        let fallback = self.core.fallback.quota();
        let local = match decision.source() {
            DecisionSource::Key | DecisionSource::Overflow => fallback,
            // The store and the fallback both pause keys, and differ in their capacities.
            DecisionSource::Pause => fallback.filter(|share| share.capacity() == decision.capacity()),
            _ => None,
        };
        local.unwrap_or(self.quota)
    }

    /// Gives back at most `request.cost` of the tokens that `decision` took. The tokens return to
    /// where they were taken from: the store or this machine.
    pub(crate) async fn refund(&self, request: Request<'_>, decision: &Decision, now: Option<Tick>) {
        let Request { name, text, cost } = request;
        let tokens = decision.charged().min(cost);
        if tokens == 0 {
            return;
        }
        match (decision.source(), &self.mode) {
            (DecisionSource::Store, mode) => {
                let refund = Op::Refund { charge: self.core.rule.charge(decision), tokens };
                let _ = self.core.ask(text, refund, now).await;
                if let Mode::Lease(leases) = mode {
                    leases.ask_again(&name);
                }
            }
            (DecisionSource::Lease, Mode::Lease(leases)) => leases.refund(&name, decision, tokens),
            (DecisionSource::Lease, Mode::Unsynced(counts)) => counts.refund(name, decision, tokens),
            (DecisionSource::Key | DecisionSource::Overflow, _) => {
                self.core.fallback.refund(&name, decision, tokens)
            }
            _ => {}
        }
    }

    /// Charges tokens that are already spent, and returns how many were charged.
    pub(crate) async fn force(&self, request: Request<'_>, now: Option<Tick>) -> u64 {
        match self.mode() {
            _ if request.cost == 0 => 0,
            Mode::Unsynced(counts) => counts.force(request, now, self.core.deadline()).await,
            Mode::Lease(leases) if now.is_none() => leases.force(request).await,
            Mode::Exact | Mode::Lease(_) => self.core.force(request, now).await,
        }
    }

    pub(crate) async fn reset(&self, name: Name, text: &str, now: Option<Tick>) -> Result<(), StoreProblem> {
        if let Mode::Unsynced(counts) = &self.mode {
            // Counts must not be pushed behind the deletion.
            counts.forget(name, now);
        }
        let deleted = self.core.client.delete(text, self.core.deadline()).await;
        // This machine's state is reset after the deletion, because tokens leased or pushed before
        // the deletion belong to the deleted state.
        self.core.fallback.reset(&name);
        match &self.mode {
            Mode::Exact => {}
            Mode::Lease(leases) => leases.forget(&name),
            Mode::Unsynced(counts) => counts.forget(name, now),
        }
        deleted.map_err(|failure| unconfirmed("reset", failure))
    }

    /// Pauses a key for `time`.
    pub(crate) async fn pause_by(
        &self,
        deadline: Instant,
        request: Request<'_>,
        time: Duration,
        now: Option<Tick>,
    ) -> Result<(), StoreProblem> {
        // The time is rounded up. A pause that would end after the last tick ends at the last tick.
        let most = Tick::MAX.as_nanos() / 1000;
        let micros = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(most).min(most);
        if micros == 0 {
            return Ok(());
        }
        self.core.fallback.pause(&request.name, time);
        let paused = match &self.mode {
            Mode::Unsynced(counts) => counts.state.pause(request, micros, now, deadline).await,
            Mode::Exact | Mode::Lease(_) => {
                self.core.ask_by(deadline, request.text, Op::Pause { time: micros }, now).await.map(drop)
            }
        };
        // The store grants no lease for a paused key, so no new lease can follow the forgotten
        // ones.
        if let Mode::Lease(leases) = &self.mode {
            leases.forget(&request.name);
        }
        paused.map_err(|failure| unconfirmed("paused", failure))
    }

    pub(crate) async fn flush(&self) {
        if let Mode::Unsynced(counts) = self.mode() {
            counts.flush().await;
        }
    }

    /// Adds the class's tokens that this machine has leased but not spent, or admitted but not yet
    /// synchronized.
    pub(crate) fn add_to(&self, stats: &mut SharedStats) {
        match &self.mode {
            Mode::Exact => {}
            Mode::Lease(leases) => stats.leased += leases.held(),
            Mode::Unsynced(counts) => counts.add_to(stats),
        }
    }

    /// Checks requests in the given order. Uses as few round trips as the servers allow.
    pub(crate) async fn check_many(&self, requests: &[Request<'_>], now: Option<Tick>) -> Vec<Decision> {
        let deadline = self.core.deadline();
        let mut decisions = match (self.mode(), now) {
            (Mode::Unsynced(counts), _) => {
                let mut decisions = Vec::with_capacity(requests.len());
                for request in requests {
                    decisions.push(counts.check(*request, now, self.core.deadline()).await);
                }
                decisions
            }
            (Mode::Lease(leases), None) => leases.check_many(requests).await,
            (Mode::Exact | Mode::Lease(_), _) => core::check_all(&self.core, requests, now).await,
        };
        let penalties = requests.iter().zip(&mut decisions).map(async |(request, decision)| {
            *decision = self.penalize(*request, *decision, now, deadline).await;
        });
        join_all(penalties).await;
        decisions
    }
}

/// Returns a denial whose figures respect a pause of the key for `time` from now on.
fn held_back(cost: u64, denied: &Decision, time: Duration) -> Decision {
    let reset_after = denied.reset_after().max(time);
    Decision::from(DecisionParts {
        outcome: denied.outcome(),
        cost,
        capacity: denied.capacity(),
        remaining: 0,
        wait: denied.retry_after().map(|wait| wait.max(time)),
        reset_after,
        refill_after: reset_after,
        at: denied.at(),
        source: denied.source(),
    })
}

/// Returns why the store has not confirmed that a key is `done`: reset or paused.
fn unconfirmed(done: &'static str, failure: Failure) -> StoreProblem {
    let (reason, is_answered) = match failure {
        Failure::Unavailable => ("no connection to the store".to_owned(), false),
        Failure::Unknown => ("no valid answer of the store arrived in time".to_owned(), false),
        Failure::Refused(reason) | Failure::Server(reason) => (reason, true),
    };
    StoreProblem(Problem::Unconfirmed { done, reason, is_answered })
}
