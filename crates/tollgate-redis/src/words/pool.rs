//! [`TokenPool`]: the tokens leased in advance for one key.
//!
//! # State
//!
//! A pool contains two *leases*, so that the next lease can arrive while the last one is still
//! being spent. Each lease is one word, which contains the number of tokens and the time until
//! which they may be spent. The leases stay separate, because tokens are valid only for the time
//! for which they were charged.
//!
//! | bits | field |
//! |---|---|
//! | 0 to 23 | tokens |
//! | 24 to 63 | the end of the lease, in ticks of [`TICK`] since the limiter was built; 0 in a lease that was never filled |
//!
//! # Invariants
//!
//! 1. A compare-and-swap spends a token by removing the token from the lease. It does so only
//!    before the lease's time has ended.
//! 2. Only the owner of the right to ask the store stores a lease, by a compare-and-swap. The new
//!    lease replaces a lease that is spent or has ended. If tokens were given back in the meantime,
//!    there may be no such lease. The new tokens are then added to one of the leases, and all of
//!    that lease's tokens expire at the earlier of the two times.
//! 3. A token is given back only to a lease that expires no later than the token's original lease.
//!
//! # Progress
//!
//! Spending and filling are lock-free, because a failed compare-and-swap means that another one has
//! succeeded. A caller may find no tokens while another caller asks the store. It then waits for
//! that answer, as if it had asked the store itself.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | *filled* | `put`, on the lease | `give_back` | a thread that sees a new lease also sees that a lease has arrived or is arriving; otherwise a token that is given back would live as long as the new lease | `fill_races_give_back_and_no_token_outlives_its_lease` |
//! | *asked* | `asked` | `ask` | the arrival time of the last lease, which precedes the record that the next lease is arriving | none: in loom a store takes effect where it is made, and never before an earlier store of another thread |

use super::atomics::{AcqRel, Acquire, AtomicBool, AtomicU64, Ordering, Relaxed, Release};

/// The length of a tick in nanoseconds. The end of a lease is rounded down to whole ticks.
pub const TICK: u64 = 1_000_000;
const TOKEN_BITS: u32 = 24;
/// The last tick, after 34 years.
pub const LAST: u64 = u64::MAX >> TOKEN_BITS;
/// The maximum number of tokens in a lease.
pub const MOST: u64 = (1 << TOKEN_BITS) - 1;

#[derive(Debug, Default)]
pub struct TokenPool {
    leases: [AtomicU64; 2],
    /// The time at which the last lease arrived, in ticks; [`LAST`] while the lease is being
    /// stored.
    filled: AtomicU64,
    asking: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    until: u64,
    tokens: u64,
}

impl Lease {
    fn of(word: u64) -> Self {
        Self { until: word >> TOKEN_BITS, tokens: word & MOST }
    }

    fn word(self) -> u64 {
        self.until << TOKEN_BITS | self.tokens
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

    /// Removes all tokens that can be spent at `now`. Returns the end of each place's lease, and
    /// the number of tokens removed from it.
    pub fn take_all(&self, now: u64) -> [(u64, u64); 2] {
        [0, 1].map(|index| {
            // ORDERING: relaxed, as in `spend`.
            let mut word = self.leases[index].load(Relaxed);
            loop {
                let lease = Lease::of(word);
                let tokens = lease.at(now);
                if tokens == 0 {
                    return (lease.until, 0);
                }
                let next = Lease { tokens: 0, ..lease }.word();
                // ORDERING: relaxed, as in `spend`.
                match self.leases[index].compare_exchange_weak(word, next, Relaxed, Relaxed) {
                    Ok(_) => return (lease.until, tokens),
                    Err(found) => word = found,
                }
            }
        })
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

    /// Adds a lease. Returns its place, or `None` if its tokens were added to another lease.
    /// Requires the right to ask.
    ///
    /// Until the new lease is stored, tokens of the replaced lease may be spent, even after the
    /// time of this call. The arrival time is therefore read again after the new lease has been
    /// stored, and no tokens can be given back until then.
    pub fn fill(&self, tokens: u64, until: u64, clock: impl Fn() -> u64) -> Option<usize> {
        // ORDERING: relaxed, because this store precedes the store of the lease, the release side
        // of *filled*.
        self.filled.store(LAST, Relaxed);
        let place = self.put(Lease { until, tokens: tokens.min(MOST) }, clock());
        // ORDERING: relaxed, because a caller that sees the earlier value gives nothing back.
        self.filled.store(clock(), Relaxed);
        place
    }

    /// Replaces a spent or expired lease with `lease`, and returns the index of the replaced lease.
    /// If there is no such lease, adds the tokens to another lease and returns `None`.
    fn put(&self, lease: Lease, now: u64) -> Option<usize> {
        loop {
            let both = self.both(Relaxed);
            let empty = both.iter().position(|lease| lease.at(now) == 0);
            // If there is no such lease, tokens were given back to a spent lease.
            let index = empty.unwrap_or(usize::from(both[1].until > both[0].until));
            let next = match empty {
                Some(_) => lease,
                None => Lease {
                    until: lease.until.min(both[index].until),
                    tokens: (both[index].tokens + lease.tokens).min(MOST),
                },
            };
            let (from, to) = (both[index].word(), next.word());
            // ORDERING: release side of *filled*.
            if self.leases[index].compare_exchange(from, to, Release, Relaxed).is_ok() {
                return empty;
            }
        }
    }

    /// Gives back tokens that were spent at `spent`, if their lease is still known and has not
    /// ended.
    pub fn give_back(&self, tokens: u64, spent: u64, now: u64) -> bool {
        // ORDERING: acquire side of *filled*.
        let both = self.both(Acquire);
        // Of the leases that were valid at `spent`, this code chooses the lease that expires first,
        // so the tokens expire no later than they would have in their original lease.
        let until = both.iter().map(|lease| lease.until).filter(|&until| until > spent).min();
        let Some(index) = both.iter().position(|lease| Some(lease.until) == until) else { return false };
        // ORDERING: relaxed, because of the acquire side above: if one of these leases is newer
        // than the charge, this value is also newer.
        if self.filled.load(Relaxed) >= spent {
            return false;
        }
        let mut word = both[index].word();
        loop {
            let lease = Lease::of(word);
            let back = lease.tokens + tokens;
            if Some(lease.until) != until || now >= lease.until || back > MOST {
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

    #[test]
    fn the_lease_that_expires_first_is_spent_first() {
        let pool = TokenPool::default();
        assert_eq!(pool.spend(1, 0), None);
        pool.fill(3, 20, || 1);
        pool.fill(2, 10, || 1);
        assert!(!pool.has_room(1));
        assert_eq!(pool.spend(2, 1), Some(3));
        assert_eq!(pool.spend(3, 1), Some(0));
        assert_eq!(pool.spend(1, 1), None);
        assert!(pool.has_room(1));
    }

    #[test]
    fn all_tokens_are_taken_once_and_those_that_are_over_are_not() {
        let pool = TokenPool::default();
        pool.fill(3, 20, || 1);
        pool.fill(2, 10, || 1);
        assert_eq!(pool.take_all(10), [(20, 3), (10, 0)]);
        assert_eq!((pool.held(1), pool.take_all(1)), (2, [(20, 0), (10, 2)]));
        assert_eq!((pool.held(1), pool.spend(1, 1)), (0, None));
    }

    #[test]
    fn what_is_over_is_not_spent() {
        let pool = TokenPool::default();
        pool.fill(5, 10, || 0);
        assert_eq!(pool.held(9), 5);
        assert_eq!(pool.held(10), 0);
        assert_eq!(pool.spend(1, 10), None);
        assert_eq!(pool.spend(0, 10), Some(0));
    }

    #[test]
    fn tokens_go_back_only_where_they_came_from() {
        let pool = TokenPool::default();
        pool.fill(5, 10, || 0);
        assert_eq!(pool.spend(2, 3), Some(3));
        assert!(pool.give_back(2, 3, 4));
        assert_eq!(pool.held(4), 5);
        // Once another lease has arrived, the pool no longer knows which lease the charge came
        // from.
        pool.fill(5, 20, || 5);
        assert!(!pool.give_back(1, 3, 6) && pool.held(6) == 10);
        // The same is true after the lease has ended.
        let pool = TokenPool::default();
        pool.fill(5, 10, || 0);
        pool.fill(5, 20, || 0);
        pool.spend(5, 1);
        assert!(!pool.give_back(5, 1, 15));
        assert_eq!(pool.held(15), 5);
    }

    #[test]
    fn a_token_does_not_outlive_its_lease_by_going_back_to_a_later_one() {
        let pool = TokenPool::default();
        pool.fill(5, 10, || 0);
        assert_eq!(pool.spend(5, 7), Some(0));
        // `fill` reads the time 5 before it stores the new lease, and 8 afterwards.
        let times = AtomicU64::new(5);
        pool.fill(5, 20, || times.swap(8, SeqCst));
        assert!(!pool.give_back(5, 7, 8));
        assert_eq!(pool.held(12), 5);
    }

    #[test]
    fn a_lease_that_finds_no_empty_place_is_not_lost() {
        let pool = TokenPool::default();
        pool.fill(5, 10, || 0);
        pool.fill(5, 20, || 0);
        pool.fill(7, 30, || 0);
        assert_eq!((pool.held(9), pool.held(10), pool.held(19), pool.held(20)), (17, 12, 12, 0));
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
                        pool.fill(tokens, now + hold, || now);
                        leased.extend((0..tokens).map(|_| now + hold));
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
                            if pool.has_room(1) {
                                leased.fetch_add(12, SeqCst);
                                pool.fill(12, 1000, || 0);
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
