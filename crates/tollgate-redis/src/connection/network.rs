//! The servers at hand: which of them has a key, the connections to them, and what becomes of those.

use super::breaker::Pass;
use super::node::{Found, Node};
use super::servers::{Line, Servers, Settings, Way};
use super::slots::{self, Map, Range};
use crate::scripts::script::Failure;
use crate::stats::ClientStats;
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use arc_swap::ArcSwap;
use futures_util::future::select_ok;
use redis::{ErrorKind, RedisError, RedisResult, ServerError, ServerErrorKind};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// A probe that is not answered by then has failed.
const PROBE: Duration = Duration::from_millis(200);

/// All that there is to know of the servers.
pub(crate) struct Network {
    pub(crate) servers: Servers,
    settings: Settings,
    map: ArcSwap<Map>,
    /// Is somebody asking what the cluster is?
    looking: AtomicBool,
    /// How many connections there were.
    connections: AtomicU64,
    /// How often breakers have opened of nodes that are gone.
    opened: AtomicU64,
}

/// Whom to ask.
pub(crate) enum Target {
    Slot(u16),
    /// A node of a cluster to which another one has sent the request; `asking` while the slot is on its way there.
    Node {
        node: Arc<Node>,
        asking: bool,
    },
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

impl Network {
    pub(crate) fn new(servers: Servers, settings: Settings) -> Self {
        let map = ArcSwap::from_pointee(Map::of(Node::new(servers.first())));
        let (looking, connections, opened) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Self { servers, settings, map, looking, connections, opened }
    }

    pub(crate) fn map(&self) -> Arc<Map> {
        self.map.load_full()
    }

    /// The slot of a key; without a cluster it does not matter.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        match self.servers {
            Servers::Cluster { .. } => Map::slot(key),
            _ => 0,
        }
    }

    /// Connects now.
    pub(crate) async fn connect(&self) -> RedisResult<()> {
        let node = Arc::clone(self.map.load().node(0));
        self.attempt(&node).await?;
        node.breaker.close();
        node.changed.notify_waiters();
        Ok(())
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let map = self.map.load();
        let open = map.nodes().iter().filter(|node| node.breaker.pass() == Pass::Open);
        // ORDERING: relaxed; a counter.
        let gone = self.opened.load(Relaxed);
        ClientStats {
            connected: map.nodes().iter().any(|node| node.line().is_some()),
            breakers_open: open.count(),
            breaker_opened: gone + map.nodes().iter().map(|node| node.breaker.opened()).sum::<u64>(),
        }
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> u64 {
        // ORDERING: relaxed; a counter.
        self.connections.load(Relaxed)
    }

    /// Is there a connection to the node that has a key, or was none tried yet?
    pub(crate) fn is_up(&self, key: &str) -> bool {
        !matches!(self.map.load().node(self.slot(key)).find(), Found::Away)
    }

    /// For how long a probe may take: it has to connect, to the sentinels before it.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.connection_timeout * 2 + PROBE
    }

    /// The connection to whom to ask, unless its breaker is open. The first one is waited for.
    pub(crate) async fn line(
        self: &Arc<Self>,
        target: &Target,
        deadline: Instant,
    ) -> Result<(Arc<Node>, Arc<Line>), Failure> {
        loop {
            let node = match target {
                Target::Slot(slot) => Arc::clone(self.map.load().node(*slot)),
                Target::Node { node, .. } => Arc::clone(node),
            };
            let changed = node.changed.notified();
            match node.find() {
                Found::Line(line) => return Ok((Arc::clone(&node), line)),
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

    /// Does an error say that another node is to be asked, or that the script is not known?
    pub(crate) fn was_not_run(&self, error: &ServerError) -> bool {
        let words = [ServerErrorKind::Ask, ServerErrorKind::Moved];
        match error.kind() {
            Some(ServerErrorKind::NoScript) => true,
            Some(kind) => matches!(self.servers, Servers::Cluster { .. }) && words.contains(&kind),
            None => false,
        }
    }

    /// Where a node sends a request that it has not executed, because another node has the slot, or will have it.
    pub(crate) fn sent_on(self: &Arc<Self>, error: &RedisError) -> Option<Target> {
        if !matches!(self.servers, Servers::Cluster { .. }) {
            return None;
        }
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let address = (host.to_owned(), port.parse().ok()?);
        let asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        if !asking {
            self.look_later();
        }
        Some(Target::Node { node: self.node_at(&address)?, asking })
    }

    /// The node of a cluster at an address, which may be a new one.
    fn node_at(&self, address: &(String, u16)) -> Option<Arc<Node>> {
        if let Some(node) = self.map.load().at(address) {
            return Some(Arc::clone(node));
        }
        let new = Node::new(self.servers.node(address)?);
        // Somebody else may have been first.
        self.map.rcu(|map| match map.at(address) {
            Some(_) => Arc::clone(map),
            None => Arc::new(map.with(Arc::clone(&new))),
        });
        self.map.load().at(address).cloned()
    }

    /// What an answer says about its request, and about the connection.
    pub(crate) fn judge<T>(
        self: &Arc<Self>,
        node: &Arc<Node>,
        line: &Arc<Line>,
        answered: Option<RedisResult<T>>,
    ) -> Result<T, Failure> {
        let error = match answered {
            None => {
                // A late answer of a connection that was replaced says nothing about the new one.
                if node.has(line) && node.breaker.late() {
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
        if is_of_the_line(&error) {
            // Not if there is another connection by now.
            if node.has(line) && node.breaker.open() {
                self.probe(node);
            }
        } else {
            node.breaker.answered();
        }
        Err(if refused { Failure::Refused(error.to_string()) } else { Failure::Unknown })
    }

    /// Starts a task that probes until it is answered, unless there is one.
    fn probe(self: &Arc<Self>, node: &Arc<Node>) {
        if node.breaker.probe() {
            tokio::spawn(Probe { client: Arc::downgrade(self), node: Arc::clone(node) }.run());
        }
    }

    /// Connects. Of a cluster about which nothing is known, to all its nodes, as they are asked.
    async fn attempt(&self, node: &Node) -> RedisResult<()> {
        if matches!(node.way, Way::Cluster) {
            return self.look().await;
        }
        let line = self.servers.dial(&node.way, &self.settings).await?;
        // ORDERING: relaxed; a counter. Counted first: nobody has an answer of a connection that was not counted, for
        // `install` publishes it.
        self.connections.fetch_add(1, Relaxed);
        node.install(line);
        Ok(())
    }

    /// Asks what the cluster is, beside the requests.
    fn look_later(self: &Arc<Self>) {
        // ORDERING: relaxed; it protects nothing but the number of tasks.
        if self.looking.swap(true, Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let _ = timeout(inner.patience(), inner.look()).await;
            // ORDERING: relaxed, as above.
            inner.looking.store(false, Relaxed);
        });
    }

    /// Asks the nodes, those first to which there are connections, what the cluster is. The first answer counts.
    async fn look(&self) -> RedisResult<()> {
        let map = self.map.load_full();
        let connected = map.nodes().iter().filter_map(|node| Some((node.way.address()?, node.line()?)));
        let asked: Vec<_> = connected.map(|((host, _), line)| Box::pin(ask_slots(line, host))).collect();
        if !asked.is_empty()
            && let Ok(Ok((ranges, _))) = timeout(PROBE, select_ok(asked)).await
        {
            return self.learn(&ranges);
        }
        let mut addresses = self.servers.known();
        addresses.extend(map.nodes().iter().filter_map(|node| node.way.address().cloned()));
        addresses.sort();
        addresses.dedup();
        let asked = addresses.iter().map(|address| Box::pin(self.dial_and_ask(address)));
        self.learn(&select_ok(asked).await?.0)
    }

    async fn dial_and_ask(&self, address: &(String, u16)) -> RedisResult<Vec<Range>> {
        let none = || (ErrorKind::InvalidClientConfig, "no address of a node");
        let way = self.servers.node(address).ok_or_else(none)?;
        let line = self.servers.dial(&way, &self.settings).await?;
        ask_slots(Arc::new(line), &address.0).await
    }

    fn learn(&self, ranges: &[Range]) -> RedisResult<()> {
        let mut learned = false;
        let before = self.map.rcu(|map| {
            let told = map.told(ranges, &self.servers);
            learned = told.is_some();
            told.map_or_else(|| Arc::clone(map), Arc::new)
        });
        let now = self.map.load();
        for gone in before.nodes().iter().filter(|node| !now.holds(node)) {
            // ORDERING: relaxed; a counter.
            self.opened.fetch_add(gone.breaker.opened(), Relaxed);
            gone.changed.notify_waiters();
        }
        let odd = (ErrorKind::UnexpectedReturnType, "a server has told of other slots than there are");
        if learned { Ok(()) } else { Err(odd.into()) }
    }

    /// Has the node no slots any more?
    fn is_gone(&self, node: &Arc<Node>) -> bool {
        !self.map.load().holds(node)
    }
}

/// What a node says that the cluster is; `host` is what it was asked by.
async fn ask_slots(line: Arc<Line>, host: &str) -> RedisResult<Vec<Range>> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let told = slots::ranges(line.send(slots, false).await?, host).filter(|ranges| !ranges.is_empty());
    Ok(told.ok_or((ErrorKind::UnexpectedReturnType, "a server has told of no slots"))?)
}

/// A task that probes. It ends with the client, and when its node is gone.
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
            if matches!(self.node.way, Way::Node { .. }) && breaker.pass() == Pass::Open {
                // Another node may have its place by now.
                let _ = timeout(client.patience(), client.look()).await;
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
                return;
            }
        }
    }
}

impl Drop for Probe {
    /// Also when its runtime ends: then the next request, in another one, starts the next.
    fn drop(&mut self) {
        self.node.breaker.probed();
    }
}
