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
//! A change takes effect at the time at which it was made, because the version records that time.
//! It does not matter which thread translates the state, or how late. The call that changes a quota
//! also visits all affected states before it returns. Otherwise an unused state would continue at
//! the old rate, and would miss the first of two changes. An insertion, whose new state that visit
//! may have missed, reads the count of changes again (see `exact::quotas`).
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
//! usually costs nothing but time. However, if the outdated rule has the smaller quota, missing
//! tokens beyond that quota are forgotten.
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
