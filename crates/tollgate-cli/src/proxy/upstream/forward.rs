//! The service behind the limits: forwards a request to the upstream and returns its response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HOST, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tollgate_http::PeerAddr;
use tower_service::Service;

use super::hop;
use super::origin::Origin;
use super::service::{Fault, Upstream};
use super::tunnel;
use super::upload::{Motion, Upload};
use crate::proxy::observe::metrics::Metrics;
use crate::proxy::problem::problem;

/// The upstream's body, or that of a response by the proxy itself.
pub(crate) type Answer = Either<Incoming, Full<Bytes>>;

/// Forwards requests. It is always ready.
#[derive(Clone)]
pub(crate) struct Forward {
    pub(crate) to: Arc<Destination>,
}

/// The settings that all requests share.
pub(crate) struct Destination {
    pub(crate) upstream: Upstream,
    pub(crate) origin: Origin,
    pub(crate) preserves_host: bool,
    pub(crate) metrics: Arc<Metrics>,
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let to = Arc::clone(&self.to);
        Box::pin(async move {
            Ok(match to.forward(request).await {
                Ok(response) => response.map(Either::Left),
                Err((status, detail)) => problem(status, detail).map(Either::Right),
            })
        })
    }
}

/// The status and message for a request that is not forwarded.
type Refusal = (StatusCode, &'static str);

impl Destination {
    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Refusal> {
        if request.method() == Method::CONNECT {
            return Err((
                StatusCode::NOT_IMPLEMENTED,
                "This proxy stands for one server and opens no tunnels.",
            ));
        }
        let wants_tunnel = tunnel::is_wanted(&request) && !self.upstream.speaks_http2();
        let client = wants_tunnel.then(|| hyper::upgrade::on(&mut request));
        let motion = Motion::new();
        let request = self.outgoing(request, wants_tunnel, &motion)?;
        let response = self.upstream.send(request, motion).await.map_err(|fault| self.failed(fault))?;
        self.incoming(response, client)
    }

    /// Returns the request as the upstream gets it.
    fn outgoing(
        &self,
        request: Request<Incoming>,
        wants_tunnel: bool,
        motion: &Arc<Motion>,
    ) -> Result<Request<Upload>, Refusal> {
        let (mut head, body) = request.into_parts();
        let host = asked_host(&head)?;
        let peer = head.extensions.get().map_or(NOBODY, |&PeerAddr(peer)| peer);
        let came_from = self.origin.of(&head.headers, peer, &host);
        let takes_trailers = hop::lists(&head.headers, &TE, "trailers");
        let headers = &mut head.headers;
        hop::strip(headers);
        Origin::write(came_from, headers);
        headers.remove(HOST);
        if self.preserves_host && !host.is_empty() {
            headers.insert(HOST, host);
        }
        if takes_trailers {
            hop::accept_trailers(headers, self.upstream.speaks_http2());
        }
        if wants_tunnel {
            tunnel::announce(headers);
        }
        hop::join_cookies(headers);
        hop::sign(headers, head.version);
        let path = head.uri.into_parts().path_and_query.unwrap_or(PathAndQuery::from_static("/"));
        let target = self
            .upstream
            .target(path)
            .ok_or((StatusCode::BAD_REQUEST, "The target of the request is not a path."))?;
        let bytes = self.metrics.request_bytes.clone();
        let mut request = Request::new(Upload { body, motion: Arc::clone(motion), bytes });
        *request.method_mut() = head.method;
        *request.uri_mut() = target;
        *request.headers_mut() = head.headers;
        Ok(request)
    }

    /// Returns the response as the client gets it.
    fn incoming(
        &self,
        mut response: Response<Incoming>,
        client: Option<hyper::upgrade::OnUpgrade>,
    ) -> Result<Response<Incoming>, Refusal> {
        let version = response.version();
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        hop::strip(response.headers_mut());
        hop::sign(response.headers_mut(), version);
        *response.version_mut() = Version::HTTP_11;
        if switches {
            // The client did not ask for another protocol, so the tunnel has no other end.
            let client = client.ok_or_else(|| self.failed(Fault::Broken))?;
            tunnel::announce(response.headers_mut());
            tunnel::join(client, hyper::upgrade::on(&mut response), self.metrics.tunnels.clone());
        }
        Ok(response)
    }

    fn failed(&self, fault: Fault) -> Refusal {
        self.metrics.fault(fault);
        (fault.status(), fault.detail())
    }
}

/// The address for a connection without a peer, which does not occur.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Returns the host that the client asked for: from the target, else from the field `Host`, of
/// which HTTP/1.1 requires exactly one (RFC 9112, 3.2). Empty if an older client sent none.
fn asked_host(head: &http::request::Parts) -> Result<HeaderValue, Refusal> {
    let mut fields = head.headers.get_all(HOST).iter();
    let (first, second) = (fields.next(), fields.next());
    if second.is_some() {
        return Err((StatusCode::BAD_REQUEST, "The request has more than one field Host."));
    }
    if let Some(authority) = head.uri.authority() {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        return HeaderValue::from_str(host)
            .map_err(|_| (StatusCode::BAD_REQUEST, "The request's host is invalid."));
    }
    match first {
        Some(host) if host.is_empty() || Authority::try_from(host.as_bytes()).is_ok() => Ok(host.clone()),
        Some(_) => Err((StatusCode::BAD_REQUEST, "The request's field Host holds no host.")),
        None if head.version == Version::HTTP_11 => {
            Err((StatusCode::BAD_REQUEST, "The request has no field Host."))
        }
        None => Ok(HeaderValue::from_static("")),
    }
}
