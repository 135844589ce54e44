//! The contents of a file as values.

use super::format::{FileReader, FileWriter};
use super::persist::{Exported, Persist, SavedHash};
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::error::{LoadError, Refused};
use crate::limiter::build::method::Method;
use crate::log::Admission;
use crate::quota::Quota;
use crate::rule::Word;
use crate::state::{SavedState, StateRule};
use crate::time::Tick;
use std::cmp::Reverse;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a saved limiter enforces quotas.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) algorithm: Algorithm,
    /// The duration from a window boundary to tick 0.
    pub(super) phase: Duration,
    pub(super) debt: u64,
}

/// The time at which a file was written, by the limiter's clock and by the time of day. A file ends
/// with this time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedAt {
    pub(super) tick: Tick,
    /// The time since the Unix epoch.
    pub(super) wall: Duration,
}

/// The keys of a store.
#[derive(Debug)]
pub(super) struct SavedKeys<N> {
    pub(super) hash: Option<SavedHash>,
    /// The quotas under which the keys were charged.
    pub(super) quotas: Vec<Quota>,
    /// The keys, each with the index of its quota.
    pub(super) keys: Vec<(N, u32, SavedState)>,
    pub(super) own: Vec<(N, Quota)>,
    pub(super) mark: Tick,
}

const END: u8 = 0;
const KEY: u8 = 1;
const OWN_KEY: u8 = 2;
const QUOTA: u8 = 3;

const WORD: u8 = 0;
const LOG: u8 = 1;

impl Head {
    pub(super) fn of(method: Method) -> Self {
        let Method::Rate { algorithm, phase, debt } = method else {
            unreachable!("only limiters of rates are saved")
        };
        Self { algorithm, phase, debt }
    }

    pub(super) fn write(&self, kind: &str, to: &mut FileWriter<'_>) -> io::Result<()> {
        to.text(kind.as_bytes())?;
        to.text(self.algorithm.name().as_bytes())?;
        to.duration(self.phase)?;
        to.u64(self.debt)
    }

    /// Reads the head of a limiter of the expected kind.
    pub(super) fn read(kind: &str, from: &mut FileReader<'_>) -> Result<Self, LoadError> {
        read_kind(kind, from)?;
        let algorithm = read_text(from)?.parse().map_err(|_| FileReader::damaged())?;
        Ok(Self { algorithm, phase: from.duration()?, debt: from.u64()? })
    }

    /// Returns an error if `algorithm` is not the algorithm of the saved limiter.
    pub(super) fn check_algorithm(&self, algorithm: Algorithm) -> Result<(), LoadError> {
        if self.algorithm == algorithm {
            return Ok(());
        }
        Err(LoadError::unusable(format_args!(
            "it is the state of a {}; this limiter is a {algorithm}, which cannot continue that state",
            self.algorithm
        )))
    }

    /// Returns the rule that enforced `quota` in the saved limiter.
    pub(super) fn rule(&self, quota: Quota) -> Result<StateRule, LoadError> {
        let &Self { algorithm, phase, debt, .. } = self;
        let rule = Method::Rate { algorithm, phase, debt }.any(quota);
        Ok(rule.map_err(|_: Refused| FileReader::damaged())?.rule)
    }
}

/// Reads the kind of a limiter. Returns an error if the kind is not `expected`.
pub(super) fn read_kind(expected: &str, from: &mut FileReader<'_>) -> Result<(), LoadError> {
    let kind = read_text(from)?;
    if kind == expected {
        return Ok(());
    }
    Err(LoadError::unusable(format_args!(
        "it is the state of {kind}; this limiter needs the state of {expected}"
    )))
}

/// Returns the time since the Unix epoch.
fn time_of_day() -> Duration {
    // std has no time of day there, and panics. Every clock of such a program is manual.
    if cfg!(all(target_family = "wasm", target_os = "unknown")) {
        return Duration::ZERO;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl SavedAt {
    pub(super) fn now(tick: Tick) -> Self {
        Self { tick, wall: time_of_day() }
    }

    /// Returns the clock of the loaded limiter, and whether the loaded limiter continues the saved
    /// states. `clock` is the clock of the builder. From `until` on, none of the saved states
    /// counts.
    pub(super) fn resume(self, clock: &Clock, until: Tick) -> (Clock, bool) {
        if !clock.is_real() {
            return (clock.clone(), true);
        }
        match self.continued(time_of_day()) {
            tick if tick < until => (clock.resumed_at(tick), true),
            _ => (clock.clone(), false),
        }
    }

    /// Returns the tick at the time of day `wall`.
    fn continued(self, wall: Duration) -> Tick {
        self.tick + wall.saturating_sub(self.wall)
    }

    pub(super) fn write(self, to: &mut FileWriter<'_>) -> io::Result<()> {
        to.tick(self.tick)?;
        to.duration(self.wall)
    }

    pub(super) fn read(from: &mut FileReader<'_>) -> Result<Self, LoadError> {
        Ok(Self { tick: from.tick()?, wall: from.duration()? })
    }
}

pub(super) fn write_state(state: &SavedState, to: &mut FileWriter<'_>) -> io::Result<()> {
    match state {
        SavedState::Word(word) => {
            to.u8(WORD)?;
            to.u64(word.bits())
        }
        SavedState::Log(admissions) => {
            to.u8(LOG)?;
            to.u64(admissions.len() as u64)?;
            admissions.iter().try_for_each(|admission| {
                to.tick(admission.time)?;
                to.u64(admission.tokens)
            })
        }
    }
}

pub(super) fn read_state(from: &mut FileReader<'_>) -> Result<SavedState, LoadError> {
    match from.u8()? {
        WORD => Ok(SavedState::Word(Word::of_bits(from.u64()?))),
        LOG => {
            let mut admissions = Vec::new();
            for _ in 0..from.u64()? {
                admissions.push(Admission { time: from.tick()?, tokens: from.u64()? });
            }
            Ok(SavedState::Log(Box::new(admissions)))
        }
        _ => Err(FileReader::damaged()),
    }
}

impl<N> SavedKeys<N> {
    /// Writes the keys of a store, part by part.
    pub(super) fn write<S: Persist<Name = N>>(store: &S, to: &mut FileWriter<'_>) -> io::Result<()> {
        write_hash(store.seeds(), to)?;
        let (parts, mut quota) = (store.parts(), None);
        for part in 0..parts {
            for Exported { name, quota: made_under, is_own, state } in store.part(part, parts) {
                if is_own {
                    to.u8(OWN_KEY)?;
                    to.quota(made_under)?;
                } else {
                    if quota != Some(made_under) {
                        to.u8(QUOTA)?;
                        to.quota(made_under)?;
                        quota = Some(made_under);
                    }
                    to.u8(KEY)?;
                }
                S::write_name(&name, to)?;
                write_state(&state, to)?;
            }
        }
        to.u8(END)?;
        let own = store.own_quotas();
        to.u64(own.len() as u64)?;
        for (name, quota) in own {
            S::write_name(&name, to)?;
            to.quota(quota)?;
        }
        to.tick(store.mark())
    }

    pub(super) fn read<S: Persist<Name = N>>(from: &mut FileReader<'_>) -> Result<Self, LoadError> {
        let hash = read_hash(from)?;
        let (mut quotas, mut keys, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let mut default = None;
        let mut add = |quota: Quota| {
            quotas.push(quota);
            u32::try_from(quotas.len() - 1).map_err(|_| FileReader::damaged())
        };
        loop {
            match from.u8()? {
                END => break,
                QUOTA => default = Some(add(from.quota()?)?),
                tag @ (KEY | OWN_KEY) => {
                    let quota = match (tag, default) {
                        (OWN_KEY, _) => add(from.quota()?)?,
                        (_, Some(quota)) => quota,
                        (_, None) => return Err(FileReader::damaged()),
                    };
                    keys.push((S::read_name(from)?, quota, read_state(from)?));
                }
                _ => return Err(FileReader::damaged()),
            }
        }
        for _ in 0..from.u64()? {
            own.push((S::read_name(from)?, from.quota()?));
        }
        Ok(Self { hash, quotas, keys, own, mark: from.tick()? })
    }

    /// Returns the keys with the rules under which their states were made. `rule` returns the rule
    /// of a quota. Returns an error if no charges can have led to one of the states.
    pub(super) fn judged(
        self,
        rule: impl Fn(Quota) -> Result<StateRule, LoadError>,
    ) -> Result<JudgedKeys<N>, LoadError> {
        let rules = self.quotas.iter().map(|&quota| rule(quota)).collect::<Result<Vec<_>, _>>()?;
        let (mut until, keys) = (self.mark, self.keys);
        for (_, quota, state) in &keys {
            until = until.max(state.until(&rules[*quota as usize]).ok_or_else(FileReader::damaged)?);
        }
        Ok(JudgedKeys { rules, keys, mark: self.mark, until })
    }
}

/// The keys of a saved limiter. Charges can have led to each of their states.
pub(super) struct JudgedKeys<N> {
    rules: Vec<StateRule>,
    keys: Vec<(N, u32, SavedState)>,
    /// Every key that is missing here is idle from this time on.
    pub(super) mark: Tick,
    /// From this time on, every key is idle and the mark has no effect.
    pub(super) until: Tick,
}

impl<N> JudgedKeys<N> {
    /// Returns the time from which a key is idle.
    fn until(rules: &[StateRule], (_, quota, state): &(N, u32, SavedState)) -> Tick {
        state.until(&rules[*quota as usize]).unwrap_or(Tick::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Drops the keys that are idle at `now`.
    pub(super) fn drop_idle(&mut self, now: Tick) {
        let Self { rules, keys, mark, .. } = self;
        keys.retain(|key| {
            let until = Self::until(rules, key);
            let is_idle = until <= now;
            if is_idle {
                *mark = until.max(*mark);
            }
            !is_idle
        });
    }

    /// Limits the number of keys to `most`. If there are more keys, drops the keys that are nearest
    /// to idle or, unless `may_drop` is set, returns an error, which says what the keys `are`.
    pub(super) fn fit(&mut self, most: usize, may_drop: bool, are: &str) -> Result<(), LoadError> {
        let Self { rules, keys, mark, .. } = self;
        let count = keys.len();
        if count <= most {
            return Ok(());
        }
        if !may_drop {
            return Err(LoadError::unusable(format_args!(
                "it contains {count} keys that are {are}; allowed: {most}; raise `max_keys`"
            )));
        }
        let (_, first_dropped, _) =
            keys.select_nth_unstable_by_key(most, |key| Reverse(Self::until(rules, key)));
        *mark = Self::until(rules, first_dropped).max(*mark);
        keys.truncate(most);
        Ok(())
    }

    /// Translates the states to the rules of another limiter, at `now`. `rule_of` returns the index
    /// of a key's rule in `rules`.
    pub(super) fn translate(&mut self, rules: Vec<StateRule>, rule_of: impl Fn(&N) -> u32, now: Tick) {
        let (before, keys) = (std::mem::replace(&mut self.rules, rules), std::mem::take(&mut self.keys));
        let translated = |(name, rule, state): (N, u32, SavedState)| {
            let new = rule_of(&name);
            let state = state.translated(&before[rule as usize], &self.rules[new as usize], now);
            (name, new, state)
        };
        self.keys = keys.into_iter().map(translated).collect();
    }

    /// Returns the keys with their states.
    pub(super) fn into_states(self) -> Vec<(N, SavedState)> {
        self.keys.into_iter().map(|(name, _, state)| (name, state)).collect()
    }
}

fn write_hash(hash: Option<SavedHash>, to: &mut FileWriter<'_>) -> io::Result<()> {
    to.u8(u8::from(hash.is_some()))?;
    let numbers = hash.iter().flat_map(|hash| hash.seeds.iter().chain(&hash.proof));
    numbers.copied().try_for_each(|number| to.u64(number))
}

fn read_hash(from: &mut FileReader<'_>) -> Result<Option<SavedHash>, LoadError> {
    let (mut seeds, mut proof) = ([0; 2], [0; 10]);
    match from.u8()? {
        0 => return Ok(None),
        1 => {}
        _ => return Err(FileReader::damaged()),
    }
    for number in seeds.iter_mut().chain(&mut proof) {
        *number = from.u64()?;
    }
    Ok(Some(SavedHash { seeds, proof }))
}

pub(super) fn read_text(from: &mut FileReader<'_>) -> Result<String, LoadError> {
    String::from_utf8(from.text()?).map_err(|_| FileReader::damaged())
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_that_was_set_back_adds_nothing() {
        let (tick, hour) = (Tick::from_nanos(7), Duration::from_secs(3600));
        let at = SavedAt { tick, wall: 10 * hour };
        for (wall, passed) in [(9, 0), (10, 0), (11, 1), (15, 5)] {
            assert_eq!(at.continued(wall * hour), tick + passed * hour, "{wall}");
        }
        assert_eq!(at.continued(Duration::MAX), Tick::MAX);
    }

    /// The time of day jumps by decades with each start of a machine that has no battery.
    #[test]
    fn a_limiter_starts_anew_once_nothing_is_in_force() {
        let at = SavedAt { tick: Tick::from_nanos(1_000), wall: Duration::ZERO };
        let (clock, is_continued) = at.resume(&Clock::system(), at.tick + Duration::from_secs(60));
        assert!(!is_continued && clock.now() < Tick::from_nanos(1_000_000_000_000));
        let (clock, is_continued) = at.resume(&Clock::system(), Tick::MAX);
        assert!(is_continued && clock.now().since(at.tick) > Duration::from_secs(20 * 365 * 24 * 3600));
    }
}
