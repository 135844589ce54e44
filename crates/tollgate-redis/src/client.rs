//! The way to the servers: one connection that all share, a deadline for each request, and a breaker.
//!
//! Every request ends by its deadline, whatever the server does. What is known then is one of three things: the answer;
//! that it was not executed, because it was never sent or the server says so; or nothing, for a request whose answer is
//! late or lost may have been executed, or may be yet. It is never sent a second time.
//!
//! While there is no connection to a server, or three answers in a row were late, requests for it end at once and one task
//! probes: see [`Breaker`](crate::connection::breaker::Breaker). A probe is a new connection on which a PING is answered: one that is
//! half open is so replaced. Each node of a cluster has a breaker of its own, so that one that is down does not take the
//! others with it; before it is probed, the others are asked whether it has a successor.

use crate::connection::network::{Network, Target};
#[cfg(not(feature = "tls"))]
use crate::connection::no_tls::Tls;
use crate::connection::node::Node;
use crate::connection::servers::{Addresses, Line, Servers, Settings};
#[cfg(feature = "tls")]
use crate::connection::tls::Tls;
use crate::error::BuildError;
use crate::scripts::script::{self, Call, Failure, Reply};
use crate::stats::ClientStats;
use futures_util::future::join_all;
use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// A request that was sent on so often, from node to node of a cluster, is given up.
const HOPS: usize = 4;
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A way to servers that machines share: one server, a master and its replicas behind sentinels, or a cluster; Redis 7 or
/// Valkey.
///
/// A clone shares the connection. It is made in the background when it is needed first, inside a tokio runtime, and again
/// whenever it is lost; [`connect`](Self::connect) says beforehand whether it can be.
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
}

/// What may be sent on from node to node.
enum Request<'c> {
    Run(&'c Call<'c>),
    Delete(&'c str),
}

/// A server that can't be connected to.
///
/// ```
/// use tollgate_redis::Client;
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
    /// [`BuildError::Client`] for an address that is none, [`BuildError::NoTls`] for one that asks for TLS
    /// where the feature `tls` is off.
    ///
    /// ```
    /// # use tollgate_redis::Client;
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
    ///
    /// A node that is down costs its own keys the store's answers, until its replica has taken its place; and all keys, if the
    /// cluster is set to refuse everything meanwhile (`cluster-require-full-coverage yes`, its default).
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
        timeout(self.network.patience(), self.network.connect()).await.map_err(late)?.map_err(failed)
    }

    /// How the way to the servers is.
    ///
    /// ```
    /// # use tollgate_redis::Client;
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// assert_eq!(client.stats().breaker_opened, 0);
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn stats(&self) -> ClientStats {
        self.network.stats()
    }

    /// Runs a script; ends by the deadline.
    pub(crate) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Reply, Failure> {
        let value = self.ask(call.key, &Request::Run(call), deadline).await?;
        script::reply(value).map_err(|error| Failure::Refused(error.to_string()))
    }

    /// Deletes a key.
    pub(crate) async fn delete(&self, key: &str, deadline: Instant) -> Result<(), Failure> {
        self.ask(key, &Request::Delete(key), deadline).await.map(|_| ())
    }

    /// Asks a node, and those to which it sends the request on: they have not executed it.
    async fn ask(&self, key: &str, request: &Request<'_>, deadline: Instant) -> Result<Value, Failure> {
        let network = &self.network;
        let mut target = Target::Slot(network.slot(key));
        for hop in 1.. {
            let (node, line) = network.line(&target, deadline).await?;
            let asking = matches!(target, Target::Node { asking: true, .. });
            let answered = timeout_at(deadline, request.send(&line, asking)).await.ok();
            match answered {
                Some(Err(error)) if hop < HOPS => match network.sent_on(&error) {
                    Some(next) => target = next,
                    None => return network.judge(&node, &line, Some(Err(error))),
                },
                answered => return network.judge(&node, &line, answered),
            }
        }
        Err(Failure::Unavailable)
    }

    /// Runs scripts, in one write for each server. All end by the deadline.
    pub(crate) async fn call_all(
        &self,
        calls: &[Call<'_>],
        deadline: Instant,
    ) -> Vec<Result<Reply, Failure>> {
        // Those of each server, in the order in which they were given.
        let mut groups: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
        let Some(first) = calls.first() else { return Vec::new() };
        // Who has which slots must be known before.
        let network = &self.network;
        let _ = network.line(&Target::Slot(network.slot(first.key)), deadline).await;
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

    /// Runs those of the calls that have these numbers, and whose keys are with this node.
    async fn call_node(
        &self,
        node: &Arc<Node>,
        calls: &[Call<'_>],
        numbers: &[usize],
        deadline: Instant,
    ) -> Vec<Result<Reply, Failure>> {
        let network = &self.network;
        let target = Target::Node { node: Arc::clone(node), asking: false };
        let (node, line) = match network.line(&target, deadline).await {
            Ok(found) => found,
            Err(failure) => return vec![Err(failure); numbers.len()],
        };
        let cmds = numbers.iter().map(|&number| calls[number].command(false)).collect();
        let mut answers = match send_all(&line, cmds, deadline).await {
            Ok(answers) => answers,
            Err(answered) => return vec![network.judge(&node, &line, answered); numbers.len()],
        };
        // A server that has lost its scripts is asked once more for those that it has not run: the first of them brings
        // the script back.
        let unknown: Vec<_> = (0..answers.len()).filter(|&place| was_unknown(&answers[place])).collect();
        let mut failed = None;
        if !unknown.is_empty() {
            let cmds = unknown.iter().enumerate();
            let cmds = cmds.map(|(place, &at)| calls[numbers[at]].command(place == 0)).collect();
            match send_all(&line, cmds, deadline).await {
                Ok(told) => unknown.iter().zip(told).for_each(|(&at, answer)| answers[at] = answer),
                Err(answered) => failed = network.judge::<()>(&node, &line, answered).err(),
            }
        }
        let mut results = Vec::with_capacity(numbers.len());
        for (&number, answer) in numbers.iter().zip(answers) {
            results.push(match (&failed, answer) {
                // Whether the second request was executed, nobody knows.
                (Some(failure), answer) if was_unknown(&answer) => Err(failure.clone()),
                // The slot has moved, or the script is lost again: it was not run.
                (_, Value::ServerError(error)) if network.was_not_run(&error) => {
                    self.call(&calls[number], deadline).await
                }
                (_, answer) => network.judge(&node, &line, Some(script::reply(answer))),
            });
        }
        results
    }

    /// How many connections there were: another number means another connection.
    pub(crate) fn connections(&self) -> u64 {
        self.network.connections()
    }

    /// Is there a connection for a key, as far as is known, or was none tried yet?
    pub(crate) fn is_up(&self, key: &str) -> bool {
        self.network.is_up(key)
    }
}

impl Request<'_> {
    async fn send(&self, line: &Line, asking: bool) -> RedisResult<Value> {
        match self {
            Self::Run(call) => match line.send(call.command(false), asking).await {
                Err(error) if script::is_unknown(&error) => line.send(call.command(true), asking).await,
                answered => answered,
            },
            Self::Delete(key) => line.send(Cmd::del(key), asking).await,
        }
    }
}

/// Sends commands in one write; if not all are answered in time, what is known of that.
async fn send_all<T>(
    line: &Line,
    cmds: Vec<Cmd>,
    deadline: Instant,
) -> Result<Vec<Value>, Option<RedisResult<T>>> {
    let count = cmds.len();
    match timeout_at(deadline, line.send_all(cmds, false)).await {
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
        Self { addresses, settings: Settings { connection_timeout, tls: Tls::default() } }
    }

    /// How long an attempt to connect may take, 1 ms to 60 s; 100 ms unless it is set.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connection_timeout = timeout;
        self
    }

    /// Trusts certificates that this one has signed, in PEM, instead of those that the system trusts.
    ///
    /// Needs the feature `tls`.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.root_certificate = Some(pem.into());
        self
    }

    /// Shows this certificate to servers that ask for one, in PEM.
    ///
    /// Needs the feature `tls`.
    #[cfg(feature = "tls")]
    pub fn certificate(mut self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.certificate =
            Some(redis::ClientTlsConfig { client_cert: pem.into(), client_key: key.into() });
        self
    }

    /// The client. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BuildError::Client`] for an address or a certificate that is none, [`BuildError::NoTls`] as of
    /// [`open`](Client::open), [`BuildError::ConnectionTimeout`].
    pub fn build(self) -> Result<Client, BuildError> {
        let (timeout, least, most) = (self.settings.connection_timeout, SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        if timeout < least || timeout > most {
            return Err(BuildError::ConnectionTimeout { timeout, least, most });
        }
        let servers = Servers::new(self.addresses, &self.settings)?;
        Ok(Client { network: Arc::new(Network::new(servers, self.settings)) })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As of a client: addresses may hold a password.
        let timeout = self.settings.connection_timeout;
        f.debug_struct("ClientBuilder").field("connection_timeout", &timeout).finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses may hold a password.
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
            assert!(message.ends_with("is out of range; allowed: 1ms to 60s"), "{message}");
        }
    }
}
