//! The proxy's `--limit`: parsing and printing are inverse, and an error says what is allowed.

use super::input::Input;
use super::rule;
use std::time::Duration;
use tollgate::Quota;
use tollgate_cli::failure::Failure;
use tollgate_cli::proxy::limits::build;
use tollgate_cli::proxy::parse_named_limit;
use tollgate_cli::proxy::shared::{SharedSettings, Store};
use tollgate_http::WhenNoKey;
use tollgate_http::program::{ClassByText, KeyText, PartText, class_by_text, key_text, limit_text};
use tollgate_http::settings::{LayerSettings, LimitText};

pub fn body(data: &[u8]) {
    any_text(&String::from_utf8_lossy(data));
    // The inverse direction.
    let mut input = Input(data);
    let meant = limit(&mut input);
    if !(meant.quota.period().is_zero() || meant.quota.period() > Quota::MAX_PERIOD) {
        let text = written(&meant, &mut input);
        match parse_named_limit(&text) {
            Ok(read) => assert_eq!(read, meant),
            Err(failure) => panic!("{text:?}: {}", message(failure)),
        }
    }
}

fn any_text(text: &str) {
    match parse_named_limit(text) {
        Ok(limit) => {
            assert_eq!(limit.to_string().parse(), Ok(limit.clone()), "{text:?}");
            // Prints the parsed limit and parses it again; the spaces of a text don't matter.
            let again = parse_named_limit(&written(&limit, &mut Input(&[])));
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

/// Asserts that the layer accepts the limit, or says what it would accept.
fn enforced(limit: LimitText) {
    let settings = LayerSettings { limits: vec![limit], max_keys: 16, ..LayerSettings::default() };
    // As a local limit and as a shared one; a client connects only when it is used.
    let shared = SharedSettings {
        url: "redis://127.0.0.1".to_owned(),
        deadline: Duration::from_millis(50),
        when_unavailable: None,
        lease: None,
        max_unsynced: None,
    };
    let store = Store::new(shared).unwrap_or_else(|failure| panic!("{}", message(failure)));
    for store in [None, Some(&store)] {
        match build(&settings, store, None, |builder| builder) {
            Ok(built) => {
                assert_eq!((built.layer.is_some(), built.limiters.len()), (true, 1));
            }
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

/// Returns any limit that can be written.
fn limit(input: &mut Input<'_>) -> LimitText {
    let name = ["all", "per-ip", "a b", "by ip", "burst", "+", "ü else"][input.below(7)].to_owned();
    let quota = match input.below(3) {
        0 => Quota::new(1 + u64::from(input.byte()), Duration::from_secs(1 + u64::from(input.byte()))),
        1 => Quota::per_second(input.number().max(1)).burst(1 + u64::from(input.byte())),
        _ => rule::quota(input),
    };
    let key = (input.below(8) > 0).then(|| KeyText {
        alternatives: (0..1 + input.below(3)).map(|_| parts(input)).collect(),
        no_key: [WhenNoKey::Deny, WhenNoKey::Allow, WhenNoKey::Share][input.below(3)],
    });
    let (classes, class_by) = match key.is_some() && input.below(3) == 0 {
        true => classes(input),
        false => (Vec::new(), None),
    };
    limit_text(name, quota, key, classes, class_by)
}

fn classes(input: &mut Input<'_>) -> (Vec<(String, Quota)>, Option<ClassByText>) {
    let quotas = (0..1 + input.below(3)).map(|_| {
        let name = ["paid", "partner", "burst", "+", "else", "ü"][input.below(6)].to_owned();
        (name, Quota::per_second(input.number().max(1)).burst(1 + u64::from(input.byte())))
    });
    let quotas = quotas.collect();
    let name = ["x-plan", "class", "header", "in"][input.below(4)].to_owned();
    let file = ["/etc/plans", "class", "in"][input.below(3)].to_owned();
    let by = match input.below(3) {
        0 => ClassByText::Header(name),
        1 => ClassByText::HeaderIn { header: name, file },
        _ => ClassByText::QueryIn { parameter: name, file },
    };
    (quotas, Some(by))
}

fn parts(input: &mut Input<'_>) -> Vec<PartText> {
    let name = |input: &mut Input<'_>| {
        ["x-api-key", "ip", "by", "nothing", "header", "k=v"][input.below(6)].to_owned()
    };
    let part = |input: &mut Input<'_>| match input.below(6) {
        5 => {
            let file = ["/etc/keys", "keys.txt", "known"][input.below(3)].to_owned();
            PartText::Known { part: Box::new(PartText::Header(name(input))), file }
        }
        0 => PartText::Ip,
        1 => PartText::Method,
        2 => PartText::Path,
        3 => PartText::Header(name(input)),
        _ => PartText::Query(name(input)),
    };
    (0..1 + input.below(3)).map(|_| part(input)).collect()
}

/// Returns the text of a limit. All optional parts are written except the policy for requests
/// without a key; the bytes choose the spaces.
fn written(limit: &LimitText, input: &mut Input<'_>) -> String {
    let mut space = |least: &'static str| [least, " ", "  ", "\t", " \u{a0}\n"][input.below(5)];
    let mut text = format!("{}{}={}{}", limit.name, space(""), space(""), limit.quota);
    for (name, quota) in &limit.classes {
        text += &format!("{}class{}{name}{}{quota}", space(" "), space(" "), space(" "));
    }
    text += &format!("{}by{}", space(" "), space(" "));
    let Some(key) = key_text(limit) else { return text + "nothing" };
    for (index, parts) in key.alternatives.iter().enumerate() {
        if index > 0 {
            text += &format!("{}or{}", space(" "), space(" "));
        }
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                text += &format!("{}+{}", space(""), space(""));
            }
            match part {
                PartText::Known { part, file } => {
                    let (kind, name) = match &**part {
                        PartText::Header(name) => ("header", name),
                        PartText::Query(name) => ("query", name),
                        other => panic!("{other:?} cannot be known"),
                    };
                    text += &format!("{kind}{}{name}{}known{}{file}", space(" "), space(" "), space(" "));
                }
                PartText::Ip => text += "ip",
                PartText::Method => text += "method",
                PartText::Path => text += "path",
                PartText::Header(name) => text += &format!("header{}{name}", space(" ")),
                PartText::Query(name) => text += &format!("query{}{name}", space(" ")),
            }
        }
    }
    match key.no_key {
        // The default, which may be left out.
        WhenNoKey::Deny if space("").is_empty() => {}
        WhenNoKey::Deny => text += " else deny",
        WhenNoKey::Allow => text += " else allow",
        WhenNoKey::Share => text += " else share",
        _ => panic!("there is no other"),
    }
    let Some(by) = class_by_text(limit) else { return text };
    text += &format!("{}class{}by{}", space(" "), space(" "), space(" "));
    let mut in_file = |kind: &str, name: &str, file: &str| {
        format!("{kind}{}{name}{}in{}{file}", space(" "), space(" "), space(" "))
    };
    text += &match by {
        ClassByText::Header(name) => format!("header {name}"),
        ClassByText::HeaderIn { header, file } => in_file("header", header, file),
        ClassByText::QueryIn { parameter, file } => in_file("query", parameter, file),
    };
    text
}
