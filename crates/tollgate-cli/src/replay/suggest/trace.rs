//! Stores the requests in a log in memory, by client, so that many rates can be tried on them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::client::Client;
use super::settings::Settings;
use crate::failure::Failure;
use crate::replay::keys::Keys;
use crate::replay::log::formats::Format;
use crate::replay::log::key::KeyShape;
use crate::replay::log::record::Records;
use crate::replay::log::request::{Reason, Request};
use crate::replay::log::schema::Unopened;
use crate::replay::log::summary::LogSummary;
use crate::replay::position::Position;
use crate::replay::progress::Progress;
use crate::replay::reading::{self, Logs, Reader, Source};

/// Additional fields, which are read if the log has them. They reveal the clients' patterns.
const BESIDE: [&str; 2] = ["path", "status"];

/// The requests of all logs.
pub(crate) struct Trace {
    pub(crate) log: LogSummary,
    pub(crate) keys: Keys,
    /// The clients, by the ids of their keys.
    pub(crate) clients: Vec<Client>,
}

/// The records of one log.
struct Opened {
    records: Records,
    /// Whether each key ends with the fields of [`BESIDE`].
    has_more: bool,
}

impl Trace {
    /// # Errors
    ///
    /// Returns an error if an input cannot be read, if a log has no column for a required field, or
    /// if no line parses. In a strict replay, any line that does not parse is an error.
    pub(crate) fn read(settings: &Settings, progress: &mut Progress) -> Result<Self, Failure> {
        let mut tracing = Tracing {
            settings,
            logs: Logs::new(&settings.inputs, settings.wanted.key.len(), settings.strict),
            keys: Keys::default(),
            clients: Vec::new(),
            hashes: RandomState::default(),
        };
        reading::read_all(&mut tracing, &settings.inputs, settings.threads, progress)?;
        let Tracing { logs, keys, clients, .. } = tracing;
        let mut trace = Self { log: logs.summary, keys, clients };
        if trace.log.requests() == 0 {
            let message = match trace.log.unparsable() {
                0 => "the log is empty: a limit is suggested for at least one request".to_owned(),
                _ => trace.log.nothing_parses(),
            };
            return Err(Failure::refused(message));
        }
        if settings.sort {
            trace.clients.iter_mut().for_each(|client| client.times.sort_unstable());
        }
        Ok(trace)
    }
}

/// A trace that is being read.
struct Tracing<'s> {
    settings: &'s Settings,
    logs: Logs<Opened>,
    keys: Keys,
    clients: Vec<Client>,
    hashes: RandomState,
}

impl Reader for Tracing<'_> {
    type Source = Opened;

    fn logs(&mut self) -> &mut Logs<Opened> {
        &mut self.logs
    }

    /// The fields of [`BESIDE`] are also read if the log has them.
    fn recognise(&self, first: &[u8]) -> Result<(Format, Opened), Unopened> {
        let Settings { format, wanted, .. } = self.settings;
        let mut more = wanted.clone();
        more.key.extend(BESIDE.map(str::to_owned));
        if let Ok((format, records)) = Records::open(first, *format, &more) {
            return Ok((format, Opened { records, has_more: true }));
        }
        let (format, records) = Records::open(first, *format, wanted)?;
        Ok((format, Opened { records, has_more: false }))
    }

    fn take(&mut self, request: Request, key: &[u8], position: Position) -> Result<(), Failure> {
        let Self { settings, logs, .. } = self;
        let has_more = logs.sources[position.file].as_ref().is_some_and(|opened| opened.has_more);
        logs.summary.arrived(position, request.at);
        let fields = settings.wanted.key.len();
        let mut values = KeyShape::new(fields + BESIDE.len()).values(key);
        let id = if has_more {
            let mut own = Vec::with_capacity(key.len());
            values.by_ref().take(fields).for_each(|value| KeyShape::new(fields).push(&mut own, value));
            self.keys.id(&own)
        } else {
            self.keys.id(key)
        };
        let judged_at = self.keys.arrive(id, request.at);
        if id == self.clients.len() {
            self.clients.push(Client::default());
        }
        let client = &mut self.clients[id];
        if has_more && let (Some(path), Some(status)) = (values.next(), values.next()) {
            client.requested(self.hashes.hash_one(path), status, request.at);
        }
        if settings.sort {
            client.times.push(request.at);
        } else {
            logs.summary.judged_later_than_stamped.add(request.at, judged_at);
            client.times.push(judged_at);
        }
        Ok(())
    }
}

impl Source for Opened {
    type Request = Request;

    fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Option<Request>, Reason> {
        self.records.read(line, key)
    }

    fn again(&self) -> Option<Self> {
        Some(Self { records: self.records.again()?, has_more: self.has_more })
    }

    fn missing(&self) -> &[u64] {
        self.records.missing()
    }
}
