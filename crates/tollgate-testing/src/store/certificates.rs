//! A certificate authority for tests, and certificates for servers at 127.0.0.1. No system trusts
//! this authority by default.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use redis::TlsCertificates;
use std::sync::Arc;

#[derive(Clone)]
pub struct Authority(Arc<CertifiedIssuer<'static, KeyPair>>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names, none of them wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("randomness");
        Self(Arc::new(CertifiedIssuer::self_signed(params, key).expect("its own parameters")))
    }

    /// Returns the authority's certificate, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns the setting with which a client trusts only this authority.
    pub fn trusted(&self) -> TlsCertificates {
        TlsCertificates { client_tls: None, root_cert: Some(self.pem().into_bytes()) }
    }

    /// Returns a certificate for 127.0.0.1 and localhost, and the certificate's key, both as PEM.
    pub fn issue(&self) -> (String, String) {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("an address and a name");
        params.distinguished_name.push(DnType::CommonName, "a server of tests");
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.0).expect("an authority's signature");
        (certificate.pem(), key.serialize_pem())
    }
}
