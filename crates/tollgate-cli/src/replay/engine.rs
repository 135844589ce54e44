//! Decides the requests of a log, as the proxy would have decided them.
//!
//! `tollgate-http` finds the limits that apply to a request, with the request's keys and classes,
//! by the same code as in the proxy. The engine then calls the limiters itself, at the times of the
//! log. A limit that counts by fields of the log (`--key`) takes its key from the line.
//!
//! All keys share one clock, which never runs backwards, as in a proxy: a request is judged at its
//! own time or at the latest time so far, whichever is later.

pub(crate) mod limit;
pub(crate) mod limiter;
pub(crate) mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Request;
use tollgate::{Algorithm, Decision, DecisionSource, ManualClock, Outcome, Quota, Tick, WhenFull};
use tollgate_http::program::{self, Applies, Fact};
use tollgate_http::settings::{Allowance, LayerSettings, LimitPart};
use tollgate_http::{KeyPart, LayerError, RateLimitLayer, WhenNoKey};

use super::key_quotas::KeyQuotas;
use super::log::key::KeyShape;
use super::log::request::Arrived;
use super::position::Position;
use crate::failure::Failure;
use crate::layer_error::refused;
use crate::printable::printable;
use limit::{Limit, NO_KEY, write_key};
use limiter::{ClassLimiter, LimiterSettings};
use trial::{Applied, Asked, Limiters, Trial};

/// The limits of a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayLimits {
    pub(crate) layer: LayerSettings,
    /// The names of the limits that count by fields of the log. Their texts have the key `nothing`.
    pub(crate) by_fields: BTreeSet<String>,
    /// The number of these fields.
    pub(crate) fields: usize,
    /// Whether requests cost other than 1.
    pub(crate) has_costs: bool,
    pub(crate) exact_keys: bool,
}

impl ReplayLimits {
    fn is_by_fields(&self, part: &LimitPart) -> bool {
        self.by_fields.contains(&part.text_name)
    }

    /// Returns whether every limit applies to every request, by fields of the log.
    pub(crate) fn are_by_fields(&self) -> bool {
        self.layer.except.is_empty() && self.layer.limits.iter().all(|it| self.by_fields.contains(&it.name))
    }

    /// Returns whether every limit applies to every request, by fields of the log or by the address
    /// of the client, so that the engine does not have to assemble HTTP requests.
    fn are_plain(&self) -> bool {
        let is_plain = |limit| program::is_by_address(limit) || self.by_fields.contains(&limit.name);
        self.layer.except.is_empty() && self.layer.limits.iter().all(is_plain)
    }

    /// Returns a limiter for the layer. The layer never calls the limiter. If a proxy could not
    /// have the limit, because it counts by fields or because requests have costs, the limiter gets
    /// a quota that is always valid, and only the engine checks the limit's own quota.
    fn uncalled(&self, part: &LimitPart) -> Result<program::LocalLimiter, LayerError> {
        if !self.has_costs && !self.is_by_fields(part) {
            return program::local(&self.layer, part, None);
        }
        let any = |allowance: &mut Allowance| match allowance {
            Allowance::Rate(_) => *allowance = Allowance::Rate(Quota::per_second(1)),
            Allowance::AtOnce(most) => *most = 1,
            Allowance::Unlimited | Allowance::Blocked => {}
        };
        let mut part = part.clone();
        any(&mut part.allowance);
        part.classes.iter_mut().for_each(|(_, allowance)| any(allowance));
        let settings =
            LayerSettings { algorithm: Algorithm::TokenBucket, max_keys: 1, ..LayerSettings::default() };
        program::local(&settings, &part, None)
    }

    /// Checks all settings as the proxy does, and returns the limit parts that together enforce
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if the proxy would refuse the settings.
    pub(crate) fn parts(&self) -> Result<Vec<LimitPart>, Failure> {
        let mut parts = Vec::new();
        let builder = self.layer.builder_with(|part| {
            parts.push(part.clone());
            self.uncalled(part)
        });
        // If all limits are in shadow mode, the builder accepts them only with a listener.
        let built = builder.and_then(|builder| builder.on_decision(|_| {}).build());
        built.map_err(|error| refused(&error))?;
        Ok(parts)
    }
}

/// An algorithm with its trial, or with the reason why it does not accept the limits. The reason
/// begins with the option that gives what was refused.
pub(crate) struct Entry {
    pub(crate) algorithm: Algorithm,
    pub(crate) trial: Result<Box<Trial>, String>,
}

/// The classes of requests that a limit does not define, each with its number of requests.
pub(crate) type UnknownClasses = BTreeMap<String, u64>;

/// The limits, which decide requests at the times of a log.
pub(crate) struct Engine {
    /// Finds the limits that apply. `None` if every limit applies to every request, by fields of
    /// the log or by the address of the client.
    layer: Option<RateLimitLayer>,
    /// For each limit, what happens to requests without an address, or `None` if the limit does not
    /// count by the address alone.
    by_address: Vec<Option<WhenNoKey>>,
    /// How many bits of an IPv6 address count.
    ipv6_prefix: u8,
    pub(crate) limits: Vec<Limit>,
    /// The algorithms, in the order of [`Algorithm::ALL`].
    pub(crate) entries: Vec<Entry>,
    /// The index of the algorithm whose decisions are reported.
    main: usize,
    now: Tick,
    has_begun: bool,
    unknown: Arc<Mutex<BTreeMap<String, UnknownClasses>>>,
    /// The limits that apply to the current request, those that refuse it without counting it, and
    /// those that let it pass without a key.
    applied: Vec<Applied>,
    refusing: Vec<Applied>,
    without_key: Vec<usize>,
    /// The keys of the current request.
    keys: Vec<u8>,
}

/// The answer to a request.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    /// The time at which the request was judged.
    pub(crate) at: Tick,
    /// Why the request was refused, or `None` if it passed.
    pub(crate) outcome: Option<&'static str>,
    /// The limit that refused the request, or the limit with the fewest tokens left. `None` if no
    /// limit applies.
    pub(crate) by: Option<Applied>,
    /// The index of this limit among those that counted the request.
    place: Option<usize>,
}

impl Answer {
    pub(crate) fn passes(&self) -> bool {
        self.outcome.is_none()
    }
}

/// What an engine is built from besides its limits.
pub(crate) struct Building<'b> {
    pub(crate) parts: &'b [LimitPart],
    /// Whether a limit that needs a header or a query parameter uses the key and the class recorded
    /// for the request.
    pub(crate) goes_by_record: bool,
    /// Whether all algorithms run.
    pub(crate) compares: bool,
    /// Whether the report shows all algorithms, and not only one that accepts the limits.
    pub(crate) shows_all: bool,
    pub(crate) key_quotas: Option<&'b KeyQuotas>,
}

impl Engine {
    /// # Errors
    ///
    /// Returns an error if the algorithm does not accept the limits or, in a comparison, if no
    /// algorithm accepts them.
    pub(crate) fn new(limits: &ReplayLimits, building: &Building<'_>) -> Result<Self, Failure> {
        let unknown = Arc::default();
        let layer = match limits.are_plain() {
            true => None,
            false => Some(layer(limits, building.goes_by_record, &unknown).map_err(|error| refused(&error))?),
        };
        let settings = &limits.layer;
        let limit = |part: &LimitPart| {
            let is_shadow = settings.shadows.contains(&part.text_name);
            let fields = limits.is_by_fields(part).then(|| KeyShape::new(limits.fields));
            Limit::new(part.clone(), is_shadow, fields, settings.ipv6_prefix)
        };
        let mut all: Vec<Limit> = building.parts.iter().map(limit).collect();
        if let Some(own) = building.key_quotas {
            for limit in all.iter_mut().filter(|limit| limit.fields.is_some()) {
                own.quotas.iter().for_each(|own| _ = limit.keys.id(&own.key));
            }
        }
        let entries: Vec<Entry> = Algorithm::ALL
            .into_iter()
            .filter(|algorithm| building.compares || *algorithm == settings.algorithm)
            .map(|algorithm| {
                let trial = trial(algorithm, limits, &all, building.key_quotas).map(Box::new);
                Entry { algorithm, trial }
            })
            .collect();
        let main = main(&entries, settings, building)?;
        let by_address =
            all.iter().map(|limit| program::when_no_key(&limit.part).filter(|_| limit.fields.is_none()));
        Ok(Self {
            layer,
            by_address: by_address.collect(),
            ipv6_prefix: settings.ipv6_prefix,
            limits: all,
            entries,
            main,
            now: Tick::ZERO,
            has_begun: false,
            unknown,
            applied: Vec::new(),
            refusing: Vec::new(),
            without_key: Vec::new(),
            keys: Vec::new(),
        })
    }

    /// Returns whether the engine needs HTTP requests, and not only keys and times.
    pub(crate) fn reads_requests(&self) -> bool {
        self.layer.is_some()
    }

    /// Decides a request with all algorithms, and returns the answer of the one that is reported.
    /// `key` is the key of limits by fields.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        request: &Request<()>,
        arrived: &Arrived,
        key: &[u8],
        position: Position,
    ) -> Answer {
        let Arrived { at, cost, duration_ns, ip, .. } = *arrived;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.trials().for_each(|trial| trial.begin(at));
        }
        self.now = self.now.max(at);
        let is_refused = self.find(request, ip, key);
        let asked = Asked {
            applied: &self.applied,
            refusing: &self.refusing,
            is_refused,
            now: self.now,
            duration_ns,
            cost,
            position,
        };
        let mut binding = None;
        for (number, entry) in self.entries.iter_mut().enumerate() {
            if let Ok(trial) = &mut entry.trial {
                let found = trial.judge(&self.limits, &asked);
                if number == self.main {
                    binding = found;
                }
            }
        }
        self.count(binding, is_refused)
    }

    /// Finds the limits that apply to a request. Returns whether the last of the refusing limits
    /// refuses the request.
    #[inline]
    fn find(&mut self, request: &Request<()>, ip: Option<IpAddr>, key: &[u8]) -> bool {
        let Self { layer, by_address, ipv6_prefix, limits, applied, refusing, without_key, keys, .. } = self;
        applied.clear();
        refusing.clear();
        without_key.clear();
        keys.clear();
        let mut is_refused = false;
        let mut add = |limit: usize, applies: Applies<'_>| {
            let it = &mut limits[limit];
            let key_start = keys.len();
            let (class, refuses) = match applies {
                Applies::Key(class, parts) => {
                    match it.fields {
                        Some(_) => keys.extend_from_slice(key),
                        None => write_key(parts, keys),
                    }
                    match it.classes[class].1 {
                        Allowance::Unlimited => return true,
                        Allowance::Blocked => (class, true),
                        Allowance::Rate(_) | Allowance::AtOnce(_) => (class, false),
                    }
                }
                Applies::WithoutKey => {
                    without_key.push(limit);
                    return true;
                }
                Applies::Refuses => {
                    keys.extend_from_slice(NO_KEY);
                    (it.classes.len(), true)
                }
            };
            let id = it.keys.id(&keys[key_start..]);
            let found = Applied { limit, class, id, key_start, key_end: keys.len() };
            if refuses {
                refusing.push(found);
                is_refused = !it.is_shadow;
                return !is_refused;
            }
            applied.push(found);
            true
        };
        match layer {
            Some(layer) => program::applicable(layer, request, add),
            None => {
                for (limit, by_address) in by_address.iter().enumerate() {
                    let goes_on = match (by_address, ip) {
                        (None, _) => add(limit, Applies::Key(0, &[])),
                        (Some(_), Some(ip)) => {
                            add(limit, Applies::Key(0, &[KeyPart::address(ip, *ipv6_prefix)]))
                        }
                        (Some(WhenNoKey::Share), None) => add(limit, Applies::Key(0, &[KeyPart::Missing])),
                        (Some(WhenNoKey::Allow), None) => add(limit, Applies::WithoutKey),
                        (Some(_), None) => add(limit, Applies::Refuses),
                    };
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        // Such a refusal comes before the limits are checked.
        if is_refused {
            applied.clear();
        }
        for it in applied.iter().chain(refusing.iter()) {
            limits[it.limit].keys.count(it.id);
        }
        is_refused
    }

    /// Counts the answers of the limits, and returns the answer to the request.
    #[inline]
    fn count(&mut self, binding: Option<usize>, is_refused: bool) -> Answer {
        let Self { limits, entries, main, applied, refusing, without_key, .. } = self;
        let decisions = entries[*main].trial.as_ref().map_or(&[][..], |trial| trial.decisions());
        let mut answer = Answer { at: self.now, outcome: None, by: None, place: None };
        for it in refusing.iter() {
            let limit = &mut limits[it.limit];
            let (is_shadow, has_key) = (limit.is_shadow, it.class < limit.classes.len());
            let counts = if has_key { limit.class(it.class) } else { limit.without_key() };
            match (is_shadow, has_key) {
                (true, _) => counts.would_refuse += 1,
                (false, true) => counts.blocked += 1,
                (false, false) => counts.no_key += 1,
            }
            if !is_shadow {
                answer.outcome = Some(if has_key { "blocked" } else { "no-key" });
                answer.by = Some(*it);
            }
        }
        let is_refused = is_refused || binding.is_some();
        // There are decisions only on the limits that have counted the request.
        for (it, decision) in applied.iter().zip(decisions) {
            let Some(decision) = decision else { continue };
            let limit = &mut limits[it.limit];
            let is_shadow = limit.is_shadow;
            let counts = limit.class(it.class);
            match decision.is_allowed() {
                true if is_refused => counts.refused_by_another += 1,
                true => counts.passed += 1,
                false if is_shadow => counts.would_refuse += 1,
                false => match reason(decision) {
                    "full" => counts.full += 1,
                    "paused" => counts.paused += 1,
                    _ => counts.denied += 1,
                },
            }
        }
        let remaining = |place: &usize| decisions[*place].as_ref().map_or(u64::MAX, Decision::remaining);
        let place = match (binding, applied.len()) {
            (None, 2..) => (0..applied.len()).min_by_key(remaining),
            (binding, _) => binding.or(Some(0)),
        };
        if let Some((place, by)) = place.and_then(|place| Some((place, applied.get(place)?))) {
            (answer.by, answer.place) = (Some(*by), Some(place));
            if binding.is_some() {
                answer.outcome = decisions[place].as_ref().map(reason);
            }
        }
        for limit in without_key.iter() {
            let counts = limits[*limit].without_key();
            match is_refused {
                true => counts.refused_by_another += 1,
                false => counts.passed_without_key += 1,
            }
        }
        answer
    }

    /// Returns the decision of the limit that gave the last answer, unless the limit refused the
    /// request without counting it.
    pub(crate) fn decision(&self, answer: &Answer) -> Option<&Decision> {
        self.main()?.decisions().get(answer.place?)?.as_ref()
    }

    fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.entries.iter().filter_map(|entry| entry.trial.as_deref().ok())
    }

    /// Returns the trial whose decisions are reported.
    pub(crate) fn main(&self) -> Option<&Trial> {
        self.entries[self.main].trial.as_deref().ok()
    }

    /// Returns the algorithm whose decisions are reported.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.entries[self.main].algorithm
    }

    /// Returns the limits that counted the last request, or refused it without counting it.
    #[cfg(feature = "html")]
    pub(crate) fn applied(&self) -> impl Iterator<Item = &Applied> {
        self.applied.iter().chain(&self.refusing)
    }

    /// Returns the printable form of the last request's key in a limit.
    pub(crate) fn shown(&self, of: &Applied) -> String {
        self.limits[of.limit].shown(&self.keys[of.key_start..of.key_end])
    }

    /// Returns, for each limit, the classes of requests that it does not define.
    pub(crate) fn unknown_classes(&self) -> MutexGuard<'_, BTreeMap<String, UnknownClasses>> {
        locked(&self.unknown)
    }
}

/// Builds the layer that finds the limits of a request.
fn layer(
    limits: &ReplayLimits,
    goes_by_record: bool,
    unknown: &Arc<Mutex<BTreeMap<String, UnknownClasses>>>,
) -> Result<RateLimitLayer, LayerError> {
    let lacking = |fact: &Fact| goes_by_record && fact.is_of_few_logs();
    let unknown = Arc::clone(unknown);
    program::builder_recorded(&limits.layer, |part| limits.uncalled(part), lacking)?
        .on_decision(|_| {})
        .on_unknown_class(move |limit, class| {
            let mut unknown = locked(&unknown);
            *unknown.entry(limit.to_owned()).or_default().entry(class.to_owned()).or_default() += 1;
        })
        .build()
}

/// Returns why a limiter refuses a request, as the proxy names this outcome.
fn reason(decision: &Decision) -> &'static str {
    match decision.source() {
        _ if decision.outcome() == Outcome::TooCostly => "denied",
        DecisionSource::Policy => "full",
        DecisionSource::Pause => "paused",
        _ => "denied",
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the trial of an algorithm. An algorithm that supports no burst enforces the quotas
/// without their bursts, unless the settings name this algorithm: a burst is then an error.
fn trial(
    algorithm: Algorithm,
    limits: &ReplayLimits,
    all: &[Limit],
    own: Option<&KeyQuotas>,
) -> Result<Trial, String> {
    let tried = |quota: Quota| match algorithm.has_burst() || algorithm == limits.layer.algorithm {
        true => quota,
        false => Quota::new(quota.tokens(), quota.period()),
    };
    let LayerSettings { max_keys, when_full, .. } = limits.layer;
    let settings = LimiterSettings { algorithm, when_full, exact_keys: limits.exact_keys };
    let limiters = || -> Result<Limiters, String> {
        let clock = ManualClock::new();
        let mut by_limit = Vec::new();
        for limit in all {
            // A limit without a key has one state.
            let is_keyed = limit.fields.is_some() || program::key_text(&limit.part).is_some();
            let max_keys = if is_keyed { program::max_keys_of_each_class(&limit.part, max_keys) } else { 1 };
            let mut classes = Vec::new();
            for (class, allowance) in &limit.classes {
                let allowance = match allowance {
                    Allowance::Rate(quota) => Allowance::Rate(tried(*quota)),
                    other => *other,
                };
                let limiter = ClassLimiter::new(allowance, limit.part.penalty, max_keys, settings, &clock);
                let limiter = limiter.map_err(|error| {
                    let class = class.as_ref().map_or(String::new(), |class| format!("class {class:?}: "));
                    match limit.fields {
                        Some(_) if error.setting() == "max_keys" => format!("--max-keys: {error}"),
                        Some(_) => format!("--limit: {error}"),
                        None => format!("--limit '{}': {class}{error}", limit.name()),
                    }
                })?;
                classes.push(limiter);
            }
            if let Some(own) = own.filter(|_| limit.fields.is_some()) {
                set_key_quotas(&classes[0], own, settings, tried)?;
            }
            by_limit.push(classes);
        }
        Ok(Limiters::new(by_limit, clock))
    };
    // While a client waits, a limiter may admit another of its requests: a request that costs less,
    // that belongs to another class, or whose key has received a place of its own.
    let may_differ =
        limits.has_costs || when_full == WhenFull::Share || all.iter().any(|limit| limit.classes.len() > 1);
    let of_compliant = if may_differ { Some(limiters()?) } else { None };
    Ok(Trial::new(algorithm, limiters()?, of_compliant))
}

/// Gives keys their own quotas. The keys have the first ids, in order.
fn set_key_quotas(
    limiter: &ClassLimiter,
    own: &KeyQuotas,
    settings: LimiterSettings,
    tried: impl Fn(Quota) -> Quota,
) -> Result<(), String> {
    let ids: Vec<usize> = (0..own.quotas.len()).collect();
    let quotas = ids.iter().zip(&own.quotas).map(|(id, own)| (id, tried(own.quota)));
    limiter.set_key_quotas(quotas).map_err(|error| {
        // The error does not name the key with the refused quota, so each quota is tried alone.
        let is_refused = |quota| {
            let allowance = Allowance::Rate(tried(quota));
            ClassLimiter::new(allowance, None, 1, settings, &ManualClock::new()).is_err()
        };
        let refused = own.quotas.iter().find(|own| is_refused(own.quota));
        let place = refused.map_or_else(|| format!("--quotas {}", own.name()), |refused| own.place(refused));
        format!("{place}: {error}")
    })
}

/// Returns the index of the algorithm whose decisions are reported: the algorithm of the settings
/// or, if it does not accept the limits of a comparison, the first algorithm that does.
fn main(entries: &[Entry], settings: &LayerSettings, building: &Building<'_>) -> Result<usize, Failure> {
    let mut reasons = Vec::new();
    let mut accepting = Vec::new();
    for (number, Entry { algorithm, trial }) in entries.iter().enumerate() {
        match trial {
            Ok(_) if *algorithm == settings.algorithm => return Ok(number),
            Ok(_) => accepting.push(number),
            Err(why) if !building.shows_all && *algorithm == settings.algorithm => {
                return Err(Failure::refused(why));
            }
            Err(why) => reasons.push(format!("\n  {algorithm}: {why}")),
        }
    }
    accepting.first().copied().ok_or_else(|| {
        let own =
            building.key_quotas.map_or(String::new(), |own| format!(" and the quotas of {}", own.name()));
        let limits: Vec<String> = settings.limits.iter().map(|it| printable(it.name.as_bytes())).collect();
        Failure::Refused(format!(
            "--compare: no algorithm accepts {}{own}:{}",
            limits.join(", "),
            reasons.concat()
        ))
    })
}
