//! [`Client`]: a shared connection to the servers, with a deadline for each request and a circuit
//! breaker.
//!
//! Every request completes by its deadline, whatever the server does, with one of three results:
//!
//! - The server answered the request.
//! - The request was not executed, because it was never sent or because the server reports so.
//! - The fate of the request is unknown, because the answer is late or lost. The server may have
//!   executed the request or may still do so, so the client does not send it a second time.
//!
//! If a connection ends while no request is under way, it is replaced before the next use. The next
//! request waits for the new connection, as the very first request does.
//!
//! Three events open a server's [`Breaker`](crate::connection::breaker::Breaker): a failed attempt
//! to connect, a connection lost during a request, and three late answers in a row. Requests to
//! this server then fail immediately, and one task probes the server.
//!
//! Each probe opens a new connection, which also replaces a half-open one, and waits for the answer
//! to a PING. Meanwhile, another PING waits on the old connection. A server that was merely
//! stalled, not down, answers this PING.
//!
//! A server may also answer all requests with an error, for example if its memory is full. A trial
//! of the limits then finds the problem, and one task repeats the trial until it succeeds.
//!
//! In a cluster, each node has its own breaker, so a node that is down does not affect the others.
//! Before the client probes a node, it asks the other nodes whether the node has a successor.

use crate::connection::network::{Network, Target};
#[cfg(not(feature = "tls"))]
use crate::connection::no_tls::Tls;
use crate::connection::node::Node;
use crate::connection::servers::{Addresses, Connection, Servers, Settings};
#[cfg(feature = "tls")]
use crate::connection::tls::Tls;
use crate::error::{Refused, SharedError};
use crate::health::{Problem, StoreProblem};
use crate::runtime::{Runtime, RuntimeSetting};
use crate::scripts::script::{self, Call, Failure, Reply};
use crate::stats::ClientStats;
use futures_util::future::join_all;
use redis::{Cmd, RedisResult, ServerErrorKind, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// The maximum number of times that a request is redirected between cluster nodes.
const HOPS: usize = 4;
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to servers that several machines share: a single server, a master with its replicas
/// behind sentinels, or a cluster. The servers run Redis 6.2 or later, or Valkey.
///
/// Clones share the connection. The client opens the connection in the background when it is first
/// needed, inside a tokio runtime, and reopens it whenever it is lost. [`connect`](Self::connect)
/// tests in advance whether the servers will answer checks.
///
/// ```no_run
/// use tollgate_redis::Client;
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
    pub(crate) network: Arc<Network>,
}

/// The settings of a [`Client`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    addresses: Addresses,
    settings: Settings,
    runtime: RuntimeSetting,
}

/// A request that may be redirected from node to node.
enum Command<'c> {
    Run(&'c Call<'c>),
    Delete(&'c str),
}

impl Client {
    /// Creates a client for one server. The address is
    /// `redis://[user][:password@]host[:port][/database]`. For TLS, it starts with `rediss://`. For
    /// a Unix socket, it is `redis+unix:///path`. In the user and the password, percent-encode
    /// characters that have a meaning in an address: write `%23` for `#` and `%40` for `@`.
    ///
    /// # Errors
    ///
    /// Returns a [`SharedError`] if the address is invalid, or if it requests TLS and the feature
    /// `tls` is off.
    ///
    /// ```
    /// # use tollgate_redis::Client;
    /// assert!(Client::open("redis://127.0.0.1:6379").is_ok());
    /// assert!(Client::open("127.0.0.1:6379").is_err());
    /// ```
    pub fn open(url: impl Into<String>) -> Result<Self, SharedError> {
        Self::builder(url).build()
    }

    /// Starts the configuration of a client for one server.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(Addresses::One(url.into()))
    }

    /// Starts the configuration of a client for the master called `name`. The given sentinels watch
    /// the master and report its host. `url` specifies the user, the password, the database and
    /// whether to use TLS.
    pub fn sentinel<S: Into<String>>(
        name: impl Into<String>,
        sentinels: impl IntoIterator<Item = S>,
        url: impl Into<String>,
    ) -> ClientBuilder {
        let sentinels = sentinels.into_iter().map(Into::into).collect();
        ClientBuilder::new(Addresses::Sentinel { name: name.into(), sentinels, url: url.into() })
    }

    /// Starts the configuration of a client for a cluster. `nodes` contains the addresses of some
    /// of the cluster's nodes. All nodes must have the same password.
    ///
    /// If a node goes down, the store does not answer for the node's keys until a replica takes
    /// over. Until then, a cluster with `cluster-require-full-coverage yes`, the server's default,
    /// refuses requests for all keys.
    pub fn cluster<S: Into<String>>(nodes: impl IntoIterator<Item = S>) -> ClientBuilder {
        ClientBuilder::new(Addresses::Cluster(nodes.into_iter().map(Into::into).collect()))
    }

    /// Connects now rather than at the first request, and tests the operations that checks use. In
    /// a cluster, the test runs on each primary. For the test, each of this client's limits charges
    /// one token to a key that no caller can choose, and then deletes the key.
    ///
    /// After this call, limits are also tried in the background. A limit is tried when it is built
    /// inside a tokio runtime, and all limits are tried on each new connection.
    /// [`ClientStats::problems`] contains the results.
    ///
    /// Even without this call, all limits are tried after a server has answered a check with an
    /// error. A trial that has found a problem is repeated a few times a second, until the store
    /// answers checks.
    ///
    /// ```no_run
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::open("redis://limiter:password@10.0.0.5:6379")?;
    /// let limiter: SharedLimiter<str> =
    ///     SharedLimiter::builder(&client, "api", Quota::per_second(100)).build()?;
    /// client.connect().await?;
    /// for warning in client.stats().problems {
    ///     eprintln!("{warning}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the first problem that would prevent the store from answering checks: there is no
    /// [connection](StoreProblem::is_unreachable), no runtime, the user lacks permission for a
    /// command or for the keys, the server's memory is full, or the server is a read-only replica.
    /// The client stays usable: a task keeps trying to connect, and
    /// [`WhenUnavailable`](crate::WhenUnavailable) answers checks until the store can answer them.
    /// If some, but not all, primaries of a cluster can be reached, this method returns `Ok`, and
    /// `problems` names the others.
    pub async fn connect(&self) -> Result<(), StoreProblem> {
        self.runtime().within(self.connect_now()).await
    }

    async fn connect_now(&self) -> Result<(), StoreProblem> {
        let network = &self.network;
        if !self.runtime().has_timer() {
            return Err(StoreProblem(Problem::NoRuntime));
        }
        network.connect().await.map_err(StoreProblem)?;
        let mut unreachable = Ok(());
        for problem in network.try_limits().await {
            match problem {
                // If another problem has broken the connection, return that problem, because it is
                // more informative.
                problem @ Problem::Unreachable { .. } => {
                    if unreachable.is_ok() {
                        unreachable = Err(StoreProblem(problem));
                    }
                }
                problem if problem.is_warning() => {}
                problem => return Err(StoreProblem(problem)),
            }
        }
        if network.is_cluster() && network.is_connected() { Ok(()) } else { unreachable }
    }

    /// Tests the operations that checks use, like [`connect`](Self::connect), but only over open
    /// connections. Returns all problems, or an empty list if the store answers all checks.
    ///
    /// Use this method for a readiness endpoint. A client without a connection starts to connect,
    /// and is ready at a later call. The test needs a few round trips, and ends within four
    /// connection timeouts and 400 ms.
    ///
    /// ```
    /// # use tollgate_redis::Client;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # runtime.block_on(async {
    /// let client = Client::open("redis://127.0.0.1:1").unwrap();
    /// let problems = client.health().await;
    /// assert!(problems[0].to_string().starts_with("no connection to 127.0.0.1:1: "));
    /// # });
    /// ```
    pub async fn health(&self) -> Vec<StoreProblem> {
        let problems = match self.runtime().has_timer() {
            true => self.runtime().within(self.network.try_limits()).await,
            false => vec![Problem::NoRuntime],
        };
        problems.into_iter().map(StoreProblem).collect()
    }

    /// Returns the known problems and the state of the connections and their breakers. This method
    /// sends nothing to the servers.
    ///
    /// ```
    /// # use tollgate_redis::Client;
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// let stats = client.stats();
    /// assert!(!stats.connected && stats.problems.is_empty());
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn stats(&self) -> ClientStats {
        self.network.stats()
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.network.runtime
    }

    /// Runs a script. The call completes by the deadline.
    pub(crate) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Reply, Failure> {
        let value = self.ask(call.key, &Command::Run(call), deadline).await?;
        script::reply(value).map_err(|error| Failure::of(&error))
    }

    /// Deletes a key. The call completes by the deadline.
    pub(crate) async fn delete(&self, key: &str, deadline: Instant) -> Result<(), Failure> {
        self.ask(key, &Command::Delete(key), deadline).await.map(|_| ())
    }

    /// Sends a request to the key's node and follows redirections. A node that redirects a request
    /// has not executed it.
    async fn ask(&self, key: &str, command: &Command<'_>, deadline: Instant) -> Result<Value, Failure> {
        let network = &self.network;
        let mut target = Target::Slot(network.slot(key));
        for hop in 1.. {
            let (node, connection) = network.connection(&target, deadline).await?;
            // A redirection may arrive at the deadline. Nothing is sent after the deadline.
            if Instant::now() >= deadline {
                return Err(Failure::Unavailable);
            }
            let asking = matches!(target, Target::Node { asking: true, .. });
            let answered = timeout_at(deadline, command.send(&connection, asking)).await.ok();
            match answered {
                Some(Err(error)) if hop < HOPS => match network.redirected(&node, &error) {
                    Some(next) => target = next,
                    None => return network.settle(&node, &connection, Some(Err(error))),
                },
                answered => return network.settle(&node, &connection, answered),
            }
        }
        Err(Failure::Unavailable)
    }

    /// Runs scripts, with one write for each server. All calls complete by the deadline.
    pub(crate) async fn call_all(
        &self,
        calls: &[Call<'_>],
        deadline: Instant,
    ) -> Vec<Result<Reply, Failure>> {
        // The calls of each server, in the order of `calls`.
        let mut groups: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
        let Some(first) = calls.first() else { return Vec::new() };
        // The slot map must be known before the calls can be grouped by node. If the map is known,
        // no connection is awaited here, because waiting for one node would use up the time of the
        // calls to all other nodes.
        let network = &self.network;
        if network.is_cluster() && !network.map().is_known() {
            let _ = network.connection(&Target::Slot(network.slot(first.key)), deadline).await;
        }
        let map = network.map();
        for (number, call) in calls.iter().enumerate() {
            let node = map.node(network.slot(call.key));
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, node)) {
                Some((_, numbers)) => numbers.push(number),
                None => groups.push((Arc::clone(node), vec![number])),
            }
        }
        let asked = groups.iter().map(|(node, numbers)| self.call_node(node, calls, numbers, deadline));
        let answers = join_all(asked).await;
        let mut all = vec![Err(Failure::Unavailable); calls.len()];
        for ((_, numbers), answers) in groups.iter().zip(answers) {
            for (&number, answer) in numbers.iter().zip(answers) {
                all[number] = answer;
            }
        }
        all
    }

    /// Runs the calls at these indices. All their keys are on `node`.
    async fn call_node(
        &self,
        node: &Arc<Node>,
        calls: &[Call<'_>],
        numbers: &[usize],
        deadline: Instant,
    ) -> Vec<Result<Reply, Failure>> {
        let network = &self.network;
        let target = Target::Node { node: Arc::clone(node), asking: false };
        let (node, connection) = match network.connection(&target, deadline).await {
            Ok(found) => found,
            Err(failure) => return vec![Err(failure); numbers.len()],
        };
        let cmds = numbers.iter().map(|&number| calls[number].command(false)).collect();
        let mut answers = match send_all(&connection, cmds, deadline).await {
            Ok(answers) => answers,
            Err(answered) => return vec![network.settle(&node, &connection, answered); numbers.len()],
        };
        // A server that has lost its scripts has not run these calls. The calls are sent again, and
        // the first call contains the whole script.
        let unknown: Vec<_> = (0..answers.len()).filter(|&place| was_unknown(&answers[place])).collect();
        let mut failed = None;
        if !unknown.is_empty() {
            let cmds = unknown.iter().enumerate();
            let cmds = cmds.map(|(place, &at)| calls[numbers[at]].command(place == 0)).collect();
            match send_all(&connection, cmds, deadline).await {
                Ok(again) => unknown.iter().zip(again).for_each(|(&at, answer)| answers[at] = answer),
                Err(answered) => failed = network.settle::<()>(&node, &connection, answered).err(),
            }
        }
        let mut results = Vec::with_capacity(numbers.len());
        let mut repeated: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, answer) in answers.into_iter().enumerate() {
            results.push(match (&failed, answer) {
                // It is unknown whether the second request was executed.
                (Some(failure), answer) if was_unknown(&answer) => Err(failure.clone()),
                // The slot has moved or the script is lost again, so the server did not run the
                // call.
                (_, Value::ServerError(error)) if network.was_not_run(&error) => {
                    repeated.entry(calls[numbers[place]].key).or_default().push(place);
                    Err(Failure::Unavailable)
                }
                (_, answer) => network.settle(&node, &connection, Some(script::reply(answer))),
            });
        }
        // The calls of each key are repeated in their order, and the calls of different keys at the
        // same time.
        let repeated = repeated.values().map(async |places| {
            let mut answers = Vec::with_capacity(places.len());
            for &place in places {
                answers.push((place, self.call(&calls[numbers[place]], deadline).await));
            }
            answers
        });
        for (place, answer) in join_all(repeated).await.into_iter().flatten() {
            results[place] = answer;
        }
        results
    }

    /// Returns a number that changes whenever the store may have lost data.
    pub(crate) fn connections(&self) -> u64 {
        self.network.connections()
    }

    /// Returns false if the client knows that the key's node has failed, and true otherwise.
    pub(crate) fn is_up(&self, key: &str) -> bool {
        self.network.is_up(key)
    }
}

impl Command<'_> {
    async fn send(&self, connection: &Connection, asking: bool) -> RedisResult<Value> {
        match self {
            Self::Run(call) => match connection.send(call.command(false), asking).await {
                Err(error) if script::is_unknown(&error) => connection.send(call.command(true), asking).await,
                answered => answered,
            },
            Self::Delete(key) => connection.send(Cmd::del(key), asking).await,
        }
    }
}

/// Sends commands in one write. If any command is not answered in time, returns the error from the
/// write, or `None` if the fate of the commands is unknown.
async fn send_all<T>(
    connection: &Connection,
    cmds: Vec<Cmd>,
    deadline: Instant,
) -> Result<Vec<Value>, Option<RedisResult<T>>> {
    let count = cmds.len();
    match timeout_at(deadline, connection.send_all(cmds, false)).await {
        Ok(Ok(answers)) if answers.len() == count => Ok(answers),
        Ok(Err(error)) => Err(Some(Err(error))),
        _ => Err(None),
    }
}

fn was_unknown(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

impl ClientBuilder {
    fn new(addresses: Addresses) -> Self {
        let connection_timeout = Duration::from_millis(100);
        let settings = Settings { connection_timeout, tls: Tls::default() };
        Self { addresses, settings, runtime: RuntimeSetting::default() }
    }

    /// Sets the maximum duration of an attempt to connect: 1 ms to 60 s, and 100 ms by default.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connection_timeout = timeout;
        self
    }

    /// Runs the client's tasks in this tokio runtime, which must have its timer and I/O enabled. By
    /// default, they run in the runtime of the caller that starts them.
    ///
    /// Choose a runtime if threads without a runtime use the client, or if callers use it in
    /// runtimes that may end earlier. The `async` methods are still polled in the runtime of their
    /// caller. Outside of a tokio runtime, only checks and
    /// [`acquire`](crate::SharedInFlight::acquire) ask the store. If the given runtime ends, the
    /// store is no longer asked, and [`WhenUnavailable`](crate::WhenUnavailable) decides.
    ///
    /// ```
    /// # use tollgate_redis::Client;
    /// let runtime = tokio::runtime::Runtime::new()?;
    /// let client = Client::builder("redis://10.0.0.5").runtime(runtime.handle().clone()).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = RuntimeSetting::Given(runtime);
        self
    }

    /// Runs the client's tasks on a thread that the client starts, for programs without a runtime.
    ///
    /// [`build`](Self::build) starts the thread, which is called `tollgate-redis`. The thread ends
    /// soon after the last clone of the client and its limits, permits and reservations was
    /// dropped. A drop waits for nothing, and is allowed in any thread. At the exit of the process,
    /// requests that are under way are lost.
    ///
    /// All methods of such a client and of its limits work in any thread: the `async` methods can
    /// be polled by any executor, and need no tokio. [`SharedLimiter::try_check`] and
    /// [`SharedLimiter::check_blocking`] need no executor either.
    ///
    /// [`SharedLimiter::try_check`]: crate::SharedLimiter::try_check
    /// [`SharedLimiter::check_blocking`]: crate::SharedLimiter::check_blocking
    ///
    /// ```no_run
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// let client = Client::builder("redis://10.0.0.5").runtime_thread().build()?;
    /// let limiter: SharedLimiter<str> =
    ///     SharedLimiter::builder(&client, "api", Quota::per_second(100)).build()?;
    /// assert!(limiter.check_blocking("alice").is_allowed());
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn runtime_thread(mut self) -> Self {
        self.runtime = RuntimeSetting::Thread;
        self
    }

    /// Trusts certificates signed by this PEM certificate, rather than those that the system
    /// trusts.
    ///
    /// Requires the feature `tls`.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.root_certificate = Some(pem.into());
        self
    }

    /// Presents this certificate, in PEM, to servers that request one.
    ///
    /// Requires the feature `tls`.
    #[cfg(feature = "tls")]
    pub fn certificate(mut self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.certificate =
            Some(redis::ClientTlsConfig { client_cert: pem.into(), client_key: key.into() });
        self
    }

    /// Builds the client. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// Returns a [`SharedError`] if an address, a certificate or the timeout is invalid, if an
    /// address requests TLS and the feature `tls` is off, or if the system refuses the client's
    /// [thread](Self::runtime_thread).
    pub fn build(self) -> Result<Client, SharedError> {
        let (timeout, least, most) = (self.settings.connection_timeout, SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        if timeout < least || timeout > most {
            return Err(SharedError(Refused::ConnectionTimeout { timeout, least, most }));
        }
        let servers = Servers::new(self.addresses, &self.settings).map_err(SharedError)?;
        let refused = |error: io::Error| SharedError(Refused::Thread { problem: error.to_string() });
        let runtime = self.runtime.start().map_err(refused)?;
        Ok(Client { network: Arc::new(Network::new(servers, self.settings, runtime)) })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output does not contain the addresses, because they may contain a password.
        let timeout = self.settings.connection_timeout;
        f.debug_struct("ClientBuilder").field("connection_timeout", &timeout).finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output does not contain the addresses, because they may contain a password.
        f.debug_struct("Client").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_printed() {
        let url = "redis://user:secret@10.0.0.5";
        let builders = [Client::builder(url), Client::cluster([url]), Client::sentinel("one", [url], url)];
        for builder in builders {
            #[cfg(feature = "tls")]
            let builder = builder.certificate("secret", "secret");
            let printed = format!("{builder:?}");
            assert!(printed.starts_with("ClientBuilder") && !printed.contains("secret"), "{printed}");
        }
        let client = Client::open(url).unwrap();
        assert!(!format!("{client:?}").contains("secret"));
    }

    #[test]
    fn a_timeout_has_a_range() {
        for timeout in [Duration::ZERO, Duration::from_secs(61), Duration::MAX] {
            let refused = Client::builder("redis://10.0.0.5").connection_timeout(timeout).build();
            let message = refused.unwrap_err().to_string();
            assert!(message.ends_with(": expected 1ms to 60s"), "{message}");
        }
    }
}
