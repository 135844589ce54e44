//! States and their rules, and the replacement of both when the quota changes.
//!
//! The state of a single limiter, of an exact key, and of all keys without a slot in a full table
//! is a [`Versioned`]: a word or a log whose rule may be replaced. (The words of a table are not,
//! because the array has the rules: see `table`.) [`State`] is a word with its rule, [`AnyState`]
//! is a view of a state of either kind, and [`Standalone`] is a state that belongs to no store of
//! keys.
//!
//! Only the rule that made a word can interpret it. Therefore, if a rule is replaced while requests
//! are decided under it, the word must be translated exactly once, and no charge may go to the old
//! word. This works like a turnover of the table, but for one key: the next *version* is linked,
//! the word is frozen, and its translation is installed in the next version.
//!
//! # State
//!
//! ```text
//! next:  null -> version            the quota was changed; final
//! word:  fresh -> w0                the translation of the previous word, or the first charge
//!        w0 -> w1 -> ...            charges, by `rule::try_update`
//!        w -> w|FROZEN              the next version is linked
//!        w -> SEALED                eviction: w was idle; no version follows
//! log:   -> changed                 the next version is linked; then next.word: fresh -> IN_USE
//!        -> sealed                  eviction: the log was idle, or had not begun
//! ```
//!
//! Under sliding logs, a state has one log for all versions instead of the words. The log changes
//! in its own way (see `log`) and needs no translation. The word of a version only records whether
//! the log contains the change, so that the version may be used.
//!
//! # Invariants
//!
//! 1. A word is frozen only after the next version is linked, and never changes after that.
//! 2. A translation is never fresh, and is installed by a CAS from fresh. Therefore one of the
//!    threads that install it succeeds, and a late thread finds the word changed and does nothing.
//! 3. A version is used only after its word was installed.
//! 4. One version of a chain takes charges: the version whose word was installed and is not frozen.
//!    A charge is one CAS on a word. If it happens before the word is frozen, the translation
//!    includes it; otherwise it fails and is tried on the next version.
//!
//! # When a change takes effect
//!
//! A change takes effect at its own time, no matter which thread translates the state, and how
//! late, because a version has the time of its change. The call that changes a quota also visits
//! all affected states before it returns. Otherwise an unused state would continue at the old rate,
//! and after two changes would have missed one of them.
//!
//! A store counts its changes. A version records the latest count for which its rule is known to be
//! the *wanted* rule. A thread that reads a later count looks up the wanted rule, and then either
//! records the count or links the next version. The thread reads the count before it looks up the
//! rule, and a change is counted after it can be seen, so a thread that reads the new count sees
//! the new rule.
//!
//! A thread may stop between the lookup and the linking, while the quota changes and changes back.
//! It may still link the version for the rule that it had looked up; the state is then translated
//! there and back. This happens at most once for each such thread and costs time. If the rule that
//! the thread had looked up had the smaller quota, missing tokens beyond that quota are forgotten.
//!
//! # Progress
//!
//! Charges and changes are lock-free: a thread that needs a translation makes it. A walk visits the
//! versions that were linked since the state was last used, which is one version unless quotas
//! change all the time. The walk unlinks and retires all versions but the first and the last. The
//! first version is part of the state, and is freed with it and with the log.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | replaced | `rule::try_update` of a word that is frozen | `Versioned::last` | that the next version is linked | `quota_swap_races_charge_and_none_is_lost` |
//!
//! The edge *link* of `reclaim` orders everything else. The count of changes belongs to the store:
//! see `exact/quotas.rs`.

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
