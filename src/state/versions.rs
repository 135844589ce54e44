//! The versions of a state, each under a rule of its own. The page of `state` has states and
//! invariants.

use super::any_state::AnyState;
use super::packed::State;
use super::shared_rule::{Counts, SharedRule, StateRule, Wanted};
use crate::log::Log;
use crate::quota::Enforced;
use crate::reclaim::{At, Bag, Chained, Guard, Link, Retire, Retry, Root, under_guard};
use crate::rule::{Rule, Word, load, update};
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
pub(crate) struct Versioned {
    first: Version,
    later: Root<Later>,
}

/// A state under one rule.
#[derive(Debug)]
struct Version {
    rule: Arc<SharedRule>,
    /// The latest count of changes for which the rule was the wanted one.
    checked: Atomic<u64>,
    word: Atomic<Word>,
    /// Used instead of the word if the rule is a sliding log.
    log: Log,
}

/// A version that follows another, and the time of its change. It is counted until it is freed.
#[derive(Debug)]
struct Later {
    version: Version,
    since: Tick,
    next: Link<Self>,
}

/// The last version, and where it is if it is not the first.
struct Last<'g> {
    at: Option<At<'g, Later>>,
    version: &'g Version,
}

// The documentation of `Limiter::set_quota` says 88 bytes.
#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(Versioned::BYTES == 88);

impl Versioned {
    /// The bytes of a version that follows a change: it is allocated apart from the cell.
    pub(crate) const BYTES: usize = Link::<Later>::BYTES;

    /// Makes a state that was never charged and has no time yet: the mark that bounds its first
    /// charge is known only after the state is linked. If its rule is replaced before the first
    /// charge, it looks sealed. That loses nothing.
    pub(crate) fn fresh(wanted: Wanted) -> Self {
        Self { first: Version::new(wanted.rule, wanted.changes), later: Root::null() }
    }

    /// Makes an idle state that other threads may see.
    pub(crate) fn idle(wanted: Wanted) -> Self {
        let state = Self::fresh(wanted);
        if let StateRule::Packed(rule) = state.first_rule() {
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
        visit: impl Fn(AnyState<'_>) -> Option<T>,
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
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> Option<T> {
        under_guard(|guard| {
            let Some(Last { at, version: last }) = self.last(guard, retired)? else { return Ok(None) };
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

    /// Returns the word of the first version. Only the first rule understands it: it is frozen once
    /// that rule is replaced.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> &Atomic<Word> {
        &self.first.word
    }

    /// Returns the rule of the first version.
    #[inline(always)]
    pub(crate) fn first_rule(&self) -> &StateRule {
        &self.first.rule.rule
    }

    /// Puts the state under another rule. Decisions made after this call returns are made under
    /// that rule or a later one. For a state that is never sealed and that belongs to no store.
    pub(crate) fn replace(&self, new: Enforced<StateRule>, since: Tick, retired: &Bag) {
        under_guard(|guard| {
            let Some(Last { at, version }) = self.last(guard, retired)? else { return Ok(()) };
            let SharedRule { rule: before, counts, .. } = &*version.rule;
            let rule = new.rule.after(before, since);
            let rule = Arc::new(SharedRule { rule, quota: new.quota, counts: Arc::clone(counts) });
            self.install_behind(at, Later::new(Wanted { rule, changes: 0, since }), guard)
        });
        // Freezes the words of the earlier versions and brings what they hold.
        under_guard(|guard| self.last(guard, retired).map(|_| ()));
    }

    /// Returns the rule of the state; `None` if it is sealed.
    pub(crate) fn rule(&self, retired: &Bag) -> Option<Arc<SharedRule>> {
        under_guard(|guard| Ok(self.last(guard, retired)?.map(|last| Arc::clone(&last.version.rule))))
    }

    /// Passes the state to `visit` under its present rule, whatever rule is wanted; returns `None`
    /// if it is sealed.
    pub(crate) fn visit_as_is<T>(
        &self,
        retired: &Bag,
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> Option<T> {
        self.visit(0, || unreachable!("no count is below 0"), retired, visit)
    }

    /// Seals the state if it was idle at `judged_at`. Returns whether it is sealed now. Before the
    /// state is sealed, `forget` is called with a time from which on it is idle.
    pub(crate) fn seal_if_idle(&self, judged_at: Tick, retired: &Bag, forget: impl Fn(Tick)) -> bool {
        under_guard(|guard| {
            let Some(Last { version: last, .. }) = self.last(guard, retired)? else { return Ok(true) };
            match &last.rule.rule {
                StateRule::Packed(rule) => {
                    let is_idle = |word: Word| !word.is_frozen() && rule.is_idle(word, judged_at);
                    let seal = |word: Word| {
                        forget(rule.idle_from(word).unwrap_or(judged_at));
                        SEALED
                    };
                    let word = update(&last.word, |word| if is_idle(word) { seal(word) } else { word }).to;
                    if word == SEALED || !word.is_frozen() { Ok(word == SEALED) } else { Err(Retry) }
                }
                // Again: `last` finds out why the log is sealed.
                StateRule::Log(rule) if last.log.seal_if_idle(rule, judged_at, retired, &forget) => {
                    Err(Retry)
                }
                StateRule::Log(_) => Ok(false),
            }
        })
    }

    /// Returns the bytes of the logs of all versions.
    pub(crate) fn log_bytes(&self) -> usize {
        under_guard(|guard| {
            let (mut bytes, mut at) = (self.first.log.bytes(), self.later.load(guard)?);
            while let Some(later) = at {
                bytes += later.version.log.bytes();
                at = later.next()?;
            }
            Ok(bytes)
        })
    }

    pub(crate) fn is_sealed(&self, retired: &Bag) -> bool {
        under_guard(|guard| Ok(self.last(guard, retired)?.is_none()))
    }

    /// Returns the counts of the store that the state belongs to.
    pub(crate) fn counts(&self) -> &Counts {
        &self.first.rule.counts
    }

    /// Links a version behind the one that is there; behind the first version, if that is `None`.
    fn install_behind(&self, at: Option<At<'_, Later>>, new: Later, guard: &Guard) -> Result<(), Retry> {
        let installed = match at {
            None => self.later.install(new, guard),
            Some(later) => later.get().next.install(new, guard),
        };
        installed.map(drop).map_err(|_| Retry)
    }

    /// Returns the last version, after its word was brought; `None` if the state is sealed.
    fn last<'g>(&'g self, guard: &'g Guard, retired: &Bag) -> Result<Option<Last<'g>>, Retry> {
        let mut at = None::<At<'g, Later>>;
        loop {
            let version = at.map_or(&self.first, |later| &later.get().version);
            // ORDERING: acquire side of *replaced*: a thread that finds the word frozen finds the
            // next version.
            let word = version.word.load(Acquire);
            if word == SEALED {
                return Ok(None);
            }
            let following = at.map_or_else(|| self.later.load(guard), At::next)?;
            let Some(later) = following.map(At::get) else {
                assert!(!word.is_frozen(), "a word is frozen only when the next version is linked");
                if matches!(version.rule.rule, StateRule::Log(_)) && version.log.is_sealed() {
                    let _ = self.install_behind(at, Later::end(&version.rule), guard);
                    return Err(Retry);
                }
                return Ok(Some(Last { at, version }));
            };
            let next = &later.version;
            match (&version.rule.rule, &next.rule.rule) {
                (StateRule::Packed(old), StateRule::Packed(new)) => {
                    let frozen =
                        update(&version.word, |word| if word.is_frozen() { word } else { word.frozen() }).to;
                    if frozen == SEALED {
                        return Ok(None);
                    }
                    let translated = || new.adopt(old, frozen.thawed(), later.since);
                    update(&next.word, |found| if found.is_fresh() { translated() } else { found });
                }
                (StateRule::Log(_), _) if load(&next.word) == SEALED => return Ok(None),
                (StateRule::Log(old), StateRule::Log(new)) => {
                    next.log.take_over(&version.log, old, new, later.since);
                }
                _ => unreachable!("all rules of a store are of one algorithm"),
            }
            if let Some(this) = at {
                // The first version is part of its cell. One between it and the last is no longer
                // needed.
                self.later.advance(&this, guard, retired);
            }
            at = following;
        }
    }
}

impl Version {
    fn new(rule: Arc<SharedRule>, changes: u64) -> Self {
        let (checked, word) = (Atomic::new(changes), Atomic::new(Word::FRESH));
        Self { rule, checked, word, log: Log::new() }
    }

    #[inline]
    fn state<'s>(&'s self, retired: &'s Bag) -> AnyState<'s> {
        match &self.rule.rule {
            StateRule::Packed(rule) => AnyState::packed(State { rule, word: &self.word }),
            StateRule::Log(rule) => AnyState::log(rule, &self.log, retired),
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
        Self { version: Version::new(rule, changes), since, next: Link::null() }
    }

    /// Makes the end: the version after a log that was sealed for eviction.
    fn end(rule: &Arc<SharedRule>) -> Self {
        let end = Self::new(Wanted { rule: Arc::clone(rule), changes: 0, since: Tick::ZERO });
        update(&end.version.word, |_| SEALED);
        end
    }
}

impl Chained for Later {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Later {
    /// Returns the bytes of its log only: the store counts the versions.
    fn bytes(&self) -> usize {
        self.version.log.bytes()
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.version.rule.counts.later.fetch_sub(1, Relaxed);
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

    fn enforced(limit: u64) -> Enforced<StateRule> {
        let quota = Quota::new(limit, Duration::from_secs(1));
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        Enforced { rule: StateRule::Packed(rule), quota }
    }

    /// Each time that a call has found the last version, another thread links the next.
    #[test]
    fn a_call_that_is_held_up_in_many_eras_keeps_few_versions() {
        const TIMES: u64 = 500;
        let (counts, retired, times) = (Counts::new(), Bag::new(), Cell::new(0));
        let Enforced { rule, quota } = enforced(1);
        let rule = Arc::new(SharedRule { rule, quota, counts: Arc::clone(&counts) });
        let state = Versioned::idle(Wanted { rule, changes: 0, since: Tick::ZERO });
        let found = state.visit_as_is(&retired, |_| {
            (times.get() == TIMES).then_some(()).or_else(|| {
                times.set(times.get() + 1);
                state.replace(enforced(1 + times.get()), Tick::ZERO, &retired);
                retired.collect();
                // Guards of other tests may be in the way for a while.
                let end = Instant::now() + Duration::from_secs(60);
                while counts.later.load(Relaxed) > 10 {
                    retired.collect();
                    assert!(Instant::now() < end, "{} versions", counts.later.load(Relaxed));
                }
                None
            })
        });
        assert_eq!(found, Some(()));
    }
}
