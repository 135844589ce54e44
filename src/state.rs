//! A state with the rule that it was made under, and how both are replaced when the quota changes.
//!
//! The state of a single limiter, of an exact key, and of all keys without a slot in a full table
//! is a [`Versioned`]: a word or a log whose rule may be replaced. (The words of a table are not:
//! there the array knows the rules, see `table`.) [`State`] is a word with its rule, [`AnyState`] a
//! view of a state of either kind, and [`Standalone`] a state that belongs to no store of keys.
//!
//! Only the rule that made a word understands it. So where a rule is replaced while requests are
//! decided under it, the word must be translated exactly once, and no charge may go to the old
//! word. This is the turnover of the table for one key: the next *version* is linked, the word is
//! frozen, and its translation is brought into the next version.
//!
//! # State
//!
//! ```text
//! next:  null -> version            the quota was changed; final
//! word:  fresh -> w0                brought from the version before, or the first charge
//!        w0 -> w1 -> ...            charges, by `rule::try_update`
//!        w -> w|FROZEN              the next version is linked
//!        w -> SEALED                eviction: w was idle; no version follows
//! log:   -> changed                 the next version is linked; then next.word: fresh -> IN_USE
//!        -> sealed                  eviction: the log was idle, or had not begun
//! ```
//!
//! Under sliding logs, a state has one log for all versions, which takes the place of the words and
//! changes in its own way (see `log`). It needs no translation. The word of a version only tells
//! whether the change is in the log, so that the version may be used.
//!
//! # Invariants
//!
//! 1. A word is frozen only after the next version is linked, and never changes after that.
//! 2. A translation is never fresh, and is installed by a CAS from fresh. So of all threads that
//!    bring it, one succeeds, and a late one finds the word touched and does nothing.
//! 3. A version is used only after its word was brought.
//! 4. One version of a chain takes charges: the one whose word was brought and is not frozen. A
//!    charge is one CAS on a word. Either it comes before the word is frozen, and is brought along;
//!    or it fails and is tried on the next version.
//!
//! # When a change takes effect
//!
//! A change takes effect at its own time, no matter which thread translates the state, and how
//! late: a version knows the time of its change. The call that changes a quota also visits all
//! states that it concerns before it returns. Otherwise a state that is not used would go on at the
//! old rate, and after two changes would have missed one.
//!
//! A store counts its changes. A version notes the latest count for which its rule is known to be
//! the *wanted* one. A thread that reads a later count asks for the wanted rule, and notes the
//! count or links the next version. It reads the count before it asks for the rule, and a change is
//! counted after it can be seen, so a thread that reads the new count sees the new rule.
//!
//! A thread may stop between asking and linking, while the quota changes and changes back. It may
//! still link the version it had asked for: the state is then translated there and back. That
//! happens once for each such thread, and delays; if the quota it had asked for was the smaller
//! one, tokens missing beyond it are forgotten.
//!
//! # Progress
//!
//! Charges and changes are lock-free: a thread that needs a translation makes it. A walk visits the
//! versions that were linked since the state was last used, which is one unless quotas change all
//! the time. It unlinks and retires all but the first and the last. The first is part of its
//! state, and is freed with it and all it holds, its log included.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | replaced | `rule::try_update` of a word that is frozen | `Versioned::last` | that the next version is linked | `quota_swap_races_charge_and_none_is_lost` |
//!
//! The edge *link* of `reclaim` does the rest. The count of changes belongs to the store: see
//! `exact/quotas.rs`.

mod any_state;
#[cfg(tollgate_loom)]
mod model;
mod packed;
mod shared_rule;
mod standalone;
mod versions;

pub(crate) use any_state::AnyState;
#[cfg(tollgate_loom)]
pub use model::ModelLog;
pub(crate) use packed::State;
pub(crate) use shared_rule::{Counts, SharedRule, StateRule, Wanted};
pub(crate) use standalone::Standalone;
pub(crate) use versions::Versioned;
