//! Which servers there are, and how one connects to them.

use super::super::error::BuildError;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, Pipeline, RedisError, RedisResult, ServerErrorKind, TlsCertificates, TlsMode, Value,
};
use rustls::crypto::CryptoProvider;
use std::time::Duration;

/// How long an unacknowledged packet keeps a connection alive: where packets are dropped, nothing else ends it.
const USER_TIMEOUT: Duration = Duration::from_millis(500);

/// What a client is told beside the addresses.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) connection_timeout: Duration,
    pub(super) root_certificate: Option<Vec<u8>>,
    pub(super) certificate: Option<ClientTlsConfig>,
}

impl Settings {
    fn certificates(&self) -> Option<TlsCertificates> {
        let (client_tls, root_cert) = (self.certificate.clone(), self.root_certificate.clone());
        (client_tls.is_some() || root_cert.is_some()).then_some(TlsCertificates { client_tls, root_cert })
    }
}

/// The addresses.
#[derive(Clone, Debug)]
pub(super) enum Addresses {
    One(String),
    Sentinel { name: String, sentinels: Vec<String>, url: String },
    Cluster(Vec<String>),
}

/// Addresses that were read.
pub(super) enum Servers {
    One(Client),
    Sentinel { name: String, sentinels: Vec<ConnectionInfo>, master: ConnectionInfo },
    Cluster(ClusterClient),
}

/// A connection; a clone shares it.
#[derive(Clone)]
pub(super) enum Line {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Servers {
    pub(super) fn new(addresses: Addresses, settings: &Settings) -> Result<Self, BuildError> {
        let urls = match &addresses {
            Addresses::One(url) | Addresses::Sentinel { url, .. } => std::slice::from_ref(url),
            Addresses::Cluster(urls) => urls,
        };
        if urls.iter().any(|url| url.starts_with("rediss:")) && CryptoProvider::get_default().is_none() {
            // A program that was built with several would panic, since nobody has chosen one of them.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let read = || -> RedisResult<Self> {
            match addresses {
                Addresses::One(url) => {
                    let info = url.into_connection_info()?.set_tcp_settings(tcp());
                    Ok(Self::One(match settings.certificates() {
                        Some(certificates) => Client::build_with_tls(info, certificates)?,
                        None => Client::open(info)?,
                    }))
                }
                Addresses::Sentinel { name, sentinels, url } => {
                    let sentinels = sentinels.into_iter().map(String::into_connection_info);
                    let sentinels = sentinels.collect::<RedisResult<_>>()?;
                    let servers = Self::Sentinel { name, sentinels, master: url.into_connection_info()? };
                    servers.sentinel(settings)?;
                    Ok(servers)
                }
                Addresses::Cluster(urls) => {
                    let builder = ClusterClientBuilder::new(urls)
                        // A request that was lost may have been counted: who asks again knows whether it was.
                        .retries(0)
                        .connection_timeout(settings.connection_timeout)
                        .tcp_settings(tcp());
                    let builder = match settings.certificates() {
                        Some(certificates) => builder.certs(certificates),
                        None => builder,
                    };
                    Ok(Self::Cluster(builder.build()?))
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
        // All sentinels have one password.
        if let Some(password) = sentinels.iter().find_map(|sentinel| sentinel.redis_settings().password()) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(certificates) = settings.certificates() {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates);
        }
        Ok(Some(builder.build()?))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn connect(&self, settings: &Settings) -> RedisResult<Line> {
        // Who asks has a deadline of its own.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.connection_timeout))
            .set_response_timeout(None);
        Ok(match self {
            Self::One(client) => {
                Line::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Cluster(client) => Line::Cluster(client.get_async_connection().await?),
            Self::Sentinel { .. } => {
                // Made anew each time: the sentinels it has found last may be gone, too.
                let mut sentinel = self.sentinel(settings)?.ok_or((ErrorKind::Client, "no sentinels"))?;
                Line::One(sentinel.get_async_connection_with_config(&config).await?)
            }
        })
    }
}

fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

impl Line {
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let answered = match self {
            Self::One(connection) => connection.clone().req_packed_command(cmd).await,
            Self::Cluster(connection) => {
                let answered = connection.clone().req_packed_command(cmd).await;
                match answered.and_then(Value::extract_error) {
                    Err(error) => self.redirected(cmd, error).await,
                    answered => answered,
                }
            }
        };
        answered.and_then(Value::extract_error)
    }

    /// Asks the node that a cluster names while a slot is on its way, or once more after the slot has moved: both say
    /// that nothing was executed.
    async fn redirected(&self, cmd: &Cmd, error: RedisError) -> RedisResult<Value> {
        let Self::Cluster(connection) = self else { return Err(error) };
        let node = || {
            let (address, _) = error.redirect_node()?;
            let (host, port) = address.rsplit_once(':')?;
            Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
        };
        match (error.kind(), node()) {
            (ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::Moved), Some(node)) => {
                let mut pipeline = Pipeline::with_capacity(2);
                pipeline.add_command(redis::cmd("ASKING")).add_command(cmd.clone());
                let mut answers = connection.clone().route_pipeline(pipeline, 0, 2, node).await?;
                answers.pop().ok_or(error)
            }
            _ => Err(error),
        }
    }

    /// All of them in one write; `None` where that can't be, because they go to several nodes.
    pub(super) async fn send_all(&self, cmds: Vec<Cmd>) -> Option<RedisResult<Vec<Value>>> {
        let Self::One(connection) = self else { return None };
        let mut pipeline = Pipeline::with_capacity(cmds.len());
        let count = cmds.len();
        for cmd in cmds {
            pipeline.add_command(cmd);
        }
        Some(connection.clone().req_packed_commands(&pipeline, 0, count).await)
    }
}
