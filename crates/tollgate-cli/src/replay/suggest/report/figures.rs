//! Defines the figures of a suggestion as plain data, which is serialized as JSON.

use serde::Serialize;
use tollgate::{Algorithm, Quota};

use crate::printable::{printable, shell_word};
use crate::replay::log::formats::Format;
use crate::replay::log::key::KeyShape;
use crate::replay::report::log::Log;
use crate::replay::report::notes;
use crate::replay::report::quantity::{date_and_time, grouped, plural, share};
use crate::replay::suggest::pattern::{BusiestMinutes, Pattern};
use crate::replay::suggest::row::{Peaks, Row, RowCounts, peaks_of_log};
use crate::replay::suggest::search::Allowed;
use crate::replay::suggest::settings::SuggestSettings;
use crate::replay::suggest::trace::Trace;

/// The results of a suggestion.
#[derive(Debug, Serialize)]
pub struct Suggestion {
    pub(crate) key: String,
    pub(crate) log: Log<OfClients>,
    pub(crate) allowed: Allowed,
    /// `null` if the algorithm accepts no quota that is large enough.
    pub(crate) suggested: Option<SuggestedLimit>,
    pub(crate) rows: Vec<Row>,
    pub(crate) clients: Clients,
    /// The algorithm of the suggested limit.
    #[serde(skip)]
    pub(crate) algorithm: Algorithm,
    /// The options that a replay of the suggested limit needs, besides the limit itself.
    #[serde(skip)]
    pub(crate) replay_options: String,
}

/// The facts about the clients in the logs.
#[derive(Debug, Serialize)]
pub(crate) struct OfClients {
    #[serde(rename = "clients")]
    pub(crate) number: usize,
    #[serde(flatten)]
    pub(crate) peaks: Peaks,
}

/// The suggested limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SuggestedLimit {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: Quota,
    pub(crate) burst_seconds: u64,
    #[serde(flatten)]
    pub(crate) counts: RowCounts,
}

#[derive(Debug, Serialize)]
pub(crate) struct Clients {
    /// Quantiles of the number of requests in each client's busiest minute: the lower quartile, the
    /// median, the upper quartile, the 99th percentile and the maximum.
    pub(crate) busiest_minute_quantiles: [u64; 5],
    /// Clients with more requests in their busiest minute are outliers.
    pub(crate) outlier_above: u64,
    pub(crate) outliers: usize,
    pub(crate) requests_of_outliers: u64,
    pub(crate) retrying: usize,
    pub(crate) steady: usize,
    /// The outliers, and the clients that retry or are steady, sorted by their busiest minute in
    /// descending order.
    pub(crate) standing_out: Vec<StandingOut>,
    /// The number of clients that also stand out but are not listed.
    pub(crate) more: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct StandingOut {
    pub(crate) key: String,
    pub(crate) requests: u64,
    pub(crate) busiest_minute: u64,
    pub(crate) busiest_second: u64,
    pub(crate) outlier: bool,
    #[serde(flatten)]
    pub(crate) pattern: Pattern,
    /// The number of the client's requests that the suggested limit denies.
    pub(crate) denied: Option<u64>,
}

impl Suggestion {
    pub(crate) fn new(settings: &SuggestSettings, trace: &Trace, allowed: Allowed, rows: Vec<Row>) -> Self {
        let algorithm = settings.algorithm.unwrap_or_default();
        let is_chosen = |row: &&Row| row.algorithm == algorithm && row.burst_seconds == settings.burst;
        let chosen = rows.iter().find(is_chosen).and_then(|row| Some((row, row.limit?, row.counts?)));
        let suggested = chosen.map(|(_, limit, counts)| SuggestedLimit {
            algorithm,
            limit,
            burst_seconds: settings.burst,
            counts,
        });
        let clients = Clients::new(settings, trace, chosen.map(|(row, ..)| &*row.denied));
        Self {
            key: printable(settings.log.wanted.key.join("+").as_bytes()),
            log: Log::new(
                &trace.log,
                notes::on_log(&trace.log, true, None),
                OfClients { number: trace.clients.len(), peaks: peaks_of_log(&trace.clients) },
            ),
            allowed,
            suggested,
            rows,
            clients,
            algorithm,
            replay_options: replay_options(settings, trace.log.stepped_back > 0),
        }
    }

    /// Returns whether any of the logs names its own fields.
    pub(crate) fn names_its_fields(&self) -> bool {
        self.log.files.iter().filter_map(|file| file.format).any(Format::names_its_fields)
    }

    /// Returns the effect of the suggested limit, in sentences.
    pub(crate) fn summary(&self) -> String {
        let log = &self.log;
        let mut text =
            format!("Of {} of {}", plural(log.requests, "request"), plural(log.more.number as u64, "client"));
        if let Some((first, last)) = log.span_ns {
            text.push_str(&format!("\n({} to {} UTC)", date_and_time(first), date_and_time(last)));
        }
        match &self.suggested {
            Some(SuggestedLimit { counts, .. }) => text.push_str(&format!(
                " this limit denies {} ({}), of {}.",
                grouped(counts.denied),
                share(counts.denied.into(), log.requests.into()),
                plural(counts.clients_denied, "client"),
            )),
            None => text.push_str(", no limit is suggested."),
        }
        text
    }
}

/// Returns the options, besides the limit, with which a replay of the same log produces the same
/// figures.
fn replay_options(settings: &SuggestSettings, is_out_of_order: bool) -> String {
    let word = |text: &str| shell_word(&printable(text.as_bytes()));
    let mut options = String::new();
    if settings.log.wanted.key != ["ip"] {
        options.push_str(&format!(" --key {}", word(&settings.log.wanted.key.join("+"))));
    }
    for template in &settings.path_templates {
        options.push_str(&format!(" --path-template {}", word(template)));
    }
    if settings.log.wanted.ipv6_prefix != 64 {
        options.push_str(&format!(" --ipv6-prefix {}", settings.log.wanted.ipv6_prefix));
    }
    options + &settings.log_options(is_out_of_order, str::to_owned)
}

impl Clients {
    fn new(settings: &SuggestSettings, trace: &Trace, denied: Option<&[u64]>) -> Self {
        let minutes = BusiestMinutes::new(&trace.clients);
        let patterns: Vec<Pattern> =
            trace.clients.iter().zip(&minutes.of).map(|(client, &most)| Pattern::of(client, most)).collect();
        let is_outlier = |id: usize| minutes.of[id] > minutes.fence;
        let is_like_a_program = |id: usize| matches!(patterns[id], Pattern::Retries | Pattern::Steady { .. });
        let mut ids: Vec<usize> =
            (0..patterns.len()).filter(|&id| is_outlier(id) || is_like_a_program(id)).collect();
        let keys = trace.keys.by_id();
        ids.sort_unstable_by(|&one, &other| {
            minutes.of[other].cmp(&minutes.of[one]).then_with(|| keys[one].cmp(keys[other]))
        });
        let shape = KeyShape::new(settings.log.wanted.key.len());
        let standing_out = ids.iter().take(settings.top).map(|&id| StandingOut {
            key: shape.show(keys[id]),
            requests: trace.clients[id].times.len() as u64,
            busiest_minute: minutes.of[id],
            busiest_second: trace.clients[id].most_in(std::time::Duration::from_secs(1)),
            outlier: is_outlier(id),
            pattern: patterns[id],
            denied: denied.map(|denied| denied[id]),
        });
        let outliers = || ids.iter().filter(|&&id| is_outlier(id));
        Self {
            busiest_minute_quantiles: minutes.quantiles,
            outlier_above: minutes.fence,
            outliers: outliers().count(),
            requests_of_outliers: outliers().map(|&id| trace.clients[id].times.len() as u64).sum(),
            retrying: patterns.iter().filter(|pattern| **pattern == Pattern::Retries).count(),
            steady: patterns.iter().filter(|pattern| matches!(pattern, Pattern::Steady { .. })).count(),
            standing_out: standing_out.collect(),
            more: ids.len().saturating_sub(settings.top),
        }
    }
}
