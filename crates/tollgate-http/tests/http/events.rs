//! Tests the events for the `tracing` crate.

use super::settling::{json, layer, pull_all, send};
use super::site::{Running, from, site, with};
use http::Request;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};
use tollgate::{Limiter, ManualClock, Quota};
use tollgate_http::settings::LayerSettings;
use tollgate_http::{ClassBy, KeyBy, Limit, ResponseCost, WhenNoKey};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

/// A subscriber that records the events: level and fields.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tollgate_http"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Notes {
    /// Records the events of this thread while `act` runs.
    fn listen<T>(&self, act: impl FnOnce() -> T) -> T {
        // If a process has a single subscriber, the first thread to reach an event decides for all
        // threads whether the event is recorded. With these additional subscribers, each thread
        // decides for itself.
        static OTHERS: LazyLock<[Dispatch; 2]> =
            LazyLock::new(|| [(); 2].map(|()| Dispatch::new(Notes::default())));
        LazyLock::force(&OTHERS);
        dispatcher::with_default(&Dispatch::new(self.clone()), act)
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

#[test]
fn refusals_shadows_and_missing_keys_are_told_and_the_warning_comes_once() {
    let site = site();
    let (shadow, keyed) = (site.single(Quota::per_hour(1)), site.limiter(Quota::per_minute(1)));
    let site = site
        .limit(Limit::new("shadow", shadow).by(KeyBy::nothing()).shadow())
        .limit(Limit::new("keyed", keyed).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny))
        .run();
    assert_told(|request| site.status(request));
}

#[test]
fn limits_that_must_be_waited_for_tell_the_same() {
    let site = site();
    let (shadow, keyed) = (site.elsewhere(Quota::per_hour(1)), site.elsewhere(Quota::per_minute(1)));
    let site = site
        .limit(Limit::new("shadow", shadow).by(KeyBy::nothing()).shadow())
        .limit(Limit::new("keyed", keyed).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny))
        .run_shared();
    assert_told(|request| site.send(request).status.as_u16());
}

#[test]
fn a_limit_that_is_warned_of_is_told_when_the_layer_is_built() {
    let notes = Notes::default();
    let site = site();
    let limit = Limit::new("keyed", site.limiter(Quota::per_minute(1))).by(KeyBy::header("x-a"));
    let site = site.limit(limit.when_no_key(WhenNoKey::Deny));
    notes.listen(|| drop(site.run()));
    let told = notes.0.lock().unwrap().clone();
    let warning = "WARN message=limit \"keyed\" counts by header `x-a`, which any client can invent";
    assert!(told.len() == 1 && told[0].starts_with(warning), "{told:?}");
}

#[test]
fn a_response_that_is_cut_off_or_costs_more_than_there_is_is_told() {
    let notes = Notes::default();
    notes.listen(|| {
        for settle in [ResponseCost::bytes(1), ResponseCost::bytes(1).cut_off()] {
            let limit = Limit::new("tokens", site().single(Quota::per_hour(5))).settle(settle);
            let layer = layer([limit]);
            pull_all(&mut send(&layer, json(&["abc"])));
            pull_all(&mut send(&layer, json(&["de", "fgh"])));
        }
    });
    let expected = [
        "DEBUG message=tokens could not be charged limit=\"tokens\" shadow=false cost=5 charged=2 unpaid=3",
        "DEBUG message=a response was cut off limit=\"tokens\" cost=2 charged=2 unpaid=0",
    ];
    assert_eq!(*notes.0.lock().unwrap(), expected);
}

#[test]
fn a_class_that_the_limit_does_not_have_is_told_and_the_warning_comes_once() {
    let notes = Notes::default();
    let site = site();
    let limiter = Limiter::builder(Quota::per_hour(9)).class("paid", Quota::per_hour(99)).build().unwrap();
    let by = ClassBy::from_fn(|head| head.header("x-plan").map(|_| "gold"));
    let limit = Limit::new("tier", limiter).by(KeyBy::peer()).class_by(by).when_no_key(WhenNoKey::Deny);
    let site = site.limit(limit).run();
    notes.listen(|| {
        for headers in [&[("x-plan", "gold")][..], &[], &[("x-plan", "gold")]] {
            assert_eq!(site.send(from("192.0.2.1", "/", headers)).status, 200);
        }
    });
    let told = "message=a class that the limit does not have limit=\"tier\" class=\"gold\"";
    assert_eq!(*notes.0.lock().unwrap(), [format!("WARN {told}"), format!("DEBUG {told}")]);
}

#[test]
fn a_trusted_proxy_that_does_not_report_its_clients_is_told_once() {
    let run = |limits: &[&str]| {
        let limits = limits.iter().map(|text| text.parse().unwrap()).collect();
        let trust = vec!["10.0.0.0/8".to_owned()];
        let forwarded_field = "x-real-ip".parse().unwrap();
        let settings = LayerSettings { limits, trust, forwarded_field, ..LayerSettings::default() };
        Running { clock: ManualClock::new(), layer: settings.builder().unwrap().build().unwrap() }
    };
    let told = |site: &Running, requests: &[(&str, &[(&str, &str)])]| {
        let notes = Notes::default();
        notes.listen(|| {
            requests.iter().for_each(|(peer, fields)| drop(site.send(from(peer, "/", fields))));
        });
        notes.0.lock().unwrap().clone()
    };
    let client: &[_] = &[("x-real-ip", "9.9.9.9")];
    let limits = &["a=99/h by ip", "b=99/h by header x-a+ip or ip"];
    // The field of an untrusted peer is ignored.
    let warning = "WARN message=the trusted proxy 10.0.0.1 has sent a request without the field `x-real-ip`";
    let all =
        told(&run(limits), &[("9.9.9.9", &[]), ("10.0.0.1", &[]), ("10.0.0.2", &[]), ("10.0.0.2", client)]);
    assert!(all.len() == 1 && all[0].starts_with(warning), "{all:?}");
    // A proxy may send requests of its own after it has reported a client.
    assert_eq!(told(&run(limits), &[("10.0.0.1", client), ("10.0.0.1", &[])]), [""; 0]);
    // A limit that does not read addresses does not need the field.
    assert_eq!(told(&run(&["a=99/h by nothing"]), &[("10.0.0.1", &[])]), [""; 0]);
}

fn assert_told(status: impl Fn(Request<()>) -> u16) {
    let notes = Notes::default();
    let send =
        |key: &str| notes.listen(|| status(if key.is_empty() { with(&[]) } else { with(&[("x-a", key)]) }));
    assert_eq!([send("a"), send("a"), send("b"), send(""), send("")], [200, 429, 200, 403, 403]);
    let told = notes.0.lock().unwrap().clone();
    let expected = [
        "INFO message=a request would have been refused limit=\"shadow\" remaining=0 retry_after=Some(3600s) reason=Quota",
        "DEBUG message=a request was refused limit=\"keyed\" remaining=0 retry_after=Some(60s) reason=Quota binding=true",
        "INFO message=a request would have been refused limit=\"shadow\" remaining=0 retry_after=Some(3600s) reason=Quota",
        "WARN message=a request without a key limit=\"keyed\" shadow=false refused=true missing=\"no header `x-a`\"",
        "DEBUG message=a request without a key limit=\"keyed\" shadow=false refused=true",
    ];
    assert_eq!(told, expected);
}
