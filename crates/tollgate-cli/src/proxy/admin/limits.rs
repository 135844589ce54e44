//! Lists the limits, and reads and resets the states of their keys.
//!
//! A key is written as its percent-encoded parts, in the limit's order and joined by `+`:
//! `/limits/per-page/keys/192.0.2.1+%2Flogin` for `by ip+path`. The key is computed like the key of
//! a request with exactly these parts.
//!
//! If a limit has alternative keys, `?alternative=2` selects the second alternative. `?class=paid`
//! selects the key's state in the class `paid`. If the query names no class, the default class is
//! selected.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};
use serde_json::{Value, json};
use tollgate::Decision;
use tollgate_http::program::{self, KeyText, PartText, canonical_path, classes, key_text, of_classes};
use tollgate_http::settings::{Allowance, LayerSettings, LimitPart};
use tollgate_http::{Key, KeyBy, Metrics, PeerAddr, RequestHead};
use tollgate_redis::program::SharedLimit;

use crate::printable::{listed, printable};
use crate::proxy::limits::{AnyLimiter, Limits, is_shadow};
use crate::proxy::problem_details::problem_details;

/// A response of the server for operators.
pub(super) type AdminResponse = Response<Full<Bytes>>;

/// Describes the limits that `is_meant` selects.
pub(super) fn list(
    limits: &Limits,
    metrics: &Metrics,
    is_meant: impl Fn(&LimitPart) -> bool,
) -> AdminResponse {
    let meant = limits.iter().filter(|(limit, _)| is_meant(limit));
    let all = meant.map(|(limit, limiter)| describe(&limits.settings, metrics, limit, limiter));
    super::json(StatusCode::OK, &json!({ "limits": all.collect::<Vec<Value>>() }))
}

fn describe(settings: &LayerSettings, metrics: &Metrics, limit: &LimitPart, limiter: &AnyLimiter) -> Value {
    let local = limiter.local().into_iter().flat_map(|limiter| of_classes(limit, limiter));
    let keys = local.filter_map(|(limiter, _)| Some(limiter.stats()?.keys)).reduce(|sum, keys| sum + keys);
    let classes = limit.classes.iter().map(|(class, allowed)| (class.clone(), allowed.to_string().into()));
    let classes: serde_json::Map<String, Value> = classes.collect();
    json!({
        "name": limit.name,
        "quota": limit.allowance.to_string(),
        "classes": classes,
        "penalty_seconds": limit.penalty.map(|time| time.as_secs_f64()),
        "key": key_text(limit).map(ToString::to_string),
        "algorithm": settings.algorithm.to_string(),
        "shadow": is_shadow(settings, limit),
        "shared": matches!(limiter, AnyLimiter::Shared(_)),
        "keys": keys,
        "decisions": decisions(metrics, &limit.name),
    })
}

/// Returns how many requests a limit has decided on since the start.
fn decisions(metrics: &Metrics, limit: &str) -> u64 {
    let families = program::families(metrics);
    let samples = families.iter().filter(|it| it.name == "tollgate_decisions").flat_map(|it| &it.samples);
    let of_limit = samples.filter(|(labels, _)| labels.iter().any(|it| *it == ("limit", limit.to_owned())));
    of_limit.map(|(_, count)| count).sum()
}

/// Reads or resets the state of a key. `key` contains the key's text and the query. A limit that
/// counts all requests together needs no `key`.
pub(super) async fn answer(
    limits: &Limits,
    metrics: &Metrics,
    name: &str,
    key: Option<(&str, Option<&str>)>,
    reset: bool,
) -> AdminResponse {
    let name = match decoded(name) {
        Ok(name) => name,
        Err(why) => return problem_details(StatusCode::BAD_REQUEST, &why),
    };
    let Some((limit, limiter)) = limits.iter().find(|(limit, _)| limit.name == name) else {
        let is_part = |limit: &LimitPart| limit.text_name == name;
        let parts: Vec<&LimitPart> = limits.iter().map(|(limit, _)| limit).filter(|it| is_part(it)).collect();
        if !parts.is_empty() && key.is_none() && !reset {
            return list(limits, metrics, is_part);
        }
        if !parts.is_empty() {
            let parts = listed(parts.iter().map(|limit| limit.name.as_bytes()));
            let detail = format!("The limit has a part for each of its rates: name one of {parts}.");
            return problem_details(StatusCode::BAD_REQUEST, &detail);
        }
        let detail = format!("There is no limit `{}`; /limits lists them.", printable(name.as_bytes()));
        return problem_details(StatusCode::NOT_FOUND, &detail);
    };
    let which =
        match key.and_then(|(_, query)| query).map_or(Ok(Which::default()), |query| which(limit, query)) {
            Ok(which) => which,
            Err(why) => return problem_details(StatusCode::BAD_REQUEST, &why),
        };
    let key = match (key_text(limit), key) {
        (None, None) => Ok(Key::new(&limit.name, [0_u64; 0])),
        (Some(_), None) if !reset => {
            return super::json(StatusCode::OK, &describe(&limits.settings, metrics, limit, limiter));
        }
        (Some(by), None) => Err(format!(
            "The limit has a state for each key ({by}): name one, as in /limits/{}/keys/KEY.",
            utf8_percent_encode(&limit.name, NON_ALPHANUMERIC)
        )),
        (None, Some(_)) => Err("The limit counts all requests together and has no keys.".to_owned()),
        (Some(by), Some((text, _))) => key_of(&limits.settings, limit, by, text, which.alternative),
    };
    let key = match key {
        Ok(key) => key,
        Err(why) => return problem_details(StatusCode::BAD_REQUEST, &why),
    };
    let uncounted = |allowance: Allowance| {
        let detail = format!("The limit counts nothing here: it says `{allowance}`.");
        problem_details(StatusCode::BAD_REQUEST, &detail)
    };
    // A limit without classes has the class `None` alone, which `which` then selects.
    let of_class = classes(limit).find(|(class, _)| *class == which.class.as_deref());
    let allowance = of_class.map_or(limit.allowance, |(_, allowance)| allowance);
    if matches!(allowance, Allowance::Unlimited | Allowance::Blocked) {
        return uncounted(allowance);
    }
    match limiter {
        AnyLimiter::Local(limiter) => {
            // `which` has already checked that the limit has this class.
            let limiter = limiter.class(which.class.as_deref()).unwrap_or_else(|| limiter.clone());
            match (reset, limiter.peek(&key)) {
                (false, Some(peeked)) => state(&limit.name, which.class.as_deref(), &peeked),
                (true, Some(_)) => {
                    limiter.reset(&key);
                    done()
                }
                (_, None) => uncounted(limiter.allowance()),
            }
        }
        AnyLimiter::Shared(SharedLimit::InFlight(shared)) if !reset => {
            let in_flight = shared.in_flight(&key).await;
            let remaining = shared.limit().saturating_sub(in_flight);
            let body = json!({
                "limit": limit.name,
                "class": which.class,
                "allowed": remaining > 0,
                "capacity": shared.limit(),
                "remaining": remaining,
            });
            super::json(StatusCode::OK, &body)
        }
        AnyLimiter::Shared(SharedLimit::InFlight(..)) => {
            let detail = "What is in flight on other machines can't be reset: it ends with its requests.";
            problem_details(StatusCode::BAD_REQUEST, detail)
        }
        AnyLimiter::Shared(SharedLimit::Rate(limiter)) => {
            let of_class = which.class.as_deref().and_then(|class| limiter.class(class));
            // Only the default class has no limiter of its own.
            let limiter = of_class.as_ref().unwrap_or(&**limiter);
            if !reset {
                return state(&limit.name, which.class.as_deref(), &limiter.peek(&key).await);
            }
            match limiter.reset(&key).await {
                Ok(()) => done(),
                Err(error) => problem_details(StatusCode::BAD_GATEWAY, &error.to_string()),
            }
        }
    }
}

/// The state that a query selects: the number of the alternative (starting at 1) and the class.
struct Which {
    alternative: usize,
    class: Option<String>,
}

impl Default for Which {
    fn default() -> Self {
        Self { alternative: 1, class: None }
    }
}

/// Parses the query of a key.
fn which(limit: &LimitPart, query: &str) -> Result<Which, String> {
    let mut which = Which::default();
    for pair in query.split('&') {
        match pair.split_once('=') {
            // The number is validated together with the alternatives.
            Some(("alternative", number)) => which.alternative = number.parse().unwrap_or(0),
            Some(("class", class)) => {
                let class = decoded(class)?;
                let names: Vec<&str> = classes(limit).filter_map(|(class, _)| class).collect();
                if !names.contains(&&*class) {
                    let class = printable(class.as_bytes());
                    return Err(if names.is_empty() {
                        format!("The limit has no classes: leave `class={class}` out.")
                    } else {
                        let names = listed(names.iter().map(|name| name.as_bytes()));
                        format!(
                            "The limit has no class `{class}`: expected one of {names}; without a class, the default \
                             class is meant."
                        )
                    });
                }
                which.class = Some(class.into_owned());
            }
            _ => {
                return Err(format!(
                    "Unknown parameter `{}`: expected `alternative=NUMBER` or `class=NAME`.",
                    printable(pair.as_bytes())
                ));
            }
        }
    }
    Ok(which)
}

fn done() -> AdminResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn state(name: &str, class: Option<&str>, peeked: &Decision) -> AdminResponse {
    // While requests are in flight, the time until the reset is unknown.
    let reset_after = Some(peeked.reset_after()).filter(|time| *time < Duration::MAX);
    let body = json!({
        "limit": name,
        "class": class,
        "allowed": peeked.is_allowed(),
        "capacity": peeked.capacity(),
        "remaining": peeked.remaining(),
        "retry_after_seconds": peeked.retry_after().map(|time| time.as_secs_f64()),
        "reset_after_seconds": reset_after.map(|time| time.as_secs_f64()),
        "source": format!("{:?}", peeked.source()).to_lowercase(),
    });
    super::json(StatusCode::OK, &body)
}

/// Decodes the name of a limit or a class. A name must be UTF-8, whereas a part of a key may
/// consist of any bytes.
fn decoded(text: &str) -> Result<Cow<'_, str>, String> {
    let refused = |_| format!("`{}` is not UTF-8 when it is decoded.", printable(text.as_bytes()));
    percent_decode_str(text).decode_utf8().map_err(refused)
}

/// Returns the key of a request with these parts.
fn key_of(
    settings: &LayerSettings,
    limit: &LimitPart,
    by: &KeyText,
    text: &str,
    alternative: usize,
) -> Result<Key, String> {
    let count = by.alternatives.len();
    let parts = alternative.checked_sub(1).and_then(|place| by.alternatives.get(place));
    let parts = parts.ok_or_else(|| match count {
        1 => format!("The key of this limit ({by}) has no alternatives: leave `alternative` out."),
        _ => format!("The key of this limit ({by}) has alternatives 1 to {count}: ?alternative=1."),
    })?;
    let values: Vec<&str> = text.split('+').collect();
    if values.len() != parts.len() {
        return Err(format!(
            "The key has {} parts, and `{}` has {}: percent-encode each and join them with `+`.",
            parts.len(),
            printable(text.as_bytes()),
            values.len()
        ));
    }
    let mut request = Request::new(());
    for (part, value) in parts.iter().zip(values) {
        set(&mut request, part, &Cow::from(percent_decode_str(value)))?;
    }
    // An unknown key has no state, so there is no need to read the files of known keys.
    let found = |parts: &Vec<PartText>| parts.iter().map(|part| found(part).clone()).collect();
    let by = KeyText { alternatives: by.alternatives.iter().map(found).collect(), otherwise: by.otherwise };
    let client = || KeyBy::peer().ipv6_prefix(settings.ipv6_prefix);
    let by = by.key_by(client, || program::path(settings), |_, _| None);
    let key = by.key(&limit.name, RequestHead::of(&request)).map_err(|error| error.to_string())?;
    key.ok_or_else(|| "A request with these parts would have no key.".to_owned())
}

/// Returns the part itself, without its list of known values.
fn found(part: &PartText) -> &PartText {
    match part {
        PartText::Known { part, .. } => part,
        part => part,
    }
}

/// Sets a part of a key in a request.
fn set(request: &mut Request<()>, part: &PartText, value: &[u8]) -> Result<(), String> {
    let refused = |what: &str| format!("`{}` is not {what}.", printable(value));
    match part {
        PartText::Known { part, .. } => return set(request, part, value),
        PartText::Ip => {
            let ip = str::from_utf8(value).ok().and_then(|text| text.parse::<IpAddr>().ok());
            let ip = ip.ok_or_else(|| refused("an address such as 192.0.2.1"))?;
            request.extensions_mut().insert(PeerAddr(SocketAddr::new(ip, 0)));
        }
        PartText::Method => {
            *request.method_mut() = Method::from_bytes(value).map_err(|_| refused("a method such as GET"))?;
        }
        PartText::Header(name) => {
            let name: HeaderName = name.parse().map_err(|_| refused("the value of a header"))?;
            let value = HeaderValue::from_bytes(value).map_err(|_| refused("the value of a header"))?;
            request.headers_mut().insert(name, value);
        }
        PartText::Path => {
            let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
            // Limits count the canonical form of a path, and a URI can contain this form.
            let path = canonical_path(value);
            let path = value.starts_with(b"/").then(|| format!("{}{query}", String::from_utf8_lossy(&path)));
            target(request, path).ok_or_else(|| refused("a path such as /login"))?;
        }
        PartText::Query(name) => {
            let encoded = |text: &[u8]| percent_encode(text, NON_ALPHANUMERIC).to_string();
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
            let more = format!("{}={}", encoded(name.as_bytes()), encoded(value));
            let query = if query.is_empty() { more } else { format!("{query}&{more}") };
            target(request, Some(format!("{path}?{query}")))
                .ok_or_else(|| refused("the value of a parameter"))?;
        }
    }
    Ok(())
}

fn target(request: &mut Request<()>, target: Option<String>) -> Option<()> {
    let target = PathAndQuery::try_from(target?).ok()?;
    *request.uri_mut() = Uri::from(target);
    Some(())
}
