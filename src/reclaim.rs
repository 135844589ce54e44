//! Reclamation: when what was replaced may be freed, with readers that run no fence and no locked
//! instruction, and with a bound on what waits whoever is parked.
//!
//! The eras of a table, the chunks of a log, the rules and stages of exact keys are replaced while other
//! threads read them. A reader holds a [`Guard`]; a writer unlinks a value from its [`Link`] and gives it to
//! the [`Bag`] of its limiter. A *collection* frees what no guard may have seen.
//!
//! Why not the guards of crossbeam-epoch: each costs a locked instruction, a noticeable part of a
//! check. And a thread that is parked holds up the epoch, so all that is retired from then on
//! stays, and memory grows for as long as the thread is parked. Of crossbeam-epoch the links use
//! the pointers (`Atomic`, `Owned`, `Shared`), which keep a pointer and its owner apart in the
//! types; the collector is ours. Why not seize: its guards cost more, and a parked thread has the
//! same effect. (`docs/performance.md` has the figures.)
//!
//! # State
//!
//! ```text
//! age:                grows by one with each collection that has something to free
//! participant.state:  the age in which its guard was made, or IDLE
//!                     IDLE -> age        a guard is made; then `light`
//!                     a -> age           it is renewed by `repin`; then `light`
//!                     a -> IDLE          it is dropped
//! participant.until:  u -> age           a link is loaded in a later age; then `light`
//! participant.taken:  FREE -> TAKEN      by a thread, if the state is IDLE
//!                     TAKEN -> FREE      when the thread ends; a guard of it may be left
//! a value:            born in an age -> linked -> unlinked -> in a bag -> retired in an age -> freed
//! ```
//!
//! A guard covers the *interval* of ages from `state` to `max(state, until)`. A value is *met* by an interval if
//! it was born in it or before, and retired in it or after. A collection takes values out of a bag, ends an age,
//! runs the heavy half of the [`barrier`], and frees those that no interval meets. A thread that holds several
//! guards has a participant for each: a guard that is held for long, beside short ones, covers no more than it
//! has to.
//!
//! # Invariants
//!
//! 1. A value is born in an age that is not later than the age in which it is linked.
//! 2. A value is retired in an age that ends after it was unlinked. Who has read a later age finds it unlinked
//!    (edge *aged*).
//! 3. A thread uses what it has loaded from a link only after it has seen that the age is one which it has
//!    announced *before it loaded*. By 1, and since the link was loaded with acquire, the value was born no
//!    later than that.
//! 4. A root only moves forward along its chain, one value at a time; what is behind a value is final.
//! 5. The link inside a value is followed only while the age is the one in which the thread has announced
//!    itself and then found the value linked, from the root on. ([`Link::follow`] says when it is not, and
//!    the caller begins again at the root, or finds out that the value is linked still.)
//!
//! # Why nothing is freed under a guard
//!
//! Let a guard of interval `[s, u]` use value `v`, born in `b` and retired in `r`.
//!
//! - `b <= u`, by 3.
//! - `r >= s`. Otherwise the thread, when it made the guard, has read an age later than `r`, so by 2 it finds
//!   `v` unlinked, and by 4 and 5 it gets to `v` from no value before it either.
//! - So the interval meets `v`, and what is left is whether the collection sees the interval. It looks after
//!   the heavy half, the thread announces before the light half. If the announcement (of the guard, or of the
//!   later age) is not seen, then the thread loads its root after `v` was unlinked, and does not get to `v`.
//!   If a later state is seen, the guard was dropped or renewed, and what was read under it was read before (edge
//!   *left*). If an earlier `until` is seen with it, it is that of an announcement before, which is the case
//!   above.
//!
//! # What waits, and how much that is
//!
//! A thread that is parked under a guard keeps what its interval meets: the values that existed when it made
//! the guard, or last loaded a link under it. What is born later passes. So for each such thread a limiter
//! keeps no more than it had in use at one moment, besides 32 KiB that wait for the next collection, as much
//! that waits for the one after, and the values that came last, if they are larger. A thread that is parked in
//! a collection keeps the few hundred values that it looks at. All of it is counted by the bag.
//!
//! A bag belongs to a limiter, and goes with it: nobody is in a call of a limiter that is dropped, so what
//! waits there is freed at once.
//!
//! # Progress
//!
//! Making, renewing and dropping a guard is wait-free, but for the first guard of a thread. `load` begins again
//! when a collection has begun since, `follow` has its caller do so. A collection is lock-free: it takes the
//! list of a bag by one swap, and puts back what it does not look at before it goes on.
//!
//! # Memory
//!
//! A participant takes 128 bytes. It is handed on when its thread has ended, and never freed: there are as many
//! as there were guards and threads at once, and one more for each guard that was forgotten. A value takes 40
//! bytes more than it would in a box. After a fork, a participant whose thread the child has not got stays as
//! it was: if a guard is held there, that is a parked one.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | link | `Link::install`, `Link::advance` | `Link::load`, `Link::follow` | all that was done to the value before it was linked, and that the age of its birth has come | `nothing_is_freed_under_a_guard`, `two_retire_and_each_value_is_freed_once` |
//! | aged | `Registry::end_age` | `Registry::age` | that what was retired before is unlinked | `who_reads_a_new_age_finds_what_was_retired_unlinked` |
//! | left | `Participant::set` | `Participant::interval`, `Participant::is_free_and_taken` | all that was read under guards that are dropped | `nothing_is_freed_under_a_guard`, `a_participant_is_handed_on_with_all_that_was_read_there` |
//! | listed | `Registry::join` | `Registry::all` | the participant itself | `participants_are_handed_on_while_values_are_retired` |
//! | handed on | `Participant::leave` | `Participant::is_free_and_taken` | the state in which the last thread left it | `participants_are_handed_on_while_values_are_retired` |
//! | bag | `Bag::put`, `Bag::put_back` | `Bag::take` | the value, its header, and that it is unlinked | `two_retire_and_each_value_is_freed_once`, `a_long_bag_is_shared_and_each_value_is_freed_once` |
//!
//! *barrier* is on the page of `barrier`, *set* on that of `once`.

#[cfg(not(tollgate_loom))]
mod bag;
#[cfg(not(tollgate_loom))]
mod barrier;
#[cfg(not(tollgate_loom))]
mod guard;
#[cfg(not(tollgate_loom))]
mod link;
#[cfg(tollgate_loom)]
mod model;
mod once;
mod order;
#[cfg(not(tollgate_loom))]
mod participant;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

#[cfg(not(tollgate_loom))]
pub(crate) use bag::{Bag, Retire};
#[cfg(not(tollgate_loom))]
pub(crate) use guard::pin;
#[cfg(not(tollgate_loom))]
pub(crate) use link::{Link, Stale};
#[cfg(tollgate_loom)]
pub(crate) use model::{Bag, Link, Retire, Stale, pin};
pub(crate) use once::OnceLink;

// It is the guard of a sealed trait, so it is named where that is.
#[cfg(not(tollgate_loom))]
pub(crate) use guard::Guard;
#[cfg(tollgate_loom)]
pub(crate) use model::Guard;
