//! Pingora with a limit for each client: `tollgate-pingora LISTEN UPSTREAM QUOTA`.

use async_trait::async_trait;
use pingora::http::ResponseHeader;
use pingora::prelude::*;
use std::net::{IpAddr, Ipv6Addr};
use std::{env, error::Error};
use tollgate::{Limiter, Quota};

/// A proxy in front of one server.
struct Proxy {
    /// All threads share this limiter: a check takes no lock.
    limiter: Limiter<IpAddr>,
    upstream: String,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn request_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        let address = session.client_addr().and_then(|address| address.as_inet());
        // Clients on a Unix socket have no address, and therefore no limit here.
        let Some(client) = address.map(|address| client_of(address.ip())) else { return Ok(false) };
        let decision = self.limiter.check(&client);
        if decision.is_allowed() {
            return Ok(false);
        }
        let mut answer = ResponseHeader::build(429, Some(2))?;
        answer.insert_header("content-length", "0")?;
        if let Some(wait) = decision.retry_after() {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            answer.insert_header("retry-after", seconds.to_string())?;
        }
        session.write_response_header(Box::new(answer), true).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(&self.upstream, false, String::new())))
    }
}

/// Returns the client with this address. The /64 network of an IPv6 address counts as one client,
/// because a client owns at least such a network.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let [_, listen, upstream, quota] = &arguments[..] else {
        return Err(
            "arguments: LISTEN UPSTREAM QUOTA, as 127.0.0.1:8080 127.0.0.1:8081 '100/s burst 20'".into()
        );
    };
    let limiter = Limiter::builder(quota.parse::<Quota>()?).build()?;
    let mut server = Server::new(None)?;
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, Proxy { limiter, upstream: upstream.clone() });
    proxy.add_tcp(listen);
    proxy.threads = Some(2);
    server.add_service(proxy);
    server.run_forever()
}
