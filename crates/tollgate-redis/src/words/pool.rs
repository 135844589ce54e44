//! [`TokenPool`]: the tokens leased in advance for one key.
//!
//! # State
//!
//! A pool contains two *leases* in two *places*, so that the next lease can arrive while the
//! previous one is still being spent. Each lease is one word, which contains the number of tokens
//! and the time until which they may be spent. The leases stay separate, because each has its own
//! end.
//!
//! | bits | field |
//! |---|---|
//! | 0 to 21 | tokens |
//! | 22 to 25 | the number of leases that this place has had, modulo 16 |
//! | 26 to 63 | the end of the lease, in ticks of [`TICK`] since the limiter was built; 0 in a closed lease |
//!
//! A *closed* lease has no tokens, and receives none until its place is filled with another lease.
//! The number of its spent tokens is therefore final, and can be reported to the store.
//!
//! # Invariants
//!
//! 1. A compare-and-swap spends a token by removing the token from the lease. It does so only
//!    before the lease's time has ended.
//! 2. Only the owner of the right to ask the store closes a lease, or fills the place of a closed
//!    lease.
//! 3. A token is given back only if no lease was closed since the token was spent, and only to a
//!    lease that expires no later than the token's original lease.
//!
//! # Progress
//!
//! Spending and closing are lock-free, because a failed compare-and-swap means that another one has
//! succeeded. A caller may find no tokens while another caller asks the store. It then waits for
//! that answer, as if it had asked the store itself.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | *filled* | `fill`, on the lease | `give_back` | a thread that sees a new lease also sees the closing of the lease before it; otherwise a token that is given back would live as long as the new lease | `fill_races_give_back_and_no_token_outlives_its_lease` |
//! | *closing* | `close`, on the lease | `give_back` | a thread that sees a closed lease also sees that leases are being closed; otherwise a token of that lease could be given back to the other lease, which ends later | `close_races_give_back_and_no_token_moves_to_the_other_lease` |
//! | *asked* | `asked` | `ask` | the time of the last closing, which precedes the record that another lease is being closed | none: loom never makes a store visible before an earlier store of another thread |

use super::atomics::{AcqRel, Acquire, AtomicBool, AtomicU64, Ordering, Relaxed, Release};

/// The length of a tick in nanoseconds. The end of a lease is rounded down to whole ticks.
pub const TICK: u64 = 1_000_000;
const TOKEN_BITS: u32 = 22;
const NUMBER_BITS: u32 = 4;
/// The last tick, after 8 years.
pub const LAST: u64 = u64::MAX >> (TOKEN_BITS + NUMBER_BITS);
/// The maximum number of tokens in a lease.
pub const MOST: u64 = (1 << TOKEN_BITS) - 1;
const MOST_NUMBER: u64 = (1 << NUMBER_BITS) - 1;

#[derive(Debug, Default)]
pub struct TokenPool {
    leases: [AtomicU64; 2],
    /// The time at which a lease was last closed, in ticks; [`LAST`] while a lease is being closed.
    closed: AtomicU64,
    asking: AtomicBool,
}

/// A lease that was closed: its end, and the tokens that were not spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub until: u64,
    pub unspent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    until: u64,
    number: u64,
    tokens: u64,
}

impl Lease {
    fn of(word: u64) -> Self {
        let number = word >> TOKEN_BITS & MOST_NUMBER;
        Self { until: word >> (TOKEN_BITS + NUMBER_BITS), number, tokens: word & MOST }
    }

    fn word(self) -> u64 {
        (self.until << NUMBER_BITS | self.number) << TOKEN_BITS | self.tokens
    }

    /// Returns the tokens that can be spent at `now`.
    fn at(self, now: u64) -> u64 {
        if now < self.until { self.tokens } else { 0 }
    }
}

impl TokenPool {
    /// Removes `cost` tokens from one lease, preferably the lease that expires first. Returns the
    /// number of tokens that are left in both leases.
    pub fn spend(&self, cost: u64, now: u64) -> Option<u64> {
        for index in self.order(now) {
            // ORDERING: relaxed; the word is the whole state of a lease.
            let mut word = self.leases[index].load(Relaxed);
            loop {
                let lease = Lease::of(word);
                let Some(rest) = lease.at(now).checked_sub(cost) else { break };
                let next = Lease { tokens: rest, ..lease }.word();
                // ORDERING: relaxed, as above. The exchange publishes nothing.
                match self.leases[index].compare_exchange_weak(word, next, Relaxed, Relaxed) {
                    Ok(_) => return Some(self.held(now)),
                    Err(found) => word = found,
                }
            }
        }
        None
    }

    /// Closes each lease without tokens that can be spent, or `all` leases. Returns the closed
    /// lease of each place. Requires the right to ask.
    ///
    /// Until a lease is closed, its tokens may be spent, even after the time of this call. The time
    /// of the closing is therefore read again afterwards, and no tokens can be given back until
    /// then.
    pub fn close(&self, all: bool, clock: impl Fn() -> u64) -> [Option<Closed>; 2] {
        // ORDERING: relaxed, because this store precedes the release sides of *closing* and
        // *filled*.
        self.closed.store(LAST, Relaxed);
        let now = clock();
        let closed = [0, 1].map(|place: usize| {
            // ORDERING: relaxed, as in `spend`.
            let mut word = self.leases[place].load(Relaxed);
            loop {
                let lease = Lease::of(word);
                if !all && lease.at(now) > 0 {
                    return None;
                }
                let closed = Lease { until: 0, tokens: 0, ..lease }.word();
                // ORDERING: release side of *closing*.
                match self.leases[place].compare_exchange_weak(word, closed, Release, Relaxed) {
                    Ok(_) => return Some(Closed { until: lease.until, unspent: lease.tokens }),
                    Err(found) => word = found,
                }
            }
        });
        // ORDERING: relaxed, because a caller that sees the earlier value gives nothing back.
        self.closed.store(clock(), Relaxed);
        closed
    }

    /// Fills the place of a closed lease. Requires the right to ask.
    ///
    /// The number in the word differs from that of the closed lease, so a `give_back` that began
    /// before the closing finds that its lease is gone, unless its thread was stopped for 16 leases
    /// of the place, each of them an answer of the store.
    pub fn fill(&self, place: usize, tokens: u64, until: u64) {
        // ORDERING: relaxed, because only the owner of the right to ask changes a closed lease.
        let closed = Lease::of(self.leases[place].load(Relaxed));
        let number = (closed.number + 1) & MOST_NUMBER;
        let lease = Lease { until, number, tokens: tokens.min(MOST) };
        // ORDERING: release side of *filled*.
        self.leases[place].store(lease.word(), Release);
    }

    /// Returns the number of tokens that can be spent at `now`.
    pub fn held(&self, now: u64) -> u64 {
        self.both(Relaxed).map(|lease| lease.at(now)).iter().sum()
    }

    /// Returns the number of tokens that were not spent, including those whose time has ended.
    pub fn unspent(&self) -> u64 {
        self.both(Relaxed).map(|lease| lease.tokens).iter().sum()
    }

    /// Returns the indices of both leases, in the order in which their tokens are spent: a lease
    /// with tokens precedes an empty one, and of two leases with tokens, the earlier to expire is
    /// first.
    fn order(&self, now: u64) -> [usize; 2] {
        let [first, second] = self.both(Relaxed);
        let is_later = second.at(now) > 0 && (first.at(now) == 0 || second.until < first.until);
        if is_later { [1, 0] } else { [0, 1] }
    }

    fn both(&self, ordering: Ordering) -> [Lease; 2] {
        // ORDERING: chosen by the caller.
        [0, 1].map(|index| Lease::of(self.leases[index].load(ordering)))
    }

    /// Acquires the right to ask the store. Returns `false` if another caller owns it.
    pub fn ask(&self) -> bool {
        // ORDERING: acquire side of *asked*.
        !self.asking.load(Relaxed) && !self.asking.swap(true, AcqRel)
    }

    /// Returns the right to ask the store.
    pub fn asked(&self) {
        // ORDERING: release side of *asked*.
        self.asking.store(false, Release);
    }

    /// Returns whether there is room for another lease.
    pub fn has_room(&self, now: u64) -> bool {
        self.both(Relaxed).iter().any(|lease| lease.at(now) == 0)
    }

    /// Gives back tokens that were spent at `spent`, if their lease is still known and has not
    /// ended.
    pub fn give_back(&self, tokens: u64, spent: u64, now: u64) -> bool {
        // ORDERING: acquire side of *closing* and *filled*.
        let both = self.both(Acquire);
        // Of the leases that were valid at `spent`, this code chooses the lease that expires first,
        // so the tokens expire no later than they would have in their original lease.
        let until = both.iter().map(|lease| lease.until).filter(|&until| until > spent).min();
        let Some(index) = both.iter().position(|lease| Some(lease.until) == until) else { return false };
        // ORDERING: relaxed, because of the acquire side above: if one of these leases was closed
        // or filled after the charge, this value is also newer than the charge.
        if self.closed.load(Relaxed) >= spent {
            return false;
        }
        let mut word = both[index].word();
        loop {
            let lease = Lease::of(word);
            let back = lease.tokens + tokens;
            let is_same = Some(lease.until) == until && lease.number == both[index].number;
            if !is_same || now >= lease.until || back > MOST {
                return false;
            }
            let next = Lease { tokens: back, ..lease }.word();
            // ORDERING: relaxed, as in `spend`.
            match self.leases[index].compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    /// Closes the spent leases at `now`, and fills one of their places.
    fn renew(pool: &TokenPool, tokens: u64, until: u64, now: u64) -> bool {
        let closed = pool.close(false, || now);
        let Some(place) = closed.iter().position(Option::is_some) else { return false };
        pool.fill(place, tokens, until);
        true
    }

    /// Two leases of three and two tokens, which end at 20 and at 10.
    fn two_leases() -> TokenPool {
        let pool = TokenPool::default();
        assert!(renew(&pool, 3, 20, 1) && renew(&pool, 2, 10, 1));
        pool
    }

    #[test]
    fn the_lease_that_expires_first_is_spent_first() {
        assert_eq!(TokenPool::default().spend(1, 0), None);
        let pool = two_leases();
        assert!(!pool.has_room(1) && !renew(&pool, 7, 30, 1));
        assert_eq!(pool.spend(2, 1), Some(3));
        assert_eq!(pool.spend(3, 1), Some(0));
        assert_eq!(pool.spend(1, 1), None);
        assert!(pool.has_room(1));
    }

    #[test]
    fn a_closed_lease_has_no_tokens_and_receives_none() {
        let pool = two_leases();
        assert_eq!(pool.spend(2, 3), Some(3));
        // The second lease is spent, and the first one has ended without being spent.
        let closed = |until, unspent| Some(Closed { until, unspent });
        assert_eq!(pool.close(false, || 4), [None, closed(10, 0)]);
        assert!(!pool.give_back(2, 3, 5));
        assert_eq!(pool.close(false, || 20), [closed(20, 3), closed(0, 0)]);
        assert_eq!(pool.held(1), 0);
        // All leases are closed on request.
        assert_eq!(two_leases().close(true, || 1), [closed(20, 3), closed(10, 2)]);
    }

    #[test]
    fn what_is_over_is_not_spent() {
        let pool = TokenPool::default();
        renew(&pool, 5, 10, 0);
        assert_eq!(pool.held(9), 5);
        assert_eq!(pool.held(10), 0);
        assert_eq!(pool.spend(1, 10), None);
        assert_eq!(pool.spend(0, 10), Some(0));
    }

    #[test]
    fn tokens_go_back_only_where_they_came_from() {
        let pool = TokenPool::default();
        renew(&pool, 5, 10, 0);
        assert_eq!(pool.spend(2, 3), Some(3));
        assert!(pool.give_back(2, 3, 4));
        assert_eq!(pool.held(4), 5);
        // Once another lease was requested, the pool no longer knows which lease the charge came
        // from.
        renew(&pool, 5, 20, 5);
        assert!(!pool.give_back(1, 3, 6) && pool.held(6) == 10);
        // The same is true after the lease has ended.
        let pool = two_leases();
        pool.spend(2, 2);
        assert!(!pool.give_back(2, 2, 15));
        assert_eq!(pool.held(15), 3);
    }

    #[test]
    fn a_token_does_not_outlive_its_lease_by_going_back_to_a_later_one() {
        let pool = TokenPool::default();
        renew(&pool, 5, 10, 0);
        // The token was spent while its lease was being closed. `close` reads the time 5 before it
        // closes the lease, and 8 afterwards.
        let times = AtomicU64::new(5);
        assert_eq!(pool.spend(5, 7), Some(0));
        pool.close(false, || times.swap(8, SeqCst));
        pool.fill(0, 5, 20);
        assert!(!pool.give_back(5, 7, 8));
        assert_eq!(pool.held(12), 5);
    }

    proptest! {
        #[test]
        fn whatever_happens_no_token_is_spent_twice_or_late(
            steps in proptest::collection::vec((0..4_u8, 1..6_u64, 1..8_u64, 0..3_u64), 1..60)
        ) {
            let pool = TokenPool::default();
            // The latest possible end of each token that was leased and is not yet spent.
            let mut leased: Vec<u64> = Vec::new();
            let mut spent: Vec<(u64, u64)> = Vec::new();
            let mut now = 1;
            for (step, tokens, hold, pass) in steps {
                now += pass;
                leased.retain(|&until| until > now);
                match step {
                    0 => {
                        // The tokens of a closed lease are never spent.
                        let all = hold == 1;
                        let before = pool.held(now);
                        let closed = pool.close(all, || now);
                        let unspent = if all { before } else { 0 };
                        prop_assert_eq!(pool.held(now), before - unspent);
                        leased.sort_unstable();
                        leased.drain(..usize::try_from(unspent).unwrap().min(leased.len()));
                        if let Some(place) = closed.iter().position(Option::is_some) {
                            pool.fill(place, tokens, now + hold);
                            leased.extend((0..tokens).map(|_| now + hold));
                        }
                    }
                    1 | 2 => if pool.spend(tokens, now).is_some() {
                        spent.push((tokens, now));
                        leased.sort_unstable();
                        prop_assert!(leased.len() as u64 >= tokens);
                        leased.drain(..usize::try_from(tokens).unwrap());
                    },
                    _ => if let Some((tokens, at)) = spent.pop()
                        && pool.give_back(tokens, at, now)
                    {
                        // The tokens were valid when they were spent. Their end is not tracked, so
                        // the test assumes the latest end.
                        leased.extend((0..tokens).map(|_| u64::MAX));
                    },
                }
                prop_assert!(pool.held(now) <= leased.len() as u64);
            }
        }
    }

    #[test]
    fn threads_spend_exactly_what_was_leased() {
        let pool = TokenPool::default();
        let (spent, leased) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut times = 0;
                    while spent.load(SeqCst) < 100_000 {
                        if pool.spend(3, 1).is_some() {
                            spent.fetch_add(3, SeqCst);
                            times += 1;
                            // The thread counts its own iterations. If it counted spent tokens, a
                            // thread that runs alone might loop forever.
                            if times % 7 == 0 && pool.give_back(3, 1, 1) {
                                spent.fetch_sub(3, SeqCst);
                            }
                        } else if pool.ask() {
                            if renew(&pool, 12, 1000, 0) {
                                leased.fetch_add(12, SeqCst);
                            }
                            pool.asked();
                        }
                    }
                });
            }
        });
        assert_eq!(spent.load(SeqCst) + pool.held(1), leased.load(SeqCst));
    }
}
