//! The store of exact keys: equal keys share a state, whereas different keys never do.
//!
//! Each key has one allocation, its *cell*, which contains the key, its hash, and its state (a word
//! and its rule; see `state`). Cells are found through an index (`sync::Index`), which is scc's
//! hash index. Readers of the index take no lock. Each cell owns one of `max_keys` *places*, so the
//! store never exceeds its cap. A *round* visits the places, a few at a time, and evicts idle
//! cells.
//!
//! Why not simply remove an idle key from the index? A charge might occur between the check of the
//! word and the removal, and would be lost with the cell. Therefore eviction first *seals* the idle
//! word. A seal and a charge are both compare-and-swaps on the word, so one of the two fails. Then
//! eviction *unlinks* the cell from the index. Finally the memory is *retired*, and scc's epochs
//! and the cell's `Arc` free it.
//!
//! The index contains pointers to cells rather than the words themselves: scc moves its items when
//! it resizes, and a charge to an abandoned copy of a word would be lost. The places exist because
//! an iteration over scc's index cannot resume where an earlier iteration stopped.
//!
//! Why are the cells not kept in the slots of `table`, with a cell's address in place of a
//! fingerprint's word? Such a store would need no index and therefore no lock. A child process
//! could also use a limiter that was forked during an insertion.
//!
//! In a trial with 500,000 keys (2026-11-27), checks of known keys took only 0.81 to 0.85 times as
//! long. However, a check of a fingerprint at a given time required 1.03 times the instructions, an
//! insertion took 1.05 to 1.15 times as long, and a key occupied 143 bytes instead of 107. The code
//! hardly shrank: the table grew by 263 lines, and this module lost 284.
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
//!    removes a newer cell of the same key. If several threads try to remove a cell, exactly one
//!    succeeds.
//! 5. Each linked cell owns its own place, and there are `max_keys` places.
//!
//! # Why no decision changes
//!
//! A charge is one compare-and-swap on a word that is not sealed. The word's cell was linked when
//! the thread found it. Because the word is not sealed, the cell is still linked by (2), and is the
//! key's only linked cell by (3). Therefore no charge is made to a forgotten cell, and no key is
//! charged in two cells.
//!
//! Sealing is a compare-and-swap from an idle word. If the charge precedes the sealing, the sealing
//! fails. Otherwise the charge finds SEALED, helps to unlink the cell, and starts again with a
//! fresh word.
//!
//! From a certain time on, an idle word gives the same decisions as a fresh word. Before the word
//! is sealed, the store's *mark* is raised to at least that time (see `forgetting`).
//!
//! A cell is linked with a fresh word, whose first charge is computed for `now` or for the mark,
//! whichever is later. A thread reads the mark only after it has found the cell. All earlier cells
//! of the key were sealed and unlinked before this cell was linked, so the mark covers them.
//! Therefore a map that never forgets would give the same decision at the time for which the charge
//! is computed.
//!
//! A cell is not charged before it is linked. Otherwise the key might be inserted in another cell
//! and evicted before the link, and the mark that was read earlier would not cover that other cell.
//!
//! A round judges all cells as of one time, which is fixed when the round starts.
//!
//! # Panics of the caller's code
//!
//! `to_key`, and the `Eq` of keys and of borrowed keys, are the caller's code, which may panic in
//! the middle of any call. After a panic, a place that was taken is given back (`Undo`), a new cell
//! is dropped before it is linked, and scc's lock on a bucket is released with its guard. The
//! caller's code never runs after a cell was linked or unlinked and before it is counted. Nor does
//! it run in the rounds, in the places, or while logs are cleared.
//!
//! # Calls from the caller's code
//!
//! `Hash` and `to_key` run without a lock and may call the store. The `Eq` of keys may run under
//! scc's lock on a bucket. The `Drop` of keys may also run under that lock, because scc drops
//! removed items during insertions. If such code inserts or removes a key in the same bucket, its
//! thread waits forever for itself. `ExactKeys` forbids this.
//!
//! `ToKey` forbids a borrowed form that differs from the key created by `to_key`. If a caller's
//! borrowed form does differ, a lookup by that form finds nothing, but the index still refuses to
//! insert the key. After a refusal, the loop in `insert` therefore looks up the key by its owned
//! form.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free, with one exception: a call that finds its cell
//! sealed helps to unlink the cell. Inserting and unlinking take scc's lock on one bucket of the
//! index. A thread that is stopped while it holds that lock blocks insertions and removals in the
//! same bucket, but nothing else. After a `fork`, the child may find the lock held forever by a
//! thread that exists only in the parent. The places, the rounds and the memory bound are
//! lock-free.
//!
//! # Work for each operation
//!
//! During a round, each insertion visits `ExactStore::STEP` = 8 places, and so does one in 2048
//! charges of known keys. At the cap, an insertion visits up to 16 times as many places before it
//! reports that the store is full. scc resizes its array a few buckets at a time.
//!
//! At the cap, a new round starts once a grace has passed since the time at which the last round
//! judged its keys. It starts earlier if it would judge the keys at a different time and enough new
//! keys have been refused: at least 4,096, and at least one for each step of the round.
//!
//! # Memory
//!
//! With a key of 8 bytes, a cell occupies 80 bytes: the key, 56 bytes beside it, and 16 bytes of
//! the `Arc`. The index occupies 9 bytes for each item that it has room for. Between a quarter and
//! seven eighths of that room is in use. A place occupies 8 to 16 bytes. With the allocator's
//! overhead, each key costs about 125 bytes, in addition to memory that the key itself owns.
//!
//! After keys are removed, only the places stay allocated. They occupy 8 to 16 bytes for each key
//! that the store contained at its peak.
//!
//! An unlinked cell is freed once no thread can see it and scc visits its bucket. (scc keeps
//! removed items in a bucket until the bucket is full.) If the keys of a store change all the time,
//! the store therefore keeps as many cells as the index has room for, up to two and a half for each
//! key.
//!
//! The store counts the cells that have not been freed yet. Once this count reaches
//! `4 * max_keys + SPARE` (`SPARE` is 65,536), the full policy applies to a new key unless scc's
//! epoch has advanced. Therefore a thread stalled in a read can cost at most the memory of this
//! many cells. (The arrays that scc retires when it resizes are not counted.)

mod entry;
mod places;
mod quotas;
mod rounds;
#[cfg(feature = "serde")]
mod saved;
mod store;
mod undo;

pub(crate) use entry::{Asked, Entry, spread};
pub(crate) use store::{ExactStore, StoreFull};
