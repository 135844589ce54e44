//! What a log takes over from one that is sealed: a copy of what counts there, made in private.
//!
//! It is a chain of full rows with the admissions of the old log's window, each at its time and with the tokens
//! that it still holds, and behind them an empty chunk that begins at the key's time. That chunk is there
//! also if nothing counts: the new log's root is never null again, and a helper that comes late does nothing.
//!
//! Why copies, and not the old log's chunks: they belong to a log that is freed with its own holder, and other
//! threads may still give back in them. Why rows with fields of their own: what is held may be above the new
//! limit, and an admission that is cut to fit would forget what a refund of it leaves.
//!
//! The key's time in the new log is that of the old one's end, or that at which the last of the admissions
//! that are left out has left the window. So a stale `now` finds none of them missing from its window.

use super::chunk::{Chunk, MOST, Start};
use super::slot::{EMPTY, Fields, Mark};
use super::view::View;
use super::window::SlidingLog;
use crate::reclaim::{Guard, Link};

/// The chunks of a log under the quota `new` that goes on where `view` shows the end of one under `old`.
pub(super) fn carry(view: &View<'_>, old: &SlidingLog, new: &SlidingLog, guard: &Guard) -> Chunk {
    // One that is not out by its time counts no more because it was given back.
    let out = view.last_out().map(|last| last + old.period).filter(|out| *out <= view.time);
    let time = view.end.last.time.max(out.unwrap_or(0));
    let held = held(view, guard);
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
    // From the last to the first, for what a chunk is linked to is there before it is.
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
            // `rows` has ended the row before one that does not fit.
            fields.pack(Mark { time: mark.time - start.mark.time, tokens: sum }).unwrap_or(EMPTY)
        };
        slots = row.iter().map(slot).collect();
    }
    Chunk::with_row(start, slots, next)
}

/// The admissions of the window that are not given back in full: the time of each, and what it holds.
fn held(view: &View<'_>, guard: &Guard) -> Vec<Mark> {
    let slots =
        view.parts(guard).flat_map(|(part, from)| (from..part.filled).map(move |at| (part.chunk, at)));
    let marks = slots
        .map(|(chunk, at)| Mark { time: chunk.mark_before(at + 1).time, tokens: chunk.held(at..at + 1) });
    marks.filter(|mark| mark.tokens > 0).collect()
}

/// Cut into rows, each as long as there are fields for it.
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
