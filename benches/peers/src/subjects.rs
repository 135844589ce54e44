//! The measured subjects. Each has a name and a function that builds it.

#[cfg(feature = "baseline")]
mod baseline;
mod floor;
mod gcra;
mod limiters;
mod maps;
mod ours;

use crate::keys::Key;
use std::time::Duration;

/// The quota of a limiter.
#[derive(Clone, Copy, PartialEq)]
pub enum Quota {
    /// Ten per second in bursts of a billion: no check is denied, and no key is idle within a tenth
    /// of a second after its last check.
    Ample,
    /// One per minute in bursts of a million: no check is denied, and no charged key becomes idle
    /// during the measurement.
    Lasting,
    /// Two at once, and the next one after half an hour (or after a second, for limiters without
    /// slower rates).
    UsedUp,
}

impl Quota {
    pub const fn burst(self) -> u32 {
        match self {
            Self::Ample => 1_000_000_000,
            Self::Lasting => 1_000_000,
            Self::UsedUp => 2,
        }
    }

    /// Returns the nanoseconds from one token to the next.
    pub const fn interval(self) -> u64 {
        match self {
            Self::Ample => 100_000_000,
            Self::Lasting => 60_000_000_000,
            Self::UsedUp => 1_800_000_000_000,
        }
    }
}

/// The task that a subject is built for.
#[derive(Clone, Copy)]
pub struct Setting {
    pub quota: Quota,
    /// The number of keys.
    pub keys: usize,
    /// The time between two sweeps, if the user must sweep the subject.
    pub sweeps: Option<Duration>,
}

/// A limiter that is ready to decide.
pub trait Subject<K>: Send + Sync {
    /// Decides for each of `keys` in turn. Returns the number of admitted keys.
    fn decide(&self, keys: &[K]) -> u64;

    /// Removes the idle keys. Returns false if the subject does not support this.
    fn sweep(&self) -> bool {
        false
    }

    /// Returns whether the user must sweep the subject, because nothing else bounds its memory.
    fn needs_sweeps(&self) -> bool {
        false
    }

    /// Removes all keys. Returns false if the subject does not support this.
    fn clear(&self) -> bool {
        false
    }

    /// Returns the number of turnovers of the subject's table, if the subject sweeps by turnovers.
    fn turnovers(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes that the subject reports, if it maps memory itself. They are not counted
    /// as allocated.
    fn bytes(&self) -> u64 {
        0
    }
}

/// A subject that checks one key at a time: `Each(|key| admitted)`.
struct Each<F>(F);

impl<K, F: Fn(&K) -> bool + Send + Sync> Subject<K> for Each<F> {
    fn decide(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from((self.0)(key))).sum()
    }
}

fn each<K, F: Fn(&K) -> bool + Send + Sync + 'static>(check: F) -> Built<K> {
    Ok(Box::new(Each(check)))
}

/// Operations on a limiter besides checks. The methods of [`Subject`] describe them.
struct Upkeep<T> {
    sweep: Option<fn(&T)>,
    needs_sweeps: bool,
    clear: Option<fn(&T)>,
    turnovers: Option<fn(&T) -> u64>,
    bytes: Option<fn(&T) -> u64>,
}

impl<T> Upkeep<T> {
    const NONE: Self = Self { sweep: None, needs_sweeps: false, clear: None, turnovers: None, bytes: None };

    /// Returns the operations of a map, which grows until its user sweeps it.
    const fn of_map(sweep: fn(&T), clear: fn(&T)) -> Self {
        Self { sweep: Some(sweep), needs_sweeps: true, clear: Some(clear), ..Self::NONE }
    }
}

/// A subject with operations besides checks.
struct Kept<T, F> {
    limiter: T,
    check: F,
    upkeep: Upkeep<T>,
}

impl<K, T: Send + Sync, F: Fn(&T, &K) -> bool + Send + Sync> Subject<K> for Kept<T, F> {
    fn decide(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from((self.check)(&self.limiter, key))).sum()
    }

    fn sweep(&self) -> bool {
        self.upkeep.sweep.map(|sweep| sweep(&self.limiter)).is_some()
    }

    fn needs_sweeps(&self) -> bool {
        self.upkeep.needs_sweeps
    }

    fn clear(&self) -> bool {
        self.upkeep.clear.map(|clear| clear(&self.limiter)).is_some()
    }

    fn turnovers(&self) -> Option<u64> {
        self.upkeep.turnovers.map(|turnovers| turnovers(&self.limiter))
    }

    fn bytes(&self) -> u64 {
        self.upkeep.bytes.map_or(0, |bytes| bytes(&self.limiter))
    }
}

fn kept<K, T, F>(limiter: T, check: F, upkeep: Upkeep<T>) -> Built<K>
where
    T: Send + Sync + 'static,
    F: Fn(&T, &K) -> bool + Send + Sync + 'static,
{
    Ok(Box::new(Kept { limiter, check, upkeep }))
}

/// A subject, or the reason why it does not fit.
pub type Built<K> = Result<Box<dyn Subject<K>>, &'static str>;

/// Builds a subject.
pub struct Contestant<K> {
    pub name: &'static str,
    pub build: fn(Setting) -> Built<K>,
}

/// This library, with the same kind of clock as governor. In `peers defaults`, this library as
/// `cargo add` adds it.
pub const OWN: &str = "tollgate";
/// An older checkout of this library, if this program was built with one. A row of this library is
/// compared with the row of the older checkout with the same kind of check, if there is one.
pub const BASELINE: &str = "tollgate baseline";
/// The subject that all others are compared with.
pub const BASE: &str = "governor";
/// Not a limiter: the cost of walking through the keys.
pub const EMPTY_LOOP: &str = "(empty loop)";
/// Not a limiter: the cost of reading the clock that limiters read.
pub const CLOCK: &str = "(floor: clock)";
/// Subjects that have no state per key, and admit everything.
pub const STATELESS: [&str; 2] = [EMPTY_LOOP, CLOCK];
/// Not a limiter: the minimum cost of anything with a state per key.
pub const FLOOR: &str = "(floor: clock + CAS)";
/// Not a limiter: the minimum cost that a concurrent table of keys adds to the floor.
pub const BARE_TABLE: &str = "(floor: bare table)";
/// The floor with a clock that takes almost no time.
pub const BARE_TABLE_COARSE: &str = "(floor: bare table, coarse clock)";
/// The floor with a table, which checks many keys in one call.
pub const BARE_TABLE_BATCHES: &str = "(floor: bare table, batches of 32)";

const ONE_RESOURCE: &str = "limits one resource, not keys";

/// Returns the name of the baseline for the row `name` of this library.
pub fn baseline_of(name: &str) -> Option<String> {
    let way = name.strip_prefix(OWN).filter(|_| !name.starts_with(BASELINE))?;
    Some(format!("{BASELINE}{way}"))
}

/// Returns all subjects, in the order of the first round.
pub fn all<K: Key>() -> Vec<Contestant<K>> {
    #[cfg(not(feature = "baseline"))]
    let baseline = Vec::new();
    #[cfg(feature = "baseline")]
    let baseline = baseline::all();
    contestants([ours::all(), baseline, limiters::all(), floor::all(), maps::all()])
}

/// Returns this library and governor, both as `cargo add` adds them and without further settings.
pub fn defaults<K: Key>() -> Vec<Contestant<K>> {
    #[cfg(not(feature = "baseline"))]
    let baseline = Vec::new();
    #[cfg(feature = "baseline")]
    let baseline = baseline::defaults();
    let mut contestants = contestants([ours::defaults(), baseline]);
    // The row of governor among all subjects also has its defaults.
    let is_needed = |contestant: &Contestant<K>| [BASE, EMPTY_LOOP].contains(&contestant.name);
    contestants.extend(all().into_iter().filter(is_needed));
    contestants
}

fn contestants<K, const N: usize>(lists: [Rows<K>; N]) -> Vec<Contestant<K>> {
    lists.into_iter().flatten().map(|(name, build)| Contestant { name, build }).collect()
}

/// Returns the processor's counter, which governor's default clock also reads. A build without this
/// clock measures only defaults: see `main`.
fn counter() -> tollgate::Clock {
    #[cfg(feature = "counter")]
    return tollgate::Clock::counter();
    #[cfg(not(feature = "counter"))]
    unreachable!("built without the feature `counter`");
}

/// Rows of [`all`].
type Rows<K> = Vec<(&'static str, fn(Setting) -> Built<K>)>;
