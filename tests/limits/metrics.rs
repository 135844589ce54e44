//! Counts of decisions as text for Prometheus.

use tollgate::{Limiter, ManualClock, Metrics, Outcome, Quota, SingleLimiter, WhenFull};

#[test]
fn each_family_is_described_once_and_has_a_line_a_limiter() {
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(2))
        .max_keys(1)
        .when_full(WhenFull::Deny)
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let uploads = SingleLimiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
    let (of_keys, of_uploads) = (Metrics::new("by \"key\""), Metrics::new("up\\loads\n"));
    for key in [1, 1, 1, 2] {
        let decision = limiter.check(&key);
        assert_eq!(of_keys.observe(decision), decision);
    }
    let _ = of_uploads.observe(uploads.check_n(2));
    let counts = |metrics: &Metrics| {
        [Outcome::Allowed, Outcome::Denied, Outcome::TooCostly].map(|outcome| metrics.count(outcome))
    };
    assert_eq!((counts(&of_keys), counts(&of_uploads)), ([2, 2, 0], [0, 0, 1]));

    let text = Metrics::prometheus_text([(&of_keys, Some(limiter.stats())), (&of_uploads, None)]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..8],
        [
            "# HELP tollgate_decisions_total Decisions by outcome",
            "# TYPE tollgate_decisions_total counter",
            r#"tollgate_decisions_total{limiter="by \"key\"",outcome="allowed"} 2"#,
            r#"tollgate_decisions_total{limiter="by \"key\"",outcome="denied"} 2"#,
            r#"tollgate_decisions_total{limiter="by \"key\"",outcome="too-costly"} 0"#,
            r#"tollgate_decisions_total{limiter="up\\loads\n",outcome="allowed"} 0"#,
            r#"tollgate_decisions_total{limiter="up\\loads\n",outcome="denied"} 0"#,
            r#"tollgate_decisions_total{limiter="up\\loads\n",outcome="too-costly"} 1"#,
        ]
    );
    for line in [
        "# TYPE tollgate_keys gauge",
        r#"tollgate_keys{limiter="by \"key\""} 1"#,
        r#"tollgate_keys_max{limiter="by \"key\""} 1"#,
        "# TYPE tollgate_keys_without_room_total counter",
        r#"tollgate_keys_without_room_total{limiter="by \"key\""} 1"#,
    ] {
        assert_eq!(lines.iter().filter(|&&one| one == line).count(), 1, "{line} in {text}");
    }
    // Each family has a description, a type and its lines.
    assert_eq!(lines.len(), 8 + 8 * 3);
    assert_eq!(Metrics::prometheus_text([(&of_uploads, None)]).lines().count(), 5);
}

#[cfg(feature = "tracing")]
mod events {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};
    use tollgate::{ManualClock, Metrics, Quota, SingleLimiter};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

    /// Writes down each event.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }

    impl Subscriber for Notes {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().target()));
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_denial_is_an_event_and_what_is_allowed_is_none() {
        let limiter = SingleLimiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
        let (notes, metrics) = (Notes::default(), Metrics::new("uploads"));
        dispatcher::with_default(&Dispatch::new(notes.clone()), || {
            assert!(metrics.observe(limiter.check()).is_allowed());
            assert!(!metrics.observe(limiter.check()).is_allowed());
        });
        let expected = "DEBUG tollgate message=a request was denied limiter=\"uploads\" capacity=1 remaining=0 \
                        retry_after=Some(3600s)";
        assert_eq!(*notes.0.lock().unwrap(), [expected]);
    }
}
