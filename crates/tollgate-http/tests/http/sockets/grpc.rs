//! Tests gRPC, with a tonic client and a tonic server behind the layer, and gRPC-Web over HTTP/1.1.

use crate::sockets::client::{Version, connected};
use crate::sockets::run::{builder, keyed, layer, per_address, per_key, run};
use crate::sockets::server::{KINDS, Server, handler, site, text};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::{ManualClock, Quota};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tollgate_testing::structured::rate_limit;
use tonic::Code;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

/// A service with the unary method `Check` and the streaming method `Watch`.
async fn serve(layer: RateLimitLayer) -> (Server, HealthReporter) {
    let (reporter, service) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder().layer(layer).add_service(service);
    let task = tokio::spawn(async { server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap() });
    (Server::of(address, task), reporter)
}

/// A client with its own connection.
async fn client(server: &Server) -> HealthClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{}", server.address)).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

fn request(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

fn with_key(key: &str) -> tonic::Request<HealthCheckRequest> {
    let mut request = tonic::Request::new(request(""));
    request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    request
}

#[test]
fn a_refused_call_is_resource_exhausted_with_a_message_and_metadata() {
    run(async {
        let limiter = keyed(Quota::per_minute(2), &ManualClock::new());
        let (server, _reporter) = serve(layer([per_address(&limiter)])).await;
        for remaining in [1, 0] {
            // Each client has its own connection.
            let reply = client(&server).await.check(request("")).await.unwrap();
            let left = rate_limit(&reply.metadata().clone().into_headers());
            assert_eq!((left[0].0.as_str(), left[0].1), ("per-address", remaining));
            assert_eq!(reply.into_inner().status, 1, "serving");
        }
        let refused = client(&server).await.check(request("")).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(refused.message(), "rate limit \"per-address\" exceeded: retry after 30 seconds");
        let metadata = refused.metadata();
        assert_eq!(metadata.get("retry-after").unwrap(), "30");
        assert_eq!(metadata.get("grpc-retry-pushback-ms").unwrap(), "30000");
        assert_eq!(rate_limit(&metadata.clone().into_headers()), [("per-address".into(), 0, Some(30))]);
    });
}

#[test]
fn a_stream_is_charged_when_it_begins_and_refused_as_a_call_is() {
    run(async {
        let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
        let (server, reporter) = serve(layer([per_address(&limiter)])).await;
        let mut one = client(&server).await;
        let mut statuses = one.watch(request("")).await.unwrap().into_inner();
        assert_eq!(statuses.message().await.unwrap().unwrap().status, 1);
        let refused = client(&server).await.watch(request("")).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("per-address"));
        assert_eq!(refused.metadata().get("retry-after").unwrap(), "60");
        // The stream that was admitted continues without a further charge.
        for status in [ServingStatus::NotServing, ServingStatus::Serving] {
            reporter.set_service_status("", status).await;
            let told = statuses.message().await.unwrap().unwrap().status;
            assert_eq!(told, if status == ServingStatus::Serving { 1 } else { 2 });
        }
    });
}

#[test]
fn of_concurrent_calls_exactly_the_limit_is_admitted() {
    run(async {
        let limiter = keyed(Quota::per_hour(33), &ManualClock::new());
        let (server, _reporter) = serve(layer([per_key(&limiter)])).await;
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let client = client(&server).await;
            for _ in 0..10 {
                let mut client = client.clone();
                calls.spawn(async move { client.check(with_key("secret")).await });
            }
        }
        let replies = calls.join_all().await;
        assert_eq!(replies.iter().filter(|reply| reply.is_ok()).count(), 33);
        let refused = |reply: &Result<_, tonic::Status>| {
            reply.as_ref().is_err_and(|status| status.code() == Code::ResourceExhausted)
        };
        assert_eq!(replies.iter().filter(|reply| refused(reply)).count(), 167);
    });
}

#[test]
fn a_call_without_a_key_is_permission_denied() {
    run(async {
        let limiter = keyed(Quota::per_minute(2), &ManualClock::new());
        let limit =
            Limit::new("per-key", limiter).by(KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Deny);
        let (server, _reporter) = serve(layer([limit])).await;
        let mut client = client(&server).await;
        let refused = client.check(request("")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert_eq!(refused.metadata().get("retry-after"), None);
        assert!(client.check(with_key("secret")).await.is_ok());
    });
}

#[test]
fn a_call_that_fails_can_be_free_of_charge() {
    run(async {
        let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
        let limit = per_key(&limiter).charge_if(|response| !response.headers().contains_key("grpc-status"));
        let (server, _reporter) = serve(layer([limit])).await;
        let mut client = client(&server).await;
        for _ in 0..5 {
            let mut unknown = with_key("secret");
            unknown.get_mut().service = "unknown".to_owned();
            assert_eq!(client.check(unknown).await.unwrap_err().code(), Code::NotFound);
        }
        assert!(client.check(with_key("secret")).await.is_ok());
        let refused = client.check(with_key("secret")).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    });
}

#[test]
fn grpc_web_is_refused_in_its_own_content_type_over_http_1() {
    run(async {
        for kind in KINDS {
            for content_type in
                ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"]
            {
                let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
                let (_server, mut client) =
                    connected(kind, layer([per_address(&limiter)]), site(), Version::One).await;
                client.get("/").await;
                let call = Request::post("/package.Service/Method").header("content-type", content_type);
                let call = call.body(text(Bytes::from_static(b"\0\0\0\0\0"))).unwrap();
                let reply = client.send(call).await.unwrap();
                assert_eq!(reply.status, StatusCode::OK);
                assert_eq!(reply.text("content-type"), Some(content_type));
                assert_eq!(reply.number("grpc-status"), Some(8));
                assert!(reply.text("grpc-message").is_some_and(|message| message.contains("per-address")));
                assert_eq!(reply.retry_after(), Some(60));
                assert!(reply.body.is_empty());
            }
        }
    });
}

#[test]
fn grpc_web_passes_untouched() {
    run(async {
        // A message, and the trailers that gRPC-Web sends as one.
        const BODY: &[u8] = b"\0\0\0\0\x02\x08\x01\x80\0\0\0\x0fgrpc-status:0\r\n";
        let limiter = keyed(Quota::per_minute(10), &ManualClock::new());
        let handler = handler(|_| async {
            let response = Response::builder().header("content-type", "application/grpc-web+proto");
            Ok(response.body(text(BODY)).unwrap())
        });
        for kind in KINDS {
            let layer = layer([per_address(&limiter)]);
            let (_server, mut client) = connected(kind, layer, Arc::clone(&handler), Version::One).await;
            let call = Request::post("/a.B/C").header("content-type", "application/grpc-web+proto");
            let reply = client.ask(call).await;
            assert_eq!((reply.status, &*reply.body), (StatusCode::OK, BODY));
            assert_eq!(reply.text("content-type"), Some("application/grpc-web+proto"));
            assert_eq!(reply.text("grpc-status"), None);
        }
    });
}

#[test]
fn what_only_looks_like_grpc_is_answered_as_anything_else() {
    run(async {
        let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
        let layer = builder().limit(per_address(&limiter)).build().unwrap();
        let (_server, mut client) = connected(KINDS[0], layer, site(), Version::Two).await;
        client.get("/").await;
        for content_type in ["application/grpcio", "application/json", "text/plain; application/grpc"] {
            let reply = client.ask(Request::post("/").header("content-type", content_type)).await;
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{content_type}");
            assert_eq!(reply.text("content-type"), Some("application/problem+json"));
        }
    });
}
