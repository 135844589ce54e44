//! The table: one slot of 16 bytes for each key, found by fingerprint, claimed and moved without a lock.
//!
//! Growth, shrinking and eviction are one mechanism, as in a copying garbage collector. The table is an
//! *era*: an array of slots (a *space*) that only fills. When its places are given out (or when it has long
//! been far too large, or somebody sweeps), it is closed and a next era is linked to it, larger, equal or
//! smaller; its keys are moved there a chunk at a time, except the idle ones, which are forgotten; then the
//! next era becomes the root and the old one is retired. Why not the obvious thing, deletion in place: a slot
//! that can become empty again needs tombstones or locks to keep probe runs whole, and two threads that
//! insert one key could take two slots.
//!
//! # State
//!
//! The life of a slot, and nothing else is legal:
//!
//! ```text
//! fingerprint:  EMPTY -> fp                a key claims the first EMPTY slot of its probe run, by CAS
//!               EMPTY -> SEALED            by the turnover, or by a key that goes on to the next era
//! word:         fresh -> w1 -> w2 ...      charges, by `rule::try_update`
//!               fresh -> fresh             by who has its memory come
//!               w -> w|FROZEN              turnover: no more updates; to be found in the next era
//!               w -> EVICTED               turnover: w was idle; the key is forgotten
//! ```
//!
//! Of an era: `given` (places given to new keys, until CLOSED; and for a moment those asked for in vain), `next` (null, then the
//! next era for good), `chunks` (which parts are taken, which are done), `carried` (keys that came from the era before: unknown,
//! then exact), `room` (places for new keys while it is the root; 0 if that is not known, or there
//! are none any more), `forgotten` (the mark: see *Why no decision changes*), `believed` (the time
//! by which keys are judged when they come here; fixed), and the times of those who last wanted a
//! place (see `forgetting`). Of the table: `root` and the bytes of the eras that are not freed yet.
//!
//! # Invariants
//!
//! 1. A fingerprint never changes once written, and EMPTY never comes back.
//! 2. All slots before a key's slot in its probe run are taken by other keys. (It was claimed as the
//!    first EMPTY one, and by 1 they stay taken.) So a run that ends at an EMPTY or SEALED slot does
//!    not hold the key further on.
//! 3. So a fingerprint is in one slot of an era at most: two threads that insert it meet in the same
//!    slot, and of their compare-and-swaps one succeeds and the other finds the fingerprint there.
//! 4. A key is put into the next era only by who found it frozen in this one (and brings its word), by
//!    who found it EVICTED there, or by who found its run SEALED there. All three are for good, so a key
//!    is never live in two eras.
//! 5. A frozen word never changes, and what is moved is installed by CAS from fresh. A word never
//!    returns to fresh, so a helper that comes late finds it touched and does nothing.
//! 6. Whether a key is moved or evicted is decided once, by one CAS on its word. So all helpers of a chunk
//!    do and count the same, however late they come.
//! 7. `most >= given + brought` but for what is asked for in vain, where `brought` is `carried` or, while that is unknown, what the era
//!    before closed with less what was evicted since. Every key of the era before thus has a place in
//!    this one: a move can't fail.
//! 8. There are more slots than `most`, so a probe run always ends.
//! 9. An era is closed only when it is the root, so at most two are in use, and all keys of an era have
//!    come before it is turned over itself.
//!
//! # Why no decision changes
//!
//! A charge is one CAS on a word that is not frozen, in the one slot where its key is live (3, 4).
//! Freezing is a CAS on the same word: a charge comes before it, and is moved, or fails and goes on to
//! the next era, where it finds the moved word (5).
//!
//! What is evicted is idle: from some time on it decides as a fresh word does. Before a key is
//! evicted, the *mark* of the next era is raised to that time or a later one; the mark never falls,
//! and an era begins with that of the era before. A key is charged for the first time in an era at
//! `now` or, if that is later, at the mark of that era, which is read when it is known that the key
//! goes there: from the root, by which all raises are published (*link*); or from a slot of the
//! root that tells it, by an evicted word (*closed*: it publishes the raise) or a seal (then the
//! key was not in the root). So the charge counts at a time at which all that was forgotten of the
//! key was idle, and is decided as by a map that never forgets and is asked at that time, whatever
//! the caller's `now` is.
//!
//! The first word of a key is fresh between the claim of its slot and its first charge. A thread
//! that finds it does not know the mark, so no charge of known keys changes a fresh word
//! (`Word::is_live`): it is left to `Table::charge`, which does.
//!
//! Each era is judged by one time, which is fixed when the next one is made: `believed`, less the
//! grace. That it is believed is for the users' sake and not for safety: the mark covers whatever
//! is evicted. A helper that comes late may still raise a mark for a word that was charged since;
//! that was idle at `judged_at`, too, so no mark is later than the time at which some key of the
//! table became idle.
//!
//! # Changing the rules
//!
//! A word is only understood by the rule it was made under: its unit of time, or its fields, follow from the quota.
//! So the rules belong to the era ([`Rules`]: a default, and those that keys have of their own), and a change of
//! quotas is a turnover into an era with other rules. Whoever brings a key there translates its word
//! (`AnyRule::adopt`), as of the time at which the next era was made, so all who bring it bring the same. Which
//! change comes first is decided by who links the next era; the other begins again when that turnover is over.
//! A charge is judged by the rules of the era whose word it changes, before the word is frozen or in the next era:
//! none is judged by one quota and counted under another. A change is not begun before the memory
//! for the next era is permitted, and is complete when the call returns. Why not a rule for each key that
//! is looked up apart from its word: a thread that has looked up the old one could use it on a word of the new.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free, insertions too: whoever needs a move does it itself
//! (`bring`), whoever needs the next era links it, whoever needs a turnover to end works on a chunk, and
//! any thread may redo any chunk. No thread waits for another.
//!
//! # Work for each operation
//!
//! While a turnover is under way each insertion closes one chunk, [`Table::STEP`] = 16 slots,
//! before it inserts; so does one in 2048 charges of known keys. At the cap a turnover begins a
//! grace after the time by which the last one judged, or at any later time when as many new keys
//! were refused as there are chunks, or 4,096 if that is more: so a refused key pays for one chunk
//! at the most, and a key that is idle makes room after 5/4 as many refusals (chunks are 3/32 for
//! each key, of a small table 1/8). Below the cap that is all: an era has a spare place for each
//! chunk of the era before, so who has done a chunk finds a place. The chunks of threads that have
//! stopped in one are redone by others, one more for each such thread. At the cap, where only idle
//! keys make places, an insertion closes up to `charge::CHUNKS_AT_CAP` = 8 chunks and is then told
//! that the table is full. Beginning a turnover takes one allocation of zeroed memory. The system
//! gives a large table its memory part by part: an operation that brings a key to a part that
//! nobody has used asks for 64 KiB. What is retired goes back in the same way, a megabyte at a
//! time: see `pages`.
//!
//! A thread that stops between asking for a place and claiming its slot, or taking back what it asked for in vain, keeps that one
//! place until the next turnover, and nothing else.
//!
//! # Memory
//!
//! An era for n keys takes 3/2 n slots of 16 bytes and 3/32 n bytes for the chunks; a small one 2 n slots and n/8 bytes, up to 256
//! KiB of slots, which are also the least that a larger one has. The eras in use, and those that are retired and not freed yet, take
//! [`ERAS_AT_CAP`] = 4 times the era of `max_keys` at the most, or [`LEAST_MEMORY`] = 1 MiB if that is more. That is enforced before
//! the root is closed, for every turnover in the same way (`Table::begin_under`): a root without a next era would give out no more
//! places. A thread that stops under a guard keeps the eras that were in use then, two at the most, and the table turns over on
//! with the other two. Where several that stopped at different times keep more, no turnover starts beyond the bound: new keys
//! have the places that are left in the root, and get the full policy once it is full, until one of them goes on; known keys
//! notice nothing, and a `clear` resets the keys and does not forget them. The rules that keys have of their own are
//! counted and bounded apart from the eras, in the same way: see `rules`.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | link | `Link::install`, `Link::advance` | `Link::load` | the era behind a link, and for the root also how many keys it carried | `nested_growth_races_charge`, `inserts_at_the_cap_race_for_the_places_of_idle_keys` |
//! | closed | `space::seal`, `rule::try_update` of a word that is frozen | `Space::probe`, `follow`, `Era::evict` of a word that was evicted before | that the next era is linked, and for an evicted word the mark | `insert_races_seal`, `close_races_close`, `eviction_races_charge_and_gives_one_burst`, `eviction_races_late_charge_and_grants_nothing`, `late_charge_after_a_stalled_eviction_is_granted_nothing` |
//! | moved | `Chunks::finish` | `Chunks::add_up` | the words that were moved with a chunk | `promotion_races_peek` |
//! | added up | `Chunks::add_up` | `Chunks::add_up` | the words that were moved with all chunks | `promotion_races_peek` |
//!
//! All else is relaxed. A fingerprint publishes nothing: the word beside it is an atomic of its own, valid
//! (fresh) before the fingerprint is written. Freezing and sealing are decided by compare-and-swaps on the
//! one location they are about.

mod charge;
mod chunks;
mod era;
mod memory;
#[cfg_attr(not(all(target_os = "linux", not(tollgate_loom))), path = "table/no_pages.rs")]
mod pages;
mod rules;
mod slot;
mod space;
mod step;
mod view;

pub(crate) use rules::Rules;
pub(crate) use slot::Fingerprint;
pub(crate) use space::Line;
pub(crate) use view::View;

use crate::decision::Decision;
use crate::error::ConfigError;
use crate::forgetting::Sweep;
use crate::growth;
use crate::quota::Enforced;
use crate::reclaim::{Bag, Guard, Link, Stale, pin};
use crate::rule::{AnyRule, Word, load};
use crate::state::State;
use crate::sync::{Atomic, Counter, Ordering::Acquire, rest};
use crate::time::Tick;
use era::{CHUNK, Dawn, Era, Size};
use memory::{Memory, Permit};
use space::{Probe, SLOTS};
use std::sync::Arc;
use std::time::Duration;
use step::{Step, reach};

/// How many eras of the cap's size may be allocated at once: the root, the next, and two that are retired
/// and wait to be freed. Smaller ones may be more.
const ERAS_AT_CAP: u64 = 4;

/// Bytes that the eras of a small table may take all the same: it can retire them faster than they are freed.
const LEAST_MEMORY: u64 = 1 << 20;

/// How often a change of rules asks for memory, a millisecond apart.
const TRIES: usize = 100;

/// Keys and their words.
#[derive(Debug)]
pub(crate) struct Table {
    root: Link<Era>,
    max_keys: u64,
    /// How long a key must have been idle before it is forgotten.
    grace: Duration,
    memory: Arc<Memory>,
    /// Of the rules that keys have of their own.
    rules: Arc<Memory>,
    done: Done,
}

/// What a table has done. On cache lines of its own: the rest of a table is only read by most calls.
#[derive(Debug)]
#[repr(align(128))]
struct Done {
    /// Turnovers that are complete.
    turnovers: Counter,
    /// Keys that were evicted.
    evicted: Counter,
    /// Eras that were the root.
    retired: Bag,
}

/// How an attempt to change the rules ended.
#[derive(Debug)]
enum Change {
    /// It is under way, as the change with this number.
    Begun(u64),
    /// Another turnover is or was under way.
    Preceded,
    /// There is no memory for it.
    NotPermitted,
}

/// How an attempt to begin a turnover ended.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    Ours,
    /// Another thread has linked its era first.
    Anothers,
    /// There is no memory for it.
    Not,
}

impl Table {
    /// The slots that one step of a turnover closes at the most.
    pub(crate) const STEP: usize = CHUNK * SLOTS;

    pub(crate) fn new(
        max_keys: usize,
        grace: Duration,
        rule: Enforced<AnyRule>,
    ) -> Result<Self, ConfigError> {
        // Keys and lines are counted in halves of a word: see `chunks`.
        const MOST: usize = if usize::BITS > 32 { u32::MAX as usize } else { usize::MAX >> 8 };
        if max_keys == 0 || max_keys > MOST {
            return Err(ConfigError::MaxKeys { max_keys, most: MOST });
        }
        let max_keys = max_keys as u64;
        let memory = Memory::new((ERAS_AT_CAP * Size::first(max_keys).bytes()).max(LEAST_MEMORY));
        let size = Size::first(growth::FIRST.min(max_keys));
        let first = Permit::take(&memory, size.bytes())
            .and_then(|permit| Era::new(size, 0, Dawn::first(), Rules::new(rule), permit));
        let Some(first) = first else {
            return Err(ConfigError::OutOfMemory { bytes: size.bytes() });
        };
        let done = Done { turnovers: Counter::new(), evicted: Counter::new(), retired: Bag::new() };
        let rules = Memory::new(LEAST_MEMORY);
        Ok(Self { root: Link::to(first), max_keys, grace, memory, rules, done })
    }

    /// What there is to look for keys in: the root.
    #[inline(always)]
    pub(crate) fn view<'g>(&'g self, guard: &'g Guard) -> View<'g> {
        View::of(self.root(guard))
    }

    /// Gives the state of `key` to `visit`, if the key is in the table and was charged. `visit`
    /// answers unless the word is frozen or fresh.
    #[inline]
    pub(crate) fn known<'g, T>(
        &'g self,
        key: Fingerprint,
        guard: &'g Guard,
        visit: impl Fn(State<'g>) -> Option<T>,
    ) -> Option<T> {
        let mut era = self.root(guard);
        loop {
            let next = match era.space.probe(key) {
                Probe::Key(word) => match visit(era.state(key, word)) {
                    Some(answer) => return Some(answer),
                    None => match load(word) {
                        word if word.is_fresh() => return None,
                        frozen if frozen.is_frozen() => follow(era, key, word, guard),
                        // It has just been charged for the first time.
                        _ => continue,
                    },
                },
                Probe::Sealed => era.successor(guard),
                Probe::Empty(_) => return None,
            };
            era = next.unwrap_or_else(|Stale| self.root(guard));
        }
    }

    /// Would a new key find a place now? An estimate: other threads insert and evict meanwhile.
    pub(crate) fn has_room(&self, now: Tick, guard: &Guard) -> bool {
        match self.eras(guard) {
            (root, None) => root.has_place(None) || self.may_turn(root, now),
            (root, Some(next)) => next.has_place(Some(root)),
        }
    }

    /// The most keys that can be in the table now: those that were not evicted yet, and those that are
    /// being inserted, or were a moment ago and had no place.
    pub(crate) fn len(&self, guard: &Guard) -> usize {
        let used = match self.eras(guard) {
            (root, None) => root.used(None),
            (root, Some(next)) => next.used(Some(root)),
        };
        // At most `max_keys`, which was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let used = used as usize;
        used
    }

    pub(crate) fn max_keys(&self) -> usize {
        // It was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let max_keys = self.max_keys as usize;
        max_keys
    }

    /// How many keys find a place before the table turns over.
    pub(crate) fn capacity(&self, guard: &Guard) -> usize {
        let limit = self.last(guard).limit();
        // At most `max_keys`, which was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let limit = limit as usize;
        limit
    }

    /// How many turnovers are complete.
    pub(crate) fn turnovers(&self) -> u64 {
        self.done.turnovers.get()
    }

    /// How many keys were evicted.
    pub(crate) fn evicted(&self) -> u64 {
        self.done.evicted.get()
    }

    /// The bytes of all eras that are not freed yet.
    pub(crate) fn bytes(&self) -> usize {
        // What is allocated fits into memory.
        #[allow(clippy::cast_possible_truncation)]
        let bytes = (self.memory.bytes() + self.rules.bytes()) as usize;
        bytes
    }

    #[inline]
    fn root<'g>(&'g self, guard: &'g Guard) -> &'g Era {
        self.root.load(guard).expect("the root is never null")
    }

    /// The root, and the next era if the root is being turned over.
    fn eras<'g>(&'g self, guard: &'g Guard) -> (&'g Era, Option<&'g Era>) {
        loop {
            let root = self.root(guard);
            if let Ok(next) = root.next(guard) {
                return (root, next);
            }
        }
    }

    /// The era into which new keys come.
    fn last<'g>(&'g self, guard: &'g Guard) -> &'g Era {
        let (root, next) = self.eras(guard);
        next.unwrap_or(root)
    }

    /// Is a full era to be turned over? Below the cap always, to grow; at the cap when keys can have
    /// become old enough to be forgotten.
    fn may_turn(&self, root: &Era, now: Tick) -> bool {
        root.limit() < self.max_keys || root.is_due(now, self.grace)
    }

    /// The same for a new key that has found no place.
    fn may_turn_for(&self, root: &Era, now: Tick) -> bool {
        if root.limit() == self.max_keys {
            root.note(now);
        }
        self.may_turn(root, now)
    }

    /// Closes the root and links the next era to it. False if no memory is permitted for that until a retired era is freed:
    /// then the root goes on as it is.
    fn begin(&self, root: &Era, now: Tick, guard: &Guard) -> bool {
        root.next.is_linked() || self.begin_under(root.rules(), root, now, guard) != Begun::Not
    }

    /// The same, with the rules of the next era.
    fn begin_under(&self, rules: &Rules, root: &Era, now: Tick, guard: &Guard) -> Begun {
        // What was permitted may have gone to another thread that does the same.
        let not = || if root.next.is_linked() { Begun::Anothers } else { Begun::Not };
        // Before the root is closed: it gives out no more places then, so it must not be left without a next era.
        let permitted = self.permit_next(root, now).or_else(|| {
            // A retired era may only wait for a collection.
            self.done.retired.collect();
            self.permit_next(root, now)
        });
        let Some((limit, permit)) = permitted else { return not() };
        let used = root.close();
        reach(Step::Closed);
        let mut permit = Some(permit);
        let mut era = |limit: u64| {
            let size = self.size_after(root, used, limit);
            let permit = permit.take().or_else(|| Permit::take(&self.memory, size.bytes()))?;
            Era::new(size, used, Dawn::after(root, now), rules.clone(), permit)
        };
        // The system may have less memory than is permitted; then an era that holds what there is will do.
        let Some(next) = era(limit).or_else(|| era(used)) else { return not() };
        let linked = root.next.install(next, guard);
        reach(Step::Linked);
        if linked.is_some() { Begun::Ours } else { Begun::Anothers }
    }

    /// The limit of the era after `root`, and the permit for as much memory as an era with that limit can take, whatever comes
    /// into `root` until it is closed. `None` if there is no permit, not even for an era that holds what there is.
    fn permit_next(&self, root: &Era, now: Tick) -> Option<(u64, Permit)> {
        let used = root.used(None);
        [limit_after(root, used, now), used].into_iter().find_map(|limit| {
            let most = self.size_after(root, root.most(), limit);
            Some((limit, Permit::take(&self.memory, most.bytes())?))
        })
    }

    fn size_after(&self, root: &Era, used: u64, limit: u64) -> Size {
        Size::after(root, used, limit.max(growth::FIRST).min(self.max_keys), self.max_keys)
    }

    /// Does so many steps of what is to be done, as far as anything is: of giving memory back, and of the turnover that is
    /// under way, or of one that makes a table smaller which is far too large. True if there is more to do.
    ///
    /// Who does several steps has as much memory come before, and as much go at once: checks have less of it to do then, and
    /// other processors are told of it less often.
    pub(crate) fn tend(&self, steps: usize, now: Tick, guard: &Guard) -> bool {
        self.done.retired.collect();
        let is_leaving = self.memory.give_back(steps);
        if let (_, Some(next)) = self.eras(guard) {
            next.space.populate_ahead(steps.saturating_sub(1));
        }
        (0..steps).all(|_| self.step(now, guard)) || is_leaving
    }

    /// A step of a turnover; true if there is more to do.
    fn step(&self, now: Tick, guard: &Guard) -> bool {
        match self.eras(guard) {
            (root, Some(next)) => !self.turn(root, next, guard),
            (root, None) => root.is_too_large(now) && self.begin(root, now, guard),
        }
    }

    /// Begins a turnover to forget the idle keys, unless one is under way or no key can have become old
    /// enough since the last. The sweep began at `first`.
    pub(crate) fn begin_sweep(&self, now: Tick, first: Tick, guard: &Guard) -> Sweep {
        // What was retired last may wait for nothing but this.
        self.done.retired.collect();
        let root = self.root(guard);
        if root.next.is_linked() {
            return Sweep::UnderWay;
        }
        let is_past = || root.believes(now).is_apart(root.believed, self.grace);
        let is_due = (now.is_apart(root.began, self.grace) || is_past())
            && !self.memory.is_short()
            && holds_something(root);
        if is_due && !root.lets_sweep(now, first) {
            return Sweep::NotBelieved;
        }
        let is_turning = is_due && self.begin_turnover(now, guard);
        if is_turning || self.memory.is_leaving() { Sweep::UnderWay } else { Sweep::Nothing }
    }

    /// Notes the time of a caller who looks after the limiter: it is evidence, as that of a sweep
    /// is.
    pub(crate) fn note(&self, now: Tick, guard: &Guard) {
        self.last(guard).note(now);
    }

    /// Begins a turnover if there is something to forget or room to give back, unless one is under way.
    /// True if one is under way now.
    pub(crate) fn begin_turnover(&self, now: Tick, guard: &Guard) -> bool {
        let root = self.root(guard);
        root.next.is_linked() || holds_something(root) && self.begin(root, now, guard)
    }

    /// Gives the state of every key to `visit`, as [`known`](Self::known) does: of those that were in the table
    /// when this began, and of some that came since.
    pub(crate) fn each<'g>(&'g self, guard: &'g Guard, visit: impl Fn(State<'g>) -> Option<()>) {
        let (root, next) = self.eras(guard);
        for era in [Some(root), next].into_iter().flatten() {
            for line in 0..era.space.lines() {
                for key in era.space.keys(line) {
                    // It may have been evicted since.
                    let _ = self.known(key, guard, &visit);
                }
            }
        }
    }

    /// The answer to a request if the key is not in the table.
    pub(crate) fn fresh(&self, key: Fingerprint, now: Tick, cost: u64, guard: &Guard) -> Decision {
        let latest = self.last(guard);
        latest.rules().of(key).fresh(now, latest.forgotten(), cost)
    }

    /// The rules of the latest era: those that a new key comes under.
    pub(crate) fn rules<'g>(&'g self, guard: &'g Guard) -> &'g Rules {
        self.last(guard).rules()
    }

    /// Replaces the rules by what `change` makes of them, for all keys when this returns. It turns the table
    /// over: a word is only understood by the rule it was made under, so the rules belong to the era. False if
    /// for a tenth of a second no memory is permitted, because a stopped thread keeps what was retired; then
    /// nothing has changed.
    ///
    /// But for that, lock-free: it begins again where another turnover was under way, and that is complete then.
    pub(crate) fn change(&self, now: Tick, change: impl Fn(&Rules, &Arc<Memory>) -> Option<Rules>) -> bool {
        let mut tries = 0;
        let ours = loop {
            match self.try_change(now, &change) {
                Change::Begun(changes) => break changes,
                Change::Preceded => tries = 0,
                Change::NotPermitted => {
                    tries += 1;
                    if tries == TRIES {
                        return false;
                    }
                    rest();
                }
            }
        };
        loop {
            let guard = pin();
            match self.eras(&guard) {
                (root, Some(next)) if root.rules().changes() < ours => {
                    next.space.populate_ahead(1);
                    self.turn(root, next, &guard)
                }
                _ => return true,
            };
        }
    }

    /// Begins a change, or works on the turnover that has to be over first.
    fn try_change(&self, now: Tick, change: impl Fn(&Rules, &Arc<Memory>) -> Option<Rules>) -> Change {
        let guard = pin();
        let (root, next) = self.eras(&guard);
        if let Some(next) = next {
            self.turn(root, next, &guard);
            return Change::Preceded;
        }
        let Some(rules) = change(root.rules(), &self.rules) else {
            self.done.retired.collect();
            return Change::NotPermitted;
        };
        match self.begin_under(&rules, root, now, &guard) {
            Begun::Ours => Change::Begun(rules.changes()),
            Begun::Anothers => Change::Preceded,
            Begun::Not => Change::NotPermitted,
        }
    }

    /// Does one chunk of the turnover from `root` into `next`, and makes `next` the root if that was all.
    /// True if the turnover is over.
    fn turn(&self, root: &Era, next: &Era, guard: &Guard) -> bool {
        let turned = root.turn_chunk(next, next.believed.before(self.grace));
        if turned.evicted > 0 {
            self.done.evicted.add(turned.evicted);
        }
        let Some(moved) = turned.moved else { return false };
        reach(Step::AllMoved);
        next.carry(moved);
        reach(Step::Carried);
        if self.root.advance(root, &root.next, guard, &self.done.retired) {
            reach(Step::Promoted);
            self.done.turnovers.add(1);
            self.done.retired.collect();
        }
        true
    }
}

/// Is there a key to be forgotten in the root, or room to be given back?
fn holds_something(root: &Era) -> bool {
    root.used(None) > 0 || root.limit() > growth::FIRST
}

/// How many keys the era after `root` is to hold, in which at most `used` keys are.
fn limit_after(root: &Era, used: u64, now: Tick) -> u64 {
    let keys_stay = root.survivors() > root.limit() / 2;
    let next = growth::next_capacity(root.limit(), used, root.began, now, keys_stay);
    // A smaller one has room for all that come while the large root is turned over, or it would be
    // full at once.
    if next < root.limit() { next.max(used + root.chunks()) } else { next }
}

/// The era after the one in which the word of `key` was found frozen, with the key moved there.
fn follow<'g>(
    era: &'g Era,
    key: Fingerprint,
    word: &Atomic<Word>,
    guard: &'g Guard,
) -> Result<&'g Era, Stale> {
    // ORDERING: acquire side of *closed*: the next era is linked. The word is frozen, so it is the same.
    let frozen = word.load(Acquire);
    let next = era.successor(guard)?;
    if frozen != Word::EVICTED {
        next.space.prepare(key);
        next.bring(key, frozen, era);
    }
    Ok(next)
}

impl Drop for Table {
    fn drop(&mut self) {
        let mut era = self.root.take();
        while let Some(mut last) = era {
            era = last.next.take();
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::era::Place;
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::Quota;
    use std::cell::Cell;

    fn rule() -> Enforced<AnyRule> {
        let quota = Quota::per_second(1);
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        Enforced { rule, quota }
    }

    fn table() -> Table {
        Table::new(1_000, Duration::ZERO, rule()).unwrap()
    }

    fn insert(table: &Table, key: Fingerprint, now: Tick, guard: &Guard) {
        assert!(table.charge(key, now, 1, guard).is_some_and(|(answer, _)| answer.allowed()));
    }

    /// A root with so many places, into which so many keys came.
    fn root(limit: u64, survivors: u64) -> Era {
        let size = Size::first(limit);
        let permit = Permit::take(&Memory::new(LEAST_MEMORY), size.bytes()).unwrap();
        Era::new(size, survivors, Dawn::first(), Rules::new(rule()), permit).unwrap()
    }

    #[test]
    fn a_root_that_is_less_than_a_quarter_used_is_followed_by_a_smaller_era() {
        let root = root(80, 0);
        assert_eq!(root.chunks(), 11);
        // Twice the keys, but at least one place more for each chunk.
        for (used, limit) in [(0, 11), (10, 21), (11, 22), (12, 24), (19, 38), (20, 80), (79, 80)] {
            assert_eq!(limit_after(&root, used, Tick::ZERO), limit, "{used} used");
        }
    }

    #[test]
    fn keys_stay_if_more_than_half_of_a_root_came_from_the_era_before() {
        let slowly = Tick::ZERO + Duration::from_secs(60);
        for (survivors, limit) in [(0, 80), (40, 80), (41, 160)] {
            assert_eq!(limit_after(&root(80, survivors), 80, slowly), limit, "{survivors} survivors");
        }
    }

    /// Not for ever: it would wait for a thread that has stopped.
    #[test]
    fn a_change_that_gets_no_memory_gives_up_and_changes_nothing() {
        let (table, tries) = (table(), Cell::new(0));
        let changed = table.change(Tick::ZERO, |_, _| {
            tries.set(tries.get() + 1);
            assert!(tries.get() <= TRIES, "it does not give up");
            None
        });
        assert_eq!((changed, tries.get()), (false, TRIES));
        let guard = pin();
        assert_eq!(table.rules(&guard).changes(), 0);
        assert_eq!(table.root(&guard).place(None, Tick::ZERO), Place::Given, "the root is not closed");
    }

    /// Not even for a `clear`, which begins a turnover however long ago the last one was.
    #[test]
    fn a_root_is_not_closed_while_no_next_era_is_permitted() {
        let (table, guard) = (table(), pin());
        insert(&table, Fingerprint::of_hash(1 << 40), Tick::ZERO, &guard);
        let rest = Permit::take(&table.memory, LEAST_MEMORY - table.memory.bytes()).unwrap();
        assert!(!table.begin_turnover(Tick::ZERO, &guard));
        assert_eq!(table.root(&guard).place(None, Tick::ZERO), Place::Given);
        drop(rest);
        assert!(table.begin_turnover(Tick::ZERO, &guard));
        assert_eq!(table.root(&guard).place(None, Tick::ZERO), Place::Closed);
    }

    /// It asks for the memory before it closes the root, so it asks for as much as the next era can take.
    #[test]
    fn a_change_while_the_root_is_full_makes_it_larger() {
        let (table, guard) = (table(), pin());
        for hash in 0..growth::FIRST {
            insert(&table, Fingerprint::of_hash(hash << 32), Tick::ZERO, &guard);
        }
        let full = usize::try_from(growth::FIRST).unwrap();
        assert_eq!((table.len(&guard), table.capacity(&guard)), (full, full));
        let changed =
            |rules: &Rules, memory: &Arc<Memory>| rules.changed(Tick::ZERO, Some(rule()), &[], memory);
        assert!(table.change(Tick::ZERO, changed));
        assert_eq!((table.len(&guard), table.capacity(&guard)), (full, 4 * full));
    }

    /// Its words are frozen there and its slots sealed, or will be.
    #[test]
    fn no_key_comes_into_a_view_of_an_earlier_era() {
        let (table, guard) = (table(), pin());
        let [other, key] = [1, 2].map(|hash| Fingerprint::of_hash(hash << 40));
        insert(&table, other, Tick::ZERO, &guard);
        let view = table.view(&guard);
        let charge = |view: View<'_>, key| {
            let found = view.first_line(key).find(key);
            view.charge(view.gcra().unwrap(), found, key, Tick::ZERO, 1).map(|charge| charge.is_made())
        };
        assert!(table.begin_turnover(Tick::ZERO, &guard));
        assert_eq!((charge(view, other), charge(view, key)), (Some(false), None));
        while table.tend(1, Tick::ZERO, &guard) {}
        assert_eq!((table.turnovers(), table.len(&guard)), (1, 1));
        assert_eq!((charge(view, other), charge(view, key)), (None, None));
        let now = table.view(&guard);
        assert_eq!((charge(now, other), charge(now, key)), (Some(false), Some(true)));
        assert_eq!((table.len(&guard), charge(now, key)), (2, Some(false)));
    }

    #[test]
    fn a_key_whose_slot_another_key_has_taken_takes_no_place_with_it() {
        let (table, guard) = (table(), pin());
        let view = table.view(&guard);
        // Of one line.
        let [first, second] = [1, 2].map(|hash| Fingerprint::of_hash(hash << 40));
        let find = |key| view.first_line(key).find(key);
        let charge = |found, key| {
            view.charge(view.gcra().unwrap(), found, key, Tick::ZERO, 1).map(|charge| charge.is_made())
        };
        let lost = find(second);
        assert_eq!(charge(find(first), first), Some(true));
        assert_eq!((charge(lost, second), table.len(&guard)), (None, 1));
        assert_eq!(charge(find(second), second), Some(true));
        assert_eq!((charge(lost, second), table.len(&guard)), (None, 2));
        assert_eq!([first, second].map(|key| charge(find(key), key)), [Some(false); 2]);
    }

    /// A megabyte for each: or the memory of a flood would stay where only few new keys come.
    #[test]
    #[cfg(target_os = "linux")]
    fn new_keys_give_memory_back_before_others_come_in_at_once() {
        const LARGE: usize = 8 << 20;
        let (table, guard) = (table(), pin());
        let mut permit = Permit::take_up_to(&table.memory, LARGE as u64, 2 * LARGE as u64).unwrap();
        // SAFETY: bytes, and they are 0.
        #[allow(unsafe_code)]
        let mut block = unsafe { memory::zeroed(LARGE, || 0_u8) }.unwrap();
        block.leave(&mut permit);
        let view = table.view(&guard);
        let comes_at_once = |key: u64| {
            let key = Fingerprint::of_hash(key << 56);
            let found = view.first_line(key).find(key);
            view.charge(view.gcra().unwrap(), found, key, Tick::ZERO, 1).is_some() || {
                insert(&table, key, Tick::ZERO, &guard);
                false
            }
        };
        assert!((1..=8).all(|key| table.memory.is_leaving() && !comes_at_once(key)));
        assert!(!table.memory.is_leaving() && comes_at_once(9));
    }

    #[test]
    fn a_table_that_is_dropped_in_a_turnover_frees_both_eras() {
        let table = table();
        let memory = Arc::clone(&table.memory);
        let one = memory.bytes();
        let guard = pin();
        assert!(table.begin(table.root(&guard), Tick::ZERO, &guard));
        assert!(memory.bytes() > one);
        drop((guard, table));
        assert_eq!(memory.bytes(), 0);
    }
}
