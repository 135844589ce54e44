//! Finds the request in each line of a log: the key of limits by fields, and the other values that
//! the replay needs.

use super::columns::Columns;
use super::log::formats::Format;
use super::log::lines::{Line, MAX_LINE};
use super::log::record::Records;
use super::log::request::{Arrived, Parsed, Reason, Record};
use super::log::schema::{Unopened, Wanted};
use super::need::Need;
use super::settings::Settings;

/// The requests of one log.
pub(crate) struct Requests {
    /// Reads the key of limits by fields, if there are any.
    key: Option<Records>,
    others: Others,
}

/// The reader of the values that precede the key.
enum Others {
    None,
    /// The facts that limits with names need.
    Columns(Box<Columns>),
    /// Fields that a line may lack.
    Fields(Records),
}

impl Requests {
    /// Opens a log. `first` is its first line, and `needs` contains the facts that limits with
    /// names need, or `None` if there are no such limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not a record, or if the log lacks a fact that a limit needs.
    pub(crate) fn open(
        first: &[u8],
        settings: &Settings,
        needs: Option<&[Need]>,
    ) -> Result<(Format, Self), Unopened> {
        let (mut format, mut others) = (settings.log.format, Others::None);
        if let Some(needs) = needs {
            let (found, columns) = Columns::open(first, needs, settings)?;
            (format, others) = (Some(found), Others::Columns(Box::new(columns)));
        }
        let key = match settings.log.wanted.key.is_empty() {
            true => None,
            false => Some(Records::open(first, format, &settings.log.wanted)?),
        };
        let (of_key, key) = key.unzip();
        let format = of_key.or(format).ok_or_else(|| Unopened::NotARecord("it is of no format".into()))?;
        Ok((format, Self { key, others }))
    }

    /// Opens a log with the `wanted` key and the `fields` that precede it. If a line lacks one of
    /// the fields, no values precede the key.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not a record, or if the log lacks a field of the key.
    pub(crate) fn with_fields(
        first: &[u8],
        format: Option<Format>,
        wanted: &Wanted,
        fields: &[&str],
    ) -> Result<(Format, Self), Unopened> {
        let (format, key) = Records::open(first, format, wanted)?;
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        let others = Records::open(first, Some(format), &Wanted { key: fields, ..wanted.clone() });
        let others = others.map_or(Others::None, |(_, records)| Others::Fields(records));
        Ok((format, Self { key: Some(key), others }))
    }

    /// Returns the reader of the facts that limits with names need, if there are such limits.
    pub(crate) fn columns(&self) -> Option<&Columns> {
        match &self.others {
            Others::Columns(columns) => Some(columns),
            Others::None | Others::Fields(_) => None,
        }
    }

    /// Returns whether the lines are in the order in which requests ended (see
    /// [`Format::is_by_ends`]).
    pub(crate) fn is_by_ends(&self) -> bool {
        self.columns().is_some_and(Columns::is_by_ends) || self.key.as_ref().is_some_and(Records::is_by_ends)
    }

    /// Parses one line, and writes its values into `values`, which must be empty.
    #[inline]
    pub(crate) fn parse(&mut self, line: &Line<'_>, values: &mut Vec<u8>) -> Parsed {
        match text(line) {
            Ok(text) => self.read(text, values).unwrap_or_else(Parsed::Bad),
            Err(parsed) => parsed,
        }
    }

    /// Reads a line twice if it has a key and other values. Both readers see every line, because a
    /// line may be a part of a longer line.
    #[inline]
    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Parsed, Reason> {
        let found = match &mut self.others {
            Others::None => None,
            Others::Columns(columns) => Some(columns.read(text, values)),
            Others::Fields(records) => {
                if !matches!(records.read(text, values), Ok(Some(_))) {
                    values.clear();
                }
                None
            }
        };
        let key_start = values.len();
        let of_key = self.key.as_mut().map(|records| records.read(text, values));
        Ok(match (found.transpose()?, of_key.transpose()?) {
            (_, Some(None)) => Parsed::Header,
            (Some(Parsed::Request(arrived)), _) => Parsed::Request(Arrived { key_start, ..arrived }),
            (Some(found), _) => found,
            (None, Some(Some(Record { at, cost }))) => {
                Parsed::Request(Arrived { key_start, ..Arrived::new(at, cost) })
            }
            (None, None) => Parsed::Header,
        })
    }

    /// Returns a reader of the same log for another thread, or `None` if lines in the log depend on
    /// earlier lines.
    pub(crate) fn again(&self) -> Option<Self> {
        let key = match &self.key {
            Some(key) => Some(key.again()?),
            None => None,
        };
        let others = match &self.others {
            Others::None => Others::None,
            Others::Columns(columns) => Others::Columns(Box::new(columns.again()?)),
            Others::Fields(records) => Others::Fields(records.again()?),
        };
        Some(Self { key, others })
    }

    /// Returns the number of split lines whose last part has not been read.
    pub(crate) fn incomplete(&self) -> usize {
        let of_columns = || self.columns().map_or(0, Columns::incomplete);
        self.key.as_ref().map_or_else(of_columns, Records::incomplete)
    }

    /// Returns, for each field of the key, the number of requests in which the field has no value.
    pub(crate) fn missing(&self) -> &[u64] {
        self.key.as_ref().map_or(&[], Records::missing)
    }
}

/// Returns the text of a line, or the result of parsing a line without text.
#[inline]
pub(crate) fn text<'l>(line: &Line<'l>) -> Result<&'l [u8], Parsed> {
    match *line {
        Line::Text(text) => {
            let is_blank = text.first().is_none_or(u8::is_ascii_whitespace) && text.trim_ascii().is_empty();
            if is_blank { Err(Parsed::Blank) } else { Ok(text) }
        }
        Line::TooLong => Err(Parsed::Bad(format!("it is longer than {MAX_LINE} bytes").into())),
    }
}
