//! The versions of a state. Each version has its own rule. The documentation of `state` describes
//! the states and invariants.

use super::any_state::AnyState;
use super::packed::State;
use super::shared_rule::{Counts, SharedRule, StateRule, Wanted};
use super::since::Since;
use crate::decision::Stamp;
use crate::log::{Log, Past, SlidingLog};
use crate::quota::Enforced;
use crate::reclaim::{Bag, Chained, Followed, Guard, Link, Retire, Retry, Root, under_guard};
use crate::rule::{Rule, Word, begin, load, update};
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed},
};
use crate::time::Tick;
use std::sync::Arc;

/// The word of an evicted state. No rule produces this word.
const SEALED: Word = Word::EVICTED;

/// The word of a version with a log, once the version may be used. Any other word that is not fresh
/// would also work.
const IN_USE: Word = Word::EVICTED;

/// A state whose rule may be replaced. See the documentation of `state`.
#[derive(Debug)]
pub(crate) struct Versioned {
    first: Version,
    later: Root<Later>,
    /// Used instead of the words if the rule is a sliding log.
    log: Log,
}

/// A rule, and the word that was made under it.
#[derive(Debug)]
struct Version {
    rule: Arc<SharedRule>,
    /// The latest count of changes at which the rule was known to be the wanted rule, modulo 2^32.
    checked: Atomic<u32>,
    /// The stamp of charges to this version.
    stamp: Stamp,
    /// With a sliding log, this word stays fresh for as long as a thread may write under the
    /// previous rule.
    word: Atomic<Word>,
}

/// A version that follows another version. It is counted until it is freed.
#[derive(Debug)]
struct Later {
    version: Version,
    change: Change,
    next: Link<Self>,
}

/// The data that a version receives from the change that created it.
#[derive(Clone, Debug)]
enum Change {
    /// The word is translated; this is the time of the change.
    Word(Since),
    /// Describes the admissions that had left the window of a log when the quota changed.
    Log(Past),
}

/// The last version, with its position in the chain if it is not the first version.
#[derive(Clone, Copy)]
struct Last<'g> {
    at: Option<Followed<'g, Later>>,
    version: &'g Version,
}

// The documentation of `Limiter::set_quota` says that a version occupies 96 bytes.
#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(Versioned::BYTES == 96);

impl Versioned {
    /// The size in bytes of a version that follows a change. Such a version is allocated separately
    /// from the cell.
    const BYTES: usize = Link::<Later>::BYTES;

    /// Creates a state that was never charged. It has no time yet, because the mark that bounds the
    /// first charge is known only after the state is linked. If the rule is replaced before the
    /// first charge, the state looks sealed, and nothing is lost.
    pub(crate) fn fresh(wanted: Wanted, stamp: Stamp) -> Self {
        let first = Version::new(wanted.rule, wanted.changes, stamp);
        Self { first, later: Root::null(), log: Log::new() }
    }

    /// Creates an idle state that other threads may see.
    pub(crate) fn idle(wanted: Wanted) -> Self {
        let state = Self::fresh(wanted, Stamp::NONE);
        match state.first_rule() {
            StateRule::Packed(rule) => {
                update(state.first_word(), |word| rule.adopt(rule, word, Tick::ZERO));
                state
            }
            StateRule::Log(rule) => Self { log: Log::begun(rule), ..state },
        }
    }

    /// Passes the state, under the wanted rule, to `visit`. Returns `None` if the state is sealed.
    /// The caller must have read `changes` before the call. `visit` may return `None` only if the
    /// state is frozen or sealed.
    #[inline]
    pub(crate) fn visit<T>(
        &self,
        changes: u64,
        wanted: impl Fn() -> Wanted,
        retired: &Bag,
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.first.is_checked(changes) {
            let answer = self.show(self.first_as_last(), retired, &visit);
            if answer.is_some() {
                return answer;
            }
        }
        self.visit_last(Some(changes), &wanted, retired, &visit)
    }

    /// The slow path of [`visit`](Self::visit). Without `changes`, any rule is the wanted rule.
    #[cold]
    fn visit_last<T>(
        &self,
        changes: Option<u64>,
        wanted: &dyn Fn() -> Wanted,
        retired: &Bag,
        visit: &dyn Fn(AnyState<'_>) -> Option<T>,
    ) -> Option<T> {
        under_guard(|guard| {
            let Some(last) = self.last(guard, retired)? else { return Ok(None) };
            if changes.is_some_and(|changes| !last.version.is_checked(changes)) {
                let wanted = wanted();
                if last.version.rule.rule != wanted.rule.rule {
                    self.install_behind(last, wanted, guard)?;
                    return Err(Retry);
                }
                last.version.note(wanted.changes);
            }
            self.show(last, retired, visit).map(Some).ok_or(Retry)
        })
    }

    /// Passes the state to `visit` under its last version.
    #[inline]
    fn show<T>(&self, last: Last<'_>, retired: &Bag, visit: impl Fn(AnyState<'_>) -> Option<T>) -> Option<T> {
        match &last.version.rule.rule {
            StateRule::Packed(rule) => {
                let Version { word, stamp, .. } = last.version;
                visit(AnyState::packed(State { rule, word, stamp: *stamp }))
            }
            StateRule::Log(rule) => {
                let (rule, is_latest) = (last.rule_of_log(rule), || !self.is_followed(last));
                if !is_latest() {
                    // Another version is linked, so there is no need to look at the log.
                    return None;
                }
                visit(AnyState::log(&rule, &self.log, retired, &is_latest))
            }
        }
    }

    fn first_as_last(&self) -> Last<'_> {
        Last { at: None, version: &self.first }
    }

    /// Returns whether another version is linked behind this one.
    fn is_followed(&self, last: Last<'_>) -> bool {
        last.at.map_or_else(|| self.later.is_linked(), |later| later.get().next.is_linked())
    }

    /// Returns the word of the first version. Only the first rule can interpret this word, and the
    /// word is frozen once that rule is replaced.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> &Atomic<Word> {
        &self.first.word
    }

    /// Returns the rule of the first version.
    #[inline(always)]
    pub(crate) fn first_rule(&self) -> &StateRule {
        &self.first.rule.rule
    }

    /// Replaces the state's rule, unless the quota is the same. Decisions made after this call
    /// returns use the new rule or a later one. The state must belong to no store, so that it is
    /// never sealed.
    pub(crate) fn replace(&self, new: Enforced<StateRule>, since: &Since, retired: &Bag) {
        under_guard(|guard| {
            let Some(last) = self.last(guard, retired)? else { return Ok(()) };
            if last.version.rule.quota == new.quota {
                return Ok(());
            }
            let SharedRule { counts, leases, .. } = &*last.version.rule;
            let rule = SharedRule::with_leases(new, counts, leases.clone());
            self.install_behind(last, Wanted { rule, changes: 0, since: since.clone() }, guard)
        });
        // Freeze the words of the earlier versions, and install their translations.
        under_guard(|guard| self.last(guard, retired).map(|_| ()));
    }

    /// Returns the state's rule, or `None` if the state is sealed.
    pub(crate) fn rule(&self, retired: &Bag) -> Option<Arc<SharedRule>> {
        under_guard(|guard| Ok(self.last(guard, retired)?.map(|last| Arc::clone(&last.version.rule))))
    }

    /// Passes the state to `visit` under its current rule, whatever rule is wanted. Returns `None`
    /// if the state is sealed.
    pub(crate) fn visit_as_is<T>(
        &self,
        retired: &Bag,
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> Option<T> {
        let wanted = || unreachable!("no count of changes to compare with");
        self.show(self.first_as_last(), retired, &visit)
            .or_else(|| self.visit_last(None, &wanted, retired, &visit))
    }

    /// Seals the state if it was idle at `judged_at`. Returns whether the state is now sealed.
    /// Before it seals the state, this method passes `forget` a time from which the state is idle.
    pub(crate) fn seal_if_idle(&self, judged_at: Tick, retired: &Bag, forget: impl Fn(Tick)) -> bool {
        under_guard(|guard| {
            let Some(last) = self.last(guard, retired)? else { return Ok(true) };
            match &last.version.rule.rule {
                StateRule::Packed(rule) => {
                    let is_idle = |word: Word| !word.is_frozen() && rule.is_idle(word, judged_at);
                    let seal = |word: Word| {
                        forget(rule.idle_from(word).unwrap_or(judged_at));
                        SEALED
                    };
                    let word =
                        update(&last.version.word, |word| if is_idle(word) { seal(word) } else { word }).to;
                    if word == SEALED || !word.is_frozen() { Ok(word == SEALED) } else { Err(Retry) }
                }
                StateRule::Log(rule) => {
                    let (rule, is_latest) = (last.rule_of_log(rule), || !self.is_followed(last));
                    self.log.seal_if_idle(&rule, judged_at, retired, &forget, is_latest).ok_or(Retry)
                }
            }
        })
    }

    /// Returns the size of the log in bytes.
    pub(crate) fn log_bytes(&self) -> usize {
        self.log.bytes()
    }

    pub(crate) fn is_sealed(&self, retired: &Bag) -> bool {
        under_guard(|guard| Ok(self.last(guard, retired)?.is_none()))
    }

    /// Returns the total size in bytes of a store's rules and of the versions created by changes.
    pub(crate) fn version_bytes(counts: &Counts) -> usize {
        counts.bytes() + counts.later() * Self::BYTES
    }

    /// Returns the counts of the state's store.
    pub(crate) fn counts(&self) -> &Counts {
        &self.first.rule.counts
    }

    /// Links a version behind the last one.
    fn install_behind(&self, last: Last<'_>, wanted: Wanted, guard: &Guard) -> Result<(), Retry> {
        let Version { rule: before, stamp, .. } = last.version;
        let change = match &before.rule {
            StateRule::Packed(_) => Change::Word(wanted.since.clone()),
            StateRule::Log(rule) => {
                let now = wanted.since.requested();
                Change::Log(self.log.past(&last.rule_of_log(rule), now, guard)?)
            }
        };
        let is_equal = before.rule == wanted.rule.rule;
        let stamp = if is_equal { *stamp } else { self.counts().draw_stamp() };
        let new = Later::new(wanted, change, stamp);
        let installed = match last.at {
            None => self.later.install(new, guard),
            Some(later) => later.get().next.install(new, guard),
        };
        installed.map(drop).map_err(|_| Retry)
    }

    /// Returns the last version after installing its word, or `None` if the state is sealed.
    fn last<'g>(&'g self, guard: &'g Guard, retired: &Bag) -> Result<Option<Last<'g>>, Retry> {
        let mut at = None::<Followed<'g, Later>>;
        loop {
            let version = at.map_or(&self.first, |later| &later.get().version);
            // ORDERING: acquire side of *replaced*. A thread that finds the word frozen also finds
            // the next version.
            let word = version.word.load(Acquire);
            let following = at.map_or_else(|| self.later.load(guard), Followed::next)?;
            let Some(later) = following.map(Followed::get) else {
                let is_sealed = match version.rule.rule {
                    StateRule::Packed(_) => word == SEALED,
                    StateRule::Log(_) => self.log.is_sealed(),
                };
                let is_frozen = word.is_frozen() && word != SEALED;
                assert!(!is_frozen, "a word is frozen only when the next version is linked");
                return Ok((!is_sealed).then_some(Last { at, version }));
            };
            let next = &later.version;
            match (&version.rule.rule, &next.rule.rule, &later.change) {
                (StateRule::Packed(old), StateRule::Packed(new), Change::Word(since)) => {
                    let frozen =
                        update(&version.word, |word| if word.is_frozen() { word } else { word.frozen() }).to;
                    if frozen == SEALED {
                        return Ok(None);
                    }
                    if load(&next.word).is_fresh() {
                        let word = version.rule.settled(frozen, &version.word);
                        let now = since.binding();
                        begin(&next.word, new.adopt(old, word, now));
                    }
                }
                (StateRule::Log(_), StateRule::Log(_), Change::Log(_)) => {
                    if load(&next.word) != IN_USE {
                        self.log.change(|| load(&next.word) != IN_USE);
                        update(&next.word, |_| IN_USE);
                    }
                }
                _ => unreachable!("all rules of a store are of one algorithm"),
            }
            if let Some(this) = at {
                // The first version is part of its cell and is never retired. Versions between the
                // first and the last are no longer needed.
                self.later.advance(&this, guard, retired);
            }
            at = following;
        }
    }
}

impl Version {
    fn new(rule: Arc<SharedRule>, changes: u64, stamp: Stamp) -> Self {
        let (checked, word) = (Atomic::new(low_bits(changes)), Atomic::new(Word::FRESH));
        Self { rule, checked, stamp, word }
    }

    #[inline]
    fn is_checked(&self, changes: u64) -> bool {
        // ORDERING: relaxed suffices, because this thread and the thread that recorded the count
        // have both read the counter of changes.
        !is_behind(self.checked.load(Relaxed), changes)
    }

    fn note(&self, changes: u64) {
        let later = |checked: u32| is_behind(checked, changes).then(|| low_bits(changes));
        // ORDERING: both accesses are relaxed; see `is_checked`.
        let _ = self.checked.fetch_update(Relaxed, Relaxed, later);
    }
}

/// Returns true if `checked` is before this count of changes. A state that stays behind by more
/// than 2^31 changes counts as checked. That is harmless: each call that changes the rule of a
/// state visits the state, and only threads that reach the state before this visit need the count.
#[inline]
const fn is_behind(checked: u32, changes: u64) -> bool {
    low_bits(changes).wrapping_sub(checked).cast_signed() > 0
}

#[inline]
const fn low_bits(changes: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation)]
    let low = changes as u32;
    low
}

impl Later {
    fn new(Wanted { rule, changes, .. }: Wanted, change: Change, stamp: Stamp) -> Self {
        // ORDERING: relaxed; a count.
        rule.counts.later.fetch_add(1, Relaxed);
        Self { version: Version::new(rule, changes, stamp), change, next: Link::null() }
    }
}

impl Last<'_> {
    /// Returns the rule of a log, with the log's past.
    #[inline]
    fn rule_of_log(self, rule: &SlidingLog) -> SlidingLog {
        match self.at.map(|later| &later.get().change) {
            Some(Change::Log(past)) => rule.with_past(*past),
            _ => *rule,
        }
    }
}

impl Chained for Later {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Later {
    /// Returns 0, because the store counts the versions.
    fn bytes(&self) -> usize {
        0
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

    /// Each time the call has found the last version, the test links another version, as another
    /// thread might.
    #[test]
    fn a_call_that_is_held_up_in_many_eras_keeps_few_versions() {
        const TIMES: u64 = 500;
        let counts = Counts::new();
        let (retired, times) = (Bag::new(), Cell::new(0));
        let rule = SharedRule::new(enforced(1), &counts);
        let state = Versioned::idle(Wanted { rule, changes: 0, since: Since::START });
        let found = state.visit_as_is(&retired, |_| {
            (times.get() == TIMES).then_some(()).or_else(|| {
                times.set(times.get() + 1);
                state.replace(enforced(1 + times.get()), &Since::START, &retired);
                retired.collect();
                // Guards of other tests may delay this for a while.
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
