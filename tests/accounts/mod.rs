//! Limits that several threads charge in every way at once: alone, several together, in advance,
//! and by force. At the same time, new keys find no place, and quotas rise. The time is constant,
//! so charges of one key commute. Each thread keeps an account of its answers. In the end, the
//! accounts explain where each token is.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::store::{Accepts, ExactKeys, Fingerprints};
use tollgate::{
    Algorithm, Builder, Charge, Decision, DecisionSource, InFlight, Limiter, ManualClock, Permit, Quota,
    Reservation, SingleLimiter, Tick, check_all,
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Random numbers.
pub(crate) trait Dice {
    /// Returns a number below `n`.
    fn below(&mut self, n: u64) -> u64;

    /// Returns an index into a list of this length.
    fn index(&mut self, length: usize) -> usize {
        index(self.below(length as u64))
    }
}

/// Converts a small number.
fn index(number: u64) -> usize {
    number.try_into().expect("no list here is long")
}

/// A store that the threads use.
pub(crate) trait Built: Accepts<u64> + Sized + Send + Sync + 'static {
    const ALGORITHMS: &[Algorithm];

    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64, Self>;
}

impl Built for Fingerprints {
    const ALGORITHMS: &[Algorithm] = &Algorithm::PACKED;

    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64> {
        builder.build().unwrap()
    }
}

impl Built for ExactKeys<u64> {
    const ALGORITHMS: &[Algorithm] =
        &[Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog];

    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64, Self> {
        builder.exact_keys().build().unwrap()
    }
}

/// The size of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) threads: u64,
    /// The number of operations of each thread.
    pub(crate) operations: u64,
    /// The keys whose tokens are counted.
    pub(crate) keys: u64,
    /// The caps of the limiters. With the lower caps, not all keys find a place.
    pub(crate) caps: &'static [usize],
    /// The limit of each key is at least this number, and less than twice this number.
    pub(crate) limit: u64,
    /// The maximum number of tokens for one request.
    pub(crate) cost: u64,
    pub(crate) debt: u64,
    /// The maximum number of permits held for one key.
    pub(crate) places: u64,
}

/// The operations that the threads of a world perform in addition to charges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Does {
    /// The threads refund tokens and force charges.
    refunds: bool,
    /// Two threads raise the quotas.
    changes: bool,
}

/// The limits that the threads share.
pub(crate) struct World<S: Accepts<u64>> {
    scale: Scale,
    algorithm: Algorithm,
    does: Does,
    clock: ManualClock,
    limiters: [Arc<Limiter<u64, S>>; 2],
    /// The quota of each key under a limiter. Only the thread with the limiter's number raises it.
    limits: [AtomicU64; 2],
    /// A limit for all requests that are charged to several limits.
    all: SingleLimiter,
    downloads: InFlight<u64>,
    /// The number of permits held, by key.
    out: Box<[AtomicU64]>,
}

/// The tokens that a thread has charged and not yet refunded.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    kept: i64,
    /// Tokens whose refund may have been void, because the quota may have changed since the charge.
    doubtful: i64,
}

/// The sum of the answers to a thread.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The tokens for each limiter, by its number, and each key.
    keys: HashMap<(usize, u64), Tokens>,
    /// The tokens of the limit for all requests.
    all: u64,
    events: Events,
}

/// The number of occurrences of each event, by its name.
pub(crate) type Events = BTreeMap<&'static str, u64>;

/// The events that occur under every algorithm.
pub(crate) const EVENTS: [&str; 14] = [
    "charged",
    "commits that charge",
    "commits that give back",
    "denied",
    "forced",
    "raised",
    "recorded",
    "refunded",
    "released permits",
    "reserved",
    "together allowed",
    "together refused",
    "without a permit",
    "without a place",
];

/// A reservation of one thread.
struct Held {
    at: (usize, u64),
    reservation: Reservation,
    /// All tokens that were charged for the reservation.
    charged: u64,
}

/// The state of one thread.
struct Worker<'w, S: Accepts<u64>, D> {
    world: &'w World<S>,
    dice: D,
    /// The number of the thread.
    number: u64,
    /// The most recent key that no other thread or call uses.
    fresh: u64,
    account: Account,
    charges: Vec<((usize, u64), Decision)>,
    held: Vec<Held>,
    permits: Vec<(u64, Permit)>,
}

/// Adds the events of another thread, or of another world.
pub(crate) fn add(sum: &mut Events, events: Events) {
    events.into_iter().for_each(|(event, count)| *sum.entry(event).or_default() += count);
}

impl Account {
    /// Adds the account of another thread.
    pub(crate) fn add(&mut self, other: Self) {
        for (at, tokens) in other.keys {
            let sum = self.keys.entry(at).or_default();
            sum.kept += tokens.kept;
            sum.doubtful += tokens.doubtful;
        }
        self.all += other.all;
        add(&mut self.events, other.events);
    }

    fn note(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    fn note_charge(&mut self, at: (usize, u64), tokens: u64) {
        self.keys.entry(at).or_default().kept += tokens.cast_signed();
    }

    fn note_refund(&mut self, at: (usize, u64), tokens: u64, is_doubtful: bool) {
        let noted = self.keys.entry(at).or_default();
        noted.kept -= tokens.cast_signed();
        if is_doubtful {
            noted.doubtful += tokens.cast_signed();
        }
    }
}

impl<S: Built> World<S> {
    pub(crate) fn new(algorithm: Algorithm, scale: Scale, dice: &mut impl Dice) -> Self {
        let does = match dice.below(3) {
            0 => Does { refunds: true, changes: false },
            1 => Does { refunds: false, changes: true },
            _ => Does { refunds: true, changes: true },
        };
        // A quota change may increase a debt.
        let debt = if does.changes || algorithm == Algorithm::SlidingLog { 0 } else { scale.debt };
        let scale = Scale { debt, ..scale };
        let clock = ManualClock::new();
        clock.set(Tick::ZERO + 3 * DAY);
        let max_keys = scale.caps[dice.index(scale.caps.len())];
        let limits = [(); 2].map(|()| scale.limit + dice.below(scale.limit));
        let limiters = limits.map(|limit| {
            let builder = Limiter::builder(Quota::per_day(limit)).algorithm(algorithm).clock(&clock);
            let builder = builder.max_keys(max_keys).grace(Duration::ZERO);
            Arc::new(S::build(if debt > 0 { builder.max_debt(debt) } else { builder }))
        });
        let most = scale.threads * scale.operations;
        Self {
            scale,
            algorithm,
            does,
            limiters,
            limits: limits.map(AtomicU64::new),
            all: SingleLimiter::builder(Quota::per_day(most)).clock(&clock).build().unwrap(),
            downloads: InFlight::builder(scale.places).clock(&clock).max_keys(max_keys).build().unwrap(),
            out: (0..scale.keys).map(|_| AtomicU64::new(0)).collect(),
            clock,
        }
    }

    /// Performs one thread's work, and returns its account.
    pub(crate) fn work(&self, number: u64, dice: impl Dice) -> Account {
        let mut worker = Worker {
            world: self,
            dice,
            number,
            fresh: 1_000 + number,
            account: Account::default(),
            charges: Vec::new(),
            held: Vec::new(),
            permits: Vec::new(),
        };
        (0..self.scale.operations).for_each(|_| worker.do_something());
        worker.end()
    }

    /// Compares the limits with the sum of the threads' accounts, and returns the events.
    pub(crate) fn balance(&self, account: Account) -> Events {
        let most = self.scale.threads * self.scale.operations;
        assert_eq!(self.all.peek().remaining(), most - account.all, "{self:?}");
        // A quota change rounds the missing amount up to a grain, and a later refund may do the
        // same. The rounded tokens are available a few nanoseconds late. No other token refills
        // within a millisecond.
        self.clock.advance(Duration::from_millis(1));
        self.each_key(|at, limit, peek| {
            let tokens = account.keys.get(&at).copied().unwrap_or_default();
            self.balance_key(limit, tokens, peek).unwrap_or_else(|| {
                panic!("limiter and key {at:?} of limit {limit} kept {tokens:?}: {peek:?}, {self:?}")
            });
        });
        // Lost tokens are refilled over time.
        self.clock.advance(4 * DAY);
        self.each_key(|at, limit, peek| {
            assert!(
                peek.source() == DecisionSource::Policy || peek.remaining() == limit,
                "{at:?}: {peek:?}, {self:?}"
            );
        });
        (0..self.scale.keys).for_each(|key| assert_eq!(self.downloads.in_flight(&key), 0, "{self:?}"));
        account.events
    }

    /// Calls `visit` with the state of each key, its limiter and its limit.
    fn each_key(&self, visit: impl Fn((usize, u64), u64, Decision)) {
        for (at, (limiter, limit)) in self.limiters.iter().zip(&self.limits).enumerate() {
            for key in 0..self.scale.keys {
                visit((at, key), limit.load(Relaxed), limiter.peek_n(&key, 0));
            }
        }
    }

    /// Returns `None` if the state of a key contradicts the accounts.
    fn balance_key(&self, limit: u64, tokens: Tokens, peek: Decision) -> Option<()> {
        let kept = u64::try_from(tokens.kept).ok().filter(|kept| *kept <= limit + self.scale.debt)?;
        let least = limit.saturating_sub(kept + tokens.doubtful.cast_unsigned());
        let is_right = match peek.source() {
            // The key has no place.
            DecisionSource::Policy => kept == 0,
            _ => peek.capacity() == limit && (least..=limit.saturating_sub(kept)).contains(&peek.remaining()),
        };
        is_right.then_some(())
    }
}

impl<S: Accepts<u64>> fmt::Debug for World<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, does, limits, .. } = self;
        f.debug_struct("World").field("of", algorithm).field("does", does).field("limits", limits).finish()
    }
}

impl<S: Built, D: Dice> Worker<'_, S, D> {
    fn do_something(&mut self) {
        let Does { refunds, changes } = self.world.does;
        match self.dice.below(20) {
            0..=4 => self.check(),
            5..=6 if refunds => self.refund(),
            7..=8 => self.reserve(),
            9 => self.record(),
            10 if refunds => self.commit(),
            11..=14 => self.check_together(),
            15 => self.acquire(),
            16 => self.release(),
            17 => self.flood(),
            18 if changes => self.raise(),
            19 if refunds => self.force(),
            _ => self.sweep(),
        }
    }

    /// Settles all open reservations, and returns the account.
    fn end(mut self) -> Account {
        while !self.held.is_empty() {
            self.settle(0);
        }
        while !self.permits.is_empty() {
            self.release();
        }
        self.account
    }

    fn any_key(&mut self) -> (usize, u64) {
        (self.dice.index(2), self.dice.below(self.world.scale.keys))
    }

    fn any_cost(&mut self) -> u64 {
        1 + self.dice.below(self.world.scale.cost)
    }

    fn note_refund(&mut self, at: (usize, u64), tokens: u64) {
        let is_doubtful = self.world.does.changes;
        self.account.note_refund(at, tokens, is_doubtful);
    }

    fn check(&mut self) {
        let (at, cost) = (self.any_key(), self.any_cost());
        let decision = self.world.limiters[at.0].check_n(&at.1, cost);
        if decision.is_allowed() {
            self.account.note("charged");
            self.account.note_charge(at, cost);
            self.charges.push((at, decision));
        } else {
            let has_place = decision.source() == DecisionSource::Key;
            self.account.note(if has_place { "denied" } else { "without a place" });
        }
    }

    fn refund(&mut self) {
        let Some((at, charge)) = self.charges.pop() else { return };
        let tokens = self.dice.below(charge.charged() + 1);
        self.world.limiters[at.0].refund_n(&at.1, &charge, tokens);
        self.account.note("refunded");
        self.note_refund(at, tokens);
    }

    fn reserve(&mut self) {
        let (at, charged) = (self.any_key(), self.any_cost());
        if let Ok(reservation) = self.world.limiters[at.0].reserve_owned(at.1, charged) {
            self.account.note("reserved");
            self.account.note_charge(at, charged);
            self.held.push(Held { at, reservation, charged });
        }
    }

    fn record(&mut self) {
        let cost = self.any_cost();
        let Some(held) = self.held.last_mut() else { return };
        let missing = cost.saturating_sub(held.reservation.unspent());
        if held.reservation.record(cost).is_ok() {
            held.charged += missing;
            self.account.note("recorded");
            self.account.note_charge(held.at, missing);
        }
    }

    fn commit(&mut self) {
        let Some(held) = self.held.last() else { return };
        let actual = self.dice.below(held.charged + self.world.scale.cost);
        self.settle(actual);
    }

    /// Settles the last reservation. Without refunds, the reservation keeps all charged tokens.
    fn settle(&mut self, actual: u64) {
        let Some(Held { at, reservation, charged }) = self.held.pop() else { return };
        let actual = if self.world.does.refunds { actual } else { charged };
        let estimate = reservation.decision().charged();
        let settled = reservation.commit(actual);
        if actual < charged {
            let back = (charged - actual).min(estimate);
            assert_eq!(settled.charged, charged - back);
            self.account.note("commits that give back");
            self.note_refund(at, back);
        } else {
            assert_eq!(settled.charged + settled.unpaid, actual);
            self.account.note("commits that charge");
            self.account.note_charge(at, settled.charged - charged);
        }
    }

    /// Charges one key of each limiter and the limit for all requests, and possibly takes a permit.
    fn check_together(&mut self) {
        let world = self.world;
        let (first, second, cost) = (self.any_key().1, self.any_key().1, self.any_cost());
        let (one, two) = (world.limiters[0].for_key(&first), world.limiters[1].for_key(&second));
        let permit = (self.dice.below(2) == 0).then(|| world.downloads.empty_permit_owned(first));
        let mut charges = vec![Charge::new(&one, cost), Charge::new(&world.all, 1), Charge::new(&two, 1)];
        if let Some(permit) = &permit {
            let place = self.dice.index(charges.len() + 1);
            charges.insert(place, Charge::new(permit, 1));
        }
        let is_allowed = check_all(&mut charges).is_ok();
        drop(charges);
        self.account.note(if is_allowed { "together allowed" } else { "together refused" });
        if is_allowed {
            self.account.note_charge((0, first), cost);
            self.account.note_charge((1, second), 1);
            self.account.all += 1;
        } else {
            // Each limit may have been charged and refunded.
            self.note_refused((0, first), cost);
            self.note_refused((1, second), 1);
        }
        if let Some(permit) = permit {
            assert_eq!(permit.count(), u64::from(is_allowed));
            if is_allowed {
                self.hold(first, permit);
            }
        }
    }

    /// Records that a request may have been charged and refunded.
    fn note_refused(&mut self, at: (usize, u64), cost: u64) {
        self.account.note_charge(at, cost);
        self.note_refund(at, cost);
    }

    fn acquire(&mut self) {
        let key = self.any_key().1;
        match self.world.downloads.acquire_owned(key) {
            Ok(permit) => self.hold(key, permit),
            Err(_) => self.account.note("without a permit"),
        }
    }

    fn hold(&mut self, key: u64, permit: Permit) {
        let others = self.world.out[index(key)].fetch_add(1, Relaxed);
        assert!(others < self.world.scale.places, "{others} other permits of key {key} are out");
        self.permits.push((key, permit));
    }

    fn release(&mut self) {
        if let Some((key, permit)) = self.permits.pop() {
            self.world.out[index(key)].fetch_sub(1, Relaxed);
            drop(permit);
            self.account.note("released permits");
        }
    }

    /// Checks a key that no other call uses.
    fn flood(&mut self) {
        self.fresh += self.world.scale.threads;
        let _ = self.world.limiters[self.any_key().0].check(&self.fresh);
        let _ = self.world.downloads.acquire(&self.fresh);
    }

    fn sweep(&mut self) {
        self.world.limiters[self.any_key().0].sweep(8);
        self.world.downloads.sweep(8);
    }

    /// Raises the quota of the limiter that has this thread's number.
    fn raise(&mut self) {
        let number = index(self.number);
        let Some(limit) = self.world.limits.get(number) else { return self.sweep() };
        let next = limit.load(Relaxed) + self.dice.below(3);
        self.world.limiters[number].set_quota(Quota::per_day(next)).unwrap();
        limit.store(next, Relaxed);
        self.account.note("raised");
    }

    fn force(&mut self) {
        let (at, cost) = (self.any_key(), self.any_cost());
        let charged = self.world.limiters[at.0].force(&at.1, cost);
        self.account.note_charge(at, charged);
        if charged > 0 {
            self.account.note("forced");
        }
    }
}
