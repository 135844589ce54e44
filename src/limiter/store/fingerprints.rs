//! The store of fingerprints, which is a table of states. The hash of a key identifies the key's
//! state.

use super::hash::{self, FoldHash, Seeded};
use super::interface::{Accepts, BATCH, Cost, Request, Settings, Store, forget_all, sweep_by_steps};
use crate::decision::{Decision, SlowDecision};
use crate::error::{LoadError, Refused};
use crate::limiter::build::method::Method;
use crate::limiter::resets::Resets;
use crate::limiter::save::format::{FileReader, FileWriter};
use crate::limiter::save::persist::{Contents, Exported, Persist, SavedHash};
use crate::limiter::together::look::Look;
use crate::quota::{Enforced, Quota};
use crate::reclaim::pin;
use crate::rule::{AnyRule, take};
use crate::state::{AnyState, Counts, SavedState, SharedRule, Since, State, StateRule, Versioned, Wanted};
use crate::stats::Stats;
use crate::table::{Fingerprint, Line, Rules, SavedWord, Table, View, is_turn};
use crate::time::Tick;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::io;
use std::sync::Arc;

/// The default store of a limiter. It stores a 64-bit hash of each key instead of the key.
///
/// A key requires 24 bytes regardless of its type, or 32 in a small table; see
/// [`Limiter`](crate::Limiter). `H` is the hash: [`FoldHash`], the default, or
/// [`SipHash`](crate::store::SipHash), which [`keyed_hash`](crate::Builder::keyed_hash) selects.
/// Other hashes are not supported, because the hash *is* the key here: a hash that maps many keys
/// to few numbers would merge their states.
///
/// # What an attacker could gain
///
/// An attacker who chooses keys (client addresses, headers, account names) looks for keys whose
/// hashes collide:
///
/// - A key with the same 64 bits as a victim's key shares the victim's state. The attacker can
///   exhaust this state, so that the victim's requests are denied. A collision never admits more
///   than a quota; two keys that collide are admitted less.
/// - Keys whose upper bits agree crowd one part of the table, and lookups there are slower.
///
/// With either hash, each limiter draws a seed from the system's entropy and keeps the seed secret.
/// A blind attacker can therefore only try keys. If an attacker tries n keys, one of these keys has
/// the same 64 bits as a given victim's key with probability n / 2^64. At a million new keys per
/// second, such a match takes 580,000 years on average. The probability that any two of n keys
/// collide is n^2 / 2^65, or 2.7e-6 for ten million keys.
///
/// The choice between the two hashes matters if an attacker learns from answers. The `remaining` of
/// one key after a charge of another key reveals whether the two keys share a state. Response times
/// reveal a little about the positions of keys.
///
/// SipHash is designed for attackers who learn from answers: an attacker may choose any number of
/// keys, and their hashes reveal nothing about the seed. FoldHash mixes its seed into each step,
/// and no way to find the seed through a limiter is known. However, its authors promise nothing
/// against an attacker who can observe its hashes.
///
/// Choose `keyed_hash` if strangers choose keys, and if they could find it worthwhile to attack the
/// hash in order to deny a victim's requests. `keyed_hash` roughly doubles the duration of a check
/// of a hot key.
///
/// ```
/// use tollgate::store::{Fingerprints, SipHash};
/// use tollgate::{Limiter, Quota};
///
/// let keyed: Limiter<str, Fingerprints<SipHash>> =
///     Limiter::builder(Quota::per_second(1)).keyed_hash().build()?;
/// assert!(keyed.check("alice").is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub struct Fingerprints<H = FoldHash> {
    table: Table,
    method: Method,
    hash: H,
    /// The counts of the state that keys without a slot share.
    shared: Arc<Counts>,
}

impl<H: BuildHasher + Default + Send + Sync + 'static> Store for Fingerprints<H> {
    type Hash = H;

    fn empty(settings: Settings, hash: H) -> Result<Self, Refused> {
        let Settings { quota, method, max_keys, grace, .. } = settings;
        let table = Table::new(max_keys, grace, method.packed(quota)?)?;
        Ok(Self { table, method, hash, shared: Counts::new() })
    }

    fn of_times(&self) -> Result<Self, Refused> {
        let (method, quota) = Method::of_times();
        let table = self.table.beside(method.packed(quota)?)?;
        let shared = Counts::new();
        Ok(Self { table, method, hash: H::default(), shared })
    }

    fn another(_: &H) -> H {
        H::default()
    }

    fn changes(&self) -> u64 {
        self.table.with_rules(Rules::changes)
    }

    fn default_rule(&self) -> Wanted {
        self.table.with_rules(|rules| {
            let Enforced { rule, quota } = *rules.default();
            let rule = SharedRule::new(Enforced { rule: StateRule::Packed(rule), quota }, &self.shared);
            Wanted { rule, changes: rules.changes(), since: rules.default_since() }
        })
    }

    fn default_quota(&self) -> Quota {
        self.table.with_rules(|rules| rules.default().quota)
    }

    fn set_quota(&self, quota: Quota, since: &Since) -> Result<(), Refused> {
        self.change(since, Some(self.method.packed(quota)?), &[])
    }

    fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool {
        let begin = |now, first| self.table.begin_sweep(now, first);
        let tend = |steps, now| self.table.tend(steps, now);
        sweep_by_steps(places, Table::STEP, clock, begin, tend)
    }

    fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets) {
        resets.note(|| self.table.each(|state| state.reset()));
        let note = |now| self.table.note(now);
        let begin = |now| self.table.begin_turnover(now);
        let tend = |steps, now| self.table.tend(steps, now);
        forget_all(clock, note, begin, tend);
    }

    fn keys(&self) -> usize {
        self.table.len()
    }

    fn stats(&self) -> Stats {
        let stats = self.table.stats();
        Stats { bytes: stats.bytes + Versioned::version_bytes(&self.shared), ..stats }
    }
}

impl<H, Q> Accepts<Q> for Fingerprints<H>
where
    H: BuildHasher + Default + Send + Sync + 'static,
    Q: Hash + ?Sized,
{
    // Always inlined, so that a caller that only needs to know whether the request was allowed does
    // not compute the rest of the answer.
    #[inline(always)]
    fn check(
        &self,
        key: &Q,
        now: impl FnOnce() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> Decision {
        let (guard, key) = (pin(), self.fingerprint(key));
        let Ok(view) = self.table.view(&guard) else { return self.check_everywhere(key, now(), request).0 };
        let line = view.first_line(key);
        // The clock is read after the prefetch, because reading the clock may delay later
        // instructions.
        let now = now();
        self.check_in(view, line, key, now, request)
    }

    fn check_batch<C: Cost>(
        &self,
        keys: &[(&Q, C)],
        now: impl Fn() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision + Copy>,
        decisions: &mut Vec<Decision>,
    ) {
        let mut batch = [(Fingerprint::default(), keys[0].1); BATCH];
        for (known, &(key, cost)) in batch.iter_mut().zip(keys) {
            *known = (self.fingerprint(key), cost);
        }
        self.check_together(&batch[..keys.len()], now, request, decisions);
    }

    fn missing(&self, key: &Q, cost: u64, now: Tick) -> (Decision, bool) {
        let key = self.fingerprint(key);
        let fresh = |cost| self.table.fresh(key, now, cost);
        (Decision::before_charge(cost, fresh), self.table.has_room(now))
    }

    #[inline]
    fn look<'m>(
        &'m self,
        key: &Q,
        cost: u64,
        now: impl FnOnce(&Look<'m>) -> Tick,
        resets: &'m Resets,
        look: &mut Look<'m>,
    ) {
        let key = self.fingerprint(key);
        let Ok(view) = self.table.view(look.guard()) else { return };
        view.first_line(key);
        // The clock is read after the prefetch, as it is for a charge.
        let now = now(look);
        // If this charge is due to perform a step of upkeep, the look sees nothing, and the limit
        // itself makes the charge.
        if !is_turn(key.bits(), now)
            && let Some(state) = view.find(key)
        {
            look.see(state, now, cost, resets);
        }
    }

    #[inline]
    fn known<T>(&self, key: &Q, visit: impl Fn(AnyState<'_>) -> Option<T>) -> Option<T> {
        let key = self.fingerprint(key);
        // Most keys are in the root, and their words are not frozen.
        let guard = pin();
        let state = self.table.view(&guard).ok().and_then(|view| view.find(key));
        let answer = state.and_then(|state| visit(AnyState::packed(state)));
        drop(guard);
        answer.or_else(|| self.table.known(key, |state| visit(AnyState::packed(state))))
    }

    fn force(&self, key: &Q, now: Tick, tokens: u64) -> Result<u64, u64> {
        let key = self.fingerprint(key);
        let (mut now, mut left) = (now, tokens);
        // Each iteration after the first two follows a step by another thread, which has inserted
        // or forgotten the key, or changed its quota.
        while left > 0 {
            let force = |state: State<'_>| AnyState::packed(state).force(now, left);
            if let Some(charged) = self.table.known(key, force) {
                return Ok(tokens - left + charged);
            }
            // The key has no state yet, so its bucket is full. An ordinary charge creates the
            // state.
            let cost = left.min(self.table.fresh(key, now, 0).capacity());
            let (first, _) = self.table.find_or_insert(key, now, cost).ok_or(left)?;
            left -= first.charged();
            // If `now` is before the table's mark, the key was charged at the mark.
            now = now.max(first.at());
        }
        Ok(tokens)
    }

    fn own_quota(&self, key: &Q) -> Option<Quota> {
        // Most limiters have no own quotas, so the key is hashed only for one that has.
        self.table
            .with_rules(|rules| if rules.count() > 0 { rules.own_quota(self.fingerprint(key)) } else { None })
    }

    fn set_own_quotas(&self, quotas: &[(&Q, Option<Quota>)], since: &Since) -> Result<(), Refused> {
        let rule = |quota| self.method.packed(quota);
        let rules =
            quotas.iter().map(|&(key, quota)| Ok((self.fingerprint(key), quota.map(rule).transpose()?)));
        let rules = rules.collect::<Result<Vec<_>, Refused>>()?;
        self.change(since, None, &rules)
    }
}

impl<H: BuildHasher + Default + Seeded + Send + Sync + 'static> Persist for Fingerprints<H> {
    type Name = u64;
    const KIND: &'static str = "fingerprints of keys";

    fn write_name(name: &u64, to: &mut FileWriter<'_>) -> io::Result<()> {
        to.u64(*name)
    }

    fn read_name(from: &mut FileReader<'_>) -> Result<u64, LoadError> {
        from.u64()
    }

    fn seeds(&self) -> Option<SavedHash> {
        Some(SavedHash { seeds: self.hash.seeds(), proof: hash::proof(&self.hash) })
    }

    fn hash_of(saved: Option<SavedHash>, _: H) -> Result<H, LoadError> {
        let saved = saved.ok_or_else(FileReader::damaged)?;
        let hash = H::of_seeds(saved.seeds);
        if hash::proof(&hash) == saved.proof {
            return Ok(hash);
        }
        Err(LoadError::unusable(
            "its keys were hashed by another function, so no key would be found: the saved limiter had another \
             hash, or an update has changed the hash",
        ))
    }

    fn parts(&self) -> u64 {
        self.table.parts()
    }

    fn part(&self, part: u64, parts: u64) -> Vec<Exported<u64>> {
        let keys = self.table.keys_of_part(part, parts).into_iter();
        let exported = keys.filter_map(|key| {
            let SavedWord { word, quota, is_own } = self.table.word_of(key)?;
            Some(Exported { name: key.bits(), quota, is_own, state: SavedState::Word(word) })
        });
        exported.collect()
    }

    fn own_quotas(&self) -> Vec<(u64, Quota)> {
        self.table.with_rules(|rules| rules.own_quotas().map(|(key, quota)| (key.bits(), quota)).collect())
    }

    fn mark(&self) -> Tick {
        self.table.mark()
    }

    fn restored(
        Settings { quota, method, max_keys, grace, .. }: Settings,
        hash: H,
        Contents { own, keys, mark }: Contents<u64>,
        now: Tick,
    ) -> Result<Self, Refused> {
        let own = own
            .into_iter()
            .map(|(name, quota)| Ok((Fingerprint::of_hash(name), Some(method.packed(quota)?))))
            .collect::<Result<Vec<_>, Refused>>()?;
        let keys: Vec<_> = keys
            .into_iter()
            .filter_map(|(name, state)| match state {
                SavedState::Word(word) => Some((Fingerprint::of_hash(name), word)),
                // A load refuses a log under a packed rule.
                SavedState::Log(_) => None,
            })
            .collect();
        let table = Table::restored((max_keys, grace), method.packed(quota)?, &own, &keys, (mark, now))?;
        Ok(Self { table, method, hash, shared: Counts::new() })
    }
}

impl<H: BuildHasher> Fingerprints<H> {
    #[inline]
    fn fingerprint<Q: Hash + ?Sized>(&self, key: &Q) -> Fingerprint {
        Fingerprint::of_hash(self.hash.hash_one(key))
    }
}

impl<H> Fingerprints<H> {
    /// Decides a request for a key, given the first line of the key's probe run.
    #[inline(always)]
    fn check_in<'g>(
        &self,
        view: View<'g>,
        line: &'g Line,
        key: Fingerprint,
        now: Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> Decision {
        let stamp = request.resets.stamp();
        let Some((decision, is_charged)) = view.take_or_insert(line.find(key), key, now, request.cost) else {
            return self.check_everywhere(key, now, request).0;
        };
        self.table.tend_in_turn(is_charged, key, now);
        decision.stamped(stamp)
    }

    /// The slow path of a check. Finds the key in any array of the table. If the key is missing and
    /// the request charges anything, inserts the key.
    #[cold]
    #[inline(never)]
    fn check_everywhere(
        &self,
        key: Fingerprint,
        now: Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> SlowDecision {
        let (cost, stamp) = (request.cost, request.resets.stamp());
        let decision = match self.table.find_or_insert(key, now, cost) {
            Some((decision, is_charged)) => {
                self.table.tend_in_turn(is_charged, key, now);
                decision
            }
            None => (request.refuse)(cost, now, self.table.fresh(key, now, cost)),
        };
        decision.stamped(stamp).into()
    }

    /// Checks the keys of a batch. This method prefetches all lines before it reads the clock, and
    /// looks up all keys before it charges the first one. This order makes the lookups overlap,
    /// because a compare-and-swap prevents the processor from executing later instructions early.
    fn check_together<C: Cost>(
        &self,
        keys: &[(Fingerprint, C)],
        now: impl Fn() -> Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision + Copy>,
        decisions: &mut Vec<Decision>,
    ) {
        let guard = pin();
        let Ok(view) = self.table.view(&guard) else {
            let now = now();
            return decisions.extend(keys.iter().map(|&(key, cost)| {
                self.check_everywhere(key, now, Request { cost: cost.tokens(), ..request }).0
            }));
        };
        let mut lines = [view.first_line(keys[0].0); BATCH];
        for (line, &(key, _)) in lines.iter_mut().zip(keys) {
            *line = view.first_line(key);
        }
        let now = now();
        let mut found = [None; BATCH];
        for ((found, line), &(key, _)) in found.iter_mut().zip(&lines).zip(keys) {
            *found = line.find_or_prefetch(key);
        }
        let (bucket, stamp) = (view.bucket(), view.stamp().plus(request.resets.stamp()));
        for (&(key, cost), &found) in keys.iter().zip(&found) {
            if let (Some(bucket), Some(word)) = (bucket, found)
                && let Some((decision, is_charged)) = take(bucket, word, now, cost.tokens())
            {
                self.table.tend_in_turn(is_charged, key, now);
                decisions.push(decision.stamped(stamp));
            } else {
                let request = Request { cost: cost.tokens(), ..request };
                decisions.push(self.check_again(view, key, now, request).0);
            }
        }
    }

    /// Rechecks a key in a batch that was missing from its first line or whose word has changed.
    #[inline(never)]
    fn check_again(
        &self,
        view: View<'_>,
        key: Fingerprint,
        now: Tick,
        request: Request<'_, impl Fn(u64, Tick, Decision) -> Decision>,
    ) -> SlowDecision {
        self.check_in(view, view.first_line(key), key, now, request).into()
    }

    /// Replaces the default rule and the rules for individual keys, unless all quotas stay the
    /// same. Returns an error if the change could not be made.
    fn change(
        &self,
        since: &Since,
        default: Option<Enforced<AnyRule>>,
        keys: &[(Fingerprint, Option<Enforced<AnyRule>>)],
    ) -> Result<(), Refused> {
        // The closure reads the rules at the moment of the change, because another thread may have
        // changed them first.
        let change = |rules: &Rules, memory: &_| rules.changed(since, default, keys, memory);
        let changed = self.table.change(since.requested(), change);
        if changed { Ok(()) } else { Err(Refused::QuotaNotChanged { bytes: self.table.bytes() }) }
    }
}

impl<H> fmt::Debug for Fingerprints<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprints").finish_non_exhaustive()
    }
}
