//! Additional functions for `tollgate-cli`, `tollgate-envoy`, fuzz targets and tests. They are not
//! part of the public interface, and may change with any version.

use crate::check::limit_set::Verdict;
use crate::check::pending_refunds::PendingRefunds;
use crate::check::wait::Checking;
use crate::client::address::parse_node;
use crate::client::forwarded::TrustedProxies;
use crate::error::LayerError;
use crate::figure::Figure;
use crate::head::{RequestHead, ResponseHead};
use crate::key::by::KeyBy;
use crate::key::parts::KeyPart;
use crate::layer::builder::RateLimitBuilder;
use crate::layer::service::RateLimitLayer;
use crate::limit::any_limiter::AnyLimiter;
use crate::limit::backend::Backend;
use crate::limit::named::WhenNoKey;
use crate::limit::permits::Permits;
use crate::limit::saved::{self, Savable, SavedLimits};
use crate::metrics::Metrics;
use crate::response::fields::Fields;
use crate::settings::layer_settings::LayerSettings;
use crate::settings::local;
use crate::text::allowance::Allowance;
use crate::text::classes::{ClassByText, DEFAULT};
use crate::text::limit::{LimitPart, LimitText};
use crate::text::methods::counted;
use crate::text::scope::Scope;
use crate::warning::BuildWarning;
use bytes::Bytes;
use http::{HeaderName, Method, Request, Response};
use std::collections::HashSet;
use std::future::Future;
use std::io::{self, Write};
use std::mem;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tollgate::{Clock, QuotaError};

pub use crate::check::pending_refunds::Refunds;
pub use crate::client::watch::FieldWatch;
pub use crate::error::Fault;
pub use crate::metrics::Family;
pub use crate::path::canonical::canonical_path;
pub use crate::path::spelling::path_key;
pub use crate::path::template::PathTemplates;
pub use crate::settings::local::LocalLimiter;
pub use crate::settings::recorded::{Recorded, RecordedLimit};
pub use crate::text::fact::Fact;
pub use crate::text::limit::{KeyText, PartText};
pub use crate::text::printable::printable;
pub use crate::text::quota::parse_quota;
pub use crate::text::time::parse_time;

/// Returns the fault behind an error.
pub fn fault(error: &LayerError) -> &Fault {
    error.fault()
}

/// Returns all metrics, each with its samples.
pub fn families(metrics: &Metrics) -> Vec<Family> {
    metrics.families()
}

/// Returns the metrics in the text format of OpenMetrics, without the mark of its end.
pub fn open_metrics(metrics: &Metrics) -> String {
    metrics.text(true)
}

/// The largest number of trusted hops.
pub const MAX_HOPS: usize = TrustedProxies::MAX_HOPS;

/// Returns whether a forwarded address is trusted if the request arrives from `peer`.
pub fn trusts(proxies: &TrustedProxies, peer: IpAddr) -> bool {
    proxies.trusts(peer)
}

/// Checks trusted proxies as a layer does when it is built.
///
/// # Errors
///
/// Returns an error if a network cannot be parsed, if the networks contain every address, if there
/// is no network, or if the number of hops is out of range.
pub fn check(proxies: &TrustedProxies) -> Result<(), LayerError> {
    Ok(proxies.check()?)
}

/// Returns a limit's key; `None` if all requests are counted together.
pub fn key_text(limit: &LimitPart) -> Option<&KeyText> {
    limit.key.as_ref()
}

/// Creates a process-local limiter for part of a limit. If `clock` is given, it replaces the
/// default clock.
///
/// # Errors
///
/// Returns an error if the algorithm does not support a quota or the number of keys.
pub fn local(
    settings: &LayerSettings,
    limit: &LimitPart,
    clock: Option<&Clock>,
) -> Result<LocalLimiter, LayerError> {
    settings.local(limit, clock, &mut SavedLimits::default())
}

/// Creates a process-local limiter for part of a limit, which continues with its saved state. The
/// state is taken out of `saved`.
///
/// # Errors
///
/// Returns an error if the algorithm does not support a quota or the number of keys.
pub fn local_from(
    settings: &LayerSettings,
    limit: &LimitPart,
    saved: &mut SavedLimits,
) -> Result<LocalLimiter, LayerError> {
    settings.local(limit, None, saved)
}

/// Gives each limiter, and each of its classes, the allowance that its limit specifies.
///
/// # Errors
///
/// Returns an error, with the printable name of the limit, if a limiter cannot allocate memory for
/// the change. In that case, all limiters keep their previous allowances.
pub fn set_allowances<'l>(
    limits: impl IntoIterator<Item = (&'l LimitPart, &'l LocalLimiter)>,
) -> Result<(), (String, QuotaError)> {
    let mut changed: Vec<(LocalLimiter, Allowance)> = Vec::new();
    let all =
        |(limit, limiter)| of_classes(limit, limiter).map(move |(of, allowance)| (limit, of, allowance));
    for (limit, limiter, allowance) in limits.into_iter().flat_map(all) {
        let earlier = limiter.allowance();
        if earlier == allowance {
            continue;
        }
        if let Err(error) = limiter.set(allowance) {
            for (limiter, earlier) in changed {
                // The limiter accepts this quota, because the quota was in force a moment ago.
                let _ = limiter.set(earlier);
            }
            return Err((printable(limit.name.as_bytes()), error));
        }
        changed.push((limiter, earlier));
    }
    Ok(())
}

/// Returns the counts that no limit has continued, for limits that are created later, and what did
/// not continue so far.
pub fn remaining(saved: SavedLimits) -> (SavedLimits, Vec<BuildWarning>) {
    saved.into_remaining()
}

/// Writes the counts of several layers like [`RateLimitLayer::save`], and then `rest`, which no
/// limit has continued. If several of them contain a limit or a class, writes the first one.
///
/// # Errors
///
/// Returns the errors of `to`.
pub fn save_all<'l>(
    layers: impl Iterator<Item = &'l RateLimitLayer>,
    rest: &SavedLimits,
    to: &mut dyn Write,
) -> io::Result<()> {
    let rest = rest.savable();
    let mut all: Vec<(&str, &Savable)> = layers.flat_map(RateLimitLayer::savable).collect();
    all.extend(rest.iter().map(|(limit, savable)| (&**limit, savable)));
    let mut names = HashSet::new();
    all.retain(|(limit, savable)| names.insert((*limit, savable.class.as_deref())));
    saved::write(all.iter().copied(), to)
}

/// Returns what did not continue, after all limiters were created.
pub fn not_continued(saved: SavedLimits) -> Vec<BuildWarning> {
    saved.into_warnings().collect()
}

/// Adds a limit's blocked and unlimited classes to a backend. The other classes may be counted by
/// any limiter.
pub fn with_uncounted(backend: impl Into<Backend>, limit: &LimitPart) -> Backend {
    let mut backend = backend.into();
    let uncounted = limit.classes.iter().filter_map(|(name, allowance)| match allowance {
        Allowance::Unlimited => Some((name.clone(), AnyLimiter::Unlimited)),
        Allowance::Blocked => Some((name.clone(), AnyLimiter::Blocked)),
        Allowance::Rate(_) | Allowance::AtOnce(_) => None,
    });
    backend.classes.extend(uncounted);
    if !backend.classes.is_empty() && backend.default_name.is_none() {
        backend.default_name = Some(DEFAULT.to_owned());
    }
    backend
}

/// Returns the key `path`, which is the path or, if there are templates, the path's template.
pub fn path(settings: &LayerSettings) -> KeyBy {
    settings.path()
}

/// Returns the key `ip` with the default prefix length.
pub fn client(settings: &LayerSettings) -> KeyBy {
    settings.client()
}

/// Checks the settings that determine how the client is found.
///
/// # Errors
///
/// Returns an error if trusted proxies are not valid, or if none are trusted but a field is chosen.
pub fn check_client(settings: &LayerSettings) -> Result<(), LayerError> {
    settings.check_client()
}

/// Returns the client's address in a request; `None` if the key is not an address, or the request
/// has none.
pub fn address(by: &KeyBy, head: RequestHead<'_>) -> Option<IpAddr> {
    by.address(head)
}

/// Parses an address as trusted proxies report it, possibly with a port, brackets and a zone.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    parse_node(text)
}

/// Creates the watch for a trusted proxy that does not report its clients. Returns `None` if no
/// proxy is trusted.
pub fn field_watch(settings: &LayerSettings) -> Option<FieldWatch> {
    settings.client().walk().cloned().map(FieldWatch::new)
}

/// Returns the proxies in front of this process, if there are any.
pub fn proxies(settings: &LayerSettings) -> Option<TrustedProxies> {
    settings.proxies()
}

/// Returns the facts that a limit reads from a request. A fact may occur more than once.
pub fn facts(limit: &LimitText) -> Vec<Fact> {
    limit.facts()
}

/// Returns the facts that a scope reads from a request. A fact may occur more than once.
pub fn facts_of_scope(scope: &Scope) -> Vec<Fact> {
    scope.facts().collect()
}

/// Returns a builder for a layer that checks recorded requests. The peer of a recorded request is
/// the client. `make` creates the limiter for each [part](LimitPart) of a limit. A limit reads its
/// key and its class from [`Recorded`] if `is_lacking` returns true for any fact that the limit
/// uses.
///
/// # Errors
///
/// Returns the errors of [`LayerSettings::builder_with`].
pub fn builder_recorded<B: Into<Backend>, E: From<LayerError>>(
    settings: &LayerSettings,
    make: impl FnMut(&LimitPart) -> Result<B, E>,
    is_lacking: impl Fn(&Fact) -> bool,
) -> Result<RateLimitBuilder, E> {
    settings.builder_recorded(make, is_lacking)
}

/// Returns the classes of a limit, each with its name and its allowance. The default class is the
/// first, and it has a name only if there are others.
pub fn classes(limit: &LimitPart) -> impl Iterator<Item = (Option<&str>, Allowance)> {
    let default = (!limit.classes.is_empty()).then_some(DEFAULT);
    let others = limit.classes.iter().map(|(name, allowance)| (Some(&**name), *allowance));
    std::iter::once((default, limit.allowance)).chain(others)
}

/// Returns the limiter of each class of a limit, with the allowance of the class in the settings.
pub fn of_classes<'l>(
    limit: &'l LimitPart,
    limiter: &'l LocalLimiter,
) -> impl Iterator<Item = (LocalLimiter, Allowance)> + 'l {
    classes(limit).filter_map(|(class, allowance)| Some((limiter.class(class)?, allowance)))
}

/// Returns the maximum number of keys that each class of a limit may track.
pub fn max_keys_of_each_class(limit: &LimitPart, max_keys: usize) -> usize {
    local::max_keys_of_each_class(limit, max_keys)
}

/// Returns whether a limit applies to every request, by the address of the client alone.
pub fn is_by_address(limit: &LimitText) -> bool {
    let LimitText { key, only, except, class_by, .. } = limit;
    let is_address = |key: &KeyText| matches!(&key.alternatives[..], [only] if only[..] == [PartText::Ip]);
    only.is_none() && except.is_none() && class_by.is_none() && key.as_ref().is_some_and(is_address)
}

/// Returns what happens to requests without a limit's key; `None` if every request has a key.
pub fn when_no_key(limit: &LimitPart) -> Option<WhenNoKey> {
    limit.key.as_ref().map(KeyText::no_key)
}

/// How a limit applies to a request.
pub enum Applies<'r> {
    /// The request has this key, and its caller is in the class with this number: see [`classes`].
    Key(usize, &'r [KeyPart<'r>]),
    /// The request has no key, and the limit lets it pass.
    WithoutKey,
    /// The request has no key, or several, and the limit refuses it.
    Refuses,
}

/// Calls `visit` for each limit of a layer that applies to a request, with the limit's number in
/// the layer, until `visit` returns false. No limit is checked.
pub fn applicable<A>(
    layer: &RateLimitLayer,
    request: &Request<A>,
    mut visit: impl FnMut(usize, Applies<'_>) -> bool,
) {
    let set = layer.set();
    let head = RequestHead::with_sources(request, &set.sources);
    if set.skips.iter().any(|skips| skips(head)) {
        return;
    }
    for (number, limit) in set.limits.iter().enumerate().filter(|(_, limit)| !limit.skips(head)) {
        let unknown = |class: &str| set.listeners.unknown_class(&limit.name, class);
        let goes_on = match limit.key(head) {
            // Only a lookup that the caller of the library provides makes a request wait.
            Ok(Some(key)) => {
                visit(number, Applies::Key(limit.class_of(head, unknown).unwrap_or(0), key.parts()))
            }
            Ok(None) => visit(number, Applies::WithoutKey),
            Err(_) => visit(number, Applies::Refuses),
        };
        if !goes_on {
            return;
        }
    }
}

/// Returns the files that a limit names: the files of known keys, and the file of the callers'
/// classes.
pub fn files(limit: &LimitText) -> Vec<String> {
    limit.clone().files_mut().map(mem::take).collect()
}

/// Returns the name of the header that contains the caller's class; `None` if the limit does not
/// read the class from a header.
pub fn class_header(limit: &LimitText) -> Option<&str> {
    match &limit.class_by {
        Some(ClassByText::Header(header)) => Some(header),
        Some(ClassByText::In { .. }) | None => None,
    }
}

/// Returns the headers that decide whether a limit applies to a request.
pub fn scope_headers(limit: &LimitText) -> impl Iterator<Item = &HeaderName> {
    limit.only.iter().chain(&limit.except).flat_map(Scope::headers)
}

/// Returns the headers that decide whether a request is in a scope.
pub fn headers_of_scope(scope: &Scope) -> impl Iterator<Item = &HeaderName> {
    scope.headers()
}

/// Returns whether a method equals a registered method except for its case. Some servers handle
/// such a request as one of the registered method, and others do not know the method.
pub fn is_respelled(method: &Method) -> bool {
    counted(method) != method.as_str()
}

/// Makes the names of a limit's files relative to a folder, unless they are absolute.
pub fn files_relative_to(limit: &mut LimitText, folder: &Path) {
    limit.files_mut().for_each(|file| *file = folder.join(&*file).to_string_lossy().into_owned());
}

/// The verdict on a request without a handler in this layer.
pub enum Checked {
    /// The request passed.
    Passed(Held),
    /// A limit refused the request with this response.
    Refused(Response<Bytes>),
}

impl From<Verdict> for Checked {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Passed(fields, pending, permits, _) => Self::Passed(Held { fields, pending, permits }),
            Verdict::Refused(response) => Self::Refused(response),
        }
    }
}

/// The state of an admitted request. Dropping this state releases the request's permits in flight.
pub struct Held {
    fields: Fields,
    pending: Option<Box<PendingRefunds>>,
    permits: Permits,
}

impl Held {
    /// Returns whether the request holds no permits in flight.
    pub fn is_empty(&self) -> bool {
        self.permits.is_empty()
    }

    /// Returns whether [`answered`](Self::answered) has anything to do.
    pub fn awaits_answer(&self) -> bool {
        self.pending.is_some() || self.fields.is_some()
    }

    /// Adds the fields to a response, and keeps or gives back the charges according to the
    /// response. The permits in flight are not released. Without this call, the charges are kept
    /// and no field is added. A second call has no effect.
    ///
    /// The returned future gives the charges of shared limits back; without it, they are kept. A
    /// limit that the response body would [settle](crate::Limit::settle) keeps its estimate.
    pub fn answered<B>(&mut self, response: &mut Response<B>) -> Option<Refunds> {
        let settled = self.pending.take().map(|pending| pending.settle(Some(ResponseHead::of(response))));
        mem::take(&mut self.fields).write(response.headers_mut(), false);
        settled?.refunds
    }
}

/// Checks a request against a layer without handling it. Listeners are notified. Returns `None`,
/// without having charged anything, if a limit makes the request wait; [`check_later`] then checks
/// the request.
pub fn check_request<A>(layer: &RateLimitLayer, request: &Request<A>) -> Option<Checked> {
    layer.check_at_once(request).map(Checked::from)
}

/// Returns the check of a request that [`check_request`] does not check. Nothing is charged before
/// the first poll. Listeners are notified only while the check is polled.
///
/// If the check is dropped, the charges of shared limits are kept, and permits are released.
pub fn check_later<A>(layer: &RateLimitLayer, request: Request<A>) -> WaitingCheck {
    WaitingCheck(layer.check_later(request.into_parts().0))
}

/// A check that may have to wait for shared limits.
#[must_use = "a check charges nothing before it is polled"]
pub struct WaitingCheck(Checking);

impl Future for WaitingCheck {
    type Output = Checked;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Checked> {
        self.0.as_mut().poll(context).map(|(_, verdict)| verdict.into())
    }
}

/// Returns the name of a figure, whether its value only grows, and the value.
pub fn figure_parts(figure: &Figure) -> (&'static str, bool, u64) {
    (figure.name, figure.grows, figure.value)
}
