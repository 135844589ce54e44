//! A server for one test, on a free port and without data on disk. The test can kill, restart, stop
//! and query it.

use super::ports;
use super::process::{Folder, Process};
use super::program::Program;
use super::setup::{CONFIGURATION, Role, Setup};
use super::wait::until;
use redis::{Client, Connection, FromRedisValue, RedisResult, Value};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// How long a test's own queries wait for an answer. A server may be busy for several seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that ends when this value is dropped. A test's queries use their own connections, which
/// bypass the faults between the server and its clients. A query briefly blocks the thread.
pub struct Server {
    // The process must be dropped before its folder.
    process: Mutex<Option<Process>>,
    folder: Folder,
    setup: Setup,
    address: SocketAddr,
}

impl Server {
    /// Starts Redis with default settings.
    #[track_caller]
    pub fn start() -> Self {
        Setup::new(Program::Redis).start()
    }

    /// Starts this program with default settings.
    #[track_caller]
    pub fn of(program: Program) -> Self {
        Setup::new(program).start()
    }

    #[track_caller]
    pub fn start_with(setup: Setup) -> Self {
        // Another process may take the port before the server does.
        for _ in 0..10 {
            let port = ports::free();
            // Nodes of Redis 6.2 cannot choose the port of their bus.
            let chooses_bus = setup.role == Role::Cluster && setup.program != Program::OldRedis;
            let bus = chooses_bus.then(ports::free);
            let folder = Folder::new(&format!("server-{}-{port}", std::process::id()));
            setup.write(folder.path(), port, bus);
            let address = (Ipv4Addr::LOCALHOST, port).into();
            let server = Self { process: Mutex::new(None), folder, setup: setup.clone(), address };
            match server.launch() {
                Ok(()) => return server,
                Err(log) if log.contains("already in use") => {}
                Err(log) => panic!("{:?} ended at once:\n{log}", setup.program),
            }
        }
        panic!("ten ports were free, and then were not");
    }

    /// Starts the process, and waits until it answers. If the process ends instead, returns its log
    /// as the error.
    #[track_caller]
    fn launch(&self) -> Result<(), String> {
        let mut command = Command::new(self.setup.program.path());
        command.arg(CONFIGURATION);
        if self.setup.role == Role::Sentinel {
            command.arg("--sentinel");
        }
        let mut process = Process::start(&mut command, self.folder.path()).expect("the program starts");
        // The answer must not come from an earlier process on the same port.
        let ours = format!("process_id:{}\r\n", process.id());
        let mut has_ended = false;
        until("the server answers", || {
            let asked: RedisResult<String> = self.try_ask(&["INFO", "server"]);
            has_ended = process.has_ended();
            has_ended || asked.is_ok_and(|info| info.contains(&ours))
        });
        if has_ended {
            return Err(self.log());
        }
        *self.process.lock().unwrap() = Some(process);
        Ok(())
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default()
    }

    pub fn program(&self) -> Program {
        self.setup.program
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL, such as `redis://127.0.0.1:12345`. The URL contains the password,
    /// if there is one, and starts with `rediss://` for TLS.
    pub fn url(&self) -> String {
        self.url_at(self.address)
    }

    /// Returns the server's URL with the address replaced by `address`, where a proxy listens.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let scheme = if self.setup.authority.is_some() { "rediss" } else { "redis" };
        let password = self.setup.password.as_ref().map(|password| format!(":{password}@"));
        format!("{scheme}://{}{address}", password.unwrap_or_default())
    }

    /// Returns a client that knows the password and trusts the authority.
    pub fn client(&self) -> Client {
        self.client_at(self.address)
    }

    /// Returns a client that reaches the server through a proxy at `address`.
    pub fn client_at(&self, address: SocketAddr) -> Client {
        let url = self.url_at(address);
        match &self.setup.authority {
            None => Client::open(url),
            Some(authority) => Client::build_with_tls(url, authority.trusted()),
        }
        .expect("a good URL")
    }

    /// Kills the server immediately (SIGKILL). The server's data are lost.
    pub fn kill(&self) {
        *self.process.lock().unwrap() = None;
    }

    /// Restarts the server on the same port, with its original settings and without data. If the
    /// server is running, it is killed first.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch().unwrap_or_else(|log| panic!("it did not start again:\n{log}"));
    }

    /// Stops the server (SIGSTOP). The server then answers nothing, but its connections remain
    /// open, and the system accepts new ones.
    pub fn stop(&self) {
        self.process.lock().unwrap().as_ref().expect("it was not killed").stop();
    }

    /// Resumes the server after [`stop`](Self::stop). The server then executes all requests that
    /// arrived while it was stopped.
    pub fn resume(&self) {
        self.process.lock().unwrap().as_ref().expect("it was not killed").resume();
    }

    pub fn is_running(&self) -> bool {
        self.process.lock().unwrap().as_mut().is_some_and(|process| !process.has_ended())
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client().get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Sends a query over its own connection: `try_ask::<i64>(&["GET", "key"])`.
    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connect()?)
    }

    /// Sends a query that the server must answer.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends a command that the server must execute: `command(&["SCRIPT", "FLUSH"])`.
    #[track_caller]
    pub fn command(&self, words: &[&str]) -> Value {
        self.ask(words)
    }

    /// Returns all keys, sorted, with their remaining time to live in milliseconds, or -1 for a key
    /// that never expires.
    #[track_caller]
    pub fn keys_with_ttl(&self) -> Vec<(String, i64)> {
        let mut connection = self.connect().expect("it runs");
        let (mut cursor, mut keys) = (0_u64, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            let (next, some): (u64, Vec<Vec<u8>>) =
                scan.arg(cursor).arg("COUNT").arg(1000).query(&mut connection).expect("it answers");
            keys.extend(some);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        // A scan may return a key twice.
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            return Vec::new();
        }
        let mut ask = redis::pipe();
        for key in &keys {
            ask.cmd("PTTL").arg(key);
        }
        let left: Vec<i64> = ask.query(&mut connection).expect("it answers");
        let keys = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned());
        // -2 means that the key has expired since the scan.
        keys.zip(left).filter(|(_, left)| *left != -2).collect()
    }

    /// Returns the processor time that the server has used since it started.
    #[track_caller]
    pub fn cpu_time(&self) -> Duration {
        let info: String = self.ask(&["INFO", "cpu"]);
        let of = |name: &str| -> f64 { field(&info, name).expect("a figure").parse().expect("a figure") };
        Duration::from_secs_f64(of("used_cpu_sys") + of("used_cpu_user"))
    }

    /// Returns how often the server has executed a command such as `evalsha`, including calls that
    /// failed and calls in scripts. A call that the server rejected before its execution, for
    /// example for a missing permission, is not counted.
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        self.figure_of(command, "calls=")
    }

    /// Returns how long the server has executed a command such as `evalsha` in total. This time
    /// includes the calls in scripts, and excludes reading requests and writing responses.
    #[track_caller]
    pub fn execution_time(&self, command: &str) -> Duration {
        Duration::from_micros(self.figure_of(command, "usec="))
    }

    #[track_caller]
    fn figure_of(&self, command: &str, name: &str) -> u64 {
        let info: String = self.ask(&["INFO", "commandstats"]);
        let Some(figures) = field(&info, &format!("cmdstat_{command}")) else { return 0 };
        let figure = figures.split(',').find_map(|figure| figure.strip_prefix(name));
        figure.expect("a figure").parse().expect("a figure")
    }

    /// Returns the number of connected clients, without the client that sends this query.
    #[track_caller]
    pub fn clients(&self) -> u64 {
        let info: String = self.ask(&["INFO", "clients"]);
        field(&info, "connected_clients").expect("a figure").parse::<u64>().expect("a figure") - 1
    }

    /// Returns how many bytes the server uses for a key, its value, and its metadata. Returns
    /// `None` if the key does not exist.
    #[track_caller]
    pub fn memory_usage(&self, key: &str) -> Option<u64> {
        self.ask(&["MEMORY", "USAGE", key, "SAMPLES", "0"])
    }
}

/// Returns the value after `name:` in the answer to INFO.
pub fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
