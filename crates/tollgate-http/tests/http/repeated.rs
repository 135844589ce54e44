//! Tests layers inside of axum's nested routers: which URI they see, and that a layer that a
//! request passes twice charges it once.

use super::site::{from, site};
use axum::Router;
use axum::extract::OriginalUri;
use axum::routing::any;
use http::{Method, Request};
use http_body_util::Empty;
use tollgate::{Quota, SingleLimiter};
use tollgate_http::settings::LayerSettings;
use tollgate_http::{KeyBy, Limit, RateLimitBuilder, RateLimitLayer, WhenNoKey};
use tower::{Layer, ServiceExt, service_fn};

fn layer(
    limits: &[&str],
    except: &[&str],
    with: impl Fn(RateLimitBuilder) -> RateLimitBuilder,
) -> RateLimitLayer {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    let except = except.iter().map(|scope| scope.parse().unwrap()).collect();
    let settings = LayerSettings { limits, except, ..LayerSettings::default() };
    with(settings.builder().unwrap()).build().unwrap()
}

fn original(builder: RateLimitBuilder) -> RateLimitBuilder {
    builder.uri_from(|it: &OriginalUri| &it.0)
}

fn inner(layer: &RateLimitLayer) -> Router {
    Router::new().route("/{*rest}", any(|| async { "handled" })).layer(layer.clone())
}

fn statuses<const N: usize>(router: &Router, paths: [&str; N]) -> [u16; N] {
    paths.map(|path| {
        let request = Request::post(path).body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = pollster::block_on(router.clone().oneshot(request.map(axum::body::Body::new)));
        response.unwrap().status().as_u16()
    })
}

#[test]
fn a_layer_inside_a_nested_router_sees_the_original_path() {
    let uploads = layer(&["a=1/h by nothing for POST /api/v1/uploads"], &[], original);
    let router = Router::new().nest("/api", Router::new().nest("/v1", inner(&uploads)));
    assert_eq!(statuses(&router, ["/api/v1/uploads", "/api/v1/uploads", "/api/v1/other"]), [200, 429, 200]);

    let paths = layer(&["a=1/h by path"], &[], original);
    let router = Router::new().nest("/a", inner(&paths)).nest("/b", inner(&paths));
    assert_eq!(statuses(&router, ["/a/x", "/b/x", "/a/x", "/b/x"]), [200, 200, 429, 429]);

    let exempting = layer(&["a=1/h by nothing"], &["/health"], original);
    let router = Router::new().nest("/tenants/{id}", inner(&exempting));
    assert_eq!(statuses(&router, ["/tenants/7/health", "/tenants/7/health"]), [200, 429]);
}

#[cfg(feature = "axum")]
mod with_the_feature {
    use super::*;
    use axum::body::Body;
    use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};
    use http::Uri;
    use std::net::SocketAddr;
    use tollgate_http::{PeerAddr, RequestHead};

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 4711).into()
    }

    #[test]
    fn five_logins_a_minute_by_address_are_one_builder() {
        let logins = layer(&["logins=5/min by ip for POST /api/login"], &[], |builder| builder);
        let router = Router::new().nest("/api", inner(&logins));
        let send = |path: &str, last| {
            let request = Request::post(path).extension(ConnectInfo(address(last)));
            let request = request.body(Body::empty()).unwrap();
            pollster::block_on(router.clone().oneshot(request)).unwrap().status().as_u16()
        };
        assert_eq!(
            [1, 1, 1, 1, 1, 1, 2].map(|last| send("/api/login", last)),
            [200, 200, 200, 200, 200, 429, 200]
        );
        assert_eq!(send("/api/other", 1), 200);
        // A layer of the application's tests takes the place of the server.
        let router = router.clone().layer(MockConnectInfo(address(1)));
        assert_eq!(statuses(&router, ["/api/login", "/api/other"]), [429, 200]);
    }

    #[test]
    fn extensions_that_the_application_names_come_first() {
        #[derive(Clone)]
        struct Own(SocketAddr, Uri);
        let seen = |with: fn(RateLimitBuilder) -> RateLimitBuilder,
                    add: fn(http::request::Builder) -> http::request::Builder| {
            let limiter = SingleLimiter::builder(Quota::per_hour(9)).build().unwrap();
            let heads = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            let list = heads.clone();
            let note = move |head: RequestHead<'_>| {
                let peer = head.peer().map_or(String::new(), |peer| peer.ip().to_string());
                list.lock().unwrap().push(format!("{peer}{}", head.path()));
                false
            };
            let builder = RateLimitLayer::builder().limit(Limit::new("all", limiter)).skip(note);
            let router = Router::new().nest("/a", inner(&with(builder).build().unwrap()));
            let request = add(Request::post("/a/b").extension(ConnectInfo(address(1))));
            let _ = pollster::block_on(router.oneshot(request.body(Body::empty()).unwrap()));
            heads.lock().unwrap().join(" ")
        };
        assert_eq!(seen(|builder| builder, |request| request), "192.0.2.1/a/b");
        assert_eq!(
            seen(|builder| builder, |request| request.extension(PeerAddr(address(2)))),
            "192.0.2.2/a/b"
        );
        let own = |builder: RateLimitBuilder| builder.peer_from(|it: &Own| it.0).uri_from(|it: &Own| &it.1);
        assert_eq!(
            seen(own, |request| request.extension(Own(address(3), "/c".parse().unwrap()))),
            "192.0.2.3/c"
        );
        assert_eq!(seen(own, |request| request), "192.0.2.1/a/b");
    }
}

#[test]
fn a_request_that_passes_one_layer_twice_is_charged_once() {
    let limiter = |quota| SingleLimiter::builder(quota).build().unwrap();
    let limit = Limit::new("all", limiter(Quota::per_hour(3)));
    let all = RateLimitLayer::builder().limit(limit).build().unwrap();
    let router = Router::new().nest("/a", inner(&all)).fallback(any(|| async { "other" })).layer(all.clone());
    assert_eq!(statuses(&router, ["/a/x", "/b", "/a/x", "/a/x"]), [200, 200, 200, 429]);
    // Two layers with different limits are both charged, however often they are used.
    let layer = |name: &str, quota| {
        let layer = RateLimitLayer::builder().limit(Limit::new(name, limiter(quota))).build().unwrap();
        let _ = layer.layer(());
        layer
    };
    let (one, two) = (layer("one", Quota::per_hour(9)), layer("two", Quota::per_hour(2)));
    let router = Router::new().fallback(any(|| async { "handled" })).layer(one.clone()).layer(two).layer(one);
    assert_eq!(statuses(&router, ["/", "/", "/"]), [200, 200, 429]);
}

#[test]
fn a_repeated_request_is_charged_each_time() {
    let site = site();
    let limit =
        Limit::new("a", site.limiter(Quota::per_hour(2))).by(KeyBy::method()).when_no_key(WhenNoKey::Deny);
    let site = site.limit(limit).run();
    let service = site.layer.layer(site.layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    })));
    let request = from("", "/", &[]);
    let status = || pollster::block_on(service.clone().oneshot(request.clone())).unwrap().status().as_u16();
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    assert_eq!(request.method(), Method::GET);
}
