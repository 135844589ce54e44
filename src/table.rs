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
//! While a turnover is under way each insertion closes one chunk, [`Table::STEP`] = 16 slots, before it
//! inserts; so does one in 2048 charges of known keys. At the cap
//! a turnover begins a grace after the time by which the last one judged, or at any later time when
//! as many new keys were refused as there are chunks, or 4,096 if that is more: so a refused key
//! pays for one chunk at the most, and a key that is idle makes room after 5/4 as many refusals
//! (chunks are 3/32 for each key, of a small table 1/8). Below the cap that is
//! all: an era has a spare place for each chunk of the era before, so who has done a chunk finds a place.
//! The chunks of threads that have stopped in one are redone by others, one more for each such thread. At
//! the cap, where only idle keys make places, an insertion closes up to `charge::CHUNKS_AT_CAP` = 8 chunks and is
//! then told that the table is full. Beginning a turnover takes one allocation of zeroed memory, of which the system gives
//! a large table its own part by part: whoever brings a key to a part that nobody has used asks for 64 KiB of it (some 20
//! microseconds). What is retired goes back in the same way, a megabyte at a time (some 60): see `pages`.
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
//!
//! # Tried for speed
//!
//! Kept: a charge looks at the first line of a key's run in the root and, if the key is there, at nothing else. What else there
//! may be is kept out of the code of the check: another line, a key that is new, a word that is frozen, a rule that is no bucket.
//!
//! Kept: no answer is written where another might be. A caller has one place for the answer; as soon as one way to it is a call
//! that writes there, all ways do, and copy: eight bytes at a time in, sixteen out, for which the processor waits until all is in
//! its cache, and the next compare-and-swap waits for that. With this, and what is left out of the code of the check for it, a hot
//! key takes 0.88 of the time it took, in a batch 0.60, and a fresh key 0.88 (see `decision::LongWay`, and
//! `View::update_further`, of which a caller gets two words and makes the answer).
//!
//! Kept: few instructions, for what reading the clock hides is about a hundred of them (a loop that reads the time stamp counter and
//! does other things takes 9.5 ns with up to 100 instructions, 10.7 with 140 and 13 with 200). A guard that is known to be of the
//! thread's own place, and to which nobody has a reference; a key's place among four with three comparisons, and its
//! slot read again; of a charge, one comparison with the latest time at which it fits. (Where Linux refuses `membarrier`, each check
//! takes a call more, 20 to 50 instructions.) Together a check of a hot key takes
//! 0.92 of the time so, of 1,000 keys 0.9, of a million, where more of the next one is begun before the memory of this one has
//! come, 0.86.
//!
//! Left out: a look at the first slot of a line, with a branch, before all others. While the line of a hot key comes from the other
//! core, the processor then goes on with the word that the branch will lead to, and need not know the key's place first: two threads
//! on one key take 0.82 to 0.91 of the time. But many keys are in other slots, and of 1,000 keys a check takes 1.12 to 1.21.
//!
//! Kept: what is called for each key or slot is marked for inlining, also within this crate, which cargo compiles in parts. Linked with
//! optimization (`lto`) it makes no difference; without, as most programs are built, a hot key takes 0.92 of the time so, a million
//! keys 0.94, and a flood 0.87. `make instructions` counts without. (To choose the vacant slot of a line without an index that
//! the compiler can't see through saved four more instructions there, and cost 1.02 to 1.04 with `lto`.)
//!
//! Kept: a batch looks for all its keys before it charges the first, and asks for the next line of those that are not in their
//! first one, without a branch. The processor hardly goes on beyond a charge: of a million keys, each takes 0.8 of the time so.
//! Left out: to ask for both lines of each key (1.1 times as long: it can wait for some twenty lines at once), and to charge all
//! before the first answer is written (1.1 to 1.2 times, though fewer stores lie between the charges).
//!
//! Kept: two slots for each key of a small table. Where two thirds of the slots are taken, one key of ten is further on than in
//! its first line; where half are, one of twenty-five. Of 1,000 keys a check takes 0.95 of the time so, in a batch 0.90, of 10,000
//! still 0.95. Of 50,000 keys, whose slots no longer fit into the core's own cache, it were 1.17.
//!
//! Kept: four times as many places after an era that filled in a rush. A flood of 500,000 fresh keys takes a fifth less time than
//! with twice as many.
//!
//! Kept: a place is asked for with one addition, and without a look at the count before, which mostly lies with another core and
//! would come from there twice: a flood from two threads takes 0.86 to 0.94 of the time. (A handful of places for each thread were no
//! faster.)
//!
//! Kept: looking at a slot before sealing it (a flood of 500,000 fresh keys: a twentieth less time), counters on
//! cache lines apart from what lookups read.
//!
//! Kept: asking for the lines in the next era before the keys of a chunk are brought there, and for a new key's before its chunk is
//! done. Of a flood of 500,000 fresh keys that is 0.96 of the time in batches, 0.97 one key at a time. (No difference was seen
//! while a fresh key took 656 instructions.)
//!
//! Kept: an insertion that nothing is in the way of is apart from those that have to look further (see `view`): it goes on at the
//! slot where the lookup has seen the key's probe run end, with the word that the rule has made of a fresh one, and gives that
//! word back in a register. A fresh key took 530 instructions so (and takes some 360 now), with its share of what is moved; in one loop with
//! all other cases it were 656, and asking the rule twice 863. Not while a turnover is under way, where slots are mostly sealed: the models
//! have ten times as many executions then.
//!
//! What is left of a flood is, in batches, instructions, a fifth of them for the keys that are moved, and a quarter the system's work
//! for memory. One key at a time, more than half of it is waiting for the key's line, and it depends on the number of instructions
//! how much: where those of one check fit into what the processor looks ahead, some 250, the next key's line is on its way before
//! this one's has come. So a fifth fewer instructions took a fifth to a quarter off a flood of 500,000 keys, and a fence before each
//! key, which cost 1.07 times as much, costs 1.25 times. (Sampled on another processor, one key at a time: a fifth of the time is
//! waiting for the line, a quarter moving keys, an eighth the system's, an eighth the three locked instructions that count the place,
//! claim the slot and set the word, and a fifteenth the clock.) The *bare table* of `benches/peers`, which forgets nothing and grows while
//! everybody waits, is where this ends.
//!
//! Kept: asking for a key's line before the clock is read, for reading it may hold up what comes after; at a million keys that
//! is a third of a check's time. Which line that is, was a hint beside the root while guards took a locked instruction, which
//! the clock waited for.
//!
//! Kept: huge pages, and memory that comes and goes part by part: the longest check beside a `clear` of a million keys took 17
//! milliseconds, and takes 0.6 (see `pages`). Who does many steps has it come ahead and go for all of them: of a sweep of a million
//! keys, the p99.9 of checks beside it was 1.8 times that at rest where each step did it for itself, and 1.5 so. (On another
//! processor, where it is 1.7 to 1.8, it makes no difference whether it is asked for or written to.)
//!
//! Kept: guards without a locked instruction (see `sync::readers`): a fifth off a check of a hot key.

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
