//! Tests what handlers learn from a layer, and the limits that handlers check themselves.

use super::site::{Answer, Running, from, site, with};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Decision, DecisionParts, DecisionSource, InFlight, Outcome, Quota, Tick};
use tollgate_http::{Decisions, HandlerLimit, KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tower::{Layer, ServiceExt, service_fn};

/// Sends a request through layers, outermost first, to a handler that answers with the decisions
/// that it has received.
fn told(layers: &[&RateLimitLayer], request: Request<()>) -> Answer {
    let handler = service_fn(|request: Request<()>| async move {
        let told = match request.extensions().get::<Decisions>() {
            None => "nothing".to_owned(),
            Some(decisions) => decisions
                .iter()
                .map(|(name, it)| format!("{name} {} {}", it.is_allowed(), it.remaining()))
                .collect::<Vec<_>>()
                .join(", "),
        };
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(told)))
    });
    match layers {
        [one] => Answer::of(pollster::block_on(one.layer(handler).oneshot(request)).unwrap()),
        [outer, inner] => {
            let service = outer.layer(inner.layer(handler));
            Answer::of(pollster::block_on(service.oneshot(request)).unwrap())
        }
        _ => panic!("one layer or two"),
    }
}

#[test]
fn a_handler_learns_that_a_limit_is_used_up_that_refuses_nobody() {
    let site = site();
    let (fair, most) = (site.single(Quota::per_day(300)), site.single(Quota::per_day(1500)));
    let site = site.limit(Limit::new("fair", fair).shadow()).limit(Limit::new("most", most));
    let Running { layer, .. } = site.with(|it| it.pass_decisions()).run();
    let answers: Vec<Answer> = (0..1501).map(|_| told(&[&layer], with(&[]))).collect();
    for (number, body) in [
        (0, "fair true 299, most true 1499"),
        (299, "fair true 0, most true 1200"),
        (300, "fair false 0, most true 1199"),
        (1499, "fair false 0, most true 0"),
    ] {
        assert_eq!((answers[number].status.as_u16(), &*answers[number].body), (200, body));
    }
    assert_eq!(answers[1500].status, 429);
}

#[test]
fn a_handler_learns_the_same_from_limits_that_must_be_waited_for() {
    let site = site();
    let (near, far) = (site.single(Quota::per_hour(2)), site.elsewhere(Quota::per_hour(1)));
    let site = site
        .limit(Limit::new("near", near))
        .limit(Limit::new("far", Arc::clone(&far)).by(KeyBy::nothing()).shadow());
    let Running { layer, .. } = site.with(|it| it.pass_decisions()).run();
    assert_eq!(told(&[&layer], with(&[])).body, "near true 1, far true 0");
    assert_eq!(told(&[&layer], with(&[])).body, "near true 0, far false 0");
    assert_eq!(told(&[&layer], with(&[])).status, 429);
}

#[test]
fn decisions_are_passed_only_if_asked_for_and_then_always() {
    let layer = |passes: bool| {
        let site = site();
        let keyed = Limit::new("keyed", site.limiter(Quota::per_hour(9))).by(KeyBy::header("x-a"));
        let site =
            site.limit(keyed.when_no_key(WhenNoKey::Allow)).with(|it| it.skip(|it| it.path() == "/free"));
        site.with(|it| if passes { it.pass_decisions() } else { it }).run().layer
    };
    assert_eq!(told(&[&layer(false)], with(&[("x-a", "1")])).body, "nothing");
    let layer = layer(true);
    assert_eq!(told(&[&layer], with(&[("x-a", "1")])).body, "keyed true 8");
    // No limit has counted these requests.
    assert_eq!(told(&[&layer], with(&[])).body, "");
    assert_eq!(told(&[&layer], from("", "/free", &[("x-a", "1")])).body, "");
}

#[test]
fn the_decisions_of_two_layers_are_passed_together() {
    let layer = |name: &str, tokens| {
        let site = site();
        let limiter = site.single(Quota::per_hour(tokens));
        site.limit(Limit::new(name, limiter)).with(|it| it.pass_decisions()).run().layer
    };
    let (outer, inner) = (layer("outer", 5), layer("inner", 3));
    assert_eq!(told(&[&outer, &inner], with(&[])).body, "outer true 4, inner true 2");
    // A request that passes the same layer twice is counted once.
    assert_eq!(told(&[&outer, &outer], with(&[])).body, "outer true 3");
}

/// A handler that asks a limiter itself, behind a layer.
fn exports() -> impl Fn() -> Answer {
    let site = site();
    let (all, exports) = (site.single(Quota::per_hour(2)), site.limiter(Quota::per_minute(1)));
    let limit = HandlerLimit::new("exports").unwrap();
    let Running { layer, .. } = site.limit(Limit::new("all", all)).run();
    move || {
        let handler = service_fn(|_: Request<()>| async {
            let decision = exports.check(&tollgate_http::Key::new("exports", ["alice"]));
            let refusal = limit.refusal(exports.quota(), &decision);
            Ok::<_, Infallible>(refusal.unwrap_or_else(|| {
                let mut response = Response::new("exported".to_owned());
                limit.write_fields(response.headers_mut(), exports.quota(), &decision);
                response
            }))
        });
        Answer::of(pollster::block_on(layer.layer(handler).oneshot(with(&[]))).unwrap())
    }
}

#[test]
fn a_handler_writes_the_fields_and_the_refusals_of_a_layer() {
    let export = exports();
    let exported = export();
    assert_eq!((exported.status.as_u16(), &*exported.body), (200, "exported"));
    assert_eq!(exported.header("ratelimit"), Some("\"exports\";r=0;t=60, \"all\";r=1;t=1800"));
    assert_eq!(exported.header("ratelimit-policy"), Some("\"exports\";q=1;w=60, \"all\";q=2;w=3600"));
    assert_eq!(exported.header("retry-after"), None);
    let refused = export();
    assert_eq!(
        (refused.status.as_u16(), refused.header("content-type")),
        (429, Some("application/problem+json"))
    );
    let problem = refused.json();
    assert_eq!((&problem["error"], &problem["limit"]), (&"rate_limited".into(), &"exports".into()));
    assert_eq!((&problem["retry_after"], &problem["violated-policies"]), (&60.into(), &["exports"].into()));
    assert_eq!(problem["detail"], "rate limit \"exports\" exceeded: retry after 60 seconds");
    assert_eq!(refused.header("ratelimit"), Some("\"exports\";r=0;t=60, \"all\";r=0;t=1800"));
    // The layer has no token for the next request, and extends the wait as for a refusal of its
    // own.
    assert_eq!(refused.header("retry-after"), Some("1800"));
}

#[test]
fn a_refusal_of_a_handler_says_why() {
    let limit = HandlerLimit::new("jobs").unwrap();
    let error = |response: Option<Response<String>>| {
        let answer = Answer::of(response.unwrap());
        (answer.json()["error"].as_str().unwrap().to_owned(), answer.header("retry-after").map(str::to_owned))
    };
    let limiter = site().single(Quota::per_hour(2));
    let costly = limiter.check_n(3);
    assert_eq!(error(limit.refusal(limiter.quota(), &costly)), ("rate_limited".to_owned(), None));
    assert_eq!(limit.refusal(limiter.quota(), &limiter.check()).map(|it| it.status()), None);
    let places: InFlight<str> = InFlight::builder(1).build().unwrap();
    let _first = places.acquire("a").unwrap();
    let denied = places.acquire("a").unwrap_err();
    let quota = Quota::new(places.limit(), Duration::ZERO);
    let refused = limit.refusal(quota, &denied.decision());
    assert_eq!(
        refused.as_ref().unwrap().headers()["ratelimit-policy"],
        "\"jobs\";q=1;qu=\"concurrent-requests\""
    );
    assert_eq!(error(refused), ("too_many_in_flight".to_owned(), None));
    let mut headers = HeaderMap::new();
    headers.insert("ratelimit", HeaderValue::from_static("limit=100, \"app\";r=7"));
    limit.write_fields(&mut headers, limiter.quota(), &limiter.check());
    assert_eq!(headers["ratelimit"], "\"app\";r=7, \"jobs\";r=0;t=1800");
    for name in ["", "ü", "a\nb", &"x".repeat(200)] {
        let error = HandlerLimit::new(name).unwrap_err().to_string();
        assert!(error.contains(&format!("{name:?}: expected 1 to 128 printable ASCII")), "{error}");
    }
}

/// The policy of a limiter answers if the limiter is full, or if its store is unreachable.
#[test]
fn a_refusal_of_a_handler_tells_an_unreachable_store_from_a_full_limiter() {
    let by_policy = Decision::from(DecisionParts {
        outcome: Outcome::Denied,
        cost: 1,
        capacity: 2,
        remaining: 0,
        wait: None,
        reset_after: Duration::ZERO,
        refill_after: Duration::ZERO,
        at: Tick::ZERO,
        source: DecisionSource::Policy,
    });
    let limit = HandlerLimit::new("jobs").unwrap();
    for (limit, status, error, detail) in [
        (
            limit.clone(),
            429,
            "capacity_reduced",
            "rate limit \"jobs\" has no room for a new client: all places are taken, and",
        ),
        (limit.shared(), 503, "unavailable", "rate limit \"jobs\" can't be checked at present"),
    ] {
        let answer = Answer::of(limit.refusal(Quota::per_hour(2), &by_policy).unwrap());
        let problem = answer.json();
        assert_eq!((answer.status.as_u16(), &problem["error"]), (status, &error.into()));
        assert!(problem["detail"].as_str().unwrap().starts_with(detail), "{problem}");
    }
}

#[test]
fn a_handler_of_axum_takes_the_decisions_and_answers_with_a_refusal() {
    use axum::response::IntoResponse;
    use axum::{Extension, Router, body::Body, routing::get};
    let site = site();
    let (fair, exports) = (site.single(Quota::per_hour(1)), Arc::new(site.single(Quota::per_hour(2))));
    let Running { layer, .. } =
        site.limit(Limit::new("fair", fair).shadow()).with(|it| it.pass_decisions()).run();
    let limit = HandlerLimit::new("exports").unwrap();
    let handler = async move |Extension(decisions): Extension<Decisions>| {
        let decision = exports.check();
        match limit.refusal(exports.quota(), &decision) {
            Some(refusal) => refusal.into_response(),
            None => decisions.get("fair").unwrap().is_allowed().to_string().into_response(),
        }
    };
    let router: Router = Router::new().route("/", get(handler)).layer(layer);
    let send = || {
        let request = Request::get("/").body(Body::empty()).unwrap();
        Answer::of(pollster::block_on(router.clone().oneshot(request)).unwrap())
    };
    assert_eq!([send().body, send().body], ["true", "false"]);
    let refused = send();
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("1800")));
    assert_eq!(refused.json()["limit"], "exports");
}
