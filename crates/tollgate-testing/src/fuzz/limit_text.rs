//! Tests the text of the proxy's `--limit`. Parsing and printing must be inverse operations, and an
//! error must state what is allowed.

use super::input::Input;
use super::rule;
use std::time::Duration;
use tollgate::Quota;
use tollgate_cli::failure::Failure;
use tollgate_cli::proxy::limits::{NAMES, build};
use tollgate_cli::proxy::parse_named_limit;
use tollgate_http::settings::{LayerSettings, LimitText, SavedLimits};
use tollgate_redis::program::{Store, StoreSettings};

pub fn body(data: &[u8]) {
    any_text(&String::from_utf8_lossy(data));
    // The text of a generated limit must survive parsing and printing.
    let mut input = Input(data);
    let text = limit(&mut input);
    let read = parse_named_limit(&text).unwrap_or_else(|failure| panic!("{text:?}: {}", message(failure)));
    assert_eq!(read.to_string(), text);
    let spaced = spaced(&text, &mut input);
    match parse_named_limit(&spaced) {
        Ok(again) => assert_eq!(again, read, "{spaced:?}"),
        Err(failure) => panic!("{spaced:?}: {}", message(failure)),
    }
}

fn any_text(text: &str) {
    match parse_named_limit(text) {
        Ok(limit) => {
            // A parsed limit must survive printing and parsing, regardless of the spaces in the
            // text.
            assert_eq!(limit.to_string().parse(), Ok(limit.clone()), "{text:?}");
            let again = parse_named_limit(&spaced(&limit.to_string(), &mut Input(text.as_bytes())));
            let again = again.unwrap_or_else(|failure| panic!("{text:?}: {}", message(failure)));
            assert_eq!(again, limit, "{text:?}");
            enforced(limit);
        }
        Err(failure) => {
            let message = message(failure);
            assert!(message.starts_with("--limit '"), "{message}");
            let is_helpful = ["allowed", "expected", "leave out"].iter().any(|it| message.contains(it));
            assert!(is_helpful, "{message}");
            assert!(!message.chars().any(|it| it.is_control() && it != '\n'), "{message:?}");
        }
    }
}

/// Returns the text with the spacing after the limit's name changed. Spaces inside quotes are kept.
fn spaced(text: &str, input: &mut Input<'_>) -> String {
    let (name, rest) = text.split_once('=').expect("a limit has a name");
    let mut is_quoted = false;
    let rest: String = rest
        .split_inclusive(' ')
        .map(|piece| {
            is_quoted ^= piece.matches('"').count() % 2 == 1;
            match piece.strip_suffix(' ') {
                Some(word) if !is_quoted => {
                    format!("{word}{}", [" ", "  ", "\t", " \u{a0}\n"][input.below(4)])
                }
                _ => piece.to_owned(),
            }
        })
        .collect();
    let space = [" ", ""][input.below(2)];
    format!("{space}{name}{space}={space}{rest}{space}")
}

/// Asserts that the layer accepts the limit, or returns an error that states what it would accept.
fn enforced(limit: LimitText) {
    let settings = LayerSettings { limits: vec![limit], max_keys: 16, ..LayerSettings::default() };
    // The limit is built both as a local limit and as a shared limit. The shared limit's client
    // does not connect until it is used.
    let shared = StoreSettings {
        addresses: "redis://127.0.0.1".to_owned(),
        sentinels: None,
        deadline: None,
        when_unavailable: None,
        share: None,
        lease: None,
        max_unsynced: None,
    };
    let store = Store::new(shared, NAMES, None).unwrap_or_else(|message| panic!("{message}"));
    for store in [None, Some(&store)] {
        match build(&settings, store, None, SavedLimits::default(), |builder, _| builder) {
            Ok(built) => assert!(built.layer.is_some() && !built.parts.is_empty()),
            Err(failure) => {
                let message = message(failure);
                let is_helpful = message.contains("allowed") || message.contains("expected");
                assert!(message.starts_with("--limit") && is_helpful, "{message}");
            }
        }
    }
}

fn message(failure: Failure) -> String {
    match failure {
        Failure::Refused(message) => message,
        Failure::ReaderLeft | Failure::Logged => panic!("nobody reads"),
    }
}

/// Returns the text of any limit, in its printed form.
fn limit(input: &mut Input<'_>) -> String {
    let name = ["all", "per-ip", "a b", "by ip", "burst", "+", "ü else"][input.below(7)];
    let mut text = format!("{name}={}", allowances(input));
    if input.below(8) == 0 {
        return text + " by nothing" + &scopes(input);
    }
    let (classes, by) = match input.below(3) {
        0 => classes(input),
        _ => (String::new(), String::new()),
    };
    text += &classes;
    // A penalty requires a rate, and no permits.
    let is_of_rates = text.contains('/') && !text.contains(" at once");
    let penalty = match input.below(4) {
        0 if is_of_rates => format!(" then pause {}", ["10min", "1s", "1ns", "90s", "7d"][input.below(5)]),
        _ => String::new(),
    };
    let alternatives = distinct((0..1 + input.below(3)).map(|_| parts(input, &by)));
    let otherwise = ["", " else deny", " else allow", " else share"][input.below(4)];
    text + " by " + &alternatives.join(" or ") + otherwise + &scopes(input) + &by + &penalty
}

fn allowances(input: &mut Input<'_>) -> String {
    match input.below(8) {
        0 => return "unlimited".to_owned(),
        1 => return "blocked".to_owned(),
        _ => {}
    }
    let rates = 1 + input.below(3);
    // If there are several rates, they must have different periods.
    let rate = |number: usize, input: &mut Input<'_>| match (rates, number as u64) {
        (1, _) => quota(input),
        (_, number) => Quota::new(
            1 + u64::from(input.byte()),
            Duration::from_secs(10_007 * (number + 1) + u64::from(input.byte())),
        ),
    };
    let mut all: Vec<String> = (0..rates).map(|number| rate(number, input).to_string()).collect();
    if input.below(3) == 0 {
        all.push(format!("{} at once", 1 + input.below(1_000_000)));
    }
    all.join(" and ")
}

fn quota(input: &mut Input<'_>) -> Quota {
    let quota = match input.below(3) {
        0 => Quota::new(1 + u64::from(input.byte()), Duration::from_secs(1 + u64::from(input.byte()))),
        1 => Quota::per_second(input.number().max(1)).burst(1 + u64::from(input.byte())),
        _ => rule::quota(input),
    };
    // No text has such a period, and a limit of 0 is written as `blocked`.
    let is_refused = quota.tokens() == 0 || quota.period().is_zero() || quota.period() > Quota::MAX_PERIOD;
    if is_refused { Quota::per_day(1) } else { quota }
}

/// Returns a limit's classes, and the rule that selects a request's class.
fn classes(input: &mut Input<'_>) -> (String, String) {
    let first = input.below(6);
    let class = |number: usize, input: &mut Input<'_>| {
        let name = ["paid", "partner", "burst", "+", "else", "ü"][(first + number) % 6];
        format!(" class {name} {}", allowances(input))
    };
    let classes = (0..1 + input.below(3)).map(|number| class(number, input)).collect();
    let name = ["x-plan", "class", "header", "in"][input.below(4)];
    let file = ["/etc/plans", "class", "in"][input.below(3)];
    let by = match input.below(5) {
        0 => format!(" class by header {name}"),
        1 => format!(" class by header {name} in {file}"),
        2 => format!(" class by query {name} in {file}"),
        3 => format!(" class by ip in {file}"),
        _ => format!(" class by key in {file}"),
    };
    (classes, by)
}

fn parts(input: &mut Input<'_>, class_by: &str) -> String {
    let name = |input: &mut Input<'_>| ["x-api-key", "ip", "by", "nothing", "header", "k:v"][input.below(6)];
    let part = |input: &mut Input<'_>| match input.below(6) {
        5 if class_by.starts_with(" class by key") && input.below(2) == 0 => {
            format!("query {} known", name(input))
        }
        5 => format!("header {} known {}", name(input), ["/etc/keys", "keys.txt", "known"][input.below(3)]),
        0 => "ip".to_owned(),
        1 => "method".to_owned(),
        2 => "path".to_owned(),
        3 => format!("header {}", name(input)),
        _ => format!("query {}", name(input)),
    };
    distinct((0..1 + input.below(3)).map(|_| part(input))).join("+")
}

/// Returns each text once. A key with the same part twice is refused.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    texts.for_each(|text| {
        if !all.contains(&text) {
            all.push(text);
        }
    });
    all
}

/// Returns the text that states which requests a limit applies to, and which are exempt.
fn scopes(input: &mut Input<'_>) -> String {
    let mut text = String::new();
    if input.below(2) == 0 {
        text += &format!(" for {}", scope(input));
    }
    if input.below(3) == 0 {
        // Not all requests of the limit may be exempt.
        text += &format!(" except {} header x-exempt", scope(input).replace(" or ", " header x-exempt or "));
    }
    text
}

fn scope(input: &mut Input<'_>) -> String {
    let alternative = |input: &mut Input<'_>| {
        let conditions = [
            ["GET", "POST,PUT", "OPTIONS", "method M-SEARCH"][input.below(4)],
            ["/", "/users/{id}", "/a+b", "/files/{*path}"][input.below(4)],
            ["host a.example", "host *.example", "host a.example:8080"][input.below(3)],
            ["header x-beta", "header x-plan=free", "header x-plan=\"free trial\""][input.below(3)],
            ["from 10.0.0.0/8", "from 2001:db8::/32", "from 192.0.2.1/32"][input.below(3)],
        ];
        let chosen = 1 + input.below(31);
        let conditions = conditions.iter().enumerate().filter(|(bit, _)| chosen & (1 << bit) != 0);
        let conditions: Vec<&str> = conditions.map(|(_, condition)| *condition).collect();
        conditions.join(" ")
    };
    let alternatives: Vec<String> = (0..1 + input.below(3)).map(|_| alternative(input)).collect();
    alternatives.join(" or ")
}
