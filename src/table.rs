//! The table: one slot of 16 bytes for each key, found by fingerprint, claimed and moved without a lock.
//!
//! Growth, shrinking and eviction are one mechanism, as in a copying garbage collector. The table is an
//! *era*: an array of slots (a *space*) that only fills. When its places are given out (or when it has long
//! been far too large), it is closed and a next era is linked to it, larger, equal or smaller; its keys are moved there a chunk at a time, except
//! the idle ones, which are forgotten; then the next era becomes the root and the old one is retired. Why
//! not the obvious thing, deletion in place: a slot that can become empty again needs tombstones or locks
//! to keep probe runs whole, and two threads that insert one key could take two slots.
//!
//! # State
//!
//! The life of a slot, and nothing else is legal:
//!
//! ```text
//! fingerprint:  EMPTY -> fp                a key claims the first EMPTY slot of its probe run, by CAS
//!               EMPTY -> SEALED            by the turnover, or by a key that goes on to the next era
//! word:         fresh -> w1 -> w2 ...      charges, by `rule::update`
//!               w -> w|FROZEN              turnover: no more updates; to be found in the next era
//!               w -> EVICTED               turnover: w was idle; the key is forgotten
//! ```
//!
//! Of an era: `given` (places given to new keys, until CLOSED), `next` (null, then the next era for good),
//! `progress` (lines turned over, keys moved), `carried` (keys that came from the era before: unknown,
//! then exact). Of the table: `root` and the number of eras that are not freed yet.
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
//! 5. A frozen word never changes, and the moved copy is installed by CAS from fresh. A word never
//!    returns to fresh, so a helper that comes late finds it touched and does nothing.
//! 6. Whether a key is moved or evicted is decided once, by one CAS on its word. So every helper counts
//!    the same keys of a chunk, and `progress`, which holds lines and keys in one word, is exact.
//! 7. `limit >= given + brought`, where `brought` is `carried` or, while that is unknown, what the era
//!    before closed with less what was evicted since. Every key of the era before thus has a place in
//!    this one: a move can't fail.
//! 8. There are more slots than `limit`, so a probe run always ends.
//! 9. An era is closed only when it is the root, so at most two are in use, and all keys of an era have
//!    come before it is turned over itself.
//!
//! # Why no decision changes
//!
//! A charge is one CAS on a word that is not frozen, in the one slot where its key is live (3, 4).
//! Freezing is a CAS on the same word: a charge comes before it, and is moved, or fails and goes on to
//! the next era, where it finds the moved word (5). What is evicted was idle at `now - grace`, and an idle
//! word decides as a fresh one ever after; so for every thread whose `now` is not older than that, the
//! answer is that of a map that never forgets.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free, insertions too: whoever needs a move does it itself
//! (`bring`), whoever needs the next era links it, whoever needs a turnover to end works on the next
//! chunk, which any thread may redo. No thread waits for another. While a turnover is under way each
//! insertion closes one chunk, [`CHUNK`](era::CHUNK) lines or 16 slots, before it inserts.
//! There are two exceptions: at the cap it closes up to [`CHUNKS_AT_CAP`] chunks to find a place, and
//! below the cap, when the next era has no spare place yet, it goes on until one is freed or the turnover
//! has ended. Without insertions a turnover stays where it is; known keys are charged where they are.
//!
//! A thread that stops between asking for a place and claiming its slot keeps that one place until the
//! next turnover, and nothing else. A thread that stops while pinned keeps every retired era alive;
//! therefore no turnover starts while the eras that are in use or retired and not freed would take more
//! than [`ERAS_AT_CAP`] eras of the cap's size (or [`LEAST_MEMORY`], if that is more). Until then new keys
//! get the full policy and known keys notice nothing.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | link | `Link::install`, `Link::advance` | `Link::load` | the era behind a link, and for the root also how many keys it carried | `nested_growth_races_charge`, `inserts_at_the_cap_race_for_the_places_of_idle_keys` |
//! | closed | `Space::seal`, `rule::update` of a word that is frozen | `Space::probe`, `follow` | that the next era is linked | `insert_races_seal`, `eviction_races_charge_and_gives_one_burst` |
//! | turned | `Era::turn_chunk` | `Era::turn_chunk`, `Era::complete` | the words that were moved with a chunk | none: see below |
//! | shut | `Era::close` | `Era::close` | how many keys the era carried | none: see below |
//!
//! *turned* is needed by calls that only look: a charge repairs a stale reading of a moved word by its
//! compare-and-swap, a peek does not, and a refund would find no key. The models know no such call on
//! three threads in bounded time. *shut* makes a late closer's estimate exact; without it the estimate is
//! cut to the limit, which is safe.
//!
//! All else is relaxed. A fingerprint publishes nothing: the word beside it is an atomic of its own, valid
//! (fresh) before the fingerprint is written. Freezing and sealing are decided by compare-and-swaps on the
//! one location they are about.

mod era;
mod slot;
mod space;
mod step;

pub(crate) use slot::Fingerprint;

use crate::error::ConfigError;
use crate::rule::Word;
use crate::sync::{Atomic, Guard, Link, Ordering::Acquire, collect};
use crate::time::Tick;
use era::{Era, Memory, Place};
use space::{Claim, Probe};
use std::sync::Arc;
use std::time::Duration;
use step::{Step, reach};

/// The limit of the first era, unless the cap is lower.
const FIRST_LIMIT: u64 = if cfg!(tollgate_loom) { 2 } else { 40 };

/// How many eras of the cap's size may be allocated at once: the root, the next, and two that are retired
/// and wait to be freed. Smaller ones may be more.
const ERAS_AT_CAP: u64 = 4;

/// Bytes that the eras of a small table may take all the same: it can retire them faster than they are freed.
const LEAST_MEMORY: u64 = 1 << 20;

/// How many chunks an insertion turns over at the cap before it gives up.
const CHUNKS_AT_CAP: usize = 8;

/// An era that filled faster than this was too small, so the next is twice as large.
const QUICK: Duration = Duration::from_secs(10);

/// An era that is older than this and hardly used was too large, so the next is smaller.
const CALM: Duration = Duration::from_secs(60);

/// Keys and their words.
#[derive(Debug)]
pub(crate) struct Table {
    root: Link<Era>,
    max_keys: u64,
    /// How long a key must have been idle before it is forgotten.
    grace: Duration,
    memory: Arc<Memory>,
}

/// There is no place for a new key.
#[derive(Debug)]
pub(crate) struct TableFull;

impl Table {
    pub(crate) fn new(max_keys: usize, grace: Duration) -> Result<Self, ConfigError> {
        // Keys and lines are counted in halves of a word: see `era::Progress`.
        const MOST: usize = if usize::BITS > 32 { u32::MAX as usize } else { usize::MAX >> 8 };
        if max_keys == 0 || max_keys > MOST {
            return Err(ConfigError::MaxKeys { max_keys, most: MOST });
        }
        let max_keys = max_keys as u64;
        let memory = Memory::new((ERAS_AT_CAP * Era::bytes(max_keys)).max(LEAST_MEMORY));
        let limit = FIRST_LIMIT.min(max_keys);
        match Era::new(limit, 0, Tick::ZERO, &memory) {
            Some(first) => Ok(Self { root: Link::to(first), max_keys, grace, memory }),
            None => Err(ConfigError::OutOfMemory { bytes: Era::bytes(limit) }),
        }
    }

    /// Gives the word of `key` to `visit`, if the key is in the table. `visit` answers unless the word is
    /// frozen.
    #[inline]
    pub(crate) fn known<T>(
        &self,
        key: Fingerprint,
        guard: &Guard,
        visit: impl Fn(&Atomic<Word>) -> Option<T>,
    ) -> Option<T> {
        let mut era = self.root(guard);
        loop {
            era = match era.space.probe(key) {
                Probe::Key(word) => match visit(word) {
                    Some(answer) => return Some(answer),
                    None => follow(era, key, word, guard),
                },
                Probe::Sealed => era.successor(guard),
                Probe::Empty(_) => return None,
            };
        }
    }

    /// Gives the word of `key` to `visit`, after inserting the key if need be. `visit` answers unless the
    /// word is frozen; `is_idle` says of a word whether its key may be forgotten.
    #[cold]
    pub(crate) fn insert<T>(
        &self,
        key: Fingerprint,
        now: Tick,
        guard: &Guard,
        is_idle: impl Fn(Word) -> bool,
        visit: impl Fn(&Atomic<Word>) -> Option<T>,
    ) -> Result<T, TableFull> {
        self.help(guard, &is_idle);
        let (mut chunks, mut turnovers) = (1, 0);
        let (mut before, mut era) = (None, self.root(guard));
        loop {
            let next = match era.space.probe(key) {
                Probe::Key(word) => match visit(word) {
                    Some(answer) => return Ok(answer),
                    None => follow(era, key, word, guard),
                },
                Probe::Sealed => era.successor(guard),
                Probe::Empty(empty) => {
                    if era.next(guard).is_some() {
                        // Keys go to the next era from now on; this run must not take one any more.
                        empty.seal();
                        continue;
                    }
                    if before.is_none() && self.is_too_large(era, now) && self.begin(era, now, guard) {
                        continue;
                    }
                    match (era.place(before), before) {
                        (Place::Given, _) => {
                            reach(Step::PlaceGiven);
                            match era.space.claim(key) {
                                Claim::New(word) => {
                                    reach(Step::Claimed);
                                    if let Some(answer) = visit(word) {
                                        return Ok(answer);
                                    }
                                }
                                Claim::Known(_) | Claim::Sealed => era.give_back(),
                            }
                            continue;
                        }
                        (Place::None, Some(root)) => {
                            if era.limit == self.max_keys && chunks >= CHUNKS_AT_CAP {
                                return self.known(key, guard, visit).ok_or(TableFull);
                            }
                            chunks += 1;
                            self.turn(root, era, guard, &is_idle);
                            (before, era) = (None, self.root(guard));
                            continue;
                        }
                        (Place::None, None) if turnovers > 0 && era.limit == self.max_keys => {
                            return self.known(key, guard, visit).ok_or(TableFull);
                        }
                        (Place::None, None) if !self.may_turn(era, now) => {
                            return self.known(key, guard, visit).ok_or(TableFull);
                        }
                        (Place::None | Place::Closed, _) => {
                            if !self.begin(era, now, guard) {
                                return self.known(key, guard, visit).ok_or(TableFull);
                            }
                            turnovers += 1;
                            continue;
                        }
                    }
                }
            };
            (before, era) = (Some(era), next);
        }
    }

    /// Asks the processor to load what a lookup will read.
    #[inline]
    pub(crate) fn prefetch(&self, key: Fingerprint, guard: &Guard) {
        self.root(guard).space.prefetch(key);
    }

    /// Would a new key find a place now? An estimate: other threads insert and evict meanwhile.
    pub(crate) fn has_room(&self, now: Tick, guard: &Guard) -> bool {
        let root = self.root(guard);
        match root.next(guard) {
            None => root.used(None) < root.limit || self.may_turn(root, now),
            Some(next) => next.used(Some(root)) < next.limit,
        }
    }

    /// The most keys that can be in the table now: those that were not evicted yet, and those that are
    /// being inserted.
    pub(crate) fn len(&self, guard: &Guard) -> usize {
        let root = self.root(guard);
        let used = match root.next(guard) {
            None => root.used(None),
            Some(next) => next.used(Some(root)),
        };
        // At most `max_keys`, which was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let used = used as usize;
        used
    }

    /// The bytes of all eras that are not freed yet.
    pub(crate) fn bytes(&self) -> usize {
        // What is allocated fits into memory.
        #[allow(clippy::cast_possible_truncation)]
        let bytes = self.memory.bytes() as usize;
        bytes
    }

    #[inline]
    fn root<'g>(&self, guard: &'g Guard) -> &'g Era {
        self.root.load(guard).expect("the root is never null")
    }

    /// Is a full era to be turned over? Below the cap always, to grow; at the cap not more often than
    /// keys can become old enough to be forgotten.
    fn may_turn(&self, root: &Era, now: Tick) -> bool {
        root.limit < self.max_keys || age(root, now) >= self.grace
    }

    /// Is far less of the root used than there is, and has been for long? Then the next era can be smaller.
    /// Not while memory is short: a root that is closed before it is full must not wait for its next era.
    fn is_too_large(&self, root: &Era, now: Tick) -> bool {
        root.limit > FIRST_LIMIT
            && age(root, now) >= CALM
            && root.used(None) < root.limit / 4
            && !self.memory.is_short()
    }

    /// Closes the root and links the next era to it. False if there is no memory, or none is permitted
    /// until a retired era is freed.
    fn begin(&self, root: &Era, now: Tick, guard: &Guard) -> bool {
        if root.next(guard).is_some() {
            return true;
        }
        let used = root.close();
        reach(Step::Closed);
        let limit = self.limit_after(root, used, now);
        // If there is no memory for a larger era, one that holds what there is will do.
        let era = Era::new(limit, used, now, &self.memory)
            .or_else(|| Era::new(used.max(FIRST_LIMIT).min(self.max_keys), used, now, &self.memory));
        match era {
            Some(next) => {
                root.next.install(next, guard);
                reach(Step::Linked);
                true
            }
            None => {
                // A retired era may only wait for somebody to look after it; and what was permitted may have
                // gone to another thread that does the same.
                collect(guard);
                root.next(guard).is_some()
            }
        }
    }

    /// The limit of the era after `root`, in which at most `used` keys are. Twice as many, if `root` filled
    /// quickly or is full of keys that stay, or if it was far too large; else as many, for most of its keys
    /// came only once.
    fn limit_after(&self, root: &Era, used: u64, now: Tick) -> u64 {
        let keys_stay = root.survivors() > root.limit / 2;
        let was_full = used >= root.limit;
        let more = if age(root, now) < QUICK || keys_stay || !was_full { used } else { 0 };
        (used + more).max(FIRST_LIMIT).min(self.max_keys)
    }

    /// Works on a turnover that is under way, if one is.
    fn help(&self, guard: &Guard, is_idle: impl Fn(Word) -> bool) {
        let root = self.root(guard);
        if let Some(next) = root.next(guard) {
            self.turn(root, next, guard, is_idle);
        }
    }

    /// Does one chunk of the turnover from `root` into `next`, and makes `next` the root if that was all.
    fn turn(&self, root: &Era, next: &Era, guard: &Guard, is_idle: impl Fn(Word) -> bool) {
        if root.turn_chunk(next, is_idle) {
            reach(Step::AllMoved);
            root.complete(next);
            reach(Step::Carried);
            if self.root.advance(root, next, guard) {
                reach(Step::Promoted);
                collect(guard);
            }
        }
    }
}

/// How long ago an era began, or will have begun by the clock of another thread.
fn age(era: &Era, now: Tick) -> Duration {
    now.since(era.began).max(era.began.since(now))
}

/// The era after the one in which the word of `key` was found frozen, with the key moved there.
fn follow<'g>(era: &Era, key: Fingerprint, word: &Atomic<Word>, guard: &'g Guard) -> &'g Era {
    // ORDERING: acquire side of *closed*: the next era is linked. The word is frozen, so it is the same.
    let frozen = word.load(Acquire);
    let next = era.successor(guard);
    if frozen != Word::EVICTED {
        next.bring(key, frozen);
    }
    next
}

impl Drop for Table {
    fn drop(&mut self) {
        let mut era = self.root.take();
        while let Some(mut last) = era {
            era = last.next.take();
        }
    }
}
