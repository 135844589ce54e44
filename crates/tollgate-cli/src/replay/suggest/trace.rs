//! Stores the requests in a log in memory, by client, so that many rates can be tried on them.

use std::hash::BuildHasher;
use std::io::{self, Read};

use foldhash::fast::RandomState;

use super::client::Client;
use super::settings::Settings;
use crate::failure::Failure;
use crate::replay::input::Input;
use crate::replay::keys::Keys;
use crate::replay::log::formats::Format;
use crate::replay::log::key::KeyShape;
use crate::replay::log::lines::{self, Line, Lines};
use crate::replay::log::record::Records;
use crate::replay::log::request::{Reason, Request};
use crate::replay::log::schema::Unopened;
use crate::replay::log::summary::LogSummary;
use crate::replay::position::Position;
use crate::replay::progress::Progress;

/// Additional fields, which are read if the log has them. They reveal the clients' patterns.
const BESIDE: [&str; 2] = ["path", "status"];

/// The requests of all logs.
pub(crate) struct Trace {
    pub(crate) log: LogSummary,
    pub(crate) keys: Keys,
    /// The clients, by the ids of their keys.
    pub(crate) clients: Vec<Client>,
    hashes: RandomState,
}

/// The records of one log.
struct Opened {
    format: Format,
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
        let names: Vec<String> = settings.inputs.iter().map(Input::to_string).collect();
        let mut trace = Self {
            log: LogSummary::new(names, settings.wanted.key.len(), settings.strict),
            keys: Keys::default(),
            clients: Vec::new(),
            hashes: RandomState::default(),
        };
        for (file, input) in settings.inputs.iter().enumerate() {
            let from = input.open(progress.bytes_read())?;
            trace.read_one(file, from, settings, progress)?;
        }
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

    fn read_one(
        &mut self,
        file: usize,
        from: impl Read,
        settings: &Settings,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let input = &settings.inputs[file];
        let unreadable = |error: io::Error| Failure::reading(input, &error);
        let mut lines = Lines::new(lines::unpacked(from).map_err(unreadable)?);
        let mut opened: Option<Opened> = None;
        let mut key = Vec::new();
        while let Some(line) = lines.next_line().map_err(unreadable)? {
            key.clear();
            let parsed = parse(&line, &mut opened, &mut key, settings)
                .map_err(|message| Failure::refused(format!("{input}: {message}")))?;
            let position = Position { file, line: lines.number() };
            let summary = &mut self.log.files[file];
            summary.lines += 1;
            match parsed {
                Parsed::Request(request) => {
                    let has_more = opened.as_ref().is_some_and(|opened| opened.has_more);
                    self.add(request, &key, has_more, position, settings);
                }
                Parsed::Header => summary.header += 1,
                Parsed::Blank => summary.blank += 1,
                Parsed::Bad(reason) => self.log.bad_line(position, reason)?,
            }
            progress.tick();
        }
        if let Some(Opened { format, records, .. }) = &opened {
            self.log.files[file].format = Some(*format);
            let missing = records.missing();
            self.log.missing.iter_mut().zip(missing).for_each(|(all, missing)| *all += missing);
        }
        Ok(())
    }

    fn add(&mut self, request: Request, key: &[u8], has_more: bool, position: Position, settings: &Settings) {
        self.log.arrived(position, request.at);
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
            self.log.judged_later_than_stamped.add(request.at, judged_at);
            client.times.push(judged_at);
        }
    }
}

/// The result of parsing a line.
enum Parsed {
    Request(Request),
    /// The line describes the log, or is part of a split line that is still incomplete.
    Header,
    Blank,
    Bad(Reason),
}

/// Parses a line. The first line of a log creates the log's reader.
///
/// # Errors
///
/// If the log lacks a field of the key, returns an error message.
fn parse(
    line: &Line<'_>,
    opened: &mut Option<Opened>,
    key: &mut Vec<u8>,
    settings: &Settings,
) -> Result<Parsed, String> {
    let text = match line {
        Line::Text(text) if text.trim_ascii().is_empty() => return Ok(Parsed::Blank),
        Line::Text(text) => text,
        Line::TooLong => {
            let reason = format!("it is longer than {} bytes", lines::MAX_LINE);
            return Ok(Parsed::Bad(reason.into()));
        }
    };
    let opened = match opened {
        Some(opened) => opened,
        None => match Opened::by(text, settings) {
            Ok(by) => {
                let opened = opened.insert(by);
                if opened.format == Format::Csv {
                    return Ok(Parsed::Header);
                }
                opened
            }
            Err(Unopened::NotARecord(reason)) => return Ok(Parsed::Bad(reason)),
            Err(Unopened::Directive) => return Ok(Parsed::Header),
            Err(Unopened::Refused(message)) => return Err(message),
        },
    };
    Ok(match opened.records.read(text, key) {
        Ok(Some(request)) => Parsed::Request(request),
        Ok(None) => Parsed::Header,
        Err(reason) => Parsed::Bad(reason),
    })
}

impl Opened {
    /// Opens a log. `first` is its first line. The fields of [`BESIDE`] are also read if the log
    /// has them.
    fn by(first: &[u8], settings: &Settings) -> Result<Self, Unopened> {
        let mut more = settings.wanted.clone();
        more.key.extend(BESIDE.map(str::to_owned));
        if let Ok((format, records)) = Records::open(first, settings.format, &more) {
            return Ok(Self { format, records, has_more: true });
        }
        let (format, records) = Records::open(first, settings.format, &settings.wanted)?;
        Ok(Self { format, records, has_more: false })
    }
}
