//! Metrics for operators: counts of a limiter's answers and its [`Stats`], for Prometheus, and
//! denials as events.

use crate::decision::{Decision, Outcome};
use crate::stats::Stats;
use crate::sync::Counter;
use std::fmt::Write;

/// Counts the answers of a limiter, under a name.
///
/// With the feature `tracing`, each denial is also an event of level DEBUG, with the target
/// `tollgate`.
///
/// A limiter itself does not count answers, so that denials write nothing. Pass each decision to
/// [`observe`](Self::observe), which costs one addition to a counter that all threads share.
/// [`prometheus_text`](Self::prometheus_text) writes the counts.
///
/// ```
/// use tollgate::{Limiter, Metrics, Outcome, Quota};
///
/// let logins: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
/// let metrics = Metrics::new("logins");
///
/// assert!(metrics.observe(logins.check("alice")).is_allowed());
/// assert!(!metrics.observe(logins.check("alice")).is_allowed());
/// assert_eq!(metrics.count(Outcome::Denied), 1);
///
/// let text = Metrics::prometheus_text([(&metrics, Some(logins.stats()))]);
/// assert!(text.contains("tollgate_decisions_total{limiter=\"logins\",outcome=\"denied\"} 1\n"));
/// assert!(text.contains("tollgate_keys{limiter=\"logins\"} 1\n"));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Metrics {
    limiter: String,
    allowed: Counter,
    denied: Counter,
    too_costly: Counter,
}

impl Metrics {
    /// Starts the counts of a limiter at zero, under a name.
    ///
    /// Names tell limiters apart, so give each limiter its own.
    pub fn new(limiter: impl Into<String>) -> Self {
        let [allowed, denied, too_costly] = [(); 3].map(|()| Counter::new());
        Self { limiter: limiter.into(), allowed, denied, too_costly }
    }

    /// Counts a decision, and returns it.
    ///
    /// # Progress
    ///
    /// Wait-free. No allocation, except by a subscriber to events.
    pub fn observe(&self, decision: Decision) -> Decision {
        self.counter(decision.outcome()).add(1);
        #[cfg(feature = "tracing")]
        if !decision.is_allowed() {
            let (capacity, remaining) = (decision.capacity(), decision.remaining());
            let retry_after = decision.retry_after();
            tracing::debug!(
                target: "tollgate",
                limiter = self.limiter,
                capacity,
                remaining,
                ?retry_after,
                "a request was denied"
            );
        }
        decision
    }

    /// How many decisions had this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.counter(outcome).get()
    }

    /// Writes the metrics of limiters in the text format of Prometheus (version 0.0.4).
    ///
    /// For each limiter these are its counts, and its [`Stats`] if they are given. The text answers
    /// a scrape, with content type `text/plain; version=0.0.4`.
    ///
    /// [`Metrics`] has an example.
    pub fn prometheus_text<'m>(limiters: impl IntoIterator<Item = (&'m Self, Option<Stats>)>) -> String {
        let limiters: Vec<_> = limiters
            .into_iter()
            .map(|(metrics, stats)| (escaped(&metrics.limiter), metrics, stats))
            .collect();
        let mut text = String::new();
        family(&mut text, "decisions", "Decisions by outcome", true);
        for (limiter, metrics, _) in &limiters {
            let outcomes = [
                ("allowed", metrics.allowed.get()),
                ("denied", metrics.denied.get()),
                ("too-costly", metrics.too_costly.get()),
            ];
            for (outcome, count) in outcomes {
                let labels = format_args!("limiter=\"{limiter}\",outcome=\"{outcome}\"");
                sample(&mut text, "decisions", true, labels, count);
            }
        }
        if limiters.iter().all(|(_, _, stats)| stats.is_none()) {
            return text;
        }
        for (name, help, grows, figure) in FIGURES {
            family(&mut text, name, help, grows);
            for (limiter, _, stats) in &limiters {
                if let Some(stats) = stats {
                    sample(&mut text, name, grows, format_args!("limiter=\"{limiter}\""), figure(stats));
                }
            }
        }
        text
    }

    fn counter(&self, outcome: Outcome) -> &Counter {
        match outcome {
            Outcome::Allowed => &self.allowed,
            Outcome::Denied => &self.denied,
            Outcome::TooCostly => &self.too_costly,
        }
    }
}

/// A figure of [`Stats`]: its name, its help, whether it only grows, and how to read it.
type Figure = (&'static str, &'static str, bool, fn(&Stats) -> u64);

const FIGURES: [Figure; 8] = [
    ("keys", "Keys that are tracked", false, |stats| stats.keys as u64),
    ("keys_room", "Keys that the table has room for before it turns over", false, |stats| stats.room as u64),
    ("keys_max", "The most keys that may be tracked", false, |stats| stats.max_keys as u64),
    ("bytes", "Bytes that the limiter takes", false, |stats| stats.bytes as u64),
    ("own_quotas", "Keys that have a quota of their own", false, |stats| stats.own_quotas as u64),
    ("turnovers", "How often the table was turned over", true, |stats| stats.turnovers),
    ("keys_evicted", "Idle keys that were forgotten", true, |stats| stats.evicted),
    ("keys_without_room", "Checks of new keys that found the table full", true, |stats| stats.refused),
];

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const fn ending(grows: bool) -> &'static str {
    if grows { "_total" } else { "" }
}

// Writing to a `String` does not fail.

fn family(text: &mut String, name: &str, help: &str, grows: bool) {
    let (end, kind) = (ending(grows), if grows { "counter" } else { "gauge" });
    let _ = writeln!(text, "# HELP tollgate_{name}{end} {help}\n# TYPE tollgate_{name}{end} {kind}");
}

fn sample(text: &mut String, name: &str, grows: bool, labels: std::fmt::Arguments<'_>, value: u64) {
    let _ = writeln!(text, "tollgate_{name}{}{{{labels}}} {value}", ending(grows));
}
