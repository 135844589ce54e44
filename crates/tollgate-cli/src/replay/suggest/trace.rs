//! Stores the requests in a log in memory, by client, so that many rates can be tried on them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::client::Client;
use super::settings::SuggestSettings;
use crate::failure::Failure;
use crate::replay::keys::Keys;
use crate::replay::log::formats::Format;
use crate::replay::log::key::KeyShape;
use crate::replay::log::record::Records;
use crate::replay::log::request::{Reason, Record};
use crate::replay::log::schema::{Unopened, Wanted};
use crate::replay::log::summary::LogSummary;
use crate::replay::position::Position;
use crate::replay::progress::Progress;
use crate::replay::reading::{self, Logs, Reader, Source};

/// Additional fields, which are read where a log has them. They reveal the clients' patterns.
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
    /// Reads the fields of [`BESIDE`], if the log has them.
    beside: Option<Records>,
}

impl Trace {
    /// # Errors
    ///
    /// Returns an error if an input cannot be read, if a log has no column for a required field, or
    /// if no line parses. In a strict replay, any line that does not parse is an error.
    pub(crate) fn read(settings: &SuggestSettings, progress: &mut Progress) -> Result<Self, Failure> {
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
        // The times are in memory in any case, so a log in any order is judged in order of time.
        trace.clients.iter_mut().for_each(|client| client.times.sort_unstable());
        Ok(trace)
    }
}

/// A trace that is being read.
struct Tracing<'s> {
    settings: &'s SuggestSettings,
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

    fn recognise(&self, first: &[u8]) -> Result<(Format, Opened), Unopened> {
        let SuggestSettings { format, wanted, .. } = self.settings;
        let (format, records) = Records::open(first, *format, wanted)?;
        let beside = Wanted { key: BESIDE.map(str::to_owned).into(), ..wanted.clone() };
        let beside = Records::open(first, Some(format), &beside).ok().map(|(_, beside)| beside);
        Ok((format, Opened { records, beside }))
    }

    fn take(&mut self, found: Found, values: &[u8], position: Position) -> Result<(), Failure> {
        let Found { request, key_length } = found;
        self.logs.summary.arrived(position, request.at);
        let (key, beside) = values.split_at(key_length);
        let id = self.keys.id(key);
        if id == self.clients.len() {
            self.clients.push(Client::default());
        }
        let client = &mut self.clients[id];
        let mut beside = KeyShape::new(BESIDE.len()).values(beside);
        if let (Some(path), Some(status)) = (beside.next(), beside.next()) {
            client.requested(self.hashes.hash_one(path), status, request.at);
        }
        client.times.push(request.at);
        Ok(())
    }
}

/// A request, whose values are its key and, if the line has them, the fields of [`BESIDE`].
struct Found {
    request: Record,
    key_length: usize,
}

impl Source for Opened {
    type Request = Found;

    /// Reads a line twice, because only the fields of the key have to be valid.
    fn read(&mut self, line: &[u8], values: &mut Vec<u8>) -> Result<Option<Found>, Reason> {
        let mut fields = Vec::new();
        let beside = self.beside.as_mut().map(|beside| beside.read(line, &mut fields));
        let Some(request) = self.records.read(line, values)? else { return Ok(None) };
        let key_length = values.len();
        if let Some(Ok(Some(_))) = beside {
            values.append(&mut fields);
        }
        Ok(Some(Found { request, key_length }))
    }

    fn again(&self) -> Option<Self> {
        let records = self.records.again()?;
        Some(Self { records, beside: self.beside.as_ref().and_then(Records::again) })
    }

    fn incomplete(&self) -> usize {
        self.records.incomplete()
    }

    fn missing(&self) -> &[u64] {
        self.records.missing()
    }
}
