//! Parses times in the forms that servers write.

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, SystemTime};

/// Numbers of at least this size are seconds since 1970. (As a duration, such a number would be 31
/// years or more.)
const FIRST_EPOCH: f64 = 1e9;
/// Numbers of at least this size are milliseconds since 1970.
const FIRST_EPOCH_MILLIS: f64 = 1e12;

/// Returns the duration from `now` until the time in `text`, or zero if that time has passed. In a
/// list, the longest duration counts. Returns `None` if `text` has no known form.
pub(super) fn latest(text: &str, now: SystemTime) -> Option<Duration> {
    // A single date also contains a comma.
    let list = || text.split(',').filter_map(|part| until(part.trim(), now)).max();
    until(text.trim(), now).or_else(list)
}

/// Parses a number of milliseconds. Negative numbers become zero.
pub(super) fn millis(text: &str) -> Option<Duration> {
    number(text.trim()).map(|number| seconds(number / 1e3))
}

fn until(text: &str, now: SystemTime) -> Option<Duration> {
    if let Some(number) = number(text) {
        return Some(match number {
            FIRST_EPOCH_MILLIS.. => from_epoch(number / 1e3, now),
            FIRST_EPOCH.. => from_epoch(number, now),
            _ => seconds(number),
        });
    }
    if let Some(date) = date(text) {
        return Some(date.duration_since(now).unwrap_or_default());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        let time = SystemTime::try_from(time).ok()?;
        return Some(time.duration_since(now).unwrap_or_default());
    }
    let duration = text.parse::<SignedDuration>().ok()?;
    Some(Duration::try_from(duration).unwrap_or_default())
}

/// Parses a date in a format of HTTP. A leap second is the second after `:59`.
pub(super) fn date(text: &str) -> Option<SystemTime> {
    let parse = |text: &str| httpdate::parse_http_date(text).ok();
    parse(text).or_else(|| Some(parse(&text.replacen(":60 ", ":59 ", 1))? + Duration::from_secs(1)))
}

/// Parses a decimal number. Exponents and names such as `inf` are refused.
fn number(text: &str) -> Option<f64> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b".+-".contains(&byte));
    text.parse().ok().filter(|_| is_decimal)
}

/// Converts a number of seconds to a duration. Negative numbers become zero.
fn seconds(number: f64) -> Duration {
    let longest = if number > 0.0 { Duration::MAX } else { Duration::ZERO };
    Duration::try_from_secs_f64(number).unwrap_or(longest)
}

fn from_epoch(number: f64, now: SystemTime) -> Duration {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    seconds(number).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_large_servers_write_them() {
        // Sunday, 6 November 1994, 08:49:37.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (text, now, expected) in [
            ("120", now, Some(120.0)),
            (" 7 ", now, Some(7.0)),
            ("0", now, Some(0.0)),
            ("1.5", now, Some(1.5)),
            ("Sun, 06 Nov 1994 08:49:57 GMT", now, Some(20.0)),
            ("Sunday, 06-Nov-94 08:49:57 GMT", now, Some(20.0)),
            ("Sun Nov  6 08:49:57 1994", now, Some(20.0)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", now, Some(0.0)),
            ("Sun, 06 Nov 1994 08:49:60 GMT", now, Some(23.0)),
            ("Sun Nov  6 08:49:60 1994", now, Some(23.0)),
            ("Sun, 06 Nov 1994 08:60:00 GMT", now, None),
            ("1994-11-06T08:50:37Z", now, Some(60.0)),
            ("1994-11-06T09:50:37.5+01:00", now, Some(60.5)),
            ("1700000030", later, Some(30.0)),
            ("1700000030250", later, Some(30.25)),
            ("1600000000", later, Some(0.0)),
            ("6m0s", now, Some(360.0)),
            ("1h2m3s", now, Some(3723.0)),
            ("1.5s", now, Some(1.5)),
            ("88ms", now, Some(0.088)),
            ("-5", now, Some(0.0)),
            ("-6m", now, Some(0.0)),
            ("3, 5", now, Some(5.0)),
            ("soon, 5", now, Some(5.0)),
            ("", now, None),
            ("soon", now, None),
            ("inf", now, None),
            ("1e9", now, None),
            ("-", now, None),
            ("99999999999999999999999999", now, Some(1e23)),
        ] {
            let read = latest(text, now).map(|time| time.as_secs_f64());
            let near = match (read, expected) {
                (Some(read), Some(expected)) if expected < 1e9 => (read - expected).abs() < 0.001,
                (Some(read), Some(_)) => read > 1e9,
                (read, expected) => read == expected,
            };
            assert!(near, "{text:?}: {read:?}");
        }
    }
}
