//! Limits that count in Redis or Valkey, so that several proxies can enforce them together.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Algorithm, Quota};
use tollgate_http::Key;
use tollgate_http::settings::{Allowance, LimitPart};
use tollgate_redis::{Client, SharedError, SharedInFlight, SharedLimiter, WhenUnavailable};

use crate::failure::Failure;
use crate::printable::printable;

/// The values of `--redis` and related options.
#[derive(Clone)]
pub struct SharedSettings {
    pub url: String,
    pub deadline: Duration,
    pub when_unavailable: Option<WhenUnavailable>,
    pub lease: Option<u64>,
    pub max_unsynced: Option<u64>,
}

/// A store, and the settings of the limits that use it.
pub struct Store {
    settings: SharedSettings,
    client: Client,
}

impl Store {
    /// # Errors
    ///
    /// Returns an error if the address is invalid.
    pub fn new(settings: SharedSettings) -> Result<Self, Failure> {
        let nodes: Vec<&str> = settings.url.split(',').map(str::trim).collect();
        let client = match *nodes {
            [one] => Client::open(one),
            _ => Client::cluster(nodes).build(),
        };
        // The message omits the URL, because the URL may contain a password.
        let client = client.map_err(|error| {
            Failure::refused(format!(
                "--redis: {error}; an address with TLS begins with rediss://, and the nodes of a cluster have commas \
                 between them"
            ))
        })?;
        Ok(Self { settings, client })
    }

    /// Returns the store's client.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Builds the limiter for a limit. Returns `None` if the limit counts nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot enforce the limit.
    pub(crate) fn limiter(
        &self,
        limit: &LimitPart,
        algorithm: Algorithm,
        max_keys: usize,
    ) -> Result<Option<SharedLimit>, Failure> {
        let counted: Vec<&Allowance> = limit.classes.iter().map(|(_, allowance)| allowance).collect();
        let counts = |it: &Allowance| matches!(it, Allowance::Rate(_) | Allowance::AtOnce(_));
        match limit.allowance {
            Allowance::Rate(quota) if !counted.iter().any(|it| matches!(it, Allowance::AtOnce(_))) => {
                self.rate(limit, quota, algorithm, max_keys).map(|limiter| Some(SharedLimit::Rate(limiter)))
            }
            Allowance::AtOnce(most) if !counted.iter().any(|it| counts(it)) => {
                let shared = self.in_flight(limit, most, max_keys)?;
                Ok(Some(SharedLimit::InFlight(shared)))
            }
            Allowance::Unlimited | Allowance::Blocked if !counted.iter().any(|it| counts(it)) => Ok(None),
            _ => Err(Failure::refused(format!(
                "--limit '{}': this combination of classes can't be shared through --redis: expected a rate for the \
                 limit and a rate, `unlimited` or `blocked` for each class, or `N at once` without classes that \
                 count; make it two limits, or leave --redis out",
                printable(limit.name.as_bytes())
            ))),
        }
    }

    fn rate(
        &self,
        limit: &LimitPart,
        quota: Quota,
        algorithm: Algorithm,
        max_keys: usize,
    ) -> Result<Arc<SharedLimiter<Key>>, Failure> {
        let settings = &self.settings;
        let mut builder = SharedLimiter::builder(&self.client, &limit.name, quota)
            .algorithm(algorithm)
            .max_keys(max_keys)
            .deadline(settings.deadline);
        for (class, allowance) in &limit.classes {
            if let Some(quota) = allowance.rate() {
                builder = builder.class(class, quota);
            }
        }
        if let Some(penalty) = limit.penalty {
            builder = builder.penalty(penalty);
        }
        if let Some(policy) = settings.when_unavailable {
            builder = builder.when_unavailable(policy);
        }
        if let Some(tokens) = settings.lease {
            builder = builder.lease(tokens);
        }
        if let Some(tokens) = settings.max_unsynced {
            builder = builder.max_unsynced(tokens);
        }
        builder.build().map(Arc::new).map_err(|error| refused(limit, &error))
    }

    fn in_flight(
        &self,
        limit: &LimitPart,
        most: u64,
        max_keys: usize,
    ) -> Result<SharedInFlight<Key>, Failure> {
        let builder = SharedInFlight::builder(&self.client, &limit.name, most)
            .max_keys(max_keys)
            .deadline(self.settings.deadline);
        let builder = match self.settings.when_unavailable {
            Some(policy) => builder.when_unavailable(policy),
            None => builder,
        };
        builder.build().map_err(|error| refused(limit, &error))
    }
}

/// A limit that counts in the store.
#[derive(Clone)]
pub enum SharedLimit {
    Rate(Arc<SharedLimiter<Key>>),
    InFlight(SharedInFlight<Key>),
}

/// Returns the library's message, with the names of methods replaced by the program's options.
fn refused(limit: &LimitPart, error: &SharedError) -> Failure {
    let text = error.to_string();
    let of_limit =
        |why: &str| Failure::refused(format!("--limit '{}': {why}", printable(limit.name.as_bytes())));
    match error.setting() {
        "deadline" => Failure::refused(text.replacen("deadline", "--redis-deadline", 1)),
        "when_unavailable" => Failure::refused(text.replacen("share", "--redis-share", 1)),
        "max_unsynced" => of_limit(&text.replacen("max_unsynced", "--redis-max-unsynced", 1)),
        "algorithm" if text.contains("max_unsynced") => {
            let text = text.replacen("algorithm", "--algorithm", 1);
            Failure::refused(text.replacen("max_unsynced", "--redis-max-unsynced", 1))
        }
        _ => of_limit(&text),
    }
}
