//! Reads the states of a store to save them, and prepares a store for saved states.
//!
//! A reader visits the places one after the other. A key keeps its place until it is evicted, so a
//! key that was charged before the first place is visited, and is not idle, is found there.

use super::entry::Entry;
use super::store::ExactStore;
use crate::quota::Quota;
use crate::state::SavedState;
use crate::time::Tick;
use std::sync::Arc;

impl<K: Eq + Send + Sync + 'static> ExactStore<K> {
    /// Returns the state of a cell as a value, with the quota under which it was made. Returns
    /// `None` if the cell is sealed or was never charged.
    pub(crate) fn saved(&self, cell: &Arc<Entry<K>>) -> Option<(Quota, SavedState)> {
        loop {
            let changes = self.quotas.changes();
            let wanted = || self.quotas.of(cell.asked());
            let (rule, state) =
                cell.state.visit(changes, wanted, &self.evicted.retired, |state| state.saved())?;
            if matches!(state, SavedState::Word(word) if word.is_fresh()) {
                return None;
            }
            // If the rules differ, the quota has changed between the two calls.
            let quota = wanted().rule;
            if quota.rule == rule {
                return Some((quota.quota, state));
            }
        }
    }

    /// Returns the keys with their own quotas.
    pub(crate) fn own_quotas(&self) -> Vec<(K, Quota)>
    where
        K: Clone,
    {
        self.quotas.all_own()
    }

    /// Returns the mark. Every key that was forgotten before the call is idle from this time on.
    pub(crate) fn mark(&self) -> Tick {
        self.rounds.forgotten().get()
    }

    /// Raises the mark of a store that is being restored.
    pub(crate) fn raise_mark(&self, to: Tick) {
        self.rounds.forgotten().raise(to);
    }
}
