//! The shortest way to a key's word: a look at the root, which is where most keys are.

use super::era::Era;
use super::slot::Fingerprint;
use super::space::{Empty, Line, Probe};
use crate::decision::Decision;
use crate::packed::Judged;
use crate::rule::{LeakyBucket, Word};
use crate::sync::{Atomic, Guard};
use crate::time::Tick;

/// The root as a reader has found it.
#[derive(Clone, Copy, Debug)]
pub struct View<'g>(&'g Era);

/// Why a key was not charged at once.
#[derive(Clone, Copy, Debug)]
pub enum Miss<New, Elsewhere> {
    /// It is not there; what is to be known to insert it.
    New(New),
    /// It may be elsewhere.
    Elsewhere(Elsewhere),
}

/// A key may be in this era or a later one; or it is in this one with this word, which is frozen, so it goes on in the next.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere<'g> {
    pub(super) era: &'g Era,
    pub(super) frozen: Option<&'g Atomic<Word>>,
}

/// A key is missed in this way.
type Missed<'g> = Miss<Empty<'g>, Elsewhere<'g>>;

impl<'g> View<'g> {
    #[inline(always)]
    pub(super) fn of(root: &'g Era) -> Self {
        Self(root)
    }

    /// Where `key` is, if it is where most keys are: in the first line of its probe run. That line is on its way to the
    /// processor when this returns.
    #[inline(always)]
    pub(crate) fn spot(self, key: Fingerprint) -> &'g Line {
        self.0.space.first_line(key)
    }

    /// The bucket that judges all keys, if one does.
    #[inline(always)]
    pub(crate) fn bucket(self) -> Option<LeakyBucket> {
        self.0.rules().bucket()
    }

    /// Charges a key with this word, if that was found in this view; or else looks for it further on. Misses one that is not
    /// here, or whose word is frozen. Was anything charged?
    #[inline(always)]
    pub(crate) fn charge(
        self,
        found: Option<&'g Atomic<Word>>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &'g Guard,
    ) -> Result<(Decision, bool), Missed<'g>> {
        let word = self.found(found, key, guard)?;
        self.0
            .state(key, word)
            .charge_slowly(now, cost)
            .ok_or(Miss::Elsewhere(Elsewhere { era: self.0, frozen: Some(word) }))
    }

    /// The same where all are judged by this bucket, which is that of this view.
    #[inline(always)]
    pub(crate) fn charge_by(
        self,
        bucket: LeakyBucket,
        found: Option<&'g Atomic<Word>>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &'g Guard,
    ) -> Result<Judged, Missed<'g>> {
        let word = self.found(found, key, guard)?;
        Judged::charge(bucket, word, now, cost)
            .ok_or(Miss::Elsewhere(Elsewhere { era: self.0, frozen: Some(word) }))
    }

    #[inline(always)]
    fn found(
        self,
        found: Option<&'g Atomic<Word>>,
        key: Fingerprint,
        guard: &'g Guard,
    ) -> Result<&'g Atomic<Word>, Missed<'g>> {
        if let Some(word) = found {
            return Ok(word);
        }
        match self.0.space.probe_further(key) {
            Probe::Key(word) => Ok(word),
            Probe::Empty(empty) => Err(Miss::New(empty)),
            Probe::Sealed => Err(Miss::Elsewhere(Elsewhere { era: self.0.successor(guard), frozen: None })),
        }
    }
}
