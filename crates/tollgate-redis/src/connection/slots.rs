//! [`SlotMap`]: the assignment of keys to the nodes of a cluster.
//!
//! Each node has its own connection here, unlike in a cluster client that owns all connections.
//! While such a client looks for a lost node, it delays requests to the other nodes. It also sends
//! requests to nodes that don't have the slot, and resends lost requests. Here, a node that is down
//! affects only its own keys.

use super::node::{Found, Node};
use super::servers::Servers;
use redis::Value;
use std::sync::Arc;

const SLOTS: u16 = 16_384;

/// A snapshot of the nodes and their slots. Each change creates a new map.
pub(crate) struct SlotMap {
    /// Contains at least one node.
    nodes: Vec<Arc<Node>>,
    /// For each slot, the index of its node; `None` if the first node has all keys.
    slots: Option<Box<[u16]>>,
}

/// The first and the last slot of a range, and the address of their master.
pub(crate) type Range = (u16, u16, (String, u16));

impl SlotMap {
    /// Creates a map in which one node has all keys.
    pub(crate) fn of(node: Arc<Node>) -> Self {
        Self { nodes: vec![node], slots: None }
    }

    /// Returns the slot of a key. Names have no hash tags.
    pub(crate) fn slot(key: &str) -> u16 {
        crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(crate) fn is_known(&self) -> bool {
        self.slots.is_some()
    }

    pub(crate) fn node(&self, slot: u16) -> &Arc<Node> {
        let number = self.slots.as_ref().map_or(0, |slots| slots[usize::from(slot)]);
        &self.nodes[usize::from(number)]
    }

    /// Returns whether any keys are on this node.
    pub(crate) fn has_keys(&self, node: &Arc<Node>) -> bool {
        let number = self.nodes.iter().position(|held| Arc::ptr_eq(held, node));
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.is_some_and(|number| self.slots.as_ref().map_or(number == 0, |slots| slots.contains(&number)))
    }

    /// Calls `key` until it returns a key that is on this node. Returns `None` after many failed
    /// attempts.
    pub(crate) fn key_on(&self, node: &Arc<Node>, mut key: impl FnMut() -> String) -> Option<String> {
        // To find one of 16,384 slots, far fewer attempts are enough.
        (0..200_000).map(|_| key()).find(|key| {
            let slot = if self.is_known() { Self::slot(key) } else { 0 };
            Arc::ptr_eq(self.node(slot), node)
        })
    }

    pub(crate) fn holds(&self, node: &Arc<Node>) -> bool {
        self.nodes.iter().any(|held| Arc::ptr_eq(held, node))
    }

    pub(crate) fn at(&self, address: &(String, u16)) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.endpoint.is_at(address))
    }

    /// Returns the map with an additional node that has no slots.
    pub(crate) fn with(&self, node: Arc<Node>) -> Self {
        let mut nodes = self.nodes.clone();
        nodes.push(node);
        Self { nodes, slots: self.slots.clone() }
    }

    /// Returns the map that a server's ranges describe. Nodes without slots are kept while they are
    /// connected, because slots may be migrating to them. A slot outside all ranges keeps its node.
    pub(crate) fn updated(&self, ranges: &[Range], servers: &Servers) -> Option<Self> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut slots = vec![u16::MAX; usize::from(SLOTS)].into_boxed_slice();
        for (first, last, address) in ranges {
            let known = nodes.iter().chain(&self.nodes).find(|node| node.endpoint.is_at(address)).cloned();
            let node = known.map_or_else(|| servers.node(address).map(Node::new), Some)?;
            let number = number(&mut nodes, &node)?;
            // `get_mut` would accept a reversed range as an empty one, so this check refuses
            // reversed ranges.
            let row = (first <= last).then(|| usize::from(*first)..=usize::from(*last))?;
            slots.get_mut(row)?.fill(number);
        }
        if nodes.is_empty() {
            return None;
        }
        for slot in 0..SLOTS {
            if slots[usize::from(slot)] == u16::MAX {
                let before =
                    if self.is_known() { Arc::clone(self.node(slot)) } else { Arc::clone(&nodes[0]) };
                slots[usize::from(slot)] = number(&mut nodes, &before)?;
            }
        }
        for node in &self.nodes {
            if matches!(node.find(), Found::Connected(_)) {
                number(&mut nodes, node)?;
            }
        }
        Some(Self { nodes, slots: Some(slots) })
    }
}

/// Returns the index of `node`. Appends the node if it is missing.
fn number(nodes: &mut Vec<Arc<Node>>, node: &Arc<Node>) -> Option<u16> {
    let found = nodes.iter().position(|held| Arc::ptr_eq(held, node));
    let number = found.unwrap_or_else(|| {
        nodes.push(Arc::clone(node));
        nodes.len() - 1
    });
    u16::try_from(number).ok()
}

/// Returns true if a server's answer names no host. The host by which the server was asked is then
/// used.
pub(crate) fn is_unnamed(host: &str) -> bool {
    host.is_empty() || host == "?"
}

/// Parses the answer to CLUSTER SLOTS. If the answer names no host, `host` is used.
pub(crate) fn ranges(answer: Value, host: &str) -> Option<Vec<Range>> {
    let list = |value| if let Value::Array(values) = value { Some(values) } else { None };
    let range = |value| {
        let mut values = list(value)?.into_iter();
        let mut number = || u16::try_from(redis::from_redis_value::<i64>(values.next()?).ok()?).ok();
        let (first, last) = (number()?, number()?);
        let mut master = list(values.next()?)?.into_iter();
        let named: Option<String> = redis::from_redis_value(master.next()?).ok()?;
        let named = named.filter(|name| !is_unnamed(name));
        let port = redis::from_redis_value(master.next()?).ok()?;
        Some((first, last, (named.unwrap_or_else(|| host.to_owned()), port)))
    };
    list(answer)?.into_iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::connection::servers::Endpoint;

    fn servers() -> Servers {
        let client = Client::cluster(["redis://10.0.0.1:7000"]).build().unwrap();
        Arc::into_inner(client.network).unwrap().servers
    }

    fn at(number: u16) -> (String, u16) {
        ("10.0.0.1".to_owned(), number)
    }

    #[test]
    fn slots_are_as_they_were_told_and_nodes_stay_the_same() {
        let servers = servers();
        let start = SlotMap::of(Node::new(Endpoint::Cluster));
        let map = start.updated(&[(0, 99, at(1)), (100, SLOTS - 1, at(2))], &servers).unwrap();
        assert_eq!(map.nodes().len(), 2);
        assert!(map.node(99).endpoint.is_at(&at(1)) && map.node(100).endpoint.is_at(&at(2)));
        let second = Arc::clone(map.node(100));
        // The first node is gone, and a third node has its slots. Slots without a node keep their
        // old node.
        let map = map.updated(&[(0, 9, at(3)), (100, SLOTS - 1, at(2))], &servers).unwrap();
        assert!(Arc::ptr_eq(map.node(100), &second));
        assert!(map.node(9).endpoint.is_at(&at(3)) && map.node(10).endpoint.is_at(&at(1)));
    }

    #[test]
    fn an_answer_that_says_nothing_changes_nothing() {
        let (servers, map) = (servers(), SlotMap::of(Node::new(Endpoint::Cluster)));
        assert!(map.updated(&[], &servers).is_none());
        assert!(map.updated(&[(5, SLOTS, at(1))], &servers).is_none());
        assert!(map.updated(&[(5, 4, at(1))], &servers).is_none());
        assert_eq!(ranges(Value::Nil, "host"), None);
        assert_eq!(ranges(Value::Array(vec![Value::Array(vec![])]), "host"), None);
    }

    #[test]
    fn a_server_without_a_name_has_that_by_which_it_was_asked() {
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let row = |name| {
            let master = Value::Array(vec![name, Value::Int(7000), bytes("id")]);
            Value::Array(vec![Value::Int(0), Value::Int(5), master])
        };
        let rows = Value::Array(vec![row(bytes("")), row(Value::Nil), row(bytes("?")), row(bytes("there"))]);
        let names: Vec<_> = ranges(rows, "host").unwrap().into_iter().map(|(_, _, (name, _))| name).collect();
        assert_eq!(names, ["host", "host", "host", "there"]);
    }
}
