//! The store of exact keys: keys that are equal share a state, and no others do.
//!
//! Each key is one allocation, its *cell*: the key, its hash, and its state (a word and its rule;
//! see `state`). Cells are found through an index (`sync::Index`, which is scc's hash index:
//! readers take no lock). Each cell holds one of `max_keys` *places*, so the cap is hard. A *round*
//! walks the places, a few at a time, and evicts the cells that are idle.
//!
//! Why not simply remove an idle key from the index: a charge may come between the look at the word
//! and the removal, and would be lost with the cell. So eviction first *seals* the idle word, with
//! a compare-and-swap like that of a charge. Then it *unlinks* the cell from the index. Then the
//! memory is *retired*: scc's epochs and the cell's `Arc` free it.
//!
//! Why the index holds pointers to cells, and not the words: scc moves its items when it resizes,
//! and a charge of the copy left behind would be lost. Why there are places: scc cannot be walked a
//! few keys at a time from where an earlier walk stopped.
//!
//! Why the cells are not in the slots of `table`: a trial of 2026-11-27 had the address of a cell
//! where a fingerprint has its word. It needs no index, so no lock, and a child process may use a
//! limiter that was forked in an insertion. But the table grew by 263 lines where this room lost
//! 284; a check of a fingerprint at a given time took 1.03 of the instructions; an insertion took
//! 1.05 to 1.15 of the time and a key 143 bytes, not 107. A known key of 500,000 took 0.81 to 0.85.
//!
//! # State
//!
//! ```text
//! word:   fresh -> w0         the first charge, no earlier than the mark; any thread that finds
//!                             the cell may make it
//!         fresh -> SEALED     evicted, or its quota changed, before it was charged
//!         w0 -> w1 -> ...     charges, by `rule::try_update`
//!         w -> SEALED         eviction: w was idle
//!         (where the key's quota changes, the next version holds its word from then on)
//! cell:   private -> linked   inserted into the index, unless its key is there
//!         linked -> unlinked  once its word is SEALED, by the first thread that removes it
//! place:  vacant -> taken     before its cell is linked
//!         taken -> vacant     by the thread that unlinked its cell, or whose cell was not linked
//! ```
//!
//! # Invariants
//!
//! 1. SEALED is final: no step changes a sealed word.
//! 2. A cell is unlinked only after its word is sealed, and is never linked again.
//! 3. No two linked cells have equal keys. (The index refuses the second.)
//! 4. Unlinking removes one cell, identified by its address: a late thread never removes a newer
//!    cell of the same key. Of all threads that try, exactly one succeeds.
//! 5. Each linked cell holds a place of its own, and there are `max_keys` places.
//!
//! # Why no decision changes
//!
//! A charge is one compare-and-swap on a word that is not sealed. Its cell was linked when it was
//! found, and since it is not sealed, it still is (2); it is the only cell of its key (3). So no
//! charge goes to a forgotten cell, and no key is charged in two cells. Sealing is a
//! compare-and-swap from an idle word. A charge either comes before it, and makes it fail; or finds
//! SEALED, helps to unlink the cell, and starts from a fresh word.
//!
//! From some time on an idle word decides like a fresh one. Before the word is sealed, the store's
//! *mark* is raised to that time or a later one (see `forgetting`). A cell is linked with a fresh
//! word. Its first charge counts at `now` or at the mark, whichever is later, and reads the mark
//! after it has found the cell. By then all earlier cells of the key were sealed and unlinked, and
//! the mark covers them. So the charge is decided as in a map that never forgets, asked at the time
//! at which the charge counts. Why the cell is not charged before it is linked: the key may
//! meanwhile come and go in another cell, which the mark read earlier would not cover.
//!
//! A round judges all cells by one time, which is fixed when the round begins.
//!
//! # Panics of the caller's code
//!
//! `to_key` and the `Eq` of keys and of borrowed keys are the caller's code, and may panic in the
//! middle of any call. A place that was taken is then given back (`Undo`); a new cell is dropped
//! before it is linked; scc's lock on a bucket is released with its guard. No such code runs
//! between the step that links or unlinks a cell and the step that counts it. Clearing logs, the
//! rounds and the places call no such code.
//!
//! # Calls from the caller's code
//!
//! `Hash` and `to_key` run without a lock and may call the store. The `Eq` of keys may run under
//! scc's lock on a bucket, and so does the `Drop` of keys: scc drops removed items in insertions.
//! If such code inserts or removes in the same bucket, it waits for its own thread. `ExactKeys`
//! forbids it.
//!
//! A borrowed form may differ from the key that `to_key` makes of it, although `ToKey` forbids it.
//! Then a lookup by the form misses, and an insertion is refused. So the loop of `insert` looks the
//! key up by its owned form after a refusal.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free, except that one which finds its cell sealed
//! helps to unlink it. Inserting and unlinking take scc's lock on one bucket of the index: a thread
//! that is stopped while it holds that lock blocks insertions and removals in the same bucket, and
//! nothing else. A child of `fork` has such threads, because the threads of its parent do not exist
//! there. The places, the rounds and the memory bound are lock-free.
//!
//! # Work for each operation
//!
//! While a round is under way, each insertion visits `ExactStore::STEP` = 8 places, and so does
//! one in 2048 charges of known keys. At the cap an insertion visits up to 16 times as many before
//! it reports that the store is full. A new round begins when a grace has passed since the time by
//! which the last round judged, or, at any later time, once a key was refused for each step of the
//! round. scc resizes its array a few buckets at a time.
//!
//! # Memory
//!
//! A cell takes 80 bytes with a key of 8 (the key, 56 bytes beside it, and 16 of the `Arc`). The
//! index takes 9 bytes for each item it has room for, and a quarter to seven eighths of that room
//! is used. A place takes 8 to 16 bytes. With the allocator's own memory that is about 125 bytes
//! for each key, besides what the key itself owns. Only the places are kept when keys go: 8 to 16
//! bytes for each of the most keys the store ever held.
//!
//! An unlinked cell is freed once no thread can see it and scc visits its bucket: scc keeps removed
//! items in a bucket until the bucket is full. So a store whose keys change all the time holds as
//! many cells as the index has room for, up to two and a half for each key. Cells that are not
//! freed yet are counted. Beyond `four times max_keys` (and `SPARE` = 65,536 more),
//! new keys get the full policy unless scc's epoch moves on. So a thread that stops while it reads
//! costs that much and no more. (What scc retires when it resizes is not counted.)

mod entry;
mod places;
mod quotas;
mod rounds;
mod store;
mod undo;

pub(crate) use entry::{Asked, Entry, spread};
pub(crate) use store::{ExactStore, StoreFull};
