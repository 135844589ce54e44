//! The limits of a filter, and the list of all limits in force in this process.
//!
//! # State
//!
//! The list contains the limits of all filters in Envoy, each with its `filter_name`. Its
//! references are weak, so limits are dropped together with the last configuration that uses them.
//! A lock protects the list. The lock is acquired when a configuration is created or discarded,
//! never by a request. It is not held while files are read, because a worker may release the last
//! reference to a configuration, and would wait for the lock. The worker then also changes the
//! quotas of the remaining limiters, which may take a while if they have many keys.
//!
//! # Reload
//!
//! Envoy creates a new configuration while the old configuration is still in use. For each new
//! limit, the module searches the same filter's configurations, newest first, for a limit with the
//! same name. The new limit takes over the limiter of the first limit found, if both limits have
//! the same key, algorithm, maximum number of keys and policy for new keys. A class begins anew if
//! its kind of quota or, with another number of classes, its share of the keys has changed. The new
//! quota takes effect immediately, even for the old listener. When Envoy discards a configuration,
//! the quotas of the newest remaining configuration take effect. No older quota is in force in
//! between, because a limiter that lowers its quota forgets the tokens that keys have used beyond
//! the new quota.
//!
//! A limit in a store takes over a limiter only if its quotas and the settings of the store are the
//! same as well, so that tokens on lease stay in use. Otherwise, it gets a new limiter, and the
//! store keeps the counts.

use crate::abi::{self, EnvoyConfig, INFO, WARN};
use crate::counters::Counters;
use crate::log::log;
use crate::metadata::DecisionMetadata;
use crate::request::{HeadReader, StreamExtension};
use crate::runtime::StoreRuntime;
use crate::settings::Settings;
use crate::shared::{NAMES, SharedFigures, SharedPart, SharedStore};
use crate::state::{self, CountsFile, Request, StateWriter};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::EnterGuard;
use tollgate_http::program::{self, Fault, LocalLimiter, key_text, printable};
use tollgate_http::settings::{LayerSettings, LimitPart, SavedLimits};
use tollgate_http::{Backend, BuildWarning, ForwardedField, LayerError, RateLimitLayer};

/// The limits of a filter.
pub(crate) struct Limits {
    filter: String,
    settings: LayerSettings,
    parts: Vec<(LimitPart, PartLimiter)>,
    /// Writes the counts to the file of the setting `state`.
    state: Option<Arc<StateWriter>>,
    pub(crate) layer: RateLimitLayer,
    pub(crate) head: HeadReader,
    pub(crate) figures: SharedFigures,
    /// The store, which is dropped after the limiters that use it.
    shared: Option<SharedStore>,
}

/// The limiter of a part of a limit.
#[derive(Clone)]
enum PartLimiter {
    Local(LocalLimiter),
    Shared(Arc<SharedPart>),
}

impl PartLimiter {
    fn backend(&self, part: &LimitPart) -> Backend {
        match self {
            Self::Local(limiter) => limiter.clone().into(),
            Self::Shared(shared) => shared.limit.clone().backend(part),
        }
    }

    fn local(&self) -> Option<&LocalLimiter> {
        match self {
            Self::Local(limiter) => Some(limiter),
            Self::Shared(_) => None,
        }
    }

    fn shared(&self) -> Option<&Arc<SharedPart>> {
        match self {
            Self::Local(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

/// The file of a new configuration.
enum FoundState {
    /// The configuration has no file.
    None,
    /// The file of an earlier configuration of the same filter.
    InUse(Arc<StateWriter>),
    /// A file that no configuration in force uses.
    Opened(CountsFile),
}

/// The limits in force on which a new configuration builds.
struct Earlier {
    /// The limits of the same filter, newest first.
    of_filter: Vec<Arc<Limits>>,
    /// The newest limits of any filter with the same store.
    with_store: Option<Arc<Limits>>,
}

impl Earlier {
    /// Finds the limits for a new configuration with the file `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if another filter uses the file.
    fn find(filter: &str, settings: &Settings, path: Option<&Path>) -> Result<Self, String> {
        let in_force = in_force();
        let all = || in_force.iter().rev().filter_map(Weak::upgrade);
        if let Some(path) = path
            && let Some(user) = all().find(|it| it.filter != filter && it.writes(path))
        {
            let [path, other] = [path.to_string_lossy().as_bytes(), user.filter.as_bytes()].map(printable);
            return Err(format!(
                "state `{path}` is the file of the filter {other}: expected a file for each filter_name"
            ));
        }
        let has_store = |it: &Limits| Some(it.shared.as_ref()?.is_at_same_servers(settings.shared.as_ref()?));
        let with_store = all().find(|it| has_store(it) == Some(true));
        Ok(Self { of_filter: all().filter(|it| it.filter == filter).collect(), with_store })
    }
}

/// The limits in force, oldest first.
static IN_FORCE: Mutex<Vec<Weak<Limits>>> = Mutex::new(Vec::new());

fn in_force() -> MutexGuard<'static, Vec<Weak<Limits>>> {
    IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the layers of the limits in force that a file contains, newest first.
fn layers_of_file(in_force: &[Weak<Limits>], path: &Path) -> Vec<RateLimitLayer> {
    let of_file = in_force.iter().rev().filter_map(Weak::upgrade).filter(|it| it.writes(path));
    of_file.filter_map(|it| it.saved_layer()).collect()
}

impl Limits {
    /// Creates a filter's limits and puts them in force. Logs how they differ from the earlier
    /// limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings cannot be enforced. In that case, the limits in force do
    /// not change.
    pub(crate) fn load(
        filter: &str,
        settings: &Settings,
        config: *mut EnvoyConfig,
    ) -> Result<Arc<Self>, String> {
        let path = settings.own.state.as_deref().map(state::canonical);
        // Envoy creates one configuration at a time, so only `unload` changes the list meanwhile.
        let Earlier { of_filter, with_store } = Earlier::find(filter, settings, path.as_deref())?;
        let earlier: Vec<&Self> = of_filter.iter().map(|it| &**it).collect();
        let is_serving = path.is_none() || !is_validation_mode();
        let (state, saved) = match path {
            Some(path) => Self::find_state(filter, path, is_serving, &earlier)?,
            None => (FoundState::None, SavedLimits::default()),
        };
        let shared = settings.shared.clone().map(|shared| {
            let other = with_store.as_ref().and_then(|it| it.shared.as_ref());
            SharedStore::new(shared, other, !is_validation_mode())
        });
        let shared = shared.transpose()?;
        let (mut limits, rest, news) = Self::new(filter, settings, config, &earlier, saved, shared)?;
        let mut in_force = in_force();
        limits.set_allowances(|_| true)?;
        // Nothing can be refused from here on.
        limits.shared.iter_mut().for_each(SharedStore::start);
        let layer = limits.saved_layer().into_iter();
        limits.state = match state {
            FoundState::None => None,
            FoundState::InUse(state) => {
                state.add(layer.chain(layers_of_file(&in_force, state.path())).collect(), rest);
                Some(state)
            }
            FoundState::Opened(file) => {
                Some(Arc::new(StateWriter::start(file, layer.collect(), rest, is_serving)))
            }
        };
        for line in news {
            log(INFO, format_args!("{line}"));
        }
        let limits = Arc::new(limits);
        in_force.push(Arc::downgrade(&limits));
        Ok(limits)
    }

    /// Takes a filter's limits out of force. Their limiters may also belong to other configurations
    /// of the filter, whose quotas then apply again.
    pub(crate) fn unload(limits: Arc<Self>) {
        let mut in_force = in_force();
        // A new configuration that is being created may have another reference.
        in_force.retain(|it| !ptr::eq(it.as_ptr(), Arc::as_ptr(&limits)));
        let (filter, state, layer) = (limits.filter.clone(), limits.state.clone(), limits.saved_layer());
        let runtime = limits.runtime().cloned();
        limits.flush();
        drop(limits);
        let mut names = HashSet::new();
        for remaining in in_force.iter().rev().filter_map(Weak::upgrade).filter(|it| it.filter == filter) {
            // If there is no memory for a change, the limiters keep their quotas.
            let _ = remaining.set_allowances(|part| names.insert(part.name.clone()));
        }
        let last_write = state.and_then(|state| {
            state.remove(layer, layers_of_file(&in_force, state.path()));
            state.is_of_this_thread().then(|| state.path().to_owned())
        });
        // The last configuration of a file waits for the last write, and the last one with a store
        // waits for its thread. The list must not wait.
        drop(in_force);
        last_write.as_deref().into_iter().for_each(state::wait_for_last_write);
        drop(runtime);
    }

    /// Makes the thread of the stores that of the current thread until the guard is dropped.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime().map(|runtime| runtime.enter())
    }

    /// Returns the thread of the stores, if limits of this filter count in a store.
    pub(crate) fn runtime(&self) -> Option<&Arc<StoreRuntime>> {
        self.shared.as_ref()?.runtime()
    }

    /// Starts to report outstanding counts to the store. Without this call, counts that are made
    /// while an earlier report is under way might be lost with their limiter.
    fn flush(&self) {
        let Some(runtime) = self.runtime() else { return };
        for part in self.parts.iter().filter_map(|(_, limiter)| limiter.shared()) {
            let limit = part.limit.clone();
            runtime.run(Box::pin(async move { limit.flush().await }));
        }
    }

    /// Reads the figures of a filter's shared limits, for its next request.
    pub(crate) fn read_figures_now(filter: &str) {
        for limits in in_force().iter().filter_map(Weak::upgrade).filter(|it| it.filter == filter) {
            limits.parts.iter().filter_map(|(_, limiter)| limiter.shared()).for_each(|it| it.read_now());
        }
    }

    /// Writes the counts of a filter to its files.
    pub(crate) fn write_now(filter: &str, request: fn(Sender<()>) -> Request) {
        let in_force = in_force();
        let limits = in_force.iter().filter_map(Weak::upgrade).filter(|it| it.filter == filter);
        let writes = limits.filter_map(|it| it.state.as_ref().map(|state| state.request_write(request)));
        let writes: Vec<Receiver<()>> = writes.collect();
        // Nothing holds the list during a write.
        drop(in_force);
        for write in writes {
            let _ = write.recv();
        }
    }

    /// Returns the layer if the counts of its limits are in this process.
    fn saved_layer(&self) -> Option<RateLimitLayer> {
        self.shared.is_none().then(|| self.layer.clone())
    }

    fn writes(&self, path: &Path) -> bool {
        self.state.as_ref().is_some_and(|state| state.path() == path)
    }

    /// Finds the file of a filter's new configuration, and the counts with which its limits begin.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is not that of a file.
    fn find_state(
        filter: &str,
        path: PathBuf,
        is_serving: bool,
        earlier: &[&Self],
    ) -> Result<(FoundState, SavedLimits), String> {
        let in_use = earlier.iter().filter_map(|it| it.state.as_ref()).find(|state| state.path() == path);
        if let Some(state) = in_use {
            return Ok((FoundState::InUse(Arc::clone(state)), state.rest()));
        }
        state::wait_for_last_write(&path);
        let (file, saved) = CountsFile::open(filter, path, is_serving)?;
        // A later configuration may have limits that the file does not contain. The counts of an
        // earlier configuration are newer than those of a file.
        let saved = if earlier.is_empty() { saved } else { program::remaining(saved).0 };
        Ok((FoundState::Opened(file), saved))
    }

    fn new(
        filter: &str,
        settings: &Settings,
        config: *mut EnvoyConfig,
        earlier: &[&Self],
        mut saved: SavedLimits,
        shared: Option<SharedStore>,
    ) -> Result<(Self, SavedLimits, Vec<String>), String> {
        let _entered = shared.as_ref().and_then(|shared| shared.runtime()).map(|runtime| runtime.enter());
        let mut parts: Vec<(LimitPart, PartLimiter)> = Vec::new();
        let mut news = Vec::new();
        // Envoy acts as the proxy in front of the limits. The peer's address is the client address
        // that Envoy or the `HeadReader` has determined.
        let behind_envoy = LayerSettings {
            trust: Vec::new(),
            trust_hops: Some(1),
            forwarded_field: ForwardedField::XForwardedFor,
            ..settings.limits.clone()
        };
        let make = |part: &LimitPart| -> Result<Backend, Refused> {
            let limit = match &shared {
                Some(shared) => {
                    let (algorithm, max_keys) = (behind_envoy.algorithm, behind_envoy.max_keys);
                    shared.store().limiter(part, algorithm, max_keys).map_err(Refused)?
                }
                None => None,
            };
            let (what, limiter) = match (limit, &shared) {
                (Some(limit), Some(shared)) => {
                    let (what, kept) = kept_shared(earlier, &settings.limits, shared, part);
                    let new = || shared.part(limit, part_of_client(earlier, shared, part));
                    (what, PartLimiter::Shared(kept.unwrap_or_else(new)))
                }
                _ => {
                    let made = program::local_from(&behind_envoy, part, &mut saved)?;
                    let (what, limiter) = match kept(earlier, &settings.limits, part) {
                        Ok(Some((before, limiter))) => {
                            (change(before, part, &made.renewed(limiter)), made.continuing(limiter))
                        }
                        Ok(None) => (None, made),
                        Err(why) => (Some(format!("all keys begin anew, because {why}")), made),
                    };
                    (what, PartLimiter::Local(limiter))
                }
            };
            news.extend(what.map(|what| {
                let [filter, limit] = [filter, &part.name].map(|name| printable(name.as_bytes()));
                format!("filter {filter}, limit {limit}: {what}")
            }));
            let backend = limiter.backend(part);
            parts.push((part.clone(), limiter));
            Ok(backend)
        };
        let builder =
            program::builder_recorded(&behind_envoy, make, |_| false).map_err(|Refused(why)| why)?;
        let refused = |error: LayerError| Refused::from(error).0;
        if let Some(shared) = &shared {
            shared.store().check_limits(parts.iter().map(|(part, _)| part))?;
        }
        let filter_name = printable(filter.as_bytes());
        let warnings = builder.warnings();
        let warnings = warnings.iter().filter_map(|warning| phrased(settings, warning));
        let warnings = warnings.chain(evasions(settings));
        for warning in warnings.chain(useless_state(settings, &parts)).chain(charges(settings)) {
            log(WARN, format_args!("filter {filter_name}: {warning}"));
        }
        let (rest, not_continued) = program::remaining(saved);
        news.extend(not_continued.iter().map(|warning| format!("filter {filter_name}: {warning}")));
        let head = HeadReader::new(filter, settings).map_err(refused)?;
        let metadata = settings.own.dynamic_metadata.as_deref();
        let metadata =
            metadata.map(|namespace| DecisionMetadata::new(namespace, parts.iter().map(|(part, _)| part)));
        let kinds = parts.iter().map(|(part, limiter)| (part, limiter.shared().is_some()));
        let counters = Counters::new(config, filter, kinds);
        let of_shared = parts.iter().filter_map(|(part, limiter)| Some((part, limiter.shared()?)));
        let figures = SharedFigures::new(config, filter, of_shared);
        let layer = builder
            .status(settings.limits.status)
            .peer_from(|it: &StreamExtension| it.peer)
            .on_decision(move |event| {
                if let Some(of) = event.request.extensions().get::<StreamExtension>() {
                    counters.count(of.stream(), event);
                    if let Some(metadata) = &metadata {
                        metadata.write(of.stream(), event);
                    }
                }
            })
            .build()
            .map_err(refused)?;
        let limits = Self {
            filter: filter.to_owned(),
            settings: settings.limits.clone(),
            parts,
            state: None,
            layer,
            head,
            figures,
            shared,
        };
        Ok((limits, rest, news))
    }

    /// Gives the limiter of each part that `is_due` selects, and each of its classes, the allowance
    /// that its limit specifies.
    ///
    /// # Errors
    ///
    /// Returns an error if a limiter cannot allocate memory for the change. In that case, all
    /// limiters keep their previous allowances.
    fn set_allowances(&self, mut is_due: impl FnMut(&LimitPart) -> bool) -> Result<(), String> {
        let due = self.parts.iter().filter(|(part, _)| is_due(part));
        program::set_allowances(due.filter_map(|(part, limiter)| Some((part, limiter.local()?))))
            .map_err(|(limit, error)| format!("limit `{limit}`: {error}"))
    }
}

/// Why a configuration is refused.
struct Refused(String);

impl From<LayerError> for Refused {
    fn from(error: LayerError) -> Self {
        Self(match program::fault(&error) {
            Fault::NoLimits => {
                "0 limits would let every request through: expected at least 1, as in limit = [\"per-ip=100/s by ip\"]"
                    .to_owned()
            }
            Fault::TooManyLimits { limits, most } => format!(
                "{limits} limits, where a limit with several rates counts once for each rate: expected at most {most}, \
                 because each response names them all; leave some out, or put a second filter with the rest before \
                 this one"
            ),
            Fault::UnknownClass { limit, class, classes, .. } => {
                let [limit, class, classes] =
                    [limit, class, &classes.join(", ")].map(|name| printable(name.as_bytes()));
                format!(
                    "limit `{limit}`: the file has the class `{class}`, which the limit does not have: expected {classes}, \
                     or a quota such as 100/s, `8 at once`, `unlimited` or `blocked`; correct the file, or add \
                     `class {class} QUOTA` to the limit"
                )
            }
            // The setting is spelled `max-keys` in a configuration, and `max_keys` in code.
            Fault::Limiter { .. } => error.to_string().replace("max_keys", "max-keys"),
            _ => error.to_string(),
        })
    }
}

/// Returns a warning about a filter's limits, phrased in terms of the filter's settings. Returns
/// `None` if a setting makes the warning pointless.
fn phrased(settings: &Settings, warning: &BuildWarning) -> Option<String> {
    let BuildWarning::InventedKey { limit, key } = warning else { return Some(warning.to_string()) };
    let is_of_envoy = settings.own.of_envoy().any(|header| *key == format!("header `{header}`"));
    (!is_of_envoy).then(|| {
        format!(
            "limit {limit} counts by {key}, which any client can invent: each \
             invented one has a new quota, enough of them leave no place for others, and a client \
             that names the one of another uses up that client's quota; say which are known \
             (known FILE), name paths in path-template, add the address (+ip), or name a header \
             that Envoy sets in trust-headers"
        )
    })
}

/// Returns a warning about each header that allows any client to evade a limit.
fn evasions(settings: &Settings) -> impl Iterator<Item = String> {
    let of_limits = settings.limits.limits.iter().flat_map(|limit| {
        let name = format!("limit {} is for some requests", printable(limit.name.as_bytes()));
        program::scope_headers(limit).map(move |header| (name.clone(), header))
    });
    let exempt = settings.limits.except.iter().flat_map(program::headers_of_scope);
    let exempt = exempt.map(|header| ("except exempts some requests".to_owned(), header));
    let of_clients = |header| !settings.own.of_envoy().any(|it| it == header);
    of_limits.chain(exempt).filter(move |(_, header)| of_clients(*header)).map(|(what, header)| {
        format!(
            "{what} by the header `{header}`, which any client can write or leave out: let a \
             filter before this one set it in each request and name it in trust-headers, or use another condition"
        )
    })
}

/// Returns a warning if no limit has counts that a file could contain.
fn useless_state(settings: &Settings, parts: &[(LimitPart, PartLimiter)]) -> Option<String> {
    let local = parts.iter().filter(|(_, limiter)| limiter.local().is_some());
    let mut allowances = local.flat_map(|(part, _)| program::classes(part));
    let is_useless =
        settings.own.state.is_some() && !allowances.any(|(_, allowance)| allowance.rate().is_some());
    let why = match settings.shared {
        Some(_) => "limits that are shared through redis keep their counts there: leave it out",
        None => "requests at once end with Envoy: leave it out, or add a rate",
    };
    is_useless
        .then(|| format!("state keeps nothing, because no limit counts a rate in this Envoy, and {why}"))
}

/// Returns a warning about each limit that may charge for other responses than those of
/// `charge-if`.
fn charges(settings: &Settings) -> impl Iterator<Item = String> {
    let limits = settings.limits.charge_if.keys();
    let shared = settings.shared.as_ref();
    limits.filter_map(move |limit| shared?.charge_if_warning(NAMES, &printable(limit.as_bytes())))
}

/// Returns whether Envoy only validates its configuration. Must be called on Envoy's main thread.
#[allow(unsafe_code)]
fn is_validation_mode() -> bool {
    // SAFETY: Envoy creates configurations on its main thread.
    unsafe { abi::envoy_dynamic_module_callback_is_validation_mode() }
}

/// A limit in force with the name of a new limit.
struct SameLimit<'l> {
    of: &'l Limits,
    part: &'l LimitPart,
    limiter: &'l PartLimiter,
}

/// Finds the newest limit in force with the name of a new limit. Returns `None` if no limit in
/// force has the same name.
///
/// # Errors
///
/// If the new limit has another key, or counts in another way, returns the difference.
fn same_limit<'l>(
    earlier: &[&'l Limits],
    settings: &LayerSettings,
    part: &LimitPart,
) -> Result<Option<SameLimit<'l>>, &'static str> {
    let named = earlier.iter().find_map(|limits| {
        let (found, limiter) = limits.parts.iter().find(|(it, _)| it.name == part.name)?;
        Some(SameLimit { of: limits, part: found, limiter })
    });
    let Some(found) = named else {
        // A limit with several rates is counted under a name for each of them.
        let mut others = earlier.iter().flat_map(|limits| &limits.parts);
        return match others.any(|(it, _)| it.text_name == part.text_name) {
            true => Err("its rates or its requests at once have changed"),
            false => Ok(None),
        };
    };
    if key_text(found.part) != key_text(part) {
        return Err("its key has changed");
    }
    if found.of.settings.algorithm != settings.algorithm {
        return Err("the algorithm has changed");
    }
    Ok(Some(found))
}

/// Finds the limit in force whose limiter the new limit can take over. Returns `None` if no limit
/// in force has the same name.
///
/// # Errors
///
/// If a limit with the same name exists but its limiter cannot be taken over, returns the reason.
fn kept<'l>(
    earlier: &[&'l Limits],
    settings: &LayerSettings,
    part: &LimitPart,
) -> Result<Option<(&'l LimitPart, &'l LocalLimiter)>, &'static str> {
    let Some(before) = same_limit(earlier, settings, part)? else { return Ok(None) };
    let limiter = before.limiter.local().ok_or("its counts are no longer in a store")?;
    let of = &before.of.settings;
    if (of.max_keys, of.when_full) != (settings.max_keys, settings.when_full) {
        return Err("max-keys or when-full has changed");
    }
    Ok(Some((before.part, limiter)))
}

/// Returns the limiter in force that a limit in a store takes over, if there is one, and a
/// description of what changes for the keys.
fn kept_shared(
    earlier: &[&Limits],
    settings: &LayerSettings,
    shared: &SharedStore,
    part: &LimitPart,
) -> (Option<String>, Option<Arc<SharedPart>>) {
    let before = match same_limit(earlier, settings, part) {
        Ok(None) => return (None, None),
        Ok(Some(before)) => before,
        Err(why) => return (Some(format!("all keys begin anew, because {why}")), None),
    };
    let Some(limiter) = before.limiter.shared() else {
        return (Some("all keys have their counts in the store from now on".to_owned()), None);
    };
    let now = shared.store().settings();
    let is_same_store = before.of.shared.as_ref().is_some_and(|it| it.store().settings() == now);
    let is_same_limit =
        program::classes(before.part).eq(program::classes(part)) && before.part.penalty == part.penalty;
    if is_same_store && is_same_limit && before.of.settings.max_keys == settings.max_keys {
        return (None, Some(Arc::clone(limiter)));
    }
    let what = match is_same_store {
        true => "has a new quota or new settings, and its keys keep their counts in the store",
        false => "the settings of the store have changed, and its keys have the counts of that store",
    };
    (Some(what.to_owned()), None)
}

/// Finds the newest part in force with the name and the servers of a new limit.
fn part_of_client<'l>(
    earlier: &[&'l Limits],
    shared: &SharedStore,
    part: &LimitPart,
) -> Option<&'l SharedPart> {
    let has_servers = |it: &SharedStore| it.is_at_same_servers(shared.store().settings());
    let with_servers = earlier.iter().filter(|it| it.shared.as_ref().is_some_and(has_servers));
    let named = with_servers.flat_map(|it| &it.parts).filter(|(it, _)| it.name == part.name);
    named.filter_map(|(_, limiter)| limiter.shared()).map(|it| &**it).next()
}

/// Describes the changes of a limit that takes over a limiter, or returns `None` if its quotas are
/// the same. The classes in `renewed` begin anew.
fn change(before: &LimitPart, now: &LimitPart, renewed: &[&str]) -> Option<String> {
    if !renewed.is_empty() {
        let keys = match before.classes.is_empty() {
            true => "all keys".to_owned(),
            false => format!("the keys of class {}", renewed.join(", ")),
        };
        // The classes share the maximum number of keys.
        let why = if before.classes.len() != now.classes.len() {
            "the number of its classes has changed"
        } else if before.penalty != now.penalty {
            "its penalty has changed"
        } else {
            "its kind of quota has changed"
        };
        return Some(format!("{keys} begin anew, because {why}"));
    }
    let is_new = before.allowance != now.allowance || before.classes != now.classes;
    is_new.then(|| "keeps its keys, with a new quota".to_owned())
}
