//! A store's view of a key's state: a word or a log, together with its rule.

use super::packed::State;
use super::saved::SavedState;
use super::shared_rule::StateRule;
use crate::decision::{Decision, Stamp};
use crate::forgetting::Mark;
use crate::log::{Log, Past, SlidingLog};
use crate::reclaim::Bag;
use crate::rule::{Rule, load, update};
use crate::time::Tick;

/// A view of the state of a key. Each method returns `None` if the state is frozen or sealed. The
/// methods that charge or peek also return `None` for a fresh word, unless the view may make the
/// first charge.
#[derive(Clone, Copy)]
pub struct AnyState<'s> {
    form: Form<'s>,
    begins: Option<Begins<'s>>,
}

/// The store's mark, and a test of the stamp, for the first charge of a state.
#[derive(Clone, Copy)]
struct Begins<'s> {
    /// The charge is made at the mark or later.
    mark: &'s Mark,
    /// Returns whether a new state would still get this stamp.
    is_current: &'s dyn Fn(Stamp) -> bool,
}

#[derive(Clone, Copy)]
enum Form<'s> {
    Packed(State<'s>),
    /// The rule, the log, the bag for retired chunks, and a function that returns whether this rule
    /// is still the latest rule.
    Log(&'s SlidingLog, &'s Log, &'s Bag, &'s dyn Fn() -> bool),
}

impl<'s> AnyState<'s> {
    /// Creates the view of a word.
    #[inline]
    pub(crate) fn packed(state: State<'s>) -> Self {
        Self { form: Form::Packed(state), begins: None }
    }

    /// Creates the view of a log. The log's retired chunks are put into the bag. `is_latest`
    /// returns whether `rule` is still the latest rule.
    #[inline]
    pub(crate) fn log(
        rule: &'s SlidingLog,
        log: &'s Log,
        retired: &'s Bag,
        is_latest: &'s dyn Fn() -> bool,
    ) -> Self {
        Self { form: Form::Log(rule, log, retired, is_latest), begins: None }
    }

    /// Allows this view to make the first charge of a state that has no time yet. That charge is
    /// made at the mark or later. The mark is read only once the state has been found to have no
    /// time.
    ///
    /// `is_current` returns whether a new state would still get this stamp. A quota may change and
    /// change back between the creation of a state and its insertion. Such a state has the stamp of
    /// charges from before the change, so it is sealed instead of charged.
    #[inline]
    pub(crate) fn beginning_at(self, mark: &'s Mark, is_current: &'s dyn Fn(Stamp) -> bool) -> Self {
        Self { begins: Some(Begins { mark, is_current }), ..self }
    }

    /// Returns the word with its rule, or `None` for a log.
    pub(crate) fn as_packed(self) -> Option<State<'s>> {
        match self.form {
            Form::Packed(state) => Some(state),
            Form::Log(..) => None,
        }
    }

    /// Returns the earliest time at which a log without a time may be charged.
    fn earliest(self) -> Tick {
        self.begins.map_or(Tick::ZERO, |begins| begins.mark.get())
    }

    /// Makes the first charge of a word, if this view may do so. `charge` receives the mark.
    #[cold]
    fn begin<T>(self, state: State<'_>, charge: impl Fn(Tick) -> Option<T>) -> Option<T> {
        let Begins { mark, is_current } = self.begins?;
        if load(state.word).is_fresh() && !is_current(state.stamp) {
            state.seal_unbegun();
        }
        charge(mark.get())
    }

    /// Charges `cost` tokens at `now`, or denies the request. Also returns whether anything was
    /// charged.
    #[inline]
    pub(crate) fn charge(self, now: Tick, cost: u64) -> Option<(Decision, bool)> {
        match self.form {
            Form::Packed(state) => {
                state.charge(now, cost).or_else(|| self.begin(state, |mark| state.begin(now, cost, mark)))
            }
            Form::Log(rule, log, retired, is_latest) => {
                let decision = log.check(|| self.earliest(), rule, now, cost, retired, is_latest)?;
                let is_charged = decision.charged() > 0;
                if is_charged {
                    // A denial writes nothing, so it does not tidy the bag.
                    retired.tidy();
                }
                Some((decision, is_charged))
            }
        }
    }

    /// Returns the answer to a request, without charging it.
    pub(crate) fn peek(self, now: Tick, cost: u64) -> Option<Decision> {
        match self.form {
            Form::Packed(state) => state.peek(now, cost).or_else(|| {
                let mark = self.begins?.mark.get();
                let fresh = |cost| state.rule.fresh(now, mark, cost);
                load(state.word).is_fresh().then(|| Decision::before_charge(cost, fresh))
            }),
            Form::Log(rule, log, _, is_latest) => {
                let at = if log.is_begun() { now } else { now.max(self.earliest()) };
                log.peek(rule, at, cost, is_latest)
            }
        }
    }

    /// Charges `tokens` that are already spent, up to the permitted debt. Returns the number of
    /// tokens charged.
    pub(crate) fn force(self, now: Tick, tokens: u64) -> Option<u64> {
        match self.form {
            Form::Packed(state) => state
                .force(now, tokens)
                .or_else(|| self.begin(state, |mark| state.begin_forced(now, tokens, mark))),
            Form::Log(rule, log, retired, is_latest) => {
                log.force(|| self.earliest(), rule, now, tokens, retired, is_latest)
            }
        }
    }

    /// Gives back at most `tokens` of the tokens that `charge` took. After reading the state, this
    /// method calls `is_current` with the stamp of the rule, which returns whether the charge may
    /// still be refunded. A log identifies a charge by its time, whatever the earlier rules were,
    /// so the rules of a log have no stamp.
    #[inline]
    pub(crate) fn refund(
        self,
        now: Tick,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn(Stamp) -> bool,
    ) -> Option<()> {
        match self.form {
            Form::Packed(state) => state.refund(now, charge, tokens, is_current),
            Form::Log(_, log, ..) => log.refund_if(charge, tokens, || is_current(Stamp::NONE)),
        }
    }

    /// Returns whether this state gives the same decisions as a new state from `now` on.
    pub(crate) fn is_idle(self, now: Tick) -> Option<bool> {
        match self.form {
            Form::Packed(state) => {
                let word = load(state.word);
                (!word.is_frozen()).then(|| state.rule.is_idle(word, now))
            }
            Form::Log(rule, log, _, is_latest) => {
                (!log.is_sealed() && is_latest()).then(|| log.is_idle(rule, now))
            }
        }
    }

    /// Returns the state as a value, with its rule. A word that was never charged is fresh.
    pub(crate) fn saved(self) -> Option<(StateRule, SavedState)> {
        match self.form {
            Form::Packed(state) => {
                let word = load(state.word);
                let saved = || (StateRule::Packed(*state.rule), SavedState::Word(word));
                (!word.is_frozen()).then(saved)
            }
            Form::Log(rule, log, _, is_latest) => {
                let admissions = log.saved(rule, is_latest)?;
                Some((StateRule::Log(rule.with_past(Past::NONE)), SavedState::Log(Box::new(admissions))))
            }
        }
    }

    /// Replaces a state, which no other thread uses yet, with a saved state. A word that was made
    /// under another rule must have been translated. If a file contains a key twice, the later
    /// state applies.
    pub(crate) fn restore(self, saved: &SavedState) -> Option<()> {
        match (self.form, saved) {
            (Form::Packed(state), SavedState::Word(word)) => _ = update(state.word, |_| *word),
            (Form::Log(rule, log, retired, _), SavedState::Log(admissions)) => {
                log.reset(rule, retired)?;
                log.restore(rule, admissions);
            }
            (Form::Packed(_), SavedState::Log(_)) | (Form::Log(..), SavedState::Word(_)) => {
                unreachable!("a state is restored under its own algorithm")
            }
        }
        Some(())
    }

    /// Does nothing. A call that changes rules visits each state with this method. The visit ends
    /// only under the state's last rule, because this method returns `None` under any earlier rule.
    pub(crate) fn touch(self) -> Option<()> {
        match self.form {
            Form::Packed(state) => (!load(state.word).is_frozen()).then_some(()),
            Form::Log(_, log, _, is_latest) => (!log.is_sealed() && is_latest()).then_some(()),
        }
    }

    /// Resets the state to the state of a new key.
    pub(crate) fn reset(self) -> Option<()> {
        match self.form {
            Form::Packed(state) => state.reset(),
            Form::Log(rule, log, retired, _) => {
                let reset = log.reset(rule, retired);
                retired.tidy();
                reset
            }
        }
    }
}
