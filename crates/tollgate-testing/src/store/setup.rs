//! [`Setup`]: the settings with which a server is started.

use super::certificates::Authority;
use super::program::Program;
use super::server::Server;
use std::fs;
use std::path::Path;

/// What a server is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A single server, or a replica.
    Plain,
    /// A node of a cluster.
    Cluster,
    /// A sentinel, which watches other servers and stores no data.
    Sentinel,
}

/// The settings of one server. The server stores nothing on disk, and its debug command is enabled.
#[derive(Clone)]
pub struct Setup {
    pub program: Program,
    pub role: Role,
    pub password: Option<String>,
    pub authority: Option<Authority>,
    lines: Vec<String>,
}

impl Setup {
    pub fn new(program: Program) -> Self {
        Self { program, role: Role::Plain, password: None, authority: None, lines: Vec::new() }
    }

    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Makes the server require this password from clients.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Makes the server accept only TLS connections, with a certificate issued by this authority.
    pub fn tls(mut self, authority: &Authority) -> Self {
        self.authority = Some(authority.clone());
        self
    }

    /// Adds a line to the configuration, such as `maxmemory 2mb`.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Starts the server on a free port of 127.0.0.1, and waits until it answers.
    ///
    /// # Panics
    ///
    /// Panics if the program is missing or refuses its configuration.
    #[track_caller]
    pub fn start(self) -> Server {
        Server::start_with(self)
    }

    /// Writes the configuration file. Cluster nodes communicate over the port `bus`, or over the
    /// port `port` + 10,000 if `bus` is `None`.
    pub fn write(&self, folder: &Path, port: u16, bus: Option<u16>) {
        let mut lines = vec!["bind 127.0.0.1".to_owned(), format!("dir {}", folder.display())];
        if self.role != Role::Sentinel {
            lines.extend(["save \"\"", "appendonly no"].map(str::to_owned));
            // Redis 6.2 always allows its debug command.
            if self.program != Program::OldRedis {
                lines.push("enable-debug-command yes".to_owned());
            }
            // Without this setting, a master of Redis 7 would wait five seconds for more replicas
            // before it synchronizes the first.
            lines.push("repl-diskless-sync-delay 0".to_owned());
            // CLUSTER SLOTS does not list a replica before its master's first ping. Without this
            // setting, that ping would take ten seconds.
            lines.push("repl-ping-replica-period 1".to_owned());
        }
        if self.role == Role::Cluster {
            lines.push("cluster-enabled yes".to_owned());
        }
        if let Some(bus) = bus {
            lines.push(format!("cluster-port {bus}"));
        }
        if let Some(password) = &self.password {
            lines.push(format!("requirepass {password}"));
            if self.role != Role::Sentinel {
                lines.push(format!("masterauth {password}"));
            }
        }
        match &self.authority {
            None => lines.push(format!("port {port}")),
            Some(authority) => {
                let (certificate, key) = authority.issue();
                let files = [
                    ("ca", "tls-ca-cert-file", authority.pem()),
                    ("certificate", "tls-cert-file", certificate),
                    ("key", "tls-key-file", key),
                ];
                for (name, setting, pem) in files {
                    let path = folder.join(format!("{name}.pem"));
                    fs::write(&path, pem).expect("a new folder can be written");
                    lines.push(format!("{setting} {}", path.display()));
                }
                lines.push(format!("port 0\ntls-port {port}\ntls-auth-clients no"));
            }
        }
        lines.extend(self.lines.iter().cloned());
        let text = lines.join("\n") + "\n";
        fs::write(folder.join(CONFIGURATION), text).expect("a new folder can be written");
    }
}

/// The name of the file that [`Setup::write`] writes.
pub const CONFIGURATION: &str = "server.conf";
