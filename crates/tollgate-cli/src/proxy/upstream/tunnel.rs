//! WebSockets: connections that stop being HTTP and are passed on byte by byte.

use http::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, Request, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;

use super::hop;

const WEBSOCKET: &str = "websocket";

/// Returns whether the request asks for a WebSocket. Other protocols are not passed on: a server
/// may ignore an upgrade, and h2c, which is HTTP again, would bypass the limits.
pub(crate) fn is_wanted<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && headers.contains_key(SEC_WEBSOCKET_KEY)
        && hop::lists(headers, &CONNECTION, "upgrade")
        && hop::lists(headers, &UPGRADE, WEBSOCKET)
}

/// Asks the next hop for a WebSocket, or confirms one to it.
pub(crate) fn announce(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Copies bytes both ways until both sides have ended, or one breaks off.
pub(crate) fn join(client: OnUpgrade, upstream: OnUpgrade, open: Gauge) {
    tokio::spawn(async move {
        let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else { return };
        open.inc();
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        // A side that breaks off ends the tunnel; there is no one to report it to.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        open.dec();
    });
}
