//! Tests the layer in clients of hyper and reqwest, with servers on sockets.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tollgate::{InFlight, Limiter, ManualClock, Quota};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tollgate_wait::{
    Answer, Paced, RequestNumber, WaitError, WaitLayer, WaitQueue, WaitServiceError, idempotent,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

/// The requests that a server has received, with their methods, bodies and times of arrival.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, String, Instant)>>>);

impl Seen {
    fn times(&self) -> Vec<Instant> {
        self.0.lock().unwrap().iter().map(|(_, _, at)| *at).collect()
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Starts a server that answers its first requests with these responses, and all further requests
/// with 200.
async fn server(answers: Vec<Response>) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let serve = async move |State(seen): State<Seen>, request: Request<axum::body::Body>| {
        let method = request.method().to_string();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        seen.0.lock().unwrap().push((method, body, Instant::now()));
        let next = answers.lock().unwrap().next();
        next.unwrap_or_else(|| "served".into_response())
    };
    let app = Router::new().fallback(serve).with_state(seen.clone());
    (start(app).await, seen)
}

async fn start(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn refusal(status: StatusCode, fields: &[(&'static str, &str)]) -> Response {
    let mut response = (status, "refused").into_response();
    for (name, value) in fields {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

fn queue(quota: Quota) -> Arc<WaitQueue<Paced<Limiter<String>>>> {
    Arc::new(WaitQueue::new(Paced::new(Limiter::builder(quota).build().unwrap())))
}

fn host<B>(request: &Request<B>) -> (String, u64) {
    (request.uri().authority().unwrap().to_string(), 1)
}

fn request(method: &str, address: SocketAddr, body: &'static str) -> Request<Full<Bytes>> {
    let uri = format!("http://{address}/");
    Request::builder().method(method).uri(uri).body(Full::from(body)).unwrap()
}

/// Uses hyper's client, and a body that is resent with its request.
#[tokio::test(flavor = "multi_thread")]
async fn hyper_sends_what_is_safe_to_repeat_again_after_the_servers_time() {
    let answers = vec![
        refusal(StatusCode::TOO_MANY_REQUESTS, &[("retry-after", "1")]),
        refusal(StatusCode::SERVICE_UNAVAILABLE, &[]),
    ];
    let (address, seen) = server(answers).await;
    let layer = WaitLayer::new(queue(Quota::per_second(1_000)), host).retries(3, idempotent);
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http());
    let response = client.oneshot(request("PUT", address, "twice")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let seen = seen.0.lock().unwrap();
    let [first, second, third] = &seen[..] else { panic!("{} requests", seen.len()) };
    for (method, body, _) in [first, second, third] {
        assert_eq!((&**method, &**body), ("PUT", "twice"));
    }
    assert!(second.2 - first.2 >= Duration::from_millis(990), "{:?}", second.2 - first.2);
    assert!(third.2 - second.2 >= Duration::from_millis(490), "{:?}", third.2 - second.2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_safe_to_repeat_is_sent_once_and_its_refusal_returned() {
    let busy = || refusal(StatusCode::SERVICE_UNAVAILABLE, &[("retry-after", "20")]);
    let (address, seen) = server(vec![busy(), busy()]).await;
    let layer = WaitLayer::new(queue(Quota::per_second(1_000)), host).retries(3, idempotent);
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http());
    let response = client.clone().oneshot(request("POST", address, "once")).await.unwrap();
    assert_eq!((response.status(), seen.len()), (StatusCode::SERVICE_UNAVAILABLE, 1));
    // The next request to this host is not sent before this time, whatever its method is.
    let waits = client.clone().oneshot(request("GET", address, ""));
    assert!(tokio::time::timeout(Duration::from_millis(300), waits).await.is_err());
    assert_eq!(seen.len(), 1);
    // Another host is not affected.
    let (other, seen_there) = server(vec![]).await;
    assert!(client.oneshot(request("GET", other, "")).await.is_ok());
    assert_eq!(seen_there.len(), 1);
}

/// The caller receives the refusal if another attempt would be too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_would_be_late_returns_the_refusal_at_once() {
    let fields = [("retry-after", "20")];
    let (address, seen) = server(vec![refusal(StatusCode::TOO_MANY_REQUESTS, &fields)]).await;
    let max_wait = Duration::from_secs(2);
    let layer =
        WaitLayer::new(queue(Quota::per_second(1_000)), host).max_wait(max_wait).retries(3, idempotent);
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http());
    let begin = Instant::now();
    let response = client.clone().oneshot(request("GET", address, "")).await.unwrap();
    assert_eq!((response.status(), seen.len()), (StatusCode::TOO_MANY_REQUESTS, 1));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "refused");
    // The next caller is refused immediately, because its wait would be too long.
    match client.oneshot(request("GET", address, "")).await {
        Err(WaitServiceError::Wait(WaitError::TooLong { wait, max_wait: told })) => {
            assert!(wait > Duration::from_secs(18) && told == max_wait, "{wait:?}");
        }
        other => panic!("{:?}", other.map(|response| response.status())),
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// Uses reqwest's client. Requests are copied with `try_clone`, and responses are converted.
#[tokio::test(flavor = "multi_thread")]
async fn reqwest_keeps_to_a_date() {
    let date = |late: u64| httpdate(late);
    let fields = [("retry-after", &*date(2)), ("date", &*date(0))];
    let (address, seen) = server(vec![refusal(StatusCode::SERVICE_UNAVAILABLE, &fields)]).await;
    let host = |request: &reqwest::Request| (request.url().authority().to_owned(), 1);
    let copy = |request: &reqwest::Request| request.method().is_idempotent().then(|| request.try_clone())?;
    let client = ServiceBuilder::new()
        .layer(WaitLayer::new(queue(Quota::per_second(1_000)), host).retries(1, copy))
        .map_response(http::Response::<reqwest::Body>::from)
        .service(reqwest::Client::new());
    let request = reqwest::Request::new(http::Method::GET, format!("http://{address}/").parse().unwrap());
    let response = reqwest::Response::from(client.oneshot(request).await.unwrap());
    assert_eq!(response.text().await.unwrap(), "served");
    let times = seen.times();
    assert!(times[1] - times[0] >= Duration::from_millis(1_990), "{:?}", times[1] - times[0]);
}

/// Returns the date `seconds` after a fixed time in the past, in the format that servers use.
fn httpdate(seconds: u64) -> String {
    format!("Sun, 06 Nov 1994 08:49:{:02} GMT", 37 + seconds)
}

/// Fifty callers use a server with our own layer. After the first refusals, the client obeys a
/// quota that it does not know in advance, and uses the quota fully.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_callers_keep_to_a_servers_quota_that_nobody_told_them() {
    let limiter = Limiter::builder(Quota::per_second(100)).build().unwrap();
    let limit = Limit::new("api", limiter).by(KeyBy::header("user-agent")).when_no_key(WhenNoKey::Share);
    let limited = RateLimitLayer::builder().limit(limit).build().unwrap();
    let address = start(Router::new().fallback(async || "served").layer(limited)).await;
    let layer = WaitLayer::new(queue(Quota::per_second(10_000)), host);
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http());
    let begin = Instant::now();
    let callers = (0..50).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let (mut served, mut refused) = (0_u32, 0_u32);
            while begin.elapsed() < Duration::from_secs(6) {
                let response = client.clone().oneshot(request("GET", address, "")).await.unwrap();
                let counts = begin.elapsed() > Duration::from_secs(2);
                match response.status() {
                    StatusCode::OK => served += u32::from(counts),
                    StatusCode::TOO_MANY_REQUESTS => refused += u32::from(counts),
                    other => panic!("{other}"),
                }
            }
            (served, refused)
        })
    });
    let (mut served, mut refused) = (0, 0);
    for caller in callers.collect::<Vec<_>>() {
        let (of_one, and_refused) = caller.await.unwrap();
        (served, refused) = (served + of_one, refused + and_refused);
    }
    println!("{served} served of 400 in four seconds, {refused} refused");
    assert!(served >= 340 && refused <= 4, "{served} served, {refused} refused");
}

/// A permit is held until the response arrives, and the next request is sent after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_held_until_the_response() {
    let in_flight = Arc::new(Mutex::new((0, 0)));
    let counts = Arc::clone(&in_flight);
    let service = tower::service_fn(move |_: Request<()>| {
        let counts = Arc::clone(&counts);
        async move {
            {
                let mut counts = counts.lock().unwrap();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            counts.lock().unwrap().0 -= 1;
            Ok::<_, Infallible>(http::Response::new(()))
        }
    });
    let permits: InFlight<String> = InFlight::builder(2).build().unwrap();
    let queue = Arc::new(WaitQueue::new(Paced::new(permits.clone())));
    let client = WaitLayer::new(queue, |_: &Request<()>| ("host".to_owned(), 1)).layer(service);
    let calls = (0..8).map(|_| tokio::spawn(client.clone().oneshot(Request::new(()))));
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!((in_flight.lock().unwrap().1, permits.in_flight("host")), (2, 0));
}

type Key = fn(&Request<()>) -> (&'static str, u64);

/// Returns `limit` permits, and a layer whose requests take one each.
fn downloads(limit: u64) -> (InFlight<&'static str>, WaitLayer<InFlight<&'static str>, Key>) {
    let permits: InFlight<&str> = InFlight::builder(limit).build().unwrap();
    let queue = Arc::new(WaitQueue::new(Paced::new(permits.clone())));
    (permits, WaitLayer::new(queue, |_| ("host", 1)))
}

/// A service whose responses have this body.
async fn answer_with(body: &'static [u8], _: Request<()>) -> Result<http::Response<Full<Bytes>>, Infallible> {
    Ok(http::Response::new(Full::new(Bytes::from_static(body))))
}

#[tokio::test]
async fn a_permit_may_be_held_until_the_body_ends() {
    let (permits, layer) = downloads(5);
    let service = tower::service_fn(|request| answer_with(b"body", request));
    // By default, seven bodies are open at once.
    let client = layer.clone().layer(service);
    let mut open = Vec::new();
    for _ in 0..7 {
        open.push(client.clone().oneshot(Request::new(())).await.unwrap());
    }
    assert_eq!(permits.in_flight("host"), 0);
    let client = layer.clone().hold_until_end().layer(service);
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(client.clone().oneshot(Request::new(())).await.unwrap());
    }
    let mut sixth = std::pin::pin!(client.clone().oneshot(Request::new(())));
    assert!(sixth.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(permits.in_flight("host"), 5);
    // The whole body is read, and not dropped.
    let mut body = held.pop().unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "body");
    assert!(sixth.await.is_ok() && body.frame().await.is_none());
    drop(held);
    assert_eq!(permits.in_flight("host"), 0);
    // An empty body ends with its head.
    let empty = tower::service_fn(|request| answer_with(b"", request));
    let response = layer.hold_until_end().layer(empty).oneshot(Request::new(())).await.unwrap();
    assert_eq!((response.status(), permits.in_flight("host")), (StatusCode::OK, 0));
}

#[tokio::test]
async fn a_task_that_keeps_a_body_waits_in_vain_for_the_next() {
    let (permits, layer) = downloads(1);
    let service = tower::service_fn(|request| answer_with(b"body", request));
    let max_wait = Duration::from_millis(20);
    let client = layer.hold_until_end().max_wait(max_wait).layer(service);
    let first = client.clone().oneshot(Request::new(())).await.unwrap();
    let second = client.clone().oneshot(Request::new(())).await.map(|response| response.status());
    let expired = WaitError::Expired { max_wait, in_flight: Some(1) };
    assert_eq!(second, Err(WaitServiceError::Wait(expired)));
    drop(first);
    assert_eq!(permits.in_flight("host"), 0);
    assert!(client.oneshot(Request::new(())).await.is_ok());
}

/// The service answers with 200, and its bodies report that it is overloaded.
#[tokio::test]
async fn a_refusal_in_a_body_is_learned_by_the_number_of_its_request() {
    let clock = ManualClock::new();
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_second(1_000)).clock(&clock).build().unwrap();
    let queue = Arc::new(WaitQueue::new(Paced::new(limiter).clock(&clock)));
    let service =
        tower::service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(http::Response::new("overloaded"))));
    let client = WaitLayer::new(Arc::clone(&queue), |_: &Request<()>| ("host", 1)).layer(service);
    for longest in [1, 2, 4, 8].map(Duration::from_secs) {
        let response = client.clone().oneshot(Request::new(())).await.unwrap();
        let RequestNumber(number) = response.extensions().get().copied().unwrap();
        let refused = Answer::read(StatusCode::SERVICE_UNAVAILABLE, response.headers(), SystemTime::now());
        queue.limiter().learn(&"host", &refused, number);
        let pause = queue.limiter().paused_for(&"host");
        assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
        clock.advance(pause);
    }
}

/// The text of an error, which the inner service has read from the body.
#[derive(Clone)]
struct ErrorText(&'static str);

/// Requests that are refused with other statuses than 429 are resent after their times. The
/// function of the limiter reads the text of the error, which a service below the layer has read
/// from the body.
#[tokio::test(start_paused = true)]
async fn the_layer_repeats_what_a_function_calls_a_refusal() {
    let clock = ManualClock::new();
    let begin = tokio::time::Instant::now();
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_second(1_000)).clock(&clock).build().unwrap();
    let paced = Paced::new(limiter).clock(&clock).read_with(|head, answer| {
        let text = head.extensions.get().map_or("", |ErrorText(text)| text);
        answer.is_refusal |= head.status == 418 || text == "ThrottlingException";
        if head.status == 403 && text.contains("secondary rate limit") {
            answer.is_refusal = true;
            answer.retry_after.get_or_insert(Duration::from_secs(60));
        }
        if let Some(seconds) = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok()) {
            answer.retry_after = Some(Duration::from_secs_f64(seconds));
        }
    });
    let queue = Arc::new(WaitQueue::with_sleep(paced, move |time| {
        let clock = clock.clone();
        async move {
            tokio::time::sleep(time).await;
            clock.set(begin.elapsed().into());
        }
    }));
    let answers = [
        (403, None, "You have exceeded a secondary rate limit."),
        (418, Some("120"), ""),
        (429, None, "45.837906927s"),
        (529, None, "overloaded_error"),
        (400, None, "ThrottlingException"),
        (400, None, "ValidationException"),
        (403, None, "Resource not accessible by integration"),
    ];
    let (answers, times) = (Arc::new(Mutex::new(answers.into_iter())), Arc::new(Mutex::new(Vec::new())));
    let sent = Arc::clone(&times);
    let service = tower::service_fn(move |_: Request<()>| {
        sent.lock().unwrap().push(begin.elapsed().as_secs_f64());
        let (status, retry_after, text) = answers.lock().unwrap().next().unwrap();
        let mut response = http::Response::builder().status(status).extension(ErrorText(text));
        if let Some(seconds) = retry_after {
            response = response.header("retry-after", seconds);
        }
        ready(Ok::<_, Infallible>(response.body(()).unwrap()))
    });
    let client = WaitLayer::new(queue, |_: &Request<()>| ("host", 1)).retries(9, idempotent).layer(service);
    for status in [400, 403] {
        let response = client.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), status);
    }
    let times = times.lock().unwrap();
    let pauses: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected = [(60.0, 60.0), (120.0, 120.0), (45.837, 45.838), (0.5, 1.0), (1.0, 2.0), (0.0, 0.0)];
    assert_eq!(pauses.len(), expected.len(), "{pauses:?}");
    for (pause, (least, most)) in pauses.iter().zip(expected) {
        // Tokio's timer has a resolution of a millisecond.
        assert!((least..=most + 0.01).contains(pause), "{pauses:?}");
    }
}

/// A window of five hours. The caller does not wait for it, and learns how long it is.
#[tokio::test]
async fn the_layer_tells_a_wait_of_hours_at_once() {
    let hours = Duration::from_secs(13_262);
    let clock = ManualClock::new();
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_second(1_000)).clock(&clock).build().unwrap();
    let queue = Arc::new(WaitQueue::new(Paced::new(limiter).clock(&clock)));
    let service = tower::service_fn(|_: Request<()>| {
        let refusal = http::Response::builder().status(429).header("retry-after", "13262");
        ready(Ok::<_, Infallible>(refusal.body(()).unwrap()))
    });
    let max_wait = Duration::from_secs(30);
    let layer = WaitLayer::new(queue, |_: &Request<()>| ("host", 1)).retries(3, idempotent);
    let client = layer.max_wait(max_wait).layer(service);
    assert_eq!(client.clone().oneshot(Request::new(())).await.unwrap().status(), 429);
    let error = client.clone().oneshot(Request::new(())).await.unwrap_err();
    assert_eq!(error, WaitServiceError::Wait(WaitError::TooLong { wait: hours, max_wait }));
    assert!(error.to_string().contains("13262s"), "{error}");
    // The longest pause is a day, so the wait is not cut short.
    clock.advance(hours - Duration::from_secs(31));
    let left = client.clone().oneshot(Request::new(())).await.map(|response| response.status());
    let late = WaitError::TooLong { wait: Duration::from_secs(31), max_wait };
    assert_eq!(left, Err(WaitServiceError::Wait(late)));
    clock.advance(Duration::from_secs(31));
    assert_eq!(client.oneshot(Request::new(())).await.unwrap().status(), 429);
}

/// The server states a delay of 45 s, but the body says that the quota of the day is used up. The
/// function of the limiter sets the wait until the next day, so nothing is repeated in vain, and
/// callers with a maximum wait fail at once.
#[tokio::test(start_paused = true)]
async fn a_quota_of_a_day_that_is_used_up_fails_callers_at_once() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let clock = ManualClock::new();
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_second(1_000)).clock(&clock).build().unwrap();
    let paced = Paced::new(limiter).clock(&clock).read_with(|head, answer| {
        if head.extensions.get().is_some_and(|ErrorText(text)| text.contains("PerDay")) {
            answer.retry_after = Some(DAY);
        }
    });
    let queue = Arc::new(WaitQueue::new(paced));
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let service = tower::service_fn(move |_: Request<()>| {
        count.fetch_add(1, Relaxed);
        let refusal = http::Response::builder().status(429).header("retry-after", "45");
        let refusal = refusal.extension(ErrorText("GenerateRequestsPerDayPerProject: retryDelay 45s"));
        ready(Ok::<_, Infallible>(refusal.body(()).unwrap()))
    });
    let max_wait = Duration::from_secs(60);
    let layer = WaitLayer::new(queue, |_: &Request<()>| ("host", 1)).retries(3, idempotent);
    let client = layer.max_wait(max_wait).layer(service);
    assert_eq!(client.clone().oneshot(Request::new(())).await.unwrap().status(), 429);
    let error = client.clone().oneshot(Request::new(())).await.unwrap_err();
    assert_eq!(error, WaitServiceError::Wait(WaitError::TooLong { wait: DAY, max_wait }));
    assert_eq!(sent.load(Relaxed), 1);
    clock.advance(DAY);
    assert_eq!(client.oneshot(Request::new(())).await.unwrap().status(), 429);
    assert_eq!(sent.load(Relaxed), 2);
}

/// A service that is not ready before its flag is set, and counts the requests it receives. A clone
/// that is ready has reserved a place, which it returns when it is called or dropped.
#[derive(Default)]
struct Busy {
    ready: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    reserved: Arc<AtomicU64>,
    has_place: bool,
}

impl Busy {
    fn leave(&mut self) {
        if std::mem::take(&mut self.has_place) {
            self.reserved.fetch_sub(1, Relaxed);
        }
    }
}

impl Clone for Busy {
    fn clone(&self) -> Self {
        let Self { ready, sent, reserved, .. } = self;
        let (ready, sent, reserved) = (Arc::clone(ready), Arc::clone(sent), Arc::clone(reserved));
        Self { ready, sent, reserved, has_place: false }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Service<Request<()>> for Busy {
    type Response = http::Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.ready.load(Relaxed) {
            return Poll::Pending;
        }
        if !std::mem::replace(&mut self.has_place, true) {
            self.reserved.fetch_add(1, Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.has_place, "a call of a service that is not ready");
        self.leave();
        self.sent.fetch_add(1, Relaxed);
        ready(Ok(http::Response::new(())))
    }
}

/// A turn whose request is never sent does not count against the amount that remains at the server.
#[test]
fn a_request_that_is_not_sent_takes_nothing_of_what_remains() {
    let clock = ManualClock::new();
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_second(1_000)).clock(&clock).build().unwrap();
    let queue = WaitQueue::with_sleep(Paced::new(limiter).clock(&clock), |_| tokio::task::yield_now());
    let queue = Arc::new(queue);
    let learn = |response: Response, number| {
        let answer = Answer::read(response.status(), response.headers(), SystemTime::now());
        queue.limiter().learn(&"host", &answer, number);
    };
    let left = [("ratelimit-policy", "1000;w=1"), ("ratelimit", "limit=1000, remaining=2, reset=3000")];
    learn(refusal(StatusCode::OK, &left), 0);
    let busy = Busy::default();
    let mut client = WaitLayer::new(Arc::clone(&queue), |_: &Request<()>| ("host", 1)).layer(busy.clone());
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..5 {
        clock.advance(Duration::from_secs(10));
        let mut call = client.call(Request::new(()));
        assert!(call.as_mut().poll(&mut context).is_pending());
        assert_eq!(queue.limiter().number(&"host"), 1);
    }
    // The key is paused while these requests wait for the service.
    let mut calls = [(); 2].map(|()| {
        clock.advance(Duration::from_secs(10));
        let mut call = client.call(Request::new(()));
        assert!(call.as_mut().poll(&mut context).is_pending());
        call
    });
    assert_eq!(queue.limiter().number(&"host"), 2);
    learn(refusal(StatusCode::SERVICE_UNAVAILABLE, &[]), 2);
    busy.ready.store(true, Relaxed);
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!((queue.limiter().number(&"host"), busy.sent.load(Relaxed)), (0, 0));
    assert_eq!(busy.reserved.load(Relaxed), 0, "a paused request keeps a place in the service");
    for (sent, call) in (1..).zip(&mut calls) {
        clock.advance(Duration::from_secs(10));
        let answer = (0..10).find_map(|_| match call.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        });
        assert!(answer.unwrap().is_ok());
        assert_eq!((queue.limiter().number(&"host"), busy.sent.load(Relaxed)), (sent, sent));
    }
    // This request was sent after the first refusal, so its refusal pauses the key again.
    learn(refusal(StatusCode::SERVICE_UNAVAILABLE, &[]), 1);
    assert!(!queue.limiter().paused_for(&"host").is_zero());
}

/// The server refuses with a limit that is used up, and not with `Retry-After`. Requests that had
/// their turns earlier and wait for the service are not sent into this refusal.
#[test]
fn a_request_is_not_sent_after_a_refusal_with_a_limit_that_is_used_up() {
    let clock = ManualClock::new();
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_second(1_000)).clock(&clock).build().unwrap();
    let queue = WaitQueue::with_sleep(Paced::new(limiter).clock(&clock), |_| tokio::task::yield_now());
    let queue = Arc::new(queue);
    let busy = Busy::default();
    let mut client = WaitLayer::new(Arc::clone(&queue), |_: &Request<()>| ("host", 1)).layer(busy.clone());
    let mut context = Context::from_waker(Waker::noop());
    let mut calls = [(); 50].map(|()| {
        let mut call = client.call(Request::new(()));
        assert!(call.as_mut().poll(&mut context).is_pending());
        call
    });
    let refusal = refusal(StatusCode::TOO_MANY_REQUESTS, &[("ratelimit", "\"a\";r=0;t=30")]);
    let answer = Answer::read(refusal.status(), refusal.headers(), SystemTime::now());
    queue.limiter().learn(&"host", &answer, 0);
    assert_eq!(queue.limiter().paused_for(&"host"), Duration::from_secs(30));
    busy.ready.store(true, Relaxed);
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(busy.sent.load(Relaxed), 0);
    clock.advance(Duration::from_secs(30));
    let sent = calls.iter_mut().map(|call| (0..10).any(|_| call.as_mut().poll(&mut context).is_ready()));
    assert!(sent.into_iter().any(|is_sent| is_sent));
}

/// A service that takes a permit when it is ready, and holds it until the body of its response is
/// dropped.
#[derive(Clone)]
struct Permitted {
    permits: Arc<AtomicU64>,
    is_ready: bool,
}

struct PermittedBody(Arc<AtomicU64>);

impl Drop for PermittedBody {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Service<Request<()>> for Permitted {
    type Response = http::Response<PermittedBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let taken = self.permits.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        self.is_ready |= taken;
        if self.is_ready {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready));
        let response = http::Response::builder().status(429).header("retry-after-ms", "1");
        ready(Ok(response.body(PermittedBody(Arc::clone(&self.permits))).unwrap()))
    }
}

#[tokio::test]
async fn a_refusal_is_released_before_the_service_is_ready_again() {
    let inner = Permitted { permits: Arc::new(AtomicU64::new(1)), is_ready: false };
    let client = WaitLayer::new(queue(Quota::per_second(1_000)), |_: &Request<()>| ("host".to_owned(), 1))
        .retries(3, idempotent)
        .layer(inner);
    let call = tokio::time::timeout(Duration::from_secs(10), client.oneshot(Request::new(())));
    let response = call.await.expect("the retry waits for the permit of the refusal").unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
}

/// The inner layer holds its permit until the body of the refusal is dropped, and the next attempt
/// requires the same permit.
#[tokio::test]
async fn a_refusal_is_released_before_its_request_is_sent_again() {
    let (permits, inner) = downloads(1);
    let refusals = Arc::new(AtomicU64::new(2));
    let service = tower::service_fn(move |_: Request<()>| {
        let is_refused = refusals.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        let response = http::Response::builder().status(if is_refused { 429 } else { 200 });
        let body = Full::new(Bytes::from_static(b"body"));
        ready(Ok::<_, Infallible>(response.header("retry-after-ms", "1").body(body).unwrap()))
    });
    let client = WaitLayer::new(queue(Quota::per_second(1_000)), |_: &Request<()>| ("host".to_owned(), 1))
        .retries(3, idempotent)
        .layer(inner.hold_until_end().layer(service));
    let call = tokio::time::timeout(Duration::from_secs(10), client.oneshot(Request::new(())));
    let response = call.await.expect("the retry waits for the permit of the refusal").unwrap();
    assert_eq!((response.status(), permits.in_flight("host")), (StatusCode::OK, 1));
}
