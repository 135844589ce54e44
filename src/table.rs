//! The lock-free table of fingerprinted keys: one slot of 16 bytes for each key, found, claimed and
//! moved without a lock.
//!
//! Growth, shrinking and eviction are one mechanism, as in a copying garbage collector. The table
//! is an *array*: an array of slots (a *space*) that only fills. An array is closed when all its
//! places are given out, when it has long been far too large, or when a caller sweeps. A next array
//! is linked to it, which is larger, equal or smaller. The keys of the old array are moved there a
//! chunk at a time. Idle keys are not moved, which forgets them. Then the next array becomes the
//! root and the old one is retired.
//!
//! Why not delete in place? A slot that can become empty again needs tombstones or locks to keep
//! probe runs whole, and two threads that insert one key could take two slots.
//!
//! # State
//!
//! These are all the steps in the life of a slot:
//!
//! ```text
//! fingerprint:  EMPTY -> fp           a key claims the first EMPTY slot of its probe run, by CAS
//!               EMPTY -> SEALED       by the turnover, or before a key goes into the next array
//! word:         fresh -> w1 -> w2 ... charges, by `rule::try_update`
//!               fresh -> fresh        by a write that only makes the memory present
//!               w -> w|FROZEN         turnover: no more updates; the key goes to the next array
//!               w -> EVICTED          turnover: w was idle; the key is forgotten
//! ```
//!
//! The state of an array:
//!
//! - `given`: the places given to new keys, until CLOSED. For a moment it also counts requests that
//!   were refused.
//! - `next`: null, then the next array for good.
//! - `chunks`: which parts of the turnover are taken, and which are done.
//! - `carried`: how many keys came from the array before. Unknown at first, then exact.
//! - `room`: the places for new keys while the array is the root. It is 0 if that is not known, or
//!   if all places are given.
//! - `forgotten`: the mark; see *Why no decision changes*.
//! - `believed`: the time by which the keys that come here are judged. It is fixed.
//! - the times of the requests that last asked for a place; see `forgetting`.
//!
//! The state of the table: `root`, and the bytes of the arrays that are not freed yet.
//!
//! # Invariants
//!
//! 1. A fingerprint never changes once written, and EMPTY never comes back.
//! 2. All slots before a key's slot in its probe run hold other keys. (The key claimed the first
//!    EMPTY slot, and by 1 the slots before it stay taken.) So a run that ends at an EMPTY or
//!    SEALED slot does not hold the key further on.
//! 3. So a fingerprint is in at most one slot of an array. Two threads that insert it meet in the
//!    same slot: one compare-and-swap succeeds, and the other thread finds the fingerprint there.
//! 4. A thread puts a key into the next array only after it found the key's word frozen in this one
//!    (it brings the word along), found it EVICTED there, or found the key's run SEALED there. All
//!    three are for good, so a key is never live in two arrays.
//! 5. A frozen word never changes, and a moved word is installed by CAS from fresh. A word never
//!    returns to fresh, so a helper that comes late finds it touched and does nothing.
//! 6. Whether a key is moved or evicted is decided once, by one CAS on its word. So all helpers of
//!    a chunk do and count the same, however late they come.
//! 7. `most >= given + brought`, apart from requests for a place that were refused and not taken
//!    back yet. `brought` is `carried` or, while that is unknown, the keys with which the array
//!    before closed, less those evicted since. So every key of the array before has a place in this
//!    one, and a move can't fail.
//! 8. There are more slots than `most`, so a probe run always ends.
//! 9. An array is closed only while it is the root. So at most two arrays are in use, and all keys
//!    of an array have come before its own turnover begins.
//!
//! # Why no decision changes
//!
//! A charge is one CAS on a word that is not frozen, in the one slot where its key is live (3, 4).
//! Freezing is a CAS on the same word. A charge that comes before it is moved with the word. A
//! charge that comes after it fails and goes to the next array, where it finds the moved word (5).
//!
//! An evicted key is idle: from some time on its word decides as a fresh word does. Before a key is
//! evicted, the *mark* of the next array is raised to that time or a later one. The mark never
//! falls, and an array begins with the mark of the array before.
//!
//! A key is charged for the first time in an array at `now` or, if that is later, at the mark of
//! that array. The thread reads the mark once it knows that the key belongs in that array. It knows
//! that in one of two ways:
//!
//! - from the root, which publishes all raises (*link*);
//! - from a slot of the root: an evicted word (*closed*: it publishes the raise) or a seal (then
//!   the key was not in the root).
//!
//! So the charge counts at a time at which everything forgotten of the key was idle. It is decided
//! as by a map that never forgets and is asked at that time, whatever the caller's `now` is.
//!
//! A key's word is fresh between the claim of its slot and its first charge. A thread that finds a
//! fresh word does not know the mark. So charges of known keys leave a fresh word alone
//! (`Word::is_live`), and `Table::find_or_insert` changes it.
//!
//! The keys of an array are judged by one time, `believed` less the grace, which is fixed when the
//! next array is made. Safety does not depend on that time, because the mark covers whatever is
//! evicted; it is believed for the sake of users. A helper that comes late may still raise a mark
//! for a word that was charged since. That word was idle at `judged_at`, too, so no mark is later
//! than the time at which some key of the table became idle.
//!
//! # Changing the rules
//!
//! A word is only understood by the rule it was made under: its unit of time, or its fields, follow
//! from the quota. So the rules belong to the array ([`Rules`]: a default, and the rules of single
//! keys), and a change of quotas is a turnover into an array with other rules. A thread that brings
//! a key there translates its word (`AnyRule::adopt`), as of the time at which the next array was
//! made. So all helpers bring the same word.
//!
//! Of two changes the first to link the next array wins, and the other begins again when that
//! turnover is over. A charge is judged by the rules of the array whose word it changes, either
//! before the word is frozen or in the next array. So no charge is judged by one quota and counted
//! under another. A change begins after the memory for the next array is permitted, and is complete
//! when the call returns.
//!
//! Why not look up a rule for each key, apart from its word? A thread that has looked up the old
//! rule could use it on a word of the new one.
//!
//! # Progress
//!
//! Lookups, charges of known keys and insertions are lock-free. A thread that needs a key moved
//! moves it (`bring`), a thread that needs the next array links it, a thread that needs a turnover
//! to end works on a chunk, and any thread may redo any chunk. No thread waits for another.
//!
//! # Work for each operation
//!
//! During a turnover each insertion first closes one chunk, [`Table::STEP`] = 16 slots. One in 2048
//! charges of known keys closes one, too.
//!
//! Below the cap that is all. An array has a spare place for each chunk of the array before, so an
//! insertion that has done a chunk finds a place. If a thread stops in a chunk, another operation
//! redoes it: one more chunk for each such thread.
//!
//! At the cap a turnover begins a grace after the time by which the last one judged. It also begins
//! at any later time once as many new keys were refused as there are chunks, or 4,096 if that is
//! more. So a refused key pays for at most one chunk, and an idle key makes room after 5/4 as many
//! refusals. (There are 3/32 chunks for each key, 1/8 in a small table.) Only idle keys make places
//! there, so an insertion closes up to `walk::CHUNKS_AT_CAP` = 8 chunks and then reports that the
//! table is full.
//!
//! Beginning a turnover takes one allocation of zeroed memory. The system provides the memory of a
//! large table part by part: an operation that brings a key to an unused part asks for 64 KiB.
//! Retired memory goes back in the same way, a megabyte at a time: see `pages`.
//!
//! A thread that stops between asking for a place and claiming its slot keeps that one place until
//! the next turnover, and nothing else. So does a thread that stops before it takes back a refused
//! request.
//!
//! # Memory
//!
//! An array for n keys takes 3/2 n slots of 16 bytes and 3/32 n bytes for the chunks. A small one
//! takes 2 n slots and n/8 bytes, up to 256 KiB of slots; a larger one has at least these.
//!
//! The arrays in use, and those that are retired and not freed yet, take at most [`ARRAYS_AT_CAP`]
//! = 4 times the array of `max_keys`, or [`LEAST_MEMORY`] = 1 MiB if that is more. Every turnover
//! checks that bound in the same way before it closes the root (`Table::begin_under`), because a
//! closed root without a next array would give out no more places.
//!
//! A thread that stops under a guard keeps the arrays that were in use then, at most two, and the
//! table turns over with the other two. Several threads that stopped at different times may keep
//! more, and so may one that holds several guards: it stops in a `clear`, or on the slow path of a
//! charge. Then no turnover starts beyond the bound: new keys take the places that are left in the
//! root, and get the full policy once it is full, until one of these threads resumes. Known keys
//! notice nothing, and a `clear` resets the keys instead of forgetting them.
//!
//! The rules of single keys are counted and bounded apart from the arrays, in the same way: see
//! `rules`.
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
//! All other operations are relaxed. A fingerprint publishes nothing: the word beside it is an
//! atomic of its own, which is valid (fresh) before the fingerprint is written. Freezing and
//! sealing are each decided by a compare-and-swap on the location that they change.

mod array;
mod chunks;
mod memory;
#[cfg_attr(not(all(target_os = "linux", not(tollgate_loom))), path = "table/no_pages.rs")]
mod pages;
mod rules;
mod size;
mod space;
mod step;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod turnover;
mod view;
mod walk;

pub(crate) use rules::Rules;
pub(crate) use space::{Fingerprint, Line};
pub(crate) use turnover::Table;
pub(crate) use view::{View, is_turn};
