//! Tests the layer's response fields for any names, quotas, costs and requests. A strict parser
//! must accept the fields, the fields must contain the decision's figures, and `Retry-After` must
//! be correct.

use super::input::Input;
use super::rule::quota;
use crate::structured::{policies, rate_limit};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{Algorithm, Decision, Limiter, ManualClock, Quota, SingleLimiter, Tick};
use tollgate_http::program::{Fault, fault};
use tollgate_http::{DecisionEvent, Key, KeyBy, Limit, RateLimitBuilder, RateLimitLayer, WhenNoKey};
use tower::{Layer, ServiceExt};

/// The maximum Integer in structured fields.
const MAX_INTEGER: u64 = 999_999_999_999_999;
const MAX_REQUESTS: usize = 12;
/// The longest wait that the test tries, in seconds. The clock ends about 73 years after its
/// origin.
const MAX_WAIT: u64 = 100_000_000;

pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let names: Vec<String> = (0..1 + input.below(4)).map(|_| name(&mut input)).collect();
    let Some(site) = Site::new(&names, flags, &mut input) else { return };
    for _ in 0..MAX_REQUESTS {
        if input.is_empty() {
            return;
        }
        site.clock.advance(Duration::from_nanos(input.number() >> 8));
        let asked = Asked::read(&mut input);
        let Some(wait) = site.ask(&asked, false) else { continue };
        // No other requests are sent, so the request must pass after the stated wait.
        if wait <= MAX_WAIT {
            site.clock.advance(Duration::from_secs(wait));
            site.ask(&asked, true);
        }
    }
}

/// Returns either a name that a layer accepts, or any text.
fn name(input: &mut Input<'_>) -> String {
    let bytes: Vec<u8> = (0..input.below(12)).map(|_| input.byte()).collect();
    match input.below(8) {
        0 => String::from_utf8_lossy(&bytes).into_owned(),
        1 => "x".repeat(input.byte().into()),
        2 => "50%41 of \"all\" \\".to_owned(),
        _ => bytes.iter().map(|byte| char::from(b' ' + byte % 95)).collect(),
    }
}

fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// One limit's decision about a request.
type Said = (String, Option<Decision>);

struct Site {
    layer: RateLimitLayer,
    clock: ManualClock,
    /// The limits that are not in shadow mode, with the quotas that responses show.
    shown: Vec<(String, Quota)>,
    told: Arc<Mutex<Vec<Said>>>,
    legacy: bool,
    plain: bool,
}

impl Site {
    /// Returns `None` if a limiter or the layer refuses the configuration. The error message must
    /// then be helpful.
    fn new(names: &[String], flags: u8, input: &mut Input<'_>) -> Option<Self> {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(input.number() >> 4));
        let told: Arc<Mutex<Vec<Said>>> = Arc::default();
        let (legacy, plain) = (flags & 1 != 0, flags & 2 != 0);
        let mut shown = Vec::new();
        let telling = Arc::clone(&told);
        let mut builder = RateLimitLayer::builder().on_decision(move |event: &DecisionEvent<'_>| {
            if !event.is_shadow {
                telling.lock().unwrap().push((event.limit_name.to_owned(), event.decision.copied()));
            }
        });
        for name in names {
            let quota = if input.below(4) == 0 { quota(input) } else { usual(input) };
            let limit = limit(name, quota, &clock, input)?;
            let shadow = input.below(4) == 0;
            builder = builder.limit(if shadow { limit.shadow() } else { limit });
            if !shadow {
                shown.push((name.clone(), quota));
            }
        }
        builder = if legacy { builder.legacy_fields() } else { builder };
        builder = if plain { builder.plain_text() } else { builder };
        let layer = built(builder, names)?;
        Some(Self { layer, clock, shown, told, legacy, plain })
    }

    /// Sends a request and checks the response. Returns how long to wait if the request was refused
    /// and a retry can pass.
    fn ask(&self, asked: &Asked, passes: bool) -> Option<u64> {
        self.told.lock().unwrap().clear();
        let handler = tower::service_fn(|_: Request<()>| {
            ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"handled")))))
        });
        let Ok(response) = pollster::block_on(self.layer.layer(handler).oneshot(asked.request()));
        let (parts, body) = response.into_parts();
        let Ok(body) = pollster::block_on(body.collect());
        let said = std::mem::take(&mut *self.told.lock().unwrap());
        let decided: Vec<(&str, &Decision)> =
            said.iter().filter_map(|(name, decision)| Some((name.as_str(), decision.as_ref()?))).collect();
        let refused: Vec<_> = decided.iter().filter(|(_, decision)| !decision.is_allowed()).collect();
        let binding =
            refused.iter().map(|(_, decision)| decision).max_by_key(|it| wait(it).unwrap_or(u64::MAX));
        let wait = binding.and_then(|decision| wait(decision));
        assert!(!passes || refused.is_empty(), "{decided:?}");

        self.fields(&parts.headers, &decided, wait.filter(|_| binding.is_some()));
        let retry_after = parts.headers.get("retry-after").map(number);
        assert_eq!(retry_after, wait, "{decided:?}");
        let handled = body.to_bytes();
        if refused.is_empty() {
            assert_eq!((parts.status.as_u16(), &handled[..]), (200, &b"handled"[..]));
            return None;
        }
        let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
        if asked.grpc_type && asked.method == Method::POST {
            assert_eq!((parts.status.as_u16(), parts.headers["grpc-status"].as_bytes()), (200, &b"8"[..]));
            let message = percent_encoding::percent_decode(parts.headers["grpc-message"].as_bytes());
            self.names_one(&message.decode_utf8().expect("a message is text"), &names);
        } else {
            assert_eq!(parts.status.as_u16(), 429);
            self.answer(asked, &handled, &names, wait);
        }
        wait
    }

    fn fields(&self, headers: &HeaderMap, decided: &[(&str, &Decision)], wait: Option<u64>) {
        assert!(headers.values().all(|value| value.to_str().is_ok()), "{headers:?}");
        let left = rate_limit(headers);
        let stated: Vec<_> =
            decided.iter().map(|(name, it)| ((*name).to_owned(), it.remaining().min(MAX_INTEGER))).collect();
        assert_eq!(left.iter().map(|(name, left, _)| (name.clone(), *left)).collect::<Vec<_>>(), stated);
        for ((_, decision), (_, _, after)) in decided.iter().zip(&left) {
            if decision.is_allowed() {
                // The stated time is when the limit's next tokens become available. If another
                // limit refused the request, this time does not exceed the wait.
                assert!(
                    after.is_none_or(|after| after >= 1 && wait.is_none_or(|wait| after <= wait)),
                    "{left:?}"
                );
            } else {
                assert_eq!(*after, self::wait(decision).map(|it| it.min(MAX_INTEGER)), "{left:?}");
            }
        }
        let policies = policies(headers);
        let names: Vec<&str> = policies.iter().map(|(name, ..)| name.as_str()).collect();
        let shown: Vec<&str> = self.shown.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, shown);
        for ((_, tokens, window), (_, quota)) in policies.iter().zip(&self.shown) {
            match window {
                // The stated rate equals the quota's rate exactly.
                Some(window) => {
                    let told = u128::from(*tokens) * quota.period().as_nanos();
                    let stated = u128::from(quota.tokens()) * u128::from(*window) * 1_000_000_000;
                    assert!(told == stated || *tokens == MAX_INTEGER, "{policies:?} {quota:?}");
                }
                None => assert_eq!(*tokens, quota.tokens().min(MAX_INTEGER)),
            }
        }
        let legacy =
            ["limit", "remaining", "reset"].map(|it| headers.get(format!("x-ratelimit-{it}")).map(number));
        let some = legacy[0].is_some();
        assert_eq!((some, legacy[1].is_some()), (self.legacy && !decided.is_empty(), some), "{legacy:?}");
    }

    /// Checks the body of a refusal.
    fn answer(&self, asked: &Asked, body: &[u8], names: &[&str], wait: Option<u64>) {
        if asked.method == Method::HEAD {
            assert!(body.is_empty());
        } else if self.plain {
            self.names_one(str::from_utf8(body).expect("it is text"), names);
        } else {
            let problem: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
            let violated: Vec<&str> = problem["violated-policies"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it.as_str().unwrap())
                .collect();
            assert_eq!(problem["limit"], violated[0]);
            let sorted = |names: &[&str]| {
                let mut names = names.to_vec();
                names.sort_unstable();
                names.join("\n")
            };
            assert_eq!(sorted(&violated), sorted(names));
            assert_eq!(problem["retry_after"].as_u64(), wait);
            self.names_one(problem["detail"].as_str().unwrap(), names);
        }
    }

    /// Asserts that a sentence contains one of the names in its `Debug` format.
    fn names_one(&self, sentence: &str, names: &[&str]) {
        assert!(names.iter().any(|name| sentence.contains(&format!("{name:?}"))), "{sentence} {names:?}");
    }
}

fn number(value: &HeaderValue) -> u64 {
    let text = value.to_str().expect("a number is text");
    let number = text.parse().expect("a whole number");
    assert_eq!(u64::to_string(&number), text, "no sign, no zeros before it");
    number
}

/// Returns the wait that a refusal states: a whole number of seconds, and at least one.
fn wait(decision: &Decision) -> Option<u64> {
    let wait = decision.retry_after().filter(|_| !decision.is_allowed())?;
    Some(u64::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1))
}

/// Returns a quota that a limiter most likely accepts.
fn usual(input: &mut Input<'_>) -> Quota {
    let nanos =
        [1_000_000_000, 1_500_000_000, 10_000_000, 86_400_000_000_000, 1_000_000_001, 7][input.below(6)];
    let quota = Quota::new(1 + u64::from(input.byte() >> 3), Duration::from_nanos(nanos));
    if input.below(2) == 0 { quota } else { quota.burst(1 + u64::from(input.byte() >> 3)) }
}

fn limit(name: &str, quota: Quota, clock: &ManualClock, input: &mut Input<'_>) -> Option<Limit> {
    let algorithm = Algorithm::ALL[input.below(Algorithm::ALL.len())];
    let global = input.below(2) == 0;
    let limit = if global || !Algorithm::PACKED.contains(&algorithm) {
        let built = SingleLimiter::builder(quota).algorithm(algorithm).clock(clock).build();
        built.map(|limiter| Limit::new(name, limiter))
    } else {
        let built = Limiter::<Key>::builder(quota).algorithm(algorithm).clock(clock).max_keys(64).build();
        let by = KeyBy::header("x-key").or(KeyBy::query("key")).or(KeyBy::path());
        built.map(|limiter| Limit::new(name, limiter).by(by).when_no_key(WhenNoKey::Deny))
    };
    let cost = u64::from(input.byte() >> 5);
    match limit {
        Ok(limit) => Some(limit.cost(cost)),
        Err(refused) => {
            assert!(refused.to_string().contains("allowed: "), "{refused}");
            None
        }
    }
}

fn built(builder: RateLimitBuilder, names: &[String]) -> Option<RateLimitLayer> {
    match builder.build() {
        Ok(layer) => {
            assert!(names.iter().all(|name| is_name(name)), "{names:?}");
            Some(layer)
        }
        Err(refused) => {
            assert!(refused.to_string().contains(": expected "), "{refused}");
            if let Fault::Name { name, .. } = fault(&refused) {
                assert!(names.contains(name) && !is_name(name), "{refused}");
            }
            None
        }
    }
}

/// A request that can be sent any number of times.
struct Asked {
    method: Method,
    /// Whether the request has the content type of gRPC. It is a gRPC request only if its method is
    /// POST.
    grpc_type: bool,
    uri: http::Uri,
    key: HeaderValue,
}

impl Asked {
    fn read(input: &mut Input<'_>) -> Self {
        let kind = input.byte();
        let bytes: Vec<u8> = (0..input.below(10)).map(|_| input.byte()).collect();
        let uri = http::Uri::try_from([b"/", &bytes[..]].concat()).unwrap_or_default();
        let key = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""));
        let method = [Method::HEAD, Method::POST, Method::GET, Method::GET][usize::from(kind & 3)].clone();
        Self { method, grpc_type: kind & 12 == 0, uri, key }
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert("x-key", self.key.clone());
        if self.grpc_type {
            request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        }
        request
    }
}
