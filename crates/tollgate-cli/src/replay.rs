//! Replays access logs through a limiter, to show what a limit would have done to that traffic.
//!
//! Each line becomes a [`Request`] with a time and a key ([`log`], [`reading`]). Requests are
//! collected in batches, and each [`Simulation`](simulation::Simulation) judges every batch.
//! [`report`] presents the results. Other threads may parse lines and judge requests ([`judges`]),
//! but they never change a decision.
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
mod reading;
pub mod report;
mod settings;
mod simulation;
pub mod suggest;
mod timeline;

use std::io::Read;
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
use position::Position;
use progress::Progress;
use reading::{Logs, Reader, Source};
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
    reading::read_all(&mut replay, &settings.inputs, settings.threads, &mut progress)?;
    let report = replay.finish(&mut progress)?;
    progress.finish();
    Ok(report)
}

/// A replay in progress.
pub struct Replay<'s> {
    settings: &'s Settings,
    started: Instant,
    logs: Logs<Records>,
    keys: Keys,
    key_quotas: Option<KeyQuotas>,
    court: Court,
    #[cfg(feature = "html")]
    page: Option<Page<'s>>,
    batch: Batch,
    /// Whether the requests are sorted by time before they are judged.
    is_sorted: bool,
    /// All requests, if they must be sorted before they are judged.
    unsorted: Vec<Arrival>,
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
        let shape = KeyShape::new(settings.wanted.key.len());
        let read = [
            ("the log it replays", &*settings.inputs),
            ("the quotas of --quotas", settings.key_quotas.as_slice()),
        ];
        let decisions = match &settings.decisions {
            Some(path) => {
                Some(Decisions::create(path, &settings.inputs, &read, settings.html.is_none(), shape)?)
            }
            None => None,
        };
        #[cfg(feature = "html")]
        let page = match &settings.html {
            Some(html) => Some(Page::open(html, &read)?),
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
            logs: Logs::new(&settings.inputs, settings.wanted.key.len(), settings.strict),
            keys: Keys::default(),
            key_quotas,
            court: Court::new(entries, decisions, witness),
            #[cfg(feature = "html")]
            page,
            batch: Batch::default(),
            is_sorted: settings.sort,
            unsorted: Vec::new(),
        })
    }

    /// Reads one log to its end. `file` is the index of the log among the inputs.
    pub fn read(&mut self, file: usize, from: impl Read, progress: &mut Progress) -> Result<(), Failure> {
        let settings = self.settings;
        reading::read(self, (file, &settings.inputs[file]), from, settings.threads, progress)
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
        if self.logs.summary.requests() == 0 && self.logs.summary.unparsable() > 0 {
            return Err(Failure::refused(self.logs.summary.nothing_parses()));
        }
        let (entries, decisions, witness) = self.court.finish()?;
        if let Some(decisions) = decisions {
            decisions.finish()?;
        }
        let seconds = self.started.elapsed();
        let key_quotas = self.key_quotas.as_ref();
        let report = |settings: &Settings, entries: &[Entry]| {
            Report::new(
                settings,
                self.is_sorted,
                &self.logs.summary,
                &self.keys,
                key_quotas,
                entries,
                seconds,
            )
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

impl Reader for Replay<'_> {
    type Source = Records;

    #[inline]
    fn logs(&mut self) -> &mut Logs<Records> {
        &mut self.logs
    }

    fn recognise(&self, first: &[u8]) -> Result<(Format, Records), Unopened> {
        Records::open(first, self.settings.format, &self.settings.wanted)
    }

    /// From a log in the order in which requests ended on, all requests are sorted.
    fn opening(&mut self, _file: usize, source: &Records) -> Result<(), Failure> {
        self.is_sorted |= source.is_by_ends();
        Ok(())
    }

    /// Adds a request to the batch or, if the replay sorts the log, to the requests to sort.
    #[inline]
    fn take(&mut self, request: Request, key: &[u8], position: Position) -> Result<(), Failure> {
        let Request { at, cost } = request;
        self.logs.summary.arrived(position, at);
        let id = self.keys.id(key);
        if self.is_sorted {
            self.unsorted.push(Arrival { at, cost, id, position });
            return Ok(());
        }
        let judged_at = self.keys.arrive(id, at);
        self.logs.summary.judged_later_than_stamped.add(at, judged_at);
        self.batch.push(key, id, judged_at, cost, position);
        if self.batch.is_full() { self.judge() } else { Ok(()) }
    }

    fn is_long(&mut self) {
        self.court.spread(self.settings.threads - 1);
    }
}

impl Source for Records {
    type Request = Request;

    #[inline]
    fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Option<Request>, Reason> {
        self.read(line, key)
    }

    fn again(&self) -> Option<Self> {
        self.again()
    }

    fn incomplete(&self) -> usize {
        self.incomplete()
    }

    fn missing(&self) -> &[u64] {
        self.missing()
    }
}
