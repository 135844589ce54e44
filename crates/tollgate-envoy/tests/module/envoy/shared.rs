//! Two Envoys share limits through a store, which stops, dies and returns.

use std::fs;
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use tokio::task::block_in_place;
use tollgate_testing::store::certificates::Authority;
use tollgate_testing::store::program::Program;
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;

use super::client::{Client, from, run, upstream};
use super::process::{Envoy, Front, found, newest, programs};

/// Returns a listener with this store. Even on a busy machine, the store answers within the
/// deadline.
fn front(filter: &str, store: &Server, text: &str) -> Front {
    Front::new(filter, &format!("{text}\nredis = \"{}\"\nredis-deadline = \"10s\"", store.url()))
}

/// Returns a listener whose requests are decided without the store after 50 ms.
fn impatient(filter: &str, store: &Server, text: &str) -> Front {
    Front::new(filter, &format!("{text}\nredis = \"{}\"", store.url()))
}

async fn status(client: &mut Client, request: Request<Full<Bytes>>) -> u16 {
    client.send(request).await.unwrap().status().as_u16()
}

/// Waits until an Envoy has reached its store.
fn reaches(envoy: &Envoy) {
    found("the store is reached", || {
        envoy.log().contains("limits are shared with all proxies").then_some(())
    });
}

/// Returns a POST request with a body of 10 MB.
fn upload(client: &str) -> Request<Full<Bytes>> {
    let mut request = from(client);
    *request.method_mut() = Method::POST;
    *request.body_mut() = Full::new(Bytes::from(vec![b'x'; 10_000_000]));
    request
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn two_envoys_of_any_version_admit_one_quota() {
    run(async {
        let upstream = upstream().await;
        for program in programs() {
            let store = Server::start();
            let text = "limit = [\"a=10/1000d by ip\"]\nalgorithm = \"fixed-window\"";
            let fronts = [(); 2].map(|()| front("fleet", &store, text));
            let _envoys =
                [0, 1].map(|at| Envoy::start(&program, upstream, std::slice::from_ref(&fronts[at])));
            let mut clients = Vec::new();
            for (at, front) in fronts.iter().enumerate() {
                clients.push(Client::connect(front.port, at == 1).await);
            }
            let mut statuses = Vec::new();
            for at in 0..14 {
                statuses.push(status(&mut clients[at % 2], from("192.0.2.1")).await);
            }
            assert_eq!(statuses, [[200; 10].as_slice(), &[429; 4]].concat(), "{}", program.display());
            println!("{}: two Envoys admit 10 of 14 requests", program.display());
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn uploads_wait_for_a_stopped_store_and_arrive_whole() {
    run(async {
        let upstream = upstream().await;
        for program in programs() {
            let store = Server::start();
            let limit = "limit = [\"a=100/1000d by ip\"]\nredis-when-unavailable";
            let [allow, deny] =
                ["allow", "deny"].map(|policy| impatient(policy, &store, &format!("{limit} = \"{policy}\"")));
            let envoy = Envoy::start(&program, upstream, &[allow.clone(), deny.clone()]);
            block_in_place(|| reaches(&envoy));
            for is_two in [false, true] {
                let mut client = Client::connect(allow.port, is_two).await;
                let response = client.send(upload("192.0.2.1")).await.unwrap();
                assert_eq!((response.status(), response.body().len()), (StatusCode::OK, 10_000_000));
                let mut refused = Client::connect(deny.port, is_two).await;
                store.stop();
                let begun = Instant::now();
                let response = client.send(upload("192.0.2.1")).await.unwrap();
                let took = begun.elapsed();
                assert_eq!((response.status(), response.body().len()), (StatusCode::OK, 10_000_000));
                assert!(took >= Duration::from_millis(50) || is_two, "{took:?}");
                // HTTP/1.1 clients may fail to send their body before they read the refusal.
                match refused.send(upload("192.0.2.1")).await {
                    Ok(response) => assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE),
                    Err(error) => assert!(!is_two, "{error}"),
                }
                store.resume();
                block_in_place(|| {
                    found("the store is found", || {
                        let lines = envoy.log();
                        let (lost, back) = (
                            lines.matches("the store is lost").count(),
                            lines.matches("the store is found").count(),
                        );
                        (lost == back).then_some(())
                    });
                });
                println!("{}, HTTP/2: {is_two}: 10 MB waited {took:?}", program.display());
            }
            let (status, log) = block_in_place(|| envoy.end("TERM"));
            assert!(status.success() && !log.contains("critical"), "{status}: {log}");
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_store_that_is_killed_under_load_delays_no_request_for_long() {
    run(async {
        let store = Server::start();
        let text = "limit = [\"a=1000000/1000d by ip\"]\nredis-when-unavailable = \"allow\"";
        let front = impatient("killed", &store, text);
        let envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        block_in_place(|| reaches(&envoy));
        let mut tasks = Vec::new();
        for number in 0..8 {
            let port = front.port;
            tasks.push(tokio::spawn(async move {
                let mut client = Client::connect(port, number % 2 == 0).await;
                let begun = Instant::now();
                let (mut sent, mut slowest) = (0_u32, Duration::ZERO);
                while begun.elapsed() < Duration::from_secs(3) {
                    let sending = Instant::now();
                    assert_eq!(status(&mut client, from("192.0.2.1")).await, 200);
                    slowest = slowest.max(sending.elapsed());
                    sent += 1;
                }
                (sent, slowest)
            }));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        block_in_place(|| store.restart());
        let (mut sent, mut slowest) = (0, Duration::ZERO);
        for task in tasks {
            let (of_task, slowest_of_task) = task.await.unwrap();
            (sent, slowest) = (sent + of_task, slowest.max(slowest_of_task));
        }
        println!("{sent} requests, the slowest {slowest:?}");
        assert!(sent > 100 && slowest < Duration::from_secs(1), "{sent}, {slowest:?}");
        block_in_place(|| {
            found("the store is found", || envoy.log().contains("the store is found").then_some(()))
        });
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn places_count_on_both_envoys_and_streams_that_end_early_free_them() {
    run(async {
        let store = Server::start();
        let fronts = [(); 2].map(|()| front("places", &store, "limit = [\"a=4 at once by ip\"]"));
        let upstream = upstream().await;
        let mut envoys: Vec<Envoy> =
            fronts.iter().map(|it| Envoy::start(&newest(), upstream, std::slice::from_ref(it))).collect();
        let held = |at: usize| {
            let port = fronts[at % 2].port;
            tokio::spawn(async move {
                let mut client = Client::connect(port, at < 2).await;
                let request = || {
                    let mut request = from("192.0.2.1");
                    request.headers_mut().insert("x-hold", "1".parse().unwrap());
                    request
                };
                // A refused request is repeated until it holds a place.
                while client.send(request()).await.is_ok() {}
            })
        };
        for _ in 0..20 {
            let tasks: Vec<_> = (0..4).map(held).collect();
            let mut clients = Vec::new();
            for front in &fronts {
                clients.push(Client::connect(front.port, false).await);
            }
            for client in &mut clients {
                let begun = Instant::now();
                while status(client, from("192.0.2.1")).await != 429 {
                    assert!(begun.elapsed() < Duration::from_secs(20), "four places are held");
                }
            }
            tasks.iter().for_each(tokio::task::JoinHandle::abort);
            for client in &mut clients {
                let begun = Instant::now();
                loop {
                    let response = client.send(from("192.0.2.1")).await.unwrap();
                    let left = response.headers().get("ratelimit").map(|it| it.to_str().unwrap().to_owned());
                    if left.as_deref() == Some("\"a\";r=3") {
                        break;
                    }
                    assert!(begun.elapsed() < Duration::from_secs(20), "all places are free: {left:?}");
                }
            }
        }
        // An Envoy that ends frees its places at once.
        let task = held(0);
        let mut other = Client::connect(fronts[1].port, false).await;
        let mut left = async || {
            let response = other.send(from("192.0.2.1")).await.unwrap();
            response.headers()["ratelimit"].to_str().unwrap().to_owned()
        };
        while left().await != "\"a\";r=2" {}
        let (status, log) = block_in_place(|| envoys.swap_remove(0).end("TERM"));
        assert!(status.success() && !log.contains("critical"), "{status}: {log}");
        let begun = Instant::now();
        while left().await != "\"a\";r=3" {
            assert!(begun.elapsed() < Duration::from_secs(5), "the place of the ended Envoy is free");
        }
        let _ = task.await;
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn responses_give_charges_back_before_the_next_request() {
    run(async {
        let store = Server::start();
        let text = "limit = [\"a=1/1000d by ip\"]\ncharge-if = { a = \"401\" }";
        let fronts = [(); 2].map(|()| front("back", &store, text));
        let upstream = upstream().await;
        let _envoys = [0, 1].map(|at| Envoy::start(&newest(), upstream, std::slice::from_ref(&fronts[at])));
        let mut one = Client::connect(fronts[0].port, false).await;
        for turn in 0..200 {
            assert_eq!(status(&mut one, from("192.0.2.1")).await, 200, "request {turn}");
        }
        let mut failing = from("192.0.2.1");
        failing.headers_mut().insert("x-upstream", "401".parse().unwrap());
        let mut two = Client::connect(fronts[1].port, true).await;
        assert_eq!(status(&mut two, failing).await, 401);
        assert_eq!(status(&mut one, from("192.0.2.1")).await, 429);
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_store_with_tls_and_a_password_is_reached_and_no_log_has_the_password() {
    run(async {
        let upstream = upstream().await;
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let trusted = folder.path().join("authority.pem");
        fs::write(&trusted, authority.pem()).unwrap();
        let store = Setup::new(Program::Redis).tls(&authority).password("hunter2").start();
        for program in programs() {
            let front = front("tls", &store, "limit = [\"a=1/1000d by ip\"]");
            let envoy = Envoy::start_with(
                |envoy| envoy.arg("--disable-hot-restart").env("SSL_CERT_FILE", &trusted),
                &program,
                upstream,
                std::slice::from_ref(&front),
            );
            block_in_place(|| reaches(&envoy));
            let mut client = Client::connect(front.port, false).await;
            assert_eq!(status(&mut client, from("192.0.2.1")).await, 200);
            assert_eq!(status(&mut client, from("192.0.2.1")).await, 429);
            let (status, log) = block_in_place(|| envoy.end("TERM"));
            assert!(status.success() && !log.contains("hunter2"), "{status}: {log}");
            store.command(&["FLUSHALL"]);
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn clients_that_leave_while_their_requests_wait_do_no_harm() {
    run(async {
        let upstream = upstream().await;
        for program in programs() {
            let store = Server::start();
            let front = impatient("leaves", &store, "limit = [\"a=1000000/1000d and 100 at once by ip\"]");
            let envoy = Envoy::start(&program, upstream, std::slice::from_ref(&front));
            block_in_place(|| reaches(&envoy));
            for turn in 0..30 {
                if turn % 3 == 0 {
                    store.stop();
                }
                let mut tasks = Vec::new();
                for number in 0..8 {
                    let port = front.port;
                    tasks.push(tokio::spawn(async move {
                        let mut client = Client::connect(port, number % 2 == 0).await;
                        let _ = client.send(from("192.0.2.1")).await;
                    }));
                }
                tokio::time::sleep(Duration::from_millis(turn % 10 * 3)).await;
                tasks.iter().for_each(tokio::task::JoinHandle::abort);
                store.resume();
            }
            let mut client = Client::connect(front.port, false).await;
            let begun = Instant::now();
            while status(&mut client, from("192.0.2.1")).await != 200 {
                assert!(begun.elapsed() < Duration::from_secs(20));
            }
            // Envoy ends while requests wait.
            store.stop();
            for number in 0..8 {
                let port = front.port;
                tokio::spawn(async move {
                    let mut client = Client::connect(port, number % 2 == 0).await;
                    let _ = client.send(from("192.0.2.1")).await;
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            let (status, log) = block_in_place(|| envoy.end("TERM"));
            assert!(status.success() && !log.contains("critical"), "{status}: {log}");
            store.resume();
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_listener_that_is_replaced_keeps_its_lease() {
    run(async {
        let store = Server::start();
        let text = "limit = [\"a=10000/1000d by ip\"]\nredis-lease = 100";
        let mut front = front("replaced", &store, text);
        let mut envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        block_in_place(|| reaches(&envoy));
        let mut client = Client::connect(front.port, false).await;
        for _ in 0..300 {
            assert_eq!(status(&mut client, from("192.0.2.1")).await, 200);
        }
        front.config.push_str("\n# A comment makes Envoy replace the listener.");
        block_in_place(|| envoy.reload(std::slice::from_ref(&front)));
        store.stop();
        let mut client = Client::connect(front.port, false).await;
        let begun = Instant::now();
        assert_eq!(status(&mut client, from("192.0.2.1")).await, 200);
        assert!(begun.elapsed() < Duration::from_secs(5), "the lease decides without the store");
        store.resume();
        block_in_place(|| {
            found("the figures are published", || {
                let _ = super::process::get(front.port, "/");
                envoy.counted("replaced.a.shared-by-lease")
            });
        });
    });
}
