//! Requests with their expected answers, which must be the same on the simulated host and on Envoy.
//!
//! The limits refill so slowly that no token is added during a case. The figures in the answers are
//! therefore exact.

use crate::host::{Answer, Asked, Module, get};

/// Limits, and requests with their expected answers.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) config: &'static str,
    pub(crate) steps: Vec<(Asked, &'static str)>,
}

/// Returns the parts of an answer that a case compares.
pub(crate) fn shown(answer: &Answer) -> String {
    let mut shown = answer.status.to_string();
    for (word, name) in
        [("", "ratelimit"), ("retry ", "retry-after"), ("grpc ", "grpc-status"), ("type ", "content-type")]
    {
        // Envoy sends no content type for a response without a body.
        let is_typed = !answer.body.is_empty() || answer.header("grpc-status").is_some();
        let is_compared = word != "type " || is_typed && answer.header("retry-after").is_some();
        if let Some(value) = answer.header(name).filter(|_| is_compared) {
            shown = format!("{shown} {word}{value}");
        }
    }
    let is_decided = answer.status == 200 && answer.header("grpc-status").is_none();
    if let Some(decision) = answer.header("x-limit-a").filter(|it| is_decided && *it != "/") {
        shown = format!("{shown} a: {decision}");
    }
    let problem: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
    if let Some(problem) = problem.filter(|it| it.is_object()) {
        shown = format!("{shown} {} {}", problem["error"], problem["limit"]);
    }
    shown
}

/// The answer when limit `a` refuses a request. The limit allows one request per hour.
const REFUSED: &str = r#"429 "a";r=0;t=3600 retry 3600 type application/problem+json "rate_limited" "a""#;

pub(crate) fn all() -> Vec<Case> {
    let case = |name, config, steps| Case { name, config, steps };
    let grpc = |path: &str| {
        Asked { method: "POST", ..get(path) }.with("content-type", "application/grpc").with("te", "trailers")
    };
    let tenant = |tenant| Asked { tenant: Some(tenant), ..get("/tenant") };
    vec![
        case(
            "by-address",
            r#"limit = ["a=1/h by ip"]"#,
            vec![
                (get("/"), r#"200 "a";r=0;t=3600"#),
                (get("/"), REFUSED),
                (get("/").from("192.0.2.2:80"), r#"200 "a";r=0;t=3600"#),
                (get("/").from("[2001:db8::1]:80"), r#"200 "a";r=0;t=3600"#),
                // All addresses in a /64 network count as one client.
                (get("/").from("[2001:db8::2]:80"), REFUSED),
            ],
        ),
        case(
            "by-header-or-address",
            r#"limit = ["a=1/h by header x-api-key or ip"]"#,
            vec![
                (get("/").with("x-api-key", "k1"), r#"200 "a";r=0;t=3600"#),
                (get("/").with("x-api-key", "k1").from("192.0.2.9:80"), REFUSED),
                (get("/").with("x-api-key", "k2"), r#"200 "a";r=0;t=3600"#),
                (get("/"), r#"200 "a";r=0;t=3600"#),
                // The upstream may use either of two values.
                (get("/").with("x-api-key", "k3").with("x-api-key", "k4"), r#"400 "client_ambiguous" "a""#),
            ],
        ),
        case(
            "no-key",
            r#"limit = ["a=1/h by header x-api-key"]"#,
            vec![(get("/"), r#"403 "client_unknown" "a""#)],
        ),
        case(
            "path-in-one-form",
            r#"limit = ["a=1/h by nothing for GET /login"]"#,
            vec![
                (get("/other"), "200"),
                (get("/%6cogin?x=1"), r#"200 "a";r=0;t=3600"#),
                (get("//login"), REFUSED),
                (get("/login?a=b"), REFUSED),
                (Asked { method: "POST", ..get("/login") }, "200"),
            ],
        ),
        case(
            "templates",
            "limit = [\"a=1/h by path\"]\npath-template = [\"/users/{id}\"]",
            vec![(get("/users/1"), r#"200 "a";r=0;t=3600"#), (get("/users/2"), REFUSED)],
        ),
        case(
            "query-and-host",
            r#"limit = ["a=1/h by query api_key for host example.com"]"#,
            vec![
                (get("/?api_key=1"), r#"200 "a";r=0;t=3600"#),
                (get("/?api_key=2"), r#"200 "a";r=0;t=3600"#),
                (get("/x?api%5Fkey=1"), REFUSED),
            ],
        ),
        case(
            "all-or-none",
            r#"limit = ["a=1/h by ip", "b=9/h by nothing"]"#,
            vec![
                (get("/"), r#"200 "a";r=0;t=3600, "b";r=8;t=400"#),
                (
                    get("/"),
                    r#"429 "a";r=0;t=3600, "b";r=8;t=400 retry 3600 type application/problem+json "rate_limited" "a""#,
                ),
                (get("/").from("192.0.2.2:80"), r#"200 "a";r=0;t=3600, "b";r=7;t=400"#),
            ],
        ),
        case(
            "classes",
            "limit = [\"a=1/h class paid 2/h class bad blocked by ip class by header x-plan\"]\n\
             trust-headers = [\"x-plan\"]",
            vec![
                (get("/").with("x-plan", "paid"), r#"200 "a";r=1;t=1800"#),
                (get("/"), r#"200 "a";r=0;t=3600"#),
                (get("/").with("x-plan", "paid"), r#"200 "a";r=0;t=1800"#),
                (get("/").with("x-plan", "bad"), r#"403 "blocked" "a""#),
                (get("/"), REFUSED),
            ],
        ),
        case(
            "route-metadata",
            "limit = [\"a=1/h by header x-tenant else allow\"]\nroute-metadata = { x-tenant = \"com.example/tenant\" }",
            vec![
                (tenant("t1"), r#"200 "a";r=0;t=3600"#),
                (tenant("t1").from("192.0.2.2:80"), REFUSED),
                // A client's own header is ignored.
                (get("/").with("x-tenant", "t1"), "200"),
            ],
        ),
        case(
            "route-metadata-host",
            "limit = [\"a=1/h by header host else allow\"]\nroute-metadata = { host = \"com.example/tenant\" }",
            vec![
                (tenant("t1"), r#"200 "a";r=0;t=3600"#),
                (tenant("t1"), REFUSED),
                // The client's own host is ignored.
                (get("/"), "200"),
            ],
        ),
        case(
            "charge-by-status",
            "limit = [\"a=1/h by ip\"]\ncharge-if = { a = \"401, 5xx\" }",
            vec![
                (get("/"), r#"200 "a";r=0;t=3600"#),
                (get("/").answered(401), r#"401 "a";r=0;t=3600"#),
                (get("/"), REFUSED),
            ],
        ),
        case(
            "grpc",
            r#"limit = ["a=1/h by ip"]"#,
            vec![
                (grpc("/helloworld.Greeter/SayHello"), r#"200 "a";r=0;t=3600"#),
                (
                    grpc("/helloworld.Greeter/SayHello"),
                    r#"200 "a";r=0;t=3600 retry 3600 grpc 8 type application/grpc"#,
                ),
            ],
        ),
        case(
            "address-in-one-field",
            "limit = [\"a=1/h by ip\"]\ntrust = [\"192.0.2.0/24\"]\nforwarded-field = \"CF-Connecting-IP\"",
            vec![
                (get("/").with("cf-connecting-ip", "198.51.100.1"), r#"200 "a";r=0;t=3600"#),
                (get("/").with("cf-connecting-ip", "198.51.100.2"), r#"200 "a";r=0;t=3600"#),
                (get("/").with("cf-connecting-ip", "198.51.100.1").from("192.0.2.2:80"), REFUSED),
                (get("/").with("cf-connecting-ip", "2001:db8::1"), r#"200 "a";r=0;t=3600"#),
                (get("/").with("cf-connecting-ip", "2001:db8::2"), REFUSED),
                // A client that does not pass the proxies cannot choose its address.
                (
                    get("/").with("cf-connecting-ip", "198.51.100.3").from("203.0.113.9:80"),
                    r#"200 "a";r=0;t=3600"#,
                ),
                (get("/").with("cf-connecting-ip", "198.51.100.4").from("203.0.113.9:80"), REFUSED),
                // Without the field, the client is the proxy.
                (get("/"), r#"200 "a";r=0;t=3600"#),
                (get("/"), REFUSED),
                (
                    get("/")
                        .with("cf-connecting-ip", "198.51.100.5")
                        .with("cf-connecting-ip", "198.51.100.6"),
                    r#"403 "client_unknown" "a""#,
                ),
            ],
        ),
        case(
            "decisions-as-metadata",
            "limit = [\"a=1/h by ip\", \"b=3/h by ip\"]\nshadow = [\"a\"]\ndynamic-metadata = \"tollgate.test\"",
            vec![
                (get("/"), r#"200 "b";r=2;t=1200 a: allowed/0"#),
                (get("/"), r#"200 "b";r=1;t=1200 a: shadow/0"#),
                (get("/").from("192.0.2.2:80"), r#"200 "b";r=2;t=1200 a: allowed/0"#),
            ],
        ),
        case(
            "shadow-and-exempt",
            "limit = [\"a=1/h by ip\", \"tried=1/d by ip\"]\nshadow = [\"tried\"]\nexcept = [\"/health\", \"preflight\"]",
            vec![
                (get("/health"), "200"),
                (get("/"), r#"200 "a";r=0;t=3600"#),
                (get("/"), REFUSED),
                (get("/health"), "200"),
                (
                    Asked { method: "OPTIONS", ..get("/") }
                        .with("origin", "https://example.com")
                        .with("access-control-request-method", "GET"),
                    "200",
                ),
            ],
        ),
        case(
            "status-and-head",
            "limit = [\"a=1/h by ip\"]\nstatus = 503",
            vec![
                (Asked { method: "HEAD", ..get("/") }, r#"200 "a";r=0;t=3600"#),
                (Asked { method: "HEAD", ..get("/") }, r#"503 "a";r=0;t=3600 retry 3600"#),
            ],
        ),
        case(
            "struct",
            r#"{"limit": [{"name": "a", "quota": "1/h", "by": "ip"}], "max-keys": 1000.0}"#,
            vec![(get("/"), r#"200 "a";r=0;t=3600"#), (get("/"), REFUSED)],
        ),
    ]
}

#[test]
fn the_host_gets_the_answer_of_each_case() {
    for Case { name, config, steps } in all() {
        let module = Module::load(name, config).unwrap();
        for (number, (asked, expected)) in steps.iter().enumerate() {
            assert_eq!(shown(&module.serve(asked)), *expected, "{name}, request {number}");
        }
    }
}
