//! A cluster of three masters and their replicas on loopback. A test can move slots and kill
//! masters.

use super::program::Program;
use super::server::{Server, field};
use super::setup::{Role, Setup};
use super::wait::{found, until};
use redis::{RedisResult, Value};
use std::net::SocketAddr;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

pub struct Cluster {
    nodes: Vec<Server>,
}

/// A slot that is moving from one master to another. The old master answers ASK for keys that have
/// already moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub slot: u16,
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl Cluster {
    /// Starts the cluster. Waits until all nodes see all slots served and all replicas in sync.
    #[track_caller]
    pub fn start(program: Program) -> Self {
        // With these settings, a failover takes only seconds, even if the replica has lost contact
        // with its master for a while.
        let node = || {
            let setup = Setup::new(program).role(Role::Cluster);
            setup.line("cluster-node-timeout 1000").line("cluster-replica-validity-factor 0").start()
        };
        let cluster = Self { nodes: (0..2 * MASTERS).map(|_| node()).collect() };
        cluster.join();
        cluster
    }

    #[track_caller]
    fn join(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            // Each node starts with its own epoch. Otherwise, the nodes would need seconds to
            // resolve equal epochs.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < MASTERS {
                let slots = number * SLOTS / MASTERS..(number + 1) * SLOTS / MASTERS;
                let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
                node.command(&words.collect::<Vec<_>>());
            }
        }
        let first = &self.nodes[0];
        for other in &self.nodes[1..] {
            let port = other.address().port().to_string();
            // Redis 6.2 lacks this setting.
            let bus: Vec<String> = other.ask(&["CONFIG", "GET", "cluster-port"]);
            let words = ["CLUSTER", "MEET", "127.0.0.1", &port].into_iter();
            first.command(&words.chain(bus.get(1).map(String::as_str)).collect::<Vec<_>>());
        }
        until("all nodes know each other", || {
            self.nodes.iter().all(|node| {
                let known: String = node.ask(&["CLUSTER", "NODES"]);
                known.lines().count() == self.nodes.len() && !known.contains("handshake")
            })
        });
        for (number, replica) in self.nodes.iter().enumerate().skip(MASTERS) {
            let master: String = self.nodes[number - MASTERS].ask(&["CLUSTER", "MYID"]);
            replica.command(&["CLUSTER", "REPLICATE", &master]);
        }
        self.wait_until_whole();
    }

    /// Waits until every running node sees all slots served by masters that have one replica each.
    #[track_caller]
    pub fn wait_until_whole(&self) {
        until("the cluster is whole", || {
            self.running().all(|node| {
                is_ok(node)
                    && slots(node).is_ok_and(|slots| slots.iter().all(|slot| slot.nodes.len() == 2))
                    && is_in_step(node)
            })
        });
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    #[track_caller]
    pub fn node(&self, address: SocketAddr) -> &Server {
        let node = self.nodes.iter().find(|node| node.address() == address);
        node.unwrap_or_else(|| panic!("no node has the address {address}"))
    }

    #[track_caller]
    pub fn slot_of(&self, key: &str) -> u16 {
        self.running().next().expect("a node").ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// Returns the master of a key's slot. All running nodes must agree on it.
    #[track_caller]
    pub fn master_of(&self, key: &str) -> &Server {
        let slot = self.slot_of(key);
        found("all nodes agree on the master", || self.agreed(slot).map(|nodes| self.node(nodes[0])))
    }

    /// Returns the replica of a key's master.
    #[track_caller]
    pub fn replica_of(&self, key: &str) -> &Server {
        let slot = self.slot_of(key);
        found("the master has a replica", || self.agreed(slot)?.get(1).map(|it| self.node(*it)))
    }

    /// Returns a slot's master and replicas, or `None` if the running nodes do not agree on them.
    fn agreed(&self, slot: u16) -> Option<Vec<SocketAddr>> {
        let mut seen = self.running().map(|node| {
            let slots = slots(node).ok()?;
            Some(slots.into_iter().find(|it| (it.first..=it.last).contains(&slot))?.nodes)
        });
        let first = seen.next().expect("a node")?;
        seen.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    /// Kills the master of a key's slot, and returns its address.
    #[track_caller]
    pub fn kill_master_of(&self, key: &str) -> SocketAddr {
        let master = self.master_of(key);
        master.kill();
        master.address()
    }

    /// Waits until all running nodes see a master other than `from` for the key, and all slots are
    /// served again.
    #[track_caller]
    pub fn wait_for_failover(&self, key: &str, from: SocketAddr) -> SocketAddr {
        let slot = self.slot_of(key);
        let master = found("another node is master", || {
            let master = self.agreed(slot)?[0];
            (master != from && self.node(master).is_running()).then_some(master)
        });
        until("all slots are served", || self.running().all(is_ok));
        master
    }

    /// Promotes the replica of a key's master while both are running, and waits for the promotion.
    /// No data is lost.
    #[track_caller]
    pub fn fail_over(&self, key: &str) -> SocketAddr {
        let from = self.master_of(key).address();
        self.replica_of(key).command(&["CLUSTER", "FAILOVER"]);
        self.wait_for_failover(key, from)
    }

    /// Moves a key's slot, with all of its keys, to another master. The old master then answers
    /// MOVED.
    #[track_caller]
    pub fn move_slot_of(&self, key: &str) -> Move {
        let moving = self.begin_move_of(key);
        self.finish_move(moving);
        moving
    }

    /// Starts to move a key's slot. From now on, the old master answers ASK for keys that it does
    /// not have.
    #[track_caller]
    pub fn begin_move_of(&self, key: &str) -> Move {
        let slot = self.slot_of(key);
        let from = self.master_of(key);
        let others = self.running().find(|node| {
            let role: String = node.ask(&["INFO", "replication"]);
            node.address() != from.address() && field(&role, "role") == Some("master")
        });
        let to = others.expect("another master");
        let number = slot.to_string();
        let [from_id, to_id] = [from, to].map(|node| node.ask::<String>(&["CLUSTER", "MYID"]));
        to.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]);
        from.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]);
        Move { slot, from: from.address(), to: to.address() }
    }

    /// Moves one key in a slot that is being moved.
    #[track_caller]
    pub fn migrate(&self, moving: Move, key: &str) -> Value {
        let port = moving.to.port().to_string();
        self.node(moving.from).command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000", "REPLACE"])
    }

    /// Moves the remaining keys. Waits until all nodes know the new master.
    #[track_caller]
    pub fn finish_move(&self, moving: Move) {
        let number = moving.slot.to_string();
        let (from, to) = (self.node(moving.from), self.node(moving.to));
        let id: String = to.ask(&["CLUSTER", "MYID"]);
        loop {
            let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]);
            if keys.is_empty() {
                break;
            }
            keys.iter().for_each(|key| drop(self.migrate(moving, key)));
        }
        // The new master receives the command first, so that the slot always has an owner.
        to.command(&["CLUSTER", "SETSLOT", &number, "NODE", &id]);
        from.command(&["CLUSTER", "SETSLOT", &number, "NODE", &id]);
        until("all nodes know of the move", || {
            self.agreed(moving.slot).is_some_and(|nodes| nodes[0] == moving.to) && self.running().all(is_ok)
        });
    }
}

fn is_ok(node: &Server) -> bool {
    let info: RedisResult<String> = node.try_ask(&["CLUSTER", "INFO"]);
    info.is_ok_and(|info| field(&info, "cluster_state") == Some("ok"))
}

/// Returns whether a node is a master, or a replica with all of its master's data.
fn is_in_step(node: &Server) -> bool {
    let info: RedisResult<String> = node.try_ask(&["INFO", "replication"]);
    info.is_ok_and(|info| matches!(field(&info, "master_link_status"), None | Some("up")))
}

/// A range of slots that the same nodes serve.
struct Slots {
    first: u16,
    last: u16,
    /// The master, followed by its replicas.
    nodes: Vec<SocketAddr>,
}

fn slots(node: &Server) -> RedisResult<Vec<Slots>> {
    let rows: Vec<Vec<Value>> = node.try_ask(&["CLUSTER", "SLOTS"])?;
    let slots = rows.into_iter().map(|row| {
        let mut row = row.into_iter();
        let mut number = || redis::from_redis_value(row.next().expect("a slot's number"));
        let (first, last) = (number()?, number()?);
        let nodes = row.map(|node| {
            let mut node = redis::from_redis_value::<Vec<Value>>(node)?.into_iter();
            let mut next = || node.next().expect("an address and a port");
            let address: String = redis::from_redis_value(next())?;
            let port: u16 = redis::from_redis_value(next())?;
            Ok((address.parse::<std::net::IpAddr>().expect("an address"), port).into())
        });
        Ok(Slots { first, last, nodes: nodes.collect::<RedisResult<_>>()? })
    });
    slots.collect()
}
