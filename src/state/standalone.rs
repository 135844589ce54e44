//! A state that belongs to no store: the state of a single limiter, or the state shared by keys
//! without a place. Its rule may be replaced, like the rule of any other state (see `versions`).

use super::any_state::AnyState;
use super::saved::SavedState;
use super::shared_rule::{SharedRule, StateRule, Wanted};
use super::since::Since;
use super::versions::Versioned;
use crate::quota::{Enforced, Quota};
use crate::reclaim::Bag;
use crate::rule::Word;
use crate::sync::Atomic;
use crate::time::Tick;
use std::sync::Arc;

/// A state, and a bag for its retired parts. A change of the quota retires versions, and a log that
/// advances retires chunks. Only stores seal states, so this state is never sealed.
#[derive(Debug)]
pub(crate) struct Standalone {
    state: Versioned,
    retired: Bag,
}

const NEVER_SEALED: &str = "only a store seals a state";

impl Standalone {
    /// Creates an idle state under this rule.
    pub(crate) fn idle(wanted: Wanted) -> Self {
        Self { state: Versioned::idle(wanted), retired: Bag::new() }
    }

    /// Replaces the state, which no other thread uses yet, with a state that was saved under the
    /// rule `before`.
    pub(crate) fn restore(&self, before: &StateRule, state: SavedState, now: Tick) {
        let state = state.translated(before, self.first_rule(), now);
        self.visit_as_is(|view| view.restore(&state));
    }

    /// Returns the word of the first version. Only the first rule can interpret this word, and the
    /// word is frozen once that rule is replaced.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> &Atomic<Word> {
        self.state.first_word()
    }

    /// Returns the rule of the first version.
    #[inline(always)]
    pub(crate) fn first_rule(&self) -> &StateRule {
        self.state.first_rule()
    }

    fn rule(&self) -> Arc<SharedRule> {
        self.state.rule(&self.retired).expect(NEVER_SEALED)
    }

    pub(crate) fn quota(&self) -> Quota {
        self.rule().quota
    }

    /// Replaces the state's rule, unless the quota is the same. Decisions made after this call
    /// returns use the new rule or a later one.
    pub(crate) fn replace(&self, rule: Enforced<StateRule>, since: &Since) {
        self.state.replace(rule, since, &self.retired);
        self.retired.tidy();
    }

    /// Replaces the state's rule with the wanted rule, unless the state already has it. The caller
    /// must have read `changes` before the call.
    pub(crate) fn adopt(&self, changes: u64, wanted: impl Fn() -> Wanted) {
        self.visit(changes, wanted, |state| state.touch());
        self.retired.tidy();
    }

    /// Passes the state, under the wanted rule, to `visit`. `visit` may return `None` only if the
    /// state is frozen or sealed.
    pub(crate) fn visit<T>(
        &self,
        changes: u64,
        wanted: impl Fn() -> Wanted,
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> T {
        self.state.visit(changes, wanted, &self.retired, visit).expect(NEVER_SEALED)
    }

    /// Passes the state, under its current rule, to `visit`.
    pub(crate) fn visit_as_is<T>(&self, visit: impl Fn(AnyState<'_>) -> Option<T>) -> T {
        self.state.visit_as_is(&self.retired, visit).expect(NEVER_SEALED)
    }

    /// Returns the size in bytes of the log and of the retired parts that have not been freed yet.
    /// The versions are not included.
    pub(crate) fn bytes(&self) -> usize {
        self.state.log_bytes() + self.retired.bytes()
    }

    /// Returns the total size in bytes of the state's rules and versions.
    pub(crate) fn version_bytes(&self) -> usize {
        Versioned::version_bytes(self.state.counts())
    }
}
