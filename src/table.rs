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
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod turnover;
mod view;

pub(crate) use slot::Fingerprint;
pub(crate) use space::Line;
pub(crate) use turnover::Table;
pub(crate) use view::View;
