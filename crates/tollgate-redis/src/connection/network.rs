//! [`Network`]: the assignment of keys to servers, the connections to the servers, and the failures
//! of these connections.

use super::breaker::Pass;
use super::node::{Found, LATE, Node};
use super::servers::{Connection, Endpoint, Servers, Settings, breaks_connection};
use super::slots::{self, Range, SlotMap};
use super::trial::{self, Findings, Trial, Trials, Tried};
use crate::health::{Problem, StoreProblem};
use crate::runtime::Runtime;
use crate::scripts::script::Failure;
use crate::stats::ClientStats;
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use arc_swap::ArcSwap;
use futures_util::future::{Either, join_all, pending, select, select_ok};
use redis::{ErrorKind, RedisError, RedisResult, ServerError, ServerErrorKind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a probe waits for an answer. After this time, the probe has failed.
const PROBE: Duration = Duration::from_millis(200);

/// The mean time between two trials of a node that does not answer checks. Each pause is a random
/// time from half of this value to one and a half times this value.
const RETRY: Duration = Duration::from_millis(300);

/// Everything that a client knows about its servers.
pub(crate) struct Network {
    pub(crate) servers: Servers,
    pub(crate) runtime: Runtime,
    settings: Settings,
    map: ArcSwap<SlotMap>,
    trials: Trials,
    /// Whether the limits are tried on each new connection.
    tries: AtomicBool,
    /// Whether a caller outside of a runtime had to decide without the store.
    misses_runtime: AtomicBool,
    /// Whether a task is reading the topology of the cluster.
    refreshing: AtomicBool,
    /// Whether a limit reports its counts again to a store that may have lost them.
    tells_again: AtomicBool,
    /// The number of connections opened to servers that may have lost data.
    connections: AtomicU64,
    /// How often breakers have opened for nodes that no longer exist.
    opened: AtomicU64,
}

/// The server that a request is sent to.
pub(crate) enum Target {
    Slot(u16),
    /// The node of a cluster to which another node has redirected the request. `asking` is true
    /// while the slot is being migrated to this node.
    Node {
        node: Arc<Node>,
        asking: bool,
    },
}

impl Network {
    pub(crate) fn new(servers: Servers, settings: Settings, runtime: Runtime) -> Self {
        let map = ArcSwap::from_pointee(SlotMap::of(Node::new(servers.first())));
        Self {
            servers,
            runtime,
            settings,
            map,
            trials: Trials::default(),
            tries: AtomicBool::new(false),
            misses_runtime: AtomicBool::new(false),
            refreshing: AtomicBool::new(false),
            tells_again: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        }
    }

    pub(crate) fn map(&self) -> Arc<SlotMap> {
        self.map.load_full()
    }

    /// Returns a key's slot, or 0 if the servers are not a cluster.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        match self.is_cluster() {
            true => SlotMap::slot(key),
            false => 0,
        }
    }

    /// Connects now to each server that has keys. If no server can be reached, returns the first
    /// server's problem. Background tasks keep trying the unreachable servers.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Problem> {
        self.try_from_now_on();
        let map = self.map();
        let nodes: Vec<_> = map.nodes().iter().filter(|node| map.has_keys(node)).collect();
        let connected = join_all(nodes.iter().map(|node| self.attempt_in_task(node))).await;
        let mut problem = None;
        for (node, _) in nodes.into_iter().zip(&connected).filter(|(_, is_connected)| !**is_connected) {
            self.probe(node);
            problem.get_or_insert_with(|| self.unreachable(node, node.reason()));
        }
        match problem {
            Some(problem) if !connected.contains(&true) => Err(problem),
            _ => Ok(()),
        }
    }

    /// Adds limits to be tried while they are in use. If earlier limits were already tried, the new
    /// limits are tried now, in the background.
    pub(crate) fn try_too<'t>(self: &Arc<Self>, limits: impl IntoIterator<Item = &'t Arc<Trial>>) {
        limits.into_iter().for_each(|limit| self.trials.add(limit));
        // ORDERING: relaxed, as in `try_from_now_on`. Without a runtime, the limits are tried with
        // the next connection, or when a caller requests the trials.
        if self.tries.load(Relaxed) {
            let network = Arc::clone(self);
            self.runtime.spawn(async move { network.try_limits().await });
        }
    }

    /// Makes this client recognize a server that has lost no data. Limits call this method if they
    /// report their counts again to every server that may have lost these counts.
    pub(crate) fn tell_again(&self) {
        // ORDERING: relaxed; nothing else depends on this flag.
        self.tells_again.store(true, Relaxed);
    }

    /// Records that a caller outside of a runtime could not ask the store.
    pub(crate) fn note_missing_runtime(&self) {
        // ORDERING: relaxed; nothing else depends on this flag.
        self.misses_runtime.store(true, Relaxed);
    }

    fn try_from_now_on(&self) {
        // ORDERING: relaxed; nothing else depends on this flag.
        self.tries.store(true, Relaxed);
    }

    /// Tries all limits on each server that has keys, and returns all problems. From now on, the
    /// limits are also tried on each new connection.
    pub(crate) async fn try_limits(self: &Arc<Self>) -> Vec<Problem> {
        self.try_from_now_on();
        let deadline = Instant::now() + self.patience();
        // The nodes of a cluster are known once one of them has answered.
        let _ = self.connection(&Target::Slot(0), deadline).await;
        let map = self.map();
        let nodes = map.nodes().iter().filter(|node| map.has_keys(node));
        let each = nodes.map(async |node| {
            let target = Target::Node { node: Arc::clone(node), asking: false };
            match self.connection(&target, deadline).await {
                Ok((node, connection)) => {
                    self.record(&node, self.try_node(&node, &connection).await);
                }
                // The attempt to connect has not ended.
                Err(_) if matches!(node.find(), Found::Unconnected) => {
                    let problems = vec![self.unreachable(node, LATE.to_owned())];
                    self.record(node, Findings::new(self.trials.start().0, problems));
                }
                Err(_) => {}
            }
        });
        join_all(each).await;
        self.problems()
    }

    /// Tries every limit on a node, and returns the results.
    async fn try_node(&self, node: &Arc<Node>, connection: &Connection) -> Findings {
        let (server, user) = self.servers.describe(&node.endpoint);
        let (map, (number, limits)) = (self.map(), self.trials.start());
        let key = |limit: &trial::Trial| map.key_on(node, || limit.key(fastrand::u64(..)));
        let trials: Vec<_> = limits.iter().filter_map(|limit| Some((limit, key(limit)?))).collect();
        let tried = Tried { server: &server, user: &user };
        let found = timeout(self.patience(), trial::run_all(&trials, connection, &tried)).await;
        Findings::new(number, found.unwrap_or_else(|_| vec![self.unreachable(node, LATE.to_owned())]))
    }

    /// Stores the results of a trial. If the store does not answer checks, the trial is repeated
    /// until it does.
    fn record(self: &Arc<Self>, node: &Arc<Node>, found: Findings) {
        node.found(found);
        if node.has_failed() {
            self.try_again(node);
        }
    }

    /// Starts the task that tries the limits on a node until the store answers checks. Does nothing
    /// if the task is already running.
    fn try_again(self: &Arc<Self>, node: &Arc<Node>) {
        if node.try_again() {
            self.runtime.spawn(Retry { client: Arc::downgrade(self), node: Arc::clone(node) }.run());
        }
    }

    fn unreachable(&self, node: &Node, reason: String) -> Problem {
        Problem::Unreachable { server: self.servers.describe(&node.endpoint).0, reason }
    }

    /// Returns the problem of a missing runtime, and the problems of the servers that have keys:
    /// unreachable servers, and the results of the last trials.
    fn problems(&self) -> Vec<Problem> {
        let map = self.map();
        let of_node = |node: &Arc<Node>| {
            let away = matches!(node.find(), Found::Away);
            let mut problems = node.problems();
            if away {
                problems.retain(|problem| !matches!(problem, Problem::Unreachable { .. }));
                problems.insert(0, self.unreachable(node, node.reason()));
            }
            problems
        };
        // ORDERING: relaxed, as in `note_missing_runtime`.
        let missing = self.misses_runtime.load(Relaxed).then_some(Problem::NoRuntime);
        let nodes = map.nodes().iter().filter(|node| map.has_keys(node));
        missing.into_iter().chain(nodes.flat_map(of_node)).collect()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster { .. })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.map.load().nodes().iter().any(|node| node.connection().is_some())
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let map = self.map.load();
        let open = map.nodes().iter().filter(|node| node.breaker.pass() == Pass::Open);
        // ORDERING: relaxed; this is only a counter.
        let gone = self.opened.load(Relaxed);
        ClientStats {
            connected: self.is_connected(),
            breakers_open: open.count(),
            breaker_trips: gone + map.nodes().iter().map(|node| node.breaker.opened()).sum::<u64>(),
            problems: self.problems().into_iter().map(StoreProblem).collect(),
        }
    }

    /// Returns how many connections have been opened. A connection is not counted if it leads to
    /// the same server process as the connection that it replaces. If the number changes, the store
    /// may have lost data.
    pub(crate) fn connections(&self) -> u64 {
        // ORDERING: relaxed; this is only a counter.
        self.connections.load(Relaxed)
    }

    /// Returns false if this client knows that the key's node has failed, and true otherwise.
    pub(crate) fn is_up(&self, key: &str) -> bool {
        !matches!(self.map.load().node(self.slot(key)).find(), Found::Away)
    }

    /// Returns false if this client knows that all nodes have failed, and true otherwise.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn may_answer(&self) -> bool {
        self.map.load().nodes().iter().any(|node| !matches!(node.find(), Found::Away))
    }

    /// Returns the maximum duration of a probe. It includes the time to connect to the sentinels
    /// and then to the server.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.connection_timeout * 2 + PROBE
    }

    /// Returns the connection to the target, unless the target's breaker is open. If there is no
    /// connection and no known failure of the server, waits for an attempt to connect. Without a
    /// timer, returns an error at once.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        target: &Target,
        deadline: Instant,
    ) -> Result<(Arc<Node>, Arc<Connection>), Failure> {
        if !self.runtime.has_timer() {
            self.note_missing_runtime();
            return Err(Failure::Unavailable);
        }
        loop {
            let node = match target {
                Target::Slot(slot) => Arc::clone(self.map.load().node(*slot)),
                Target::Node { node, .. } => Arc::clone(node),
            };
            let changed = node.changed.notified();
            match node.find() {
                Found::Connected(connection) if connection.is_quiet() => {
                    // The connection may have ended while this thread was busy. The yields let the
                    // runtime first poll the system and then run the connection's task.
                    yield_now().await;
                    yield_now().await;
                    if !connection.has_ended() {
                        return Ok((Arc::clone(&node), connection));
                    }
                }
                Found::Connected(connection) => return Ok((Arc::clone(&node), connection)),
                Found::Unconnected => {
                    self.probe(&node);
                    if timeout_at(deadline, changed).await.is_err() {
                        return Err(Failure::Unavailable);
                    }
                    // While the runtime is shutting down, each probe ends immediately. The yield
                    // lets the caller end as well.
                    yield_now().await;
                }
                Found::Away => {
                    self.probe(&node);
                    return Err(Failure::Unavailable);
                }
            }
        }
    }

    /// Returns true if an error means that another node has the key, or that the script is unknown.
    pub(crate) fn was_not_run(&self, error: &ServerError) -> bool {
        let words = [ServerErrorKind::Ask, ServerErrorKind::Moved];
        match error.kind() {
            Some(ServerErrorKind::NoScript) => true,
            Some(kind) => self.is_cluster() && words.contains(&kind),
            None => false,
        }
    }

    /// Returns the target to which `node` redirects a request. The node has not executed the
    /// request, because another node has the slot or will receive the slot.
    pub(crate) fn redirected(self: &Arc<Self>, node: &Node, error: &RedisError) -> Option<Target> {
        if !self.is_cluster() {
            return None;
        }
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let host = if slots::is_unnamed(host) { &node.endpoint.address()?.0 } else { host };
        let address = (host.to_owned(), port.parse().ok()?);
        let asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        if !asking {
            self.refresh_later();
        }
        Some(Target::Node { node: self.node_at(&address)?, asking })
    }

    /// Returns the cluster node at an address. Creates the node if it is new.
    fn node_at(&self, address: &(String, u16)) -> Option<Arc<Node>> {
        if let Some(node) = self.map.load().at(address) {
            return Some(Arc::clone(node));
        }
        let new = Node::new(self.servers.node(address)?);
        // Another task may have added the node first.
        self.map.rcu(|map| match map.at(address) {
            Some(_) => Arc::clone(map),
            None => Arc::new(map.with(Arc::clone(&new))),
        });
        self.map.load().at(address).cloned()
    }

    /// Classifies an answer, and updates the node's breaker and connection.
    pub(crate) fn settle<T>(
        self: &Arc<Self>,
        node: &Arc<Node>,
        connection: &Arc<Connection>,
        answered: Option<RedisResult<T>>,
    ) -> Result<T, Failure> {
        let error = match answered {
            None => {
                // If the connection was replaced, a late answer over the old connection proves
                // nothing about the new connection.
                if node.has(connection) && node.late() {
                    self.probe(node);
                }
                return Err(Failure::Unknown);
            }
            Some(Ok(answer)) => {
                node.breaker.answered();
                return Ok(answer);
            }
            Some(Err(error)) => error,
        };
        let failure = Failure::of(&error);
        if failure != Failure::Unknown {
            // The error may concern this request only. A trial shows whether it concerns all.
            node.refuse();
            self.try_again(node);
        }
        if breaks_connection(&error) {
            // The breaker stays closed if the connection was already replaced.
            if node.has(connection) && node.fail(reason(&error)) {
                self.probe(node);
            }
        } else {
            node.breaker.answered();
        }
        Err(failure)
    }

    /// Starts the task that probes a node until the node answers. Does nothing if the task is
    /// already running.
    fn probe(self: &Arc<Self>, node: &Arc<Node>) {
        if node.breaker.probe() {
            self.runtime.spawn(Probe { client: Arc::downgrade(self), node: Arc::clone(node) }.run());
        }
    }

    /// Tries to connect to a node like [`attempt`](Self::attempt). The connection needs a task,
    /// which the task of the attempt starts in the runtime of the client.
    async fn attempt_in_task(self: &Arc<Self>, node: &Arc<Node>) -> bool {
        let (network, node) = (Arc::clone(self), Arc::clone(node));
        match self.runtime.spawn(async move { network.attempt(&node).await }) {
            // An error means that the runtime is ending.
            Some(attempt) => attempt.await.unwrap_or(false),
            None => false,
        }
    }

    /// Tries to connect to a node, and returns whether the attempt succeeded. Closes or opens the
    /// node's breaker accordingly.
    async fn attempt(&self, node: &Arc<Node>) -> bool {
        let connected = timeout(self.patience(), self.open(node)).await;
        let failure = match connected {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(reason(&error)),
            Err(_) => Some(LATE.to_owned()),
        };
        let is_connected = failure.is_none();
        match failure {
            None => node.breaker.close(),
            // Another task may have connected in the meantime.
            Some(reason) if !matches!(node.find(), Found::Connected(_)) => drop(node.fail(reason)),
            Some(_) => {}
        }
        node.changed.notify_waiters();
        is_connected
    }

    /// Opens a connection to a node. If the endpoint is a cluster with an unknown topology, reads
    /// the topology instead.
    async fn open(&self, node: &Node) -> RedisResult<()> {
        if matches!(node.endpoint, Endpoint::Cluster) {
            return self.refresh().await;
        }
        // ORDERING: relaxed, as in `tell_again`.
        let with_run = self.tells_again.load(Relaxed);
        let connection = self.servers.connect(&node.endpoint, &self.settings, with_run).await?;
        let last = node.last_connection();
        if !last.is_some_and(|last| last.is_of_same_run(&connection)) {
            // ORDERING: relaxed, because this is only a counter. It is incremented before `install`
            // publishes the connection, so that no answer arrives over a connection that was not
            // counted.
            self.connections.fetch_add(1, Relaxed);
        }
        node.install(connection);
        Ok(())
    }

    /// Reads the topology of the cluster, in a separate task.
    fn refresh_later(self: &Arc<Self>) {
        // ORDERING: relaxed; the flag only bounds the number of tasks.
        if self.refreshing.swap(true, Relaxed) {
            return;
        }
        let refresh = Refresh(Arc::clone(self));
        self.runtime.spawn(async move {
            let _ = timeout(refresh.0.patience(), refresh.0.refresh()).await;
        });
    }

    /// Asks the nodes for the cluster's topology, starting with the connected nodes. Uses the first
    /// answer.
    async fn refresh(&self) -> RedisResult<()> {
        let map = self.map.load_full();
        let connected =
            map.nodes().iter().filter_map(|node| Some((node.endpoint.address()?, node.connection()?)));
        let asked: Vec<_> =
            connected.map(|((host, _), connection)| Box::pin(ask_slots(connection, host))).collect();
        if !asked.is_empty()
            && let Ok(Ok((ranges, _))) = timeout(PROBE, select_ok(asked)).await
        {
            return self.apply(&ranges);
        }
        let mut addresses = self.servers.seeds();
        addresses.extend(map.nodes().iter().filter_map(|node| node.endpoint.address().cloned()));
        addresses.sort();
        addresses.dedup();
        let asked = addresses.iter().map(|address| Box::pin(self.connect_and_ask(address)));
        self.apply(&select_ok(asked).await?.0)
    }

    async fn connect_and_ask(&self, address: &(String, u16)) -> RedisResult<Vec<Range>> {
        let none = || (ErrorKind::InvalidClientConfig, "no address of a node");
        let endpoint = self.servers.node(address).ok_or_else(none)?;
        let connection = self.servers.connect(&endpoint, &self.settings, false).await?;
        ask_slots(Arc::new(connection), &address.0).await
    }

    /// Replaces the map with the slots that a server has reported.
    fn apply(&self, ranges: &[Range]) -> RedisResult<()> {
        let mut valid = false;
        let before = self.map.rcu(|map| {
            let updated = map.updated(ranges, &self.servers);
            valid = updated.is_some();
            updated.map_or_else(|| Arc::clone(map), Arc::new)
        });
        let now = self.map.load();
        for gone in before.nodes().iter().filter(|node| !now.holds(node)) {
            // ORDERING: relaxed; this is only a counter.
            self.opened.fetch_add(gone.breaker.opened(), Relaxed);
            gone.changed.notify_waiters();
        }
        let odd = (ErrorKind::UnexpectedReturnType, "invalid slots in the answer of a server");
        if valid { Ok(()) } else { Err(odd.into()) }
    }

    /// Returns whether the node no longer has slots.
    fn is_gone(&self, node: &Arc<Node>) -> bool {
        !self.map.load().holds(node)
    }
}

/// Returns why a connection is unusable, with the fix if the server refuses the user or all writes.
fn reason(error: &RedisError) -> String {
    let fix = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH")) => {
            "; correct the user and the password in the address"
        }
        (_, Some("READONLY")) => "; it is a read-only replica: connect to its primary",
        _ => "",
    };
    format!("{error}{fix}")
}

/// Asks a node for the slots. `host` is the name by which the node was reached.
async fn ask_slots(connection: Arc<Connection>, host: &str) -> RedisResult<Vec<Range>> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let ranges =
        slots::ranges(connection.send(slots, false).await?, host).filter(|ranges| !ranges.is_empty());
    Ok(ranges.ok_or((ErrorKind::UnexpectedReturnType, "missing slots in the answer of a server"))?)
}

/// The right to read the topology of the cluster. Dropping this value returns the right, even if
/// the runtime has ended.
struct Refresh(Arc<Network>);

impl Drop for Refresh {
    fn drop(&mut self) {
        // ORDERING: relaxed, as in `refresh_later`.
        self.0.refreshing.store(false, Relaxed);
    }
}

/// The task that probes a node. It ends when the client is dropped or the node no longer exists.
struct Probe {
    client: Weak<Network>,
    node: Arc<Node>,
}

impl Probe {
    async fn run(self) {
        let breaker = &self.node.breaker;
        // If a server had merely stalled, it answers over its old connection once it resumes.
        // Waiting for that answer costs nothing. A server that refuses requests also answers a
        // PING, so this answer would prove nothing.
        let last = self.node.last_connection().filter(|_| self.node.may_have_stalled());
        let goes_on = async {
            match &last {
                Some(connection) if connection.ping().await.is_ok() => {}
                _ => pending().await,
            }
        };
        let mut goes_on = pin!(goes_on);
        // A server whose answers are late is probed less and less often.
        let mut is_silent = false;
        loop {
            if self.client.strong_count() == 0 {
                return;
            }
            let pause = pin!(sleep(breaker.next_pause()));
            let answered = match is_silent {
                true => matches!(select(pause, goes_on.as_mut()).await, Either::Right(_)),
                false => {
                    pause.await;
                    false
                }
            };
            let Some(client) = self.client.upgrade() else { return };
            if answered {
                return self.resume();
            }
            if matches!(self.node.endpoint, Endpoint::Node { .. }) && breaker.pass() == Pass::Open {
                // Another node may have taken over the slots.
                let _ = timeout(client.patience(), client.refresh()).await;
                if client.is_gone(&self.node) {
                    return;
                }
            }
            let connected = {
                let attempt = pin!(client.attempt(&self.node));
                let first = select(attempt, goes_on.as_mut()).await;
                match first {
                    Either::Left((is_connected, _)) => Some(is_connected),
                    Either::Right(_) => None,
                }
            };
            let Some(is_connected) = connected else { return self.resume() };
            if is_connected {
                // ORDERING: relaxed, as in `try_from_now_on`.
                if client.tries.load(Relaxed)
                    && let Some(connection) = self.node.connection()
                {
                    let (node, network) = (Arc::clone(&self.node), Arc::clone(&client));
                    network.runtime.spawn(async move {
                        let found = client.try_node(&node, &connection).await;
                        // If the connection has ended in the meantime, this result is dropped,
                        // because the limits are tried again over the new connection.
                        if !connection.has_ended() {
                            client.record(&node, found);
                        }
                    });
                }
                return;
            }
            is_silent = true;
        }
    }
}

impl Probe {
    /// Resumes requests over the old connection, which the server has answered.
    fn resume(&self) {
        self.node.breaker.close();
        self.node.changed.notify_waiters();
    }
}

impl Drop for Probe {
    /// This destructor also runs when the runtime ends. The next request, in another runtime, can
    /// therefore start a new task.
    fn drop(&mut self) {
        self.node.breaker.probed();
        // A request may have found that the new connection has also ended. That request could not
        // start a task until now.
        self.node.changed.notify_waiters();
    }
}

/// The task that tries the limits on a node until the store answers checks. It ends when the client
/// is dropped or the node no longer exists.
struct Retry {
    client: Weak<Network>,
    node: Arc<Node>,
}

impl Retry {
    async fn run(self) {
        let target = Target::Node { node: Arc::clone(&self.node), asking: false };
        loop {
            let Some(client) = self.client.upgrade() else { return };
            if client.is_gone(&self.node) {
                return;
            }
            self.node.take_refused();
            let mut is_tried = false;
            if let Ok((node, connection)) =
                client.connection(&target, Instant::now() + client.patience()).await
            {
                let found = client.try_node(&node, &connection).await;
                // A connection that has ended shows nothing about the limits.
                is_tried = !connection.has_ended();
                if is_tried {
                    node.found(found);
                }
            }
            drop(client);
            sleep(RETRY.mul_f32(0.5 + fastrand::f32())).await;
            if is_tried && !self.node.has_failed() && !self.node.take_refused() {
                return;
            }
        }
    }
}

impl Drop for Retry {
    /// This destructor also runs when the runtime ends, as in [`Probe`].
    fn drop(&mut self) {
        self.node.tried();
    }
}
