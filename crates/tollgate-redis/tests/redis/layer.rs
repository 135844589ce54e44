//! Shared limits of a layer, tested over sockets. Responses report their costs, streams are cut
//! off, and responses hold places in flight, while stores are slow, stopped or killed.

use crate::load::{AGES, on_client, on_each_client, on_each_server, on_server, patient};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};
use tollgate::{Algorithm, Quota, Settlement};
use tollgate_http::{Backend, Key, KeyBy, Limit, RateLimitLayer, ResponseCost, WhenNoKey};
use tollgate_redis::{Client, SharedBuilder, SharedInFlight, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, run_in_turn, until_async};

const LIMIT: u64 = 100;
const ESTIMATE: u64 = 20;
const EVENT: &str = "data: x\n\n";
/// Longer than any test.
const PATIENT: Duration = Duration::from_secs(50);

/// A machine that runs a web server behind a layer. The server ends with the test.
struct Machine {
    address: SocketAddr,
    /// A permit opens the gate.
    gate: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `/events/5` streams 5 events. `/gated/5` streams them once the gate is open. `/usage/5/7`
/// streams 5 events and then reports a cost of 7. `/header/7` reports a cost of 7 in a header.
async fn answer(State(gate): State<Arc<Semaphore>>, uri: Uri) -> Response {
    let mut parts = uri.path().split('/').skip(1);
    let (kind, mut number) = (parts.next().unwrap(), || parts.next().map_or(0, |it| it.parse().unwrap()));
    let response = Response::builder().header("content-type", "text/event-stream");
    if kind == "header" {
        return response.header("x-tokens", number()).body(Body::from("body")).unwrap();
    }
    let (events, usage): (u64, u64) = (number(), number());
    let usage = (usage > 0).then(|| format!("data: {{\"usage\":{usage}}}\n\n"));
    let texts = (0..events).map(|_| EVENT.to_owned()).chain(usage).map(Ok::<_, Infallible>);
    let is_gated = kind == "gated";
    let opened = async move {
        let _open = if is_gated { Some(gate.acquire().await) } else { None };
        stream::iter(texts).then(async |text| {
            yield_now().await;
            text
        })
    };
    response.body(Body::from_stream(opened.flatten_stream())).unwrap()
}

impl Machine {
    async fn start(limits: impl IntoIterator<Item = Limit>) -> Self {
        let builder = limits.into_iter().fold(RateLimitLayer::builder(), |it, limit| it.limit(limit));
        Self::with(builder.build().unwrap()).await
    }

    async fn with(layer: RateLimitLayer) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&gate)).layer(layer);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, gate, task }
    }

    /// Sends a request over its own connection, which ends when the task is dropped.
    async fn ask(&self, path: &str) -> (http::Response<Incoming>, Connection) {
        let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
        let request = Request::get(path).header("host", "test").header("x-user", "alice");
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        (response, connection)
    }

    /// Sends a request and reads the whole response. Returns the status and the number of events.
    async fn events(&self, path: &str) -> (StatusCode, u64) {
        let (response, _connection) = self.ask(path).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, (body.len() / EVENT.len()) as u64)
    }
}

/// A client's connection. Dropping it hangs up.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Limiter = SharedLimiter<Key>;

fn builder(client: &Client, name: &str) -> SharedBuilder<SharedLimiter<Key>> {
    Limiter::builder(client, name, Quota::new(LIMIT, AGES))
        .deadline(Duration::from_secs(20))
        .when_unavailable(WhenUnavailable::Deny)
}

fn key() -> Key {
    let none: [&str; 0] = [];
    Key::new("tokens", none)
}

/// Returns the tokens that the store has charged.
async fn charged(limiter: &Limiter) -> u64 {
    LIMIT - limiter.peek(&key()).await.remaining()
}

async fn until_charged(limiter: &Limiter, tokens: u64, what: &str) {
    until_async(what, async || charged(limiter).await == tokens).await;
}

fn settled(limiter: &Arc<Limiter>, settle: ResponseCost) -> Limit {
    Limit::new("tokens", Arc::clone(limiter)).by(KeyBy::nothing()).cost(ESTIMATE).settle(settle)
}

fn usage() -> ResponseCost {
    ResponseCost::header("x-tokens").or(ResponseCost::json("usage")).or(ResponseCost::events())
}

#[test]
fn responses_are_settled_with_the_store_by_every_algorithm() {
    on_each_client(async |_server, client| {
        for algorithm in Algorithm::ALL {
            let limiter = Arc::new(builder(&client, "tokens").algorithm(algorithm).build().unwrap());
            limiter.reset(&key()).await.unwrap();
            let told = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&told);
            let layer = RateLimitLayer::builder()
                .limit(settled(&limiter, usage().cut_off()))
                .on_settled(move |event| noted.lock().unwrap().push(event.cost));
            let machine = Machine::with(layer.build().unwrap()).await;
            let until_told = async |costs| {
                until_async("it is settled", async || told.lock().unwrap().len() == costs).await;
            };
            let mut sum = 0;
            let asked = [("/header/7", 7), ("/events/3", 3), ("/events/35", 35), ("/usage/30/4", 4)];
            for (number, (path, cost)) in asked.into_iter().enumerate() {
                assert_eq!(machine.events(path).await.0, StatusCode::OK, "{algorithm} {path}");
                until_told(number + 1).await;
                sum += cost;
                assert_eq!(charged(&limiter).await, sum, "{algorithm} {path}");
            }
            assert_eq!(*told.lock().unwrap(), [7, 3, 35, 4].map(Some));
            // A client that hangs up in mid-stream pays for the events sent so far.
            let (response, connection) = machine.ask("/events/1000000000").await;
            let mut body = response.into_body();
            body.frame().await.unwrap().unwrap();
            drop((body, connection));
            until_told(5).await;
            let sent = told.lock().unwrap()[4].unwrap();
            assert_eq!(charged(&limiter).await, (sum + sent).min(LIMIT), "{algorithm}");
        }
    });
}

#[test]
fn an_endless_stream_ends_when_the_shared_budget_is_spent() {
    on_each_client(async |_server, client| {
        for debt in [0, 15] {
            let name = format!("tokens-{debt}");
            let limiter = Arc::new(builder(&client, &name).max_debt(debt).build().unwrap());
            let told = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&told);
            let builder =
                RateLimitLayer::builder().limit(settled(&limiter, ResponseCost::events().cut_off()));
            let layer = builder.on_settled(move |event| {
                noted.lock().unwrap().push((event.cost, event.settlement, event.is_cut));
            });
            let machine = Machine::with(layer.build().unwrap()).await;
            let (status, passed) = machine.events("/events/1000000000").await;
            assert_eq!(status, StatusCode::OK);
            // Events sent while the store was being asked may exceed the limit, by at most the
            // capacity.
            assert!((LIMIT..=2 * LIMIT).contains(&passed), "{passed}");
            until_async("it is settled", async || !told.lock().unwrap().is_empty()).await;
            let paid = passed.min(LIMIT + debt);
            let settlement = Settlement { charged: paid, unpaid: passed - paid };
            assert_eq!(*told.lock().unwrap(), [(Some(passed), settlement, true)]);
            assert_eq!(machine.events("/events/1").await.0, StatusCode::TOO_MANY_REQUESTS);
        }
    });
}

#[test]
fn two_machines_stream_from_one_budget() {
    on_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        let limiters = clients.each_ref().map(|client| Arc::new(builder(client, "tokens").build().unwrap()));
        let [one, other] = limiters.each_ref().map(|it| settled(it, ResponseCost::events().cut_off()));
        let machines = [Machine::start([one]).await, Machine::start([other]).await];
        let streams = machines.each_ref().map(|machine| machine.events("/events/1000000000"));
        let [one, other] = streams;
        let ((_, one), (_, other)) = tokio::join!(one, other);
        let passed = one + other;
        assert!((LIMIT..=3 * LIMIT).contains(&passed), "{one} and {other}");
        until_charged(&limiters[0], LIMIT, "the budget is spent, and nothing is left over").await;
    });
}

#[test]
fn a_stream_goes_on_while_the_store_is_silent_and_is_settled_when_it_answers() {
    on_client(async |server, client| {
        let limiter = Arc::new(builder(&client, "tokens").deadline(PATIENT).build().unwrap());
        let machine = Machine::start([settled(&limiter, ResponseCost::events().cut_off())]).await;
        let (response, _connection) = machine.ask("/gated/90").await;
        server.stop();
        machine.gate.add_permits(1);
        // The whole body arrives, even though the store has not answered since the response's head
        // was sent.
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), 90 * EVENT.len());
        server.resume();
        until_charged(&limiter, 90, "it is settled").await;
    });
}

#[test]
fn a_stream_whose_store_is_gone_goes_on_as_the_limit_says() {
    // The limiter learns of an event before the next event.
    run_in_turn(async {
        for (when, local, is_cut) in [
            (WhenUnavailable::Deny, 0, true),
            (WhenUnavailable::Allow, 0, false),
            (WhenUnavailable::Local { share: 1.0 }, LIMIT, true),
            (WhenUnavailable::Local { share: 0.1 }, LIMIT / 10, true),
        ] {
            let server = Server::start();
            let client = patient(server.url());
            let limiter = builder(&client, "tokens").deadline(Duration::from_secs(1));
            let limiter = Arc::new(limiter.when_unavailable(when).build().unwrap());
            let machine = Machine::start([settled(&limiter, ResponseCost::events().cut_off())]).await;
            let (response, _connection) = machine.ask("/gated/1000000000").await;
            server.kill();
            // Waits until the client knows that the store is gone.
            until_async("the breaker is open", async || {
                let _ = limiter.peek(&key()).await;
                client.stats().breakers_open > 0
            })
            .await;
            machine.gate.add_permits(1);
            let mut body = response.into_body();
            let mut events = 0;
            while is_cut || events < 3 * LIMIT {
                let Some(frame) = body.frame().await else { break };
                events += (frame.unwrap().into_data().unwrap().len() / EVENT.len()) as u64;
            }
            // The maximum is the sum of the store's grant, the local limiter's tokens, and the
            // capacity.
            let most = ESTIMATE + local + LIMIT;
            assert!(!is_cut || events <= most, "{when:?}: {events}");
            assert!(is_cut || events >= 3 * LIMIT, "{when:?}: {events}");
        }
    });
}

fn jobs(client: &Client, when: WhenUnavailable) -> Arc<SharedInFlight<Key>> {
    let builder = SharedInFlight::builder(client, "jobs", 2).lifetime(Duration::from_secs(3600));
    Arc::new(builder.deadline(Duration::from_secs(20)).when_unavailable(when).build().unwrap())
}

fn in_flight(jobs: &Arc<SharedInFlight<Key>>) -> Limit {
    Limit::new("jobs", Backend::in_flight(Arc::clone(jobs)))
        .by(KeyBy::header("x-user"))
        .when_no_key(WhenNoKey::Deny)
}

#[test]
fn responses_on_two_machines_hold_their_places_until_their_ends() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        let jobs = clients.each_ref().map(|client| jobs(client, WhenUnavailable::Deny));
        let [one, other] = jobs.each_ref().map(in_flight);
        let machines = [Machine::start([one]).await, Machine::start([other]).await];
        let (first, connection) = machines[0].ask("/events/1000000000").await;
        assert_eq!(first.headers()["ratelimit-policy"], "\"jobs\";q=2;qu=\"concurrent-requests\"");
        assert_eq!(first.headers()["ratelimit"], "\"jobs\";r=1");
        let (second, second_connection) = machines[1].ask("/events/1000000000").await;
        assert_eq!(second.headers()["ratelimit"], "\"jobs\";r=0");
        for machine in &machines {
            let (refused, _connection) = machine.ask("/events/1").await;
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(refused.headers().get("retry-after"), None);
            let problem = refused.into_body().collect().await.unwrap().to_bytes();
            assert!(problem.windows(18).any(|it| it == b"too_many_in_flight"), "{problem:?}");
        }
        let key = Key::new("jobs", ["alice"]);
        let until_out = async |out| {
            let what = format!("{out} are out");
            until_async(&what, async || jobs[0].in_flight(&key).await == out).await;
        };
        // One client hangs up, and another response ends.
        drop((first, connection));
        until_out(1).await;
        assert_eq!(machines[1].events("/events/5").await, (StatusCode::OK, 5));
        until_out(1).await;
        drop((second, second_connection));
        until_out(0).await;
    });
}

#[test]
fn a_layer_without_its_places_refuses_admits_or_counts_by_itself() {
    run(async {
        for (when, statuses) in [
            (WhenUnavailable::Deny, [503, 503]),
            (WhenUnavailable::Allow, [200, 200]),
            (WhenUnavailable::Local { share: 0.5 }, [200, 429]),
        ] {
            let server = Server::start();
            let client = patient(server.url());
            let machine = Machine::start([in_flight(&jobs(&client, when))]).await;
            assert_eq!(machine.events("/events/5").await, (StatusCode::OK, 5));
            server.kill();
            let (first, _one) = machine.ask("/events/1000000000").await;
            let (second, _other) = machine.ask("/events/1000000000").await;
            assert_eq!([first.status().as_u16(), second.status().as_u16()], statuses, "{when:?}");
        }
    });
}
