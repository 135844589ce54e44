//! Saves a limiter to a file, and loads it in another process, so that a restart keeps the counts.
//!
//! # Time
//!
//! A word contains ticks, which mean nothing to another clock. The loaded limiter therefore
//! *continues* the saved limiter's time: its clock starts at the tick of the save plus the time
//! since the save, which is measured by the time of day. Unless the settings differ, no word is
//! translated, and every time keeps its meaning: words, windows and their boundaries, marks,
//! pauses, the admissions of a log. A loaded limiter decides as if the saved limiter had never
//! stopped.
//!
//! The time of day may have been set since the save. If it was set back, the limiter counts too
//! little time (at least zero), so it grants nothing early. If it was set forward, the limiter
//! refills by what the additional time is worth, at most one burst for each key, and only once:
//! after the load, the limiter's clock counts by itself.
//!
//! If none of the saved states still counts at that time, the limiter starts at tick 0 instead.
//! Without this exception, a machine without a battery for its clock, whose time of day jumps by
//! decades after each start, would reach [`Tick::MAX`] after a few restarts.
//!
//! A manual clock is not changed, because its owner sets its time.
//!
//! If windows are aligned to the Unix epoch, the boundaries of the loaded limiter differ from the
//! saved boundaries by the errors of two readings of the time of day. If the difference is less
//! than a second, the loaded limiter keeps the saved boundaries. Otherwise it translates the words,
//! as a change of quota does.
//!
//! # What is in a file
//!
//! ```text
//! limiter: head, keys, pauses (if any), quota and state of the keys without a slot, time
//! single:  head, quota, state, time
//! classes: the names; then the file of each class
//! ```
//!
//! Each word is stored with the quota under which it was made, because a quota may change while the
//! file is written. The time is read last.
//!
//! A load refuses a word that the rule of its quota cannot have made. However, it accepts a word
//! that is later than the time of the save plus the capacity and the debt: if a key was in debt
//! when its quota changed, the word may be later by the debt under the earlier quota, and the file
//! does not contain that quota.
//!
//! # What holds
//!
//! 1. If a key was charged before a save began, and is not idle when the save ends, the file
//!    contains a word that the key had during the save (see `table/saved.rs`).
//! 2. A key that was forgotten before the file's mark was read is covered by the mark. The mark is
//!    read after the keys.
//! 3. A charge that the file does not contain was made after the save began. A limiter that is
//!    loaded from a file of age *a* therefore admits again at most what the saved limiter admitted
//!    in *a*, and nothing if the limiter was not used after the save began.
//! 4. A load admits nothing by itself: each state is the saved state, or its translation to another
//!    quota by `AnyRule::adopt`.
//!
//! # Progress
//!
//! A save takes no lock and delays no check. It allocates one block of 64 KiB, one part of the keys
//! at a time, and finally a list of the keys' own quotas. No other thread uses a limiter while it
//! is being loaded.

pub(super) mod format;
pub(super) mod persist;
pub(super) mod snapshot;

use super::build::builder::{Builder, Chosen};
use super::build::method::Method;
use super::keyed::classes::ClassLimiter;
use super::keyed::limiter::Limiter;
use super::pauses::Pauses;
use super::single::SingleLimiter;
use super::time_of::At;
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::error::{LoadError, Refused};
use crate::quota::Quota;
use crate::rule::AnyRule;
use crate::state::{SavedState, StateRule};
use crate::time::Tick;
use format::{FileReader, FileWriter};
use persist::{Contents, Persist};
use snapshot::{Head, JudgedKeys, SavedAt, SavedKeys, read_kind, read_state, read_text, write_state};
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Read, Write};
use std::time::Duration;

const SINGLE: &str = "one resource";
const CLASSES: &str = "classes";

/// Options of a load: the parts of a saved state that are dropped.
///
/// ```
/// use tollgate::{Limiter, LoadOptions, Quota};
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(1)).build()?;
/// for key in 0..3 {
///     assert!(limiter.check(&key).is_allowed());
/// }
/// let mut saved = Vec::new();
/// limiter.save(&mut saved)?;
///
/// let smaller = || Limiter::<u64>::builder(Quota::per_hour(1)).max_keys(2);
/// assert!(smaller().load(&saved[..]).is_err());
/// let loaded = smaller().load_with(LoadOptions::new().drop_excess_keys(), &saved[..])?;
/// // One key was dropped. Its requests find the limiter full.
/// assert_eq!(loaded.len(), 2);
/// assert!((0..4).all(|key| !loaded.check(&key).is_allowed()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "options do nothing until they are given to `load_with`"]
pub struct LoadOptions {
    drops_excess_keys: bool,
    drops_key_quotas: bool,
}

impl LoadOptions {
    /// Returns the options of [`Builder::load`]: no key is dropped, and the quotas of individual
    /// keys are restored.
    pub const fn new() -> Self {
        Self { drops_excess_keys: false, drops_key_quotas: false }
    }

    /// If the saved state contains more keys than [`max_keys`](Builder::max_keys), drops the keys
    /// that are nearest to idle. Without this option, such a state is refused. Pauses are never
    /// dropped: with or without this option, a state is refused if more than `max_keys` keys are
    /// paused.
    ///
    /// A dropped key does not get a new burst, because the limiter is full after the load. Until
    /// one of the other keys is idle, [`when_full`](Builder::when_full) decides about every new
    /// key. By that time, all dropped keys are idle. This does not hold if a reset, a refund or a
    /// change of quota makes a loaded key idle earlier, or if the limiter is later loaded with more
    /// places.
    ///
    /// Pauses are never dropped, so more pauses than `max_keys` are refused.
    pub const fn drop_excess_keys(self) -> Self {
        Self { drops_excess_keys: true, ..self }
    }

    /// Drops the quotas of individual keys, which [`Limiter::set_key_quota`] has set. The states of
    /// these keys are translated to the default quota.
    pub const fn drop_key_quotas(self) -> Self {
        Self { drops_key_quotas: true, ..self }
    }
}

impl<K: ?Sized, S: Persist> Limiter<K, S> {
    /// Writes the state of the limiter, so that [`Builder::load`] can build a limiter that
    /// continues it, usually in another process.
    ///
    /// The saved state contains the states of all keys that are not idle, the
    /// [pauses](Self::pause), the [quotas of individual keys](Self::set_key_quota), and the state
    /// that keys without a slot share ([`WhenFull::Share`](crate::WhenFull::Share)). Open
    /// reservations stay charged. Settings are not saved, because the builder of the new limiter
    /// has its own. Statistics are not saved.
    ///
    /// Other threads may check keys during the call. A charge that is made during the call may be
    /// missing from the saved state, and the loaded limiter may then admit as much again. To save
    /// every charge, call this method after the last check. With
    /// [`Fingerprints`](crate::store::Fingerprints), the saved state contains about 20 bytes for
    /// each key.
    ///
    /// The call writes blocks of 64 KiB, so `to` needs no buffer. More data may follow the state in
    /// the same file, because a load reads only the bytes of the state.
    ///
    /// If callers pass their own times ([`at`](Self::at)), save the limiter with
    /// [`At::save`](crate::At#method.save) instead.
    ///
    /// # Secrecy
    ///
    /// With `Fingerprints`, the saved state contains the seeds of the limiter's hash. Anyone who
    /// can read the saved state can find keys that share the state of a victim's key, and can test
    /// whether a guessed key was used. With [`ExactKeys`](crate::store::ExactKeys), the saved state
    /// contains the keys. Anyone who can write the saved state can clear or exhaust the limit of
    /// any key. Protect it like a password. On Unix, [`StateFile`](crate::StateFile) creates a file
    /// that only its owner can read and write.
    ///
    /// # Hashes
    ///
    /// Fingerprints are hashes, so a saved key is found only if its type still passes the same
    /// bytes to a [`Hasher`](std::hash::Hasher). A load is refused if numbers, texts, byte strings,
    /// addresses or pairs are hashed differently than before. If the [`Hash`](std::hash::Hash)
    /// implementation of your own type changes, every key is new, and a load cannot detect the
    /// change.
    ///
    /// # Errors
    ///
    /// Returns the errors of `to`. With `ExactKeys`, this method also returns an error if serde
    /// cannot write a key as JSON, such as a path that is not UTF-8.
    ///
    /// # Progress
    ///
    /// This method takes no lock, and delays no check. It allocates memory for one block, for about
    /// a thousand keys, and for the quotas of individual keys.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// let builder = || Limiter::<str>::builder(Quota::per_hour(2));
    /// let limiter = builder().build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// let mut saved = Vec::new();
    /// limiter.save(&mut saved)?;
    ///
    /// let limiter = builder().load(&saved[..])?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, mut to: impl Write) -> io::Result<()> {
        self.save_by(&mut to, &|| self.clock.now())
    }

    fn save_by(&self, to: &mut dyn Write, clock: &dyn Fn() -> Tick) -> io::Result<()> {
        let mut sink = FileWriter::begin(to)?;
        Head::of(self.method).write(S::KIND, &mut sink)?;
        SavedKeys::write(&self.store, &mut sink)?;
        sink.u8(u8::from(self.pauses.keys().is_some()))?;
        self.pauses.keys().map_or(Ok(()), |keys| SavedKeys::write(keys, &mut sink))?;
        let quota = || self.store.default_quota();
        write_last(sink, self.method, quota, || self.visit_shared(|state| state.saved()), clock)
    }
}

/// Writes the end of a file: a state without a key, with the quota under which it was made, and the
/// time.
fn write_last(
    mut sink: FileWriter<'_>,
    method: Method,
    quota: impl Fn() -> Quota,
    saved: impl Fn() -> (StateRule, SavedState),
    clock: &dyn Fn() -> Tick,
) -> io::Result<()> {
    let (quota, state) = loop {
        let quota = quota();
        let (rule, state) = saved();
        // If the rules differ, the quota has changed between the two calls.
        if method.any(quota).is_ok_and(|enforced| enforced.rule == rule) {
            break (quota, state);
        }
    };
    sink.quota(quota)?;
    write_state(&state, &mut sink)?;
    SavedAt::now(clock()).write(&mut sink)?;
    sink.end()
}

impl<K: ?Sized, S: Persist> At<'_, Limiter<K, S>> {
    /// Writes the state of the limiter as of this time, which must not be earlier than the time of
    /// any previous charge. See [`Limiter::save`].
    ///
    /// The loaded limiter continues from this time. If callers pass their own times to the loaded
    /// limiter, these times must also continue: the first of them is this time plus the time since
    /// the save.
    ///
    /// # Errors
    ///
    /// Returns the errors of `to`.
    pub fn save(&self, mut to: impl Write) -> io::Result<()> {
        self.limiter.save_by(&mut to, &|| self.now)
    }
}

impl SingleLimiter {
    /// Writes the state of the limiter, so that [`Builder::load`](Builder#method.load-1) can build
    /// a limiter that continues it. See [`Limiter::save`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `to`.
    ///
    /// ```
    /// use tollgate::{Quota, SingleLimiter};
    ///
    /// let builder = || SingleLimiter::builder(Quota::per_hour(1));
    /// let limiter = builder().build()?;
    /// assert!(limiter.check().is_allowed());
    /// let mut saved = Vec::new();
    /// limiter.save(&mut saved)?;
    /// assert!(!builder().load(&saved[..])?.check().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, mut to: impl Write) -> io::Result<()> {
        self.save_by(&mut to, &|| self.clock.now())
    }

    fn save_by(&self, to: &mut dyn Write, clock: &dyn Fn() -> Tick) -> io::Result<()> {
        let mut sink = FileWriter::begin(to)?;
        Head::of(self.method).write(SINGLE, &mut sink)?;
        write_last(sink, self.method, || self.quota(), || self.saved(), clock)
    }
}

impl At<'_, SingleLimiter> {
    /// Writes the state of the limiter as of this time, which must not be earlier than the time of
    /// any previous charge. See [`Limiter::save`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `to`.
    pub fn save(&self, mut to: impl Write) -> io::Result<()> {
        self.limiter.save_by(&mut to, &|| self.now)
    }
}

impl<K: ?Sized, S: Persist> ClassLimiter<K, S> {
    /// Writes the states of all classes, so that [`Builder::load`](Builder#method.load-2) can build
    /// a limiter that continues them. See [`Limiter::save`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `to`.
    pub fn save(&self, mut to: impl Write) -> io::Result<()> {
        let to: &mut dyn Write = &mut to;
        let mut sink = FileWriter::begin(&mut *to)?;
        sink.text(CLASSES.as_bytes())?;
        let classes: Vec<_> = self.classes().collect();
        sink.u64(classes.len() as u64)?;
        classes.iter().try_for_each(|(name, _)| sink.text(name.as_bytes()))?;
        sink.end()?;
        classes.iter().try_for_each(|(_, class)| class.save(&mut *to))
    }
}

impl<K: ?Sized, S: Persist> Builder<Limiter<K, S>> {
    /// Builds a limiter that continues a [saved](Limiter::save) one.
    ///
    /// The builder determines all settings. If its quota, debt or alignment differs from the saved
    /// limiter's, the states are translated as [`Limiter::set_quota`] translates them. With a
    /// smaller debt, a window forgets what its key owes beyond that debt. The algorithm and the
    /// kind of keys must be the same. If the saved state contains more keys that are not idle than
    /// [`max_keys`](Builder::max_keys), it is refused; [`LoadOptions`] can drop some of the keys.
    ///
    /// The limiter's clock continues the ticks of the saved limiter. The time since the save is
    /// measured once, by the time of day. If the time of day was set back, the limiter counts too
    /// little time, and grants nothing early. If the time of day was set forward, each key receives
    /// at most one burst too early. If none of the saved states still counts, the clock starts at
    /// tick 0 instead. A [`ManualClock`](crate::ManualClock) is not changed, because its owner sets
    /// its time.
    ///
    /// The limiter's clock therefore no longer agrees with other clones of the builder's clock. A
    /// caller that passes times to [`at`](Limiter::at) must read them from [`Limiter::clock`].
    ///
    /// This method reads exactly the bytes of the state from `from`, in blocks of at most 64 KiB.
    /// Before it builds the limiter, it collects the states in memory. Together with the limiter,
    /// keys take three to five times their size in the file, and quotas of individual keys fifteen
    /// times.
    ///
    /// # Errors
    ///
    /// Returns a [`LoadError`] if `from` cannot be read, if the state is unusable, or if a setting
    /// is refused. In these cases, no limiter is built.
    ///
    /// [`Limiter::save`] has an example.
    pub fn load(self, from: impl Read) -> Result<Limiter<K, S>, LoadError> {
        self.load_with(LoadOptions::new(), from)
    }

    /// Builds a limiter that continues a saved one, as [`load`](Self::load) does, with options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](Self::load).
    pub fn load_with(self, options: LoadOptions, mut from: impl Read) -> Result<Limiter<K, S>, LoadError> {
        let Self { chosen, hash } = self;
        chosen.check_align()?;
        let saved = SavedLimiter::<S>::read(&mut from)?;
        saved.head.check_algorithm(chosen.algorithm)?;
        let saved = saved.judged(hash)?;
        let (clock, is_continued) = saved.at.resume(&chosen.clock(), saved.until);
        let limiter = (chosen.algorithm, chosen.quota, chosen.max_keys);
        saved.build(&chosen, limiter, (&clock, is_continued), options)
    }
}

impl Builder<SingleLimiter> {
    /// Builds a limiter that continues a [saved](SingleLimiter::save) one.
    ///
    /// The builder determines all settings. If its quota, debt or alignment differs from the saved
    /// limiter's, the state is translated as [`SingleLimiter::set_quota`] translates it. The
    /// limiter's clock continues the ticks of the saved limiter, as described for
    /// [`Limiter`](Builder#method.load).
    ///
    /// # Errors
    ///
    /// Returns a [`LoadError`] if `from` cannot be read, if the state is unusable, or if a setting
    /// is refused.
    pub fn load(self, mut from: impl Read) -> Result<SingleLimiter, LoadError> {
        let chosen = self.chosen;
        chosen.check_align()?;
        let mut source = FileReader::begin(&mut from)?;
        let head = Head::read(SINGLE, &mut source)?;
        let (quota, state) = (source.quota()?, read_state(&mut source)?);
        let at = SavedAt::read(&mut source)?;
        source.end()?;
        head.check_algorithm(chosen.algorithm)?;
        let before = head.rule(quota)?;
        let until = state.until(&before).ok_or_else(FileReader::damaged)?;
        let (clock, is_continued) = at.resume(&chosen.clock(), until);
        let method = chosen.method_after(chosen.algorithm, &clock, head.phase);
        let leases = chosen.leases(&clock)?;
        let limiter = SingleLimiter::new(method, method.any(chosen.quota)?, clock, leases);
        if is_continued {
            limiter.state.0.restore(&before, state, limiter.clock.now());
        }
        Ok(limiter)
    }
}

impl<K: ?Sized, S: Persist> Builder<ClassLimiter<K, S>> {
    /// Builds a limiter whose classes continue the classes of a [saved](ClassLimiter::save)
    /// limiter.
    ///
    /// A class continues the saved class of the same name, as described for
    /// [`Limiter`](Builder#method.load). A class that was not saved starts without keys, and a
    /// saved class that this builder does not have is dropped. All classes have one clock, which
    /// continues the ticks of the saved classes.
    ///
    /// # Errors
    ///
    /// Returns a [`LoadError`] if `from` cannot be read, if the state of any class is unusable, or
    /// if a setting is refused.
    pub fn load(self, from: impl Read) -> Result<ClassLimiter<K, S>, LoadError> {
        self.load_with(LoadOptions::new(), from)
    }

    /// Builds a limiter that continues a saved one, as `load` does, with options.
    ///
    /// # Errors
    ///
    /// Returns the errors of `load`.
    pub fn load_with(
        self,
        options: LoadOptions,
        mut from: impl Read,
    ) -> Result<ClassLimiter<K, S>, LoadError> {
        let Self { chosen, hash } = self;
        let classes = chosen.planned_classes()?;
        let mut source = FileReader::begin(&mut from)?;
        read_kind(CLASSES, &mut source)?;
        let names: Vec<_> = (0..source.u64()?).map(|_| read_text(&mut source)).collect::<Result<_, _>>()?;
        source.end()?;
        let saved = names.into_iter().map(|name| Ok((name, SavedLimiter::<S>::read(&mut from)?)));
        let mut saved = saved.collect::<Result<HashMap<_, _>, LoadError>>()?;
        let judged = classes.into_iter().map(|class| {
            let judged = saved.remove(class.name).map(|saved| {
                saved.head.check_algorithm(class.algorithm)?;
                saved.judged(S::another(&hash))
            });
            let judged = judged.transpose().map_err(|error| class.not_loaded(error))?;
            Ok((class, judged))
        });
        let judged = judged.collect::<Result<Vec<_>, LoadError>>()?;
        // All classes have one clock, as they had before the save.
        let until = judged.iter().filter_map(|(_, saved)| Some(saved.as_ref()?.until)).max();
        let at = judged.iter().find_map(|(_, saved)| Some(saved.as_ref()?.at));
        let (clock, is_continued) = match (at, until) {
            (Some(at), Some(until)) => at.resume(&chosen.clock(), until),
            _ => (chosen.clock(), false),
        };
        let limiters = judged.into_iter().map(|(class, saved)| {
            let settings = (class.algorithm, class.quota, class.max_keys);
            let limiter = match saved {
                Some(saved) => saved.build(&chosen, settings, (&clock, is_continued), options),
                None => {
                    let (method, hash) = (chosen.method_of(class.algorithm, &clock), S::another(&hash));
                    let limiter = chosen.limiter(method, &clock, class.quota, class.max_keys, hash);
                    limiter.map_err(LoadError::from)
                }
            };
            Ok((class.name.to_owned(), limiter.map_err(|error| class.not_loaded(error))?))
        });
        Ok(ClassLimiter::new(limiters.collect::<Result<Vec<_>, LoadError>>()?.into_iter()))
    }
}

/// The contents of a limiter's file.
struct SavedLimiter<S: Persist> {
    head: Head,
    keys: SavedKeys<S::Name>,
    pauses: Option<SavedKeys<S::Name>>,
    shared: (Quota, SavedState),
    at: SavedAt,
}

impl<S: Persist> SavedLimiter<S> {
    fn read(from: &mut dyn Read) -> Result<Self, LoadError> {
        let mut source = FileReader::begin(from)?;
        let head = Head::read(S::KIND, &mut source)?;
        let keys = SavedKeys::read::<S>(&mut source)?;
        let pauses = match source.u8()? {
            0 => None,
            1 => Some(SavedKeys::read::<S>(&mut source)?),
            _ => return Err(FileReader::damaged()),
        };
        let shared = (source.quota()?, read_state(&mut source)?);
        let at = SavedAt::read(&mut source)?;
        source.end()?;
        Ok(Self { head, keys, pauses, shared, at })
    }

    /// Checks all states, before any of them is used. `hash` is the hash of the builder.
    fn judged(self, hash: S::Hash) -> Result<JudgedLimiter<S>, LoadError> {
        let Self { head, mut keys, pauses, shared: (quota, shared), at } = self;
        let pauses = pauses.map(|pauses| SavedPauses::<S>::new(pauses, &hash)).transpose()?;
        let (hash, own) = (S::hash_of(keys.hash, hash)?, std::mem::take(&mut keys.own));
        let keys = keys.judged(|quota| head.rule(quota))?;
        let shared_rule = head.rule(quota)?;
        let shared_until = shared.until(&shared_rule).ok_or_else(FileReader::damaged)?;
        let paused_until = pauses.as_ref().map_or(Tick::ZERO, |pauses| pauses.keys.until);
        let until = keys.until.max(shared_until).max(paused_until);
        Ok(JudgedLimiter { head, hash, own, keys, pauses, shared: (shared_rule, shared), at, until })
    }
}

/// A limiter from a file, whose states are possible.
struct JudgedLimiter<S: Persist> {
    head: Head,
    hash: S::Hash,
    own: Vec<(S::Name, Quota)>,
    keys: JudgedKeys<S::Name>,
    pauses: Option<SavedPauses<S>>,
    shared: (StateRule, SavedState),
    at: SavedAt,
    /// The time from which no state matters.
    until: Tick,
}

impl<S: Persist> JudgedLimiter<S> {
    /// Builds a limiter that continues this one, or one without keys. `chosen` contains the other
    /// settings.
    fn build<K: ?Sized>(
        self,
        chosen: &Chosen,
        (algorithm, quota, max_keys): (Algorithm, Quota, usize),
        (clock, is_continued): (&Clock, bool),
        options: LoadOptions,
    ) -> Result<Limiter<K, S>, LoadError> {
        let Self { head, hash, own, mut keys, pauses, shared: (shared_rule, shared), .. } = self;
        let now = clock.now();
        let method = chosen.method_after(algorithm, clock, head.phase);
        let own = if options.drops_key_quotas { Vec::new() } else { own };
        let contents = if is_continued {
            keys.drop_idle(now);
            let NewRules { rules, own: numbers } = NewRules::new(method, quota, &own)?;
            keys.translate(rules, |name| numbers.get(name).copied().unwrap_or(0), now);
            keys.fit(max_keys, options.drops_excess_keys, "not idle")?;
            let mark = keys.mark;
            Contents { own, keys: keys.into_states(), mark }
        } else {
            Contents { own, keys: Vec::new(), mark: Tick::ZERO }
        };
        let store = S::restored(chosen.settings(method, quota, max_keys), hash, contents, now)?;
        let pauses = pauses.filter(|_| is_continued);
        let pauses = pauses.map_or(Ok(None), |pauses| pauses.restored(chosen, max_keys, now))?;
        let pauses = Pauses::new(chosen.penalty, &store, pauses)?;
        let limiter = Limiter::new(method, clock.clone(), store, chosen.when_full, pauses);
        if is_continued {
            limiter.beyond.overflow.restore(&shared_rule, shared, now);
        }
        Ok(limiter)
    }
}

/// The rules of the limiter that is built: first the default, then those of keys with own quotas.
struct NewRules<N> {
    rules: Vec<StateRule>,
    own: HashMap<N, u32>,
}

impl<N: Clone + Eq + Hash> NewRules<N> {
    fn new(method: Method, quota: Quota, own: &[(N, Quota)]) -> Result<Self, Refused> {
        let quotas = std::iter::once(quota).chain(own.iter().map(|&(_, quota)| quota));
        let rules = quotas.map(|quota| Ok(method.any(quota)?.rule)).collect::<Result<_, Refused>>()?;
        Ok(Self { rules, own: own.iter().map(|(name, _)| name.clone()).zip(1..).collect() })
    }
}

/// The pauses in a limiter's file. They are the words of a second store: see `limiter/pauses.rs`.
struct SavedPauses<S: Persist> {
    keys: JudgedKeys<S::Name>,
    hash: S::Hash,
}

impl<S: Persist> SavedPauses<S> {
    fn new(keys: SavedKeys<S::Name>, hash: &S::Hash) -> Result<Self, LoadError> {
        let hash = S::hash_of(keys.hash, S::another(hash))?;
        // The rule of the second store reports every word as idle. A usual bucket with the same
        // quota reports the end of the pause, which may be any time.
        let rule =
            |quota| Ok(StateRule::Packed(AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO)?));
        Ok(Self { keys: keys.judged(rule)?, hash })
    }

    /// Returns a store with the pauses that end after `now`, and their latest end. Returns `None`
    /// if there are none, because checks are faster without a second store.
    fn restored(
        mut self,
        chosen: &Chosen,
        max_keys: usize,
        now: Tick,
    ) -> Result<Option<(S, Tick)>, LoadError> {
        self.keys.drop_idle(now);
        if self.keys.is_empty() {
            return Ok(None);
        }
        self.keys.fit(max_keys, false, "paused")?;
        let (latest, (method, quota)) = (self.keys.until, Method::of_times());
        let contents = Contents { own: Vec::new(), keys: self.keys.into_states(), mark: Tick::ZERO };
        let keys = S::restored(chosen.settings(method, quota, max_keys), self.hash, contents, now)?;
        Ok(Some((keys, latest)))
    }
}
