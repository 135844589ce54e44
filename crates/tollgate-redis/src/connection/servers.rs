//! The addresses of the servers, and how to connect to them.

#[cfg(not(feature = "tls"))]
use super::no_tls::Tls;
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::error::Refused;
use crate::words::atomics::{AtomicU64, Relaxed};
use futures_util::FutureExt;
use futures_util::future::select_ok;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    Pipeline, RedisError, RedisResult, ServerErrorKind, TlsMode, Value,
};
use std::fmt;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long a connection stays open while a packet is unacknowledged. If a connection's packets are
/// dropped, only this timeout ends the connection.
const USER_TIMEOUT: Duration = Duration::from_millis(500);

/// After this time without traffic, the system probes whether the other side still knows the
/// connection. Routers and load balancers forget idle connections after a minute or longer, often
/// silently.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The maximum length of the message that a server sends when it closes a new connection, in bytes.
const LAST_WORDS: u64 = 4_096;

/// The settings of a client, except the addresses.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) connection_timeout: Duration,
    pub(crate) tls: Tls,
}

/// The addresses, as the caller specified them. They may contain a password.
#[derive(Clone)]
pub(crate) enum Addresses {
    One(String),
    Sentinel { name: String, sentinels: Vec<String>, url: String },
    Cluster(Vec<String>),
}

/// The parsed addresses.
pub(crate) enum Servers {
    One(Client),
    Sentinel {
        name: String,
        sentinels: Vec<ConnectionInfo>,
        master: ConnectionInfo,
    },
    /// The nodes that the caller named. They report the cluster's other nodes to the client.
    Cluster {
        seeds: Vec<ConnectionInfo>,
        tls: Tls,
    },
}

/// How to reach one server.
pub(crate) enum Endpoint {
    /// The named server, or the current master according to the sentinels.
    Given,
    /// Any node that answers with the topology of the cluster.
    Cluster,
    /// A node of a cluster.
    Node { address: (String, u16), client: Box<Client> },
}

impl Endpoint {
    /// Returns the address of a node of a cluster.
    pub(crate) fn address(&self) -> Option<&(String, u16)> {
        match self {
            Self::Node { address, .. } => Some(address),
            _ => None,
        }
    }

    pub(crate) fn is_at(&self, address: &(String, u16)) -> bool {
        self.address() == Some(address)
    }
}

/// A connection to one server.
pub(crate) struct Connection {
    shared: MultiplexedConnection,
    /// Identifies the server's process and data history. `None` unless a limit needs this value and
    /// the user may read it.
    run: Option<String>,
    made: Instant,
    /// The age of the connection at the last answer, in milliseconds.
    answered: AtomicU64,
}

impl Servers {
    pub(crate) fn new(addresses: Addresses, settings: &Settings) -> Result<Self, Refused> {
        let urls: Vec<&String> = match &addresses {
            Addresses::One(url) => vec![url],
            Addresses::Sentinel { sentinels, url, .. } => sentinels.iter().chain([url]).collect(),
            Addresses::Cluster(urls) => urls.iter().collect(),
        };
        if urls.iter().any(|url| asks_for_tls(url)) {
            Tls::begin()?;
        }
        let problem = |error: RedisError| Refused::Client { problem: error.to_string() };
        match addresses {
            Addresses::One(url) => Ok(Self::One(client(parse(&url)?, &settings.tls).map_err(problem)?)),
            Addresses::Sentinel { name, sentinels, url } => {
                let sentinels = sentinels.iter().map(|url| parse(url)).collect::<Result<_, _>>()?;
                let servers = Self::Sentinel { name, sentinels, master: parse(&url)? };
                servers.sentinel_clients(settings).map_err(problem)?;
                Ok(servers)
            }
            Addresses::Cluster(urls) => {
                let seeds = urls.iter().map(|url| parse(url)).collect::<Result<Vec<_>, _>>()?;
                if seeds.is_empty() {
                    let problem = "a cluster needs at least one address".to_owned();
                    return Err(Refused::Client { problem });
                }
                for info in &seeds {
                    if let ConnectionAddr::Unix(path) = info.addr() {
                        let path = path.display();
                        let problem = format!(
                            "a cluster has no node at the socket {path}; expected an address with a host, such \
                             as redis://host:port"
                        );
                        return Err(Refused::Client { problem });
                    }
                    client(info.clone(), &settings.tls).map_err(problem)?;
                }
                Ok(Self::Cluster { seeds, tls: settings.tls.clone() })
            }
        }
    }

    /// Returns one client for each sentinel. A client with several sentinels waits for the first
    /// one, even if that sentinel is silent.
    fn sentinel_clients(&self, settings: &Settings) -> RedisResult<Vec<SentinelClient>> {
        let none = || (ErrorKind::EmptySentinelList, "a master needs at least one sentinel").into();
        let Self::Sentinel { name, sentinels, master } = self else { return Err(none()) };
        // Certificates are for the servers with TLS. If there are none, certificates are refused.
        let tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        client(sentinels.iter().find(|info| tls(info)).unwrap_or(master).clone(), &settings.tls)?;
        if sentinels.is_empty() {
            return Err(none());
        }
        let redis = master.redis_settings();
        // All sentinels have the same user and password.
        let username = sentinels.iter().find_map(|sentinel| sentinel.redis_settings().username());
        let password = sentinels.iter().find_map(|sentinel| sentinel.redis_settings().password());
        let build = |info: &ConnectionInfo| {
            let address = match tls(info) {
                true => client(info.clone(), &settings.tls)?.get_connection_info().addr().clone(),
                false => info.addr().clone(),
            };
            let builder = SentinelClientBuilder::new([address], name.clone(), SentinelServerType::Master)?;
            let mut builder =
                builder.set_client_to_redis_db(redis.db()).set_client_to_redis_tcp_settings(tcp());
            if let Some(username) = redis.username() {
                builder = builder.set_client_to_redis_username(username);
            }
            if let Some(password) = redis.password() {
                builder = builder.set_client_to_redis_password(password);
            }
            if tls(master) {
                builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            }
            if let Some(username) = username {
                builder = builder.set_client_to_sentinel_username(username);
            }
            if let Some(password) = password {
                builder = builder.set_client_to_sentinel_password(password);
            }
            settings.tls.sentinel(builder).build()
        };
        sentinels.iter().map(build).collect()
    }

    /// Returns the endpoint for the first request.
    pub(crate) fn first(&self) -> Endpoint {
        match self {
            Self::Cluster { .. } => Endpoint::Cluster,
            _ => Endpoint::Given,
        }
    }

    /// Returns the endpoint of a cluster node at this address. The endpoint uses the password and
    /// the TLS setting of the named nodes.
    pub(crate) fn node(&self, address: &(String, u16)) -> Option<Endpoint> {
        let Self::Cluster { seeds, tls } = self else { return None };
        let (host, port) = address.clone();
        let named = seeds.first()?;
        let addr = match named.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = client(named.clone().set_addr(addr), tls).ok()?;
        Some(Endpoint::Node { address: address.clone(), client: Box::new(client) })
    }

    /// Returns a server's address, and the user that the connections to it use.
    pub(crate) fn describe(&self, endpoint: &Endpoint) -> (String, String) {
        let (address, info) = match (self, endpoint) {
            (_, Endpoint::Node { address: (host, port), client }) => {
                (format!("{host}:{port}"), Some(client.get_connection_info()))
            }
            (Self::One(client), _) => {
                let info = client.get_connection_info();
                (info.addr().to_string(), Some(info))
            }
            (Self::Sentinel { name, sentinels, master }, _) => {
                (format!("the master `{name}` of the sentinels {}", list(sentinels)), Some(master))
            }
            (Self::Cluster { seeds, .. }, _) => (format!("the cluster of {}", list(seeds)), seeds.first()),
        };
        let user = info.and_then(|info| info.redis_settings().username()).filter(|user| !user.is_empty());
        (address, user.unwrap_or("default").to_owned())
    }

    /// Returns the named nodes of a cluster.
    pub(crate) fn seeds(&self) -> Vec<(String, u16)> {
        let Self::Cluster { seeds, .. } = self else { return Vec::new() };
        let address = |info: &ConnectionInfo| match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        };
        seeds.iter().filter_map(address).collect()
    }

    /// Opens a connection and waits for the answer to a PING. If `with_run` is true, also reads the
    /// data that [`Connection::is_of_same_run`] compares.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
        settings: &Settings,
        with_run: bool,
    ) -> RedisResult<Connection> {
        // The library's own timeouts are off, because each caller has a deadline.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.connection_timeout))
            .set_response_timeout(None);
        let client = match (endpoint, self) {
            (Endpoint::Node { client, .. }, _) => Client::clone(client),
            (_, Self::One(client)) => client.clone(),
            _ => {
                // New clients are built each time, because an old client may have found sentinels
                // that no longer exist. The first sentinel that names a master decides.
                let mut sentinels = self.sentinel_clients(settings)?;
                let asked = sentinels.iter_mut().map(|sentinel| Box::pin(sentinel.async_get_client()));
                select_ok(asked).await?.0
            }
        };
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = match connected {
            Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
                let said = last_words(client.get_connection_info().addr());
                let said = timeout(settings.connection_timeout, said).await.ok().flatten();
                return Err(said.unwrap_or(error));
            }
            connected => connected?,
        };
        let (made, answered) = (Instant::now(), AtomicU64::new(0));
        let mut connection = Connection { shared: connection, run: None, made, answered };
        connection.ping().await?;
        if with_run {
            connection.run = connection.read_run().await;
        }
        Ok(connection)
    }
}

/// Returns the error that a server sends when it closes a new connection. The server may have too
/// many connections, or its protected mode may refuse remote clients. The protocol client loses
/// this error, because the client's own first commands fail.
async fn last_words(addr: &ConnectionAddr) -> Option<RedisError> {
    let mut said = Vec::new();
    match addr {
        ConnectionAddr::Tcp(host, port) => {
            let connection = TcpStream::connect((&**host, *port)).await.ok()?;
            connection.take(LAST_WORDS).read_to_end(&mut said).await.ok()?
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let connection = UnixStream::connect(path).await.ok()?;
            connection.take(LAST_WORDS).read_to_end(&mut said).await.ok()?
        }
        // A server sends nothing before the TLS handshake.
        _ => return None,
    };
    redis::parse_redis_value(&said).ok()?.extract_error().err()
}

/// Returns the addresses, without users and passwords.
fn list(servers: &[ConnectionInfo]) -> String {
    let addresses: Vec<_> = servers.iter().map(|info| info.addr().to_string()).collect();
    addresses.join(", ")
}

/// Parses an address. The error does not repeat the address, which may contain a password.
fn parse(url: &str) -> Result<ConnectionInfo, Refused> {
    let refused = |problem: &dyn fmt::Display| Refused::Client {
        problem: format!(
            "{problem}; expected redis://[user][:password@]host[:port][/database], in which a user and a \
             password have `%40` for `@`, `%23` for `#`, `%2F` for `/`, `%3F` for `?` and `%25` for `%`"
        ),
    };
    if !url.contains("://") {
        return Err(refused(&"an address has no scheme; write `redis://` before it, or `rediss://` for TLS"));
    }
    let info = url.into_connection_info().map_err(|error| refused(&error))?;
    // The host ends at the first `/`, `?` or `#`. If an `@` follows this character, the character
    // is part of a password, and the first half of the password would be treated as the host.
    let rest = url.split_once("://").and_then(|(_, rest)| rest.split_once(['/', '?', '#']));
    match info.addr() {
        ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. }
            if rest.is_some_and(|(_, rest)| rest.contains('@')) =>
        {
            Err(refused(&"an address has an `@` after its host"))
        }
        _ => Ok(info),
    }
}

/// Returns true if the scheme requests TLS, in upper or lower case. The rest of the address is
/// parsed later.
fn asks_for_tls(url: &str) -> bool {
    let scheme = url.trim_start().split(':').next().unwrap_or_default();
    ["rediss", "valkeys"].iter().any(|with_tls| scheme.eq_ignore_ascii_case(with_tls))
}

fn client(info: ConnectionInfo, tls: &Tls) -> RedisResult<Client> {
    tls.client(info.set_tcp_settings(tcp()))
}

fn tcp() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

/// Returns true if an error means that this connection is unusable, at least for now.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
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

impl Connection {
    pub(crate) async fn ping(&self) -> RedisResult<()> {
        self.send(redis::cmd("PING"), false).await.map(|_| ())
    }

    /// Returns whether the connection has ended, as far as the connection's task has noticed.
    ///
    /// A connection's task ends together with the connection. After that, a request fails
    /// immediately. While the task runs, the PING is harmless: nobody waits for the answer, so the
    /// task either drops the PING unsent or sends it without effect.
    pub(crate) fn has_ended(&self) -> bool {
        let ping = redis::cmd("PING");
        self.shared.clone().req_packed_command(&ping).now_or_never().is_some_and(|answer| answer.is_err())
    }

    /// Returns true if no answer has arrived in this millisecond or in the previous one. In that
    /// case, the connection may have ended without any request noticing.
    pub(crate) fn is_quiet(&self) -> bool {
        // ORDERING: relaxed; nothing else depends on this time.
        self.age() > self.answered.load(Relaxed) + 1
    }

    /// Returns the milliseconds since the connection was opened.
    fn age(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns true if both connections are known to lead to the same server process with the same
    /// data history.
    pub(crate) fn is_of_same_run(&self, other: &Self) -> bool {
        self.run.is_some() && self.run == other.run
    }

    async fn read_run(&self) -> Option<String> {
        // Redis 6.2 does not accept several sections.
        let info: String = redis::from_redis_value(self.send(redis::cmd("INFO"), false).await.ok()?).ok()?;
        let named = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        Some(format!("{} {}", named("run_id:")?, named("master_replid:")?))
    }

    fn answers(&self) {
        // ORDERING: relaxed, as in `is_quiet`.
        self.answered.store(self.age(), Relaxed);
    }

    /// Sends a command. `asking` must be true for a slot that is being migrated to this node.
    pub(crate) async fn send(&self, cmd: Cmd, asking: bool) -> RedisResult<Value> {
        if !asking {
            let answer = self.shared.clone().req_packed_command(&cmd).await?;
            self.answers();
            return as_command_error(answer).extract_error();
        }
        let answer = self.send_all(vec![cmd], true).await?.pop();
        answer.ok_or((ErrorKind::UnexpectedReturnType, "no answer"))?.extract_error()
    }

    /// Sends all commands in one write. Each answer may be an error.
    pub(crate) async fn send_all(&self, cmds: Vec<Cmd>, asking: bool) -> RedisResult<Vec<Value>> {
        let (count, each) = (cmds.len(), 1 + usize::from(asking));
        let mut pipeline = Pipeline::with_capacity(count * each);
        for cmd in cmds {
            if asking {
                pipeline.add_command(redis::cmd("ASKING"));
            }
            pipeline.add_command(cmd);
        }
        let answers = self.shared.clone().req_packed_commands(&pipeline, 0, count * each).await?;
        self.answers();
        Ok(answers.into_iter().skip(each - 1).step_by(each).map(as_command_error).collect())
    }
}

/// Returns an answer of Redis 6.2 as later servers give it: if a command in a script fails, the
/// answer of Redis 6.2 contains the command's error as text in an error of the script.
fn as_command_error(answer: Value) -> Value {
    let Value::ServerError(error) = &answer else { return answer };
    let of_script = error.details().filter(|text| text.starts_with("Error running script"));
    let Some((_, error)) = of_script.and_then(|text| text.split_once(": -")) else { return answer };
    redis::parse_redis_value(format!("-{error}\r\n").as_bytes()).unwrap_or(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[test]
    fn a_cluster_has_no_nodes_at_sockets() {
        let socket = "redis+unix:///run/redis.sock?pass=secret";
        for urls in [&[socket][..], &["redis://10.0.0.5", socket]] {
            let refused = Client::cluster(urls.iter().copied()).build().unwrap_err().to_string();
            assert!(
                refused.contains("/run/redis.sock") && refused.contains("redis://host:port"),
                "{refused}"
            );
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn an_address_without_its_scheme_is_refused_with_what_is_missing() {
        for url in ["127.0.0.1:6379", "localhost", "user:secret@10.0.0.5", "[::1]:6379", ""] {
            for builder in [Client::builder(url), Client::cluster(["redis://10.0.0.5", url])] {
                let refused = builder.build().unwrap_err().to_string();
                assert!(refused.contains("has no scheme; write `redis://` before it"), "{refused}");
                assert!(!refused.contains("secret"), "{refused}");
            }
        }
    }

    #[test]
    fn a_password_that_cuts_an_address_in_two_is_refused_with_the_way_to_write_it() {
        for url in [
            "redis://:se#cret@10.0.0.5",
            "redis://:se/cret@10.0.0.5",
            "redis://:se?cret@10.0.0.5:6379/1",
            "redis://user:7#secret@10.0.0.5",
            "redis://user:7/secret@10.0.0.5",
            "redis://user:7?secret@10.0.0.5",
            "redis://user:s[e@c]ret#@10.0.0.5",
        ] {
            for builder in [
                Client::builder(url),
                Client::cluster([url]),
                Client::sentinel("one", [url], "redis://one"),
                Client::sentinel("one", ["redis://10.0.0.5"], url),
            ] {
                let refused = builder.build().unwrap_err().to_string();
                assert!(refused.contains("`%23` for `#`") && refused.contains("`%40` for `@`"), "{refused}");
                assert!(!refused.contains("cret") && !refused.contains("user:7"), "{refused}");
            }
        }
        for url in
            ["redis://:se%23%40%2F%3Fcret@10.0.0.5/1?protocol=resp2", "redis+unix:///run/a@b/redis.sock"]
        {
            assert!(Client::open(url).is_ok(), "{url}");
        }
        let info = parse("redis://us%40er:se%23%2Fcret@10.0.0.5/1").unwrap();
        assert_eq!(info.redis_settings().username(), Some("us@er"));
        assert_eq!(info.redis_settings().password(), Some("se#/cret"));
        // The address is parsed as intended.
        let info = parse("redis://:se@cret@10.0.0.5").unwrap();
        assert_eq!(
            (info.addr().to_string(), info.redis_settings().password()),
            ("10.0.0.5:6379".to_owned(), Some("se@cret"))
        );
    }
}
