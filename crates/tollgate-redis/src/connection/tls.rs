//! TLS by rustls: whom it trusts, and what it calculates with.

use crate::error::BuildError;
use redis::sentinel::SentinelClientBuilder;
use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};
use rustls::crypto::CryptoProvider;

/// The certificates that a client was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) root_certificate: Option<Vec<u8>>,
    pub(crate) certificate: Option<ClientTlsConfig>,
}

impl Tls {
    /// Makes ready for TLS, which at least one address asks for.
    pub(crate) fn begin() -> Result<(), BuildError> {
        if CryptoProvider::get_default().is_none() {
            // rustls panics if it was built with several providers and none of them was chosen.
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
            Some(certificates) => builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates),
            None => builder,
        }
    }
}
