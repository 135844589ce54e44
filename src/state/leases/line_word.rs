//! The word of a line, as a value.

use crate::decision::LeaseId;
use std::fmt;

/// The word of a line.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 10 | the tokens of the line |
/// | 11 to 21 | the tokens that the line had when its lease began |
/// | 22, 23 | the step |
/// | 24 to 63 | the generation, which changes whenever refunds of the lease become void |
///
/// | step | meaning | next |
/// |---|---|---|
/// | open | tokens can be spent and refunded | spent, refunded, claimed, closed, voided |
/// | claimed | a thread charges the bucket for a lease; the tokens are kept | filled, open again, closed, voided |
/// | closed | a thread returns all leases to the bucket; there are no tokens | opened |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LineWord(u64);

const OPEN: u64 = 0;
const CLAIMED: u64 = 1;
const CLOSED: u64 = 2;

const TOKENS: u64 = (1 << GRANTED) - 1;
const GRANTED: u32 = 11;
const STEP: u32 = 22;
const GENERATION: u32 = 24;

impl LineWord {
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns an open line without tokens. Of the generation, the low 40 bits are used.
    pub(super) const fn vacant(generation: u64) -> Self {
        Self::new(generation, OPEN, 0, 0)
    }

    const fn new(generation: u64, step: u64, granted: u64, tokens: u64) -> Self {
        Self(generation << GENERATION | step << STEP | granted << GRANTED | tokens)
    }

    const fn generation(self) -> u64 {
        self.0 >> GENERATION
    }

    /// Returns what identifies the lease of the line with this number.
    #[inline(always)]
    pub(super) const fn lease(self, line: usize) -> LeaseId {
        LeaseId(self.generation() << GENERATION | line as u64)
    }

    /// Returns the number of the line that has had the lease.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn line(LeaseId(id): LeaseId) -> usize {
        (id & ((1 << GENERATION) - 1)) as usize
    }

    const fn step(self) -> u64 {
        self.0 >> STEP & 3
    }

    const fn granted(self) -> u64 {
        self.0 >> GRANTED & TOKENS
    }

    /// Returns the number of tokens of the line.
    pub(super) const fn tokens(self) -> u64 {
        self.0 & TOKENS
    }

    const fn next(self, step: u64, tokens: u64) -> Self {
        Self::new(self.generation() + 1, step, 0, tokens)
    }

    /// Returns the line after `cost` tokens, at least one, were spent.
    #[inline(always)]
    pub(super) const fn spent(self, cost: u64) -> Option<Self> {
        if self.step() == OPEN && self.tokens() >= cost { Some(Self(self.0 - cost)) } else { None }
    }

    /// Returns the line after a refund of tokens that were spent from `lease`.
    pub(super) fn refunded(self, lease: LeaseId, tokens: u64) -> Option<Self> {
        let is_there = self.step() == OPEN && self.lease(Self::line(lease)) == lease;
        let back = tokens.min(self.granted().saturating_sub(self.tokens()));
        (is_there && back > 0).then_some(Self(self.0 + back))
    }

    /// Returns the line after it was claimed for a lease, of which it must be able to pay `cost`
    /// tokens. A line with `most` tokens can pay them, and the line as it is cannot.
    pub(super) const fn claimed(self, cost: u64, most: u64) -> Option<Self> {
        let is_short = self.step() == OPEN && self.tokens() < cost && cost <= most;
        if is_short { Some(self.next(CLAIMED, self.tokens())) } else { None }
    }

    /// Returns a claimed line with a lease of `granted` more tokens, of which `cost` tokens were
    /// spent.
    pub(super) const fn filled(self, granted: u64, cost: u64) -> Self {
        let all = self.tokens() + granted;
        Self::new(self.generation(), OPEN, all, all - cost)
    }

    /// Returns the line after it was closed, or `None` if it is closed already.
    pub(super) const fn closed(self) -> Option<Self> {
        if self.step() == CLOSED { None } else { Some(self.next(CLOSED, 0)) }
    }

    /// Returns a closed line after it was opened.
    pub(super) const fn opened(self) -> Option<Self> {
        if self.step() == CLOSED { Some(self.next(OPEN, 0)) } else { None }
    }

    /// Returns the line without its tokens, or `None` if it is closed.
    pub(super) const fn voided(self) -> Option<Self> {
        if self.step() == CLOSED { None } else { Some(self.next(OPEN, 0)) }
    }
}

impl fmt::Debug for LineWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step() {
            OPEN => "open",
            CLAIMED => "claimed",
            _ => "closed",
        };
        write!(f, "LineWord({step} {}/{}, {})", self.tokens(), self.granted(), self.generation())
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_not_taken_for_one_that_is_billions_of_leases_older() {
        let line = LineWord::vacant(7);
        for (generation, is_same) in [(7, true), (8, false), (7 + (1 << 32), false), (7 + (1 << 40), true)] {
            let other = LineWord::vacant(generation);
            assert_eq!(line.lease(3) == other.lease(3), is_same, "{generation}");
            assert_eq!(LineWord::line(other.lease(3)), 3);
        }
        assert_ne!(line.lease(3), line.lease(4));
        let last = LineWord::vacant(u64::MAX).closed().unwrap();
        assert_eq!((last.generation(), last.step(), last.tokens()), (0, CLOSED, 0));
    }
}
