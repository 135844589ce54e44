//! A master, its replica, and a sentinel that promotes the replica when the master is gone.

use super::program::Program;
use super::server::{Server, field};
use super::setup::{Role, Setup};
use super::wait::{found, until};
use redis::RedisResult;
use std::collections::HashMap;
use std::net::SocketAddr;

/// The name under which the sentinel knows the master.
pub const NAME: &str = "tollgate";

pub struct Watched {
    servers: [Server; 2],
    sentinel: Server,
}

impl Watched {
    /// Starts the servers. Waits until the sentinel knows both servers and the replica is in sync.
    #[track_caller]
    pub fn start(program: Program) -> Self {
        let master = Server::of(program);
        let port = master.address().port();
        let replica = Setup::new(program).line(&format!("replicaof 127.0.0.1 {port}")).start();
        until("the replica is in step", || {
            let info: String = replica.ask(&["INFO", "replication"]);
            field(&info, "master_link_status") == Some("up")
        });
        // The quorum is one, so the sentinel decides alone.
        let sentinel = Setup::new(program).role(Role::Sentinel);
        let sentinel = sentinel
            .line(&format!("sentinel monitor {NAME} 127.0.0.1 {port} 1"))
            .line(&format!("sentinel down-after-milliseconds {NAME} 500"))
            .line(&format!("sentinel failover-timeout {NAME} 3000"))
            .start();
        until("the sentinel knows the replica", || {
            let info: String = sentinel.ask(&["INFO", "sentinel"]);
            info.contains("status=ok") && info.contains("slaves=1")
        });
        Self { servers: [master, replica], sentinel }
    }

    pub fn sentinel(&self) -> &Server {
        &self.sentinel
    }

    /// Returns the first master and its replica.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the sentinel's URLs. Clients ask the sentinel for the master's address.
    pub fn urls(&self) -> Vec<String> {
        vec![self.sentinel.url()]
    }

    #[track_caller]
    pub fn server(&self, address: SocketAddr) -> &Server {
        let server = self.servers.iter().find(|server| server.address() == address);
        server.unwrap_or_else(|| panic!("{address} is none of the two servers"))
    }

    /// Returns the master that the sentinel currently names.
    #[track_caller]
    pub fn master(&self) -> &Server {
        let named = self.named().expect("the sentinel answers");
        self.server(named)
    }

    fn named(&self) -> RedisResult<SocketAddr> {
        let named: (String, u16) = self.sentinel.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        Ok(format!("{}:{}", named.0, named.1).parse().expect("an address"))
    }

    /// Kills the master, and returns its address.
    #[track_caller]
    pub fn kill_master(&self) -> SocketAddr {
        let master = self.master();
        master.kill();
        master.address()
    }

    /// Waits until all of the sentinel's answers name the same master other than `from`, and until
    /// that master accepts writes.
    #[track_caller]
    pub fn wait_for_failover(&self, from: SocketAddr) -> SocketAddr {
        found("the sentinel names another master, which is one", || {
            let named = self.named().ok().filter(|named| *named != from)?;
            // During a failover, the list of masters may still contain the old address after a
            // query by name returns the new one. Some clients read the list.
            let listed: HashMap<String, String> =
                self.sentinel.try_ask(&["SENTINEL", "MASTER", NAME]).ok()?;
            let info: String = self.server(named).try_ask(&["INFO", "replication"]).ok()?;
            let is_listed = listed.get("port") == Some(&named.port().to_string());
            (is_listed && field(&info, "role") == Some("master")).then_some(named)
        })
    }
}
