//! Runs the host's cases on each version of Envoy. Also tests large bodies, reset streams, and
//! refused configurations.

use http::{Method, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;

use super::client::{Client, from, run, upstream};
use super::process::{Envoy, Front, found, get, newest, programs};
use crate::cases::{self, Case, shown};

#[test]
#[ignore = "needs Envoy: make envoy"]
fn each_envoy_gets_the_answer_of_each_case() {
    run(async {
        let upstream = upstream().await;
        for program in programs() {
            for is_two in [false, true] {
                let cases = cases::all();
                let fronts: Vec<Front> =
                    cases.iter().map(|case| Front::new(case.name, case.config)).collect();
                let _envoy = Envoy::start(&program, upstream, &fronts);
                for (Case { name, steps, .. }, front) in cases.iter().zip(&fronts) {
                    let mut client = Client::connect(front.port, is_two).await;
                    for (number, (asked, expected)) in steps.iter().enumerate() {
                        let answer = client.ask(asked, front.port).await;
                        let which =
                            format!("{} {name}, request {number}, HTTP/2: {is_two}", program.display());
                        assert_eq!(shown(&answer), *expected, "{which}\n{answer:?}");
                    }
                }
                println!("{}, HTTP/2: {is_two}: {} cases", program.display(), cases.len());
            }
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn large_bodies_pass_whole_and_a_refusal_comes_before_their_end() {
    run(async {
        let front = Front::new("bodies", "limit = [\"a=2/h by ip\"]");
        let _envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        let body = Bytes::from(vec![b'x'; 8 << 20]);
        for (is_two, expected) in
            [(false, StatusCode::OK), (true, StatusCode::OK), (true, StatusCode::TOO_MANY_REQUESTS)]
        {
            let mut client = Client::connect(front.port, is_two).await;
            let mut request = from("192.0.2.1");
            *request.method_mut() = Method::POST;
            *request.body_mut() = Full::new(body.clone());
            let response = client.send(request).await.unwrap();
            assert_eq!(response.status(), expected);
            assert_eq!(*response.body() == body, expected == StatusCode::OK, "{expected}");
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn streams_that_are_reset_give_their_places_back() {
    run(async {
        let front = Front::new("resets", "limit = [\"a=8 at once by ip\"]");
        let envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        let mut held = 0;
        for turn in 0..50 {
            let mut streams = Vec::new();
            let mut connections = Vec::new();
            for number in 0..8 {
                // Half of the streams end together with their connection. The other half are reset.
                let client = Client::connect(front.port, number % 2 == 0).await;
                let Client::Two(sender) = client else {
                    let Client::One(mut sender) = client else { unreachable!() };
                    let mut request = from("192.0.2.1");
                    request.headers_mut().insert("x-hold", "1".parse().unwrap());
                    streams.push(tokio::spawn(async move { sender.send_request(request).await.map(|_| ()) }));
                    continue;
                };
                let mut request = from("192.0.2.1");
                request.headers_mut().insert("x-hold", "1".parse().unwrap());
                let mut sending = sender.clone();
                streams.push(tokio::spawn(async move { sending.send_request(request).await.map(|_| ()) }));
                connections.push(sender);
            }
            held += 8;
            tokio::task::block_in_place(|| {
                found("eight are in flight", || (envoy.counter("resets.a.allowed") >= held).then_some(()));
            });
            let mut other = Client::connect(front.port, turn % 2 == 0).await;
            assert_eq!(other.send(from("192.0.2.1")).await.unwrap().status(), 429);
            for stream in streams {
                stream.abort();
                let _ = stream.await;
            }
            // All places are freed as soon as Envoy notices that the streams have ended.
            for _ in 0..1000 {
                let response = other.send(from("192.0.2.1")).await.unwrap();
                if response.status() == StatusCode::OK {
                    held += 1;
                    if response.headers()["ratelimit"].to_str().unwrap().contains("r=7") {
                        break;
                    }
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            let response = other.send(from("192.0.2.1")).await.unwrap();
            held += 1;
            assert_eq!(response.headers()["ratelimit"], "\"a\";r=7", "turn {turn}");
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn odd_targets_are_limited_and_routes_may_do_without() {
    run(async {
        let front = Front::new("targets", "limit = [\"a=2/h by path\"]");
        let _envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        tokio::task::block_in_place(|| {
            for (path, status) in [
                ("/a\"b", 200),
                ("/a%22b", 200),
                ("//a\"b", 429),
                ("/off", 200),
                ("/off", 200),
                ("/off", 200),
            ] {
                let response = get(front.port, path);
                assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {response}");
            }
        });
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_refused_configuration_is_in_the_log_and_the_old_one_serves_on() {
    run(async {
        let mut front = Front::new("bad", "limit = [\"a=1/h by ip\"]");
        let mut envoy = Envoy::start(&newest(), upstream().await, std::slice::from_ref(&front));
        let mut client = Client::connect(front.port, false).await;
        assert_eq!(client.send(from("192.0.2.1")).await.unwrap().status(), 200);
        front.config = "limit = [\"a=1/h by address\"]".to_owned();
        tokio::task::block_in_place(|| envoy.reload(std::slice::from_ref(&front)));
        let reason = "tollgate: filter bad: the configuration is refused: filter_config, line 1: invalid key `address`";
        assert!(envoy.log().contains(reason), "{}", envoy.log());
        let mut client = Client::connect(front.port, false).await;
        assert_eq!(client.send(from("192.0.2.1")).await.unwrap().status(), 429);
    });
}
