//! Shared limits from the settings of a program, for `tollgate-cli` and `tollgate-envoy`. This
//! module is not part of the public interface, and may change with any version.

use crate::client::Client;
use crate::connection::network::Network;
use crate::error::SharedError;
use crate::fallback::WhenUnavailable;
use crate::in_flight::{DEADLINES_IN_LIFETIME, SharedInFlight};
use crate::limiter::SharedLimiter;
use redis::{ConnectionAddr, IntoConnectionInfo};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;
use tollgate::{Algorithm, Quota};
use tollgate_http::program::{printable, with_uncounted};
use tollgate_http::settings::{Allowance, LimitPart};
use tollgate_http::{AsyncInFlight, AsyncLimiter, Backend, Figure, Key};

/// How often [`Store::watch`] reads the state of the connection. The client tracks this state, so
/// no request is sent to the store.
const STORE_LOOK: Duration = Duration::from_millis(250);

/// The lifetime of a permit that its process does not renew, unless the deadline is long.
const LIFETIME: Duration = Duration::from_secs(30);

/// The names of the settings in [`StoreSettings`]. The others have no effect without the first one.
pub const SETTINGS: [&str; 7] = [
    "redis",
    "redis-sentinel",
    "redis-deadline",
    "redis-when-unavailable",
    "redis-share",
    "redis-lease",
    "redis-max-unsynced",
];

/// The settings of a store and of the limits that count in it. The addresses may contain passwords.
#[derive(Clone, PartialEq)]
pub struct StoreSettings {
    /// The address of a server, or the addresses of a cluster's nodes with commas between them.
    /// With `sentinels`, the host of the only address is the name of the master.
    pub addresses: String,
    /// The addresses of the sentinels that know the master, with commas between them.
    pub sentinels: Option<String>,
    /// How long the store may take to answer; `None` for the library's default.
    pub deadline: Option<Duration>,
    pub when_unavailable: Option<UnavailablePolicy>,
    /// The share of each quota for [`UnavailablePolicy::Local`].
    pub share: Option<f64>,
    pub lease: Option<u64>,
    pub max_unsynced: Option<u64>,
}

/// How requests are decided while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnavailablePolicy {
    /// A limiter in this process decides.
    Local,
    Allow,
    Deny,
}

/// How a program spells its settings in messages.
#[derive(Clone, Copy)]
pub struct SettingNames {
    /// The text before the name of a setting, such as `--`.
    pub prefix: &'static str,
    /// Returns the beginning of a message about the limit with this name.
    pub limit: fn(&str) -> String,
}

/// A store, and the settings of the limits that count in it.
pub struct Store {
    settings: StoreSettings,
    names: SettingNames,
    when_unavailable: WhenUnavailable,
    client: Client,
}

/// A connection to a store, which this value does not keep open.
pub struct StoreLink(Weak<Network>);

impl StoreLink {
    /// Returns whether a limit, a permit or a task still uses the connection.
    pub fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Returns whether the connection is still used, and no failure of all servers is known.
    pub fn may_answer(&self) -> bool {
        self.0.upgrade().is_some_and(|network| network.may_answer())
    }
}

/// A limit that counts in a store.
#[derive(Clone)]
pub enum SharedLimit {
    Rate(Arc<SharedLimiter<Key>>),
    InFlight(SharedInFlight<Key>),
}

/// A line about a store for a program's log.
pub struct StoreLine {
    /// Whether the line reports a problem.
    pub is_warning: bool,
    pub text: String,
}

impl StoreSettings {
    /// Returns whether both settings name the same servers.
    pub fn is_at_same_servers(&self, other: &Self) -> bool {
        (&self.addresses, &self.sentinels) == (&other.addresses, &other.sentinels)
    }

    /// Returns a warning about a limit that charges only for some responses, if the store cannot
    /// give all other charges back.
    pub fn charge_if_warning(&self, names: SettingNames, limit: &str) -> Option<String> {
        let SettingNames { prefix, .. } = names;
        self.max_unsynced.is_some().then(|| {
            format!(
                "limit {limit}: {prefix}charge-if may count other statuses, too, because {prefix}redis-max-unsynced \
                 gives back no token that is reported to the store already; leave one of them out, or choose \
                 {prefix}redis-lease"
            )
        })
    }

    fn policy(&self, names: SettingNames) -> Result<WhenUnavailable, String> {
        let SettingNames { prefix, .. } = names;
        if let (Some(share), Some(tokens)) = (self.share, self.max_unsynced) {
            return Err(format!(
                "{prefix}redis-share {share} has no effect beside {prefix}redis-max-unsynced {tokens}, which decides \
                 without the store; leave one of them out"
            ));
        }
        let local = WhenUnavailable::Local { share: self.share.unwrap_or(1.0) };
        match (self.when_unavailable, self.share) {
            (Some(UnavailablePolicy::Allow | UnavailablePolicy::Deny), Some(share)) => Err(format!(
                "{prefix}redis-share {share} needs {prefix}redis-when-unavailable local, the default; leave one of \
                 them out"
            )),
            (None, _) if self.max_unsynced.is_some() => Ok(WhenUnavailable::Deny),
            (None | Some(UnavailablePolicy::Local), _) => Ok(local),
            (Some(UnavailablePolicy::Allow), None) => Ok(WhenUnavailable::Allow),
            (Some(UnavailablePolicy::Deny), None) => Ok(WhenUnavailable::Deny),
        }
    }

    fn client(&self, names: SettingNames) -> Result<Client, String> {
        let SettingNames { prefix, .. } = names;
        let nodes = list(&self.addresses);
        let client = match (&self.sentinels, &nodes[..]) {
            (None, [one]) => Client::open(*one),
            (None, _) => Client::cluster(nodes).build(),
            (Some(sentinels), [master]) => {
                let name = master_name(master).map_err(|why| format!("{prefix}redis: {why}"))?;
                Client::sentinel(name, list(sentinels), *master).build().map_err(|error| {
                    format!("{prefix}redis-sentinel: {error}; the addresses of sentinels have commas between them")
                }).map(Ok)?
            }
            (Some(_), _) => {
                return Err(format!(
                    "{prefix}redis has {} addresses beside {prefix}redis-sentinel: expected one, whose host is the name \
                     of the master, as in redis://mymaster; leave {prefix}redis-sentinel out for a cluster",
                    nodes.len()
                ));
            }
        };
        // The message omits the address, because the address may contain a password.
        client.map_err(|error| {
            format!(
                "{prefix}redis: {error}; an address with TLS begins with rediss://, and the nodes of a cluster have \
                 commas between them"
            )
        })
    }
}

fn list(addresses: &str) -> Vec<&str> {
    addresses.split(',').map(str::trim).collect()
}

/// Returns the host of an address, which is the name of a master. The error does not repeat the
/// address, which may contain a password.
fn master_name(address: &str) -> Result<String, &'static str> {
    let expected = "expected the name of the master in the place of a host, and no port, as in \
                    redis://:password@mymaster";
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    match address.into_connection_info().map(|info| info.addr().clone()) {
        Ok(ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. })
            if !name.is_empty() && !host.contains(':') =>
        {
            Ok(name)
        }
        _ => Err(expected),
    }
}

impl Store {
    /// Creates a store. If `other` is given, uses its connection, which must be to the same
    /// servers. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is invalid, or if settings exclude each other. The error
    /// contains no address.
    pub fn new(settings: StoreSettings, names: SettingNames, other: Option<&Self>) -> Result<Self, String> {
        let when_unavailable = settings.policy(names)?;
        let client = match other {
            Some(other) => other.client.clone(),
            None => settings.client(names)?,
        };
        Ok(Self { settings, names, when_unavailable, client })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// Returns the connection to the store.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the connection to the store, without keeping it open.
    pub fn link(&self) -> StoreLink {
        StoreLink(Arc::downgrade(&self.client.network))
    }

    /// Returns whether requests are refused while the store does not answer, by an explicit
    /// setting.
    pub fn denies_when_unavailable(&self) -> bool {
        self.settings.when_unavailable == Some(UnavailablePolicy::Deny)
    }

    /// Checks that each setting has an effect on one of a program's limits. A program without
    /// limits may have any settings.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is only for rates, and no limit has a rate.
    pub fn check_limits<'l>(&self, limits: impl IntoIterator<Item = &'l LimitPart>) -> Result<(), String> {
        let SettingNames { prefix, .. } = self.names;
        let of_rates =
            [("redis-lease", self.settings.lease), ("redis-max-unsynced", self.settings.max_unsynced)];
        let set = of_rates.into_iter().find_map(|(name, tokens)| Some((name, tokens?)));
        let mut limits = limits.into_iter().peekable();
        match set {
            Some((name, tokens))
                if limits.peek().is_some() && limits.all(|it| it.allowance.rate().is_none()) =>
            {
                Err(format!(
                    "{prefix}{name} {tokens} has no effect, because it is for rates, and no limit has one: expected a \
                     rate, such as 100/s; add one to a limit, or leave {prefix}{name} out"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Builds the limiter for a part of a limit. Returns `None` if the part counts nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot enforce the limit.
    pub fn limiter(
        &self,
        limit: &LimitPart,
        algorithm: Algorithm,
        max_keys: usize,
    ) -> Result<Option<SharedLimit>, String> {
        let counted: Vec<&Allowance> = limit.classes.iter().map(|(_, allowance)| allowance).collect();
        let counts = |it: &Allowance| matches!(it, Allowance::Rate(_) | Allowance::AtOnce(_));
        match limit.allowance {
            Allowance::Rate(quota) if !counted.iter().any(|it| matches!(it, Allowance::AtOnce(_))) => {
                self.rate(limit, quota, algorithm, max_keys).map(|limiter| Some(SharedLimit::Rate(limiter)))
            }
            Allowance::AtOnce(most) if !counted.iter().any(|it| counts(it)) => {
                self.in_flight(limit, most, max_keys).map(|shared| Some(SharedLimit::InFlight(shared)))
            }
            Allowance::Unlimited | Allowance::Blocked if !counted.iter().any(|it| counts(it)) => Ok(None),
            _ => {
                let SettingNames { prefix, .. } = self.names;
                Err(self.of_limit(
                    limit,
                    &format!(
                        "this combination of classes can't be shared through {prefix}redis: expected a rate for the \
                         limit and a rate, `unlimited` or `blocked` for each class, or `N at once` without classes \
                         that count; make it two limits, or leave {prefix}redis out"
                    ),
                ))
            }
        }
    }

    fn rate(
        &self,
        limit: &LimitPart,
        quota: Quota,
        algorithm: Algorithm,
        max_keys: usize,
    ) -> Result<Arc<SharedLimiter<Key>>, String> {
        let settings = &self.settings;
        let mut builder = SharedLimiter::builder(&self.client, &limit.name, quota)
            .algorithm(algorithm)
            .max_keys(max_keys)
            .when_unavailable(self.when_unavailable);
        for (class, allowance) in &limit.classes {
            if let Some(quota) = allowance.rate() {
                builder = builder.class(class, quota);
            }
        }
        if let Some(deadline) = settings.deadline {
            builder = builder.deadline(deadline);
        }
        if let Some(penalty) = limit.penalty {
            builder = builder.penalty(penalty);
        }
        if let Some(tokens) = settings.lease {
            builder = builder.lease(tokens);
        }
        if let Some(tokens) = settings.max_unsynced {
            builder = builder.max_unsynced(tokens);
        }
        builder.build().map(Arc::new).map_err(|error| self.refused(limit, &error))
    }

    fn in_flight(
        &self,
        limit: &LimitPart,
        most: u64,
        max_keys: usize,
    ) -> Result<SharedInFlight<Key>, String> {
        let mut builder = SharedInFlight::builder(&self.client, &limit.name, most)
            .max_keys(max_keys)
            .when_unavailable(self.when_unavailable);
        if let Some(deadline) = self.settings.deadline {
            let lifetime = LIFETIME.max(deadline.saturating_mul(DEADLINES_IN_LIFETIME));
            builder = builder.deadline(deadline).lifetime(lifetime);
        }
        builder.build().map_err(|error| self.refused(limit, &error))
    }

    fn of_limit(&self, limit: &LimitPart, why: &str) -> String {
        format!("{}: {why}", (self.names.limit)(&printable(limit.name.as_bytes())))
    }

    /// Returns the library's message, with the names of methods replaced by the program's settings.
    fn refused(&self, limit: &LimitPart, error: &SharedError) -> String {
        let SettingNames { prefix, .. } = self.names;
        let (text, setting) = (error.to_string(), error.setting());
        let spelled =
            |text: &str, name: &str, setting: &str| text.replacen(name, &format!("{prefix}{setting}"), 1);
        match setting {
            "deadline" => spelled(&text, "deadline", "redis-deadline"),
            "lease" => self.of_limit(limit, &spelled(&text, "lease", "redis-lease")),
            "when_unavailable" => spelled(&text, "share", "redis-share"),
            "max_unsynced" => {
                let text = spelled(&text, "max_unsynced", "redis-max-unsynced");
                let text = match text.strip_prefix("lease and ") {
                    Some(rest) => format!("{prefix}redis-lease and {rest}"),
                    None => text,
                };
                self.of_limit(limit, &text)
            }
            "algorithm" if text.contains("max_unsynced") => {
                let text = spelled(&text, "algorithm", "algorithm");
                spelled(&text, "max_unsynced", "redis-max-unsynced")
            }
            _ => self.of_limit(limit, &text),
        }
    }

    /// Connects to the store, and reports whether it answers checks and all problems with it.
    /// Returns whether it answers checks.
    pub async fn connect(client: &Client, names: SettingNames, mut report: impl FnMut(StoreLine)) -> bool {
        let SettingNames { prefix, .. } = names;
        let mut line = |is_warning, text| report(StoreLine { is_warning, text });
        let connected = client.connect().await;
        match &connected {
            Ok(()) => line(false, "limits are shared with all proxies that use this store".to_owned()),
            Err(error) => line(
                true,
                format!(
                    "{error}; limits are not shared until the store answers (see {prefix}redis-when-unavailable)"
                ),
            ),
        }
        for warning in client.stats().problems.iter().filter(|problem| problem.is_warning()) {
            line(true, warning.to_string());
        }
        connected.is_ok()
    }

    /// Reports when the store is lost, and when it is found again. Never returns.
    pub async fn watch(
        client: Client,
        names: SettingNames,
        mut is_up: bool,
        mut report: impl FnMut(StoreLine),
    ) {
        let SettingNames { prefix, .. } = names;
        loop {
            sleep(STORE_LOOK).await;
            let stats = client.stats();
            let text = match stats.problems.iter().find(|problem| !problem.is_warning()) {
                Some(problem) if is_up => format!(
                    "the store is lost: {problem}; limits are not shared until it answers (see \
                     {prefix}redis-when-unavailable)"
                ),
                None if !is_up => "the store is found: limits are shared again".to_owned(),
                _ => continue,
            };
            report(StoreLine { is_warning: is_up, text });
            is_up = !is_up;
        }
    }
}

impl SharedLimit {
    /// Returns the backend of this limit, with its blocked and unlimited classes.
    pub fn backend(self, limit: &LimitPart) -> Backend {
        match self {
            Self::Rate(limiter) => with_uncounted(limiter, limit),
            Self::InFlight(shared) => with_uncounted(shared, limit),
        }
    }

    /// Returns whether both are handles to the same limiter in this process.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rate(one), Self::Rate(other)) => Arc::ptr_eq(one, other),
            (Self::InFlight(_), _) | (_, Self::InFlight(_)) => false,
        }
    }

    /// Reports outstanding counts to the store.
    pub async fn flush(&self) {
        match self {
            Self::Rate(limiter) => limiter.flush().await,
            Self::InFlight(_) => {}
        }
    }

    /// Returns the figures of the limit and its store.
    pub fn figures(&self) -> Vec<Figure> {
        match self {
            Self::Rate(limiter) => limiter.figures(),
            Self::InFlight(shared) => shared.figures(),
        }
    }
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output does not contain the addresses, because they may contain a password.
        let Self { deadline, when_unavailable, share, lease, max_unsynced, .. } = self;
        f.debug_struct("StoreSettings")
            .field("deadline", deadline)
            .field("when_unavailable", when_unavailable)
            .field("share", share)
            .field("lease", lease)
            .field("max_unsynced", max_unsynced)
            .finish_non_exhaustive()
    }
}
