//! Replays access logs through named limits, as `tollgate proxy` would have enforced them.
//!
//! The proxy's own layer enforces the limits, with its clock set to the time of each request. A
//! request passes only if all limits admit it. If a limit applies to requests in flight, an
//! admitted request occupies places from its arrival until its duration has passed.
//!
//! A log must contain the facts that the limits need. [`need`] lists these facts, and [`columns`]
//! finds them in the log.
//!
//! The proxy's own JSON log ([`proxy_log`]) contains neither headers nor queries. Instead, it
//! records the key and the class that each limit found, and a limit that needs a header or a query
//! uses the recorded key and class. The proxy writes each line at the end of a request, so a replay
//! sorts this log by time.
//!
//! Memory grows with the number of keys that limits track or refuse, and with the number of
//! requests in flight. If the replay sorts the log, memory also grows with the log.

pub(crate) mod columns;
mod engine;
mod need;
mod proxy_log;
pub mod report;
pub mod settings;
mod tally;

use std::ops::Range;
use std::time::Instant;

use http::Request;
use tollgate::Algorithm;
use tollgate_http::PeerAddr;
use tollgate_http::program::{Fact, facts};
use tollgate_http::settings::LimitPart;

use super::changes::Changes;
use super::decisions::rows::Rows;
#[cfg(feature = "html")]
use super::html::LimitsPage;
use super::input;
use super::log::address::Addresses;
use super::log::formats::Format;
use super::log::request::Reason;
use super::log::schema::Unopened;
use super::log::wrapped::{self, Unwrapper};
use super::position::Position;
use super::progress::Progress;
use super::reading::{self, Logs, Reader, Source};
use super::report::changes::ChangesReport;
use crate::failure::Failure;
use crate::printable::printable;
use columns::{Arrived, Columns, Found};
use engine::Engine;
use need::Need;
use report::{ByAlgorithm, Findings, Report};
use settings::{Against, Settings};

/// Replays all inputs.
///
/// # Errors
///
/// Returns an error if the proxy would refuse the limits, if an input cannot be read, or if a log
/// lacks a fact that a limit needs. Also returns an error if no line parses or, with `strict`, if
/// any line does not parse.
pub fn replay(settings: &Settings) -> Result<Report, Failure> {
    let length = input::check(&settings.inputs)?;
    let mut replay = Replay::new(settings)?;
    let mut progress = Progress::new(length);
    reading::read_all(&mut replay, &settings.inputs, settings.threads, &mut progress)?;
    let report = replay.finish(&mut progress)?;
    progress.finish();
    Ok(report)
}

/// The requests of one log.
enum Requests {
    Columns(Box<Columns>),
    /// The JSON log of the proxy, whose lines may be wrapped.
    Proxy(Option<Unwrapper>),
}

impl Source for Requests {
    type Request = Found;

    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Option<Found>, Reason> {
        match self {
            Self::Columns(columns) => columns.read(text, values),
            Self::Proxy(unwrapper) => match wrapped::whole(unwrapper, text, proxy_log::is_one)? {
                Some(line) => proxy_log::read(line, values).map(Some),
                None => Ok(None),
            },
        }
    }

    fn again(&self) -> Option<Self> {
        match self {
            Self::Columns(columns) => columns.again().map(|columns| Self::Columns(Box::new(columns))),
            Self::Proxy(None) => Some(Self::Proxy(None)),
            Self::Proxy(Some(_)) => None,
        }
    }

    fn incomplete(&self) -> usize {
        match self {
            Self::Columns(columns) => columns.incomplete(),
            Self::Proxy(unwrapper) => unwrapper.as_ref().map_or(0, Unwrapper::incomplete),
        }
    }

    /// Returns nothing, because limits count the requests without a key.
    fn missing(&self) -> &[u64] {
        &[]
    }
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

/// A replay in progress.
struct Replay<'s> {
    settings: &'s Settings,
    started: Instant,
    parts: Vec<LimitPart>,
    needs: Vec<Need>,
    logs: Logs<Requests>,
    findings: Findings,
    /// The engine that enforces the limits. It is built when the first log is opened, because it
    /// depends on the kind of log.
    engine: Option<Engine>,
    against: Option<Compared>,
    /// The other algorithms of a comparison, each with its limits, or the reason why the algorithm
    /// does not accept them.
    beside: Vec<(Algorithm, Result<Engine, Failure>)>,
    request: Request<()>,
    /// All requests and their values, if they must be sorted before they are judged.
    waiting: Vec<Waiting>,
    values: Vec<u8>,
    rows: Option<Rows>,
    #[cfg(feature = "html")]
    page: Option<LimitsPage<'s>>,
}

impl<'s> Replay<'s> {
    fn new(settings: &'s Settings) -> Result<Self, Failure> {
        let parts = engine::parts(&settings.layer).map_err(|error| located(settings, error))?;
        let read = [("the log it replays", &*settings.inputs), ("a file of its limits", &*settings.configs)];
        let rows = match &settings.decisions {
            Some(path) => {
                let columns = ["allowed", "refused_by", "outcome", "retry_after_ns"];
                Some(Rows::create(path, &settings.inputs, &read, settings.html.is_none(), &columns)?)
            }
            None => None,
        };
        let mut needs = Need::all(&settings.layer, settings.file.as_ref(), &parts);
        let mut against = None;
        if let Some(other) = &settings.against {
            let parts = engine::parts(&other.layer).map_err(|error| of_against(other, error))?;
            for need in Need::all(&other.layer, other.file.as_ref(), &parts) {
                if !needs.iter().any(|known| known.what == need.what) {
                    needs.push(need);
                }
            }
            against = Some(Compared { parts, engine: None, changes: Changes::new() });
        }
        Ok(Self {
            settings,
            started: Instant::now(),
            needs,
            against,
            parts,
            logs: Logs::new(&settings.inputs, 0, settings.strict),
            findings: Findings { is_sorted: settings.sort, ..Findings::default() },
            engine: None,
            beside: Vec::new(),
            request: Request::new(()),
            waiting: Vec::new(),
            values: Vec::new(),
            rows,
            #[cfg(feature = "html")]
            page: settings.html.as_ref().map(|html| LimitsPage::open(html, &read)).transpose()?,
        })
    }

    fn judge(&mut self, arrived: &Arrived, values: &[u8], position: Position) -> Result<(), Failure> {
        let Self {
            settings,
            logs,
            engine: Some(engine),
            against,
            beside,
            request,
            findings,
            rows,
            #[cfg(feature = "html")]
            page,
            ..
        } = self
        else {
            return Ok(());
        };
        match &logs.sources[position.file] {
            Some(Requests::Columns(columns)) => columns.fill(values, request),
            _ => proxy_log::fill(values, request),
        }
        let (at, refusal) = engine.judge(request, arrived.at, arrived.duration_ns);
        logs.summary.judged_later_than_stamped.add(arrived.at, at);
        #[cfg(feature = "html")]
        if let Some(page) = page {
            page.judged(at, refusal.map(|refusal| refusal.retry_after));
        }
        if let Some(Compared { engine: Some(other), changes, .. }) = against {
            let (_, before) = other.judge(request, arrived.at, arrived.duration_ns);
            let (now, then) = (engine.tally(), other.tally());
            let refusing = refusal.map(|refusal| &now.limits[refusal.limit].name);
            let refusing = refusing.or(before.map(|refusal| &then.limits[refusal.limit].name));
            changes.add(
                at,
                [before.is_none(), refusal.is_none()],
                || client(request, settings.layer.ipv6_prefix),
                refusing.map(|name| || name.as_str()),
            );
        }
        for other in beside.iter_mut().filter_map(|(_, engine)| engine.as_mut().ok()) {
            other.judge(request, arrived.at, arrived.duration_ns);
        }
        findings.passed_without_record += u64::from(refusal.is_none() && arrived.is_early_refusal);
        let Some(rows) = rows else { return Ok(()) };
        let tally = engine.tally();
        rows.write(position, |row| {
            let Some(refusal) = refusal else {
                return ["true", "", "", ""].into_iter().try_for_each(|text| row.text(text));
            };
            row.text("false")?;
            row.text(&tally.limits[refusal.limit].name)?;
            row.text(refusal.outcome)?;
            match refusal.retry_after {
                Some(wait) => row.number(wait.as_nanos()),
                None => row.text(""),
            }
        })
    }

    /// Judges the remaining requests and returns the report.
    fn finish(mut self, progress: &mut Progress) -> Result<Report, Failure> {
        let mut waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            progress.judge(waiting.len() as u64);
        }
        // A stable sort keeps equal timestamps in order of arrival.
        waiting.sort_by_key(|waiting| waiting.arrived.at);
        let values = std::mem::take(&mut self.values);
        for Waiting { arrived, position, values: range } in waiting {
            self.judge(&arrived, &values[range], position)?;
            progress.tick();
        }
        let parsed = self.logs.summary.requests() + self.findings.no_requests;
        if parsed == 0 && self.logs.summary.unparsable() > 0 {
            return Err(Failure::refused(self.logs.summary.nothing_parses()));
        }
        if let Some(rows) = self.rows.take() {
            rows.finish()?;
        }
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.engine(false)?,
        };
        let by_log: Vec<String> = self.going_by_log().map(|part| part.name.clone()).collect();
        if by_log.is_empty() {
            self.findings.passed_without_record = 0;
        }
        let is_named = |name: &str| {
            engine.tally().limits.iter().any(|limit| limit.name == name && !limit.classes.is_empty())
        };
        self.findings.never_named = by_log.into_iter().filter(|name| !is_named(name)).collect();
        let mut report =
            Report::new(self.settings, &self.logs.summary, &self.findings, &engine, self.started.elapsed());
        if let (Some(compared), Some(other)) = (&self.against, &self.settings.against) {
            let shown = |client: &[u8]| printable(client);
            report.changes =
                Some(ChangesReport::new(&other.name, &compared.changes, self.settings.top, shown));
        }
        if self.settings.compare {
            let main = ByAlgorithm::new(self.settings.layer.algorithm, Ok(&engine));
            let beside = self.beside.iter().map(|(other, engine)| ByAlgorithm::new(*other, engine.as_ref()));
            report.algorithms = std::iter::once(main).chain(beside).collect();
        }
        #[cfg(feature = "html")]
        if let Some(page) = self.page.take() {
            let limits: Vec<String> = self.settings.layer.limits.iter().map(ToString::to_string).collect();
            page.write(&report, &limits)?;
        }
        Ok(report)
    }

    /// Builds the limits. `is_of_proxy` is set if the proxy wrote the log.
    fn engine(&self, is_of_proxy: bool) -> Result<Engine, Failure> {
        let engine = Engine::new(&self.settings.layer, &self.parts, is_of_proxy);
        engine.map_err(|error| located(self.settings, error))
    }

    /// Returns the limits that read their keys from the log. There are none unless the proxy wrote
    /// the log.
    fn going_by_log(&self) -> impl Iterator<Item = &LimitPart> {
        let goes_by_log = |part: &&LimitPart| {
            let text = self.settings.layer.limits.iter().find(|text| text.name == part.text_name);
            text.is_some_and(|text| facts(text).iter().any(Fact::is_of_few_logs))
        };
        self.parts.iter().filter(|_| self.findings.is_of_proxy).filter(goes_by_log)
    }
}

impl Reader for Replay<'_> {
    type Source = Requests;

    fn logs(&mut self) -> &mut Logs<Requests> {
        &mut self.logs
    }

    fn recognise(&self, first: &[u8]) -> Result<(Format, Requests), Unopened> {
        let log = &self.settings.log;
        let may_be_json =
            matches!(log.format, None | Some(Format::Json | Format::Tollgate)) && log.names.is_empty();
        if may_be_json {
            let mut unwrapper = Unwrapper::of(first);
            if let Ok(Some(line)) = wrapped::whole(&mut unwrapper, first, |_| false)
                && proxy_log::is_one(line)
            {
                return Ok((Format::Tollgate, Requests::Proxy(unwrapper)));
            }
        }
        let (format, columns) = Columns::open(first, &self.needs, log)?;
        Ok((format, Requests::Columns(Box::new(columns))))
    }

    /// If this is the first log, builds the limits.
    fn opening(&mut self, file: usize, source: &Requests) -> Result<(), Failure> {
        let is_of_proxy = matches!(source, Requests::Proxy(_));
        if self.engine.is_some() && is_of_proxy != self.findings.is_of_proxy {
            return Err(Failure::refused(format!(
                "{} is the JSON log of tollgate proxy and another log is not, or the other way round: expected logs of \
                 one kind; replay them one by one",
                self.settings.inputs[file]
            )));
        }
        if self.engine.is_none() {
            self.engine = Some(self.engine(is_of_proxy)?);
            if let (Some(compared), Some(other)) = (&mut self.against, &self.settings.against) {
                let engine = Engine::new(&other.layer, &compared.parts, is_of_proxy);
                compared.engine = Some(engine.map_err(|error| of_against(other, error))?);
            }
            if self.settings.compare {
                let layer = &self.settings.layer;
                let others = Algorithm::ALL.into_iter().filter(|other| *other != layer.algorithm);
                let beside = |other| (other, Engine::beside(layer, other, &self.parts, is_of_proxy));
                self.beside = others.map(beside).collect();
            }
            self.findings.is_of_proxy = is_of_proxy;
            self.findings.is_sorted |= is_of_proxy;
        }
        if let Requests::Columns(columns) = source {
            self.findings.guesses_preflights |= columns.guesses_preflights();
            self.findings.is_sorted |= columns.is_by_ends();
        }
        Ok(())
    }

    /// Judges a request, or adds it to the requests to sort.
    fn take(&mut self, found: Found, values: &[u8], position: Position) -> Result<(), Failure> {
        let Found::Request(arrived) = found else {
            self.findings.no_requests += 1;
            return Ok(());
        };
        self.logs.summary.arrived(position, arrived.at);
        if !self.findings.is_sorted {
            return self.judge(&arrived, values, position);
        }
        let from = self.values.len();
        self.values.extend_from_slice(values);
        self.waiting.push(Waiting { arrived, position, values: from..self.values.len() });
        Ok(())
    }
}

/// Returns the client that sent a request: its address, in the form in which limits count it.
fn client(request: &Request<()>, ipv6_prefix: u8) -> Box<[u8]> {
    let peer = request.extensions().get::<PeerAddr>().map(|peer| peer.0.ip().to_string());
    let counted = peer.map(|ip| Addresses::new(ipv6_prefix, None).counted(ip.as_bytes()).into_owned());
    counted.unwrap_or_else(|| b"(no address)".to_vec()).into_boxed_slice()
}

/// Adds the file name and line number to an error about a setting from the file of `--config`.
fn located(settings: &Settings, failure: Failure) -> Failure {
    match &settings.file {
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
