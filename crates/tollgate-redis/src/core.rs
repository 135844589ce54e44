//! The parts that all modes of a shared limit use: requests to the store, and the fallback.

use crate::client::Client;
use crate::connection::trial::Trial;
use crate::fallback::Fallback;
use crate::name::Name;
use crate::scripts::rule::{Answer, Op, Rule};
use crate::scripts::script::{Failure, Reply};
use crate::stats::{Counters, Event};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tollgate::{Decision, DecisionSource, Tick};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) client: Client,
    pub(crate) rule: Rule,
    pub(crate) deadline: Duration,
    pub(crate) fallback: Fallback,
    pub(crate) client_clock: bool,
    /// The counters of all classes of the limiter.
    pub(crate) counters: Arc<Counters>,
    /// The client runs this trial while the limiter is in use.
    pub(crate) trial: Arc<Trial>,
}

/// A request: `cost` tokens of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'n> {
    pub(crate) name: Name,
    /// The key's name in the store.
    pub(crate) text: &'n str,
    pub(crate) cost: u64,
}

impl Request<'_> {
    /// Returns the operation of a check without a lease.
    fn check(&self) -> Op {
        Op::check(self.cost)
    }
}

/// Returns this machine's time of day.
pub(crate) fn system_time() -> Tick {
    Tick::from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

impl Core {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Returns the time to send to the store, or `None` if the script reads the server's clock.
    pub(crate) fn now(&self) -> Option<Tick> {
        self.client_clock.then(system_time)
    }

    /// Asks the store within the limit's deadline. Uses the time `now`, or the limit's own clock if
    /// `now` is `None`.
    pub(crate) async fn ask(&self, text: &str, op: Op, now: Option<Tick>) -> Result<Answer, Failure> {
        self.ask_by(self.deadline(), text, op, now).await
    }

    /// Asks the store with a given deadline, for callers that have already waited.
    pub(crate) async fn ask_by(
        &self,
        deadline: Instant,
        text: &str,
        op: Op,
        now: Option<Tick>,
    ) -> Result<Answer, Failure> {
        let call = self.rule.call(text, op, now.or_else(|| self.now()));
        let answered = self.client.call(&call, deadline).await;
        self.answer(answered, op)
    }

    fn answer(&self, answered: Result<Reply, Failure>, op: Op) -> Result<Answer, Failure> {
        // A script whose numbers are malformed has run.
        let read = |reply: Reply| self.rule.answer(&reply, op, DecisionSource::Store).ok_or(Failure::Unknown);
        self.counters.note(answered.and_then(read))
    }

    /// Checks with the store. If the store does not answer by the deadline, the fallback decides.
    pub(crate) async fn check_by(
        &self,
        deadline: Instant,
        request: Request<'_>,
        now: Option<Tick>,
    ) -> Decision {
        let answer = self.ask_by(deadline, request.text, request.check(), now).await;
        self.decide(request, answer)
    }

    pub(crate) fn decide(&self, request: Request<'_>, answer: Result<Answer, Failure>) -> Decision {
        match answer {
            Ok(answer) => {
                self.fallback.keep_warm(&request.name, answer.decision.charged());
                answer.decision
            }
            Err(_) => self.fall_back(&request.name, request.cost),
        }
    }

    /// Charges tokens that are already spent, and returns how many were charged. If the store does
    /// not answer, charges the fallback instead.
    pub(crate) async fn force(&self, request: Request<'_>, now: Option<Tick>) -> u64 {
        let op = Op::Force { tokens: request.cost, settled: [None; 2] };
        let answer = self.ask(request.text, op, now).await;
        self.forced(request, answer)
    }

    /// Returns how many tokens a forced charge has taken. If the store did not answer, charges the
    /// fallback.
    pub(crate) fn forced(&self, request: Request<'_>, answer: Result<Answer, Failure>) -> u64 {
        match answer {
            Ok(answer) => {
                let charged = answer.decision.charged();
                let _ = self.fallback.force(&request.name, charged);
                charged
            }
            Err(_) => {
                self.counters.count(Event::ByFallback);
                self.fallback.force(&request.name, request.cost)
            }
        }
    }

    pub(crate) fn fall_back(&self, name: &Name, cost: u64) -> Decision {
        self.counters.count(Event::ByFallback);
        self.fallback.check(name, cost, self.rule.capacity())
    }
}

/// Checks all requests with the store. Uses as few round trips as the servers allow.
pub(crate) async fn check_all(core: &Core, requests: &[Request<'_>], now: Option<Tick>) -> Vec<Decision> {
    let now = now.or_else(|| core.now());
    let calls: Vec<_> =
        requests.iter().map(|request| core.rule.call(request.text, request.check(), now)).collect();
    let answers = core.client.call_all(&calls, core.deadline()).await;
    let decide =
        |(request, answer): (&Request<'_>, _)| core.decide(*request, core.answer(answer, request.check()));
    requests.iter().zip(answers).map(decide).collect()
}
