//! The store of exact keys: equal keys share a state, and different keys never do.
//!
//! Each key is one allocation, its *cell*: the key, its hash, and its state (a word and its rule;
//! see `state`). Cells are found through an index (`sync::Index`, which is the hash index of scc;
//! readers take no lock). Each cell holds one of `max_keys` *places*, so the cap is hard. A *round*
//! walks through the places, a few at a time, and evicts idle cells.
//!
//! Why not simply remove an idle key from the index? A charge may happen between the check of the
//! word and the removal, and would be lost with the cell. Therefore eviction first *seals* the idle
//! word, with a compare-and-swap like that of a charge. Then it *unlinks* the cell from the index.
//! Finally the memory is *retired*: scc's epochs and the cell's `Arc` free it.
//!
//! Why does the index hold pointers to cells instead of words? scc moves its items when it resizes,
//! and a charge of the copy that is left behind would be lost. Why are there places? An iteration
//! over scc cannot resume from the key at which an earlier iteration stopped.
//!
//! Why are the cells not in the slots of `table`, with the address of a cell in place of a
//! fingerprint's word? That store would need no index and thus no lock, and a child process could
//! use a limiter that was forked during an insertion. But in a trial (2026-11-27) the table grew by
//! 263 lines while this module lost 284; a check of a fingerprint at a given time took 1.03 times
//! the instructions; an insertion took 1.05 to 1.15 times the time; and a key took 143
//! bytes instead of 107. A check of a known key, of 500,000, took 0.81 to 0.85 times the time.
//!
//! # State
//!
//! ```text
//! word:   fresh -> w0         the first charge, no earlier than the mark; any thread that finds
//!                             the cell may make it
//!         fresh -> SEALED     evicted, or its quota changed, before it was charged
//!         w0 -> w1 -> ...     charges, by `rule::try_update`
//!         w -> SEALED         eviction: w was idle
//!         (if the key's quota changes, the next version holds its word from then on)
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
//! 4. Unlinking removes one cell, which is identified by its address, so a late thread never
//!    removes a newer cell of the same key. Exactly one of the threads that try succeeds.
//! 5. Each linked cell holds its own place, and there are `max_keys` places.
//!
//! # Why no decision changes
//!
//! A charge is one compare-and-swap on a word that is not sealed. The cell of the word was linked
//! when it was found. Since the word is not sealed, the cell is still linked (2), and it is the
//! only linked cell of its key (3). Therefore no charge goes to a forgotten cell, and no key is
//! charged in two cells. Sealing is a compare-and-swap from an idle word. A charge either happens
//! first and makes the sealing fail, or finds SEALED, helps to unlink the cell, and starts from a
//! fresh word.
//!
//! From some time on an idle word gives the same decisions as a fresh word. Before the word is
//! sealed, the store's *mark* is raised to that time or a later one (see `forgetting`). A cell is
//! linked with a fresh word. The first charge counts at `now` or at the mark, whichever is later,
//! and reads the mark after it has found the cell. By then all earlier cells of the key were sealed
//! and unlinked, and the mark covers them. Therefore a map that never forgets would give the same
//! decision at the time at which the charge counts. Why is the cell not charged before it is
//! linked? Meanwhile the key might be inserted and evicted in another cell, which the mark that was
//! read earlier would not cover.
//!
//! A round judges all cells by one time, which is fixed when the round begins.
//!
//! # Panics of the caller's code
//!
//! `to_key` and the `Eq` of keys and of borrowed keys are the caller's code, which may panic in the
//! middle of any call. After a panic a taken place is given back (`Undo`), a new cell is dropped
//! before it is linked, and scc's lock on a bucket is released with its guard. No code of the
//! caller runs between the step that links or unlinks a cell and the step that counts it. Clearing
//! logs, the rounds and the places call no code of the caller.
//!
//! # Calls from the caller's code
//!
//! `Hash` and `to_key` run without a lock and may call the store. The `Eq` of keys may run under
//! scc's lock on a bucket, and so does the `Drop` of keys: scc drops removed items in insertions.
//! If such code inserts or removes a key in the same bucket, it waits for its own thread.
//! `ExactKeys` forbids this.
//!
//! A borrowed form may differ from the key that `to_key` makes from it, although `ToKey` forbids
//! this. Then a lookup by the borrowed form misses, and an insertion is refused. Therefore the loop
//! of `insert` looks up the key by its owned form after a refusal.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free, except that a call that finds its cell sealed
//! helps to unlink the cell. Inserting and unlinking take scc's lock on one bucket of the index. A
//! thread that is stopped while it holds that lock blocks insertions and removals in the same
//! bucket, and nothing else. In a child of `fork`, a lock may be held by a thread of the parent,
//! which does not exist in the child. The places, the rounds and the memory bound are lock-free.
//!
//! # Work for each operation
//!
//! During a round each insertion visits `ExactStore::STEP` = 8 places, and so does one in 2048
//! charges of known keys. At the cap an insertion visits up to 16 times as many before it reports
//! that the store is full. A new round begins when a grace has passed since the time by which the
//! last round judged, or, at any later time, once a key was refused for each step of the round. scc
//! resizes its array a few buckets at a time.
//!
//! # Memory
//!
//! A cell with a key of 8 bytes takes 80 bytes (the key, 56 bytes beside it, and 16 bytes of the
//! `Arc`). The index takes 9 bytes for each item that it has room for, and a quarter to seven
//! eighths of that room is used. A place takes 8 to 16 bytes. With the allocator's overhead this is
//! about 125 bytes for each key, in addition to memory that the key itself owns. Only the places
//! are kept when keys are removed: 8 to 16 bytes for each key of the largest number that the store
//! ever held.
//!
//! An unlinked cell is freed once no thread can see it and scc visits its bucket, because scc keeps
//! removed items in a bucket until the bucket is full. Therefore a store whose keys change all the
//! time holds as many cells as the index has room for, up to two and a half for each key. Cells
//! that are not freed yet are counted. Beyond four times `max_keys` (plus `SPARE` = 65,536) cells,
//! the full policy applies to new keys unless scc's epoch advances. Therefore a thread that stops
//! while it reads costs no more memory than that. (The arrays that scc retires when it resizes are
//! not counted.)

mod entry;
mod places;
mod quotas;
mod rounds;
mod store;
mod undo;

pub(crate) use entry::{Asked, Entry, spread};
pub(crate) use store::{ExactStore, StoreFull};
