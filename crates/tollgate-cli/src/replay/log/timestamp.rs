//! Parses the timestamps in a log. A timestamp is written in Common Log Format or in RFC 3339
//! format, or as a number of seconds with or without a fraction.
//!
//! Every timestamp becomes a [`Tick`] in nanoseconds since the Unix epoch. Windows are therefore
//! aligned to the epoch.

use clap::ValueEnum;
use jiff::Timestamp;
use jiff::fmt::strtime;
use tollgate::Tick;

use super::request::Reason;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const CLF_FORMAT: &str = "%d/%b/%Y:%H:%M:%S %z";
/// `17/May/2015:10:05:03 +0000`
const CLF_LENGTH: usize = 26;

/// The unit of a time that is a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    #[value(name = "s")]
    Seconds,
    #[value(name = "ms")]
    Millis,
    #[value(name = "us")]
    Micros,
    #[value(name = "ns")]
    Nanos,
}

impl TimeUnit {
    /// Returns the exponent n if one unit equals 10^n nanoseconds.
    fn power(self) -> i64 {
        match self {
            Self::Seconds => 9,
            Self::Millis => 6,
            Self::Micros => 3,
            Self::Nanos => 0,
        }
    }
}

/// Parses the timestamps in plain text formats: Common Log Format, RFC 3339, HAProxy, and W3C.
/// HAProxy and W3C timestamps have no zone and are read as UTC. W3C logs use UTC; for HAProxy, UTC
/// is an assumption.
///
/// Adjacent lines in Common Log Format usually have the same date and zone. The parser therefore
/// stores the midnight of the last date, and parses only the hours, minutes and seconds of the
/// lines that follow. Zones are fixed offsets, so all days have the same length.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    date: [u8; 11],
    zone: [u8; 5],
    /// The midnight of `date` in `zone`, in seconds since the Unix epoch, or `None` before the
    /// first timestamp.
    midnight: Option<i64>,
}

impl Stamps {
    #[inline]
    pub(crate) fn read(&mut self, stamp: &[u8]) -> Result<Tick, Reason> {
        if stamp.get(2) == Some(&b'/') && stamp.get(20) == Some(&b' ') {
            return self.read_clf(stamp);
        }
        self.read_others(stamp)
    }

    /// Parses `17/May/2015:10:05:03 +0000`.
    fn read_clf(&mut self, stamp: &[u8]) -> Result<Tick, Reason> {
        let time_of_day = time_of_day(stamp);
        if let (Some(midnight), Some(seconds)) = (self.midnight, time_of_day)
            && stamp[..11] == self.date
            && stamp[21..] == self.zone
        {
            return seconds_to_tick(midnight + seconds);
        }
        let seconds = parse_clf(stamp)?.as_second();
        if let Some(since_midnight) = time_of_day {
            self.date.copy_from_slice(&stamp[..11]);
            self.zone.copy_from_slice(&stamp[21..]);
            self.midnight = Some(seconds - since_midnight);
        }
        seconds_to_tick(seconds)
    }

    /// Parses `06/Feb/2009:12:14:14.655` and RFC 3339.
    fn read_others(&mut self, stamp: &[u8]) -> Result<Tick, Reason> {
        if let (Some(seconds), Some(millis @ [b'.', ..])) = (stamp.get(..20), stamp.get(20..)) {
            let whole = [seconds, b" +0000"].concat();
            if let (Ok(at), Some(Ok(fraction))) =
                (self.read_clf(&whole), decimal_nanos(&[b"0", millis].concat(), TimeUnit::Seconds))
            {
                return nanos_to_tick(i128::from(at.as_nanos()) + i128::from(fraction.as_nanos()));
            }
        }
        rfc_3339(stamp).unwrap_or_else(|| self.read_clf(stamp))
    }

    /// Parses the columns `2019-12-04` and `21:02:31` of a W3C log.
    pub(crate) fn read_date_and_time(&mut self, date: &[u8], time: &[u8]) -> Result<Tick, Reason> {
        rfc_3339(&[date, b"T", time, b"Z"].concat())
            .unwrap_or_else(|| Err("invalid date and time: expected the form 2019-12-04 21:02:31".into()))
    }
}

/// Parses a timestamp in RFC 3339 format. Returns `None` if the text has another form.
fn rfc_3339(text: &[u8]) -> Option<Result<Tick, Reason>> {
    let time: Timestamp = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(nanos_to_tick(time.as_nanosecond()))
}

/// Returns the seconds since midnight if the timestamp has the usual form; its date and zone are
/// not checked. jiff parses all other forms, including leap seconds.
fn time_of_day(stamp: &[u8]) -> Option<i64> {
    let two = |at: usize, limit: i64| {
        let (tens, ones) = (stamp[at].wrapping_sub(b'0'), stamp[at + 1].wrapping_sub(b'0'));
        let value = i64::from(tens) * 10 + i64::from(ones);
        (tens < 10 && ones < 10 && value < limit).then_some(value)
    };
    if stamp.len() != CLF_LENGTH || [stamp[11], stamp[14], stamp[17], stamp[20]] != [b':', b':', b':', b' '] {
        return None;
    }
    Some(two(12, 24)? * 3600 + two(15, 60)? * 60 + two(18, 60)?)
}

fn parse_clf(stamp: &[u8]) -> Result<Timestamp, Reason> {
    std::str::from_utf8(stamp)
        .ok()
        .and_then(|text| strtime::parse(CLF_FORMAT, text).ok())
        .and_then(|time| time.to_timestamp().ok())
        .ok_or_else(|| "invalid time: expected the form 17/May/2015:10:05:03 +0000".into())
}

/// Parses the time in a JSON or CSV record. The time is a number in `unit`, an RFC 3339 timestamp,
/// or a timestamp in Common Log Format with or without brackets.
pub(crate) fn read(text: &[u8], unit: TimeUnit) -> Result<Tick, Reason> {
    let text = text.trim_ascii();
    if let Some(time) = decimal_nanos(text, unit) {
        return time;
    }
    let bare = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or(text);
    rfc_3339(bare).unwrap_or_else(|| match parse_clf(bare) {
        Ok(time) => nanos_to_tick(time.as_nanosecond()),
        Err(_) => Err("invalid time: expected a number, RFC 3339 with its zone such as \
                       2015-05-17T10:05:03Z, or 17/May/2015:10:05:03 +0000"
            .into()),
    })
}

/// Parses a decimal number exactly, because a 64-bit float would be off by 100 ns in this century.
/// Digits below a nanosecond are cut off. Returns `None` if the text is not a number.
fn decimal_nanos(text: &[u8], unit: TimeUnit) -> Option<Result<Tick, Reason>> {
    let (negative, rest) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (number, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&rest[..at], std::str::from_utf8(&rest[at + 1..]).ok()?.parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let point = number.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&number[..at], &number[at + 1..]),
        None => (number, &[][..]),
    };
    if whole.is_empty()
        || (point.is_some() && fraction.is_empty())
        || !whole.iter().chain(fraction).all(u8::is_ascii_digit)
    {
        return None;
    }
    let integral_digits = whole.len() as i64 + i64::from(exponent) + unit.power();
    let mut nanos: i128 = 0;
    for (digit, place) in whole.iter().chain(fraction).zip(0_i64..) {
        if place >= integral_digits {
            break;
        }
        nanos = nanos.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    let digits = whole.len() as i64 + fraction.len() as i64;
    for _ in digits..integral_digits.min(digits + 40) {
        nanos = nanos.saturating_mul(10);
    }
    Some(nanos_to_tick(if negative { -nanos } else { nanos }))
}

fn seconds_to_tick(seconds: i64) -> Result<Tick, Reason> {
    nanos_to_tick(i128::from(seconds) * NANOS_PER_SECOND)
}

fn nanos_to_tick(nanos: i128) -> Result<Tick, Reason> {
    match u64::try_from(nanos) {
        Ok(nanos) if nanos <= Tick::MAX.as_nanos() => Ok(Tick::from_nanos(nanos)),
        _ => Err("the time is outside the years 1970 to 2042 (is --time-unit right?)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn clf_stamps_are_read_whether_or_not_the_date_is_remembered() {
        let table: &[(&str, Option<u64>)] = &[
            ("17/May/2015:10:05:03 +0000", Some(1_431_857_103)),
            ("17/May/2015:10:05:03 +0000", Some(1_431_857_103)),
            ("17/May/2015:23:59:59 +0000", Some(1_431_907_199)),
            ("18/May/2015:00:00:00 +0000", Some(1_431_907_200)),
            ("17/May/2015:10:05:03 +0200", Some(1_431_849_903)),
            ("17/May/2015:00:30:00 +0200", Some(1_431_815_400)),
            ("17/May/2015:10:05:03 -0930", Some(1_431_891_303)),
            ("29/Feb/2016:00:00:00 +0000", Some(1_456_704_000)),
            ("01/Jan/1970:00:00:00 +0000", Some(0)),
            ("01/Jan/1970:00:00:00 +0001", None),
            ("31/Dec/1969:23:59:59 +0000", None),
            ("01/Jan/2044:00:00:00 +0000", None),
            ("29/Feb/2015:10:05:03 +0000", None),
            ("17/May/2015:24:00:00 +0000", None),
            ("17/May/2015:10:60:03 +0000", None),
            ("17/May/2015:10:05:0x +0000", None),
            ("17/May/2015 10:05:03 +0000", None),
            ("17/May/2015:10:05:03", None),
            ("17/Mai/2015:10:05:03 +0000", None),
            ("", None),
        ];
        let mut warm = Stamps::default();
        for &(stamp, seconds) in table {
            let tick = seconds.map(|seconds| Tick::from_nanos(seconds * SECOND));
            assert_eq!(warm.read(stamp.as_bytes()).ok(), tick, "{stamp}");
            assert_eq!(Stamps::default().read(stamp.as_bytes()).ok(), tick, "{stamp}");
        }
    }

    #[test]
    fn a_leap_second_is_the_last_second_of_its_day() {
        let mut stamps = Stamps::default();
        for _ in 0..2 {
            let leap = stamps.read(b"30/Jun/2015:23:59:60 +0000");
            assert_eq!(leap.ok(), stamps.read(b"30/Jun/2015:23:59:59 +0000").ok());
        }
    }

    #[test]
    fn numbers_are_read_exactly_in_every_unit() {
        use TimeUnit::{Micros, Millis, Nanos, Seconds};
        let good: &[(&str, TimeUnit, u64)] = &[
            ("1431857103", Seconds, 1_431_857_103 * SECOND),
            ("1431857103.123456789", Seconds, 1_431_857_103_123_456_789),
            ("1431857103.1234567899", Seconds, 1_431_857_103_123_456_789),
            ("1.431857103123456789e9", Seconds, 1_431_857_103_123_456_789),
            ("1431857103123456789E-9", Seconds, 1_431_857_103_123_456_789),
            ("1431857103123.4", Millis, 1_431_857_103_123_400_000),
            ("1431857103123456.789", Micros, 1_431_857_103_123_456_789),
            ("1431857103123456789", Nanos, 1_431_857_103_123_456_789),
            ("1431857103123456789.9", Nanos, 1_431_857_103_123_456_789),
            ("0", Seconds, 0),
            ("-0", Seconds, 0),
            (" 7 ", Seconds, 7 * SECOND),
            ("2305843009213693952", Nanos, 1 << 61),
        ];
        for &(text, unit, nanos) in good {
            let tick = read(text.as_bytes(), unit).expect(text);
            assert_eq!(tick.as_nanos(), nanos, "{text}");
        }
        let large = "2305843009213693953 -1 1e99 1e2147483647 99999999999999999999999999999999999999999999";
        let no_numbers = "1e 1. .5  0x10 NaN";
        for text in large.split(' ').chain(no_numbers.split(' ')) {
            assert!(read(text.as_bytes(), Nanos).is_err(), "{text}");
        }
    }

    #[test]
    fn texts_are_rfc_3339_or_the_stamp_of_common_log_format() {
        for text in [
            "2015-05-17T10:05:03Z",
            "2015-05-17T12:05:03+02:00",
            "2015-05-17 10:05:03Z",
            "17/May/2015:10:05:03 +0000",
            "[17/May/2015:10:05:03 +0000]",
        ] {
            let tick = read(text.as_bytes(), TimeUnit::Seconds).expect(text);
            assert_eq!(tick.as_nanos(), 1_431_857_103 * SECOND, "{text}");
        }
        let fine = read(b"2015-05-17T10:05:03.000000001Z", TimeUnit::Seconds);
        assert_eq!(fine.map(Tick::as_nanos).ok(), Some(1_431_857_103 * SECOND + 1));
        for text in ["2015-05-17T10:05:03", "2015-05-17", "yesterday", "1969-01-01T00:00:00Z"] {
            assert!(read(text.as_bytes(), TimeUnit::Seconds).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&text, TimeUnit::Seconds);
            let mut stamps = Stamps::default();
            let _ = stamps.read(b"17/May/2015:10:05:03 +0000");
            let _ = stamps.read(&text);
        }

        #[test]
        fn what_is_remembered_never_changes_what_is_read(
            stamps in prop::collection::vec(
                "(0[1-9]|[1-3][0-9])/(Jan|Feb|Jun)/20(15|16):[0-2][0-9]:[0-6][0-9]:[0-6][0-9] [+-](00|01)[0-6]0",
                1..8,
            )
        ) {
            let mut warm = Stamps::default();
            for stamp in &stamps {
                let cold = Stamps::default().read(stamp.as_bytes());
                prop_assert_eq!(warm.read(stamp.as_bytes()).ok(), cold.ok());
            }
        }
    }
}
