//! The addresses of the servers, and how to connect to them.

#[cfg(not(feature = "tls"))]
use super::no_tls::Tls;
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::error::BuildError;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    Pipeline, RedisError, RedisResult, ServerErrorKind, TlsMode, Value,
};
use std::time::Duration;

/// How long an unacknowledged packet keeps a connection open. Nothing else ends a connection whose
/// packets are dropped.
const USER_TIMEOUT: Duration = Duration::from_millis(500);

/// The settings of a client besides the addresses.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) connection_timeout: Duration,
    pub(crate) tls: Tls,
}

/// The addresses as given. They may hold a password.
#[derive(Clone)]
pub(crate) enum Addresses {
    One(String),
    Sentinel { name: String, sentinels: Vec<String>, url: String },
    Cluster(Vec<String>),
}

/// The addresses, parsed.
pub(crate) enum Servers {
    One(Client),
    Sentinel {
        name: String,
        sentinels: Vec<ConnectionInfo>,
        master: ConnectionInfo,
    },
    /// The nodes that were named, from which the others are learned.
    Cluster {
        seeds: Vec<ConnectionInfo>,
        tls: Tls,
    },
}

/// How to reach one server.
pub(crate) enum Endpoint {
    /// The server that was named, or the master that sentinels name now.
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

/// A connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection(MultiplexedConnection);

impl Servers {
    pub(crate) fn new(addresses: Addresses, settings: &Settings) -> Result<Self, BuildError> {
        let urls: Vec<&String> = match &addresses {
            Addresses::One(url) => vec![url],
            Addresses::Sentinel { sentinels, url, .. } => sentinels.iter().chain([url]).collect(),
            Addresses::Cluster(urls) => urls.iter().collect(),
        };
        if urls.iter().any(|url| asks_for_tls(url)) {
            Tls::begin()?;
        }
        let read = || -> RedisResult<Self> {
            match addresses {
                Addresses::One(url) => Ok(Self::One(client(url.into_connection_info()?, &settings.tls)?)),
                Addresses::Sentinel { name, sentinels, url } => {
                    let sentinels = sentinels.into_iter().map(String::into_connection_info);
                    let sentinels = sentinels.collect::<RedisResult<_>>()?;
                    let servers = Self::Sentinel { name, sentinels, master: url.into_connection_info()? };
                    servers.sentinel(settings)?;
                    Ok(servers)
                }
                Addresses::Cluster(urls) => {
                    let seeds = urls.into_iter().map(String::into_connection_info);
                    let seeds = seeds.collect::<RedisResult<Vec<_>>>()?;
                    if seeds.is_empty() {
                        return Err((
                            ErrorKind::InvalidClientConfig,
                            "a cluster needs an address at the least",
                        )
                            .into());
                    }
                    for info in &seeds {
                        client(info.clone(), &settings.tls)?;
                    }
                    Ok(Self::Cluster { seeds, tls: settings.tls.clone() })
                }
            }
        };
        read().map_err(|error| BuildError::Client { problem: error.to_string() })
    }

    fn sentinel(&self, settings: &Settings) -> RedisResult<Option<SentinelClient>> {
        let Self::Sentinel { name, sentinels, master } = self else { return Ok(None) };
        let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
        let builder = SentinelClientBuilder::new(addresses, name.clone(), SentinelServerType::Master)?;
        let redis = master.redis_settings();
        let mut builder = builder.set_client_to_redis_db(redis.db()).set_client_to_redis_tcp_settings(tcp());
        if let Some(username) = redis.username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = redis.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if matches!(master.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        // All sentinels have the same password.
        if let Some(password) = sentinels.iter().find_map(|sentinel| sentinel.redis_settings().password()) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        Ok(Some(settings.tls.sentinel(builder).build()?))
    }

    /// Returns how the first request reaches its server.
    pub(crate) fn first(&self) -> Endpoint {
        match self {
            Self::Cluster { .. } => Endpoint::Cluster,
            _ => Endpoint::Given,
        }
    }

    /// Returns how to reach a node of the cluster, with the password and the TLS setting of the
    /// named nodes.
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

    /// Returns the address of a server, and the user of its connections.
    pub(crate) fn describe(&self, endpoint: &Endpoint) -> (String, String) {
        let (address, info) = match (self, endpoint) {
            (_, Endpoint::Node { address: (host, port), client }) => {
                (format!("{host}:{port}"), Some(client.get_connection_info()))
            }
            (Self::One(client), _) => {
                let info = client.get_connection_info();
                (info.addr().to_string(), Some(info))
            }
            (Self::Sentinel { name, master, .. }, _) => (format!("the master `{name}`"), Some(master)),
            (Self::Cluster { seeds, .. }, _) => ("the cluster".to_owned(), seeds.first()),
        };
        let user = info.and_then(|info| info.redis_settings().username()).filter(|user| !user.is_empty());
        (address, user.unwrap_or("default").to_owned())
    }

    /// Returns the nodes of a cluster that were named.
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

    /// Opens a connection and waits for the answer to a PING.
    pub(crate) async fn connect(&self, endpoint: &Endpoint, settings: &Settings) -> RedisResult<Connection> {
        // Without the client's own timeouts: each caller has a deadline.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.connection_timeout))
            .set_response_timeout(None);
        let connection = match (endpoint, self) {
            (Endpoint::Node { client, .. }, _) => {
                client.get_multiplexed_async_connection_with_config(&config).await?
            }
            (_, Self::One(client)) => client.get_multiplexed_async_connection_with_config(&config).await?,
            _ => {
                // A new client each time, because the sentinels that it found last may be gone,
                // too.
                let mut sentinel = self.sentinel(settings)?.ok_or((ErrorKind::Client, "no sentinels"))?;
                sentinel.get_async_connection_with_config(&config).await?
            }
        };
        let connection = Connection(connection);
        connection.send(redis::cmd("PING"), false).await?;
        Ok(connection)
    }
}

/// Returns whether the scheme, in any case, asks for TLS. The rest of the address is parsed later.
fn asks_for_tls(url: &str) -> bool {
    let scheme = url.trim_start().split(':').next().unwrap_or_default();
    ["rediss", "valkeys"].iter().any(|with_tls| scheme.eq_ignore_ascii_case(with_tls))
}

fn client(info: ConnectionInfo, tls: &Tls) -> RedisResult<Client> {
    tls.client(info.set_tcp_settings(tcp()))
}

fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

/// Returns whether an error means that this connection is unusable, at least for now.
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
    /// Sends a command; `asking` for a slot that is being migrated to this node.
    pub(crate) async fn send(&self, cmd: Cmd, asking: bool) -> RedisResult<Value> {
        if !asking {
            return self.0.clone().req_packed_command(&cmd).await?.extract_error();
        }
        let answer = self.send_all(vec![cmd], true).await?.pop();
        answer.ok_or((ErrorKind::UnexpectedReturnType, "no answer"))?.extract_error()
    }

    /// Sends all commands in one write. Answers may be errors.
    pub(crate) async fn send_all(&self, cmds: Vec<Cmd>, asking: bool) -> RedisResult<Vec<Value>> {
        let (count, each) = (cmds.len(), 1 + usize::from(asking));
        let mut pipeline = Pipeline::with_capacity(count * each);
        for cmd in cmds {
            if asking {
                pipeline.add_command(redis::cmd("ASKING"));
            }
            pipeline.add_command(cmd);
        }
        let answers = self.0.clone().req_packed_commands(&pipeline, 0, count * each).await?;
        Ok(answers.into_iter().skip(each - 1).step_by(each).collect())
    }
}
