//! A lock-free table of fingerprinted keys. Each key has one slot of 16 bytes. Threads find, claim
//! and move slots without a lock.
//!
//! Growth, shrinking and eviction are one mechanism, as in a copying garbage collector. The table
//! keeps its keys in an *array*. The slots of an array (its *space*) are filled but never emptied.
//!
//! An array is closed when all its places are taken, when it has long been far too large, or when a
//! caller sweeps. The next array, which may be larger, smaller or of the same size, is linked to
//! the closed array. Threads then move the keys of the old array to the next array, a chunk at a
//! time. Idle keys are not moved, so the table forgets them. Finally the next array becomes the
//! root, and the old array is retired.
//!
//! Why not delete keys in place? If a slot could become empty again, tombstones or locks would be
//! needed to keep probe runs unbroken. Without such protection, two threads that insert the same
//! key could claim two different slots.
//!
//! # State
//!
//! A slot changes only in these ways:
//!
//! ```text
//! fingerprint:  EMPTY -> fp           a key claims the first EMPTY slot of its probe run, by CAS
//!               EMPTY -> SEALED       by the turnover, or before a key is put into the next array
//! word:         fresh -> w1 -> w2 ... charges, by `rule::try_update`
//!               fresh -> fresh        by a write that only makes the memory present
//!               w -> w|FROZEN         turnover: no more updates; the key is moved to the next array
//!               w -> EVICTED          turnover: w was idle; the key is forgotten
//! ```
//!
//! An array has this state:
//!
//! - `given`: the number of places given to new keys, until the array is CLOSED. The number briefly
//!   includes refused requests.
//! - `next`: null at first, then the next array. It changes only once.
//! - `chunks`: which chunks of the turnover are taken, and which are done.
//! - `carried`: the number of keys moved here from the previous array. This number is unknown until
//!   all keys are moved.
//! - `room`: the number of places for new keys while the array is the root. The value is 0 if that
//!   number is unknown or if all places have been given.
//! - `forgotten`: the mark; see *Why no decision changes*.
//! - `believed`: the time at which the keys of the previous array are judged. This time never
//!   changes.
//! - `evidence`: the times of the latest requests for a place; see `forgetting`.
//!
//! The table itself has two pieces of state: `root`, and the number of bytes held by all arrays not
//! yet freed.
//!
//! # Invariants
//!
//! 1. A fingerprint never changes once it is written, and no slot returns to EMPTY.
//! 2. In a key's probe run, all slots before the key's slot contain other keys: the key claimed the
//!    first EMPTY slot, and by (1), the slots before it stay taken. Therefore, if a run ends at an
//!    EMPTY or SEALED slot, the key is not past that slot.
//! 3. By (2), a fingerprint is in at most one slot of an array. If two threads insert the same
//!    fingerprint, both reach the same slot. One compare-and-swap succeeds, and the other thread
//!    finds the fingerprint there.
//! 4. Before a thread puts a key into the next array, it must find one of three states in the
//!    current array: the key's word is frozen (in which case the thread also moves the word), the
//!    word is EVICTED, or the key's run is SEALED. All three states are final, so a key is never
//!    live in two arrays.
//! 5. A frozen word never changes. A moved word is installed by a CAS that expects a fresh word. A
//!    word never returns to fresh, so a late helper's CAS fails and changes nothing.
//! 6. A single CAS on the key's word decides whether the key is moved or evicted. Therefore all
//!    helpers of a chunk do the same work and count the same keys, however late they are.
//! 7. `most >= given + brought`, not counting refused requests that have not been taken back yet.
//!    `brought` is equal to `carried` once `carried` is known. Until then, `brought` is the number
//!    of keys that the previous array contained when it was closed, minus the number of keys
//!    evicted since. Therefore every key of the previous array has a place in this one, and a move
//!    cannot fail.
//! 8. An array has more slots than `most`, so a probe run always ends.
//! 9. An array is closed only while it is the root. Therefore at most two arrays are in use, and an
//!    array has received all keys of the previous array before its own turnover begins.
//!
//! # Why no decision changes
//!
//! A charge is one CAS on a word that is not frozen, in the one slot where the key is live
//! (invariants 3 and 4). Freezing is a CAS on the same word. If the charge precedes the freeze, the
//! charge is moved with the word. If the freeze precedes the charge, the charge's CAS fails. The
//! charge then continues in the next array, where it finds the moved word (invariant 5).
//!
//! An evicted key is idle: from a certain time on, the key's word gives the same decisions as a
//! fresh word. Before a key is evicted, the next array's *mark* is raised to at least that time.
//! The mark never falls, and a new array starts with the previous array's mark.
//!
//! A key's first charge in an array is computed for `now` or for the array's mark, whichever is
//! later. The thread reads the mark after it has learned that the key belongs in that array. There
//! are two ways to learn this:
//!
//! - The thread loads the root, which publishes all raises of the mark (the *link* edge).
//! - The thread finds an evicted word or a seal in a slot of the root. An evicted word publishes
//!   the raised mark (the *closed* edge). A seal shows that the key was not in the root.
//!
//! Therefore every forgotten word of the key is idle at the time for which the charge is computed.
//! Whatever the caller's `now` is, a map that never forgets would give the same decision for that
//! time.
//!
//! Between the claim of its slot and its first charge, a key's word is fresh. A thread that finds a
//! fresh word does not know the mark. Therefore charges of known keys do not change a fresh word
//! (`Word::is_live`). Only an insertion, such as `Table::find_or_insert`, changes a fresh word.
//!
//! All keys in an array are judged for the same time, `judged_at`, which is `believed` minus the
//! grace. It is fixed when the next array is created. Safety does not depend on `judged_at`,
//! because the mark covers every evicted key. The choice of `judged_at` matters only to users.
//!
//! A late helper may still raise a mark for a word that has since been charged. That word was also
//! idle at `judged_at`, so no mark is later than the time at which some key in the table became
//! idle.
//!
//! # Changing the rules
//!
//! Only the rule that made a word can interpret the word, because the word's time unit or its
//! fields depend on the quota. The rules therefore belong to the array: a default, and the rules
//! for individual keys (see [`Rules`]). A change of quotas is a turnover into an array with new
//! rules. A thread that moves a key into that array translates the key's word (`AnyRule::adopt`),
//! unless the key's rule is the same. The thread translates the word for a time that it reads from
//! the limiter's clock after the word was frozen, so no charge under the old rule is later (see
//! `state`). Helpers may read different times, and the first installation wins.
//!
//! A change starts only once the memory for the next array has been granted, and is complete when
//! the call returns. If two changes race, the change that first links its array wins. The other
//! change starts over after the winner's turnover.
//!
//! A charge is judged by the rules of the array whose word the charge changes: either before the
//! word is frozen, or in the next array. Therefore no charge is judged under one quota and counted
//! under another.
//!
//! Why not look up a key's rule separately from its word? Because a thread might look up the old
//! rule and then apply it to a word written under the new rule.
//!
//! # Progress
//!
//! Lookups, insertions and charges of known keys are lock-free. No thread waits for another: a
//! thread that needs a key in the next array moves the key itself (`bring`), a thread that needs a
//! next array links a new array, and a thread that needs a complete turnover works on the
//! turnover's chunks. Any thread may turn over any chunk again.
//!
//! # Work for each operation
//!
//! During a turnover, each insertion first closes one chunk, which has 16 slots ([`Table::STEP`]).
//! One in 2048 charges of known keys also closes a chunk.
//!
//! Below the cap, an insertion does no other work. An array has a spare place for each chunk of the
//! previous array (or fewer, if it reaches the cap), so an insertion finds a place after it has
//! closed a chunk. If a thread stops in the middle of a chunk, another operation redoes that chunk,
//! so each stopped thread costs one extra chunk.
//!
//! At the cap, a turnover starts once `now` is one grace later than the time for which the last
//! turnover judged its keys. It starts earlier once `N` new keys have been refused, where `N` is
//! the number of chunks, but at least 4,096. Even then, `now` must be later than the last
//! judgement. Therefore a refused key pays for at most one chunk, and an idle key makes room after
//! `5/4 * N` refusals. (There are 3/32 chunks for each key, or 1/8 in a small table.)
//!
//! At the cap, places become free only through the eviction of idle keys. An insertion therefore
//! closes up to 8 chunks (`walk::CHUNKS_AT_CAP`), and then reports that the table is full.
//!
//! A turnover starts with one allocation of zeroed memory. For a large table, the system provides
//! the memory part by part: an operation that moves a key to a part not yet in use requests 64 KiB.
//! Retired memory is returned in the same way, a megabyte at a time: see `pages`.
//!
//! A thread that stops between its request for a place and the claim of its slot withholds only
//! that one place, and only until the next turnover. The same is true of a thread that stops before
//! it takes back a refused request.
//!
//! # Memory
//!
//! As long as its slots occupy at most 256 KiB, an array for `n` keys has `2 * n` slots of 16
//! bytes, and `n / 8` bytes for the chunks. A larger array has `3/2 * n` slots (at least 256 KiB),
//! and `3/32 * n` bytes for the chunks.
//!
//! The arrays in use and the retired arrays not yet freed together occupy at most 4 times
//! ([`ARRAYS_AT_CAP`]) the size of an array for `max_keys`, or 1 MiB ([`LEAST_MEMORY`]) if that is
//! more. Every turnover checks this bound before it closes the root (`Table::begin_under`), because
//! a closed root without a next array would give out no more places.
//!
//! A thread that stops under a guard prevents at most two arrays from being freed: the arrays that
//! were in use at that time. The table still turns over with the memory of two other arrays. More
//! arrays may be withheld if several threads stop at different times, or if a thread that holds
//! several guards stops in a `clear` or on the slow path of a charge.
//!
//! A turnover does not start if it would exceed the bound. Until one of the stopped threads
//! resumes, new keys receive the root's remaining places. Once the root is full, the full policy
//! applies. Known keys are not affected, and a `clear` resets the keys rather than forgetting them.
//!
//! The rules for individual keys are counted and bounded in the same way, but separately from the
//! arrays: see `rules`.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | link | `Link::install`, `Link::advance` | `Link::follow` | the array behind a link, and for the root also how many keys it carried | `nested_growth_races_charge` |
//! | closed | `space::seal`, `rule::try_update` of a word that is frozen | `Space::probe`, `follow`, `Array::evict` of a word that was evicted before | that the next array is linked, and for an evicted word the mark | `insert_races_seal`, `close_races_close`, `eviction_races_charge_and_gives_one_burst`, `eviction_races_late_charge_and_grants_nothing`, `late_charge_after_a_stalled_eviction_is_granted_nothing` |
//! | moved | `Chunks::finish` | `Chunks::add_up` | the words that were moved with a chunk | `promotion_races_peek` |
//! | added up | `Chunks::add_up` | `Chunks::add_up` | the words that were moved with all chunks | `promotion_races_peek` |
//!
//! All other operations are relaxed. A fingerprint publishes no other data, because the word beside
//! it is a separate atomic that is valid (fresh) before the fingerprint is written. Freezing and
//! sealing are each decided by a compare-and-swap on the location that they change.

mod array;
mod chunks;
mod memory;
#[cfg_attr(not(all(target_os = "linux", not(tollgate_loom))), path = "table/no_pages.rs")]
mod pages;
mod rules;
mod saved;
mod size;
mod space;
mod step;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod turnover;
mod view;
mod walk;

pub(crate) use rules::Rules;
pub(crate) use saved::SavedWord;
pub(crate) use space::{Fingerprint, Line};
pub(crate) use turnover::Table;
pub(crate) use view::{View, is_turn};
