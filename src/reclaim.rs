//! Reclamation: when a replaced value may be freed. Readers run no fence and no locked instruction,
//! and the memory that waits is bounded even if threads are parked.
//!
//! The arrays of a table, the chunks of a log, and the rules and versions of exact keys are
//! replaced while other threads read them. A reader holds a [`Guard`]; a writer unlinks a value
//! from its [`Link`] and gives it to the [`Bag`] of its limiter. A *collection* frees the values
//! that no guard may have seen.
//!
//! Why not the guards of crossbeam-epoch: each costs a locked instruction, a noticeable part of a
//! check. And a parked thread holds up the epoch, so memory grows for as long as the thread is
//! parked. The links use the pointers of crossbeam-epoch (`Atomic`, `Owned`, `Shared`), whose types
//! keep a pointer and its owner apart; the collector is ours. Why not seize: its guards cost more,
//! and a parked thread has the same effect. (`docs/performance.md` has the figures.)
//!
//! The scheme is *Hazard Eras* (Ramalhete and Correia, "Brief Announcement: Hazard Eras", SPAA
//! 2017): a clock of eras, values that note the eras of their birth and retirement, and readers
//! that announce the era in which they read. It is near interval-based reclamation (Wen et al.,
//! PPoPP 2018). Three things differ. A guard announces one era, once, and not one for each pointer.
//! A walk that finds the clock moved begins again under a new guard, where theirs announces the
//! later era and loads again; so what a parked thread keeps existed at one moment. And the fence
//! after the announcement is run by the collector, for all threads (`membarrier`; see `barrier`).
//!
//! # State
//!
//! ```text
//! era:                grows by one with each collection that has something to free
//! participant.state:  the era of its guard, or IDLE
//!                     IDLE -> era        a guard is made; then `light`
//!                     a -> IDLE          the guard is dropped
//! participant.taken:  FREE -> TAKEN      by a thread, if the state is IDLE
//!                     TAKEN -> FREE      the thread ends; a guard of it may be left
//! a value:            born in an era -> linked -> unlinked -> in a bag -> retired in an era
//!                     -> freed
//! ```
//!
//! A guard has one era. It *meets* the values that were born in that era or before, and retired in
//! it or after. A collection takes values out of a bag, ends an era, runs the heavy half of the
//! [`barrier`], and frees the values that no guard meets. A thread that holds several guards has a
//! participant for each.
//!
//! # Invariants
//!
//! 1. A value is born in an era that is not later than the era in which it is linked. One that
//!    `Link::install` links is born in the era of the thread's guard, which meets it.
//! 2. A value is retired in an era that ends after it was unlinked. A thread that has read a later
//!    era finds it unlinked (edge *new era*).
//! 3. A thread uses a value that it has loaded from a link only if it then finds that the era is
//!    still that of its guard. By 1, and since the link was loaded with acquire, the value was born
//!    no later than that.
//! 4. A root only moves forward along its chain, one value at a time; the link behind a value is
//!    final.
//! 5. A walk follows the link of a root or, under the same guard, of a value that it has come to
//!    ([`At`]). When the era has ended, it is [`Retry`], and the thread begins again at the root,
//!    under another guard ([`under_guard`]). What a walk has come to may be read again under its
//!    guard ([`Walked`]), because links are final.
//!
//! # Why nothing is freed under a guard
//!
//! Let a guard of era `a` use value `v`, born in `b` and retired in `r`.
//!
//! - `b <= a`, by 3.
//! - `r >= a`. Otherwise the thread has read an era later than `r` when it made the guard. So by 2
//!   it finds `v` unlinked, and by 4 and 5 it reaches `v` from no earlier value either.
//! - So the guard meets `v`, and it remains to show that the collection sees the guard. The
//!   collection looks after the heavy half, and the thread announces before the light half. If the
//!   announcement is not seen, then the thread loads its root after `v` was unlinked, and does not
//!   reach `v`. If a later state is seen, the guard was dropped, and the reads under it came before
//!   (edge *left*).
//!
//! # How much memory waits
//!
//! A thread that is parked under a guard keeps the values that the guard meets: those that existed
//! in its era. Values that are born later are not kept. So for each guard that it holds, a limiter
//! keeps no more than it had in use at one moment. Besides its handles, a thread holds four in a
//! call at most: those of `check_all`, of the limiter, of a walk, and of a walk inside that one
//! (along the log of a key that has had several quotas, say). It makes a new one each time that a
//! walk begins again. So a call that is held up again and again keeps no more than another.
//!
//! Besides that, 32 KiB wait for the next collection, as much for the one after, and the values
//! that were retired last, if they are larger. A collection looks at no more than 256 values or 64
//! KiB of each pile of a bag, because a check may have to run it; the next charges free the rest. A
//! thread that is parked in a collection keeps the values that it looks at; or all that waited, if
//! it is parked before it has put the others back. The bag counts all of it.
//!
//! Each call that retires a value tidies the bag of that value afterwards (`Bag::tidy`), and so
//! does each charge of a log. A denial does not, since it writes nothing. Where there are no such
//! calls any more, what was kept for a guard stays until the next one.
//!
//! A bag belongs to a limiter, and is dropped with it. No thread is in a call of a limiter that is
//! dropped, so the values in the bag are freed immediately.
//!
//! # Progress
//!
//! Making and dropping a guard is wait-free, except for the first guards of a thread. A
//! walk begins again when a collection has begun meanwhile. A collection is lock-free: it takes the
//! list of a bag by one swap, and puts back the values that it does not look at before it
//! continues. It walks the participants once, or twice where only older values wait, and looks each
//! value up among the sorted eras of the guards.
//!
//! # Memory
//!
//! A participant takes 128 bytes, and they are allocated sixteen at a time. A participant is handed
//! on when its thread has ended, and never freed: there are as many as there were guards and
//! threads at one time, and one more for each guard that was forgotten. A value takes 40 bytes more
//! than in a box. After a fork, a participant whose thread does not exist in the child stays as it
//! was: a guard that is held there acts as a parked one.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | link | `Link::install`, `Link::advance` | `Link::follow` | all that was done to the value before it was linked, and that the era of its birth has come | `nothing_is_freed_under_a_guard`, `two_retire_and_each_value_is_freed_once` |
//! | new era | `Registry::end_era` | `Registry::era` | that what was retired before is unlinked | `who_reads_a_new_era_finds_what_was_retired_unlinked` |
//! | left | `Participant::set` | `Participant::era`, `Participant::is_free_and_taken` | all that was read under guards that are dropped | `nothing_is_freed_under_a_guard`, `a_participant_that_is_left_under_a_guard_is_taken_over_after_it` |
//! | listed | `Registry::join` | `Registry::all` | the participant itself | `participants_are_handed_on_while_values_are_retired` |
//! | handed on | `Participant::leave` | `Participant::is_free_and_taken` | the state in which the last thread left it | `a_participant_that_is_left_under_a_guard_is_taken_over_after_it` |
//! | bag | `Bag::put`, `Bag::put_back` | `Bag::take` | the value, its header, and that it is unlinked | `two_retire_and_each_value_is_freed_once`, `a_value_that_is_put_back_is_whole_for_the_next_collection` |
//!
//! The edge *barrier* is in the documentation of `barrier`, and *set* in that of `once`.

// Models have stand-ins for the bag, the guard and the link, on which everything else rests.
#[cfg_attr(tollgate_loom, path = "reclaim/model/bag.rs")]
mod bag;
#[cfg(not(tollgate_loom))]
mod barrier;
mod chain;
// Public for the models, which use the library from outside; not in unit tests.
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
