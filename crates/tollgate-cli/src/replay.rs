//! Replays access logs through a limiter, to find what a limit would have done to that traffic.
//!
//! A line becomes a [`Request`] with a time and a key ([`log`]). Requests are gathered in batches
//! and judged by each [`Simulation`]; [`report`] presents the results.
//! Memory grows with the distinct keys of the log and with nothing else, except that sorting keeps
//! 40 bytes per request, and half as much again while it sorts.
//!
//! For each key, time never runs backwards: a request is judged at its own timestamp or at the
//! latest one already seen for its key, whichever is later. The limiter under test forgets idle
//! keys at the log's times, so `--max-keys` refuses as many new keys as it would have refused:
//! [`places`] says how.
//!
//! That is a replay of one quota. [`limits`] replays limits with names, as the proxy enforces them,
//! and [`suggest`](mod@suggest) finds quotas for a log.

pub(crate) mod args;
mod changes;
mod decisions;
mod entry;
#[cfg(feature = "html")]
mod html;
mod html_settings;
mod input;
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
use key_quotas::KeyQuotas;
use keys::{KeyId, Keys};
use log::key::KeyShape;
use log::lines;
use log::summary::LogSummary;
use position::Position;
use progress::Progress;
use report::Report;
use report::changes::ChangesReport;
use simulation::{Batch, Simulation};

use crate::failure::Failure;

pub use html_settings::HtmlSettings;
pub use input::Input;
pub use limiter::LimiterSettings;
pub use log::lines::{Line, Lines};
pub use log::record::Records;
pub use log::request::{Reason, Request};
pub use log::schema::{Cost, Format, Unopened, Wanted};
pub use log::timestamp::TimeUnit;
pub use settings::Settings;

/// Replays all inputs.
///
/// # Errors
///
/// An input or quotas that cannot be read, a field that no log has, a configuration that no limiter
/// accepts, a log without a line that parses, and with `strict` any line that does not parse.
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
    entries: Vec<Entry>,
    against: Option<Against>,
    decisions: Option<Decisions>,
    #[cfg(feature = "html")]
    page: Option<Page<'s>>,
    batch: Batch,
    /// All requests, if they must be sorted first.
    unsorted: Vec<Arrival>,
}

/// The quota that decisions are compared with.
struct Against {
    simulation: Box<Simulation>,
    changes: Changes,
}

/// The result of parsing a line.
enum Parsed {
    Request(Request),
    /// The line names the columns of the log.
    Header,
    Blank,
    Bad(Reason),
}

/// A request that waits to be sorted.
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
            Some(html) => Some(Page::open(
                html,
                &settings.inputs,
                settings.key_quotas.as_ref(),
                Watch::new(settings, key_quotas.as_ref()),
            )?),
            None => None,
        };
        Ok(Self {
            settings,
            started: Instant::now(),
            log: LogSummary::new(names, settings.wanted.key.len(), settings.strict),
            keys: Keys::default(),
            key_quotas,
            entries,
            against,
            decisions,
            #[cfg(feature = "html")]
            page,
            batch: Batch::default(),
            unsorted: Vec::new(),
        })
    }

    /// Reads one log to its end. `file` is its index among the inputs.
    pub fn read(&mut self, file: usize, from: impl Read, progress: &mut Progress) -> Result<(), Failure> {
        let input = &self.settings.inputs[file];
        let unreadable = |error: io::Error| Failure::reading(input, &error);
        let mut lines = Lines::new(lines::unpacked(from).map_err(unreadable)?);
        let mut records: Option<Records> = None;
        let mut key = Vec::new();
        while let Some(line) = lines.next_line().map_err(unreadable)? {
            key.clear();
            let parsed = self.parse(file, &line, &mut records, &mut key)?;
            let position = Position { file, line: lines.number() };
            self.log.files[file].lines += 1;
            match parsed {
                Parsed::Request(request) => self.admit(request, &key, position)?,
                Parsed::Header => self.log.files[file].header += 1,
                Parsed::Blank => self.log.files[file].blank += 1,
                Parsed::Bad(reason) => self.log.bad_line(position, reason)?,
            }
            progress.tick();
        }
        self.log.files[file].skipped_nuls = lines.skipped();
        self.log.files[file].is_open = lines.is_open();
        let missing = records.iter().flat_map(Records::missing);
        self.log.missing.iter_mut().zip(missing).for_each(|(all, missing)| *all += missing);
        Ok(())
    }

    /// Parses a line with the reader for its log, which the first line of the log creates.
    #[inline]
    fn parse(
        &mut self,
        file: usize,
        line: &Line<'_>,
        records: &mut Option<Records>,
        key: &mut Vec<u8>,
    ) -> Result<Parsed, Failure> {
        let text = match line {
            Line::Text(text) if text.trim_ascii().is_empty() => return Ok(Parsed::Blank),
            Line::Text(text) => text,
            Line::TooLong => {
                let reason = format!("it is longer than {} bytes", lines::MAX_LINE);
                return Ok(Parsed::Bad(reason.into()));
            }
        };
        let records = match records {
            Some(records) => records,
            None => match Records::open(text, self.settings.format, &self.settings.wanted) {
                Ok((format, opened)) => {
                    self.log.files[file].format = Some(format);
                    let opened = records.insert(opened);
                    if format == Format::Csv {
                        return Ok(Parsed::Header);
                    }
                    opened
                }
                Err(Unopened::NotARecord(reason)) => return Ok(Parsed::Bad(reason)),
                Err(Unopened::Refused(message)) => {
                    let name = &self.settings.inputs[file];
                    return Err(Failure::refused(format!("{name}: {message}")));
                }
            },
        };
        Ok(match records.read(text, key) {
            Ok(request) => Parsed::Request(request),
            Err(reason) => Parsed::Bad(reason),
        })
    }

    /// Adds a request to the batch, or to the requests to sort.
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
        if let Some(decisions) = self.decisions.take() {
            decisions.finish()?;
        }
        let seconds = self.started.elapsed();
        let key_quotas = self.key_quotas.as_ref();
        let report = |settings: &Settings, entries: &[Entry]| {
            Report::new(settings, &self.log, &self.keys, key_quotas, entries, seconds)
        };
        let mut of_limit = report(self.settings, &self.entries);
        if let Some(Against { simulation, changes }) = &self.against {
            let shape = KeyShape::new(self.settings.wanted.key.len());
            let quota = simulation.quota.to_string();
            let changes = ChangesReport::new(&quota, changes, self.settings.top, |key| shape.show(key));
            of_limit.changes = Some(changes);
        }
        #[cfg(feature = "html")]
        if let Some(page) = self.page.take() {
            let beside = report(&page.watch.settings, &page.watch.beside);
            page.write(&of_limit, &beside, &self.entries, &self.keys, self.settings.wanted.key.len())?;
        }
        Ok(of_limit)
    }

    fn judge(&mut self) -> Result<(), Failure> {
        for entry in &mut self.entries {
            if let Entry::Simulated(simulation) = entry {
                simulation.judge(&self.batch, self.keys.len(), self.decisions.as_mut())?;
            }
        }
        let main = self.entries.iter().find_map(|entry| match entry {
            Entry::Simulated(simulation) => Some(simulation),
            Entry::Refused { .. } => None,
        });
        if let (Some(Against { simulation, changes }), Some(main)) = (&mut self.against, main) {
            simulation.judge(&self.batch, self.keys.len(), None)?;
            let [before, after] = [&**simulation, main].map(|simulation| simulation.decided(&self.batch));
            for (before, after) in before.zip(after) {
                let passes = [&before, &after].map(|decided| decided.decision.is_allowed());
                changes.add(after.at, passes, || after.key.into(), None::<fn() -> &'static str>);
            }
        }
        #[cfg(feature = "html")]
        if let (Some(page), Some(main)) = (&mut self.page, main) {
            page.watch.judge(&self.batch, self.keys.len(), main.decided(&self.batch))?;
        }
        self.batch.clear();
        Ok(())
    }
}
