//! TLS through rustls: the trusted certificates and the crypto provider.

use crate::error::Refused;
use redis::sentinel::SentinelClientBuilder;
use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};
use rustls::crypto::CryptoProvider;

/// The certificates of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) root_certificate: Option<Vec<u8>>,
    pub(crate) certificate: Option<ClientTlsConfig>,
}

impl Tls {
    /// Installs the crypto provider. Called if an address requests TLS.
    pub(crate) fn begin() -> Result<(), Refused> {
        if CryptoProvider::get_default().is_none() {
            // rustls panics if it was built with several providers and the program has chosen none
            // of them.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Ok(())
    }

    fn certificates(&self) -> Option<TlsCertificates> {
        let (client_tls, root_cert) = (self.certificate.clone(), self.root_certificate.clone());
        (client_tls.is_some() || root_cert.is_some()).then_some(TlsCertificates { client_tls, root_cert })
    }

    pub(crate) fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        match self.certificates() {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
    }

    pub(crate) fn sentinel(&self, builder: SentinelClientBuilder) -> SentinelClientBuilder {
        match self.certificates() {
            Some(certificates) => builder.set_client_to_redis_certificates(certificates),
            None => builder,
        }
    }
}
