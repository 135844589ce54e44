//! Runs the examples and checks that they enforce their limits.
//!
//! A plain `cargo test` also builds the examples. If the examples are missing, these tests report
//! that and pass, except in CI, where they fail.

use crate::sockets::client::{Client, Reply, Version};
use crate::sockets::run::run;
use http::{Request, StatusCode};
use std::env;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running example, which is stopped when this is dropped.
struct Example {
    process: Child,
    address: SocketAddr,
}

impl Drop for Example {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Example {
    /// Starts the example on a free port, if it was built.
    fn start(name: &str) -> Option<Self> {
        Self::start_with(name, &[])
    }

    /// Starts the example with more arguments, if it was built.
    fn start_with(name: &str, args: &[&str]) -> Option<Self> {
        let tests: PathBuf = env::current_exe().unwrap().parent().unwrap().into();
        let program = tests.with_file_name("examples").join(name).with_extension(env::consts::EXE_EXTENSION);
        if !program.exists() {
            assert!(env::var_os("CI").is_none(), "{} was not built", program.display());
            eprintln!(
                "NOT DONE: build it first: cargo build --profile test -p tollgate-http --example {name}"
            );
            return None;
        }
        let mut command = Command::new(program);
        let mut process = command.arg("127.0.0.1:0").args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").expect("it says where");
        Some(Self { address: address.parse().unwrap(), process })
    }
}

/// The limits allow five requests at once. Even if each request takes most of a second, one of the
/// first hundred is refused.
async fn until_refused(mut ask: impl AsyncFnMut() -> Reply) -> Reply {
    for number in 0..100 {
        let reply = ask().await;
        if reply.status != StatusCode::OK || reply.headers.contains_key("grpc-status") {
            assert!(number >= 3, "refused too early: {reply:?}");
            return reply;
        }
    }
    panic!("nothing was refused");
}

#[test]
fn the_examples_of_axum_and_hyper_limit_addresses_and_keys() {
    run(async {
        for (name, version) in [("axum", Version::One), ("hyper", Version::Two)] {
            let Some(example) = Example::start(name) else { return };
            let mut one = Client::to(example.address, None, version).await;
            let refused = until_refused(async || one.get("/").await).await;
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{name}");
            assert_eq!(refused.retry_after(), Some(1), "{name}");
            let from = Some("127.0.0.2:0".parse().unwrap());
            let mut other = Client::to(example.address, from, version).await;
            let with_key = async || other.ask(Request::get("/").header("x-api-key", "secret")).await;
            let refused = until_refused(with_key).await;
            assert!(refused.retry_after().is_some_and(|wait| wait > 1000), "{name}: {refused:?}");
        }
    });
}

#[test]
fn the_example_of_tonic_limits_addresses_and_keys() {
    run(async {
        let Some(example) = Example::start("tonic") else { return };
        let call = || {
            let call = Request::post("/grpc.health.v1.Health/Check");
            call.header("content-type", "application/grpc").header("te", "trailers")
        };
        let message = || crate::sockets::server::text(&b"\0\0\0\0\0"[..]);
        let mut one = Client::to(example.address, None, Version::Two).await;
        let ask = async || one.send(call().body(message()).unwrap()).await.unwrap();
        let refused = until_refused(ask).await;
        assert_eq!((refused.number("grpc-status"), refused.retry_after()), (Some(8), Some(1)));
        let from = Some("127.0.0.2:0".parse().unwrap());
        let mut other = Client::to(example.address, from, Version::Two).await;
        let ask = async || {
            let call = call().header("x-api-key", "secret");
            other.send(call.body(message()).unwrap()).await.unwrap()
        };
        let refused = until_refused(ask).await;
        assert_eq!(refused.number("grpc-status"), Some(8));
        assert!(refused.retry_after().is_some_and(|wait| wait > 1000), "{refused:?}");
    });
}

/// A connection to the gateway by the caller with this key.
struct Caller {
    client: Client,
    key: &'static str,
}

impl Caller {
    async fn of(example: &Example, key: &'static str) -> Self {
        Self { client: Client::to(example.address, None, Version::One).await, key }
    }

    async fn ask(&mut self, asked: serde_json::Value) -> Reply {
        let request = Request::post("/").header("authorization", format!("Bearer {}", self.key));
        self.client
            .send(request.body(crate::sockets::server::text(asked.to_string())).unwrap())
            .await
            .unwrap()
    }
}

/// Returns how many tokens a limit had left when it admitted the request.
fn left(reply: &Reply, limit: &str) -> u64 {
    let items = reply.text("ratelimit").unwrap();
    let after = items.split_once(&format!("\"{limit}\";r=")).unwrap().1;
    after.split([';', ',']).next().unwrap().parse().unwrap()
}

fn words(reply: &Reply) -> usize {
    std::str::from_utf8(&reply.body).unwrap().matches("\"word\"").count()
}

fn binding(reply: &Reply) -> serde_json::Value {
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap()["limit"].take()
}

#[test]
fn the_example_of_a_gateway_limits_tokens_and_requests_of_users_teams_and_all() {
    use serde_json::json;
    run(async {
        let Some(example) = Example::start("gateway") else { return };
        let mut alice = Caller::of(&example, "key-alice").await;
        // The prompt has 4 tokens. The larger of the two maximums is reserved, and its unused
        // tokens are refunded.
        let short =
            json!({"prompt": "tell me a story", "answer": 6, "max_tokens": 1, "max_completion_tokens": 200});
        assert_eq!(left(&alice.ask(short.clone()).await, "user-tokens"), 300 - 204);
        let reply = alice.ask(short.clone()).await;
        assert_eq!(
            ["user-tokens", "team-tokens", "all-tokens"].map(|limit| left(&reply, limit)),
            [86, 286, 1786]
        );
        assert_eq!(
            ["user-requests", "team-requests", "all-requests"].map(|limit| left(&reply, limit)),
            [18, 28, 98]
        );
        // A model that cannot be reached costs no tokens.
        for _ in 0..3 {
            let failed =
                alice.ask(json!({"prompt": "tell me a story", "fail": true, "max_tokens": 200})).await;
            assert_eq!((failed.status, left(&failed, "user-tokens")), (StatusCode::SERVICE_UNAVAILABLE, 76));
        }
        // A stream of unknown length is cut off exactly at the budget.
        let endless = json!({"prompt": "tell me a story", "answer": 5000, "stream": true});
        let stream = alice.ask(endless.clone()).await;
        assert_eq!((stream.status, words(&stream)), (StatusCode::OK, 300 - 20 - 4));
        assert!(
            stream
                .body
                .ends_with(b"\n\ndata: {\"error\":\"the budget of tokens is spent\"}\n\ndata: [DONE]\n\n")
        );
        assert_eq!(binding(&alice.ask(short.clone()).await), "user-tokens");
        // The team has fewer tokens left than the user.
        let mut bob = Caller::of(&example, "key-bob").await;
        assert_eq!(words(&bob.ask(endless.clone()).await), 200 - 4);
        assert_eq!(binding(&bob.ask(endless).await), "team-tokens");
        // Another team is not affected. Its user runs out of requests.
        let mut carol = Caller::of(&example, "key-carol").await;
        let nothing = json!({"prompt": "", "answer": 1, "max_tokens": 1, "stream": true});
        for _ in 0..20 {
            assert_eq!(words(&carol.ask(nothing.clone()).await), 1);
        }
        assert_eq!(binding(&carol.ask(nothing.clone()).await), "user-requests");
        carol.key = "key-nobody";
        assert_eq!(carol.ask(nothing).await.status, StatusCode::UNAUTHORIZED);
    });
}

#[test]
fn the_example_of_classes_gives_each_caller_the_quota_of_the_class() {
    run(async {
        let Some(example) = Example::start("classes") else { return };
        let mut proxy = Client::to(example.address, None, Version::One).await;
        let mut ask = async |forwarded: &str, key: &str| {
            let request = Request::get("/").header("x-forwarded-for", forwarded);
            proxy.ask(if key.is_empty() { request } else { request.header("x-api-key", key) }).await
        };
        let policy = |quota: u64| format!("\"all\";q=5000;w=1, \"per-client\";q={quota};w=60");
        // The first ten pass immediately; then one passes every six seconds.
        let mut passed = 0;
        let refused = loop {
            let reply = ask("192.0.2.1", "").await;
            assert_eq!(reply.text("ratelimit-policy"), Some(&*policy(10)));
            if reply.status != StatusCode::OK {
                break reply;
            }
            passed += 1;
            assert!(passed < 100, "nothing was refused");
        };
        assert!(passed >= 10, "refused too early: {refused:?}");
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.retry_after().is_some_and(|wait| wait <= 6), "{refused:?}");
        // A forged address or an invented key does not help the client.
        for (forwarded, key) in [("198.51.100.9, 192.0.2.1", ""), ("192.0.2.1", "k-made-up")] {
            let reply = ask(forwarded, key).await;
            assert_eq!(reply.text("ratelimit-policy"), Some(&*policy(10)));
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{forwarded} {key}");
        }
        assert_eq!(ask("192.0.2.2", "").await.status, StatusCode::OK);
        for _ in 0..50 {
            let reply = ask("192.0.2.1", "k-7f3a").await;
            assert_eq!(reply.status, StatusCode::OK);
            assert_eq!(reply.text("ratelimit-policy"), Some(&*policy(1000)));
        }
    });
}

#[cfg(unix)]
#[test]
fn the_example_of_a_restart_keeps_its_counts_over_a_deployment() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("example_restart");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("counts").into_os_string().into_string().unwrap();
    run(async {
        for expected in [[200, 200, 200], [200, 200, 429], [429, 429, 429]] {
            let Some(mut example) = Example::start_with("restart", &[&path]) else { return };
            let mut client = Client::to(example.address, None, Version::One).await;
            let mut statuses = [0; 3];
            for status in &mut statuses {
                *status = client.get("/").await.status.as_u16();
            }
            assert_eq!(statuses, expected);
            let id = rustix::process::Pid::from_child(&example.process);
            rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
            assert!(example.process.wait().unwrap().success());
        }
    });
}
