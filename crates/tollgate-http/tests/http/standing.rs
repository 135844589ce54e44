//! Tests fields that the response already contains, from an upstream, a handler or an inner layer.

use super::site::{Answer, Handler, Running, site, with};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::Empty;
use std::convert::Infallible;
use tollgate::{Quota, SingleLimiter};
use tollgate_http::{Limit, RateLimitBuilder, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// Returns a layer with a limit of five an hour.
fn layer(change: impl FnOnce(RateLimitBuilder) -> RateLimitBuilder) -> Running {
    let site = site();
    let all = site.single(Quota::per_hour(5));
    site.limit(Limit::new("all", all)).with(change).run()
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |&(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    lines.iter().map(line).collect()
}

/// Returns the response that the client receives if the handler responds with these header lines.
fn answered(running: &Running, lines: &[(&str, &str)]) -> Answer {
    let service = running.layer.layer(service_fn(|_: Request<()>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        *response.headers_mut() = headers(lines);
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    Answer::of(pollster::block_on(service.oneshot(with(&[]))).unwrap())
}

/// Returns the lines of a header.
fn lines<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    answer.headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect()
}

#[test]
fn items_that_are_no_strings_with_their_parameter_go() {
    // The lines in the handler's response, and the items that the layer keeps.
    for (standing, stays) in [
        (&["limit=100, remaining=50, reset=5"][..], ""),
        (&["50"], ""),
        (&["a;r=1"], ""),
        (&["(\"a\" \"b\");r=1"], ""),
        (&["\"a\""], ""),
        (&["\"a\";t=5"], ""),
        (&["\"a\";r=-1"], ""),
        (&["\"a\";r=1.5"], ""),
        (&["\"a\";r=?1"], ""),
        (&["\"a\";R=1"], ""),
        (&["\"a\";r=1000000000000000"], ""),
        (&["\"a\";r=1;r=x"], ""),
        (&["\"a;r=1"], ""),
        (&["\u{e9}"], ""),
        (&["", ",", " , "], ""),
        (&["\"a\";r=1;t=5"], "\"a\";r=1;t=5, "),
        (&["\"a\";r=x;r=1"], "\"a\";r=x;r=1, "),
        (&["\"a\";pk=:YQ==:;r=1;x=\"y, z\""], "\"a\";pk=:YQ==:;r=1;x=\"y, z\", "),
        (&["\"a, \\\"b\";r=1"], "\"a, \\\"b\";r=1, "),
        // An invalid item or line does not affect the others.
        (&["\"a\";r=1, limit=100, remaining=50,\t\"b\";r=2"], "\"a\";r=1, \"b\";r=2, "),
        (&["limit=100, remaining=50", "\"a\";r=1"], "\"a\";r=1, "),
        (&["\"a\";r=1", "\"b;r=3", "\"c\";r=2, 7"], "\"a\";r=1, \"c\";r=2, "),
    ] {
        for (name, parameter, ours) in
            [("ratelimit", "r", "\"all\";r=4;t=720"), ("ratelimit-policy", "q", "\"all\";q=5;w=3600")]
        {
            let of_this = |text: &str| text.replace("r=", &format!("{parameter}="));
            let standing: Vec<String> = standing.iter().map(|line| of_this(line)).collect();
            let standing: Vec<(&str, &str)> = standing.iter().map(|line| (name, line.as_str())).collect();
            let answer = answered(&layer(|builder| builder), &standing);
            assert_eq!(lines(&answer, name), [of_this(stays) + ours], "{standing:?}");
        }
    }
    // Integers are policies according to an older draft.
    let answer = answered(&layer(|builder| builder), &[("ratelimit-policy", "100;w=60, 10;w=1")]);
    assert_eq!(lines(&answer, "ratelimit-policy"), ["\"all\";q=5;w=3600"]);
}

#[test]
fn fields_that_the_layer_does_not_write_stay_as_they_are() {
    let standing = [
        ("ratelimit", "limit=100, remaining=50, reset=5"),
        ("ratelimit-limit", "100"),
        ("x-ratelimit-limit", "100, 100;w=60"),
        ("x-ratelimit-remaining", "none"),
    ];
    let answer = answered(&layer(RateLimitBuilder::without_fields), &standing);
    assert_eq!(answer.headers, headers(&standing));
    let exempt = layer(|builder| builder.legacy_fields().skip(|_| true));
    assert_eq!(answered(&exempt, &standing).headers, headers(&standing));
}

/// The older fields of a response: limit, remaining and reset.
fn older(answer: &Answer) -> [Vec<&str>; 3] {
    ["limit", "remaining", "reset"].map(|it| lines(answer, &format!("x-ratelimit-{it}")))
}

#[test]
fn the_older_fields_describe_one_limit_and_the_smallest_share_wins() {
    let [limit, remaining, reset] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let ours = [vec!["5"], vec!["4"], vec!["720"]];
    for (standing, told) in [
        (&[][..], ours.clone()),
        // The existing limit has less than four fifths left. Its reset is a date instead of a wait,
        // or is missing.
        (
            &[(limit, "100"), (remaining, "79"), (reset, "1793700000")],
            [vec!["100"], vec!["79"], vec!["1793700000"]],
        ),
        (&[(limit, "100"), (remaining, "79")], [vec!["100"], vec!["79"], vec![]]),
        (&[(limit, "0"), (remaining, "0")], [vec!["0"], vec!["0"], vec![]]),
        // The existing limit has the same share left, or a larger one.
        (&[(limit, "10"), (remaining, "8"), (reset, "1")], [vec!["10"], vec!["8"], vec!["1"]]),
        (&[(limit, "100"), (remaining, "81"), (reset, "1")], ours.clone()),
        // The existing fields are unreadable or incomplete.
        (&[(limit, "100")], ours.clone()),
        (&[(remaining, "1")], ours.clone()),
        (&[(reset, "1")], ours.clone()),
        (&[(limit, "100, 100;w=60"), (remaining, "1"), (reset, "1")], ours.clone()),
        (&[(limit, "100"), (remaining, "1"), (reset, "soon")], ours.clone()),
        (&[(limit, "100"), (remaining, "-1")], ours.clone()),
        (&[(limit, "100"), (limit, "10"), (remaining, "1")], ours.clone()),
        (&[(limit, "100"), (remaining, "1"), (reset, "1"), (reset, "2")], ours.clone()),
    ] {
        let answer = answered(&layer(RateLimitBuilder::legacy_fields), standing);
        assert_eq!(older(&answer), told, "{standing:?}");
    }
}

/// Sends requests through two layers, whose limits have these quotas and costs.
fn through_two(inner: (Quota, u64), outer: (Quota, u64)) -> impl Fn() -> Answer {
    let site = site();
    let limit = |name, single: SingleLimiter, cost| {
        let layer = RateLimitLayer::builder().limit(Limit::new(name, single).cost(cost));
        layer.legacy_fields().build().unwrap()
    };
    let inner = limit("inner", site.single(inner.0), inner.1);
    let outer = limit("outer", site.single(outer.0), outer.1);
    move || {
        let service = outer.layer(inner.layer(Handler));
        Answer::of(pollster::block_on(service.oneshot(with(&[]))).unwrap())
    }
}

#[test]
fn of_two_layers_the_older_fields_describe_the_scarcer_limit() {
    let (few, many) = ((Quota::per_hour(4), 1), (Quota::per_hour(100), 1));
    for (inner, outer) in [(few, many), (many, few)] {
        assert_eq!(older(&through_two(inner, outer)()), [["4"], ["3"], ["900"]]);
    }
}

#[test]
fn the_older_fields_of_a_refusal_describe_the_limit_that_refused() {
    // The inner limit refuses even though it has more left than the outer limit, which has nothing
    // left.
    let send = through_two((Quota::per_hour(4), 3), (Quota::per_hour(2), 1));
    assert_eq!(send().status, 200);
    let refused = send();
    assert_eq!((refused.status.as_u16(), &refused.json()["limit"]), (429, &"inner".into()));
    assert_eq!(older(&refused), [["4"], ["1"], ["2700"]]);
}

/// Returns the `Retry-After` lines of the first refusal, which is the sixth response.
fn waits(running: &Running, send: impl Fn(&Running) -> Answer) -> Vec<String> {
    (0..5).for_each(|_| assert_ne!(send(running).status, 429));
    let refused = send(running);
    assert_eq!(refused.status, 429);
    lines(&refused, "retry-after").into_iter().map(str::to_owned).collect()
}

/// The lines of a response's headers.
type Lines = &'static [(&'static str, &'static str)];

fn refusing(lines: Lines) -> impl FnOnce(RateLimitBuilder) -> RateLimitBuilder {
    move |builder| {
        builder.respond(move |refusal| {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = refusal.status;
            *response.headers_mut() = headers(lines);
            response
        })
    }
}

const DATE: (&str, &str) = ("retry-after", "Fri, 27 Nov 2026 09:00:00 GMT");

#[test]
fn a_retry_after_that_cannot_be_read_gives_way() {
    let cases: [(Lines, &str); 8] = [
        (&[], "720"),
        (&[("retry-after", "99")], "99"),
        (&[DATE], DATE.1),
        (&[("retry-after", "soon")], "720"),
        (&[("retry-after", "")], "720"),
        (&[("retry-after", "1.5")], "720"),
        (&[("retry-after", "9000"), ("retry-after", "99")], "720"),
        (&[("retry-after", "99"), DATE], "720"),
    ];
    for (standing, told) in cases {
        let running = layer(refusing(standing));
        assert_eq!(waits(&running, |it| it.send(with(&[]))), [told], "{standing:?}");
    }
}

#[test]
fn a_retry_that_an_inner_layer_promises_in_any_form_is_put_off() {
    // The inner layer refuses for 720 s. The outer limit is used up, and its next token is
    // available after `wait` seconds.
    let cases: [(Lines, u64, &str); 6] = [
        (&[], 600, "720"),
        (&[], 900, "900"),
        (&[DATE], 600, DATE.1),
        (&[DATE], 900, "900"),
        (&[("retry-after", "1000")], 900, "1000"),
        (&[("retry-after", "1000"), ("retry-after", "99")], 900, "900"),
    ];
    for (standing, wait, told) in cases {
        let inner = layer(refusing(standing));
        let outer = SingleLimiter::builder(Quota::new(6, std::time::Duration::from_secs(6 * wait)));
        let outer = Limit::new("outer", outer.clock(&inner.clock).build().unwrap());
        let outer = RateLimitLayer::builder().limit(outer).build().unwrap();
        let through = |inner: &Running| {
            Answer::of(pollster::block_on(outer.layer(inner.service()).oneshot(with(&[]))).unwrap())
        };
        assert_eq!(waits(&inner, through), [told], "{standing:?} {wait}");
    }
}
