//! Stands in for TLS if the feature `tls` is off, and refuses addresses that request TLS.

use crate::error::Refused;
use redis::sentinel::SentinelClientBuilder;
use redis::{Client, ConnectionInfo, RedisResult};

/// The TLS settings, which are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {}

impl Tls {
    pub(crate) fn begin() -> Result<(), Refused> {
        Err(Refused::NoTls)
    }

    pub(crate) fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        Client::open(info)
    }

    pub(crate) fn sentinel(&self, builder: SentinelClientBuilder) -> SentinelClientBuilder {
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::error::SharedError;

    #[test]
    fn an_address_with_tls_is_refused_and_the_feature_is_named() {
        let (plain, url) = ("redis://10.0.0.5", "rediss://:secret@10.0.0.5");
        for builder in [
            Client::builder(url),
            Client::builder("valkeys://10.0.0.5"),
            Client::builder("REDISS://10.0.0.5"),
            Client::cluster([plain, url]),
            Client::sentinel("one", [url], plain),
            Client::sentinel("one", [plain], url),
        ] {
            let refused = builder.build().unwrap_err();
            assert_eq!(refused, SharedError(Refused::NoTls));
            let message = refused.to_string();
            assert!(message.contains("feature `tls` of tollgate-redis"), "{message}");
        }
        assert!(Client::open(plain).is_ok());
    }
}
