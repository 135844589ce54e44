//! The settings of a layer, and how a layer is built from them.

use super::local::LocalLimiter;
use crate::class::by::ClassBy;
use crate::class::table::Table;
use crate::client::address::DEFAULT_IPV6_PREFIX;
use crate::client::forwarded::{ForwardedField, TrustedProxies};
use crate::error::{Fault, LayerError};
use crate::head::RequestHead;
use crate::key::by::{How, KeyBy};
use crate::layer::builder::RateLimitBuilder;
use crate::layer::service::RateLimitLayer;
use crate::limit::backend::Backend;
use crate::limit::named::Limit;
use crate::limit::saved::SavedLimits;
use crate::path::template::PathTemplate;
use crate::text::allowance::Allowance;
use crate::text::classes::{ClassByText, ListedText};
use crate::text::limit::{KeyText, LimitPart, LimitText, PartText};
use crate::text::scope::{Doubtful, Scope};
use crate::text::statuses::Statuses;
use crate::warning::BuildWarning;
use http::StatusCode;
use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate::{Algorithm, Clock, WhenFull};

/// The settings of a layer: everything needed to build a [`RateLimitLayer`] from arguments or from
/// a file.
///
/// ```
/// use tollgate_http::settings::LayerSettings;
///
/// let settings = LayerSettings {
///     limits: vec!["all=5000/s by nothing".parse()?, "per-ip=100/s by ip".parse()?],
///     max_keys: 100_000,
///     except: vec!["/health or preflight".parse()?],
///     ..LayerSettings::default()
/// };
/// let layer = settings.builder()?.build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the feature `serde`, the settings can be read from a file that uses [these
/// names](crate::settings).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields, rename_all = "kebab-case")
)]
pub struct LayerSettings {
    /// The limits: `limit` in a file. A request must pass all of them.
    #[cfg_attr(feature = "serde", serde(rename = "limit"))]
    pub limits: Vec<LimitText>,
    /// The algorithm that enforces the limits; the token bucket by default.
    pub algorithm: Algorithm,
    /// The maximum number of keys that each limit may track; a million by default.
    pub max_keys: usize,
    /// What happens to a new key when a limit already tracks its maximum number of keys. By
    /// default, the new key is denied.
    pub when_full: WhenFull,
    /// The names of the limits in shadow mode, which decide but never refuse: `shadow` in a file.
    #[cfg_attr(feature = "serde", serde(rename = "shadow"))]
    pub shadows: Vec<String>,
    /// The status of refusals, from 400 to 599; 429 by default.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::read::status", serialize_with = "super::read::write_status")
    )]
    pub status: StatusCode,
    /// Scopes of requests that are exempt from all limits.
    pub except: Vec<Scope>,
    /// The templates for keys by `path`: `path-template` in a file. By default, each path is a
    /// separate key, in its [canonical form](crate::RequestHead::path); see
    /// [`KeyBy::path_templates`].
    #[cfg_attr(feature = "serde", serde(rename = "path-template"))]
    pub path_templates: Vec<PathTemplate>,
    /// How many bits of an IPv6 address identify a client, from 1 to 128; 64 by default.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::read::ipv6_prefix"))]
    pub ipv6_prefix: u8,
    /// The networks of trusted proxies, which report the client's address: see
    /// [`TrustedProxies::networks`]. If neither this list nor [`trust_hops`](Self::trust_hops) is
    /// set, the client is the peer.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::read::networks"))]
    pub trust: Vec<String>,
    /// The number of proxies that each request passes: [`TrustedProxies::hops`].
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::read::hops", skip_serializing_if = "Option::is_none")
    )]
    pub trust_hops: Option<usize>,
    /// The field in which trusted proxies report the client's address; `X-Forwarded-For` by
    /// default. Any other field is an error if no proxy is trusted, because it would never be read.
    pub forwarded_field: ForwardedField,
    /// Statuses of responses by the names of limits. Such a limit keeps its charge only if the
    /// response has one of the statuses, as with [`Limit::charge_if`]: with `logins` and `401`, a
    /// limit counts wrong passwords. Of a limit with several [parts](LimitPart), this applies to
    /// the rates, not to requests at once.
    pub charge_if: BTreeMap<String, Statuses>,
}

impl Default for LayerSettings {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            algorithm: Algorithm::TokenBucket,
            max_keys: 1_000_000,
            when_full: WhenFull::Deny,
            shadows: Vec::new(),
            status: StatusCode::TOO_MANY_REQUESTS,
            except: Vec::new(),
            path_templates: Vec::new(),
            ipv6_prefix: DEFAULT_IPV6_PREFIX,
            trust: Vec::new(),
            trust_hops: None,
            forwarded_field: ForwardedField::XForwardedFor,
            charge_if: BTreeMap::new(),
        }
    }
}

/// The maximum number of different quotas in a file of classes, not counting the quotas of named
/// classes.
const MAX_LISTED: usize = 64;

/// Scopes, with the way to find the client's address if a scope depends on it.
struct Scopes {
    scopes: Vec<Scope>,
    client: Option<How>,
}

impl Scopes {
    fn hold(&self, head: RequestHead<'_>, doubtful: Doubtful) -> bool {
        let client = || self.client.as_ref()?.address(head);
        self.scopes.iter().any(|scope| scope.holds(head, doubtful, client))
    }
}

/// Creates an error about this limit's key, or about its callers' classes.
fn of_limit(text: &LimitText, error: Fault) -> LayerError {
    Fault::Key { limit: text.name.clone(), error: Box::new(error) }.into()
}

impl LayerSettings {
    /// Returns a builder for a layer with these limits. All of its limiters are process-local.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`builder_with`](Self::builder_with), and an error if the algorithm
    /// does not support a quota or the number of keys.
    pub fn builder(&self) -> Result<RateLimitBuilder, LayerError> {
        self.builder_from(SavedLimits::default())
    }

    /// Returns a builder for a layer whose limits continue the counts that an earlier layer has
    /// [saved](RateLimitLayer::save). All of its limiters are process-local.
    ///
    /// The settings are those of this value. A limit continues the saved limit of the same name,
    /// with a translation of its counts if the quota differs, and each class continues the saved
    /// class of the same name. No setting makes the saved counts an error, and the
    /// [warnings](RateLimitBuilder::warnings) of the builder list what did not continue:
    ///
    /// - A limit or a class that was not saved begins without counts.
    /// - A limit begins without counts if its saved counts are by another key, such as `ip` instead
    ///   of `header x-api-key`, or of another algorithm, or if they are damaged. A key by address
    ///   stays the same if `trust` or `ipv6_prefix` changes, and a key by path if the templates do:
    ///   the counts of an address or a path that occurs again continue.
    /// - The counts of a limit or a class that does not exist any more are dropped.
    ///
    /// If a limit has more saved keys than `max_keys` allows, the keys that are nearest to idle are
    /// dropped; see [`LoadOptions::drop_excess_keys`](tollgate::LoadOptions::drop_excess_keys).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`builder`](Self::builder).
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate_http::settings::{LayerSettings, SavedLimits};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let limits = vec!["per-key=1/h by header x-api-key".parse()?];
    /// let settings = LayerSettings { limits, ..LayerSettings::default() };
    /// let mut saved = Vec::new();
    /// for status in [200, 429] {
    ///     let layer = match &*saved {
    ///         [] => settings.builder()?.build()?,
    ///         saved => settings.builder_from(SavedLimits::read(saved)?)?.build()?,
    ///     };
    ///     let app = layer.layer(service_fn(|_: Request<()>| async {
    ///         Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
    ///     }));
    ///     let request = Request::get("/").header("x-api-key", "secret").body(())?;
    ///     assert_eq!(pollster::block_on(app.oneshot(request))?.status(), status);
    ///     layer.save(&mut saved)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder_from(&self, mut saved: SavedLimits) -> Result<RateLimitBuilder, LayerError> {
        let builder = self.builder_with(|part| self.local(part, None, &mut saved))?;
        Ok(builder.warn_all(saved.into_warnings()))
    }

    /// Returns a builder for a layer with these limits. `make` creates the limiter for each limit,
    /// or for each of a limit's [parts](LimitPart). The limiter may be shared with other machines.
    /// If it is process-local, the caller can read or change it while the layer runs.
    ///
    /// A limit with `by nothing` in its text may use a [`SingleLimiter`](tollgate::SingleLimiter).
    /// Any other limit requires a limiter with a state for each key.
    ///
    /// This method sets names, keys, scopes, the way to find classes, and shadow mode.
    ///
    /// # Errors
    ///
    /// Returns the errors of `make`, and an error if
    ///
    /// - a name in `shadows` is not the name of a limit;
    /// - a name in `charge_if` is not the name of a limit, or the limit has no rate;
    /// - trusted proxies or path templates are not valid, even if no limit uses them;
    /// - `forwarded_field` is set and no proxy is trusted;
    /// - a limit does not apply to any request;
    /// - a key cannot be found as its text specifies, for example because the file of known keys
    ///   cannot be read;
    /// - classes cannot be found, or any client could choose its class;
    /// - a file has a class that the limit does not have.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_http::settings::LayerSettings;
    /// use tollgate_http::{Key, LayerError};
    ///
    /// let limits = vec!["per-ip=100/s by ip".parse()?];
    /// let settings = LayerSettings { limits, ..LayerSettings::default() };
    /// let limiter: Arc<Limiter<Key>> =
    ///     Arc::new(Limiter::builder(Quota::per_second(100)).max_keys(10_000).build()?);
    /// let layer = settings
    ///     .builder_with(|_| Ok::<_, LayerError>(Arc::clone(&limiter)))?
    ///     .build()?;
    /// // The limiter can be changed while the layer runs.
    /// limiter.set_quota(Quota::per_second(50))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder_with<B: Into<Backend>, E: From<LayerError>>(
        &self,
        mut make: impl FnMut(&LimitPart) -> Result<B, E>,
    ) -> Result<RateLimitBuilder, E> {
        self.check()?;
        let mut builder = RateLimitLayer::builder().status(self.status);
        for text in &self.limits {
            builder = builder.warn_all(Self::warnings_of(text));
            let scopes = text.only.iter().chain(&text.except);
            builder = builder.warn_all(self.evaded(Some(&text.name), scopes));
            for limit in self.limits_of(text, &mut make, |limit, table| self.asked(limit, text, table))? {
                builder = builder.limit(limit);
            }
        }
        let builder = builder.warn_all(self.unused_templates());
        let builder = builder.warn_all(self.evaded(None, self.except.iter()));
        let builder = builder.warn_all(self.warning_of_exemptions());
        Ok(self.exempting(builder, self.except.clone()))
    }

    /// Returns warnings about a text, whatever the other settings are.
    pub(super) fn warnings_of(text: &LimitText) -> impl Iterator<Item = BuildWarning> {
        let limit = || text.name.clone();
        let unreached = text.key.as_ref().and_then(KeyText::unreached);
        let unreached = unreached.map(|text| BuildWarning::NeverReached { limit: limit(), text });
        let everybody = text.except.as_ref().and_then(Scope::everybody);
        let everybody =
            everybody.map(|family| BuildWarning::ExemptsEverybody { limit: Some(limit()), family });
        let nothing = text.limits_nothing().then(|| BuildWarning::LimitsNothing { limit: limit() });
        [unreached, everybody, nothing].into_iter().flatten()
    }

    /// Returns a warning about the exemptions from all limits.
    pub(super) fn warning_of_exemptions(&self) -> Option<BuildWarning> {
        let family = self.except.iter().find_map(Scope::everybody)?;
        Some(BuildWarning::ExemptsEverybody { limit: None, family })
    }

    /// Returns a warning if there are path templates but no key by path.
    pub(super) fn unused_templates(&self) -> Option<BuildWarning> {
        let mut keys = self.limits.iter().filter_map(|limit| limit.key.as_ref());
        let has_path = keys.any(|key| key.alternatives.iter().flatten().any(|part| *part == PartText::Path));
        let template = self.path_templates.first().filter(|_| !has_path)?;
        Some(BuildWarning::UnusedTemplate { template: template.as_str().to_owned() })
    }

    /// Creates the limits that together enforce one limit text. `set` sets each limit's scope, key
    /// and class.
    pub(super) fn limits_of<B: Into<Backend>, E: From<LayerError>>(
        &self,
        text: &LimitText,
        make: &mut impl FnMut(&LimitPart) -> Result<B, E>,
        set: impl Fn(Limit, Option<&Arc<Table>>) -> Result<Limit, LayerError>,
    ) -> Result<Vec<Limit>, E> {
        let table = self.table(text)?;
        let mut limits = Vec::new();
        // A file of classes may list rates after a later reload.
        let mut has_rate = matches!(text.class_by, Some(ClassByText::In { .. }));
        for part in self.parts(text, table.as_deref())? {
            let limit = Limit::new(&part.name, make(&part)?);
            let limit = if part.key.is_none() { limit.by(KeyBy::nothing()) } else { limit };
            let limit = set(limit, table.as_ref())?;
            let of_key = limit.by.as_ref().and_then(KeyBy::error);
            if let Some(error) = of_key.or_else(|| limit.class_by.as_ref().and_then(ClassBy::error)) {
                return Err(of_limit(text, error.clone()).into());
            }
            let is_at_once = matches!(part.allowance, Allowance::AtOnce(_));
            let limit = match self.charge_if.get(&text.name).filter(|_| !is_at_once).cloned() {
                Some(statuses) => limit.charge_if(move |response| statuses.contain(response.status())),
                None => limit,
            };
            let of_classes = part.classes.iter().map(|(_, allowance)| allowance);
            has_rate |= of_classes.chain([&part.allowance]).any(|it| it.rate().is_some());
            let is_shadow = self.shadows.contains(&text.name);
            limits.push(if is_shadow { limit.shadow() } else { limit });
        }
        if self.charge_if.contains_key(&text.name) && !has_rate {
            return Err(LayerError::from(Fault::NothingToGiveBack { limit: text.name.clone() }).into());
        }
        Ok(limits)
    }

    /// Sets a limit's scope, key and class according to its text.
    ///
    /// # Errors
    ///
    /// Returns an error if any client could choose its class.
    pub(super) fn asked(
        &self,
        limit: Limit,
        text: &LimitText,
        table: Option<&Arc<Table>>,
    ) -> Result<Limit, LayerError> {
        let mut limit = self.scoped(limit, text);
        if let Some(key) = &text.key {
            limit = limit.by(self.key_by(key, table.map(|it| &**it))).when_no_key(key.no_key());
        }
        Ok(match self.class_by(text, table)? {
            Some(class) => limit.class_by(class),
            None => limit,
        })
    }

    /// Exempts the requests of any of these scopes from all limits.
    pub(super) fn exempting(&self, builder: RateLimitBuilder, except: Vec<Scope>) -> RateLimitBuilder {
        if except.is_empty() {
            return builder;
        }
        let except = self.scopes(except);
        builder.skip(move |head| except.hold(head, Doubtful::NotSelected))
    }

    /// Creates a process-local limiter for part of a limit. The limiter continues with its saved
    /// state, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm does not support a quota or the number of keys.
    pub(crate) fn local(
        &self,
        part: &LimitPart,
        clock: Option<&Clock>,
        saved: &mut SavedLimits,
    ) -> Result<LocalLimiter, LayerError> {
        let limiter = LocalLimiter::new(part, (self.algorithm, self.max_keys, self.when_full), clock, saved);
        limiter.map_err(|(class, error)| Fault::Limiter { limit: part.name.clone(), class, error }.into())
    }

    /// Returns the parts that together enforce a limit text, including the classes from the file
    /// named in the text.
    ///
    /// # Errors
    ///
    /// Returns an error if a class in the file is neither a name nor a quota, or if the file
    /// contains too many different quotas.
    fn parts(&self, text: &LimitText, table: Option<&Table>) -> Result<Vec<LimitPart>, LayerError> {
        let mut listed = Vec::new();
        for name in table.into_iter().flat_map(Table::names) {
            match text.class_of_text(name) {
                Ok(class) => listed.extend(class),
                Err(error) => {
                    let fault = Fault::UnknownClass {
                        limit: text.name.clone(),
                        class: name.to_owned(),
                        classes: text.class_names(),
                        why: error.to_string(),
                    };
                    return Err(fault.into());
                }
            }
        }
        if listed.len() > MAX_LISTED {
            let why = format!(
                "the file has {} different quotas: expected at most {MAX_LISTED}; give each group of keys a class",
                listed.len()
            );
            return Err(of_limit(text, Fault::KeyClasses { why }));
        }
        Ok(text.parts(&listed))
    }

    /// Returns a warning if one of these scopes depends on a header that any client can write.
    fn evaded<'s>(
        &self,
        limit: Option<&str>,
        scopes: impl Iterator<Item = &'s Scope>,
    ) -> Option<BuildWarning> {
        let header = scopes.flat_map(Scope::headers).next().filter(|_| self.proxies().is_none())?;
        Some(BuildWarning::EvadedByHeader { limit: limit.map(str::to_owned), header: header.to_string() })
    }

    /// Restricts a limit to the requests to which it applies.
    fn scoped(&self, limit: Limit, text: &LimitText) -> Limit {
        let limit = match &text.only {
            Some(only) => {
                let only = self.scopes(vec![only.clone()]);
                limit.only(move |head| only.hold(head, Doubtful::Selected))
            }
            None => limit,
        };
        match &text.except {
            Some(except) => {
                let except = self.scopes(vec![except.clone()]);
                limit.skip(move |head| except.hold(head, Doubtful::NotSelected))
            }
            None => limit,
        }
    }

    fn scopes(&self, scopes: Vec<Scope>) -> Scopes {
        let asks = scopes.iter().any(Scope::asks_for_client);
        Scopes { scopes, client: asks.then(|| self.client().checked().ok()).flatten() }
    }

    fn key_by(&self, key: &KeyText, table: Option<&Table>) -> KeyBy {
        let client = || self.client().ipv6_prefix(self.ipv6_prefix);
        key.key_by(client, || self.path(), |alternative, part| table.map(|it| it.values(alternative, part)))
    }

    /// Returns how the keys in a file of classes are found in a request; `None` without such a
    /// file. `table` determines which keys are known.
    fn listed_by(&self, text: &LimitText, table: Option<&Table>) -> Option<KeyBy> {
        let Some(ClassByText::In { what, .. }) = &text.class_by else { return None };
        Some(match what {
            ListedText::Ip => self.client().ipv6_prefix(self.ipv6_prefix),
            ListedText::Header(header) => KeyBy::header(header),
            ListedText::Query(parameter) => KeyBy::query(parameter),
            ListedText::Key => self.key_by(text.key.as_ref()?, table),
        })
    }

    /// Reads the file of classes, if the limit has one.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or contains an invalid line.
    fn table(&self, text: &LimitText) -> Result<Option<Arc<Table>>, LayerError> {
        let Some(ClassByText::In { file, .. }) = &text.class_by else { return Ok(None) };
        let Some(by) = self.listed_by(text, None) else { return Ok(None) };
        let table = by.checked().and_then(|how: How| Table::read(file.as_ref(), &how));
        table.map(|table| Some(Arc::new(table))).map_err(|error| of_limit(text, error))
    }

    /// Returns how a request's class is found; `None` without classes.
    ///
    /// # Errors
    ///
    /// Returns an error if a header names the class but no proxy is trusted, because any client
    /// could then set the header.
    fn class_by(&self, text: &LimitText, table: Option<&Arc<Table>>) -> Result<Option<ClassBy>, LayerError> {
        if let Some(ClassByText::Header(header)) = &text.class_by {
            let untrusted = || Fault::ClassHeader { limit: text.name.clone(), header: header.clone() };
            return Ok(Some(ClassBy::header(header, self.proxies().ok_or_else(untrusted)?)));
        }
        let by = self.listed_by(text, table.map(|it| &**it)).zip(table);
        Ok(by.map(|(by, table)| ClassBy::table(by, Arc::clone(table))))
    }

    /// Returns the key `path`, which is the path or, if there are templates, the path's template.
    pub(crate) fn path(&self) -> KeyBy {
        if self.path_templates.is_empty() {
            return KeyBy::path();
        }
        KeyBy::path_templates(self.path_templates.iter().map(PathTemplate::as_str))
    }

    /// Returns the key `ip` with the default prefix length. The key is the peer, or the address
    /// reported by trusted proxies. Building the layer reports invalid settings.
    pub(crate) fn client(&self) -> KeyBy {
        match self.proxies() {
            Some(proxies) => KeyBy::forwarded(self.forwarded_field.clone(), proxies),
            None => KeyBy::peer(),
        }
    }

    /// Returns the proxies in front of this process, if there are any.
    pub(crate) fn proxies(&self) -> Option<TrustedProxies> {
        let networks = || (!self.trust.is_empty()).then(|| TrustedProxies::networks(self.trust.clone()));
        self.trust_hops.map(TrustedProxies::hops).or_else(networks)
    }

    pub(super) fn check(&self) -> Result<(), LayerError> {
        let is_limit = |name: &&String| self.limits.iter().any(|limit| limit.name == **name);
        let limits = || self.limits.iter().map(|limit| limit.name.clone()).collect();
        if let Some(name) = self.shadows.iter().find(|name| !is_limit(name)) {
            return Err(Fault::Shadow { name: name.clone(), limits: limits() }.into());
        }
        if let Some(name) = self.charge_if.keys().find(|name| !is_limit(name)) {
            return Err(Fault::ChargeIf { name: name.clone(), limits: limits() }.into());
        }
        let except: Vec<&Scope> = self.except.iter().collect();
        let is_dead = |limit: &&LimitText| limit.only.as_ref().is_some_and(|only| only.is_within(&except));
        if let Some(limit) = self.limits.iter().find(is_dead) {
            return Err(Fault::NeverApplies { limit: limit.name.clone() }.into());
        }
        // These are checked even if no limit uses them.
        if let Some(error) = self.path().error() {
            return Err(error.clone().into());
        }
        self.check_client()
    }

    /// Checks how the client is found.
    pub(crate) fn check_client(&self) -> Result<(), LayerError> {
        if let (Some(hops), false) = (self.trust_hops, self.trust.is_empty()) {
            return Err(Fault::Trust { networks: self.trust.clone(), hops }.into());
        }
        match self.proxies() {
            Some(proxies) => Ok(proxies.check()?),
            None if self.forwarded_field != ForwardedField::XForwardedFor => {
                Err(Fault::ForwardedField { field: self.forwarded_field.to_string() }.into())
            }
            None => Ok(()),
        }
    }
}
