//! Replays access logs through limits, to show what the limits would have done to that traffic.
//!
//! Each line becomes a request ([`source`], [`log`], [`reading`]). The [`engine`] decides the
//! requests in order, as the proxy would have decided them, and [`report`] presents the results.
//! Other threads may parse lines, but they never change a decision.
//!
//! A limit either has a name and applies as in the proxy, or has none and counts by any fields of
//! the log (`--key`). A log must contain the facts that limits with names need ([`need`],
//! [`columns`]).
//!
//! The proxy's own JSON log ([`proxy_log`]) contains neither headers nor queries. Instead, it
//! records the key and the class that each limit found, and a limit that needs a header or a query
//! uses the recorded key and class. The proxy writes each line at the end of a request, so a replay
//! sorts this log by time.
//!
//! Memory grows only with the number of distinct keys of each limit, and with the number of
//! requests in flight: even with several threads, only a few chunks of the log are in memory at a
//! time. If the replay sorts the log, memory also grows with the log.
//!
//! [`suggest`](mod@suggest) finds quotas for a log.

pub(crate) mod args;
mod changes;
pub(crate) mod columns;
mod decisions;
pub(crate) mod engine;
#[cfg(feature = "html")]
mod html;
mod input;
mod key_quotas;
mod keys;
pub(crate) mod log;
mod need;
mod position;
pub mod progress;
mod proxy_log;
mod reading;
pub mod report;
pub(crate) mod settings;
mod source;
pub mod suggest;
mod timeline;

use std::io::Read;
use std::ops::Range;
use std::time::Instant;

use http::Request;
use tollgate_http::program::{Fact, facts};
use tollgate_http::settings::LimitPart;

use changes::Changes;
use columns::Columns;
use decisions::Decisions;
use engine::{Answer, Building, Engine, ReplayLimits};
#[cfg(feature = "html")]
use html::Page;
use key_quotas::KeyQuotas;
use log::request::Arrived;
use need::Need;
use position::Position;
use progress::Progress;
use reading::{Logs, Reader};
use report::changes::ChangesReport;
use report::figures::{Findings, Report};
use settings::{Against, ConfigFile};
use source::Requests;
use timeline::Timeline;

use crate::failure::Failure;

pub use input::Input;
pub use log::formats::Format;
pub use log::lines::{Line, Lines};
pub use log::record::Records;
pub use log::request::Reason;
pub use log::schema::{Cost, Unopened, Wanted};
pub use log::timestamp::TimeUnit;
pub use settings::{HtmlSettings, LogSettings, Settings};

/// Replays all inputs.
///
/// # Errors
///
/// Returns an error if the proxy would refuse the limits, if an input or a file of quotas cannot be
/// read, or if a log lacks a field or a fact that a limit needs. Also returns an error if no line
/// parses or, with `strict`, if any line does not parse.
pub fn replay(settings: &Settings) -> Result<Report, Failure> {
    let length = input::check(&settings.log.inputs)?;
    let mut replay = Replay::new(settings)?;
    let mut progress = Progress::new(length);
    reading::read_all(&mut replay, &settings.log, &mut progress)?;
    let report = replay.finish(&mut progress)?;
    progress.finish();
    Ok(report)
}

/// A replay in progress.
pub struct Replay<'s> {
    settings: &'s Settings,
    started: Instant,
    parts: Vec<LimitPart>,
    /// The facts that limits with names need, or `None` if there are no such limits.
    needs: Option<Vec<Need>>,
    key_quotas: Option<KeyQuotas>,
    logs: Logs,
    findings: Findings,
    /// The engine that enforces the limits. It is built when the first log is opened, because it
    /// depends on the kind of log.
    engine: Option<Engine>,
    /// The limits to compare with.
    against: Option<Compared>,
    request: Request<()>,
    /// All requests and their values, if they must be sorted before they are judged.
    waiting: Vec<Waiting>,
    values: Vec<u8>,
    timeline: Timeline,
    decisions: Option<Decisions>,
    #[cfg(feature = "html")]
    page: Option<Page<'s>>,
}

/// The limits of `--against` or `--against-config`.
struct Compared {
    parts: Vec<LimitPart>,
    /// The engine that enforces these limits. It is built together with the engine for the main
    /// limits.
    engine: Option<Engine>,
    changes: Changes,
}

/// A request waiting to be sorted.
struct Waiting {
    arrived: Arrived,
    position: Position,
    values: Range<usize>,
}

impl<'s> Replay<'s> {
    /// # Errors
    ///
    /// Returns an error if the proxy would refuse the limits, or if an output would overwrite a
    /// file that the replay reads.
    pub fn new(settings: &'s Settings) -> Result<Self, Failure> {
        let key_quotas = match &settings.key_quotas {
            Some(input) => Some(KeyQuotas::read(input, &settings.log.wanted)?),
            None => None,
        };
        let limits = &settings.limits;
        let parts = limits.parts().map_err(|error| located(settings.file.as_ref(), error))?;
        let mut all = vec![(limits, settings.file.as_ref(), &*parts)];
        let against = match &settings.against {
            Some(other) => {
                let parts = other.limits.parts().map_err(|error| of_against(other, error))?;
                Some(Compared { parts, engine: None, changes: Changes::default() })
            }
            None => None,
        };
        if let (Some(other), Some(compared)) = (&settings.against, &against) {
            all.push((&other.limits, other.file.as_ref(), &compared.parts));
        }
        let needs = Need::all(&all);
        let read = [
            ("the log it replays", &*settings.log.inputs),
            ("the quotas of --quotas", settings.key_quotas.as_slice()),
            ("a file of its limits", &*settings.configs),
        ];
        let decisions = match &settings.decisions {
            Some(path) => {
                Some(Decisions::create(path, &settings.log.inputs, &read, settings.html.is_none())?)
            }
            None => None,
        };
        let mut replay = Self {
            settings,
            started: Instant::now(),
            parts,
            needs,
            key_quotas,
            logs: Logs::new(&settings.log),
            findings: Findings { is_sorted: settings.sort, ..Findings::default() },
            engine: None,
            against,
            request: Request::new(()),
            waiting: Vec::new(),
            values: Vec::new(),
            timeline: Timeline::default(),
            decisions,
            #[cfg(feature = "html")]
            page: settings.html.as_ref().map(|html| Page::open(html, &read)).transpose()?,
        };
        if replay.needs.is_none() {
            replay.build(false)?;
        }
        Ok(replay)
    }

    /// Builds the limits. `is_of_proxy` is set if the proxy wrote the log.
    fn build(&mut self, is_of_proxy: bool) -> Result<(), Failure> {
        let Self { settings, parts, key_quotas, against, .. } = self;
        let engine = |limits: &ReplayLimits, parts: &[LimitPart], compares| {
            let building = Building {
                parts,
                goes_by_record: is_of_proxy,
                compares,
                shows_all: settings.compare,
                key_quotas: key_quotas.as_ref(),
            };
            Engine::new(limits, &building)
        };
        // A page always compares the algorithms.
        let compares = settings.compare || settings.html.is_some();
        let main = engine(&settings.limits, parts, compares);
        self.engine = Some(main.map_err(|error| located(settings.file.as_ref(), error))?);
        if let (Some(compared), Some(other)) = (against, &settings.against) {
            let before = engine(&other.limits, &compared.parts, false);
            compared.engine = Some(before.map_err(|error| of_against(other, error))?);
        }
        self.findings.is_of_proxy = is_of_proxy;
        Ok(())
    }

    /// Reads one log to its end. `file` is the index of the log among the inputs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`replay`] about a log.
    pub fn read(&mut self, file: usize, from: impl Read, progress: &mut Progress) -> Result<(), Failure> {
        let log = &self.settings.log;
        reading::read(self, log, file, from, progress)
    }

    #[inline]
    fn judge(&mut self, arrived: Arrived, values: &[u8], position: Position) -> Result<(), Failure> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let (values, key) = values.split_at(arrived.key_start);
        let reads_requests = |engine: &Engine| engine.reads_requests();
        let before = self.against.as_ref().and_then(|it| it.engine.as_ref());
        if (reads_requests(engine) || before.is_some_and(reads_requests))
            && let Some(columns) = self.logs.requests[position.file].as_ref().and_then(Requests::columns)
        {
            columns.fill(arrived.ip, values, &mut self.request);
        }
        let answer = engine.judge(&self.request, &arrived, key, position);
        self.logs.summary.judged_later_than_stamped.add(arrived.at, answer.at);
        self.timeline.count(answer.at, answer.passes());
        self.findings.passed_without_record += u64::from(answer.passes() && arrived.is_early_refusal);
        #[cfg(feature = "html")]
        if let Some(page) = &mut self.page {
            page.judged(engine, &answer);
        }
        if let Some(Compared { engine: Some(other), changes, .. }) = &mut self.against {
            let before = other.judge(&self.request, &arrived, key, position);
            count_change(changes, [(&*other, &before), (&*engine, &answer)]);
        }
        match &mut self.decisions {
            Some(decisions) => decisions.write(position, engine, &answer),
            None => Ok(()),
        }
    }

    /// Judges the remaining requests and returns the report.
    ///
    /// # Errors
    ///
    /// Returns an error if no line parses, or if an output cannot be written.
    pub fn finish(mut self, progress: &mut Progress) -> Result<Report, Failure> {
        let mut waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            progress.judge(waiting.len() as u64);
        }
        // A stable sort keeps equal timestamps in order of arrival.
        waiting.sort_by_key(|waiting| waiting.arrived.at);
        let values = std::mem::take(&mut self.values);
        for Waiting { arrived, position, values: range } in waiting {
            self.judge(arrived, &values[range], position)?;
            progress.tick();
        }
        let summary = &self.logs.summary;
        if summary.requests() + summary.no_requests == 0 && summary.unparsable() > 0 {
            return Err(Failure::refused(summary.nothing_parses()));
        }
        if let Some(decisions) = self.decisions.take() {
            decisions.finish()?;
        }
        if self.engine.is_none() {
            self.build(false)?;
        }
        self.note_limits_by_log();
        let settings = self.settings;
        let Some(engine) = &self.engine else { return Err(Failure::refused("the limits were not built")) };
        let changes = match (&self.against, &settings.against) {
            (Some(compared), Some(other)) => {
                Some(ChangesReport::new(&other.name, &compared.changes, settings.top))
            }
            _ => None,
        };
        let mut report = Report::new(
            settings,
            &self.logs.summary,
            &self.findings,
            engine,
            self.key_quotas.as_ref(),
            &self.timeline,
            self.started.elapsed(),
        );
        report.changes = changes;
        #[cfg(feature = "html")]
        if let Some(page) = self.page.take() {
            page.write(settings, &report, engine, &self.logs.summary, &self.timeline)?;
        }
        Ok(report)
    }

    /// Notes the limits that read their keys from the log, but are never named in it. There are
    /// none unless the proxy wrote the log.
    fn note_limits_by_log(&mut self) {
        let Some(engine) = self.engine.as_ref().filter(|_| self.findings.is_of_proxy) else {
            self.findings.passed_without_record = 0;
            return;
        };
        let layer = &self.settings.limits.layer;
        let goes_by_log = |part: &LimitPart| {
            let text = layer.limits.iter().find(|text| text.name == part.text_name);
            text.is_some_and(|text| facts(text).iter().any(Fact::is_of_few_logs))
        };
        let by_log: Vec<_> = engine.limits.iter().filter(|limit| goes_by_log(&limit.part)).collect();
        if by_log.is_empty() {
            self.findings.passed_without_record = 0;
        }
        let unnamed = by_log.into_iter().filter(|limit| limit.counts().is_empty());
        self.findings.never_named = unnamed.map(|limit| limit.part.name.clone()).collect();
    }
}

/// Counts the answers of two engines to one request. A changed answer belongs to the key that one
/// of the limits refuses.
#[inline]
fn count_change(changes: &mut Changes, [before, after]: [(&Engine, &Answer); 2]) {
    let passes = [before.1.passes(), after.1.passes()];
    let (engine, answer) = if after.1.passes() { before } else { after };
    let refusing = answer.by.filter(|_| !answer.passes()).map(|by| (by, &engine.limits[by.limit]));
    changes.add(
        after.1.at,
        passes,
        || refusing.map_or_else(String::new, |(by, _)| engine.shown(&by)),
        refusing.filter(|(_, limit)| limit.fields.is_none()).map(|(_, limit)| &*limit.part.name),
    );
}

impl Reader for Replay<'_> {
    #[inline]
    fn logs(&mut self) -> &mut Logs {
        &mut self.logs
    }

    fn recognize(&self, first: &[u8]) -> Result<(Format, Requests), Unopened> {
        Requests::open(first, self.settings, self.needs.as_deref())
    }

    /// If this is the first log, builds the limits. From a log in the order in which requests ended
    /// on, all requests are sorted.
    fn opening(&mut self, file: usize, requests: &Requests) -> Result<(), Failure> {
        let columns = requests.columns();
        let is_of_proxy = columns.is_some_and(|columns| columns.is_of_proxy);
        if self.engine.is_none() {
            self.build(is_of_proxy)?;
        } else if is_of_proxy != self.findings.is_of_proxy {
            return Err(Failure::refused(format!(
                "{} is the JSON log of tollgate proxy and another log is not, or the other way round: expected logs of \
                 one kind; replay them one by one",
                self.settings.log.inputs[file]
            )));
        }
        self.findings.is_sorted |= requests.is_by_ends();
        self.findings.guesses_preflights |= columns.is_some_and(Columns::guesses_preflights);
        Ok(())
    }

    /// Judges a request, or adds it to the requests to sort.
    #[inline]
    fn take(&mut self, arrived: Arrived, values: &[u8], position: Position) -> Result<(), Failure> {
        self.logs.summary.arrived(position, arrived.at);
        if !self.findings.is_sorted {
            return self.judge(arrived, values, position);
        }
        let from = self.values.len();
        self.values.extend_from_slice(values);
        self.waiting.push(Waiting { arrived, position, values: from..self.values.len() });
        Ok(())
    }
}

/// Adds the file name and line number to an error about a setting from the file of `--config`.
fn located(file: Option<&ConfigFile>, failure: Failure) -> Failure {
    match file {
        Some(file) => file.located(failure),
        None => failure,
    }
}

/// Adds the option that gives the other limits to an error about them, and the place in its file.
fn of_against(other: &Against, failure: Failure) -> Failure {
    let Failure::Refused(message) = failure else { return failure };
    Failure::Refused(match &other.file {
        Some(file) => file.with_line(&format!("--against-config: {message}")),
        None => format!("--against: {message}"),
    })
}
