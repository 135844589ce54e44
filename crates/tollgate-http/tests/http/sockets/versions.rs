//! Tests that limits count a request in the same way in HTTP/1.1 and HTTP/2, although the two
//! versions express it differently.

use crate::sockets::client::{Client, VERSIONS, Version};
use crate::sockets::run::{builder, run};
use crate::sockets::server::{KINDS, Server, site};
use http::{HeaderValue, Request, StatusCode};
use tollgate::{Limiter, ManualClock, Quota};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};

/// One request an hour for each key.
fn hourly(header: &str) -> RateLimitLayer {
    let limiter = Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
    let limit = Limit::new("hourly", limiter).by(KeyBy::header(header)).when_no_key(WhenNoKey::Deny);
    builder().limit(limit).build().unwrap()
}

/// The name of a header, and a function that creates a request with this header as an HTTP version
/// expresses it.
type Case = (&'static str, fn(Version) -> http::request::Builder);

#[test]
fn a_client_that_changes_the_version_has_no_other_key() {
    run(async {
        let requests: [Case; 3] = [
            // The client sends the host as its version specifies.
            ("host", |_| Request::get("/")),
            ("cookie", |version| match version {
                Version::One => Request::get("/").header("cookie", "a=1; b=2"),
                Version::Two => Request::get("/").header("cookie", "a=1").header("cookie", "b=2"),
            }),
            ("x-api-key", |version| {
                let value = if version == Version::One { "k" } else { "  k " };
                Request::get("/").header("x-api-key", HeaderValue::from_static(value))
            }),
        ];
        for (kind, (header, request)) in KINDS.into_iter().flat_map(|kind| requests.map(|it| (kind, it))) {
            for versions in [VERSIONS, [Version::Two, Version::One]] {
                let server = Server::start(kind, hourly(header), site()).await;
                for (version, status) in
                    versions.into_iter().zip([StatusCode::OK, StatusCode::TOO_MANY_REQUESTS])
                {
                    let mut client = Client::connect(&server, version).await;
                    let reply = client.ask(request(version)).await;
                    assert_eq!(reply.status, status, "{kind:?} {header} {version:?}");
                }
            }
        }
    });
}
