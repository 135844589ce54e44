//! Stores the requests in a log in memory, by client, so that many rates can be tried on them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::client::Client;
use super::settings::SuggestSettings;
use crate::failure::Failure;
use crate::replay::keys::Keys;
use crate::replay::log::formats::Format;
use crate::replay::log::key::KeyShape;
use crate::replay::log::request::Arrived;
use crate::replay::log::schema::Unopened;
use crate::replay::log::summary::LogSummary;
use crate::replay::position::Position;
use crate::replay::progress::Progress;
use crate::replay::reading::{self, Logs, Reader};
use crate::replay::settings::LogSettings;
use crate::replay::source::Requests;

/// Additional fields, which are read where a log has them. They reveal the clients' patterns.
const BESIDE: [&str; 2] = ["path", "status"];

/// The requests of all logs.
pub(crate) struct Trace {
    pub(crate) log: LogSummary,
    pub(crate) keys: Keys,
    /// The clients, by the ids of their keys.
    pub(crate) clients: Vec<Client>,
}

impl Trace {
    /// # Errors
    ///
    /// Returns an error if an input cannot be read, if a log has no column for a required field, or
    /// if no line parses. In a strict replay, any line that does not parse is an error.
    pub(crate) fn read(settings: &SuggestSettings, progress: &mut Progress) -> Result<Self, Failure> {
        let mut tracing = Tracing {
            settings,
            logs: Logs::new(&settings.log),
            keys: Keys::default(),
            clients: Vec::new(),
            hashes: RandomState::default(),
        };
        reading::read_all(&mut tracing, &settings.log, progress)?;
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
    logs: Logs,
    keys: Keys,
    clients: Vec<Client>,
    hashes: RandomState,
}

impl Reader for Tracing<'_> {
    fn logs(&mut self) -> &mut Logs {
        &mut self.logs
    }

    fn recognize(&self, first: &[u8]) -> Result<(Format, Requests), Unopened> {
        let LogSettings { format, wanted, .. } = &self.settings.log;
        Requests::with_fields(first, *format, wanted, &BESIDE)
    }

    fn take(&mut self, request: Arrived, values: &[u8], position: Position) -> Result<(), Failure> {
        self.logs.summary.arrived(position, request.at);
        let (beside, key) = values.split_at(request.key_start);
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
