//! Limits whose counts are in Redis or Valkey, so that several proxies enforce them together.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Algorithm;
use tollgate_http::Key;
use tollgate_http::settings::LimitText;
use tollgate_redis::{BuildError, Client, SharedLimiter, WhenUnavailable};

use crate::failure::Failure;
use crate::printable::printable;

/// The values of `--redis` and its companions.
#[derive(Clone)]
pub struct SharedSettings {
    pub url: String,
    pub deadline: Duration,
    pub when_unavailable: Option<WhenUnavailable>,
    pub lease: Option<u64>,
    pub max_unsynced: Option<u64>,
}

/// A store, and how it is used.
pub struct Store {
    settings: SharedSettings,
    client: Client,
}

impl Store {
    /// # Errors
    ///
    /// An invalid address.
    pub fn new(settings: SharedSettings) -> Result<Self, Failure> {
        let nodes: Vec<&str> = settings.url.split(',').map(str::trim).collect();
        let client = match *nodes {
            [one] => Client::open(one),
            _ => Client::cluster(nodes).build(),
        };
        // Without the address, which may hold a password.
        let client = client.map_err(|error| {
            Failure::refused(format!(
                "--redis: {error}; expected redis://[:PASSWORD@]HOST[:PORT][/DATABASE], rediss://... with TLS, or \
                 several nodes of a cluster with commas between them"
            ))
        })?;
        Ok(Self { settings, client })
    }

    /// Returns the client of the store.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Builds the limiter of a limit.
    ///
    /// # Errors
    ///
    /// A limit that the store can't enforce.
    pub(crate) fn limiter(
        &self,
        limit: &LimitText,
        algorithm: Algorithm,
        max_keys: usize,
    ) -> Result<Arc<SharedLimiter<Key>>, Failure> {
        let settings = &self.settings;
        let mut builder = SharedLimiter::builder(&self.client, &limit.name, limit.quota)
            .algorithm(algorithm)
            .max_keys(max_keys)
            .deadline(settings.deadline);
        for (class, quota) in &limit.classes {
            builder = builder.class(class, *quota);
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
}

/// Returns the library's own message, except where it names the library's methods.
fn refused(limit: &LimitText, error: &BuildError) -> Failure {
    let of_limit =
        |why: String| Failure::refused(format!("--limit '{}': {why}", printable(limit.name.as_bytes())));
    match error {
        BuildError::Deadline { deadline, least, most } => {
            Failure::refused(format!("invalid --redis-deadline {deadline:?}: expected {least:?} to {most:?}"))
        }
        BuildError::Share { share } => {
            Failure::refused(format!("invalid --redis-share {share}: expected a number above 0 and up to 1"))
        }
        BuildError::MaxUnsynced { max_unsynced, most } => of_limit(format!(
            "invalid --redis-max-unsynced {max_unsynced}: expected 1 to {most} under this quota"
        )),
        BuildError::UnsyncedAlgorithm { algorithm } => Failure::refused(format!(
            "invalid --algorithm {algorithm} for --redis-max-unsynced: expected fixed-window or \
             sliding-window, whose counts can be added up"
        )),
        error => of_limit(error.to_string()),
    }
}
