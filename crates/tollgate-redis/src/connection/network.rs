//! [`Network`]: which server has a key, the connections to the servers, and their failures.

use super::breaker::Pass;
use super::node::{Found, Node};
use super::servers::{Connection, Endpoint, Servers, Settings, breaks_connection};
use super::slots::{self, Range, SlotMap};
use super::trial::{self, Trials, Tried};
use crate::health::Problem;
use crate::scripts::script::Failure;
use crate::stats::ClientStats;
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use arc_swap::ArcSwap;
use futures_util::future::{join_all, select_ok};
use redis::{ErrorKind, RedisError, RedisResult, ServerError, ServerErrorKind};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// A probe that is not answered in this time has failed.
const PROBE: Duration = Duration::from_millis(200);

/// All that a client knows of its servers.
pub(crate) struct Network {
    pub(crate) servers: Servers,
    settings: Settings,
    map: ArcSwap<SlotMap>,
    pub(crate) trials: Trials,
    /// Whether limits are tried on each new connection.
    tries: AtomicBool,
    /// Whether a task is reading the topology of the cluster.
    refreshing: AtomicBool,
    /// How many connections were opened.
    connections: AtomicU64,
    /// How often the breakers of nodes that are gone have opened.
    opened: AtomicU64,
}

/// The server that a request is sent to.
pub(crate) enum Target {
    Slot(u16),
    /// The node of a cluster to which another one has redirected the request; `asking` while the
    /// slot is being migrated there.
    Node {
        node: Arc<Node>,
        asking: bool,
    },
}

impl Network {
    pub(crate) fn new(servers: Servers, settings: Settings) -> Self {
        let map = ArcSwap::from_pointee(SlotMap::of(Node::new(servers.first())));
        Self {
            servers,
            settings,
            map,
            trials: Trials::default(),
            tries: AtomicBool::new(false),
            refreshing: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        }
    }

    pub(crate) fn map(&self) -> Arc<SlotMap> {
        self.map.load_full()
    }

    /// Returns the slot of a key; it is not used without a cluster.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        match self.is_cluster() {
            true => SlotMap::slot(key),
            false => 0,
        }
    }

    /// Connects now.
    pub(crate) async fn connect(&self) -> RedisResult<()> {
        self.try_from_now_on();
        let node = Arc::clone(self.map.load().node(0));
        self.attempt(&node).await?;
        node.breaker.close();
        node.changed.notify_waiters();
        Ok(())
    }

    fn try_from_now_on(&self) {
        // ORDERING: relaxed; a flag on which nothing else depends.
        self.tries.store(true, Relaxed);
    }

    /// Tries all limits on each server that has keys, now and on each new connection, and returns
    /// what is wrong.
    pub(crate) async fn try_limits(self: &Arc<Self>) -> Vec<Problem> {
        self.try_from_now_on();
        let deadline = Instant::now() + self.patience();
        // The nodes of a cluster are known when one of them has answered.
        let _ = self.connection(&Target::Slot(0), deadline).await;
        let map = self.map();
        let nodes = map.nodes().iter().filter(|node| map.has_keys(node));
        let each = nodes.map(async |node| {
            let target = Target::Node { node: Arc::clone(node), asking: false };
            if let Ok((node, connection)) = self.connection(&target, deadline).await {
                self.try_node(&node, &connection).await;
            }
        });
        join_all(each).await;
        self.problems()
    }

    /// Tries all limits on a node.
    async fn try_node(&self, node: &Arc<Node>, connection: &Connection) {
        let (server, user) = self.servers.describe(&node.endpoint);
        let (map, limits) = (self.map(), self.trials.all());
        let key = |limit: &trial::Trial| map.key_on(node, || limit.key(fastrand::u64(..)));
        let trials: Vec<_> = limits.iter().filter_map(|limit| Some((&**limit, key(limit)?))).collect();
        let tried = Tried { server: &server, user: &user };
        let found = timeout(self.patience(), trial::run_all(&trials, connection, &tried)).await;
        let reason = || "no answer in time".to_owned();
        let found =
            found.unwrap_or_else(|_| vec![Problem::Unreachable { server: server.clone(), reason: reason() }]);
        node.problems.store(Arc::new(found));
    }

    /// Returns the servers that have keys and can't be reached, and what the last trials have
    /// found.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let map = self.map();
        let of_node = |node: &Arc<Node>| {
            let (server, _) = self.servers.describe(&node.endpoint);
            let reason = "it is lost, or could not be made".to_owned();
            let away = matches!(node.find(), Found::Away).then_some(Problem::Unreachable { server, reason });
            away.into_iter().chain(node.problems.load().to_vec())
        };
        map.nodes().iter().filter(|node| map.has_keys(node)).flat_map(of_node).collect()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster { .. })
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let map = self.map.load();
        let open = map.nodes().iter().filter(|node| node.breaker.pass() == Pass::Open);
        // ORDERING: relaxed; a counter.
        let gone = self.opened.load(Relaxed);
        ClientStats {
            connected: map.nodes().iter().any(|node| node.connection().is_some()),
            breakers_open: open.count(),
            breaker_opened: gone + map.nodes().iter().map(|node| node.breaker.opened()).sum::<u64>(),
        }
    }

    /// Returns how many connections were opened.
    pub(crate) fn connections(&self) -> u64 {
        // ORDERING: relaxed; a counter.
        self.connections.load(Relaxed)
    }

    /// Returns whether the key's node is connected, or was never tried.
    pub(crate) fn is_up(&self, key: &str) -> bool {
        !matches!(self.map.load().node(self.slot(key)).find(), Found::Away)
    }

    /// Returns how long a probe may take, which includes connecting, to the sentinels first.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.connection_timeout * 2 + PROBE
    }

    /// Returns the connection to the target, unless its breaker is open. Waits for the first
    /// connection.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        target: &Target,
        deadline: Instant,
    ) -> Result<(Arc<Node>, Arc<Connection>), Failure> {
        loop {
            let node = match target {
                Target::Slot(slot) => Arc::clone(self.map.load().node(*slot)),
                Target::Node { node, .. } => Arc::clone(node),
            };
            let changed = node.changed.notified();
            match node.find() {
                Found::Connected(connection) => return Ok((Arc::clone(&node), connection)),
                Found::Starting => {
                    self.probe(&node);
                    if timeout_at(deadline, changed).await.is_err() {
                        return Err(Failure::Unavailable);
                    }
                }
                Found::Away => {
                    self.probe(&node);
                    return Err(Failure::Unavailable);
                }
            }
        }
    }

    /// Returns whether an error says that another node has the key, or that the script is unknown.
    pub(crate) fn was_not_run(&self, error: &ServerError) -> bool {
        let words = [ServerErrorKind::Ask, ServerErrorKind::Moved];
        match error.kind() {
            Some(ServerErrorKind::NoScript) => true,
            Some(kind) => self.is_cluster() && words.contains(&kind),
            None => false,
        }
    }

    /// Returns where a node redirects a request that it has not executed, because another node has
    /// the slot, or will have it.
    pub(crate) fn redirected(self: &Arc<Self>, error: &RedisError) -> Option<Target> {
        if !self.is_cluster() {
            return None;
        }
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let address = (host.to_owned(), port.parse().ok()?);
        let asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        if !asking {
            self.refresh_later();
        }
        Some(Target::Node { node: self.node_at(&address)?, asking })
    }

    /// Returns the node of a cluster at an address, which may be new.
    fn node_at(&self, address: &(String, u16)) -> Option<Arc<Node>> {
        if let Some(node) = self.map.load().at(address) {
            return Some(Arc::clone(node));
        }
        let new = Node::new(self.servers.node(address)?);
        // Another task may have added it first.
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
                // A late answer on a connection that was replaced says nothing about the new one.
                if node.has(connection) && node.breaker.late() {
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
        let refused = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        if breaks_connection(&error) {
            // Not if the connection was already replaced.
            if node.has(connection) && node.breaker.open() {
                self.probe(node);
            }
        } else {
            node.breaker.answered();
        }
        Err(if refused { Failure::Server(error.to_string()) } else { Failure::Unknown })
    }

    /// Starts the task that probes a node until it answers, unless it is running.
    fn probe(self: &Arc<Self>, node: &Arc<Node>) {
        if node.breaker.probe() {
            tokio::spawn(Probe { client: Arc::downgrade(self), node: Arc::clone(node) }.run());
        }
    }

    /// Connects to a node. For a cluster whose topology is unknown, reads the topology instead.
    async fn attempt(&self, node: &Node) -> RedisResult<()> {
        if matches!(node.endpoint, Endpoint::Cluster) {
            return self.refresh().await;
        }
        let connection = self.servers.connect(&node.endpoint, &self.settings).await?;
        // ORDERING: relaxed; a counter. Incremented first, so that no answer comes over a
        // connection that was not counted: `install` publishes it.
        self.connections.fetch_add(1, Relaxed);
        node.install(connection);
        Ok(())
    }

    /// Reads the topology of the cluster, in a task of its own.
    fn refresh_later(self: &Arc<Self>) {
        // ORDERING: relaxed; it only bounds the number of tasks.
        if self.refreshing.swap(true, Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let _ = timeout(inner.patience(), inner.refresh()).await;
            // ORDERING: relaxed, as above.
            inner.refreshing.store(false, Relaxed);
        });
    }

    /// Asks the nodes for the topology of the cluster, connected nodes first. The first answer
    /// counts.
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
        let connection = self.servers.connect(&endpoint, &self.settings).await?;
        ask_slots(Arc::new(connection), &address.0).await
    }

    /// Replaces the map by what a server says of its slots.
    fn apply(&self, ranges: &[Range]) -> RedisResult<()> {
        let mut valid = false;
        let before = self.map.rcu(|map| {
            let updated = map.updated(ranges, &self.servers);
            valid = updated.is_some();
            updated.map_or_else(|| Arc::clone(map), Arc::new)
        });
        let now = self.map.load();
        for gone in before.nodes().iter().filter(|node| !now.holds(node)) {
            // ORDERING: relaxed; a counter.
            self.opened.fetch_add(gone.breaker.opened(), Relaxed);
            gone.changed.notify_waiters();
        }
        let odd = (ErrorKind::UnexpectedReturnType, "invalid slots in the answer of a server");
        if valid { Ok(()) } else { Err(odd.into()) }
    }

    /// Returns whether the node has no slots any more.
    fn is_gone(&self, node: &Arc<Node>) -> bool {
        !self.map.load().holds(node)
    }
}

/// Reads a node's view of the slots; `host` is the name by which the node was reached.
async fn ask_slots(connection: Arc<Connection>, host: &str) -> RedisResult<Vec<Range>> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let ranges =
        slots::ranges(connection.send(slots, false).await?, host).filter(|ranges| !ranges.is_empty());
    Ok(ranges.ok_or((ErrorKind::UnexpectedReturnType, "missing slots in the answer of a server"))?)
}

/// The task that probes a node. It ends with the client, and when the node is gone.
struct Probe {
    client: Weak<Network>,
    node: Arc<Node>,
}

impl Probe {
    async fn run(self) {
        let breaker = &self.node.breaker;
        loop {
            if self.client.strong_count() == 0 {
                return;
            }
            sleep(breaker.next_pause()).await;
            let Some(client) = self.client.upgrade() else { return };
            if matches!(self.node.endpoint, Endpoint::Node { .. }) && breaker.pass() == Pass::Open {
                // Another node may have taken its slots.
                let _ = timeout(client.patience(), client.refresh()).await;
                if client.is_gone(&self.node) {
                    return;
                }
            }
            let answered = timeout(client.patience(), client.attempt(&self.node)).await;
            let answered = matches!(answered, Ok(Ok(())));
            if answered {
                breaker.close();
            } else if breaker.pass() == Pass::Starting {
                breaker.open();
            }
            self.node.changed.notify_waiters();
            if answered {
                // ORDERING: relaxed, as in `try_from_now_on`.
                if client.tries.load(Relaxed)
                    && let Some(connection) = self.node.connection()
                {
                    let node = Arc::clone(&self.node);
                    tokio::spawn(async move { client.try_node(&node, &connection).await });
                }
                return;
            }
        }
    }
}

impl Drop for Probe {
    /// Runs also when the runtime ends: the next request, in another runtime, starts a new task.
    fn drop(&mut self) {
        self.node.breaker.probed();
    }
}
