//! The word of a line, as a value.

use std::fmt;

/// The word of a line.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 10 | the tokens that can be spent |
/// | 11 to 21 | the tokens of the lease when it began |
/// | 22, 23 | the step |
/// | 24 to 55 | the generation, which changes whenever refunds of the lease become void |
///
/// | step | meaning | next |
/// |---|---|---|
/// | open | tokens can be spent and refunded; without tokens, the line is vacant | spent, refunded, claimed, closed, voided |
/// | claimed | a thread charges the bucket for a lease | filled, closed, voided |
/// | closed | a thread returns all leases to the bucket | opened |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LineWord(u64);

const OPEN: u64 = 0;
const CLAIMED: u64 = 1;
const CLOSED: u64 = 2;

const TOKENS: u64 = (1 << 11) - 1;
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

    /// Returns a line without a lease.
    pub(super) const fn vacant(generation: u32) -> Self {
        Self::new(generation, OPEN, 0, 0)
    }

    const fn new(generation: u32, step: u64, granted: u64, tokens: u64) -> Self {
        Self((generation as u64) << GENERATION | step << STEP | granted << GRANTED | tokens)
    }

    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn generation(self) -> u32 {
        (self.0 >> GENERATION) as u32
    }

    const fn step(self) -> u64 {
        self.0 >> STEP & 3
    }

    const fn granted(self) -> u64 {
        self.0 >> GRANTED & TOKENS
    }

    /// Returns the number of tokens that can be spent.
    pub(super) const fn tokens(self) -> u64 {
        if self.step() == OPEN { self.0 & TOKENS } else { 0 }
    }

    /// Returns whether the line can be claimed.
    pub(super) const fn is_vacant(self) -> bool {
        self.step() == OPEN && self.0 & TOKENS == 0
    }

    const fn next(self, step: u64) -> Self {
        Self::new(self.generation().wrapping_add(1), step, 0, 0)
    }

    /// Returns the line after `cost` tokens, at least one, were spent.
    pub(super) const fn spent(self, cost: u64) -> Option<Self> {
        if self.tokens() >= cost { Some(Self(self.0 - cost)) } else { None }
    }

    /// Returns the line after a refund of tokens that were spent from the lease of `generation`.
    pub(super) fn refunded(self, generation: u32, tokens: u64) -> Option<Self> {
        let is_there = self.step() == OPEN && self.generation() == generation;
        let back = tokens.min(self.granted() - self.tokens().min(self.granted()));
        (is_there && back > 0).then_some(Self(self.0 + back))
    }

    /// Returns the line after it was claimed for the next lease.
    pub(super) const fn claimed(self) -> Option<Self> {
        if self.is_vacant() { Some(self.next(CLAIMED)) } else { None }
    }

    /// Returns a claimed line with the lease that it was claimed for, of which `tokens` tokens are
    /// left.
    pub(super) const fn filled(self, granted: u64, tokens: u64) -> Self {
        Self::new(self.generation(), OPEN, granted, tokens)
    }

    /// Returns the line after it was closed, or `None` if it is closed already.
    pub(super) const fn closed(self) -> Option<Self> {
        if self.step() == CLOSED { None } else { Some(self.next(CLOSED)) }
    }

    /// Returns a closed line after it was opened.
    pub(super) const fn opened(self) -> Option<Self> {
        if self.step() == CLOSED { Some(self.next(OPEN)) } else { None }
    }

    /// Returns the line without its lease, or `None` if it is closed.
    pub(super) const fn voided(self) -> Option<Self> {
        if self.step() == CLOSED { None } else { Some(self.next(OPEN)) }
    }
}

impl fmt::Debug for LineWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step() {
            OPEN => "open",
            CLAIMED => "claimed",
            _ => "closed",
        };
        write!(f, "LineWord({step} {}/{}, {})", self.0 & TOKENS, self.granted(), self.generation())
    }
}
