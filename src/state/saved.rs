//! A state as a value, to be saved and restored.

use super::shared_rule::StateRule;
use crate::log::Admission;
use crate::rule::Word;
use crate::time::Tick;

/// The state of a key, of a single limiter, or of the keys without a slot, apart from its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SavedState {
    /// The word of a packed rule.
    Word(Word),
    /// The admissions of a log that still count, the oldest first. (The box makes the enum small.)
    #[allow(clippy::box_collection)]
    Log(Box<Vec<Admission>>),
}

impl SavedState {
    /// Returns the time from which this state gives the same decisions as a new state. Returns
    /// `None` if charges cannot have led to this state under this rule.
    pub(crate) fn until(&self, rule: &StateRule) -> Option<Tick> {
        match (self, rule) {
            (&Self::Word(word), StateRule::Packed(rule)) => {
                rule.is_possible(word).then(|| rule.idle_from(word).unwrap_or(Tick::MAX))
            }
            (Self::Log(admissions), StateRule::Log(rule)) => rule.until(admissions),
            (Self::Word(_), StateRule::Log(_)) | (Self::Log(_), StateRule::Packed(_)) => None,
        }
    }

    /// Translates a state that was made under the rule `before` to `rule`, as a change of quota at
    /// `now` does. Both rules must have the same algorithm, and this state must be possible under
    /// `before`.
    pub(crate) fn translated(self, before: &StateRule, rule: &StateRule, now: Tick) -> Self {
        match (self, before, rule) {
            (Self::Word(word), StateRule::Packed(before), StateRule::Packed(rule)) => {
                Self::Word(rule.adopt(before, word, now))
            }
            (Self::Log(mut admissions), StateRule::Log(before), StateRule::Log(rule)) => {
                if before != rule {
                    admissions.retain(|&admission| before.until(&[admission]) > Some(now));
                }
                Self::Log(admissions)
            }
            (state, ..) => state,
        }
    }
}
