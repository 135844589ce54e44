//! Tests limits whose cost is revealed by the response. The tests pull the frames of bodies one by
//! one.

use super::site::site;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tollgate::{Algorithm, InFlight, Limiter, ManualClock, Quota, SingleLimiter};
use tollgate_http::program::Fault;
use tollgate_http::{
    Body, ClassBy, ClassLookup, CutOff, Estimator, FailWhenCut, Key, KeyBy, Limit, RateLimitLayer,
    RequestCost, RequestHead, ResponseCost, WhenNoKey,
};
use tower::{Layer, ServiceExt, service_fn};

/// A body whose frames are all available immediately. It does not report its end before a poll
/// returns `None`.
#[derive(Debug, Default)]
pub(crate) struct Frames(pub(crate) VecDeque<Result<Frame<Bytes>, String>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        Poll::Ready(self.0.pop_front())
    }
}

pub(crate) type Answer = Response<Body<Frames>>;

/// Creates a response with a header.
fn with(name: &'static str, value: &str, data: &[&str]) -> Response<Frames> {
    let frames = data.iter().map(|data| Ok(Frame::data(Bytes::copy_from_slice(data.as_bytes()))));
    Response::builder().header(name, value).body(Frames(frames.collect())).unwrap()
}

/// Creates a stream of events from the texts of its frames.
pub(crate) fn events(data: &[&str]) -> Response<Frames> {
    with("content-type", "text/event-stream; charset=utf-8", data)
}

pub(crate) fn json(data: &[&str]) -> Response<Frames> {
    with("content-type", "application/json", data)
}

/// Adds these lines of `Content-Encoding` to a response.
fn coded(mut response: Response<Frames>, lines: &[&str]) -> Response<Frames> {
    for line in lines {
        response.headers_mut().append("content-encoding", line.parse().unwrap());
    }
    response
}

fn trailers(mut response: Response<Frames>, value: &str) -> Response<Frames> {
    let trailers =
        HeaderMap::from_iter([("x-tokens".parse().unwrap(), HeaderValue::from_str(value).unwrap())]);
    response.body_mut().0.push_back(Ok(Frame::trailers(trailers)));
    response
}

/// Sends a request to a handler. The handler answers with this response, or fails.
pub(crate) fn call(
    layer: &RateLimitLayer,
    request: Request<()>,
    answer: Result<Response<Frames>, String>,
) -> Result<Answer, String> {
    let answer = Arc::new(Mutex::new(Some(answer)));
    let handler = service_fn(move |_| std::future::ready(answer.lock().unwrap().take().unwrap()));
    let mut sent = pin!(layer.layer(handler).oneshot(request));
    let sent = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(answer) = sent else { panic!("it waits") };
    answer
}

/// Sends a request that passes.
pub(crate) fn send(layer: &RateLimitLayer, response: Response<Frames>) -> Answer {
    let answer = call(layer, Request::new(()), Ok(response)).unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

/// Pulls a frame: its data, or `trailers`, or the error.
pub(crate) fn pull(answer: &mut Answer) -> Option<String> {
    let frame = Pin::new(answer.body_mut()).poll_frame(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(frame) = frame else { panic!("it waits") };
    Some(match frame? {
        Ok(frame) => frame
            .into_data()
            .map_or("trailers".to_owned(), |data| String::from_utf8_lossy(&data).into_owned()),
        Err(error) => error,
    })
}

/// Pulls all frames.
pub(crate) fn pull_all(answer: &mut Answer) -> Vec<String> {
    std::iter::from_fn(|| pull(answer)).collect()
}

/// A single limit for all requests: 100 tokens an hour, a debt of up to 50, and an estimate of 20.
struct One {
    clock: ManualClock,
    limiter: Arc<SingleLimiter>,
    layer: RateLimitLayer,
}

pub(crate) const ESTIMATE: u64 = 20;

pub(crate) fn limiter(clock: &ManualClock, tokens: u64, debt: u64) -> Arc<SingleLimiter> {
    Arc::new(SingleLimiter::builder(Quota::per_hour(tokens)).clock(clock).max_debt(debt).build().unwrap())
}

pub(crate) fn layer(limits: impl IntoIterator<Item = Limit>) -> RateLimitLayer {
    limits.into_iter().fold(RateLimitLayer::builder(), |builder, limit| builder.limit(limit)).build().unwrap()
}

fn one_with(settle: ResponseCost, change: impl FnOnce(Limit) -> Limit) -> One {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, 100, 50);
    let limit = Limit::new("tokens", Arc::clone(&limiter)).cost(ESTIMATE).settle(settle);
    One { layer: layer([change(limit)]), clock, limiter }
}

fn one(settle: ResponseCost) -> One {
    one_with(settle, |limit| limit)
}

/// Returns the charge for one whole response.
fn cost_of(settle: ResponseCost, response: Response<Frames>) -> u64 {
    let one = one(settle);
    one.whole(response);
    one.charged()
}

impl One {
    /// Returns how many tokens are charged, including the debt.
    fn charged(&self) -> u64 {
        charged(&self.limiter)
    }

    /// Sends a request, pulls this many frames of its response, and hangs up.
    fn cut_short(&self, response: Response<Frames>, frames: usize) {
        let mut answer = send(&self.layer, response);
        (0..frames).for_each(|_| _ = pull(&mut answer));
    }

    /// Sends a request, pulls the whole response, and returns the frames.
    fn whole(&self, response: Response<Frames>) -> Vec<String> {
        pull_all(&mut send(&self.layer, response))
    }
}

pub(crate) fn charged(limiter: &SingleLimiter) -> u64 {
    let answer = limiter.peek();
    // While the limit is in debt, the wait reveals how large the debt is.
    let wait = answer.retry_after().map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap());
    answer.capacity() - answer.remaining() + (wait * answer.capacity() / 3_600_000).saturating_sub(1)
}

pub(crate) const USAGE: &str = "{\"id\":1,\"usage\":{\"total_tokens\":7}}";

/// A source of the cost, a response, and the cost.
pub(crate) type Case = (fn() -> ResponseCost, Response<Frames>, u64);

pub(crate) fn cases() -> [Case; 23] {
    let many = "data: {\"x\":\"y\"}\n\n".repeat(33);
    let lines = |kind: &str, data: &[&str]| with("content-type", kind, data);
    // One line with this text is within the bound for buffered text, but a body of three such lines
    // exceeds it.
    let long = format!("{{\"text\":\"{}\"}}", "\\\"[{,".repeat(20_000));
    let figure = |tokens: u64| format!("{{\"usage\":{{\"total_tokens\":{tokens}}}}}");
    let of_json: fn() -> ResponseCost = || ResponseCost::json("usage.total_tokens");
    [
        (|| ResponseCost::header("x-tokens"), with("x-tokens", "7", &["body"]), 7),
        (|| ResponseCost::header("x-tokens"), with("x-tokens", "130", &["body"]), 130),
        (|| ResponseCost::trailer("x-tokens"), trailers(json(&["body"]), "7"), 7),
        (|| ResponseCost::trailer("x-tokens"), trailers(json(&["body"]), "130"), 130),
        (of_json, json(&[USAGE]), 7),
        (of_json, json(&["{\"usage\":{\"total", "_tokens\":13", "0}}"]), 130),
        (of_json, with("content-type", "application/vnd.model+json; v=1", &[USAGE]), 7),
        (of_json, events(&["data: ", &figure(7), "\n\n", "data: [DONE]\n\n"]), 7),
        // The last figure counts, even if events without a figure follow.
        (
            of_json,
            events(&[&format!("data: {}\n\ndata: {}\n\ndata: {{}}\n\n", figure(140), figure(130))]),
            130,
        ),
        // The first event contains the figure for the input, and the last event contains the figure
        // for the output.
        (
            || ResponseCost::json("usage.output_tokens"),
            events(&[
                "data: {\"usage\":{\"input_tokens\":90,\"output_tokens\":1}}\n\n",
                "data: {\"usage\":null}\n\n",
                "data: {\"usage\":{\"output_tokens\":7}}\n\n",
            ]),
            7,
        ),
        // Newline-delimited JSON.
        (
            of_json,
            lines("application/x-ndjson", &["{\"a\":1}\n{\"usage\"", ":{\"total_tokens\":130}}\n"]),
            130,
        ),
        (of_json, lines("application/ndjson", &[&figure(140), "\r\n\r\n", &figure(7)]), 7),
        (of_json, lines("Application/JSONL; charset=utf-8", &[USAGE, "\n{}\n", "[DONE]\n"]), 7),
        (of_json, lines("application/stream+json", &[&figure(130), "\n"]), 130),
        (of_json, lines("application/x-jsonlines", &[&long, "\n", &long, "\n", USAGE, "\n", &long]), 7),
        // An array.
        (of_json, json(&["[{\"x\":1},", &figure(140), " , ", &figure(130), "]"]), 130),
        (of_json, json(&[" [", USAGE, ",{\"usage\":null},\"\\ud83d\",7]\n"]), 7),
        (|| ResponseCost::json("0.usage.total_tokens"), json(&["[", &figure(7), ",", &figure(130), "]"]), 7),
        (of_json, events(&["data: [", USAGE, ",{}]\n\n"]), 7),
        (
            ResponseCost::events,
            events(&["data: 1\n\ndata: 2\n\nda", "ta: 3\n\n: x\n\n", "data: [DONE]\n\n"]),
            3,
        ),
        (ResponseCost::events, events(&[&many]), 33),
        (|| ResponseCost::bytes(10), json(&["12345678901", "2345"]), 2),
        (|| ResponseCost::bytes(1), json(&[&"x".repeat(130)]), 130),
    ]
}

#[test]
fn what_is_too_much_comes_back_and_what_is_missing_is_charged() {
    for (number, (settle, response, cost)) in cases().into_iter().enumerate() {
        let one = one(settle());
        let frames = response.body().0.len();
        let mut answer = send(&one.layer, response);
        assert_eq!(pull_all(&mut answer).len(), frames, "{number}");
        assert_eq!(one.charged(), cost, "{number}");
        drop(answer);
        assert_eq!(one.charged(), cost, "{number}: settled once");
    }
}

#[test]
fn the_first_source_that_tells_a_cost_settles_it() {
    let settle = || {
        ResponseCost::header("x-tokens")
            .or(ResponseCost::json("usage.total_tokens"))
            .or(ResponseCost::events())
    };
    let settle = || settle().or(ResponseCost::bytes(10)).input(RequestCost::from(5));
    let usage = format!("data: {USAGE}\n\n");
    let cases = [
        (with("x-tokens", "9", &[USAGE]), 9),
        (json(&[USAGE]), 7),
        (events(&["data: 1\n\n", &usage]), 7),
        // The count does not include the input.
        (events(&["data: 1\n\n", "data: 2\n\n"]), 5 + 2),
        (with("content-type", "text/plain", &["abcdefghijk"]), 5 + 2),
    ];
    for (number, (response, cost)) in cases.into_iter().enumerate() {
        assert_eq!(cost_of(settle(), response), cost, "{number}");
    }
}

#[test]
fn a_response_that_tells_no_cost_keeps_the_estimate() {
    let settle = || {
        ResponseCost::header("x-tokens")
            .or(ResponseCost::trailer("x-tokens"))
            .or(ResponseCost::json("usage.total_tokens"))
    };
    let large = format!("{}{USAGE}", " ".repeat(128 * 1024));
    let lines = |data: &[&str]| with("content-type", "application/x-ndjson", data);
    let responses = [
        with("x-tokens", "seven", &[]),
        trailers(json(&[]), "-7"),
        json(&["{\"usage\":{\"total_tokens\":7}"]),
        json(&["{\"usage\":{\"total_tokens\":null}}"]),
        json(&["[]"]),
        json(&[]),
        json(&[&large]),
        json(&[USAGE, &large[..large.len() - USAGE.len()]]),
        with("content-type", "text/plain", &[USAGE]),
        with("x-other", "7", &[USAGE]),
        events(&[": nothing\n\n", USAGE, "\n\n"]),
        events(&["data: ", &large, "\n\n"]),
        json(&["[", USAGE]),
        json(&[USAGE, USAGE]),
        json(&["[[", USAGE, "]]"]),
        lines(&[&USAGE[..20], "\n", &USAGE[20..]]),
        lines(&[&large]),
        coded(json(&[USAGE]), &["gzip"]),
        coded(lines(&[USAGE]), &["identity, gzip"]),
        coded(json(&[USAGE]), &["identity", "br"]),
        // A later text is too large, so its figure is unknown.
        events(&["data: ", USAGE, "\n\n", "data: ", &large, "\n\n", "data: {}\n\n"]),
        lines(&[USAGE, "\n", &large, "\n{}"]),
    ];
    for (number, response) in responses.into_iter().enumerate() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        let clock = ManualClock::new();
        let limiter = limiter(&clock, 100, 50);
        let limit = Limit::new("tokens", Arc::clone(&limiter)).cost(ESTIMATE);
        let builder = RateLimitLayer::builder().limit(limit.settle(settle()));
        let layer = builder.on_settled(move |event| noted.lock().unwrap().push(event.cost)).build().unwrap();
        pull_all(&mut send(&layer, response));
        assert_eq!((charged(&limiter), &**told.lock().unwrap()), (ESTIMATE, &[None][..]), "{number}");
    }
    // A compressed stream has no events that can be counted.
    for codings in [&["gzip"][..], &["identity", "gzip"], &["", "zstd"]] {
        let response = coded(events(&["data: 1\n\n"]), codings);
        assert_eq!(cost_of(ResponseCost::events(), response), ESTIMATE, "{codings:?}");
    }
    // A body with the coding `identity` can be read.
    assert_eq!(cost_of(settle(), coded(json(&[USAGE]), &["identity", "Identity, "])), 7);
    // A text of exactly the maximum size is read.
    assert_eq!(cost_of(settle(), json(&[&large[USAGE.len()..]])), 7);
}

#[test]
fn a_disconnect_in_mid_stream_keeps_what_was_recorded() {
    for (settle, cost) in
        [(ResponseCost::events(), 3), (ResponseCost::events().input(RequestCost::from(9)), 12)]
    {
        let one = one(settle);
        one.cut_short(events(&["data: 1\n\ndata: 2\n\n", "data: 3\n\n", "data: 4\n\n"]), 2);
        assert_eq!(one.charged(), cost);
    }
    // The tokens beyond the estimate were charged while the body passed.
    let one = one(ResponseCost::bytes(1));
    let mut answer = send(&one.layer, json(&["0123456789", "0123456789", "0123456789", "0123456789"]));
    for passed in [10, 20, 30] {
        pull(&mut answer);
        assert_eq!(one.charged(), passed.max(ESTIMATE));
    }
    drop(answer);
    assert_eq!(one.charged(), 30);
}

#[test]
fn a_disconnect_before_anything_was_counted_keeps_the_estimate() {
    let settle =
        || ResponseCost::json("usage.total_tokens").or(ResponseCost::events()).or(ResponseCost::bytes(1));
    let one = one(settle().input(RequestCost::from(3)));
    one.cut_short(events(&["data: 1\n\n"]), 0);
    assert_eq!(one.charged(), ESTIMATE);
    // A keep-alive comment is not an event. If events are counted, the bytes of comments cost
    // nothing.
    one.cut_short(events(&[": wait\n\n", "data: 1\n\n"]), 1);
    assert_eq!(one.charged(), 2 * ESTIMATE);
}

#[test]
fn a_disconnect_before_the_response_keeps_the_estimate() {
    let one = one_with(ResponseCost::bytes(1), |limit| limit.charge_if(|_| false));
    let service =
        one.layer.layer(service_fn(|_: Request<()>| std::future::pending::<Result<Answer, String>>()));
    let mut sent = Box::pin(service.oneshot(Request::new(())));
    assert!(sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(sent);
    assert_eq!(one.charged(), ESTIMATE);
}

#[test]
fn a_figure_before_the_end_gives_nothing_back_and_may_charge_more() {
    for (figure, cost) in [(7, ESTIMATE), (45, 45)] {
        let one = one(ResponseCost::json("usage.total_tokens"));
        let usage = format!("data: {{\"usage\":{{\"total_tokens\":{figure}}}}}\n\n");
        one.cut_short(events(&[&usage, "data: 4\n\n"]), 1);
        assert_eq!(one.charged(), cost);
    }
}

#[test]
fn a_smaller_figure_gives_back_what_was_charged_on_the_way() {
    let settle = || ResponseCost::json("usage.total_tokens").or(ResponseCost::bytes(1));
    // Because the limit may cut the stream off, the 15 bytes beyond the estimate are charged while
    // the body passes.
    let cutting = one(settle().cut_off());
    let mut answer = send(&cutting.layer, json(&[&USAGE[..25], &USAGE[25..]]));
    for passed in [25, 35] {
        pull(&mut answer);
        assert_eq!(cutting.charged(), passed);
    }
    pull(&mut answer);
    assert_eq!(cutting.charged(), 7);
    // If the limit never cuts a response off, bytes are not charged while the figure may still
    // follow.
    let one = one(settle());
    let mut answer = send(&one.layer, json(&[USAGE]));
    pull(&mut answer);
    assert_eq!(one.charged(), ESTIMATE);
    pull(&mut answer);
    assert_eq!(one.charged(), 7);
}

#[test]
fn a_stream_that_fails_after_it_began_keeps_what_was_recorded() {
    let one = one(ResponseCost::events());
    let mut response = events(&["data: 1\n\n", "data: 2\n\n"]);
    response.body_mut().0.push_back(Err("broken".to_owned()));
    let mut answer = send(&one.layer, response);
    assert_eq!([pull(&mut answer), pull(&mut answer), pull(&mut answer)][2].as_deref(), Some("broken"));
    drop(answer);
    assert_eq!(one.charged(), 2);
}

#[test]
fn the_body_owns_the_reservation_after_the_handler_has_returned() {
    let one = one(ResponseCost::events());
    let mut answers = [0; 5].map(|_| send(&one.layer, events(&["data: 1\n\n"])));
    // All tokens are reserved, so another request is refused even if its cost would be small.
    assert_eq!(one.charged(), 100);
    assert_eq!(call(&one.layer, Request::new(()), Ok(events(&[]))).unwrap().status(), 429);
    pull_all(&mut answers[0]);
    assert_eq!(one.charged(), 81);
    drop(answers);
    assert_eq!(one.charged(), 81);
}

#[test]
fn a_header_settles_before_the_body_is_asked_for() {
    for (stated, cost) in [("7", 7), ("45", 45)] {
        let one = one(ResponseCost::header("x-tokens").or(ResponseCost::bytes(1)));
        let mut answer = send(&one.layer, with("x-tokens", stated, &["0123456789"]));
        assert_eq!(one.charged(), cost);
        pull(&mut answer);
        drop(answer);
        assert_eq!(one.charged(), cost);
    }
}

#[test]
fn a_server_that_does_not_ask_for_the_end_settles_too() {
    // The announced length has passed.
    let one = one(ResponseCost::bytes(1));
    let mut answer = send(&one.layer, with("content-length", "4", &["ab", "cd"]));
    pull(&mut answer);
    pull(&mut answer);
    assert_eq!(one.charged(), 4);
    // Nothing follows trailers.
    let one = self::one(ResponseCost::trailer("x-tokens").or(ResponseCost::bytes(1)));
    let mut response = trailers(json(&["ab"]), "7");
    response.headers_mut().insert("content-length", 2.into());
    let mut answer = send(&one.layer, response);
    pull(&mut answer);
    assert_eq!(one.charged(), ESTIMATE);
    assert_eq!(pull(&mut answer).as_deref(), Some("trailers"));
    assert_eq!(one.charged(), 7);
    // A server that does not poll for trailers drops the body after its last byte.
    let one = self::one(ResponseCost::trailer("x-tokens").or(ResponseCost::json("usage.total_tokens")));
    let mut response = json(&[USAGE]);
    response.headers_mut().insert("content-length", USAGE.len().into());
    one.cut_short(response, 1);
    assert_eq!(one.charged(), 7);
}

#[test]
fn a_figure_before_a_text_that_is_too_large_is_the_least_that_a_part_has_cost() {
    let large = "x".repeat(128 * 1024 + 1);
    for (figure, later, cost) in
        [(45, "", 45), (7, "", ESTIMATE), (45, "{\"usage\":{\"total_tokens\":46}}\n", 46)]
    {
        let one = one(ResponseCost::json("usage.total_tokens"));
        let usage = format!("{{\"usage\":{{\"total_tokens\":{figure}}}}}\n");
        let lines = [&*usage, &large, "\n", later, "{}"];
        one.cut_short(with("content-type", "application/x-ndjson", &lines), 4);
        assert_eq!(one.charged(), cost);
    }
}

#[test]
fn who_hangs_up_after_the_whole_text_pays_what_it_says() {
    // The server does not know yet that nothing follows.
    for (figure, cost) in [(7, ESTIMATE), (45, 45)] {
        let text = format!("{{\"usage\":{{\"total_tokens\":{figure}}}}}");
        let event = format!("data: {text}\n");
        for response in [json(&[&text]), events(&[&event])] {
            let one = one(ResponseCost::json("usage.total_tokens"));
            one.cut_short(response, 1);
            assert_eq!(one.charged(), cost);
        }
    }
}

#[test]
fn what_else_a_json_text_holds_hides_no_figure() {
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    for other in ["\"\\ud83d\"", "1e400", "-1e-400", &deep, "{\"\\ud800\":\"\\udfff\"}"] {
        let text = format!("{{\"text\":{other},\"usage\":{{\"total_tokens\":7}},\"more\":{other}}}");
        for response in [json(&[&text]), events(&["data: ", &text, "\n\n"])] {
            assert_eq!(cost_of(ResponseCost::json("usage.total_tokens"), response), 7, "{other:.20}");
        }
    }
    // A string that was cut between the bytes of a character.
    let text = b"{\"text\":\"\xe2\x82\",\"usage\":{\"total_tokens\":7}}";
    let mut response = json(&[]);
    response.body_mut().0.push_back(Ok(Frame::data(Bytes::from_static(text))));
    assert_eq!(cost_of(ResponseCost::json("usage.total_tokens"), response), 7);
}

/// A body that another task fills, like the body of a connection. It may end between two polls.
struct EndsUnasked {
    frame: Option<Bytes>,
    has_ended: Arc<AtomicBool>,
}

impl http_body::Body for EndsUnasked {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        Poll::Ready(self.frame.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended.load(Relaxed)
    }
}

#[test]
fn a_body_has_not_ended_before_it_is_settled() {
    let one = one(ResponseCost::json("usage.total_tokens"));
    let has_ended = Arc::new(AtomicBool::new(false));
    let body =
        EndsUnasked { frame: Some(Bytes::from_static(USAGE.as_bytes())), has_ended: has_ended.clone() };
    let response = Response::builder().header("content-type", "application/json").body(body).unwrap();
    let response = Mutex::new(Some(response));
    let handler = service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, String>(response.lock().unwrap().take().unwrap()))
    });
    let mut answer = pollster::block_on(one.layer.layer(handler).oneshot(Request::new(()))).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(answer.body_mut()).poll_frame(&mut context), Poll::Ready(Some(Ok(_)))));
    has_ended.store(true, Relaxed);
    // A server polls a body to its end, unless the body reports the end itself.
    if !answer.body().is_end_stream() {
        assert!(matches!(Pin::new(answer.body_mut()).poll_frame(&mut context), Poll::Ready(None)));
        assert!(answer.body().is_end_stream());
    }
    drop(answer);
    assert_eq!(one.charged(), 7);
}

#[test]
fn a_body_that_says_it_has_ended_settles_at_once() {
    let one = one(ResponseCost::bytes(1));
    let send = |body: &'static str| {
        let service = one.layer.layer(service_fn(move |_: Request<()>| {
            std::future::ready(Ok::<_, String>(Response::new(body.to_owned())))
        }));
        pollster::block_on(service.oneshot(Request::new(()))).unwrap()
    };
    let answer = send("");
    assert!(answer.body().is_end_stream());
    assert_eq!(one.charged(), 0);
    let mut answer = send("abc");
    assert_eq!((one.charged(), answer.body().size_hint().exact()), (ESTIMATE, Some(3)));
    let frame = Pin::new(answer.body_mut()).poll_frame(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
    assert_eq!(one.charged(), 3);
}

#[test]
fn a_response_without_its_body_keeps_the_estimate_and_teaches_nothing() {
    let clock = ManualClock::new();
    for (method, status, body, is_whole) in [
        ("GET", 200, "", true),
        ("GET", 304, "", false),
        // A connection that is upgraded, or a tunnel.
        ("GET", 101, "", false),
        ("CONNECT", 200, "", false),
        ("CONNECT", 403, "", true),
        ("HEAD", 200, "", false),
        // A server that omits the body drops it.
        ("HEAD", 200, "abc", false),
    ] {
        let limiter = limiter(&clock, 100, 50);
        let estimator = Arc::new(Estimator::new(0.001, ESTIMATE, [""; 0]).unwrap());
        let estimated = RequestCost::estimated(Arc::clone(&estimator), |_| ("", []));
        let settle = ResponseCost::json("usage.total_tokens").or(ResponseCost::bytes(1024));
        let layer = layer([Limit::new("tokens", Arc::clone(&limiter)).cost(estimated).settle(settle)]);
        let service = layer.layer(service_fn(move |_: Request<()>| {
            let response = Response::builder().status(status).body(body.to_owned());
            std::future::ready(Ok::<_, String>(response.unwrap()))
        }));
        for _ in 0..2 {
            let request = Request::builder().method(method).body(()).unwrap();
            drop(pollster::block_on(service.clone().oneshot(request)).unwrap());
        }
        let cost = if is_whole { [0, 1] } else { [2 * ESTIMATE, ESTIMATE] };
        assert_eq!([charged(&limiter), estimator.estimate("", [])], cost, "{method} {status} {body}");
    }
}

#[test]
fn a_stream_over_its_limit_takes_each_refilled_token_and_counts_no_denials() {
    let clock = ManualClock::new();
    let limiter = Limiter::<Key>::builder(Quota::per_hour(100)).clock(&clock).exact_keys().count_denials();
    let limiter = Arc::new(limiter.build().unwrap());
    let limit = Limit::new("tokens", Arc::clone(&limiter)).by(KeyBy::nothing()).cost(ESTIMATE);
    let layer = layer([limit.settle(ResponseCost::bytes(1))]);
    let mut answer = send(&layer, json(&[&*"x".repeat(30); 40]));
    let key = Key::new("tokens", [""; 0]);
    for number in 0..40 {
        assert!(pull(&mut answer).is_some());
        let left = limiter.peek(&key).remaining();
        assert!(number < 10 || left == 0, "{number}: {left}");
        // 20 tokens are refilled, and the next frame costs 30.
        clock.advance(Duration::from_secs(720));
    }
    assert!(limiter.most_denied(9).iter().all(|key| key.denied() == 0));
}

#[test]
fn a_stream_is_cut_when_its_budget_is_spent() {
    let one = one(ResponseCost::events().cut_off());
    let frames: Vec<String> = (0..150).map(|number| format!("data: {number}\n\n")).collect();
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    let mut answer = send(&one.layer, events(&frames));
    assert_eq!(pull_all(&mut answer).len(), 100);
    // There is no debt, because the withheld frame is not charged.
    assert_eq!(one.charged(), 100);
    assert!(answer.body().is_end_stream());
    assert_eq!((pull(&mut answer), one.charged()), (None, 100));
}

#[test]
fn a_cut_says_why_and_may_be_an_error() {
    let settle = || ResponseCost::events().last_words("data: cut\n\n");
    let frames = || events(&["data: 1\n\n", &"data: 2\n\n".repeat(100), "data: 3\n\n"]);
    let one = one(settle());
    let mut answer = send(&one.layer, frames());
    assert_eq!(pull_all(&mut answer), ["data: 1\n\n", "data: cut\n\n"]);
    assert_eq!(one.charged(), 1);

    let answer = send(&one.layer, frames());
    let mut body = FailWhenCut::new(answer.into_body());
    let mut next = || {
        let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(frame) = frame else { panic!("it waits") };
        (frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())), body.is_end_stream())
    };
    assert_eq!(next().0.unwrap().unwrap(), "data: 1\n\n");
    let (words, has_ended) = next();
    assert_eq!((&*words.unwrap().unwrap(), has_ended), (&b"data: cut\n\n"[..], false));
    let (error, has_ended) = next();
    let error: Box<dyn Error> = error.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<CutOff>().unwrap().limit_name(), "tokens");
    assert!(has_ended && next().0.is_none());
}

#[test]
fn a_cut_frees_the_place_in_flight_at_once() {
    let clock = ManualClock::new();
    let places = InFlight::builder(1).max_keys(1).build().unwrap();
    let tokens = Limit::new("tokens", limiter(&clock, 100, 0)).settle(ResponseCost::bytes(1).cut_off());
    let layer = layer([Limit::new("places", places.clone()).by(KeyBy::nothing()), tokens]);
    let none: [&str; 0] = [];
    let key = Key::new("places", none);
    let mut answer = send(&layer, json(&["x", &"x".repeat(100)]));
    pull(&mut answer);
    assert_eq!(places.in_flight(&key), 1);
    pull(&mut answer);
    assert_eq!((answer.body().is_end_stream(), places.in_flight(&key)), (true, 0));
}

#[test]
fn a_response_of_known_length_has_no_last_words() {
    let one = one(ResponseCost::bytes(1).last_words("cut"));
    let long = "x".repeat(99);
    let mut answer = send(&one.layer, with("content-length", "198", &[&long, &long]));
    assert_eq!(pull_all(&mut answer), [&*long]);
    assert_eq!(one.charged(), 99);
    // If a body knows its length, the server announces this length.
    let service = one.layer.layer(service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, String>(Response::new("x".repeat(99))))
    }));
    one.clock.advance(Duration::from_secs(3600));
    assert!(one.limiter.check_n(50).is_allowed());
    let answer = pollster::block_on(service.oneshot(Request::new(()))).unwrap();
    let body = pollster::block_on(http_body_util::BodyExt::collect(answer.into_body())).unwrap();
    assert_eq!(body.to_bytes(), "");
}

#[test]
fn a_shadow_counts_and_cuts_nothing() {
    let clock = ManualClock::new();
    let (tried, open) = (limiter(&clock, 100, 50), limiter(&clock, 1, 0));
    let shadow = Limit::new("tried", Arc::clone(&tried)).shadow().settle(ResponseCost::bytes(1).cut_off());
    let layer = layer([shadow, Limit::new("open", open)]);
    let long = "x".repeat(60);
    assert_eq!(pull_all(&mut send(&layer, json(&[&long, &long, &long]))).len(), 3);
    // The cost is 180, but the limit charges no more than its remaining tokens and its maximum
    // debt.
    assert_eq!(charged(&tried), 150);
}

/// Limits on the tokens of each user, the tokens of all users, and the number of requests.
struct Several {
    users: Arc<Limiter<Key>>,
    all: Arc<SingleLimiter>,
    requests: Arc<SingleLimiter>,
    layer: RateLimitLayer,
}

fn several(user: u64, all: u64) -> Several {
    let clock = ManualClock::new();
    let users = Limiter::builder(Quota::per_hour(user)).clock(&clock).build().unwrap();
    let (users, all, requests) = (Arc::new(users), limiter(&clock, all, 0), limiter(&clock, 100, 0));
    let settle = |limit: Limit| limit.cost(ESTIMATE).settle(ResponseCost::bytes(1).cut_off());
    let by_user = Limit::new("user", Arc::clone(&users)).by(KeyBy::header("x-user"));
    let layer = layer([
        settle(by_user.when_no_key(WhenNoKey::Deny)),
        settle(Limit::new("all", Arc::clone(&all))),
        Limit::new("requests", Arc::clone(&requests)),
    ]);
    Several { users, all, requests, layer }
}

impl Several {
    fn call(&self, user: &str, data: &[&str]) -> Answer {
        let request = Request::get("/").header("x-user", user).body(()).unwrap();
        call(&self.layer, request, Ok(json(data))).unwrap()
    }

    /// Returns the tokens charged to this user and to all users, and the requests charged.
    fn charged(&self, user: &str) -> [u64; 3] {
        let user = self.users.peek(&Key::new("user", [user]));
        [user.capacity() - user.remaining(), charged(&self.all), charged(&self.requests)]
    }
}

#[test]
fn the_limit_that_binds_cuts_and_no_other_is_charged_for_what_is_not_sent() {
    let ten = ["0123456789"; 30];
    for (user, all, passed) in [(50, 1000, 5), (1000, 70, 7)] {
        let several = several(user, all);
        let mut answer = several.call("alice", &ten);
        assert_eq!(pull_all(&mut answer).len(), passed);
        assert_eq!(several.charged("alice"), [10 * passed as u64, 10 * passed as u64, 1]);
        let refused = several.call("alice", &ten);
        assert_eq!(refused.status(), 429);
        let name = if user < all { "user" } else { "all" };
        let body = pull_all(&mut { refused }).concat();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap()["limit"], name);
    }
}

#[test]
fn rejections_drain_no_budget() {
    let several = several(30, 1000);
    drop(several.call("alice", &[]));
    let before = several.charged("alice");
    for _ in 0..100 {
        assert_eq!(several.call("alice", &["x"]).status(), 429);
    }
    assert_eq!(several.charged("alice"), before);
}

#[test]
fn what_is_beyond_the_debt_is_not_charged_and_a_debt_is_paid_first() {
    let one = one(ResponseCost::bytes(1));
    one.whole(json(&[&"x".repeat(1000)]));
    assert_eq!(one.charged(), 150);
    let refused = call(&one.layer, Request::new(()), Ok(json(&[]))).unwrap();
    // The debt of 50 and the estimate of 20 take 2520 s to refill at 100 tokens an hour.
    assert_eq!(refused.headers()["retry-after"], "2520");
    one.clock.advance(Duration::from_secs(2520));
    send(&one.layer, json(&[]));
}

#[test]
fn each_key_has_a_debt_of_its_own() {
    let clock = ManualClock::new();
    let builder = || Limiter::builder(Quota::per_hour(100)).clock(&clock).max_debt(50);
    let (table, exact) =
        (Arc::new(builder().build().unwrap()), Arc::new(builder().exact_keys().build().unwrap()));
    let by = || KeyBy::header("x-user");
    let limits =
        [Limit::new("table", Arc::clone(&table)).by(by()), Limit::new("exact", Arc::clone(&exact)).by(by())];
    let settle = |limit: Limit| {
        let limit = limit.when_no_key(WhenNoKey::Deny).cost(ESTIMATE);
        layer([limit.settle(ResponseCost::json("usage.total_tokens"))])
    };
    let usage = "{\"usage\":{\"total_tokens\":130}}";
    for layer in limits.map(settle) {
        for user in ["alice", "bob"] {
            let ask = || {
                let request = Request::get("/").header("x-user", user).body(()).unwrap();
                call(&layer, request, Ok(json(&[usage]))).unwrap()
            };
            pull_all(&mut ask());
            // The debt is 30 and the estimate 20.
            assert_eq!(ask().headers()["retry-after"], "1800");
        }
    }
    let key = |limit| Key::new(limit, ["alice"]);
    assert_eq!(table.peek(&key("table")).retry_after(), exact.peek(&key("exact")).retry_after());
}

#[test]
fn each_class_of_callers_is_settled_under_its_own_quota() {
    let clock = ManualClock::new();
    let builder = Limiter::builder(Quota::per_hour(100)).clock(&clock).max_debt(50);
    let limiter = Arc::new(builder.class("paid", Quota::per_hour(1000)).build().unwrap());
    let limit = Limit::new("tokens", Arc::clone(&limiter))
        .by(KeyBy::header("x-user"))
        .class_by(ClassBy::list(KeyBy::header("x-user"), [("alice", "paid")]))
        .when_no_key(WhenNoKey::Deny)
        .cost(ESTIMATE);
    let layer = layer([limit.settle(ResponseCost::bytes(1).cut_off())]);
    let text = "x".repeat(70);
    // A user in the default class is cut off at a point where a paying user's stream continues.
    for (user, plan, frames, left) in [("alice", "paid", 3, 1000 - 210), ("bob", "free", 1, 100 - 70)] {
        let request = Request::get("/").header("x-user", user).body(()).unwrap();
        let mut answer = call(&layer, request, Ok(json(&[&text, &text, &text]))).unwrap();
        assert_eq!(pull_all(&mut answer).len(), frames, "{user}");
        let limiter = limiter.class(plan).unwrap_or(limiter.default_class());
        assert_eq!(limiter.peek(&Key::new("tokens", [user])).remaining(), left, "{user}");
    }
}

#[test]
fn a_handler_that_failed_gives_the_estimate_back_by_choice() {
    type Change = fn(Limit) -> Limit;
    let cases: [(Change, [u64; 3]); 3] = [
        // The tokens charged after an error, a response with status 503, and a response with status
        // 200.
        (|limit| limit, [ESTIMATE, 1, 7]),
        (|limit| limit.charge_if(|response| response.status().is_success()), [0, 0, 7]),
        (
            |limit| limit.charge_if(|response| response.status().is_success()).keep_on_error(),
            [ESTIMATE, 0, 7],
        ),
    ];
    for (change, expected) in cases {
        let settle =
            || one_with(ResponseCost::json("usage.total_tokens").or(ResponseCost::bytes(10)), change);
        let mut unavailable = json(&["{}"]);
        *unavailable.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        let answers = [Err("failed".to_owned()), Ok(unavailable), Ok(json(&[USAGE]))];
        let charged = answers.map(|answer| {
            let one = settle();
            if let Ok(mut answer) = call(&one.layer, Request::new(()), answer) {
                pull_all(&mut answer);
            }
            one.charged()
        });
        assert_eq!(charged, expected);
    }
}

#[test]
fn a_response_that_ends_in_a_later_window_gives_back_nothing_of_it() {
    let clock = ManualClock::new();
    let builder = SingleLimiter::builder(Quota::per_hour(100)).algorithm(Algorithm::FixedWindow);
    let limiter = Arc::new(builder.clock(&clock).build().unwrap());
    let limit = |limiter| Limit::new("tokens", limiter).cost(80).settle(ResponseCost::bytes(1));
    let layer = layer([limit(Arc::clone(&limiter))]);
    let mut answer = send(&layer, json(&["x"]));
    assert_eq!(limiter.peek().remaining(), 20);
    clock.advance(Duration::from_secs(3600));
    assert!(limiter.check_n(50).is_allowed());
    pull_all(&mut answer);
    assert_eq!(limiter.peek().remaining(), 50);
}

#[test]
fn an_estimator_learns_from_whole_responses() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, 10_000, 0);
    let estimator = Arc::new(Estimator::new(0.5, 100, ["short", "long"]).unwrap());
    let cost = RequestCost::estimated(Arc::clone(&estimator), |head| {
        let class = head.headers().get("x-class").and_then(|class| class.to_str().ok());
        (class.unwrap_or_default(), [Some(1), head.query("most").map(|_| 500)])
    });
    let layer = layer([Limit::new("tokens", Arc::clone(&limiter)).cost(cost).settle(ResponseCost::bytes(1))]);
    let ask = |class: &str, length: usize| {
        let request = Request::get("/?most=500").header("x-class", class).body(()).unwrap();
        call(&layer, request, Ok(json(&["x".repeat(length).as_str()]))).unwrap()
    };
    let reserved = |class: &str| {
        let before = charged(&limiter);
        let answer = ask(class, 1);
        let after = charged(&limiter);
        drop(answer);
        after - before
    };
    assert_eq!([reserved("short"), reserved("long")], [500, 500]);
    (0..10).for_each(|_| _ = pull_all(&mut ask("short", 8)));
    (0..10).for_each(|_| _ = pull_all(&mut ask("long", 15)));
    // The estimator learns nothing from a response whose client hung up.
    (0..30).for_each(|_| _ = pull(&mut ask("short", 1)));
    assert_eq!([reserved("short"), reserved("long"), reserved("else")], [8, 15, 500]);
    assert_eq!(estimator.estimate("short", [3, 1]), 3);
}

#[test]
fn a_learnt_estimate_is_never_more_than_the_limit_can_give() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, 100, 0);
    // The initial estimate would not fit either.
    let estimator = Arc::new(Estimator::new(0.5, 101, [""; 0]).unwrap());
    let cost =
        RequestCost::estimated(Arc::clone(&estimator), |head| ("", [head.extensions().get().copied()]));
    let layer = layer([Limit::new("tokens", Arc::clone(&limiter)).cost(cost)]);
    let ask = |most: Option<u64>| {
        limiter.reset();
        let mut request = Request::new(());
        most.map(|most| request.extensions_mut().insert(most));
        let status = call(&layer, request, Ok(json(&[]))).unwrap().status().as_u16();
        (status, charged(&limiter))
    };
    // As long as the estimator has learned nothing, a request that declares more than the capacity
    // is refused.
    assert_eq!([ask(None), ask(Some(100)), ask(Some(101))], [(200, 100), (200, 100), (429, 0)]);
    // The requests cost the whole capacity of 100 tokens. The estimator's bucket for this cost
    // extends to 103.
    (0..10).for_each(|_| estimator.observe("", 100));
    assert!(estimator.estimate("", []) > 100);
    assert_eq!([ask(None), ask(Some(99)), ask(Some(500))], [(200, 100), (200, 99), (200, 100)]);
}

#[test]
fn an_estimate_is_within_what_the_class_of_the_caller_can_give() {
    let who = |head: RequestHead<'_>| head.extensions().get::<&'static str>().copied();
    let asked = ClassLookup::new(who, async |name: &str| Ok::<_, ()>(Some(name.to_owned())));
    for by in [ClassBy::extension(|name: &&'static str| Some(name)), ClassBy::from(asked)] {
        let estimator = Estimator::new(0.5, 1, [""; 0]).unwrap();
        // The estimator's bucket for a cost of 500 extends to 511.
        (0..10).for_each(|_| estimator.observe("", 500));
        let limiter = Limiter::builder(Quota::per_hour(100)).clock(ManualClock::new());
        let limiter = limiter.class("paid", Quota::per_hour(1000)).build().unwrap();
        let key = KeyBy::extension(|name: &&'static str| Some((*name).into()));
        let limit = Limit::new("tokens", limiter).by(key).when_no_key(WhenNoKey::Deny).class_by(by);
        let layer = layer([limit.cost(RequestCost::estimated(estimator, |_| ("", [])))]);
        for (class, answers) in [("free", [(200, 0), (429, 0)]), ("paid", [(200, 489), (429, 489)])] {
            for (status, left) in answers {
                let mut request = Request::new(());
                request.extensions_mut().insert(class);
                let answer = call(&layer, request, Ok(json(&[]))).unwrap();
                let shown = answer.headers()["ratelimit"].to_str().unwrap();
                assert_eq!(answer.status(), status, "{class}");
                assert!(shown.starts_with(&format!("\"tokens\";r={left};")), "{class}: {shown}");
            }
        }
    }
}

/// If the estimate uses up an outer layer's limit, the layer delays the retry that an inner layer
/// promises.
#[test]
fn a_limit_that_is_settled_puts_off_the_retry_of_an_inner_layer() {
    let refusing = |settle: fn(Limit) -> Limit| {
        let clock = ManualClock::new();
        let outer = Limit::new("outer", limiter(&clock, 60, 0)).cost(60);
        let spent = limiter(&clock, 100, 0);
        assert!(spent.check_n(100).is_allowed());
        let inner = layer([Limit::new("inner", spent)]);
        let handler =
            service_fn(|_: Request<()>| std::future::ready(Ok::<_, String>(Response::new(String::new()))));
        let service = layer([settle(outer)]).layer(inner.layer(handler));
        let refused = pollster::block_on(service.oneshot(Request::new(()))).unwrap();
        assert_eq!(refused.status(), 429);
        refused.headers()["retry-after"].to_str().unwrap().to_owned()
    };
    let plain = refusing(|limit| limit);
    assert_eq!(plain, "60");
    assert_eq!(refusing(|limit| limit.settle(ResponseCost::json("usage.total_tokens"))), plain);
}

#[test]
fn a_limit_of_this_process_is_settled_beside_a_shared_one() {
    let site = site();
    let (elsewhere, here) = (site.elsewhere(Quota::per_hour(9)), limiter(&site.clock, 100, 0));
    let limit = Limit::new("tokens", Arc::clone(&here)).cost(ESTIMATE).settle(ResponseCost::bytes(1));
    let layer = layer([limit, Limit::new("all", elsewhere).by(KeyBy::nothing()).charge_if(|_| false)]);
    let mut answer = send(&layer, json(&["abc"]));
    assert_eq!(charged(&here), ESTIMATE);
    pull_all(&mut answer);
    assert_eq!(charged(&here), 3);
}

#[test]
fn what_cannot_be_settled_is_refused_when_the_layer_is_built() {
    let clock = ManualClock::new();
    let refused = |settle| {
        let limit = Limit::new("tokens", limiter(&clock, 100, 0)).settle(settle);
        RateLimitLayer::builder().limit(limit).build().unwrap_err()
    };
    let limit = || "tokens".to_owned();
    let counts = |needs| Fault::CountsNothing { limit: limit(), needs };
    let json = || ResponseCost::json("usage.total_tokens");
    assert_eq!(refused(json().cut_off()), counts("cut_off"));
    assert_eq!(
        refused(ResponseCost::header("x").or(ResponseCost::trailer("y")).last_words("x")),
        counts("cut_off")
    );
    assert_eq!(refused(json().input(RequestCost::from(1))), counts("input"));
    assert_eq!(refused(json().or(ResponseCost::bytes(0))), Fault::ZeroUnit { limit: limit() });
    let input = RequestCost::content_length(0, 1);
    assert_eq!(refused(ResponseCost::bytes(1).input(input)), Fault::ZeroUnit { limit: limit() });
    assert_eq!(refused(ResponseCost::header("no name")), Fault::HeaderName { name: "no name".to_owned() });
    assert_eq!(
        refused(ResponseCost::events().or(ResponseCost::json("a..b"))),
        Fault::JsonPath { path: "a..b".to_owned() }
    );
    let places = InFlight::builder(1).max_keys(1).build().unwrap();
    let places = Limit::new("tokens", places).by(KeyBy::nothing()).settle(ResponseCost::bytes(1));
    let refused = RateLimitLayer::builder().limit(places).build().unwrap_err();
    assert_eq!(refused, Fault::InFlightRule { limit: limit(), rule: "settle" });
}

/// Several threads pull streams that share a budget, until each thread has a stream refused.
#[test]
fn streams_on_several_threads_pass_no_more_than_their_budget() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, 20_000, 0);
    let limit = Limit::new("tokens", Arc::clone(&limiter)).cost(30);
    let layer = layer([limit.settle(ResponseCost::bytes(1).cut_off())]);
    let start = std::sync::Barrier::new(4);
    let passed: usize = std::thread::scope(|scope| {
        let run = |seed: usize| {
            let (layer, start) = (&layer, &start);
            move || {
                start.wait();
                let texts = ["x".repeat(7), "x".repeat(11), "x".repeat(seed)];
                let texts = texts.iter().cycle().take(3 * seed).map(String::as_str).collect::<Vec<_>>();
                let mut passed = 0;
                loop {
                    let mut answer = call(layer, Request::new(()), Ok(json(&texts))).unwrap();
                    if answer.status() != 200 {
                        return passed;
                    }
                    let frames = pull_all(&mut answer);
                    // A stream without a passed frame is charged its estimate.
                    passed += frames.iter().map(String::len).sum::<usize>()
                        + if frames.is_empty() { 30 } else { 0 };
                }
            }
        };
        let threads = [17, 23, 29, 31].map(|seed| scope.spawn(run(seed)));
        threads.map(|thread| thread.join().unwrap()).into_iter().sum()
    });
    assert_eq!(charged(&limiter), passed as u64);
    // The tokens that are left are fewer than an estimate.
    assert!((19_970..=20_000).contains(&passed), "{passed}");
}

proptest! {
    /// Streams share a budget and are pulled in any order, and some are dropped. The frames that
    /// pass never exceed the budget, and a stream is cut off only if its next frame does not fit.
    /// In the end, each stream is charged for the frames that passed, or its estimate if none did.
    #[test]
    fn streams_that_share_a_budget_pass_no_more_than_it(
        sizes in prop::collection::vec(prop::collection::vec(0..40_usize, 0..12), 1..6),
        estimate in 1..30_u64,
        steps in prop::collection::vec((any::<usize>(), 0..20_u8), 0..80),
    ) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, 100, 0);
        let limit = Limit::new("tokens", Arc::clone(&limiter)).cost(estimate);
        let layer = layer([limit.settle(ResponseCost::bytes(1).cut_off())]);
        let texts = sizes.iter().map(|sizes| sizes.iter().map(|&size| "x".repeat(size)).collect::<Vec<_>>());
        let texts: Vec<_> = texts.collect();
        let mut running = Vec::new();
        let mut refused = 0;
        for texts in &texts {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let answer = call(&layer, Request::new(()), Ok(json(&texts))).unwrap();
            if answer.status() == 200 {
                running.push((Some(answer), VecDeque::from(texts), 0));
            } else {
                refused += 1;
            }
        }
        prop_assert_eq!(refused, sizes.len() - running.len());
        let all = steps.into_iter().chain((0..100).map(|turn| (turn, 1)));
        for (which, how) in all {
            let which = which % running.len();
            let (answer, texts, passed) = &mut running[which];
            let Some(body) = answer.as_mut() else { continue };
            if how == 0 {
                *answer = None;
                if *passed == 0 {
                    *passed = estimate;
                }
                continue;
            }
            let left = limiter.peek().remaining();
            let held = estimate.saturating_sub(*passed);
            match (pull(body), texts.pop_front()) {
                (Some(frame), Some(text)) => {
                    prop_assert_eq!(&*frame, text);
                    *passed += text.len() as u64;
                }
                (None, Some(text)) => {
                    prop_assert!(text.len() as u64 > left + held, "cut too early: {left} {held}");
                    if *passed == 0 {
                        *passed = estimate;
                    }
                    *answer = None;
                }
                (None, None) => *answer = None,
                (frame, text) => prop_assert!(false, "{:?} {:?}", frame, text),
            }
        }
        let open = running.iter().filter(|it| it.0.is_some());
        let held: u64 = open.map(|it| it.2.max(estimate)).sum();
        let ended: u64 = running.iter().filter(|it| it.0.is_none()).map(|it| it.2).sum();
        prop_assert!(held + ended <= 100);
        prop_assert_eq!(charged(&limiter), held + ended);
    }
}
