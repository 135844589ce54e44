//! States and their rules. Both are replaced when the quota changes.
//!
//! A [`Versioned`] is a word or a log whose rule may be replaced. It serves as the state of a
//! single limiter, of an exact key, or of all keys without a slot in a full table. (The words of a
//! table are not versioned, because the array owns the rules: see `table`.) [`State`] is a word
//! with its rule. [`AnyState`] is a view of either kind of state. [`Standalone`] is a state that
//! belongs to no store of keys.
//!
//! Only the rule that made a word can interpret the word. If the rule is replaced while other
//! threads decide requests, the word must be translated exactly once, and the old word must accept
//! no more charges. The translation works like a turnover of the table, but for one key. A thread
//! links the next *version*, freezes the word, and installs the word's translation in the next
//! version.
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
//! With a sliding log, all versions of a state share one log, which has its own transitions (see
//! `log`) and needs no translation. A version's word then records only whether the log contains the
//! change, that is, whether the version may be used.
//!
//! # Invariants
//!
//! 1. A word is frozen only after the next version is linked, and never changes after that.
//! 2. A translation is never fresh, and is installed by a CAS from fresh. If several threads
//!    install a translation, one thread succeeds. A late thread finds the word changed and does
//!    nothing.
//! 3. A version is used only after its word is installed.
//! 4. In each chain, one version accepts charges: the version whose word is installed and not
//!    frozen. A charge is one CAS on a word. If the charge precedes the freeze, the translation
//!    includes it. Otherwise the CAS fails, and the charge is retried on the next version.
//!
//! # When a change takes effect
//!
//! A change takes effect when it binds a state: a thread freezes the word, reads the limiter's
//! clock again, and translates the word for that time (`Since::binding`). The time of the call that
//! changed the quota would be too early: a charge under the old rule may be later than that time,
//! and the new rule would refill the charged tokens from before the charge. Several threads may
//! read different times; the first installation wins, and each of these times is right, because it
//! is not earlier than any charge under the old rule.
//!
//! If the caller passes the time of a change, the state is translated for that time. If the time is
//! stale, charges under the old rule may be later, and the word does not show by how much. The
//! excess is at most one capacity, and at most the tokens that refill at the new rate in the
//! interval by which the time is stale.
//!
//! The call that changes a quota also visits all affected states before it returns. Otherwise an
//! unused state would continue at the old rate, and would miss the first of two changes. An
//! insertion, whose new state that visit may have missed, reads the count of changes again (see
//! `exact::quotas`).
//!
//! # Refunds over a change
//!
//! Each version has a stamp, and each decision has the stamp of the version that was charged. A
//! refund has no effect if the stamps differ. A version that follows another draws a stamp from one
//! counter of the store, unless its rule is equal to the previous version's rule, in which case the
//! word needs no translation. The first version of a cell has the stamp of the number of changes so
//! far. A key that is evicted and inserted again therefore has its earlier stamp only if no quota
//! of the store has changed meanwhile. (An idle key that is evicted holds no charge, so it loses no
//! refund.)
//!
//! A cell may be created before a change, and inserted after the change has visited all cells. The
//! first charge of a cell therefore reads the number of changes again, and seals the cell if the
//! number does not match the cell's stamp. If a change is counted after the number was read, the
//! change visits the cell, because the cell was inserted before the change was counted.
//!
//! A store counts its changes. Each version records the latest count at which the version's rule
//! was known to be the *wanted* rule. A thread that reads a later count looks up the wanted rule,
//! and then either records the count or links the next version. The thread reads the count before
//! it looks up the rule, and a change is counted only after the new rule is visible. Therefore a
//! thread that reads the new count also sees the new rule.
//!
//! If the quota changes and changes back while a thread is stopped between looking up a rule and
//! linking a version, the thread may still link a version with the outdated rule. The state is then
//! translated to the outdated rule and back. This happens at most once for each such thread, and
//! costs the refunds of earlier charges. If the outdated rule has the smaller quota, missing tokens
//! beyond that quota are forgotten.
//!
//! # Progress
//!
//! Charges and changes are lock-free, because a thread that needs a translation makes the
//! translation itself. A walk visits the versions linked since the state was last used: a single
//! version, unless quotas change all the time. The walk unlinks and retires all versions except the
//! first and the last. The first version is part of the state, and is freed together with the state
//! and the log.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | replaced | `rule::try_update` of a word that is frozen | `Versioned::last` | that the next version is linked | `quota_swap_races_charge_and_none_is_lost` |
//!
//! The *link* edge in `reclaim` orders everything else, except the count of changes, which the
//! store maintains: see `exact/quotas.rs`.

mod any_state;
mod leases;
#[cfg(tollgate_loom)]
mod model;
mod packed;
mod saved;
mod shared_rule;
mod since;
mod standalone;
mod versions;

pub(crate) use any_state::AnyState;
pub(crate) use leases::{Hint, Leases};
#[cfg(tollgate_loom)]
pub use model::ModelLog;
pub(crate) use packed::State;
pub(crate) use saved::SavedState;
pub(crate) use shared_rule::{Counts, SharedRule, StateRule, Wanted};
pub(crate) use since::Since;
pub(crate) use standalone::Standalone;
pub(crate) use versions::Versioned;
