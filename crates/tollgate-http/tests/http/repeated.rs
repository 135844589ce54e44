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
