//! The copy of a sealed log's window with which the next log begins; made before it is shared.
//!
//! The copy is a chain of full rows with the admissions of the old log's window, each at its time
//! and with the tokens that it still holds. Behind them is an empty chunk that begins at the key's
//! time. That chunk is there even if nothing counts: the new log's root is never null again, so a
//! late helper does nothing.
//!
//! Why the old log's chunks are not reused: they belong to a log that is freed with its own holder,
//! and other threads may still refund in them. Why the rows have fields of their own: the tokens
//! held may be above the new limit, and a refund of an admission that was cut to fit would lose the
//! rest.
//!
//! The key's time in the new log is the time of the old log's end, or the time at which the last
//! omitted admission left the window, whichever is later. So the window of a stale `now` lacks none
//! of them.

use super::chunk::{Chunk, MOST, Start};
use super::slot::{EMPTY, Fields, Mark};
use super::view::View;
use super::window::SlidingLog;
use crate::reclaim::Link;

/// Returns the first chunk of a log under the quota `new` that continues the log under `old` whose
/// end `view` shows.
pub(super) fn carry(view: &View<'_>, old: &SlidingLog, new: &SlidingLog) -> Chunk {
    // An admission that is not out by `view.time` was omitted because it was given back.
    let out = view.last_out().map(|last| last + old.period).filter(|out| *out <= view.time);
    let time = view.end.last.time.max(out.unwrap_or(0));
    let held = held(view);
    let rows = rows(&held);
    let mut start = Start {
        number: rows.len() as u64,
        admissions: held.len() as u64,
        mark: Mark { time, tokens: held.iter().map(|mark| mark.tokens).sum() },
        before: None,
        anew: rows.is_empty(),
        fields: new.fields,
    };
    let mut slots = Chunk::empty_row(held.len());
    let mut next = Link::null();
    // From the last to the first: a chunk is made with the link to the one behind it.
    for &(row, fields) in rows.iter().rev() {
        start.before = Some(row[row.len() - 1].time);
        next = Link::to(Chunk::with_row(start, slots, next));
        let tokens = row.iter().map(|mark| mark.tokens).sum::<u64>();
        start = Start {
            number: start.number - 1,
            admissions: start.admissions - row.len() as u64,
            mark: Mark { time: row[0].time, tokens: start.mark.tokens - tokens },
            before: None,
            anew: start.number == 1,
            fields,
        };
        let mut sum = 0;
        let slot = |mark: &Mark| {
            sum += mark.tokens;
            // `rows` ends a row before an admission that does not fit.
            fields.pack(Mark { time: mark.time - start.mark.time, tokens: sum }).unwrap_or(EMPTY)
        };
        slots = row.iter().map(slot).collect();
    }
    Chunk::with_row(start, slots, next)
}

/// Returns the admissions of the window that still hold tokens, with their time and these tokens.
fn held(view: &View<'_>) -> Vec<Mark> {
    let slots = view.parts().flat_map(|(part, from)| (from..part.filled).map(move |at| (part.chunk, at)));
    let marks = slots
        .map(|(chunk, at)| Mark { time: chunk.mark_before(at + 1).time, tokens: chunk.held(at..at + 1) });
    marks.filter(|mark| mark.tokens > 0).collect()
}

/// Cuts the admissions into rows, each as long as there are fields for it.
fn rows(held: &[Mark]) -> Vec<(&[Mark], Fields)> {
    let mut rows = Vec::new();
    let mut rest = held;
    while let Some(first) = rest.first() {
        let (mut length, mut sum) = (0, 0);
        for mark in rest.iter().take(MOST) {
            let more = sum + mark.tokens;
            if !Fields::of_tokens(more).has_time(mark.time - first.time) {
                break;
            }
            (length, sum) = (length + 1, more);
        }
        let (row, behind) = rest.split_at(length);
        rows.push((row, Fields::of_tokens(sum)));
        rest = behind;
    }
    rows
}
