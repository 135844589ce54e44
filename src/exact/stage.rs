//! A word with the rule it was made under, and how both are replaced when the quota changes.
//!
//! Only the rule that made a word understands it. So where a rule is replaced while requests are
//! decided under it, the word must be translated exactly once, and no charge may go to the old
//! word. This is the turnover of the table (see `table`) for one key: the next *stage* is linked,
//! the word is frozen, and its translation is brought into the next stage.
//!
//! # State
//!
//! ```text
//! next:  null -> stage              the quota was changed; final
//! word:  fresh -> w0                brought from the stage before, or the first charge
//!        w0 -> w1 -> ...            charges, by `rule::try_update`
//!        w -> w|FROZEN              the next stage is linked
//!        w -> SEALED                eviction: w was idle; no stage follows
//! log:   -> sealed, idle            eviction; then next: null -> the end, a SEALED stage
//!        -> sealed                  the next stage is linked; what counts is taken over
//! ```
//!
//! Under a sliding log, the log takes the place of the word and changes in its own way (see `log`).
//! A sealed log does not say why it was sealed, so the next stage decides. A change of quota links
//! the next stage before it seals the log. A thread that finds a sealed log without a next stage
//! links the end.
//!
//! # Invariants
//!
//! 1. A word is frozen only after the next stage is linked, and never changes after that.
//! 2. A translation is never fresh, and is installed by a CAS from fresh. So of all threads that
//!    bring it, one succeeds, and a late one finds the word touched and does nothing.
//! 3. A stage is used only after its word was brought.
//! 4. One stage of a chain takes charges: the one whose word was brought and is not frozen. A
//!    charge is one CAS on a word. Either it comes before the word is frozen, and is brought along;
//!    or it fails and is tried on the next stage.
//!
//! # When a change takes effect
//!
//! A change takes effect at its own time, no matter which thread translates the state, and how
//! late: a stage knows the time of its change. The call that changes a quota also visits all states
//! that it concerns before it returns. Otherwise a state that is not used would go on at the old
//! rate, and after two changes would have missed one.
//!
//! A store counts its changes. A stage notes the latest count for which its rule is known to be the
//! *wanted* one. A thread that reads a later count asks for the wanted rule, and notes the count or
//! links the next stage. It reads the count before it asks for the rule, and a change is counted
//! after it can be seen, so a thread that reads the new count sees the new rule.
//!
//! A thread may stop between asking and linking, while the quota changes and changes back. It may
//! still link the stage it had asked for: the state is then translated there and back. That happens
//! once for each such thread, and delays; if the quota it had asked for was the smaller one, tokens
//! missing beyond it are forgotten.
//!
//! # Progress
//!
//! Charges and changes are lock-free: a thread that needs a translation makes it. A walk visits the
//! stages that were linked since the cell was last used, which is one unless quotas change all the
//! time. It unlinks and retires all but the first and the last. The first is part of its cell, and
//! is freed with it and all it holds, its log included.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | replaced | `rule::try_update` of a word that is frozen | `Staged::last` | that the next stage is linked | `quota_swap_races_charge_and_none_is_lost` |
//!
//! The edge *link* of `reclaim` does the rest. The count of changes belongs to the store: see
//! `quotas`.

use super::kept::Kept;
use super::shared_rule::{Counts, ExactRule, Shared, Wanted};
use crate::log::Log;
use crate::quota::Enforced;
use crate::reclaim::{At, Bag, Chained, Guard, Link, Retire, Retry, Root, under_guard};
use crate::rule::{Rule, Word, load, update};
use crate::state::State;
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed},
};
use crate::time::Tick;
use std::sync::Arc;

/// The word of an evicted state. No rule makes it.
const SEALED: Word = Word::EVICTED;

/// A state whose rule may be replaced. See the module documentation.
#[derive(Debug)]
pub(crate) struct Staged {
    first: Stage,
    later: Root<Later>,
}

/// A state under one rule.
#[derive(Debug)]
struct Stage {
    rule: Arc<Shared>,
    /// The latest count of changes for which the rule was the wanted one.
    checked: Atomic<u64>,
    word: Atomic<Word>,
    /// Used instead of the word if the rule is a sliding log.
    log: Log,
}

/// A stage that follows another, and the time of its change. It is counted until it is freed.
#[derive(Debug)]
struct Later {
    stage: Stage,
    since: Tick,
    next: Link<Self>,
}

/// The last stage, and where it is if it is not the first.
struct Last<'g> {
    at: Option<At<'g, Later>>,
    stage: &'g Stage,
}

// The documentation of `Limiter::set_quota` says 88 bytes.
#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(Staged::BYTES == 88);

impl Staged {
    /// The bytes of a stage that follows a change: it is allocated apart from the cell.
    pub(crate) const BYTES: usize = Link::<Later>::BYTES;

    /// Makes a state that was never charged and has no time yet: the mark that bounds its first
    /// charge is known only after the state is linked. If its rule is replaced before the first
    /// charge, it looks sealed. That loses nothing.
    pub(crate) fn fresh(wanted: Wanted) -> Self {
        Self { first: Stage::new(wanted.rule, wanted.changes), later: Root::null() }
    }

    /// Makes an idle state that other threads may see.
    pub(crate) fn idle(wanted: Wanted) -> Self {
        let state = Self::fresh(wanted);
        if let ExactRule::Packed(rule) = state.first_rule() {
            update(state.first_word(), |word| rule.adopt(rule, word, Tick::ZERO));
        }
        state
    }

    /// Passes the state, under the wanted rule, to `visit`; returns `None` if the state is sealed.
    /// `changes` is the count that was read before. `visit` returns `None` only if the state is
    /// frozen or sealed.
    #[inline]
    pub(crate) fn visit<T>(
        &self,
        changes: u64,
        wanted: impl Fn() -> Wanted,
        retired: &Bag,
        visit: impl Fn(Kept<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.first.is_checked(changes) {
            let answer = visit(self.first.state(retired));
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
        under_guard(|guard| {
            let Some(Last { at, stage: last }) = self.last(guard, retired)? else { return Ok(None) };
            if !last.is_checked(changes) {
                let wanted = wanted();
                if !last.rule.rule.decides_as(wanted.rule.rule) {
                    let _ = self.install_behind(at, Later::new(wanted), guard);
                    return Err(Retry);
                }
                last.note(wanted.changes);
            }
            visit(last.state(retired)).map(Some).ok_or(Retry)
        })
    }

    /// Returns the word of the first stage. Only the first rule understands it: it is frozen once
    /// that rule is replaced.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> &Atomic<Word> {
        &self.first.word
    }

    /// Returns the rule of the first stage.
    #[inline(always)]
    pub(crate) fn first_rule(&self) -> &ExactRule {
        &self.first.rule.rule
    }

    /// Puts the state under another rule. Decisions made after this call returns are made under
    /// that rule or a later one. For a state that is never sealed and that belongs to no store.
    pub(crate) fn replace(&self, new: Enforced<ExactRule>, since: Tick, retired: &Bag) {
        under_guard(|guard| {
            let Some(Last { at, stage }) = self.last(guard, retired)? else { return Ok(()) };
            let Shared { rule: before, counts, .. } = &*stage.rule;
            let rule = new.rule.after(before, since);
            let rule = Arc::new(Shared { rule, quota: new.quota, counts: Arc::clone(counts) });
            self.install_behind(at, Later::new(Wanted { rule, changes: 0, since }), guard)
        });
        // Freezes the words of the earlier stages and brings what they hold.
        under_guard(|guard| self.last(guard, retired).map(|_| ()));
    }

    /// Returns the rule of the state; `None` if it is sealed.
    pub(crate) fn rule(&self, retired: &Bag) -> Option<Arc<Shared>> {
        under_guard(|guard| Ok(self.last(guard, retired)?.map(|last| Arc::clone(&last.stage.rule))))
    }

    /// Passes the state to `visit` under its present rule, whatever rule is wanted; returns `None`
    /// if it is sealed.
    pub(crate) fn visit_as_is<T>(&self, retired: &Bag, visit: impl Fn(Kept<'_>) -> Option<T>) -> Option<T> {
        self.visit(0, || unreachable!("no count is below 0"), retired, visit)
    }

    /// Seals the state if it was idle at `judged_at`. Returns whether it is sealed now. Before the
    /// state is sealed, `forget` is called with a time from which on it is idle.
    pub(super) fn seal_if_idle(&self, judged_at: Tick, retired: &Bag, forget: impl Fn(Tick)) -> bool {
        under_guard(|guard| {
            let Some(Last { stage: last, .. }) = self.last(guard, retired)? else { return Ok(true) };
            match &last.rule.rule {
                ExactRule::Packed(rule) => {
                    let is_idle = |word: Word| !word.is_frozen() && rule.is_idle(word, judged_at);
                    let seal = |word: Word| {
                        forget(rule.idle_from(word).unwrap_or(judged_at));
                        SEALED
                    };
                    let word = update(&last.word, |word| if is_idle(word) { seal(word) } else { word }).to;
                    if word == SEALED || !word.is_frozen() { Ok(word == SEALED) } else { Err(Retry) }
                }
                // Again: `last` finds out why the log is sealed.
                ExactRule::Log(rule) if last.log.seal_if_idle(rule, judged_at, retired, &forget) => {
                    Err(Retry)
                }
                ExactRule::Log(_) => Ok(false),
            }
        })
    }

    /// Returns the bytes of the logs of all stages.
    pub(crate) fn log_bytes(&self) -> usize {
        under_guard(|guard| {
            let (mut bytes, mut at) = (self.first.log.bytes(), self.later.load(guard)?);
            while let Some(later) = at {
                bytes += later.stage.log.bytes();
                at = later.next()?;
            }
            Ok(bytes)
        })
    }

    pub(super) fn is_sealed(&self, retired: &Bag) -> bool {
        under_guard(|guard| Ok(self.last(guard, retired)?.is_none()))
    }

    /// Returns the counts of the store that the state belongs to.
    pub(crate) fn counts(&self) -> &Counts {
        &self.first.rule.counts
    }

    /// Links a stage behind the one that is there; behind the first stage, if that is `None`.
    fn install_behind(&self, at: Option<At<'_, Later>>, new: Later, guard: &Guard) -> Result<(), Retry> {
        let installed = match at {
            None => self.later.install(new, guard),
            Some(later) => later.get().next.install(new, guard),
        };
        installed.map(drop).map_err(|_| Retry)
    }

    /// Returns the last stage, after its word was brought; `None` if the state is sealed.
    fn last<'g>(&'g self, guard: &'g Guard, retired: &Bag) -> Result<Option<Last<'g>>, Retry> {
        let mut at = None::<At<'g, Later>>;
        loop {
            let stage = at.map_or(&self.first, |later| &later.get().stage);
            // ORDERING: acquire side of *replaced*: a thread that finds the word frozen finds the
            // next stage.
            let word = stage.word.load(Acquire);
            if word == SEALED {
                return Ok(None);
            }
            let following = at.map_or_else(|| self.later.load(guard), At::next)?;
            let Some(later) = following.map(At::get) else {
                assert!(!word.is_frozen(), "a word is frozen only when the next stage is linked");
                if matches!(stage.rule.rule, ExactRule::Log(_)) && stage.log.is_sealed() {
                    let _ = self.install_behind(at, Later::end(&stage.rule), guard);
                    return Err(Retry);
                }
                return Ok(Some(Last { at, stage }));
            };
            let next = &later.stage;
            match (&stage.rule.rule, &next.rule.rule) {
                (ExactRule::Packed(old), ExactRule::Packed(new)) => {
                    let frozen =
                        update(&stage.word, |word| if word.is_frozen() { word } else { word.frozen() }).to;
                    if frozen == SEALED {
                        return Ok(None);
                    }
                    let translated = || new.adopt(old, frozen.thawed(), later.since);
                    update(&next.word, |found| if found.is_fresh() { translated() } else { found });
                }
                (ExactRule::Log(_), _) if load(&next.word) == SEALED => return Ok(None),
                (ExactRule::Log(old), ExactRule::Log(new)) => {
                    next.log.take_over(&stage.log, old, new, later.since);
                }
                _ => unreachable!("all rules of a store are of one algorithm"),
            }
            if let Some(this) = at {
                // The first stage is part of its cell. One between it and the last is no longer
                // needed.
                self.later.advance(&this, guard, retired);
            }
            at = following;
        }
    }
}

impl Stage {
    fn new(rule: Arc<Shared>, changes: u64) -> Self {
        let (checked, word) = (Atomic::new(changes), Atomic::new(Word::FRESH));
        Self { rule, checked, word, log: Log::new() }
    }

    #[inline]
    fn state<'s>(&'s self, retired: &'s Bag) -> Kept<'s> {
        match &self.rule.rule {
            ExactRule::Packed(rule) => Kept::packed(State { rule, word: &self.word }),
            ExactRule::Log(rule) => Kept::log(rule, &self.log, retired),
        }
    }

    #[inline]
    fn is_checked(&self, changes: u64) -> bool {
        // ORDERING: relaxed; the thread that noted it has read the count of changes, and so has
        // this one.
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
        Self { stage: Stage::new(rule, changes), since, next: Link::null() }
    }

    /// Makes the end: the stage after a log that was sealed for eviction.
    fn end(rule: &Arc<Shared>) -> Self {
        let end = Self::new(Wanted { rule: Arc::clone(rule), changes: 0, since: Tick::ZERO });
        update(&end.stage.word, |_| SEALED);
        end
    }
}

impl Chained for Later {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Later {
    /// Returns the bytes of its log only: the store counts the stages.
    fn bytes(&self) -> usize {
        self.stage.log.bytes()
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.stage.rule.counts.later.fetch_sub(1, Relaxed);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::Quota;
    use crate::rule::AnyRule;
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    fn enforced(limit: u64) -> Enforced<ExactRule> {
        let quota = Quota::new(limit, Duration::from_secs(1));
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        Enforced { rule: ExactRule::Packed(rule), quota }
    }

    /// Each time that a call has found the last stage, another thread links the next.
    #[test]
    fn a_call_that_is_held_up_in_many_eras_keeps_few_stages() {
        const TIMES: u64 = 500;
        let (counts, retired, times) = (Counts::new(), Bag::new(), Cell::new(0));
        let Enforced { rule, quota } = enforced(1);
        let rule = Arc::new(Shared { rule, quota, counts: Arc::clone(&counts) });
        let state = Staged::idle(Wanted { rule, changes: 0, since: Tick::ZERO });
        let found = state.visit_as_is(&retired, |_| {
            (times.get() == TIMES).then_some(()).or_else(|| {
                times.set(times.get() + 1);
                state.replace(enforced(1 + times.get()), Tick::ZERO, &retired);
                retired.collect();
                // Guards of other tests may be in the way for a while.
                let end = Instant::now() + Duration::from_secs(60);
                while counts.later.load(Relaxed) > 10 {
                    retired.collect();
                    assert!(Instant::now() < end, "{} stages", counts.later.load(Relaxed));
                }
                None
            })
        });
        assert_eq!(found, Some(()));
    }
}
