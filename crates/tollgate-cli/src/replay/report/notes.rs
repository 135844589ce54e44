//! Creates notes on the reliability of the figures. There is a note if a log's timestamps disagree
//! with the order of its lines, if the log has holes, or if its last line may be cut off.

use std::time::Duration;

use tollgate::Quota;

use super::quantity::{duration, grouped, plural};
use crate::replay::log::summary::{FileSummary, LogSummary};

/// Returns all notes on the logs. `quota` is the only quota, if there is only one.
pub(crate) fn on_log(log: &LogSummary, is_sorted: bool, quota: Option<Quota>) -> Vec<String> {
    on_holes(log)
        .chain(on_last_lines(log))
        .chain(quota.and_then(|quota| on_shifts(log, quota)))
        .chain(on_order(log, is_sorted))
        .collect()
}

/// Returns the notes on logs with holes.
fn on_holes(log: &LogSummary) -> impl Iterator<Item = String> {
    log.files.iter().filter(|file| file.skipped_nuls > 0).map(|file| {
        format!(
            "{} NUL bytes of {} were skipped. A log has them where it was truncated while its server wrote \
             (copytruncate) or where the machine crashed; requests there are missing.",
            grouped(file.skipped_nuls),
            file.name,
        )
    })
}

/// Returns the notes on last lines that may be cut off but could still parse. JSON logs receive no
/// note. In other formats, a line is read only up to the last field that the replay needs, so an
/// incomplete line may parse.
fn on_last_lines(log: &LogSummary) -> impl Iterator<Item = String> {
    let is_unsure = |file: &&FileSummary| file.is_open && file.format.is_some_and(|format| !format.is_json());
    log.files
        .iter()
        .filter(is_unsure)
        .map(|file| format!("the last line of {} has no line end: its last field may be cut off.", file.name))
}

/// Returns the note on requests that were judged later than stamped, if the shift is long for the
/// quota.
fn on_shifts(log: &LogSummary, quota: Quota) -> Option<String> {
    let shifts = log.judged_later_than_stamped;
    matters(shifts.largest, quota).then(|| {
        let requests = match shifts.requests {
            1 => "1 request is".to_owned(),
            several => format!("{} are", plural(several, "request")),
        };
        format!(
            "timestamps disagree by up to {}, which is long for this limit: {requests} judged later than \
             stamped. --sort judges by stamp.",
            duration(shifts.largest),
        )
    })
}

/// Returns the notes on logs in the wrong order, and on a timestamp that is probably wrong. A
/// replay in order of time has no such note.
fn on_order(log: &LogSummary, is_sorted: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if is_sorted {
        return notes;
    }
    for pair in log.files.windows(2) {
        let [before, file] = pair else { continue };
        let (Some((_, end)), Some((begin, _))) = (before.span, file.span) else { continue };
        if begin < end {
            notes.push(format!(
                "{} begins {} before {} ends: are the logs in order of time?",
                file.name,
                duration(Duration::from_nanos(end.as_nanos() - begin.as_nanos())),
                before.name,
            ));
        }
    }
    if let Some(leap) = log.leap {
        notes.push(format!(
            "{} is stamped {} ahead of all before it, and lines after it are not. If that stamp is wrong, \
             every later request is judged at the wrong time: remove the line.",
            log.describe_position(leap.position),
            duration(leap.ahead),
        ));
    }
    notes
}

/// Returns whether a shift is long enough to change the results. The threshold is half of the time
/// in which an exhausted burst refills.
fn matters(shift: Duration, quota: Quota) -> bool {
    let burst = quota.capacity();
    let refill = quota.period().as_nanos().saturating_mul(burst.into()) / u128::from(quota.tokens().max(1));
    !shift.is_zero() && shift.as_nanos().saturating_mul(2) >= refill
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_matters_from_half_the_refill_time() {
        let quota: Quota = "30/min burst 10".parse().expect("a quota");
        for (seconds, much) in [(0, false), (4, false), (9, false), (10, true), (100, true)] {
            assert_eq!(matters(Duration::from_secs(seconds), quota), much, "{seconds}");
            assert_eq!(
                matters(Duration::from_secs(3 * seconds), Quota::new(quota.tokens(), quota.period())),
                much,
                "{seconds}"
            );
        }
    }
}
