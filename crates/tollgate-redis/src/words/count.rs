//! This machine's admissions in one window of a key, and the known admissions of other machines.
//!
//! # State
//!
//! The state is one word:
//!
//! | bits | field |
//! |---|---|
//! | 0 to 17 | *local*: tokens that were admitted but not yet reported to the store |
//! | 18 to 35 | *in flight*: tokens that were reported to the store, which has not answered yet |
//! | 36 to 63 | *total*: the admissions of all machines in the last answer, including this machine's share; it never decreases |
//!
//! A second word is *confirmed*: the number of tokens that this machine has admitted and the store
//! has confirmed. Only the owner of the right to push writes it. Total minus confirmed is the
//! number of tokens admitted by other machines.
//!
//! # Invariants
//!
//! 1. local + in flight is at most `max_unsynced`.
//! 2. A compare-and-swap admits a token by adding the token to local. It does so only if total + in
//!    flight + local + 1 is within the limit.
//! 3. This machine's admissions are confirmed + in flight + local, except for tokens given back.
//!    Each report to the store contains that sum. It therefore does not matter how often a report
//!    is sent, or whether the store has received the last report.
//! 4. Tokens leave *in flight* when the store has confirmed them, or when it is certain that the
//!    store has not received them.
//! 5. The known admissions of other machines never decrease, even if the store has lost them.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | *pushed* | `pushed` | `push` | confirmed, as the previous owner of the right left it; otherwise the report to the store would be less than the admissions | `tellers_race_and_the_store_is_told_all` |
//! | *refused* | `push` that fails | `pushed` | the admissions so far: the caller that returns the right reports them | `tellers_race_and_the_store_is_told_all` |
//! | *queued* | `enqueue` | `dequeued` | the admissions so far: the task that dequeues a count reports them | none: admissions are read by a compare-and-swap, and loom's compare-and-swaps take effect where they are made |
//! | *confirmed* | `confirm`, on confirmed | `note_others` | the word, in which the confirmed tokens are part of the total | none: as for *queued*; without the edge, tokens would be counted twice until the window ends |

use super::atomics::{AcqRel, Acquire, AtomicBool, AtomicU64, Relaxed, Release};

const BITS: u32 = 18;
/// The maximum number of tokens that may be unsynchronized.
pub const MOST_UNSYNCED: u64 = (1 << BITS) - 1;
/// The maximum limit. A total may exceed the limit.
pub const MOST_LIMIT: u64 = MOST_TOTAL / 2;
const MOST_TOTAL: u64 = u64::MAX >> (2 * BITS);

#[derive(Debug, Default)]
pub struct Count {
    word: AtomicU64,
    confirmed: AtomicU64,
    pushing: AtomicBool,
    queued: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub local: u64,
    pub in_flight: u64,
    pub total: u64,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit is reached, as far as this machine knows.
    Limit,
    /// The store must answer before more tokens can be admitted.
    Unsynced,
}

impl Fields {
    fn of(word: u64) -> Self {
        Self {
            local: word & MOST_UNSYNCED,
            in_flight: word >> BITS & MOST_UNSYNCED,
            total: word >> (2 * BITS),
        }
    }

    fn word(self) -> u64 {
        self.total.min(MOST_TOTAL) << (2 * BITS) | self.in_flight << BITS | self.local
    }

    pub fn unsynced(self) -> u64 {
        self.local + self.in_flight
    }

    /// Returns the known admissions of all machines.
    pub fn present(self) -> u64 {
        self.total + self.unsynced()
    }
}

impl Count {
    pub fn fields(&self) -> Fields {
        // ORDERING: relaxed, here and below; the word is the whole state.
        Fields::of(self.word.load(Relaxed))
    }

    /// Applies `step` to the word. This method is lock-free, because a retry means that another
    /// update has succeeded.
    fn update<T>(&self, step: impl Fn(Fields) -> Result<Fields, T>) -> Result<Fields, T> {
        // ORDERING: relaxed, as in `fields`.
        let mut word = self.word.load(Relaxed);
        loop {
            let next = step(Fields::of(word))?;
            // ORDERING: relaxed, as in `fields`.
            match self.word.compare_exchange_weak(word, next.word(), Relaxed, Relaxed) {
                Ok(_) => return Ok(next),
                Err(found) => word = found,
            }
        }
    }

    /// Admits `cost` tokens if the known admissions stay within `limit` and at most `most` tokens
    /// are then unsynchronized. A cost of 0 is always admitted.
    pub fn admit(&self, cost: u64, limit: u64, most: u64) -> Result<Fields, Full> {
        self.update(|fields| {
            if fields.present().saturating_add(cost) > limit && cost > 0 {
                Err(Full::Limit)
            } else if fields.unsynced() + cost > most {
                Err(Full::Unsynced)
            } else {
                Ok(Fields { local: fields.local + cost, ..fields })
            }
        })
    }

    /// Takes back up to `tokens` tokens that have not been reported to the store.
    pub fn give_back(&self, tokens: u64) {
        let _ = self.update(|fields| match fields.local.min(tokens) {
            0 => Err(()),
            back => Ok(Fields { local: fields.local - back, ..fields }),
        });
    }

    /// Acquires the right to push. Returns `false` if another caller owns it.
    pub fn push(&self) -> bool {
        // ORDERING: acquire side of *pushed*, release side of *refused*. A load before the swap
        // might return an old value, and then no caller would push this caller's tokens.
        !self.pushing.swap(true, AcqRel)
    }

    /// Returns the right to push.
    pub fn pushed(&self) {
        // ORDERING: release side of *pushed*, acquire side of *refused*.
        self.pushing.swap(false, AcqRel);
    }

    /// Moves the local tokens to *in flight*, and returns the sum to report to the store. This
    /// method and the methods below require the right to push, unless they state otherwise.
    pub fn send(&self) -> u64 {
        let sent =
            self.update(|fields| Ok::<_, ()>(Fields { local: 0, in_flight: fields.unsynced(), ..fields }));
        self.confirmed() + sent.map_or(0, |fields| fields.in_flight)
    }

    pub fn confirmed(&self) -> u64 {
        // ORDERING: acquire side of *confirmed*.
        self.confirmed.load(Acquire)
    }

    /// Records that the store has counted all of this machine's `own` tokens, and `others` tokens
    /// of the other machines.
    pub fn confirm(&self, own: u64, others: u64) {
        let before = self.confirmed();
        let _ = self.update(|fields| {
            let others = fields.total.saturating_sub(before).max(others);
            Ok::<_, ()>(Fields { in_flight: 0, total: others.saturating_add(own), ..fields })
        });
        // ORDERING: release side of *confirmed*. This value is stored last. A reader that saw it
        // earlier would count tokens twice: as in flight and as confirmed.
        self.confirmed.store(own, Release);
    }

    /// Makes the tokens in flight local again, because the store has not received them.
    pub fn unsent(&self) {
        let _ =
            self.update(|fields| Ok::<_, ()>(Fields { local: fields.unsynced(), in_flight: 0, ..fields }));
    }

    /// Records the admissions of other machines from the answer to another request. This method
    /// does not require the right to push.
    pub fn note_others(&self, others: u64) {
        let total = others.saturating_add(self.confirmed());
        let _ = self.update(|fields| match total > fields.total {
            true => Ok(Fields { total, ..fields }),
            false => Err(()),
        });
    }

    /// Acquires the right to queue the count. Returns `false` if the count is already queued.
    pub fn enqueue(&self) -> bool {
        // ORDERING: release side of *queued*. A swap reads the newest value. Therefore either the
        // count is still queued, or the task that dequeued it has not yet read the tokens to push.
        !self.queued.swap(true, AcqRel)
    }

    pub fn dequeued(&self) {
        // ORDERING: acquire side of *queued*.
        self.queued.swap(false, AcqRel);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_local_then_in_flight_then_confirmed() {
        let count = Count::default();
        assert_eq!(count.admit(3, 10, 5).unwrap(), Fields { local: 3, in_flight: 0, total: 0 });
        assert!(count.push() && !count.push());
        assert_eq!(count.send(), 3);
        count.admit(2, 10, 5).unwrap();
        assert_eq!(count.fields(), Fields { local: 2, in_flight: 3, total: 0 });
        assert_eq!(count.admit(1, 10, 5), Err(Full::Unsynced));
        count.confirm(3, 1);
        assert_eq!(count.fields(), Fields { local: 2, in_flight: 0, total: 4 });
        count.pushed();
        assert!(count.push());
        assert_eq!(count.send(), 5);
    }

    #[test]
    fn what_was_not_sent_is_local_and_what_is_unknown_stays_counted() {
        let count = Count::default();
        count.admit(3, 10, 5).unwrap();
        assert_eq!(count.send(), 3);
        count.unsent();
        assert_eq!(count.fields(), Fields { local: 3, in_flight: 0, total: 0 });
        // A push without an answer is repeated with the old count plus the tokens added since then.
        assert_eq!(count.send(), 3);
        count.admit(1, 10, 5).unwrap();
        assert_eq!(count.send(), 4);
        assert_eq!(count.fields().unsynced(), 4);
        count.confirm(4, 0);
        assert_eq!(count.fields().present(), 4);
    }

    #[test]
    fn the_limit_is_that_of_all_that_is_known() {
        let count = Count::default();
        count.note_others(8);
        count.admit(2, 10, 5).unwrap();
        assert_eq!(count.admit(1, 10, 5), Err(Full::Limit));
        assert_eq!(count.admit(u64::MAX, 10, 5), Err(Full::Limit));
        // A known count never shrinks.
        count.note_others(3);
        assert_eq!(count.fields().present(), 10);
        // A cost of 0 is admitted even above the limit.
        assert!(count.admit(0, 9, 5).is_ok());
    }

    #[test]
    fn only_what_the_store_was_not_told_goes_back() {
        let count = Count::default();
        count.admit(2, 10, 5).unwrap();
        count.send();
        count.admit(1, 10, 5).unwrap();
        count.give_back(3);
        assert_eq!(count.fields(), Fields { local: 0, in_flight: 2, total: 0 });
    }

    #[test]
    fn fields_fill_the_word_and_overlap_nowhere() {
        let fields = Fields { local: MOST_UNSYNCED, in_flight: MOST_UNSYNCED, total: MOST_TOTAL };
        assert_eq!((fields.word(), Fields::of(fields.word())), (u64::MAX, fields));
        assert_eq!(Fields::of(Fields { total: u64::MAX, ..fields }.word()), fields);
    }
}
