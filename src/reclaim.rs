//! Memory reclamation: decides when a replaced value may be freed. Readers run no fence and no
//! locked instruction, and the amount of memory that waits to be freed is bounded even if threads
//! are parked.
//!
//! The arrays of a table, the chunks of a log, and the rules and versions of exact keys are
//! replaced while other threads read them. A reader holds a [`Guard`]; a writer unlinks a value
//! from its [`Link`] and gives it to the [`Bag`] of its limiter. A *collection* frees the values
//! that no guard may have seen.
//!
//! Why not the guards of crossbeam-epoch? Each guard costs a locked instruction, which is a
//! noticeable part of a check. In addition, a parked thread holds up the epoch, so memory grows for
//! as long as the thread is parked. The links only use the pointer types of crossbeam-epoch
//! (`Atomic`, `Owned`, `Shared`), which distinguish a pointer from its owner. Why not seize? Its
//! guards cost more, and a parked thread has the same effect. (`docs/performance.md` has the
//! figures.)
//!
//! The scheme is *Hazard Eras* (Ramalhete and Correia, "Brief Announcement: Hazard Eras", SPAA
//! 2017): a clock of eras, values that record the eras of their birth and retirement, and readers
//! that announce the era in which they read. The scheme is close to interval-based reclamation (Wen
//! et al., PPoPP 2018). It differs from Hazard Eras in three ways. A guard announces one era, once,
//! instead of one era for each pointer. A walk that finds a later era begins again under a new
//! guard, whereas a reader of Hazard Eras announces the later era and loads again; therefore all
//! values that a parked thread keeps existed at one moment. The fence after the announcement is run
//! by the collector, for all threads (`membarrier`; see `barrier`).
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
//! A guard has one era. It *meets* the values that were born in that era or before, and retired in
//! that era or after. A collection takes values out of a bag, ends an era, runs the heavy half of
//! the [`barrier`], and frees the values that no guard meets. A thread that holds several guards
//! has a participant for each guard.
//!
//! # Invariants
//!
//! 1. A value is born in an era that is not later than the era in which it is linked. A value that
//!    `Link::install` links is born in the era of the thread's guard, so the guard meets the value.
//! 2. A value is retired in an era that ends after the value was unlinked. A thread that has read a
//!    later era finds the value unlinked (edge *new era*).
//! 3. A thread uses a value that it has loaded from a link only if it then finds that the era is
//!    still the era of its guard. By 1, and since the link was loaded with acquire, the value was
//!    born no later than in that era.
//! 4. A root only moves forward along its chain, one value at a time; the link behind a value is
//!    final.
//! 5. A walk follows the link of a root or, under the same guard, of a value that it has reached
//!    ([`At`]). When the era of the guard has ended, the result is [`Retry`], and the thread begins
//!    again at the root, under another guard ([`under_guard`]). The values that a walk has reached
//!    may be read again under its guard ([`Walked`]), because links are final.
//!
//! # Why nothing is freed under a guard
//!
//! Let a guard of era `a` use value `v`, born in `b` and retired in `r`.
//!
//! - `b <= a`, by 3.
//! - `r >= a`. Otherwise the thread read an era later than `r` when it made the guard. By 2 it then
//!   finds `v` unlinked, and by 4 and 5 it does not reach `v` from an earlier value either.
//! - By these two, the guard meets `v`. It remains to show that the collection sees the guard. The
//!   collection reads the participants after the heavy half, and the thread announces the guard
//!   before the light half. If the collection does not see the announcement, the thread loads its
//!   root after `v` was unlinked, and does not reach `v`. If the collection sees a later state, the
//!   guard was dropped, and the reads under the guard happened before (edge *left*).
//!
//! # How much memory waits
//!
//! A thread that is parked under a guard keeps the values that the guard meets, which are the
//! values that existed in the guard's era. Values that are born later are not kept. Therefore, for
//! each guard that the thread holds, a limiter keeps no more than it had in use at one moment.
//! Besides the guards of its handles, a thread holds at most four guards in a call: for
//! `check_all`, for the limiter, for a walk, and for a walk inside that walk (along the log of a
//! key that has had several quotas, for example). Each time that a walk begins again, it makes a
//! new guard, so a call that is held up repeatedly keeps no more than any other call.
//!
//! In addition, 32 KiB wait for the next collection, 32 KiB for the collection after that, and the
//! values that were retired last, if they are larger. A collection looks at no more than 256 values
//! or 64 KiB of each pile of a bag, because a check may have to run the collection; the next
//! charges free the rest. A thread that is parked in a collection keeps the values that the
//! collection looks at, or all waiting values if the thread is parked before it has put the others
//! back. The bag counts all these bytes.
//!
//! Each call that retires a value tidies the bag of that value afterwards (`Bag::tidy`), and so
//! does each charge of a log. A denial does not, since it writes nothing. If no such call follows,
//! the values that were kept for a guard stay until the next one.
//!
//! A bag belongs to a limiter and is dropped with the limiter. At that time no thread is in a call
//! of the limiter, so the values in the bag are freed immediately.
//!
//! # Progress
//!
//! Making and dropping a guard is wait-free, except for the first guards of a thread. A walk begins
//! again when a collection has begun meanwhile. A collection is lock-free: it takes the list of a
//! bag by one swap, and puts back the values that it does not look at before it continues. It walks
//! through the participants once, or twice if only older values wait, and searches the sorted eras
//! of the guards for each value.
//!
//! # Memory
//!
//! A participant takes 128 bytes, and participants are allocated sixteen at a time. A participant
//! is handed on when its thread has ended, and never freed. There are as many participants as there
//! were guards and threads at the same time, and one more for each guard that was leaked with
//! `mem::forget`. A value takes 40 bytes more than in a box. After a fork, a participant whose
//! thread does not exist in the child is unchanged: a guard that it announces acts like the guard
//! of a parked thread.
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
//! The ledger of `barrier` has the edge *barrier*, and the ledger of `once` has the edge *set*.

// Models replace the bag, the guard and the link by stand-ins, on which everything else rests.
#[cfg_attr(tollgate_loom, path = "reclaim/model/bag.rs")]
mod bag;
#[cfg(not(tollgate_loom))]
mod barrier;
mod chain;
// Public for the models, which use the library from outside, but not for unit tests.
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
pub(crate) use chain::{At, Chained, Root, Walked, under_guard};
#[cfg(any(test, tollgate_loom))]
#[cfg_attr(test, allow(unreachable_pub))]
pub use coin::toss;
pub(crate) use guard::{Guard, Retry, pin};
pub(crate) use link::Link;
pub(crate) use once::OnceLink;
