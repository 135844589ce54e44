//! A lock-free table of fingerprinted keys. Each key has one slot of 16 bytes, which is found,
//! claimed and moved without a lock.
//!
//! Growth, shrinking and eviction are one mechanism, as in a copying garbage collector. The table
//! keeps its keys in an *array*, whose slots (its *space*) only fill up. An array is closed when
//! all its places are given out, when it has been far too large for a long time, or when a caller
//! sweeps. A next array is linked to it, which may be larger, equal or smaller. The keys of the old
//! array are moved to the next one a chunk at a time. Idle keys are not moved, and are thereby
//! forgotten. Then the next array becomes the root, and the old array is retired.
//!
//! Why not delete in place? If a slot could become empty again, probe runs would need tombstones or
//! locks to stay whole, and two threads that insert the same key could take two slots.
//!
//! # State
//!
//! A slot takes only these steps:
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
//! The state of an array:
//!
//! - `given`: the number of places given to new keys, until it is CLOSED. It briefly includes
//!   requests that were refused.
//! - `next`: null, then the next array for good.
//! - `chunks`: the parts of the turnover that are taken, and the parts that are done.
//! - `carried`: the number of keys moved here from the previous array. Unknown at first, then
//!   exact.
//! - `room`: the number of places for new keys while the array is the root. It is 0 if that number
//!   is not known, or if all places are given.
//! - `forgotten`: the mark; see *Why no decision changes*.
//! - `believed`: the time by which the keys of the previous array are judged. It is fixed.
//! - the times of the last requests for a place; see `forgetting`.
//!
//! The state of the table is `root`, and the number of bytes of the arrays that are not freed yet.
//!
//! # Invariants
//!
//! 1. A fingerprint never changes once it is written, and no slot returns to EMPTY.
//! 2. All slots before a key's slot in its probe run hold other keys. (The key claimed the first
//!    EMPTY slot, and by 1 the slots before it stay taken.) Therefore, if a run ends at an EMPTY or
//!    SEALED slot, the key is not behind that slot.
//! 3. By 2, a fingerprint is in at most one slot of an array. Two threads that insert it meet at
//!    the same slot: one compare-and-swap succeeds, and the other thread finds the fingerprint
//!    there.
//! 4. A thread puts a key into the next array only after it has found, in this array, that the
//!    key's word is frozen (then it moves the word as well), that the word is EVICTED, or that the
//!    key's run is SEALED. All three states are final, so a key is never live in two arrays.
//! 5. A frozen word never changes, and a moved word is installed by CAS from fresh. A word never
//!    returns to fresh, so a late helper finds the word changed and does nothing.
//! 6. One CAS on the key's word decides once whether the key is moved or evicted. Therefore all
//!    helpers of a chunk do and count the same, however late they are.
//! 7. `most >= given + brought`, not counting requests for a place that were refused and not taken
//!    back yet. `brought` is `carried` or, while that is unknown, the number of keys with which the
//!    previous array closed, minus the keys evicted since. Therefore every key of the previous
//!    array has a place in this one, and a move cannot fail.
//! 8. There are more slots than `most`, so a probe run always ends.
//! 9. An array is closed only while it is the root. Therefore at most two arrays are in use, and
//!    all keys of the previous array have been moved into an array before its own turnover begins.
//!
//! # Why no decision changes
//!
//! A charge is one CAS on a word that is not frozen, in the one slot where its key is live (3, 4).
//! Freezing is a CAS on the same word. A charge before the freeze is moved with the word. A charge
//! after the freeze fails and continues in the next array, where it finds the moved word (5).
//!
//! An evicted key is idle: from some time on, its word gives the same decisions as a fresh word.
//! Before a key is evicted, the *mark* of the next array is raised to that time or a later one. The
//! mark never falls, and an array starts with the mark of the previous array.
//!
//! The first charge of a key in an array counts at `now` or, if that is later, at the mark of the
//! array. The thread reads the mark after it knows that the key belongs in that array. It knows
//! this in one of two ways:
//!
//! - from the root, which publishes all raises (*link*);
//! - from a slot of the root, which has an evicted word (*closed*: the word publishes the raise) or
//!   a seal (then the key was not in the root).
//!
//! The charge therefore counts at a time at which every forgotten word of the key was idle.
//! Whatever the caller's `now` is, a map that never forgets would give the same decision at that
//! time.
//!
//! A key's word is fresh between the claim of its slot and its first charge. A thread that finds a
//! fresh word does not know the mark. Therefore charges of known keys leave a fresh word alone
//! (`Word::is_live`), and only an insertion, such as `Table::find_or_insert`, changes it.
//!
//! The keys of an array are judged by one time, `believed` minus the grace, which is fixed when the
//! next array is made. Safety does not depend on that time, because the mark covers every evicted
//! key; the time only matters to users. A late helper may still raise a mark for a word that has
//! been charged since. That word also was idle at `judged_at`, so no mark is later than the time at
//! which some key of the table became idle.
//!
//! # Changing the rules
//!
//! Only the rule that made a word can interpret it, because the unit of time or the fields of the
//! word follow from the quota. The rules therefore belong to the array ([`Rules`]: a default, and
//! the rules of single keys), and a change of quotas is a turnover into an array with other rules.
//! A thread that moves a key there translates its word (`AnyRule::adopt`), as of the time at which
//! the next array was made. Therefore all helpers install the same word.
//!
//! If two changes race, the first to link the next array wins, and the other starts again when that
//! turnover is over. A charge is judged by the rules of the array whose word it changes, either
//! before the word is frozen or in the next array. Therefore no charge is judged by one quota and
//! counted under another. A change starts after the memory for the next array is permitted, and is
//! complete when the call returns.
//!
//! Why not look up the rule of a key separately from its word? A thread that has looked up the old
//! rule could apply it to a word of the new rule.
//!
//! # Progress
//!
//! Lookups, charges of known keys and insertions are lock-free. A thread that needs a moved key
//! moves it (`bring`), a thread that needs the next array links it, a thread that needs the end of
//! a turnover works on a chunk, and any thread may redo any chunk. No thread waits for another.
//!
//! # Work for each operation
//!
//! During a turnover each insertion first closes one chunk, [`Table::STEP`] = 16 slots. One in 2048
//! charges of known keys also closes a chunk.
//!
//! Below the cap, an insertion does no other work. An array has a spare place for each chunk of the
//! previous array, so an insertion that has done a chunk finds a place. If a thread stops in a
//! chunk, another operation redoes that chunk, which is one more chunk for each stopped thread.
//!
//! At the cap, a turnover begins a grace after the time by which the last turnover judged its keys.
//! It also begins at any later time once as many new keys were refused as there are chunks, or
//! 4,096 if that is more. Therefore a refused key pays for at most one chunk, and an idle key makes
//! room after 5/4 as many refusals. (There are 3/32 chunks for each key, 1/8 in a small table.) At
//! the cap only idle keys free places, so an insertion closes up to `walk::CHUNKS_AT_CAP` = 8
//! chunks and then reports that the table is full.
//!
//! Beginning a turnover takes one allocation of zeroed memory. The system provides the memory of a
//! large table part by part: an operation that moves a key to an unused part requests 64 KiB.
//! Retired memory is returned in the same way, a megabyte at a time: see `pages`.
//!
//! A thread that stops between its request for a place and the claim of its slot keeps that one
//! place until the next turnover, and nothing else. The same holds for a thread that stops before
//! it takes back a refused request.
//!
//! # Memory
//!
//! An array for n keys takes 3/2 n slots of 16 bytes and 3/32 n bytes for the chunks. A small array
//! takes 2 n slots and n/8 bytes, up to 256 KiB of slots; a larger array has at least 256 KiB of
//! slots.
//!
//! The arrays in use, and the retired arrays that are not freed yet, take at most [`ARRAYS_AT_CAP`]
//! = 4 times the array of `max_keys`, or [`LEAST_MEMORY`] = 1 MiB if that is more. Every turnover
//! checks this bound before it closes the root (`Table::begin_under`), because a closed root
//! without a next array would give out no more places.
//!
//! A thread that stops under a guard keeps the arrays that were in use at that time, at most two,
//! and the table turns over with the memory of the other two. Several threads that stopped at
//! different times may keep more. So may one thread that holds several guards, if it stops in a
//! `clear` or on the slow path of a charge. Then no turnover starts beyond the bound: until one of
//! these threads resumes, new keys take the places that are left in the root, and the full policy
//! applies once the root is full. Known keys are not affected, and a `clear` resets the keys
//! instead of forgetting them.
//!
//! The rules of single keys are counted and bounded separately from the arrays, in the same way:
//! see `rules`.
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
//! All other operations are relaxed. A fingerprint publishes nothing: the word beside it is a
//! separate atomic, which is valid (fresh) before the fingerprint is written. Freezing and sealing
//! are each decided by a compare-and-swap on the location that they change.

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
