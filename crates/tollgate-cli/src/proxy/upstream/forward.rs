//! The service behind the limits. It forwards requests to the upstream and returns the upstream's
//! responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tower_service::Service;

use super::download::Download;
use super::head::{self, Heads, Refusal};
use super::service::{Fault, Upstream};
use super::tunnel;
use super::upload::{Motion, Upload};
use crate::proxy::activity::Activity;
use crate::proxy::linger::Lingering;
use crate::proxy::problem_details::problem_details;
use crate::proxy::telemetry::metrics::Metrics;

/// The body of a response from the upstream or from the proxy itself.
pub(crate) type ResponseBody = Either<Download, Full<Bytes>>;

/// A service that forwards requests. It is always ready.
#[derive(Clone)]
pub(crate) struct Forward {
    pub(crate) to: Arc<Destination>,
}

/// The settings that all requests share.
pub(crate) struct Destination {
    pub(crate) upstream: Upstream,
    pub(crate) heads: Heads,
    pub(crate) metrics: Arc<Metrics>,
}

impl Service<Request<Lingering>> for Forward {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Lingering>) -> Self::Future {
        let to = Arc::clone(&self.to);
        Box::pin(async move {
            Ok(match to.forward(request).await {
                Ok(response) => response.map(Either::Left),
                Err((status, detail)) => problem_details(status, detail).map(Either::Right),
            })
        })
    }
}

/// The client's end of a requested tunnel.
struct Asking {
    client: OnUpgrade,
    activity: Option<Arc<Activity>>,
}

impl Destination {
    async fn forward(&self, mut request: Request<Lingering>) -> Result<Response<Download>, Refusal> {
        if request.method() == Method::CONNECT {
            return Err((
                StatusCode::NOT_IMPLEMENTED,
                "This proxy stands for one server and opens no tunnels.",
            ));
        }
        let wants_tunnel = tunnel::is_wanted(&request) && !self.heads.http2;
        let asking = wants_tunnel.then(|| Asking {
            client: hyper::upgrade::on(&mut request),
            activity: request.extensions().get().cloned(),
        });
        let motion = Motion::new();
        let request = self.outgoing(request, wants_tunnel, &motion)?;
        let response = self.upstream.send(request, &motion).await.map_err(|fault| self.failed(fault))?;
        self.incoming(response, asking, motion)
    }

    /// Returns the request that the upstream receives.
    fn outgoing(
        &self,
        request: Request<Lingering>,
        wants_tunnel: bool,
        motion: &Arc<Motion>,
    ) -> Result<Request<Upload>, Refusal> {
        let (head, body) = request.into_parts();
        let head = self.heads.outgoing(head, wants_tunnel)?;
        let target = self
            .upstream
            .target(head.path)
            .ok_or((StatusCode::BAD_REQUEST, "The target of the request is not a path."))?;
        let bytes = self.metrics.request_bytes.clone();
        let mut request = Request::new(Upload::new(body, Arc::clone(motion), bytes));
        *request.method_mut() = head.method;
        *request.uri_mut() = target;
        *request.headers_mut() = head.headers;
        Ok(request)
    }

    /// Returns the response that the client receives.
    fn incoming(
        &self,
        mut response: Response<Incoming>,
        asking: Option<Asking>,
        upload: Arc<Motion>,
    ) -> Result<Response<Download>, Refusal> {
        let version = response.version();
        head::incoming(response.headers_mut(), version).map_err(|_| self.failed(Fault::Ambiguous))?;
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // Without a request for a WebSocket, the upstream must not switch protocols.
            let Asking { client, activity } = asking.ok_or_else(|| self.failed(Fault::Broken))?;
            tunnel::announce(response.headers_mut());
            let upstream = hyper::upgrade::on(&mut response);
            tunnel::join(client, upstream, activity, self.metrics.tunnels.clone());
        }
        Ok(response.map(|body| Download::new(body, self.upstream.idle_timeout(), upload)))
    }

    fn failed(&self, fault: Fault) -> Refusal {
        self.metrics.fault(fault);
        (fault.status(), fault.detail())
    }
}
