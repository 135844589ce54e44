//! Tests the figures of layers in the Prometheus text format.

use super::elsewhere::Elsewhere;
use super::invented::Away;
use super::site::{Site, from, site, with};
use http::Request;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tollgate::{Decision, Limiter, Quota, WhenFull};
use tollgate_http::{AsyncLimiter, ClassBy, Figure, Key, KeyBy, KeyPart, Limit, Metrics, WhenNoKey};

/// Returns the samples of one metric. A sample is the text between the metric's name and the end of
/// the line.
fn samples<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let sample = |line: &'t str| line.strip_prefix(name).filter(|rest| rest.starts_with('{'));
    text.lines().filter_map(sample).collect()
}

/// Returns the outcomes of a limit and their counts, without the counts that are 0.
fn outcomes(metrics: &Metrics, limit: &str) -> Vec<String> {
    let text = metrics.prometheus_text();
    let of_limit = format!("{{limit=\"{limit}\",");
    let decided = samples(&text, "tollgate_decisions_total").into_iter();
    let counted = decided.filter(|it| it.starts_with(&of_limit) && !it.ends_with(" 0"));
    counted.map(|it| it[of_limit.len()..].replace(['"', '}'], "")).collect()
}

fn keyed(site: &Site, name: &str, tokens: u64) -> Limit {
    let limiter = Limiter::builder(Quota::per_hour(tokens)).max_keys(2).when_full(WhenFull::Deny);
    let limiter: Limiter<Key> = limiter.clock(&site.clock).build().unwrap();
    Limit::new(name, limiter).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny)
}

#[test]
fn a_limit_that_had_room_has_not_allowed_what_another_refused() {
    let metrics = Metrics::new();
    let start = site();
    let wide = Limit::new("wide", start.single(Quota::per_hour(9)));
    let narrow = keyed(&start, "narrow", 1);
    let trial = Limit::new("trial", start.single(Quota::per_hour(1))).shadow();
    let site = start.limit(wide).limit(narrow).limit(trial).with(|it| it.metrics(&metrics)).run();
    let requests = ["a", "a", "b", "c"].map(|key| with(&[("x-a", key)]));
    // The second request finds no token, and the fourth request's key finds no room.
    assert_eq!(site.statuses(requests), [200, 429, 200, 429]);
    assert_eq!(site.status(with(&[])), 403);
    assert_eq!(outcomes(&metrics, "wide"), ["outcome=allowed 2"]);
    assert_eq!(
        outcomes(&metrics, "narrow"),
        ["outcome=allowed 2", "outcome=denied 1", "outcome=full 1", "outcome=no-key 1"]
    );
    assert_eq!(outcomes(&metrics, "trial"), ["outcome=allowed 1", "outcome=shadow 3"]);
}

#[test]
fn a_store_that_is_away_is_an_outcome_of_its_own() {
    let (metrics, start) = (Metrics::new(), site());
    let elsewhere = Elsewhere::new(start.limiter(Quota::per_hour(1)));
    let near = Limit::new("near", elsewhere).by(KeyBy::peer()).when_no_key(WhenNoKey::Allow);
    let away = Limit::new("away", Away).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Allow);
    let site = start.limit(near).limit(away).with(|it| it.metrics(&metrics)).run_shared();
    let request = |headers: &[(&str, &str)]| from("192.0.2.1", "/", headers);
    assert_eq!(site.statuses([request(&[("x-a", "1")]), request(&[]), request(&[])]), [503, 200, 429]);
    assert_eq!(outcomes(&metrics, "away"), ["outcome=unavailable 1", "outcome=no-key 2"]);
    assert_eq!(outcomes(&metrics, "near"), ["outcome=allowed 1", "outcome=denied 1"]);
    // Only process-local limiters can report how many keys they track.
    assert!(!metrics.prometheus_text().contains("tollgate_keys"));
}

/// A limiter on another machine with classes, and its calls.
struct Told(Arc<Elsewhere>, u64);

impl AsyncLimiter for Told {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        self.0.check_n(key, cost)
    }

    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        decision: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.refund_n(key, decision, tokens)
    }

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(task);
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure::counter("store_calls", "Calls", self.1), Figure::gauge("store_lag", "Lag", 3)]
    }

    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        let paid = Arc::new(Self(Arc::clone(&self.0), 8));
        vec![("default".to_owned(), self), ("paid".to_owned(), paid)]
    }
}

#[test]
fn a_shared_limiter_tells_its_figures_once_for_all_classes_while_it_lives() {
    let (metrics, start) = (Metrics::new(), site());
    let limiter = Told(Elsewhere::new(start.limiter(Quota::per_hour(1))), 7);
    let limit = Limit::new("a", limiter).by(KeyBy::peer()).class_by(ClassBy::from_fn(|_| None));
    let site = start.limit(limit.when_no_key(WhenNoKey::Deny)).with(|it| it.metrics(&metrics)).run_shared();
    let text = metrics.prometheus_text();
    assert_eq!(samples(&text, "store_calls_total"), ["{limit=\"a\"} 7"]);
    assert_eq!(samples(&text, "store_lag"), ["{limit=\"a\"} 3"]);
    assert!(
        text.contains(r#"tollgate_decisions_total{limit="a",class="paid",outcome="allowed"} 0"#),
        "{text}"
    );
    drop(site);
    assert!(!metrics.prometheus_text().contains("store_"));
}

#[test]
fn each_class_is_a_label_and_a_request_without_a_key_counts_in_the_default_class() {
    let (metrics, start) = (Metrics::new(), site());
    let limiter = Limiter::<Key>::builder(Quota::per_hour(1)).clock(&start.clock);
    let limiter = limiter.class("paid", Quota::per_hour(2)).build().unwrap();
    let paid = ClassBy::from_fn(|head| head.header("x-paid").map(|_| "paid"));
    let limit = Limit::new("tier", limiter).by(KeyBy::peer()).class_by(paid).when_no_key(WhenNoKey::Deny);
    let site = start.limit(limit).with(|it| it.metrics(&metrics)).run();
    let request = |headers: &[(&str, &str)]| from("192.0.2.1", "/", headers);
    let paid = || request(&[("x-paid", "1")]);
    assert_eq!(
        site.statuses([request(&[]), request(&[]), paid(), paid(), paid()]),
        [200, 429, 200, 200, 429]
    );
    assert_eq!(site.status(with(&[("x-paid", "1")])), 403);
    assert_eq!(
        outcomes(&metrics, "tier"),
        [
            "class=default,outcome=allowed 1",
            "class=default,outcome=denied 1",
            "class=default,outcome=no-key 1",
            "class=paid,outcome=allowed 2",
            "class=paid,outcome=denied 1",
        ]
    );
    let text = metrics.prometheus_text();
    let keys = [r#"{limit="tier",class="default"} 1"#, r#"{limit="tier",class="paid"} 1"#];
    assert_eq!(samples(&text, "tollgate_keys"), keys);
}

#[test]
fn each_metric_is_described_once_and_its_labels_are_escaped() {
    let (metrics, start) = (Metrics::new(), site());
    let limit = keyed(&start, r#"by "key""#, 9);
    let other = keyed(&start, r"a\b", 9);
    let site = start.limit(limit).limit(other).with(|it| it.metrics(&metrics)).run();
    assert_eq!(site.statuses(["a", "b", "c"].map(|key| with(&[("x-a", key)]))), [200, 200, 429]);
    let text = metrics.prometheus_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1..4],
        [
            "# TYPE tollgate_decisions_total counter",
            r#"tollgate_decisions_total{limit="by \"key\"",outcome="allowed"} 2"#,
            r#"tollgate_decisions_total{limit="by \"key\"",outcome="denied"} 0"#,
        ]
    );
    for line in [
        "# TYPE tollgate_keys gauge",
        r#"tollgate_keys{limit="by \"key\""} 2"#,
        r#"tollgate_keys{limit="a\\b"} 2"#,
        r#"tollgate_keys_max{limit="by \"key\""} 2"#,
        "# TYPE tollgate_keys_forgotten_total counter",
        r#"tollgate_keys_forgotten_total{limit="by \"key\""} 0"#,
    ] {
        assert_eq!(lines.iter().filter(|&&one| one == line).count(), 1, "{line} in {text}");
    }
}

#[test]
fn a_layer_that_takes_the_place_of_another_goes_on_with_its_counts() {
    let (metrics, start) = (Metrics::new(), site());
    let next = Site { clock: start.clock.clone(), ..site() };
    let first = keyed(&start, "keyed", 1);
    let first = start.limit(first).with(|it| it.metrics(&metrics)).run();
    assert_eq!(first.statuses(["a", "b"].map(|key| with(&[("x-a", key)]))), [200, 200]);
    let second = keyed(&next, "keyed", 1);
    let second = next.limit(second).with(|it| it.metrics(&metrics)).run();
    assert_eq!(second.statuses([with(&[("x-a", "a")])]), [200]);
    let keys = |metrics: &Metrics| {
        let text = metrics.prometheus_text();
        samples(&text, "tollgate_keys").join(" ")
    };
    // If there are two limiters, only the newer one is shown.
    assert_eq!(keys(&metrics), r#"{limit="keyed"} 1"#);
    drop(second);
    assert_eq!(keys(&metrics), r#"{limit="keyed"} 2"#);
    drop(first);
    assert_eq!(keys(&metrics), "");
    assert_eq!(outcomes(&metrics, "keyed"), ["outcome=allowed 3"]);
}

#[test]
fn layers_with_the_same_metrics_are_in_one_text() {
    let metrics = Metrics::new();
    let sites = ["outer", "inner"].map(|name| {
        let site = site();
        let limit = Limit::new(name, site.single(Quota::per_hour(1)));
        site.limit(limit).with(|it| it.metrics(&metrics)).run()
    });
    assert_eq!(sites.map(|site| site.status(with(&[]))), [200, 200]);
    assert_eq!(outcomes(&metrics, "outer"), ["outcome=allowed 1"]);
    assert_eq!(outcomes(&metrics, "inner"), ["outcome=allowed 1"]);
}

#[test]
fn a_layer_whose_limits_are_all_in_shadow_is_heard_by_its_metrics() {
    let start = site();
    let limit = Limit::new("trial", start.single(Quota::per_hour(1))).shadow();
    let metrics = Metrics::new();
    let site = start.limit(limit).with(|it| it.metrics(&metrics)).run();
    assert_eq!(site.statuses([with(&[]), with(&[])]), [200, 200]);
    assert_eq!(outcomes(&metrics, "trial"), ["outcome=allowed 1", "outcome=shadow 1"]);
}

/// The decisions that a listener received, each as the key's parts and the outcome.
type Noted = Arc<Mutex<Vec<(Option<Vec<KeyPart<'static>>>, Option<&'static str>)>>>;

#[test]
fn a_listener_is_told_the_key_of_local_and_shared_limits() {
    let told = Noted::default();
    let start = || {
        let noted = Arc::clone(&told);
        site().with(|it| {
            it.on_decision(move |event| {
                // The key can be used with a limiter beside the layer.
                let key = event.key.map(|parts| Key::new(event.limit_name, parts.iter().cloned()));
                noted.lock().unwrap().push((key.map(|key| key.parts().to_vec()), event.outcome()));
            })
        })
    };
    let by = || KeyBy::header("x-a");
    let request = || -> [Request<()>; 2] { [with(&[("x-a", "secret")]), with(&[])] };
    let expected = [(Some(vec![KeyPart::from("secret")]), Some("allowed")), (None, Some("no-key"))];

    let local = start();
    let limit = Limit::new("a", local.limiter(Quota::per_hour(1))).by(by()).when_no_key(WhenNoKey::Allow);
    assert_eq!(local.limit(limit).run().statuses(request()), [200, 200]);
    assert_eq!(*told.lock().unwrap(), expected);
    told.lock().unwrap().clear();

    let shared = start();
    let elsewhere = Elsewhere::new(shared.limiter(Quota::per_hour(1)));
    let limit = Limit::new("a", elsewhere).by(by()).when_no_key(WhenNoKey::Allow);
    assert_eq!(shared.limit(limit).run_shared().statuses(request()), [200, 200]);
    assert_eq!(*told.lock().unwrap(), expected);
}
