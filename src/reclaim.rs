//! Memory reclamation: decides when a replaced value may be freed. Readers execute no fence and no
//! locked instruction. The amount of memory not yet freed is bounded even if threads are parked.
//!
//! The arrays of a table, the chunks of a log, and the rules and versions of exact keys are
//! replaced while other threads read them. A reader holds a [`Guard`]. A writer unlinks a value
//! from its [`Link`] and puts the value into the limiter's [`Bag`]. A *collection* frees the values
//! that no guard may have seen.
//!
//! Why not use the guards of crossbeam-epoch? Each of them costs a locked instruction, which is a
//! noticeable part of a check's cost. In addition, a parked thread prevents the epoch from
//! advancing, so memory grows for as long as the thread is parked. Why not use seize? Its guards
//! cost more, and a parked thread has the same effect. (`docs/performance.md` has the figures.)
//! From crossbeam-epoch, this module uses only the pointer types (`Atomic`, `Owned`, `Shared`),
//! which distinguish a pointer from its owner.
//!
//! The scheme is based on *Hazard Eras* (Ramalhete and Correia, "Brief Announcement: Hazard Eras",
//! SPAA 2017). A clock counts eras, values record the eras of their birth and retirement, and
//! readers announce the era in which they read. The scheme is also close to interval-based
//! reclamation (Wen et al., PPoPP 2018). The scheme differs from Hazard Eras in three ways:
//!
//! - A guard announces a single era once, instead of one era for each pointer.
//! - A walk that finds a later era starts again under a new guard. (In Hazard Eras, a reader
//!   announces the later era and loads again.) Therefore all values kept by a parked thread's guard
//!   existed at the same moment.
//! - The fence after an announcement is executed by the collector, on behalf of all threads
//!   (`membarrier`; see `barrier`).
//!
//! # State
//!
//! ```text
//! era:                grows by one with each collection that has something to free
//! participant.state:  the era of its guard, or IDLE
//!                     IDLE -> era        a guard is made; then `light`
//!                     a -> IDLE          the guard is dropped
//! participant.taken:  FREE -> TAKEN      by a thread, if the state is IDLE
//!                     TAKEN -> FREE      the thread ends; one of its guards may remain
//! a value:            born in an era -> linked -> unlinked -> in a bag -> retired in an era
//!                     -> freed
//! ```
//!
//! Each guard has one era. The guard *meets* a value if the value was born in that era or earlier,
//! and retired in that era or later. A collection takes values out of a bag, ends an era, executes
//! the heavy half of the [`barrier`], and frees the values that no guard meets. A thread that holds
//! several guards has a participant for each guard.
//!
//! # Invariants
//!
//! 1. The era in which a value is born is not later than the era in which the value is linked. A
//!    value linked by `Link::install` is born in the era of the thread's guard, so the guard meets
//!    the value.
//! 2. The era in which a value is retired ends after the value has been unlinked. A thread that has
//!    read a later era finds the value unlinked (the *new era* edge).
//! 3. A thread uses a value loaded from a link only if the current era is still the era of the
//!    thread's guard. The link was loaded with acquire. Therefore, by (1), the value was born in
//!    that era or earlier.
//! 4. A root only moves forward along its chain, one value at a time. The link from a value to the
//!    next one is final.
//! 5. A walk follows the link of a root, or of a value that the walk has reached under the same
//!    guard ([`Followed`]). If the guard's era has ended, the result is [`Retry`], and the thread
//!    starts again at the root, under a new guard ([`under_guard`]). Because links are final, a
//!    walk may return to values that it has already reached, by following the same links under the
//!    same guard ([`Walked`]).
//!
//! # Why nothing is freed under a guard
//!
//! Let `v` be a value that is born in era `b`, retired in era `r`, and used under a guard of era
//! `a`.
//!
//! - `b <= a`, by (3).
//! - `r >= a`. Otherwise the thread would have read an era later than `r` when it created the
//!   guard. By (2), it would then find `v` unlinked, and by (4) and (5), it would not reach `v`
//!   from an earlier value either.
//! - Therefore the guard meets `v`. It remains to show that the collection sees the guard. The
//!   collection reads the participants after the heavy half, and the thread announces the guard
//!   before the light half. If the collection does not see the announcement, the thread loads its
//!   root after `v` was unlinked, and does not reach `v`. If the collection sees a later state, the
//!   guard was dropped, and the reads under the guard happened before (the *left* edge).
//!
//! # How much memory waits
//!
//! A thread parked under a guard keeps the values that existed in the guard's era, because the
//! guard meets them. It does not keep values born later. Therefore, for each guard held by the
//! thread, a limiter keeps at most the memory that it used at one moment.
//!
//! During a call, a thread holds at most four guards: one for `check_all`, one for the limiter, one
//! for a walk, and one for an inner walk. (An inner walk follows, for example, the log of a key
//! that has had several quotas.) Between calls, a thread holds no guard. A walk that starts again
//! does so under a new guard, so a call that is delayed repeatedly keeps no more memory than any
//! other call.
//!
//! In addition, 32 KiB may wait for the next collection and another 32 KiB for the collection after
//! that, or more if the values retired last are larger. A collection examines at most 256 values or
//! 64 KiB of each pile in a bag, because a check may have to run the collection. The next charges
//! free the rest.
//!
//! A thread that is parked in a collection keeps the values that the collection examines. If the
//! thread is parked before it has put the other values back, it keeps all waiting values. The bag
//! counts all these bytes.
//!
//! Each call that retires a value tidies the value's bag afterwards (`Bag::tidy`), and so does each
//! charge of a log. A denial does not tidy the bag, because a denial writes nothing. Values kept
//! for a guard stay in the bag until a later call tidies it.
//!
//! A bag belongs to a limiter and is dropped with the limiter. No thread can then be calling the
//! limiter, so the values in the bag are freed immediately.
//!
//! # Progress
//!
//! Creating and dropping a guard is wait-free, except for the first guards of a thread. A walk
//! starts again if a collection has started in the meantime. A collection is lock-free. It takes
//! each list of a bag with one swap, and immediately puts back the values that it will not examine.
//! The collection walks through the participants once, or twice if the bag contains only older
//! values, and compares each announced guard with each examined value. Few guards are announced at
//! any moment, because a thread announces one only during a call.
//!
//! # Memory
//!
//! A participant occupies 128 bytes, and sixteen participants are allocated at a time. When a
//! thread ends, its participants are handed on to other threads. Participants are never freed. The
//! number of participants is the largest number of guards and threads that have ever existed at the
//! same time. Each guard leaked with `mem::forget` adds one participant. Each value occupies 40
//! bytes more than it would in a box.
//!
//! A forked child inherits the participants of threads that do not exist in the child. A guard
//! announced by such a participant acts like the guard of a parked thread.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | link | `Link::install`, `Link::advance` | `Link::follow` | everything that was done to the value before it was linked, and that the era of its birth has begun | `nothing_is_freed_under_a_guard`, `two_retire_and_each_value_is_freed_once` |
//! | new era | `Registry::end_era` | `Registry::era` | that values retired before are unlinked | `who_reads_a_new_era_finds_what_was_retired_unlinked` |
//! | left | `Participant::set` | `Participant::era`, `Participant::is_free_and_taken` | that the reads under a dropped guard have happened | `nothing_is_freed_under_a_guard`, `a_participant_that_is_left_under_a_guard_is_taken_over_after_it` |
//! | listed | `Registry::join` | `Registry::all` | the participant itself | `participants_are_handed_on_while_values_are_retired` |
//! | handed on | `Participant::leave` | `Participant::is_free_and_taken` | the state in which the last thread left it | `a_participant_that_is_left_under_a_guard_is_taken_over_after_it` |
//! | bag | `Bag::put`, `Bag::put_back` | `Bag::take` | the value, its header, and that it is unlinked | `two_retire_and_each_value_is_freed_once`, `a_value_that_is_put_back_is_whole_for_the_next_collection` |
//!
//! The ledger of `barrier` contains the *barrier* edge, and the ledger of `once` contains the *set*
//! edge.

// Models replace the bag, the guard and the link with stand-ins. The rest of the module builds on
// these three types.
#[cfg_attr(tollgate_loom, path = "reclaim/model/bag.rs")]
mod bag;
#[cfg(not(tollgate_loom))]
mod barrier;
mod chain;
// This module is public for the models, which use the library from outside. Unit tests do not need
// a public module.
#[cfg_attr(test, allow(unreachable_pub))]
mod coin;
#[cfg_attr(tollgate_loom, path = "reclaim/model/guard.rs")]
mod guard;
#[cfg_attr(tollgate_loom, path = "reclaim/model/link.rs")]
mod link;
mod once;
mod order;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

pub(crate) use bag::{Bag, Retire};
pub(crate) use chain::{Chained, Followed, Root, Walked, under_guard};
#[cfg(any(test, tollgate_loom))]
#[cfg_attr(test, allow(unreachable_pub))]
pub use coin::toss;
pub(crate) use guard::{Guard, Retry, pin};
pub(crate) use link::Link;
pub(crate) use once::OnceLink;
