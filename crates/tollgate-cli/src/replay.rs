//! Replays access logs through a limiter, to show what a limit would have done to that traffic.
//!
//! Each line becomes a [`Request`] with a time and a key ([`log`]). Requests are collected in
//! batches, and each [`Simulation`](simulation::Simulation) judges every batch. [`report`] presents
//! the results. Other threads may parse lines ([`parallel`]) and judge requests ([`judges`]), but
//! they never change a decision.
//!
//! Memory grows only with the number of distinct keys: even with several threads, only a few chunks
//! of the log are in memory at a time. A replay that sorts the log also requires 40 bytes per
//! request, and half as much again while the sort runs.
//!
//! For each key, time never runs backwards: a request is judged at its own timestamp or at the
//! latest timestamp already seen for its key, whichever is later. The simulated limiter evicts idle
//! keys according to the timestamps in the log, so `--max-keys` refuses as many new keys as it
//! would have refused in production ([`places`]).
//!
//! This module replays one quota. [`limits`] replays named limits, as the proxy enforces them, and
//! [`suggest`](mod@suggest) finds quotas for a log.

pub(crate) mod args;
mod changes;
mod decisions;
mod entry;
#[cfg(feature = "html")]
mod html;
mod html_settings;
mod input;
mod judges;
mod key_quotas;
mod keys;
mod limiter;
pub mod limits;
pub(crate) mod log;
mod places;
mod position;
pub mod progress;
pub mod report;
mod settings;
mod simulation;
pub mod suggest;
mod timeline;

use std::io::{self, Read};
use std::time::Instant;

use tollgate::Tick;

use changes::Changes;
use decisions::Decisions;
use entry::Entry;
#[cfg(feature = "html")]
use html::{Page, watch::Watch};
use judges::{Against, Court, Witness};
use key_quotas::KeyQuotas;
use keys::{KeyId, Keys};
use log::key::KeyShape;
use log::lines;
use log::parallel::{self, LINES_ALONE, Parser};
use log::summary::LogSummary;
use position::Position;
use progress::Progress;
use report::Report;
use report::changes::ChangesReport;
use simulation::Batch;

use crate::failure::Failure;

pub use html_settings::HtmlSettings;
pub use input::Input;
pub use limiter::LimiterSettings;
pub use log::formats::Format;
pub use log::lines::{Line, Lines};
pub use log::record::Records;
pub use log::request::{Reason, Request};
pub use log::schema::{Cost, Unopened, Wanted};
pub use log::timestamp::TimeUnit;
pub use settings::Settings;

/// Replays all inputs.
///
/// # Errors
///
/// Returns an error if an input or the quotas cannot be read, if a log has no column for a required
/// field, or if no limiter accepts the configuration. Also returns an error if no line parses or,
/// with `strict`, if any line does not parse.
pub fn replay(settings: &Settings) -> Result<Report, Failure> {
    let length = input::check(&settings.inputs)?;
    let mut replay = Replay::new(settings)?;
    let mut progress = Progress::new(length);
    for (file, input) in settings.inputs.iter().enumerate() {
        let from = input.open(progress.bytes_read())?;
        replay.read(file, from, &mut progress)?;
    }
    let report = replay.finish(&mut progress)?;
    progress.finish();
    Ok(report)
}

/// A replay in progress.
pub struct Replay<'s> {
    settings: &'s Settings,
    started: Instant,
    log: LogSummary,
    keys: Keys,
    key_quotas: Option<KeyQuotas>,
    court: Court,
    #[cfg(feature = "html")]
    page: Option<Page<'s>>,
    batch: Batch,
    /// All requests, if they must be sorted before they are judged.
    unsorted: Vec<Arrival>,
}

/// The result of parsing a line.
enum Parsed {
    Request(Request),
    /// The line describes the log, or is part of a split line that is still incomplete.
    Header,
    Blank,
    Bad(Reason),
}

/// A request waiting to be sorted.
struct Arrival {
    at: Tick,
    cost: u64,
    id: KeyId,
    position: Position,
}

impl<'s> Replay<'s> {
    pub fn new(settings: &'s Settings) -> Result<Self, Failure> {
        let key_quotas = match &settings.key_quotas {
            Some(input) => Some(KeyQuotas::read(input, &settings.wanted)?),
            None => None,
        };
        let entries = entry::entries(settings, key_quotas.as_ref())?;
        let against = match settings.against {
            Some(quota) => {
                let simulation = entry::against(settings, quota, key_quotas.as_ref())?;
                Some(Against { simulation, changes: Changes::new() })
            }
            None => None,
        };
        let names: Vec<String> = settings.inputs.iter().map(Input::to_string).collect();
        let shape = KeyShape::new(settings.wanted.key.len());
        let decisions = match &settings.decisions {
            Some(path) => {
                Some(Decisions::create(path, &settings.inputs, settings.key_quotas.as_ref(), shape)?)
            }
            None => None,
        };
        #[cfg(feature = "html")]
        let page = match &settings.html {
            Some(html) => Some(Page::open(html, &settings.inputs, settings.key_quotas.as_ref())?),
            None => None,
        };
        let witness = Witness {
            against,
            #[cfg(feature = "html")]
            watch: page.is_some().then(|| Watch::new(settings, key_quotas.as_ref())),
        };
        Ok(Self {
            settings,
            started: Instant::now(),
            log: LogSummary::new(names, settings.wanted.key.len(), settings.strict),
            keys: Keys::default(),
            key_quotas,
            court: Court::new(entries, decisions, witness),
            #[cfg(feature = "html")]
            page,
            batch: Batch::default(),
            unsorted: Vec::new(),
        })
    }

    /// Reads one log to its end. `file` is the index of the log among the inputs.
    pub fn read(&mut self, file: usize, from: impl Read, progress: &mut Progress) -> Result<(), Failure> {
        let input = &self.settings.inputs[file];
        let unreadable = |error: io::Error| Failure::reading(input, &error);
        let mut lines = Lines::new(lines::unpacked(from).map_err(unreadable)?);
        let mut records: Option<Records> = None;
        self.read_lines(file, &mut lines, &mut records, LINES_ALONE, progress)?;
        let parsers = self.parsers(records.as_ref());
        if parsers.is_empty() {
            self.read_lines(file, &mut lines, &mut records, u64::MAX, progress)?;
            self.read_to(file, &lines, records.as_ref());
            return Ok(());
        }
        self.court.spread(self.settings.threads - 1);
        let take = |parsed, key: &[u8], line| {
            progress.tick();
            self.take(parsed, key, Position { file, line })
        };
        let (parsers, mut lines) = parallel::read(lines, parsers, unreadable, take)?;
        for LineParser(records) in &parsers {
            self.add_missing(Some(records));
        }
        self.read_lines(file, &mut lines, &mut records, u64::MAX, progress)?;
        self.read_to(file, &lines, records.as_ref());
        Ok(())
    }

    /// Reads at most `most` lines of a log.
    fn read_lines(
        &mut self,
        file: usize,
        lines: &mut Lines<impl Read>,
        records: &mut Option<Records>,
        most: u64,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let input = &self.settings.inputs[file];
        let mut key = Vec::new();
        let mut read = 0;
        while read < most
            && let Some(line) = lines.next_line().map_err(|error| Failure::reading(input, &error))?
        {
            read += 1;
            key.clear();
            let parsed = self.parse(file, &line, records, &mut key)?;
            self.take(parsed, &key, Position { file, line: lines.number() })?;
            progress.tick();
        }
        Ok(())
    }

    /// Returns parsers for other threads, or none if a single thread must read the log.
    fn parsers(&self, records: Option<&Records>) -> Vec<LineParser> {
        let threads = self.settings.threads;
        let Some(records) = records.filter(|_| threads > 1) else { return Vec::new() };
        (1..threads).map_while(|_| records.again().map(LineParser)).collect()
    }

    /// Records that a log has been read to its end.
    fn read_to(&mut self, file: usize, lines: &Lines<impl Read>, records: Option<&Records>) {
        let counts = lines.counts();
        self.log.files[file].skipped_nuls = counts.skipped;
        self.log.files[file].is_open = counts.is_open;
        self.add_missing(records);
    }

    fn add_missing(&mut self, records: Option<&Records>) {
        let missing = records.into_iter().flat_map(Records::missing);
        self.log.missing.iter_mut().zip(missing).for_each(|(all, missing)| *all += missing);
    }

    /// Parses a line. The first line of a log creates the log's reader.
    #[inline]
    fn parse(
        &mut self,
        file: usize,
        line: &Line<'_>,
        records: &mut Option<Records>,
        key: &mut Vec<u8>,
    ) -> Result<Parsed, Failure> {
        if let (None, Line::Text(text)) = (&records, line)
            && !text.trim_ascii().is_empty()
        {
            match Records::open(text, self.settings.format, &self.settings.wanted) {
                Ok((format, opened)) => {
                    self.log.files[file].format = Some(format);
                    *records = Some(opened);
                    if format == Format::Csv {
                        return Ok(Parsed::Header);
                    }
                }
                Err(Unopened::NotARecord(reason)) => return Ok(Parsed::Bad(reason)),
                Err(Unopened::Directive) => return Ok(Parsed::Header),
                Err(Unopened::Refused(message)) => {
                    let name = &self.settings.inputs[file];
                    return Err(Failure::refused(format!("{name}: {message}")));
                }
            }
        }
        Ok(parse(line, records.as_mut(), key))
    }

    /// Counts a line, and judges its request.
    #[inline]
    fn take(&mut self, parsed: Parsed, key: &[u8], position: Position) -> Result<(), Failure> {
        let file = &mut self.log.files[position.file];
        file.lines += 1;
        match parsed {
            Parsed::Request(request) => self.admit(request, key, position)?,
            Parsed::Header => file.header += 1,
            Parsed::Blank => file.blank += 1,
            Parsed::Bad(reason) => self.log.bad_line(position, reason)?,
        }
        Ok(())
    }

    /// Adds a request to the batch or, if the replay sorts the log, to the requests to sort.
    #[inline]
    fn admit(&mut self, request: Request, key: &[u8], position: Position) -> Result<(), Failure> {
        let Request { at, cost } = request;
        self.log.arrived(position, at);
        let id = self.keys.id(key);
        if self.settings.sort {
            self.unsorted.push(Arrival { at, cost, id, position });
            return Ok(());
        }
        let judged_at = self.keys.arrive(id, at);
        self.log.judged_later_than_stamped.add(at, judged_at);
        self.batch.push(key, id, judged_at, cost, position);
        if self.batch.is_full() { self.judge() } else { Ok(()) }
    }

    /// Judges the remaining requests and returns the report.
    pub fn finish(mut self, progress: &mut Progress) -> Result<Report, Failure> {
        let mut unsorted = std::mem::take(&mut self.unsorted);
        if !unsorted.is_empty() {
            progress.judge(unsorted.len() as u64);
        }
        // A stable sort keeps equal timestamps in order of arrival.
        unsorted.sort_by_key(|arrival| arrival.at);
        let keys: Vec<Box<[u8]>> = match unsorted.is_empty() {
            true => Vec::new(),
            false => self.keys.by_id().into_iter().map(Box::from).collect(),
        };
        for arrival in unsorted {
            let at = self.keys.arrive(arrival.id, arrival.at);
            self.batch.push(&keys[arrival.id], arrival.id, at, arrival.cost, arrival.position);
            if self.batch.is_full() {
                self.judge()?;
            }
            progress.tick();
        }
        self.judge()?;
        if self.log.requests() == 0 && self.log.unparsable() > 0 {
            return Err(Failure::refused(self.log.nothing_parses()));
        }
        let (entries, decisions, witness) = self.court.finish()?;
        if let Some(decisions) = decisions {
            decisions.finish()?;
        }
        let seconds = self.started.elapsed();
        let key_quotas = self.key_quotas.as_ref();
        let report = |settings: &Settings, entries: &[Entry]| {
            Report::new(settings, &self.log, &self.keys, key_quotas, entries, seconds)
        };
        let mut of_limit = report(self.settings, &entries);
        if let Some(Against { simulation, changes }) = &witness.against {
            let shape = KeyShape::new(self.settings.wanted.key.len());
            let quota = simulation.quota.to_string();
            let changes = ChangesReport::new(&quota, changes, self.settings.top, |key| shape.show(key));
            of_limit.changes = Some(changes);
        }
        #[cfg(feature = "html")]
        if let (Some(page), Some(watch)) = (self.page.take(), &witness.watch) {
            let beside = report(&watch.settings, &watch.beside);
            let fields = self.settings.wanted.key.len();
            page.write(&of_limit, &beside, &entries, &self.keys, watch, fields)?;
        }
        Ok(of_limit)
    }

    fn judge(&mut self) -> Result<(), Failure> {
        self.court.judge(&mut self.batch, self.keys.len())
    }
}

/// Parses the lines of an open log.
struct LineParser(Records);

impl Parser for LineParser {
    type Outcome = Parsed;

    fn parse(&mut self, line: &Line<'_>, values: &mut Vec<u8>) -> Parsed {
        parse(line, Some(&mut self.0), values)
    }
}

/// Parses a line with its log's reader. Without a reader, every nonblank line is reported as having
/// no known format.
#[inline]
fn parse(line: &Line<'_>, records: Option<&mut Records>, key: &mut Vec<u8>) -> Parsed {
    let text = match line {
        Line::Text(text)
            if text.first().is_none_or(u8::is_ascii_whitespace) && text.trim_ascii().is_empty() =>
        {
            return Parsed::Blank;
        }
        Line::Text(text) => text,
        Line::TooLong => {
            let reason = format!("it is longer than {} bytes", lines::MAX_LINE);
            return Parsed::Bad(reason.into());
        }
    };
    match records.map(|records| records.read(text, key)) {
        Some(Ok(Some(request))) => Parsed::Request(request),
        Some(Ok(None)) => Parsed::Header,
        Some(Err(reason)) => Parsed::Bad(reason),
        None => Parsed::Bad("it is of no format".into()),
    }
}
