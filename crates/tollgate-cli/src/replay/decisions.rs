//! Writes every decision as a line of CSV, so that other programs can check or plot it.

mod identity;
mod rows;
pub(crate) mod sink;

use std::path::Path;

use tollgate::Decision;

use super::engine::{Answer, Engine};
use super::input::Input;
use super::keys::KeyId;
use super::position::Position;
use crate::failure::Failure;
use rows::Rows;
use sink::ReadFiles;

/// A CSV file with one row per request:
/// `line,key,allowed,remaining,retry_after_ns,refused_by,outcome`. With several logs, the first
/// column is `file`.
pub(crate) struct Decisions {
    rows: Rows,
    /// The last shown key, with its limit and its id.
    last_key: Option<(usize, KeyId, String)>,
}

impl Decisions {
    /// Opens the file, or standard output for `-`, and writes the header. Returns an error if the
    /// file is one of the `read` files. For `is_only_output`, see [`Rows::create`].
    pub(crate) fn create(
        path: &Path,
        inputs: &[Input],
        read: &ReadFiles<'_>,
        is_only_output: bool,
    ) -> Result<Self, Failure> {
        let columns = ["key", "allowed", "remaining", "retry_after_ns", "refused_by", "outcome"];
        Ok(Self { rows: Rows::create(path, inputs, read, is_only_output, &columns)?, last_key: None })
    }

    /// Writes the answer to a request, which the engine has just given. The key, the remaining
    /// tokens and the time are those of the limit that refused the request or, if it passed, of the
    /// limit with the fewest tokens left.
    pub(crate) fn write(
        &mut self,
        position: Position,
        engine: &Engine,
        answer: &Answer,
    ) -> Result<(), Failure> {
        let Self { rows, last_key } = self;
        // Adjacent requests often have the same key, so the last key's printed form is kept for
        // reuse.
        if let Some(by) = answer.by
            && last_key.as_ref().is_none_or(|(limit, id, _)| (*limit, *id) != (by.limit, by.id))
        {
            *last_key = Some((by.limit, by.id, engine.shown(&by)));
        }
        let key = last_key.as_ref().filter(|_| answer.by.is_some()).map_or("", |(.., shown)| shown);
        let limit = answer.by.filter(|_| !answer.passes()).map(|by| &engine.limits[by.limit]);
        let decision = engine.decision(answer);
        rows.write(position, |row| {
            row.text(key)?;
            row.text(if answer.passes() { "true" } else { "false" })?;
            row.optional(decision.map(Decision::remaining).map(u128::from))?;
            row.optional(decision.and_then(Decision::retry_after).map(|wait| wait.as_nanos()))?;
            row.text(limit.map_or("", |limit| &limit.part.name))?;
            row.text(answer.outcome.unwrap_or_default())
        })
    }

    /// Flushes the buffered rows. A file does not appear under its name before this call.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.rows.finish()
    }
}
