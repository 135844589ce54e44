//! A linearizability checker. It searches for a legal order of the calls that explains what several
//! threads observed on a single key.
//!
//! A *history* consists of the calls and answers of each thread, with one stamp before and one
//! after each call. A *linearization* assigns each call a moment between its stamps. A sequential
//! limiter that receives the calls in the order of these moments must give the same answers. A
//! history is *linearizable* if it has a linearization. The search is the algorithm by Wing and
//! Gong ("Testing and verifying concurrent objects", 1993), with the memo of dead ends that Lowe
//! added ("Testing for linearizability", 2017).
//!
//! There are two sequential limiters. The oracle ([`ByDefinition`]) decides according to an
//! algorithm's definition. The pure rule ([`ByRule`]) also computes every value in a decision, and
//! how much a late refund is worth.

use super::Oracle;
use std::collections::HashSet;
use std::hash::Hash;
use tollgate::rule::{AnyRule, Rule, Word};
use tollgate::{Decision, Tick};

/// A call on the key.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    Check {
        cost: u64,
        now: Tick,
    },
    /// A refund of the check that was called at stamp `of`.
    Refund {
        of: u64,
        charge: Decision,
        tokens: u64,
        now: Tick,
    },
    Reset,
}

/// The answer to a check.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub allowed: bool,
    pub remaining: u64,
    /// The whole decision, if it is known.
    pub decision: Option<Decision>,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self { allowed: decision.is_allowed(), remaining: decision.remaining(), decision: Some(decision) }
    }
}

/// A call and its result.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub thread: usize,
    /// The call's round. Between two rounds, all threads wait for each other.
    pub round: usize,
    /// The stamps before and after the call. All stamps are values of the same counter, so no two
    /// are equal.
    pub called: u64,
    pub returned: u64,
    pub call: Call,
    /// The answer, if the call is a check.
    pub answer: Option<Answer>,
}

impl Event {
    fn was_denied(&self) -> bool {
        self.answer.is_some_and(|answer| !answer.allowed)
    }
}

/// The states on which a denial may be based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denials {
    /// A denial is based on the state at the moment of the call, like every other answer. This is
    /// the case if the stamps order memory, because a call then sees all calls that returned before
    /// it.
    OnThePresent,
    /// A denial may also be based on a slightly older state, and then reports that state's figures.
    /// The older state must include the thread's own calls and all calls of earlier rounds. Only
    /// refunds and resets by other threads can explain a denial that the current state would not
    /// give.
    OnAMomentAgo,
}

/// A limiter for one key and one thread.
pub trait Sequential {
    type State: Clone + Eq + Hash;
    fn fresh(&self) -> Self::State;
    /// Replays the call. Returns false if the call's answer differs.
    fn replay(&self, state: &mut Self::State, event: &Event) -> bool;
    /// Returns whether a check of `cost` at `now` is denied, regardless of the figures in the
    /// denial.
    fn denies(&self, state: &Self::State, cost: u64, now: Tick) -> bool;
}

/// Decides with the oracle. The oracle is exact if each refund has the same time as its charge and
/// no reset happens in between.
pub struct ByDefinition(pub Oracle);

impl Sequential for ByDefinition {
    /// The oracle, and the stamp of each charge.
    type State = (Oracle, Vec<u64>);

    fn fresh(&self) -> Self::State {
        (self.0.clone(), Vec::new())
    }

    fn replay(&self, (oracle, stamps): &mut Self::State, event: &Event) -> bool {
        match event.call {
            Call::Check { cost, now } => {
                let allowed = oracle.fits(now.as_nanos(), cost);
                if allowed {
                    oracle.charge(now.as_nanos(), cost);
                    stamps.push(event.called);
                }
                let remaining = oracle.remaining(now.as_nanos());
                event.answer.is_some_and(|seen| (seen.allowed, seen.remaining) == (allowed, remaining))
            }
            Call::Refund { of, tokens, .. } => match stamps.iter().position(|&stamp| stamp == of) {
                Some(index) => {
                    oracle.refund(index, tokens);
                    true
                }
                None => false,
            },
            Call::Reset => {
                oracle.reset();
                stamps.truncate(oracle.charges());
                true
            }
        }
    }

    fn denies(&self, (oracle, _): &Self::State, cost: u64, now: Tick) -> bool {
        !oracle.fits(now.as_nanos(), cost)
    }
}

/// Decides with the rule on a plain word.
pub struct ByRule(pub AnyRule);

impl Sequential for ByRule {
    type State = Word;

    fn fresh(&self) -> Word {
        Word::FRESH
    }

    fn replay(&self, word: &mut Word, event: &Event) -> bool {
        match event.call {
            Call::Check { cost, now } => {
                let (next, decision) = self.0.decide(*word, now, cost);
                *word = next;
                event.answer.is_some_and(|seen| match seen.decision {
                    Some(seen) => seen == decision,
                    None => (seen.allowed, seen.remaining) == (decision.is_allowed(), decision.remaining()),
                })
            }
            Call::Refund { charge, tokens, now, .. } => {
                *word = self.0.refund(*word, now, &charge, tokens);
                true
            }
            Call::Reset => {
                *word = self.0.reset(*word);
                true
            }
        }
    }

    fn denies(&self, word: &Word, cost: u64, now: Tick) -> bool {
        !self.0.peek(*word, now, cost).is_allowed()
    }
}

/// Returns a legal order of the calls, as indices into `history`, or `None` if there is none.
pub fn legal_order<S: Sequential>(limiter: &S, history: &[Event], denials: Denials) -> Option<Vec<usize>> {
    assert!(history.len() <= 64, "a history of {} calls is too long", history.len());
    let mut search = Search {
        limiter,
        history,
        denials,
        order: Vec::new(),
        states: vec![limiter.fresh()],
        dead: HashSet::new(),
    };
    search.goes_on(0).then_some(search.order)
}

struct Search<'h, S: Sequential> {
    limiter: &'h S,
    history: &'h [Event],
    denials: Denials,
    /// The calls to which moments are already assigned, in order.
    order: Vec<usize>,
    /// The state before the first call in `order`, and the state after each call in `order`.
    states: Vec<S::State>,
    /// The dead ends. Each consists of a set of calls with assigned moments, as bits, and the state
    /// after these calls.
    dead: HashSet<(u64, S::State)>,
}

impl<S: Sequential> Search<'_, S> {
    /// Returns whether the calls that are not in `done` can follow.
    fn goes_on(&mut self, done: u64) -> bool {
        let open = |index: &usize| done & 1 << *index == 0;
        let Some(first_return) =
            (0..self.history.len()).filter(open).map(|index| self.history[index].returned).min()
        else {
            return true;
        };
        let state = self.states.last().expect("there is one before the first").clone();
        if self.dead.contains(&(done, state.clone())) {
            return false;
        }
        for index in (0..self.history.len()).filter(open) {
            let event = &self.history[index];
            // A call that began after another call had returned must follow that call.
            if event.called > first_return {
                continue;
            }
            let mut next = state.clone();
            if !self.limiter.replay(&mut next, event) {
                if !self.rests_on_a_moment_ago(event) {
                    continue;
                }
                next = state.clone();
            }
            self.order.push(index);
            self.states.push(next);
            if self.goes_on(done | 1 << index) {
                return true;
            }
            self.order.pop();
            self.states.pop();
        }
        // The state does not record which calls a denial may have missed. The state therefore
        // identifies a dead end under `OnThePresent`, but not under `OnAMomentAgo`.
        if self.denials == Denials::OnThePresent {
            self.dead.insert((done, state));
        }
        false
    }

    /// Returns whether the event is a denial that is correct if it missed some recent calls.
    fn rests_on_a_moment_ago(&self, event: &Event) -> bool {
        if self.denials == Denials::OnThePresent || !event.was_denied() {
            return false;
        }
        // Unless the denial missed a refund or a reset, the current state would also deny the
        // check, possibly with other figures.
        let Call::Check { cost, now } = event.call else { return false };
        let state = self.states.last().expect("there is one before the first");
        let mut explained = self.limiter.denies(state, cost, now);
        for (&missed, before) in self.order.iter().zip(&self.states).rev() {
            let missed = &self.history[missed];
            if missed.thread == event.thread || missed.round < event.round {
                return false;
            }
            explained |= matches!(missed.call, Call::Refund { .. } | Call::Reset);
            if explained && self.limiter.replay(&mut before.clone(), event) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::PACKED;
    use super::*;
    use std::time::Duration;
    use tollgate::{Algorithm, Quota};

    const NOW: Tick = Tick::from_nanos(5_000_000_000);

    fn check(thread: usize, (called, returned): (u64, u64), cost: u64, answer: (bool, u64)) -> Event {
        let answer = Some(Answer { allowed: answer.0, remaining: answer.1, decision: None });
        Event { thread, round: 1, called, returned, call: Call::Check { cost, now: NOW }, answer }
    }

    fn refund(thread: usize, (called, returned): (u64, u64), of: u64) -> Event {
        let rule = AnyRule::new(Algorithm::TokenBucket, Quota::per_second(2), Duration::ZERO).unwrap();
        let charge = rule.decide(Word::FRESH, NOW, 1).1;
        let call = Call::Refund { of, charge, tokens: 1, now: NOW };
        Event { thread, round: 1, called, returned, call, answer: None }
    }

    /// Returns whether a history is legal for a limit of two per second. The oracle and the rule
    /// must agree.
    fn is_legal(history: &[Event], denials: Denials) -> bool {
        let quota = Quota::per_second(2);
        let verdicts = PACKED.map(|algorithm| {
            let rule = AnyRule::new(algorithm, quota, Duration::ZERO).unwrap();
            let oracle = legal_order(&ByDefinition(Oracle::new(algorithm, quota, 0)), history, denials);
            // A refund requires the decision of the refunded charge, and that decision depends on
            // the algorithm. In this test, it is a bucket's decision.
            if !algorithm.has_windows() {
                assert_eq!(legal_order(&ByRule(rule), history, denials).is_some(), oracle.is_some());
            }
            oracle.is_some()
        });
        assert!(verdicts.iter().all(|&verdict| verdict == verdicts[0]), "{verdicts:?}");
        verdicts[0]
    }

    #[test]
    fn calls_that_overlap_may_come_in_either_order_and_others_may_not() {
        let second_first = [check(0, (0, 3), 1, (true, 0)), check(1, (1, 2), 1, (true, 1))];
        assert!(is_legal(&second_first, Denials::OnThePresent));
        let one_by_one = [check(0, (0, 1), 1, (true, 0)), check(1, (2, 3), 1, (true, 1))];
        assert!(!is_legal(&one_by_one, Denials::OnThePresent));
        assert!(!is_legal(&one_by_one, Denials::OnAMomentAgo));
    }

    #[test]
    fn one_token_spent_twice_is_illegal_however_the_calls_overlap() {
        let twice = [check(0, (0, 4), 2, (true, 0)), check(1, (1, 5), 1, (true, 1))];
        for denials in [Denials::OnThePresent, Denials::OnAMomentAgo] {
            assert!(!is_legal(&twice, denials));
            assert!(is_legal(&twice[..1], denials) && is_legal(&twice[1..], denials));
        }
    }

    #[test]
    fn a_denial_may_miss_anothers_refund_where_that_is_told_and_its_own_never() {
        let of_thread = |thread| {
            [
                check(0, (0, 1), 2, (true, 0)),
                refund(thread, (2, 3), 0),
                check(0, (4, 5), 1, (false, 0)),
                check(0, (6, 7), 1, (true, 0)),
            ]
        };
        assert!(!is_legal(&of_thread(1), Denials::OnThePresent));
        assert!(is_legal(&of_thread(1), Denials::OnAMomentAgo));
        assert!(!is_legal(&of_thread(0), Denials::OnAMomentAgo));
        // A denial must not miss a refund from an earlier round either.
        let mut later = of_thread(1);
        later[2].round = 2;
        assert!(!is_legal(&later, Denials::OnAMomentAgo));
        // An admitted check has missed nothing.
        let admitted = [of_thread(1)[0], check(1, (2, 3), 1, (true, 1))];
        assert!(!is_legal(&admitted, Denials::OnAMomentAgo));
    }

    #[test]
    fn a_denial_without_a_cause_is_illegal() {
        let unasked = [check(0, (0, 1), 1, (true, 1)), check(1, (2, 3), 1, (false, 0))];
        for denials in [Denials::OnThePresent, Denials::OnAMomentAgo] {
            assert!(!is_legal(&unasked, denials));
        }
    }
}
