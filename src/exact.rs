//! The store of exact keys: equal keys share a state, and different keys never do.
//!
//! Each key has one allocation, its *cell*, which contains the key, its hash, and its state (a word
//! and its rule; see `state`). Cells are found through an index (`sync::Index`), which is scc's
//! hash index. Readers of the index take no lock. Each cell owns one of `max_keys` *places*, so the
//! cap is hard. A *round* visits the places, a few at a time, and evicts idle cells.
//!
//! Why not simply remove an idle key from the index? A charge might occur between the check of the
//! word and the removal, and would be lost with the cell. Therefore eviction first *seals* the idle
//! word, with a compare-and-swap like that of a charge. Then it *unlinks* the cell from the index.
//! Finally the memory is *retired*, and scc's epochs and the cell's `Arc` free it.
//!
//! Why does the index contain pointers to cells instead of words? scc moves its items when it
//! resizes, and a charge to the abandoned copy would be lost. Why are there places? An iteration
//! over scc's index cannot resume at the key where an earlier iteration stopped.
//!
//! Why are the cells not in the slots of `table`, with the address of a cell in place of a
//! fingerprint's word? Such a store would need no index and therefore no lock. A child process
//! could also use a limiter that was forked during an insertion. In a trial (2026-11-27), however,
//! the table grew by 263 lines while this module lost 284. A check of a fingerprint at a given time
//! required 1.03 times the instructions. An insertion took 1.05 to 1.15 times as long, and a key
//! occupied 143 bytes instead of 107. A check of a known key, out of 500,000 keys, took 0.81 to
//! 0.85 times as long.
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
//! 2. A cell is unlinked only after its word is sealed. An unlinked cell is never linked again.
//! 3. Two linked cells never have equal keys, because the index refuses the second cell.
//! 4. Unlinking removes one cell, which is identified by its address. Therefore a late thread never
//!    removes a newer cell of the same key. Of the threads that try to remove a cell, exactly one
//!    succeeds.
//! 5. Each linked cell owns its own place, and there are `max_keys` places.
//!
//! # Why no decision changes
//!
//! A charge is one compare-and-swap on a word that is not sealed. The word's cell was linked when
//! the thread found it. Because the word is not sealed, the cell is still linked (2), and is the
//! only linked cell of its key (3). Therefore no charge is made to a forgotten cell, and no key is
//! charged in two cells. Sealing is a compare-and-swap from an idle word. If the charge precedes
//! the sealing, the sealing fails. Otherwise the charge finds SEALED, helps to unlink the cell, and
//! starts again with a fresh word.
//!
//! From a certain time on, an idle word gives the same decisions as a fresh word. Before the word
//! is sealed, the store's *mark* is raised to at least that time (see `forgetting`). A cell is
//! linked with a fresh word. The first charge is computed for `now` or for the mark, whichever is
//! later. The thread reads the mark after it has found the cell. By then all earlier cells of the
//! key were sealed and unlinked, and the mark covers these cells. Therefore a map that never
//! forgets would give the same decision at the time for which the charge is computed. Why is the
//! cell not charged before it is linked? The key might meanwhile be inserted in another cell and
//! evicted. The mark that was read earlier would not cover that cell.
//!
//! A round judges all cells as of one time, which is fixed when the round starts.
//!
//! # Panics of the caller's code
//!
//! `to_key`, and the `Eq` of keys and of borrowed keys, are the caller's code, which may panic in
//! the middle of any call. After a panic, a taken place is given back (`Undo`), a new cell is
//! dropped before it is linked, and scc's lock on a bucket is released with its guard. The caller's
//! code never runs between linking or unlinking a cell and counting that cell. Clearing logs, the
//! rounds and the places call no code of the caller.
//!
//! # Calls from the caller's code
//!
//! `Hash` and `to_key` run without a lock and may call the store. The `Eq` of keys may run under
//! scc's lock on a bucket. The `Drop` of keys may also run under that lock, because scc drops
//! removed items during insertions. If such code inserts or removes a key in the same bucket, the
//! code waits forever for its own thread. `ExactKeys` forbids this.
//!
//! A borrowed form may differ from the key that `to_key` creates, although `ToKey` forbids this.
//! Then a lookup by the borrowed form finds nothing, and an insertion is refused. Therefore, after
//! a refusal, the loop of `insert` looks up the key by its owned form.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free, with one exception: a call that finds its cell
//! sealed helps to unlink the cell. Inserting and unlinking take scc's lock on one bucket of the
//! index. A thread that is stopped while it holds that lock blocks insertions and removals in the
//! same bucket, and nothing else. In a child of `fork`, a thread that exists only in the parent may
//! hold the lock forever. The places, the rounds and the memory bound are lock-free.
//!
//! # Work for each operation
//!
//! During a round, each insertion visits `ExactStore::STEP` = 8 places, and so does one in 2048
//! charges of known keys. At the cap, an insertion visits up to 16 times as many places before it
//! reports that the store is full. A new round starts when a grace has passed since the time at
//! which the last round judged its keys. A round starts earlier once enough new keys were refused:
//! one for each step of the round, and at least 4,096. In that case, `now` only has to be later
//! than the last judgement. scc resizes its array a few buckets at a time.
//!
//! # Memory
//!
//! With a key of 8 bytes, a cell occupies 80 bytes: the key, 56 bytes beside it, and 16 bytes of
//! the `Arc`. The index occupies 9 bytes for each item that it has room for. A quarter to seven
//! eighths of that room is used. A place occupies 8 to 16 bytes. With the allocator's overhead,
//! each key costs about 125 bytes, in addition to memory that the key itself owns. When keys are
//! removed, only the places stay allocated. They occupy 8 to 16 bytes for each key of the largest
//! number of keys that the store has ever contained.
//!
//! An unlinked cell is freed once no thread can see it and scc visits its bucket. (scc keeps
//! removed items in a bucket until the bucket is full.) If the keys of a store change all the time,
//! the store therefore keeps as many cells as the index has room for. This is up to two and a half
//! cells for each key. The store counts the cells that have not been freed yet. Once there are four
//! times `max_keys` plus `SPARE` = 65,536 such cells, the full policy applies to new keys unless
//! scc's epoch advances. Therefore a thread that stops while it reads cannot cost more memory than
//! these cells. (The arrays that scc retires when it resizes are not counted.)

mod entry;
mod places;
mod quotas;
mod rounds;
mod store;
mod undo;

pub(crate) use entry::{Asked, Entry, spread};
pub(crate) use store::{ExactStore, StoreFull};
