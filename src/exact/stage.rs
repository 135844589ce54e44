//! A word, the rule it was made under, and what replaces both when the quota is changed.
//!
//! A word is only understood by the rule that made it. So where a rule is replaced while requests are decided
//! under it, the word has to be translated, exactly once, and no charge may go to the word that was translated.
//! This is the turnover of the table (see `table`), for one key: the next *stage* is linked, the word is
//! frozen, and its translation is brought into the next stage.
//!
//! # State
//!
//! ```text
//! next:  null -> stage              the quota was changed; then for good
//! word:  fresh -> w0                brought from the stage before, or charged before anybody sees the stage
//!        w0 -> w1 -> ...            charges, by `rule::try_update`
//!        w -> w|FROZEN              the next stage is linked
//!        w -> SEALED                eviction: w was idle, and no stage comes any more
//! log:   -> sealed, idle            eviction, and then next: null -> the end, a stage that is SEALED
//!        -> sealed                  the next stage is linked; what counts is taken over
//! ```
//!
//! Where the rule is that of a sliding log, the log stands in the place of the word, and does the same in its own
//! way (see `log`). A log that is sealed does not say why. So it is the next stage that decides: who changes the
//! quota links it before the log is sealed, and who finds a sealed log without a next stage links the end.
//!
//! # Invariants
//!
//! 1. A word is frozen only after the next stage is linked. It never changes then.
//! 2. What is brought is installed by CAS from fresh, and is never fresh. So of all who bring it one succeeds, and
//!    who comes late finds it touched and does nothing.
//! 3. A stage is worked on only after its word was brought.
//! 4. One stage of a chain takes charges: the last whose word is not frozen. A charge is one CAS on its word, so
//!    it is made before the word is frozen, and brought, or it fails and goes on to the next stage.
//!
//! # When a change takes effect
//!
//! At its own time, whoever translates a state, and however late: a stage knows the time of the change that it came
//! with. And who changes a quota visits all states that it concerns before the call returns; or a state that nobody
//! has used since would go on at the old rate, and two changes later would have missed one.
//!
//! A store counts its changes. A stage notes up to which of them its rule is known to be the one that is
//! *wanted*. Who finds a count it does not know asks for the wanted rule and notes the count, or links the next
//! stage. Counts are read before the rule is asked for, and a change is counted after it can be seen: so who
//! reads the new count sees the new rule. A thread that was stopped between asking and linking, while the quota was
//! changed and changed back, may still link the stage it had asked for: the state is translated there and back.
//! That is done once for each such thread, and delays; where the quota it had asked for was the smaller, what was
//! missing beyond it is forgotten.
//!
//! # Progress
//!
//! Lock-free, for charges and changes: whoever needs a translation makes it. A walk is as long as the stages that
//! were linked since the cell was last used, which are one unless quotas change all the time; all but the first
//! and the last are unlinked and retired on the way. The first is part of its cell, with all it holds (a log too), and
//! goes with it.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | replaced | `rule::try_update` of a word that is frozen | `Staged::last` | that the next stage is linked | `quota_swap_races_charge_and_none_is_lost` |
//!
//! *link*, of `sync`, does the rest. The count of changes is the store's: see `quotas`.

use crate::decision::Decision;
use crate::log::{Log, SlidingLog};
use crate::quota::Quota;
use crate::reclaim::{Bag, Guard, Link, Retire, Stale, pin};
use crate::rule::{AnyRule, Rule, Word, load, update};
use crate::state::State;
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed},
};
use crate::time::Tick;
use std::sync::Arc;

/// The word of a state that is to be forgotten. No rule makes it.
const SEALED: Word = Word::EVICTED;

/// What decides for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExactRule {
    /// On its word.
    Packed(AnyRule),
    /// On its log.
    Log(SlidingLog),
}

impl ExactRule {
    /// The answer to a request for a key that was never seen, or was forgotten: no earlier than
    /// `mark`. The figures are those before a charge, or after.
    pub(crate) fn fresh(&self, now: Tick, mark: Tick, cost: u64) -> Decision {
        match self {
            Self::Packed(rule) => rule.fresh(now, mark, cost),
            Self::Log(rule) => {
                let peek = Log::new().peek(rule, now.max(mark), cost, &pin());
                peek.expect("a new log is not sealed")
            }
        }
    }
}

/// A rule that many keys share. On cache lines of its own: the count of its owners beside it changes with every
/// key that comes or goes, while every check reads the rule.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared {
    pub(crate) rule: ExactRule,
    pub(crate) quota: Quota,
    pub(crate) counts: Arc<Counts>,
}

/// What of a store is not freed yet.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Cells, those included that are unlinked.
    pub(crate) cells: Atomic<u64>,
    /// Stages that came after a change, those included that others have followed.
    pub(crate) later: Atomic<u64>,
}

impl Counts {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { cells: Atomic::new(0), later: Atomic::new(0) })
    }
}

/// The rule that a key's state is to be under, the count of changes that was read before it was asked for, and
/// the time of the latest of these changes.
#[derive(Debug)]
pub struct Wanted {
    pub(crate) rule: Arc<Shared>,
    pub(crate) changes: u64,
    pub(crate) since: Tick,
}

/// A state, whose rule may be replaced. See the page of this module.
#[derive(Debug)]
pub(crate) struct Staged(Stage);

/// A state under one rule.
#[derive(Debug)]
struct Stage {
    rule: Arc<Shared>,
    /// The latest count of changes at which the rule was the one that is wanted.
    checked: Atomic<u64>,
    word: Atomic<Word>,
    /// In place of the word, where the rule is that of a log.
    log: Log,
    next: Link<Later>,
}

/// A stage that came after another, with a change at that time. It is counted until it is freed.
#[derive(Debug)]
struct Later {
    stage: Stage,
    since: Tick,
}

/// The state of a stage, to be asked. Each method answers `None` where it is frozen or sealed.
/// `mark` is the earliest time at which a state may be charged that has no time yet; it is asked
/// for once that is known.
#[derive(Clone, Copy)]
pub(crate) enum Kept<'s> {
    Packed(State<'s>),
    /// A log, and the bag for what it retires.
    Log(&'s SlidingLog, &'s Log, &'s Bag),
}

impl Kept<'_> {
    /// Charges `cost` tokens at `now`, or denies it; was anything charged?
    #[inline]
    pub(crate) fn charge(self, now: Tick, cost: u64, mark: impl Fn() -> Tick) -> Option<(Decision, bool)> {
        match self {
            Self::Packed(state) => state.charge(now, cost).or_else(|| state.begin(now, cost, mark())),
            Self::Log(rule, log, retired) => {
                let decision = log.check_from(mark, rule, now, cost, &pin(), retired)?;
                retired.tidy();
                Some((decision, decision.charged() > 0))
            }
        }
    }

    /// What a request would be answered.
    pub(crate) fn peek(self, now: Tick, cost: u64, mark: impl Fn() -> Tick) -> Option<Decision> {
        match self {
            Self::Packed(state) => state.peek(now, cost).or_else(|| {
                let fresh = |cost| state.rule.fresh(now, mark(), cost);
                // What is free before a charge is what is free after one of nothing.
                let peek =
                    || Some(fresh(cost)).filter(|answer| !answer.is_allowed()).unwrap_or_else(|| fresh(0));
                load(state.word).is_fresh().then(peek)
            }),
            Self::Log(rule, log, _) => {
                let guard = pin();
                let at = if log.is_begun() { now } else { now.max(mark()) };
                log.peek(rule, at, cost, &guard)
            }
        }
    }

    /// Gives back at most `tokens` of what `charge` took, if `is_current` says so of the charge when the state is known.
    pub(crate) fn refund(
        self,
        now: Tick,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
    ) -> Option<()> {
        match self {
            Self::Packed(state) => state.refund(now, charge, tokens, is_current),
            Self::Log(_, log, _) => log.refund_if(charge, tokens, is_current, &pin()),
        }
    }

    /// Would a state that was never charged decide the same from now on?
    pub(crate) fn is_idle(self, now: Tick) -> Option<bool> {
        match self {
            Self::Packed(state) => {
                let word = load(state.word);
                (!word.is_frozen()).then(|| state.rule.is_idle(word, now))
            }
            Self::Log(rule, log, _) => {
                let guard = pin();
                (!log.is_sealed(&guard)).then(|| log.is_idle(rule, now, &guard))
            }
        }
    }

    /// Makes it as good as new.
    pub(crate) fn reset(self) -> Option<()> {
        match self {
            Self::Packed(state) => state.reset(),
            Self::Log(rule, log, retired) => {
                let reset = log.reset(rule, &pin(), retired);
                retired.tidy();
                reset
            }
        }
    }
}

// What the docs of `Limiter::set_quota` say.
#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(Staged::BYTES == 88);

impl Staged {
    /// The bytes of a state apart from its cell.
    pub(crate) const BYTES: usize = Link::<Later>::BYTES;

    /// A state that was never charged, and has no time yet: only now can it be known what was
    /// forgotten before it can be found. It looks sealed when its rule is replaced before somebody
    /// charges it, which it may: nothing is lost.
    pub(crate) fn fresh(wanted: Wanted) -> Self {
        Self(Stage::new(wanted.rule, wanted.changes))
    }

    /// A state that is as good as new, and may be seen.
    pub(crate) fn idle(wanted: Wanted) -> Self {
        let stage = Stage::new(wanted.rule, wanted.changes);
        if let ExactRule::Packed(rule) = &stage.rule.rule {
            update(&stage.word, |word| rule.adopt(rule, word, Tick::ZERO));
        }
        Self(stage)
    }

    /// Gives the state to `visit` as it is under the wanted rule, `changes` being the count that was read before;
    /// `None` if it is sealed. `visit` answers unless the word is frozen.
    #[inline]
    pub(crate) fn visit<T>(
        &self,
        changes: u64,
        wanted: impl Fn() -> Wanted,
        retired: &Bag,
        visit: impl Fn(Kept<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.0.is_checked(changes) {
            let answer = visit(self.0.state(retired));
            if answer.is_some() {
                return answer;
            }
        }
        self.visit_last(changes, wanted, retired, visit)
    }

    #[cold]
    fn visit_last<T>(
        &self,
        changes: u64,
        wanted: impl Fn() -> Wanted,
        retired: &Bag,
        visit: impl Fn(Kept<'_>) -> Option<T>,
    ) -> Option<T> {
        let guard = pin();
        loop {
            let last = self.last(&guard, retired)?;
            if !last.is_checked(changes) {
                let wanted = wanted();
                if last.rule.rule == wanted.rule.rule {
                    last.note(wanted.changes);
                } else {
                    last.next.install(Later::new(wanted), &guard);
                    continue;
                }
            }
            let answer = visit(last.state(retired));
            if answer.is_some() {
                return answer;
            }
        }
    }

    /// The word of the first stage, which no rule but the first is for: it is frozen once that is replaced.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> &Atomic<Word> {
        &self.0.word
    }

    /// The log of the first stage, which is sealed once the first rule is replaced.
    #[inline(always)]
    pub(crate) fn first_log(&self) -> &Log {
        &self.0.log
    }

    /// Puts the state under another rule: what is decided after this has returned is decided under that
    /// one, or one that came later. For a state that is never sealed, and whose rule no store wants.
    pub(crate) fn replace(&self, rule: &Arc<Shared>, since: Tick, retired: &Bag) {
        let guard = pin();
        while let Some(last) = self.last(&guard, retired) {
            let next = Later::new(Wanted { rule: Arc::clone(rule), changes: 0, since });
            if last.next.install(next, &guard).is_some() {
                break;
            }
        }
        // Freezes the words of the stages before, and brings what they hold.
        self.last(&guard, retired);
    }

    /// The rule that the state is under; `None` if it is sealed.
    pub(crate) fn rule(&self, retired: &Bag) -> Option<Arc<Shared>> {
        self.last(&pin(), retired).map(|last| Arc::clone(&last.rule))
    }

    /// Gives the state to `visit` as it is, whatever rule is wanted; `None` if it is sealed.
    pub(crate) fn visit_as_is<T>(&self, retired: &Bag, visit: impl Fn(Kept<'_>) -> Option<T>) -> Option<T> {
        let guard = pin();
        loop {
            let answer = visit(self.last(&guard, retired)?.state(retired));
            if answer.is_some() {
                return answer;
            }
        }
    }

    /// Seals the state if it was idle at `judged_at`; is it sealed now? Before it is, `forget` is
    /// told a time from which on it is idle.
    pub(super) fn seal_if_idle(&self, judged_at: Tick, retired: &Bag, forget: impl Fn(Tick)) -> bool {
        let guard = pin();
        loop {
            let Some(last) = self.last(&guard, retired) else { return true };
            match &last.rule.rule {
                ExactRule::Packed(rule) => {
                    let is_idle = |word: Word| !word.is_frozen() && rule.is_idle(word, judged_at);
                    let seal = |word: Word| {
                        forget(rule.idle_from(word).unwrap_or(judged_at));
                        SEALED
                    };
                    let word = update(&last.word, |word| if is_idle(word) { seal(word) } else { word }).to;
                    if word == SEALED || !word.is_frozen() {
                        return word == SEALED;
                    }
                }
                // If it is sealed, `last` says why.
                ExactRule::Log(rule) if last.log.seal_if_idle(rule, judged_at, &guard, retired, &forget) => {}
                ExactRule::Log(_) => return false,
            }
        }
    }

    /// The bytes of its logs.
    pub(crate) fn log_bytes(&self) -> usize {
        let guard = pin();
        'again: loop {
            let (mut bytes, mut stage) = (self.0.log.bytes(&guard), &self.0);
            while let Some(next) = match self.next(stage, &guard) {
                Ok(next) => next,
                Err(Stale) => continue 'again,
            } {
                stage = &next.stage;
                bytes += stage.log.bytes(&guard);
            }
            return bytes;
        }
    }

    pub(super) fn is_sealed(&self, retired: &Bag) -> bool {
        self.last(&pin(), retired).is_none()
    }

    /// What is not freed yet of the store that it belongs to.
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.rule.counts
    }

    /// The stage after one of this state.
    fn next<'g>(&'g self, stage: &'g Stage, guard: &'g Guard) -> Result<Option<&'g Later>, Stale> {
        // The first is part of this state, and so is the root of the others.
        if std::ptr::eq(stage, &self.0) { Ok(stage.next.load(guard)) } else { stage.next.follow(guard) }
    }

    /// The last stage, with its word brought; `None` if the state is sealed.
    fn last<'g>(&'g self, guard: &'g Guard, retired: &Bag) -> Option<&'g Stage> {
        // The later one that `stage` belongs to, if it is not the first.
        let (mut this, mut stage): (Option<&Later>, _) = (None, &self.0);
        loop {
            // ORDERING: acquire side of *replaced*: who finds the word frozen finds the next stage.
            let word = stage.word.load(Acquire);
            if word == SEALED {
                return None;
            }
            let Ok(next) = self.next(stage, guard) else {
                (this, stage) = (None, &self.0);
                continue;
            };
            let Some(later) = next else {
                assert!(!word.is_frozen(), "a word is frozen only when the next stage is linked");
                if matches!(stage.rule.rule, ExactRule::Log(_)) && stage.log.is_sealed(guard) {
                    stage.next.install(Later::end(&stage.rule), guard);
                    continue;
                }
                return Some(stage);
            };
            let next = &later.stage;
            match (&stage.rule.rule, &next.rule.rule) {
                (ExactRule::Packed(old), ExactRule::Packed(new)) => {
                    let frozen =
                        update(&stage.word, |word| if word.is_frozen() { word } else { word.frozen() }).to;
                    if frozen == SEALED {
                        return None;
                    }
                    let translated = || new.adopt(old, frozen.thawed(), later.since);
                    update(&next.word, |found| if found.is_fresh() { translated() } else { found });
                }
                (ExactRule::Log(_), _) if load(&next.word) == SEALED => return None,
                (ExactRule::Log(old), ExactRule::Log(new)) => {
                    next.log.take_over(&stage.log, old, new, later.since, guard);
                }
                _ => unreachable!("all rules of a store are of one algorithm"),
            }
            if let Some(this) = this {
                // The first is part of its cell; one between it and the last is of no use any more.
                self.0.next.advance(this, &this.stage.next, guard, retired);
            }
            (this, stage) = (Some(later), next);
        }
    }
}

impl Stage {
    fn new(rule: Arc<Shared>, changes: u64) -> Self {
        let (checked, word) = (Atomic::new(changes), Atomic::new(Word::FRESH));
        Self { rule, checked, word, log: Log::new(), next: Link::null() }
    }

    #[inline]
    fn state<'s>(&'s self, retired: &'s Bag) -> Kept<'s> {
        match &self.rule.rule {
            ExactRule::Packed(rule) => Kept::Packed(State { rule, word: &self.word }),
            ExactRule::Log(rule) => Kept::Log(rule, &self.log, retired),
        }
    }

    #[inline]
    fn is_checked(&self, changes: u64) -> bool {
        // ORDERING: relaxed; who noted it has read the count of changes, and so has this thread.
        self.checked.load(Relaxed) >= changes
    }

    fn note(&self, changes: u64) {
        let later = |checked: u64| (checked < changes).then_some(changes);
        // ORDERING: relaxed twice; see `is_checked`.
        let _ = self.checked.fetch_update(Relaxed, Relaxed, later);
    }
}

impl Later {
    fn new(Wanted { rule, changes, since }: Wanted) -> Self {
        // ORDERING: relaxed; a count.
        rule.counts.later.fetch_add(1, Relaxed);
        Self { stage: Stage::new(rule, changes), since }
    }

    /// What comes after a log that was sealed to be evicted: nothing.
    fn end(rule: &Arc<Shared>) -> Self {
        let end = Self::new(Wanted { rule: Arc::clone(rule), changes: 0, since: Tick::ZERO });
        update(&end.stage.word, |_| SEALED);
        end
    }
}

impl Retire for Later {
    /// Of its log: stages are counted by their store.
    fn bytes(&self, guard: &Guard) -> usize {
        self.stage.log.bytes(guard)
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.stage.rule.counts.later.fetch_sub(1, Relaxed);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Those that were unlinked are retired, and what they point to is linked here.
        let mut later = self.0.next.take();
        while let Some(mut last) = later {
            later = last.stage.next.take();
        }
    }
}
