//! The way to the servers: one connection that all share, a deadline for each request, and a breaker.
//!
//! Every request ends by its deadline, whatever the server does. What is known then is one of three things: the answer;
//! that it was not executed, because it was never sent or the server says so; or nothing, for a request whose answer is
//! late or lost may have been executed, or may be yet. It is never sent a second time.
//!
//! While there is no connection, or three answers in a row were late, requests end at once and one task probes: see
//! [`Breaker`]. A probe of one server, or of a master that sentinels name, is a new connection on which a PING is answered:
//! one that is half open is so replaced. A cluster connects by itself, and has a breaker for each sixteenth of its slots, so
//! that a part of it that is down does not take the others with it; the probe is a read of the key that found it so.

mod breaker;
mod servers;

use super::atomics::{AtomicU64, Relaxed};
use super::error::BuildError;
use super::script::{self, Call, Reply};
use super::stats::ClientStats;
use arc_swap::ArcSwapOption;
use breaker::{Breaker, Pass};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use servers::{Addresses, Line, Servers, Settings};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How many breakers a cluster has.
const PARTS: usize = 16;
const SLOTS: usize = 16_384;
/// A probe that is not answered by then has failed.
const PROBE: Duration = Duration::from_millis(200);

/// A way to servers that machines share: one server, a master and its replicas behind sentinels, or a cluster; Redis 7 or
/// Valkey.
///
/// A clone shares the connection. It is made in the background when it is needed first, inside a tokio runtime, and again
/// whenever it is lost; [`connect`](Self::connect) says beforehand whether it can be.
///
/// ```no_run
/// use tollgate::redis::Client;
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::open("redis://:password@10.0.0.5:6379/0")?;
/// client.connect().await?;
///
/// let cluster = Client::cluster(["redis://10.0.0.6:7000", "redis://10.0.0.7:7000"]).build()?;
/// let sentinels = ["redis://10.0.0.8:26379", "redis://10.0.0.9:26379"];
/// let failover = Client::sentinel("mymaster", sentinels, "redis://:password@mymaster").build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// The settings of a [`Client`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    addresses: Addresses,
    settings: Settings,
}

struct Inner {
    servers: Servers,
    settings: Settings,
    line: ArcSwapOption<Line>,
    /// How many there were.
    connections: AtomicU64,
    /// Told when a breaker closes, or the first attempt has failed.
    changed: Notify,
    breakers: Box<[Breaker]>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// It was not sent.
    Unavailable,
    /// It was not executed, and why.
    Refused(String),
    /// It may have been executed, or may be yet.
    Unknown,
}

/// A server that can't be connected to.
///
/// ```
/// use tollgate::redis::Client;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = Client::open("redis://127.0.0.1:1").unwrap();
/// assert!(client.connect().await.unwrap_err().to_string().starts_with("no connection to the servers: "));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectError {
    problem: String,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection to the servers: {}", self.problem)
    }
}

impl std::error::Error for ConnectError {}

impl Client {
    /// The client of one server: `redis://[user][:password@]host[:port][/database]`, with TLS `rediss://`, over a
    /// Unix socket `redis+unix:///path`.
    ///
    /// # Errors
    ///
    /// [`BuildError::Client`] for an address that is none.
    ///
    /// ```
    /// # use tollgate::redis::Client;
    /// assert!(Client::open("redis://127.0.0.1:6379").is_ok());
    /// assert!(Client::open("127.0.0.1:6379").is_err());
    /// ```
    pub fn open(url: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(url).build()
    }

    /// One server, with more settings.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(Addresses::One(url.into()))
    }

    /// The master called `name` of a group that these sentinels watch over. `url` says how the master is talked to: its
    /// user, password, database and whether with TLS; its host is what the sentinels say.
    pub fn sentinel<S: Into<String>>(
        name: impl Into<String>,
        sentinels: impl IntoIterator<Item = S>,
        url: impl Into<String>,
    ) -> ClientBuilder {
        let sentinels = sentinels.into_iter().map(Into::into).collect();
        ClientBuilder::new(Addresses::Sentinel { name: name.into(), sentinels, url: url.into() })
    }

    /// A cluster, of which some nodes are known. All of them have one password.
    pub fn cluster<S: Into<String>>(nodes: impl IntoIterator<Item = S>) -> ClientBuilder {
        ClientBuilder::new(Addresses::Cluster(nodes.into_iter().map(Into::into).collect()))
    }

    /// Connects now, instead of at the first request, to learn whether the address and the password are right.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if it can't; the client is as good as before, and tries again when it is needed.
    pub async fn connect(&self) -> Result<(), ConnectError> {
        let failed = |error: RedisError| ConnectError { problem: error.to_string() };
        let late = |_| ConnectError { problem: "no answer in time".to_owned() };
        let inner = &self.inner;
        let limit = inner.settings.connection_timeout * 2 + PROBE;
        let line = timeout(limit, inner.dial()).await.map_err(late)?.map_err(failed)?;
        inner.install(line);
        for breaker in &inner.breakers {
            breaker.close();
        }
        Ok(())
    }

    /// How the way to the servers is.
    ///
    /// ```
    /// # use tollgate::redis::Client;
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// assert_eq!(client.stats().breaker_opened, 0);
    /// # Ok::<(), tollgate::redis::BuildError>(())
    /// ```
    pub fn stats(&self) -> ClientStats {
        let breakers = &self.inner.breakers;
        ClientStats {
            connected: self.inner.line.load().is_some() && breakers.iter().any(|b| b.pass() == Pass::Closed),
            breakers_open: breakers.iter().filter(|breaker| breaker.pass() == Pass::Open).count(),
            breaker_opened: breakers.iter().map(Breaker::opened).sum(),
        }
    }

    /// Runs a script; ends by the deadline.
    pub(super) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Reply, Failure> {
        let (line, breaker) = self.line(call.key, deadline).await?;
        let answered = async {
            match line.send(&call.command(false)).await {
                Err(error) if script::is_unknown(&error) => line.send(&call.command(true)).await,
                answered => answered,
            }
        };
        let answered = timeout_at(deadline, answered).await.ok();
        self.judge(call.key, &line, breaker, answered)
    }

    /// Runs scripts, in as few writes as the servers allow. All end by the deadline.
    pub(super) async fn call_all(
        &self,
        calls: &[Call<'_>],
        deadline: Instant,
    ) -> Vec<Result<Reply, Failure>> {
        let each = || futures_util::future::join_all(calls.iter().map(|call| self.call(call, deadline)));
        let Some(first) = calls.first() else { return Vec::new() };
        let (line, breaker) = match self.line(first.key, deadline).await {
            Ok(found) => found,
            Err(failure) => return vec![Err(failure); calls.len()],
        };
        let cmds = calls.iter().map(|call| call.command(false)).collect();
        let answers = match timeout_at(deadline, line.send_all(cmds)).await {
            Ok(None) => return each().await,
            Ok(Some(Ok(answers))) if answers.len() == calls.len() => answers,
            Ok(Some(Err(error))) => {
                let failure = self.judge(first.key, &line, breaker, Some(Err(error)));
                return vec![failure; calls.len()];
            }
            Ok(Some(Ok(_))) | Err(_) => {
                return vec![self.judge(first.key, &line, breaker, None); calls.len()];
            }
        };
        let mut results = Vec::with_capacity(calls.len());
        for (call, answer) in calls.iter().zip(answers) {
            let answer = answer.extract_error();
            results.push(match answer {
                // The server has lost its scripts: those that were not run are asked again, one by one, since the first
                // brings the script back.
                Err(error) if script::is_unknown(&error) => self.call(call, deadline).await,
                answer => self.judge(call.key, &line, breaker, Some(answer)),
            });
        }
        results
    }

    /// How many connections there were: another number means another connection.
    pub(super) fn connections(&self) -> u64 {
        // ORDERING: relaxed; a counter.
        self.inner.connections.load(Relaxed)
    }

    /// Is there a connection, as far as is known, or was none tried yet?
    pub(super) fn is_up(&self) -> bool {
        self.inner.breakers.iter().any(|breaker| breaker.pass() != Pass::Open)
    }

    /// Deletes a key.
    pub(super) async fn delete(&self, key: &str, deadline: Instant) -> Result<(), Failure> {
        let (line, breaker) = self.line(key, deadline).await?;
        let mut cmd = redis::cmd("DEL");
        cmd.arg(key);
        let answered = timeout_at(deadline, line.send(&cmd)).await.ok();
        let array = |value| Value::Array(vec![value]);
        self.judge(key, &line, breaker, answered.map(|answer| answer.map(array))).map(|_| ())
    }

    /// The connection for a key, unless its breaker is open. The first one is waited for.
    async fn line(&self, key: &str, deadline: Instant) -> Result<(Arc<Line>, &Breaker), Failure> {
        let inner = &self.inner;
        let part = inner.part(key);
        let breaker = &inner.breakers[part];
        loop {
            let changed = inner.changed.notified();
            match (breaker.pass(), inner.line.load_full()) {
                (Pass::Closed, Some(line)) => return Ok((line, breaker)),
                (Pass::Starting, _) => {
                    inner.probe(part, key);
                    if timeout_at(deadline, changed).await.is_err() {
                        return Err(Failure::Unavailable);
                    }
                }
                _ => {
                    inner.probe(part, key);
                    return Err(Failure::Unavailable);
                }
            }
        }
    }

    /// What an answer says about its request, and about the connection.
    fn judge(
        &self,
        key: &str,
        line: &Arc<Line>,
        breaker: &Breaker,
        answered: Option<RedisResult<Value>>,
    ) -> Result<Reply, Failure> {
        let inner = &self.inner;
        let Some(answered) = answered else {
            if breaker.late() {
                inner.probe(inner.part(key), key);
            }
            return Err(Failure::Unknown);
        };
        let error = match answered.and_then(script::reply) {
            Ok(reply) => {
                breaker.answered();
                return Ok(reply);
            }
            Err(error) => error,
        };
        let refused = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        if is_of_the_line(&error) {
            // Not if there is another connection by now.
            let is_this = inner.line.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, line));
            if is_this && breaker.open() {
                inner.probe(inner.part(key), key);
            }
        } else {
            breaker.answered();
        }
        Err(if refused { Failure::Refused(error.to_string()) } else { Failure::Unknown })
    }
}

/// Does an error say that this connection is no good, or not now?
fn is_of_the_line(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
        ),
        ErrorKind::Extension | ErrorKind::UnexpectedReturnType => false,
        _ => true,
    }
}

impl Inner {
    fn part(&self, key: &str) -> usize {
        match self.breakers.len() {
            1 => 0,
            parts => {
                let slot = usize::from(crc16::State::<crc16::XMODEM>::calculate(key.as_bytes())) % SLOTS;
                slot * parts / SLOTS
            }
        }
    }

    async fn dial(&self) -> RedisResult<Line> {
        let line = self.servers.connect(&self.settings).await?;
        line.send(&redis::cmd("PING")).await?;
        Ok(line)
    }

    fn install(&self, line: Line) {
        // ORDERING: relaxed; a counter. Counted first: nobody has an answer of a connection that was not counted, for the
        // store below publishes it.
        self.connections.fetch_add(1, Relaxed);
        self.line.store(Some(Arc::new(line)));
    }

    /// Starts a task that probes until it is answered, unless there is one.
    fn probe(self: &Arc<Self>, part: usize, key: &str) {
        if self.breakers[part].probe() {
            let task = Probe { client: Arc::downgrade(self), part, key: key.to_owned() };
            tokio::spawn(task.run());
        }
    }

    /// Is the server back?
    async fn attempt(&self, key: &str) -> bool {
        let line = self.line.load_full().filter(|_| self.servers.is_cluster());
        let answered = match line {
            Some(line) => {
                let mut get = redis::cmd("GET");
                get.arg(key);
                let value = |answer: RedisResult<Value>| match answer {
                    // The key holds no string: somebody has looked.
                    Err(error) if !is_of_the_line(&error) => Ok(()),
                    answer => answer.map(|_| ()),
                };
                timeout(PROBE, self.send(&line, &get)).await.map(value)
            }
            None => {
                let limit = self.settings.connection_timeout * 2 + PROBE;
                timeout(limit, self.dial()).await.map(|line| line.map(|line| self.install(line)))
            }
        };
        matches!(answered, Ok(Ok(())))
    }

    async fn send(&self, line: &Line, cmd: &Cmd) -> RedisResult<Value> {
        line.send(cmd).await
    }
}

/// A task that probes. It ends with the client.
struct Probe {
    client: Weak<Inner>,
    part: usize,
    key: String,
}

impl Probe {
    async fn run(self) {
        loop {
            let Some(pause) = self.breaker(Breaker::next_pause) else { return };
            sleep(pause).await;
            let Some(client) = self.client.upgrade() else { return };
            let breaker = &client.breakers[self.part];
            let answered = client.attempt(&self.key).await;
            if answered {
                breaker.close();
            } else if breaker.pass() == Pass::Starting {
                breaker.open();
            }
            client.changed.notify_waiters();
            if answered {
                return;
            }
        }
    }

    fn breaker<T>(&self, ask: impl FnOnce(&Breaker) -> T) -> Option<T> {
        self.client.upgrade().map(|client| ask(&client.breakers[self.part]))
    }
}

impl Drop for Probe {
    /// Also when its runtime ends: then the next request, in another one, starts the next.
    fn drop(&mut self) {
        self.breaker(Breaker::probed);
    }
}

impl ClientBuilder {
    fn new(addresses: Addresses) -> Self {
        let settings = Settings {
            connection_timeout: Duration::from_millis(100),
            root_certificate: None,
            certificate: None,
        };
        Self { addresses, settings }
    }

    /// How long an attempt to connect may take; 100 ms unless it is set.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connection_timeout = timeout;
        self
    }

    /// Trusts certificates that this one has signed, in PEM, instead of those that the system trusts.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.root_certificate = Some(pem.into());
        self
    }

    /// Shows this certificate to servers that ask for one, in PEM.
    pub fn certificate(mut self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.settings.certificate =
            Some(redis::ClientTlsConfig { client_cert: pem.into(), client_key: key.into() });
        self
    }

    /// The client. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BuildError::Client`] for an address or a certificate that is none.
    pub fn build(self) -> Result<Client, BuildError> {
        let servers = Servers::new(self.addresses, &self.settings)?;
        let parts = if servers.is_cluster() { PARTS } else { 1 };
        Ok(Client {
            inner: Arc::new(Inner {
                servers,
                settings: self.settings,
                line: ArcSwapOption::empty(),
                connections: AtomicU64::new(0),
                changed: Notify::new(),
                breakers: (0..parts).map(|_| Breaker::new()).collect(),
            }),
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses may hold a password.
        f.debug_struct("Client").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
