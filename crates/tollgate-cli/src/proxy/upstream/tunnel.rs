//! Tunnels for WebSockets. A tunnel no longer uses HTTP; its bytes are copied unchanged in both
//! directions.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, Request, Version};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;

use super::fields::add_element;
use super::hop;
use crate::proxy::activity::Activity;

const WEBSOCKET: &str = "websocket";

/// The maximum time for which a tunnel may be silent.
const SILENCE: Duration = Duration::from_secs(60 * 60);

/// Returns whether a request is a WebSocket handshake.
///
/// The proxy ignores upgrades to other protocols, as any server may. An upgrade to h2c, for
/// example, would bypass the limits, because h2c carries further HTTP requests. The proxy also
/// ignores an upgrade if the request has a body, because servers disagree about where the new
/// protocol begins after a body.
pub(crate) fn is_wanted<B: Body>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && headers.contains_key(SEC_WEBSOCKET_KEY)
        && hop::lists(headers, &CONNECTION, "upgrade")
        && hop::lists(headers, &UPGRADE, WEBSOCKET)
}

/// Asks the next hop to upgrade to a WebSocket, or confirms the upgrade to the next hop.
pub(crate) fn announce(headers: &mut HeaderMap) {
    add_element(headers, &CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Copies bytes in both directions until both sides have ended. Stops early if one side fails, or
/// if no byte has moved for too long.
pub(crate) fn join(client: OnUpgrade, upstream: OnUpgrade, activity: Option<Arc<Activity>>, open: Gauge) {
    tokio::spawn(async move {
        let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else { return };
        open.inc();
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        tokio::select! {
            // If one side fails, the tunnel ends. The error is ignored, because nobody could
            // receive it.
            _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
            () = silent(activity) => {}
        }
        open.dec();
    });
}

/// Waits until no byte has moved for too long.
async fn silent(activity: Option<Arc<Activity>>) {
    let Some(activity) = activity else { return std::future::pending().await };
    activity.tunnel();
    while let Some(left) = SILENCE.checked_sub(activity.still()) {
        tokio::time::sleep(left.max(Duration::from_millis(1))).await;
    }
}
