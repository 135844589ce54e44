//! Writes every decision as a line of CSV, so that other programs can check or plot it.

mod identity;
pub(crate) mod rows;
pub(crate) mod sink;

use std::path::Path;

use tollgate::Decision;

use super::input::Input;
use super::keys::KeyId;
use super::position::Position;
use crate::failure::Failure;
use crate::replay::log::key::KeyShape;
use rows::Rows;
use sink::ReadFiles;

/// A CSV file with one row per request: `line,key,allowed,remaining,retry_after_ns`. With several
/// logs, the first column is `file`.
pub(crate) struct Decisions {
    rows: Rows,
    shape: KeyShape,
    last_key: Option<(KeyId, String)>,
}

impl Decisions {
    /// Opens the file, or standard output for `-`, and writes the header. Returns an error if the
    /// file is one of the `read` files. For `is_only_output`, see [`Rows::create`].
    pub(crate) fn create(
        path: &Path,
        inputs: &[Input],
        read: &ReadFiles<'_>,
        is_only_output: bool,
        shape: KeyShape,
    ) -> Result<Self, Failure> {
        let columns = ["key", "allowed", "remaining", "retry_after_ns"];
        let rows = Rows::create(path, inputs, read, is_only_output, &columns)?;
        Ok(Self { rows, shape, last_key: None })
    }

    pub(crate) fn write(
        &mut self,
        position: Position,
        id: KeyId,
        key: &[u8],
        decision: &Decision,
    ) -> Result<(), Failure> {
        let Self { rows, shape, last_key } = self;
        rows.write(position, |row| {
            // Adjacent requests often have the same key, so the last key's printed form is kept for
            // reuse.
            let shown = match last_key.take() {
                Some((last, shown)) if last == id => shown,
                _ => shape.show(key),
            };
            row.text(&shown)?;
            *last_key = Some((id, shown));
            row.text(if decision.is_allowed() { "true" } else { "false" })?;
            row.number(u128::from(decision.remaining()))?;
            match decision.retry_after() {
                Some(wait) => row.number(wait.as_nanos()),
                None => row.text(""),
            }
        })
    }

    /// Flushes the buffered rows. A file does not appear under its name before this call.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.rows.finish()
    }
}
