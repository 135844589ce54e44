//! The [`Table`]: its arrays, and the turnover from one array to the next.

use super::array::{Array, CHUNK, Dawn};
use super::memory::{Memory, MemoryGrant};
use super::rules::{Changed, Rules};
use super::size::Size;
use super::space::{Fingerprint, Probe, SLOTS};
use super::step::{Step, reach};
use crate::decision::Decision;
use crate::error::Refused;
use crate::forgetting::Sweep;
use crate::growth;
use crate::quota::Enforced;
use crate::reclaim::{Bag, Followed, Guard, Retry, Root, under_guard};
use crate::rule::{AnyRule, Word, load};
use crate::state::{Since, State};
use crate::stats::{Stats, size};
use crate::sync::{Atomic, Counter, Ordering::Acquire, rest};
use crate::time::Tick;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of arrays for `max_keys` keys that are allocated at the same time: the root,
/// the next array, and two retired arrays that have not been freed yet. There may be more arrays if
/// they are smaller.
const ARRAYS_AT_CAP: u64 = 4;

/// The smallest memory bound for a table's arrays, in bytes. Even a small table can retire arrays
/// faster than they are freed, so its bound must not be too low.
pub(super) const LEAST_MEMORY: u64 = 1 << 20;

/// How many times a rule change requests memory before it gives up. The requests are a millisecond
/// apart.
pub(super) const TRIES: usize = 100;

/// A map from fingerprints to words, with a bound on the number of keys and on memory.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) root: Root<Array>,
    pub(super) max_keys: u64,
    /// How long a key must be idle before it may be forgotten.
    grace: Duration,
    pub(super) memory: Arc<Memory>,
    /// Tracks and limits the memory held by the rules for individual keys.
    rules: Arc<Memory>,
    done: Done,
}

/// Counters of the table's work, and the retired arrays. These fields have their own cache lines,
/// because most calls only read the other fields of a table.
#[derive(Debug)]
#[repr(align(128))]
struct Done {
    /// How many turnovers are complete.
    turnovers: Counter,
    /// How many keys were evicted.
    evicted: Counter,
    /// Former roots that have not been freed yet.
    retired: Bag,
}

/// Why a thread did not start a turnover.
#[derive(Debug, PartialEq, Eq)]
enum NotBegun {
    /// Another turnover is under way, or was under way when the thread tried to start its own.
    Preceded,
    /// The memory for the turnover is not permitted or not available.
    NotPermitted,
}

impl Table {
    /// The maximum number of slots closed by one step of a turnover.
    pub(crate) const STEP: usize = CHUNK * SLOTS;

    /// Creates an empty table under this rule.
    pub(crate) fn new(max_keys: usize, grace: Duration, rule: Enforced<AnyRule>) -> Result<Self, Refused> {
        Self::with_room_for(0, max_keys, grace, rule, &[])
    }

    /// Creates an empty table that has room for `keys` keys, under a default rule and the rules of
    /// individual keys.
    pub(super) fn with_room_for(
        keys: u64,
        max_keys: usize,
        grace: Duration,
        rule: Enforced<AnyRule>,
        own: &[(Fingerprint, Option<Enforced<AnyRule>>)],
    ) -> Result<Self, Refused> {
        // The number of keys and the number of chunks must each fit into half a word: see `chunks`.
        const MOST: usize = if usize::BITS > 32 { u32::MAX as usize } else { usize::MAX >> 8 };
        if max_keys == 0 || max_keys > MOST {
            return Err(Refused::MaxKeysOutOfRange { max_keys, most: MOST });
        }
        let max_keys = max_keys as u64;
        let memory = Memory::new((ARRAYS_AT_CAP * Array::bytes_of(Size::first(max_keys))).max(LEAST_MEMORY));
        let size = Size::first(growth::FIRST.max(keys).min(max_keys));
        let rules_memory = Memory::new(LEAST_MEMORY);
        let rules = Rules::new(rule);
        let rules = match rules.changed(&Since::START, None, own, &rules_memory) {
            Changed::To(rules) => rules,
            Changed::Nothing => rules,
            Changed::NotPermitted => return Err(Refused::OutOfMemory { bytes: rules_memory.bytes() }),
        };
        let first = MemoryGrant::take(&memory, Array::bytes_of(size))
            .and_then(|permit| Array::new(size, 0, Dawn::first(), rules, permit));
        let Some(first) = first else {
            return Err(Refused::OutOfMemory { bytes: Array::bytes_of(size) });
        };
        let done = Done { turnovers: Counter::new(), evicted: Counter::new(), retired: Bag::new() };
        Ok(Self { root: Root::to(first), max_keys, grace, memory, rules: rules_memory, done })
    }

    /// Creates an empty table for the same number of keys, with the given rule.
    pub(crate) fn beside(&self, rule: Enforced<AnyRule>) -> Result<Self, Refused> {
        Self::new(size(self.max_keys), self.grace, rule)
    }

    /// Calls `visit` with the state of `key`, if the key is in the table and has been charged.
    /// `visit` must return `None` if the word is frozen or fresh.
    #[inline(never)]
    pub(crate) fn known<T>(&self, key: Fingerprint, visit: impl Fn(State<'_>) -> Option<T>) -> Option<T> {
        self.known_in(key, |array, word| visit(array.state(key, word)))
    }

    /// Like [`known`](Self::known), but passes the word and the array that contains it.
    #[inline(always)]
    pub(super) fn known_in<T>(
        &self,
        key: Fingerprint,
        visit: impl Fn(&Array, &Atomic<Word>) -> Option<T>,
    ) -> Option<T> {
        under_guard(|guard| {
            let mut array = self.root(guard)?;
            loop {
                let here = array.get();
                array = match here.space.probe(key) {
                    Probe::Key(word) => match visit(here, word) {
                        Some(answer) => return Ok(Some(answer)),
                        None => match load(word) {
                            word if word.is_fresh() => return Ok(None),
                            frozen if frozen.is_frozen() => follow(array, key, word)?,
                            // The key was charged for the first time after `visit` had read the
                            // key's word.
                            _ => continue,
                        },
                    },
                    Probe::Sealed => Array::successor(array)?,
                    Probe::Empty(_) => return Ok(None),
                };
            }
        })
    }

    /// Returns whether a new key would find a place now. The answer is an estimate, because other
    /// threads insert and evict keys in the meantime.
    pub(crate) fn has_room(&self, now: Tick) -> bool {
        // During a turnover, only an insertion looks for idle keys, so a peek must let it try.
        self.with_arrays(|root, next| next.is_some() || root.has_place(None) || self.may_turn(root, now))
    }

    /// Returns an upper bound on the number of keys in the table. The bound includes keys that are
    /// being inserted, and refused keys whose requests have not been taken back yet.
    pub(crate) fn len(&self) -> usize {
        size(
            self.with_arrays(|root, next| next.map_or_else(|| root.used(None), |next| next.used(Some(root)))),
        )
    }

    /// Returns figures about the table's contents and work.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            keys: self.len(),
            room: size(self.with_last(|last| last.size.limit)),
            max_keys: size(self.max_keys),
            turnovers: self.done.turnovers.get(),
            evicted: self.done.evicted.get(),
            refused: 0,
            own_quotas: self.with_rules(Rules::count),
            bytes: self.bytes(),
        }
    }

    /// Returns the size in bytes of all arrays and rules that have not been freed yet.
    pub(crate) fn bytes(&self) -> usize {
        size(self.memory.bytes() + self.rules.bytes())
    }

    #[inline]
    pub(super) fn root<'g>(&'g self, guard: &'g Guard) -> Result<Followed<'g, Array>, Retry> {
        Ok(self.root.load(guard)?.expect("the root is never null"))
    }

    /// Returns the root, and the next array if the root is being turned over.
    fn arrays<'g>(&'g self, guard: &'g Guard) -> Result<(&'g Array, Option<&'g Array>), Retry> {
        let root = self.root(guard)?;
        Ok((root.get(), root.next()?.map(Followed::get)))
    }

    /// Calls `look` with the root, and with the next array if the root is being turned over.
    pub(super) fn with_arrays<T>(&self, look: impl Fn(&Array, Option<&Array>) -> T) -> T {
        under_guard(|guard| self.arrays(guard).map(|(root, next)| look(root, next)))
    }

    /// Calls `look` with the array into which new keys are inserted.
    pub(super) fn with_last<T>(&self, look: impl Fn(&Array) -> T) -> T {
        self.with_arrays(|root, next| look(next.unwrap_or(root)))
    }

    /// Returns whether to turn over a full array. Below the cap, always returns true, so that the
    /// table grows. At the cap, returns true once some keys may be old enough to be forgotten.
    fn may_turn(&self, root: &Array, now: Tick) -> bool {
        root.size.limit < self.max_keys || root.is_due(now, self.grace)
    }

    /// Returns whether to turn over a full array that had no place for a new key. If the array is
    /// at the cap, this method also records the time of the request.
    pub(super) fn may_turn_for(&self, root: &Array, now: Tick) -> bool {
        if root.size.limit == self.max_keys {
            root.note(now);
        }
        self.may_turn(root, now)
    }

    /// Closes the root and links the next array to the root. Returns false if the next array has no
    /// memory. If the memory is not permitted until a retired array is freed, the root is
    /// unchanged. If the system refuses the memory, the root is closed.
    pub(super) fn begin(&self, root: &Array, now: Tick, guard: &Guard) -> bool {
        root.next.is_linked()
            || self.begin_under(&root.rules, root, now, guard) != Err(NotBegun::NotPermitted)
    }

    /// Closes the root and links an array with these rules to the root.
    fn begin_under(&self, rules: &Rules, root: &Array, now: Tick, guard: &Guard) -> Result<(), NotBegun> {
        // The memory may be refused because another thread that is starting the same turnover holds
        // the permit.
        let not = || if root.next.is_linked() { NotBegun::Preceded } else { NotBegun::NotPermitted };
        // Take the permit before closing the root. A closed root gives out no more places, so it
        // must not be left without a next array.
        let permitted = self.permit_next(root, now).or_else(|| {
            // A collection may free a retired array.
            self.done.retired.collect();
            self.permit_next(root, now)
        });
        let (limit, permit) = permitted.ok_or_else(not)?;
        let used = root.close();
        reach(Step::Closed);
        let mut permit = Some(permit);
        let mut array = |limit: u64| {
            let size = self.size_after(root, used, limit);
            let permit = permit.take().or_else(|| MemoryGrant::take(&self.memory, Array::bytes_of(size)))?;
            let dawn = Dawn::after(root, now);
            let rules = rules.at(dawn.believed);
            Array::new(size, used, dawn, rules, permit)
        };
        // The system may have less memory than is permitted. In that case, try an array that is
        // just large enough for the keys in the root.
        let next = array(limit).or_else(|| array(used)).ok_or_else(not)?;
        let is_linked = root.next.install(next, guard).is_ok();
        reach(Step::Linked);
        if is_linked { Ok(()) } else { Err(NotBegun::Preceded) }
    }

    /// Returns the limit of the array that follows `root`, and a permit for that array's memory.
    /// The permit is large enough however many keys are inserted into `root` before `root` is
    /// closed. Returns `None` if not even an array for the keys now in `root` is permitted.
    fn permit_next(&self, root: &Array, now: Tick) -> Option<(u64, MemoryGrant)> {
        let used = root.used(None);
        [limit_after(root, used, now), used].into_iter().find_map(|limit| {
            let most = self.size_after(root, root.size.most, limit);
            Some((limit, MemoryGrant::take(&self.memory, Array::bytes_of(most))?))
        })
    }

    fn size_after(&self, root: &Array, used: u64, limit: u64) -> Size {
        Size::after(root.chunks(), used, limit.max(growth::FIRST).min(self.max_keys), self.max_keys)
    }

    /// Performs up to `steps` steps of upkeep: gives memory back, and works on the current
    /// turnover. If no turnover is under way and the table is far too large, starts a turnover to
    /// shrink the table. Returns true if there is more upkeep to do.
    ///
    /// A call with several steps first gives back one part of retired memory for each step, in a
    /// single system call. The call also pre-faults almost as many parts of the next array's
    /// memory. This leaves less of that work to checks, and interrupts other processors less often.
    pub(crate) fn tend(&self, steps: usize, now: Tick) -> bool {
        self.done.retired.collect();
        let is_leaving = self.memory.give_back(steps);
        self.with_arrays(|_, next| {
            if let Some(next) = next {
                next.space.populate_ahead(steps.saturating_sub(1));
            }
        });
        (0..steps).all(|_| self.step(now)) || is_leaving
    }

    /// Performs one step of a turnover. Returns true if there is more to do.
    fn step(&self, now: Tick) -> bool {
        under_guard(|guard| {
            Ok(match self.arrays(guard)? {
                (root, Some(next)) => !self.turn(root, next, guard),
                (root, None) => root.is_too_large(now) && self.begin(root, now, guard),
            })
        })
    }

    /// Starts a turnover to forget the idle keys. Does nothing if a turnover is under way, or if no
    /// key can have become old enough to be forgotten since the last turnover. `first` is the time
    /// at which the sweep started.
    pub(crate) fn begin_sweep(&self, now: Tick, first: Tick) -> Sweep {
        // This call may free the array that was retired last.
        self.done.retired.collect();
        under_guard(|guard| {
            let root = self.root(guard)?;
            if root.next.is_linked() {
                return Ok(Sweep::UnderWay);
            }
            let is_past = || root.believes(now).is_apart(root.believed, self.grace);
            let is_due = (now.is_apart(root.began, self.grace) || is_past())
                && !self.memory.is_short()
                && holds_something(&root);
            if is_due && !root.lets_sweep(now, first) {
                return Ok(Sweep::NotBelieved);
            }
            let is_turning = is_due && self.begin(&root, now, guard);
            Ok(if is_turning || self.memory.is_leaving() { Sweep::UnderWay } else { Sweep::Nothing })
        })
    }

    /// Records the time of a maintenance call. Like the time of a sweep, this time counts as
    /// evidence (see `forgetting`).
    pub(crate) fn note(&self, now: Tick) {
        self.with_last(|last| last.note(now));
    }

    /// Starts a turnover if there is a key to forget or room to give back. Does nothing if a
    /// turnover is already under way. Returns true if a turnover is under way after the call.
    pub(crate) fn begin_turnover(&self, now: Tick) -> bool {
        under_guard(|guard| {
            let root = self.root(guard)?;
            Ok(root.next.is_linked() || holds_something(&root) && self.begin(&root, now, guard))
        })
    }

    /// Calls `visit` with the state of every key, as [`known`](Self::known) does. Visits all keys
    /// that were in the table when the call started, and possibly some keys inserted since.
    pub(crate) fn each(&self, visit: impl Fn(State<'_>) -> Option<()>) {
        self.with_arrays(|root, next| {
            for array in [Some(root), next].into_iter().flatten() {
                for line in 0..array.space.lines() {
                    for key in array.space.keys(line) {
                        // The result is ignored, because the key may have been evicted since.
                        let _ = self.known(key, &visit);
                    }
                }
            }
        });
    }

    /// Returns the decision on a request for a key that is not in the table.
    pub(crate) fn fresh(&self, key: Fingerprint, now: Tick, cost: u64) -> Decision {
        self.with_last(|last| last.rules.of(key).enforced.rule.fresh(now, last.forgotten.get(), cost))
    }

    /// Calls `look` with the rules of the latest array, into which new keys are inserted.
    pub(crate) fn with_rules<T>(&self, look: impl Fn(&Rules) -> T) -> T {
        self.with_last(|last| look(&last.rules))
    }

    /// Replaces the rules with the result of `change`, unless nothing changes. When this call
    /// returns, the new rules apply to all keys. The change requires a turnover: a word can be
    /// interpreted only by the rule that made it, so the rules belong to the array.
    ///
    /// Returns false, and changes nothing, if no memory is granted within a tenth of a second
    /// because a stopped thread withholds retired arrays. Apart from that wait, the call is
    /// lock-free. It starts over only if another turnover was under way, and completes that
    /// turnover first.
    pub(crate) fn change(&self, now: Tick, change: impl Fn(&Rules, &Arc<Memory>) -> Changed) -> bool {
        let mut tries = 0;
        let ours = loop {
            match self.try_change(now, &change) {
                Ok(changes) => break changes,
                Err(NotBegun::Preceded) => tries = 0,
                Err(NotBegun::NotPermitted) => {
                    tries += 1;
                    if tries == TRIES {
                        return false;
                    }
                    rest();
                }
            }
        };
        under_guard(|guard| match self.arrays(guard)? {
            (root, Some(next)) if root.rules.changes() < ours => {
                next.space.populate_ahead(1);
                self.turn(root, next, guard);
                Err(Retry)
            }
            _ => Ok(true),
        })
    }

    /// Starts a change and returns its number. If another turnover is under way, works on that
    /// turnover instead.
    fn try_change(
        &self,
        now: Tick,
        change: impl Fn(&Rules, &Arc<Memory>) -> Changed,
    ) -> Result<u64, NotBegun> {
        under_guard(|guard| {
            let (root, next) = self.arrays(guard)?;
            if let Some(next) = next {
                self.turn(root, next, guard);
                return Ok(Err(NotBegun::Preceded));
            }
            Ok(match change(&root.rules, &self.rules) {
                Changed::To(rules) => self.begin_under(&rules, root, now, guard).map(|()| rules.changes()),
                Changed::Nothing => Ok(root.rules.changes()),
                Changed::NotPermitted => {
                    self.done.retired.collect();
                    Err(NotBegun::NotPermitted)
                }
            })
        })
    }

    /// Turns over one chunk of `root` into `next`. The call that finds all chunks done makes `next`
    /// the root. Returns true if the turnover is complete.
    pub(super) fn turn(&self, root: &Array, next: &Array, guard: &Guard) -> bool {
        let (evicted, moved) = root.turn_chunk(next, next.believed.before(self.grace));
        if evicted > 0 {
            self.done.evicted.add(evicted);
        }
        let Some(moved) = moved else { return false };
        reach(Step::AllMoved);
        next.carry(moved);
        reach(Step::Carried);
        if self.root.advance(root, guard, &self.done.retired) {
            reach(Step::Promoted);
            self.done.turnovers.add(1);
            self.done.retired.collect();
        }
        true
    }
}

/// Returns whether the root contains a key to forget, or more room than the smallest array.
fn holds_something(root: &Array) -> bool {
    root.used(None) > 0 || root.size.limit > growth::FIRST
}

/// Returns the limit of the next array, given that `root` contains at most `used` keys.
pub(super) fn limit_after(root: &Array, used: u64, now: Tick) -> u64 {
    let keys_stay = root.brought(None) > root.size.limit / 2;
    let next = growth::next_capacity(root.size.limit, used, root.began, now, keys_stay);
    // A smaller array must have room for all keys inserted during the turnover of the large root.
    // Otherwise, the new array would be full immediately.
    if next < root.size.limit { next.max(used + root.chunks()) } else { next }
}

/// Moves `key`, whose word was found frozen in `array`, and returns the next array. Does not move
/// an evicted key.
pub(super) fn follow<'g>(
    array: Followed<'g, Array>,
    key: Fingerprint,
    word: &Atomic<Word>,
) -> Result<Followed<'g, Array>, Retry> {
    // ORDERING: acquire side of *closed*, so this thread sees that the next array is linked. The
    // word is frozen, so this load returns the same word.
    let frozen = word.load(Acquire);
    let next = Array::successor(array)?;
    if frozen != Word::EVICTED {
        next.space.prepare(key);
        next.bring(key, frozen, &array);
    }
    Ok(next)
}
