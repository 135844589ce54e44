//! One trial: a server in this process, and four client processes.
//!
//! The server has a quota for each API key, and the quota changes all the time. Every few seconds,
//! the server also refuses one request for no reason. It answers 429 or 503, and `Retry-After`
//! contains seconds or a date, or is absent. The layer's own refusals are counted, except during
//! the warm-up and within one window after the quota was lowered.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::Empty;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tollgate::{Limiter, Quota};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tollgate_redis::{Client, SharedLimiter};
use tollgate_testing::store::server::Server as Store;
use tollgate_wait::{Paced, WaitLayer, WaitQueue, Waitable};
use tower::{ServiceBuilder, ServiceExt};

const PROCESSES: u32 = 4;
const WINDOW: Duration = Duration::from_secs(1);
/// The quotas of a key, as percentages of the first quota.
const CHANGES: [u64; 5] = [100, 50, 150, 75, 125];
/// How often the server refuses a request for no reason.
const INJECTED_EVERY: Duration = Duration::from_secs(5);
/// The environment variable with the instructions for a client process: see `child`.
const VARIABLE: &str = "TOLLGATE_OUTBOUND";

/// The keys that the processes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Each process has its own key and a limiter in its memory.
    Own,
    /// All processes share one key and a limiter in Redis.
    Shared,
}

#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) clients: u32,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    pub(crate) keys: Keys,
}

/// The figures since the end of the warm-up.
#[derive(Debug)]
pub(crate) struct Report {
    keys: Keys,
    served: u64,
    refused: u64,
    refused_after_lowering: u64,
    injected: u64,
    /// The number of requests that the quotas allowed, outside of the pauses requested by injected
    /// refusals.
    allowed: f64,
    /// The number of requests sent by all processes, and how many of them were sent after a later
    /// request.
    sent: u64,
    overtaking: u64,
}

impl Report {
    /// Returns the share of the requests that the server's layer refused.
    pub(crate) fn refused_share(&self) -> f64 {
        self.refused as f64 / (self.served + self.refused).max(1) as f64
    }

    /// Returns the number of requests served, as a share of the requests that the quotas allowed.
    pub(crate) fn served_share(&self) -> f64 {
        self.served as f64 / self.allowed
    }

    /// Returns how many requests were sent after a later request of the same process.
    pub(crate) fn overtaking(&self) -> u64 {
        self.overtaking
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, served, refused, refused_after_lowering, injected, allowed, sent, overtaking } =
            self;
        writeln!(f, "keys: {keys:?}, {PROCESSES} processes")?;
        writeln!(f, "  served    {served} of {allowed:.0} allowed: {:.3}", self.served_share())?;
        writeln!(f, "  refused   {refused}: {:.5} of the requests", self.refused_share())?;
        writeln!(f, "  besides   {refused_after_lowering} after a lowered quota, {injected} injected")?;
        write!(f, "  in order  {} of {sent} requests", sent - overtaking)
    }
}

/// The counts of the server.
#[derive(Default)]
struct Counts {
    served: u64,
    refused: u64,
    refused_after_lowering: u64,
    injected: u64,
    /// The duration of the pauses requested by injected refusals, in seconds.
    paused: f64,
    /// The sum of all quotas, each multiplied by its duration.
    allowed: f64,
}

struct Server {
    begin: Instant,
    plan: Plan,
    state: Mutex<ServerState>,
}

struct ServerState {
    counts: Counts,
    quota: u64,
    lowered: Option<Instant>,
    injected: Instant,
    kinds: u32,
}

impl Server {
    fn is_measured(&self) -> bool {
        (self.plan.warm_up..self.plan.warm_up + self.plan.measured).contains(&self.begin.elapsed())
    }

    /// Returns an injected refusal, if one is due.
    fn inject(&self) -> Option<Response> {
        let mut state = self.state.lock().unwrap();
        if state.injected.elapsed() < INJECTED_EVERY {
            return None;
        }
        state.injected = Instant::now();
        state.kinds += 1;
        let status =
            [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE][state.kinds as usize % 2];
        let now = SystemTime::now();
        let date = |after: u64| httpdate::fmt_http_date(now + Duration::from_secs(after));
        let mut response = status.into_response();
        let (field, paused) = match state.kinds % 3 {
            0 => (Some("1".to_owned()), 1.0),
            1 => (Some(date(2)), 2.0),
            _ => (None, 0.0),
        };
        response.headers_mut().insert("date", date(0).parse().unwrap());
        if let Some(field) = field {
            response.headers_mut().insert("retry-after", field.parse().unwrap());
        }
        if self.is_measured() {
            state.counts.injected += 1;
            state.counts.paused += paused * state.quota as f64;
        }
        Some(response)
    }

    fn count(&self, response: &Response) {
        if !self.is_measured() {
            return;
        }
        let mut state = self.state.lock().unwrap();
        let is_after_lowering = state.lowered.is_some_and(|lowered| lowered.elapsed() < WINDOW);
        match response.status() {
            StatusCode::OK => state.counts.served += 1,
            _ if is_after_lowering => state.counts.refused_after_lowering += 1,
            _ => state.counts.refused += 1,
        }
    }
}

async fn serve(State(server): State<Arc<Server>>, request: Request<Body>, next: Next) -> Response {
    if let Some(refusal) = server.inject() {
        return refusal;
    }
    let response = next.run(request).await;
    server.count(&response);
    response
}

/// Runs a trial. `program` is a command that calls [`child`] and does nothing else.
pub(crate) fn run(plan: &Plan, program: impl Fn() -> Command) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = (plan.keys == Keys::Shared).then(Store::start);
    runtime.block_on(async {
        // Together, the processes' keys have the same quota as the one shared key.
        let first = if plan.keys == Keys::Own { 150 } else { 400 };
        let limiter = Arc::new(Limiter::builder(Quota::per_second(first)).build().unwrap());
        let limit = Limit::new("api", Arc::clone(&limiter)).by(KeyBy::header("api-key"));
        let limits = RateLimitLayer::builder().limit(limit.when_no_key(WhenNoKey::Deny)).build().unwrap();
        let begin = Instant::now();
        let state =
            ServerState { counts: Counts::default(), quota: first, lowered: None, injected: begin, kinds: 0 };
        let server = Arc::new(Server { begin, plan: *plan, state: Mutex::new(state) });
        let app = Router::new().fallback(async || "served").layer(limits);
        let app = app.layer(from_fn_with_state(Arc::clone(&server), serve));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });

        let url = store.as_ref().map_or("-".to_owned(), |store| store.url());
        let time = plan.warm_up + plan.measured;
        let processes = (0..PROCESSES).map(|number| {
            let key = if plan.keys == Keys::Own { number } else { 0 };
            let seconds = (plan.warm_up.as_secs(), time.as_secs());
            let told = format!("{address} {url} {key} {} {} {}", plan.clients, seconds.0, seconds.1);
            let mut command = program();
            command.env(VARIABLE, told).stdout(Stdio::piped());
            tokio::task::spawn_blocking(move || command.output().expect("the program of the clients"))
        });
        let processes: Vec<_> = processes.collect();

        change_quotas(&server, &limiter, first).await;
        let (mut sent, mut overtaking) = (0, 0);
        for process in processes {
            let output = process.await.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{text}");
            let counts: Vec<u64> = text
                .lines()
                .find_map(|line| line.split_once("order:"))
                .map(|(_, rest)| rest.split_whitespace().map(|count| count.parse().unwrap()).collect())
                .unwrap_or_else(|| panic!("no counts in {text}"));
            (sent, overtaking) = (sent + counts[0], overtaking + counts[1]);
        }
        let counts = std::mem::take(&mut server.state.lock().unwrap().counts);
        let (keys, paused) = match plan.keys {
            Keys::Own => (f64::from(PROCESSES), counts.paused),
            // The other processes keep running.
            Keys::Shared => (1.0, 0.0),
        };
        Report {
            keys: plan.keys,
            served: counts.served,
            refused: counts.refused,
            refused_after_lowering: counts.refused_after_lowering,
            injected: counts.injected,
            allowed: keys * counts.allowed - paused,
            sent,
            overtaking,
        }
    })
}

/// Changes the quota of all keys until the trial ends.
async fn change_quotas<K>(server: &Server, limiter: &Limiter<K>, first: u64) {
    let each = (server.plan.measured / 10).max(Duration::from_secs(2));
    let end = server.plan.warm_up + server.plan.measured;
    let mut at = Duration::ZERO;
    for change in CHANGES.into_iter().cycle() {
        let quota = first * change / 100;
        limiter.set_quota(Quota::per_second(quota)).unwrap();
        {
            let mut state = server.state.lock().unwrap();
            if quota < state.quota {
                state.lowered = Some(Instant::now());
            }
            state.quota = quota;
            let next = (at + each).min(end);
            let counted = next.saturating_sub(at.max(server.plan.warm_up));
            state.counts.allowed += quota as f64 * counted.as_secs_f64();
            at = next;
        }
        tokio::time::sleep((server.begin + at).saturating_duration_since(Instant::now())).await;
        if at == end {
            return;
        }
    }
}

/// If this process was started to run clients, runs them and returns true.
pub(crate) fn child() -> bool {
    let Ok(told) = std::env::var(VARIABLE) else { return false };
    let [address, url, key, clients, warm_up, seconds] = told.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{VARIABLE} has six words, not {told:?}");
    };
    let process = Process {
        address: address.parse().unwrap(),
        key: key.to_owned(),
        clients: clients.parse().unwrap(),
        warm_up: Duration::from_secs(warm_up.parse().unwrap()),
        time: Duration::from_secs(seconds.parse().unwrap()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // This guess is higher than any quota of the server.
    let own = Quota::per_second(1_000).burst(50);
    let tasks = tokio::task::LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        if url == "-" {
            process.run(Limiter::<String>::builder(own).build().unwrap()).await;
        } else {
            let client = Client::open(url).unwrap();
            process.run(SharedLimiter::<String>::builder(&client, "outbound", own).build().unwrap()).await;
        }
    }));
    true
}

struct Process {
    address: SocketAddr,
    key: String,
    clients: u32,
    warm_up: Duration,
    time: Duration,
}

/// The sequence number of a call, in the order in which calls start.
#[derive(Clone, Copy)]
struct Call(u64);

impl Process {
    /// Calls the server with all clients. Each client calls again as soon as it has its response.
    async fn run<L: Waitable<String, Turn: Send> + Send + Sync + 'static>(&self, limiter: L) {
        let queue = Arc::new(WaitQueue::new(Paced::new(limiter)));
        let key = |request: &http::Request<Empty<Bytes>>| {
            (request.headers()["api-key"].to_str().unwrap_or_default().to_owned(), 1)
        };
        let order = Arc::new(Mutex::new(HashMap::<&str, u64>::new()));
        // If all clients started at once, no queue would exist yet, and the client that asks the
        // store first might receive its answer last.
        let counts_from = Instant::now() + self.warm_up;
        let record = {
            let order = Arc::clone(&order);
            move |request: http::Request<Empty<Bytes>>| {
                let Call(number) = *request.extensions().get().unwrap();
                let mut order = order.lock().unwrap();
                let counts = u64::from(Instant::now() >= counts_from);
                *order.entry("sent").or_default() += counts;
                let last = order.entry("last").or_default();
                let is_late = number < *last;
                *last = number.max(*last);
                *order.entry("overtaking").or_default() += counts * u64::from(is_late);
                request
            }
        };
        let service = ServiceBuilder::new()
            .layer(WaitLayer::new(queue, key))
            .map_request(record)
            .service(HttpClient::builder(TokioExecutor::new()).build_http());
        let (end, calls) = (Instant::now() + self.time, Rc::new(Cell::new(0)));
        for _ in 0..self.clients {
            let (service, calls) = (service.clone(), Rc::clone(&calls));
            let (uri, key) = (format!("http://{}/", self.address), self.key.clone());
            tokio::task::spawn_local(async move {
                loop {
                    let mut request = http::Request::new(Empty::new());
                    *request.uri_mut() = uri.parse().unwrap();
                    request.headers_mut().insert("api-key", key.parse().unwrap());
                    calls.set(calls.get() + 1);
                    request.extensions_mut().insert(Call(calls.get()));
                    // On this thread, no other call can run between the assignment of the number
                    // and the place in the queue.
                    drop(service.clone().oneshot(request).await);
                }
            });
        }
        tokio::time::sleep_until(end.into()).await;
        let order = order.lock().unwrap();
        let count = |name: &str| order.get(name).copied().unwrap_or_default();
        println!("order: {} {}", count("sent"), count("overtaking"));
    }
}
