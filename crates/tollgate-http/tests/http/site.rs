//! A service behind a layer, and requests to it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, SingleLimiter};
use tollgate_http::{
    Key, KeyBy, Limit, PeerAddr, RateLimitBuilder, RateLimitLayer, RateLimitService, WhenNoKey,
};
use tower::{Layer, Service, ServiceExt};

/// A service with a manual clock.
pub(crate) struct Site {
    pub(crate) clock: ManualClock,
    pub(crate) builder: RateLimitBuilder,
}

pub(crate) fn site() -> Site {
    Site { clock: ManualClock::new(), builder: RateLimitLayer::builder() }
}

impl Site {
    pub(crate) fn limiter(&self, quota: Quota) -> Limiter<Key> {
        Limiter::builder(quota).clock(&self.clock).build().unwrap()
    }

    pub(crate) fn single(&self, quota: Quota) -> SingleLimiter {
        SingleLimiter::builder(quota).clock(&self.clock).build().unwrap()
    }

    pub(crate) fn with(self, setting: impl FnOnce(RateLimitBuilder) -> RateLimitBuilder) -> Self {
        Self { builder: setting(self.builder), ..self }
    }

    pub(crate) fn limit(self, limit: Limit) -> Self {
        self.with(|builder| builder.limit(limit))
    }

    /// Allows one request an hour for each key. Requests without a key are refused with status 403.
    pub(crate) fn hourly(self, by: KeyBy) -> Running {
        let limit =
            Limit::new("hourly", self.limiter(Quota::per_hour(1))).by(by).when_no_key(WhenNoKey::Deny);
        self.limit(limit).run()
    }

    pub(crate) fn run(self) -> Running {
        Running { clock: self.clock, layer: self.builder.build().unwrap() }
    }
}

pub(crate) struct Running {
    pub(crate) clock: ManualClock,
    pub(crate) layer: RateLimitLayer,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
    {
        let (parts, body) = response.into_parts();
        let body = pollster::block_on(body.collect()).unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Parses a List header with `sfv`, and returns its items. Each item must be a String with
    /// Integer parameters, and is returned as `name r=1 t=2`.
    pub(crate) fn items(&self, name: &str) -> Vec<String> {
        let lines: Vec<&str> = self.headers.get_all(name).iter().map(|it| it.to_str().unwrap()).collect();
        let joined = lines.join(", ");
        let list: sfv::List = sfv::Parser::new(&joined).parse().unwrap();
        let item = |entry: &sfv::ListEntry| {
            let sfv::ListEntry::Item(item) = entry else { panic!("{entry:?}") };
            let mut text = item.bare_item.as_string().unwrap().as_str().to_owned();
            for (name, value) in &item.params {
                text += &format!(" {name}={}", i64::from(value.as_integer().unwrap()));
            }
            text
        };
        list.iter().map(item).collect()
    }
}

impl Running {
    pub(crate) fn after(&self, time: Duration) -> &Self {
        self.clock.advance(time);
        self
    }

    pub(crate) fn send(&self, request: Request<()>) -> Answer {
        Answer::of(self.call(request).unwrap())
    }

    pub(crate) fn status(&self, request: Request<()>) -> u16 {
        self.send(request).status.as_u16()
    }

    /// Sends requests one after the other, and returns their statuses.
    pub(crate) fn statuses<const N: usize>(&self, requests: [Request<()>; N]) -> [u16; N] {
        requests.map(|request| self.status(request))
    }

    pub(crate) fn call(
        &self,
        request: Request<()>,
    ) -> Result<Response<tollgate_http::Body<Full<Bytes>>>, String> {
        pollster::block_on(self.service().oneshot(request))
    }

    pub(crate) fn service(&self) -> RateLimitService<Handler> {
        self.layer.layer(Handler)
    }
}

/// Handles a request: responds with the status in `x-answer`, or fails if that header is `fail`.
#[derive(Clone)]
pub(crate) struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = String;
    type Future = Ready<Result<Self::Response, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let told = request.headers().get("x-answer").map(|value| value.to_str().unwrap());
        let mut response = Response::new(Full::from("handled"));
        match told {
            Some("fail") => return ready(Err("failed".to_owned())),
            Some(status) => *response.status_mut() = status.parse().unwrap(),
            None => {}
        }
        ready(Ok(response))
    }
}

/// Creates a request with these headers from this address. If `address` is `""`, the request has no
/// address.
pub(crate) fn from(peer: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(uri).body(()).unwrap();
    if !peer.is_empty() {
        request.extensions_mut().insert(PeerAddr((peer.parse::<std::net::IpAddr>().unwrap(), 4711).into()));
    }
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    }
    request
}

/// Turns a request into a gRPC request of this content type.
pub(crate) fn grpc(mut request: Request<()>, content_type: &str) -> Request<()> {
    *request.method_mut() = Method::POST;
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    request
}

/// Creates a request with headers and without an address.
pub(crate) fn with(headers: &[(&str, &str)]) -> Request<()> {
    from("", "/", headers)
}
