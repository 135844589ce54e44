//! Formats numbers, shares, times and sizes for people.
//!
//! `indicatif` formats counts and sizes, and `jiff` formats dates. This module adds three things:
//! shares that never show a nonzero part as zero, times in their two largest units, and rates in
//! words. For a time, `indicatif` would show only one unit, and `jiff` all of them.

use std::time::Duration;

use indicatif::HumanCount;
use jiff::Timestamp;

/// Formats `1234567` as `1,234,567`. Numbers of 2^64 and above have no commas.
pub(crate) fn grouped(number: impl Into<u128>) -> String {
    let number = number.into();
    u64::try_from(number).map_or_else(|_| number.to_string(), |number| HumanCount(number).to_string())
}

/// Formats a count and its noun: `1 line`, `2 lines`.
pub(crate) fn plural(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Formats a part of a whole as a percentage, such as `8.8 %`. A part above zero is never shown as
/// `0.0 %`, and a part below the whole is never shown as `100.0 %`.
pub(crate) fn share(part: u128, whole: u128) -> String {
    if part == 0 || whole == 0 {
        return "0 %".into();
    }
    if part >= whole {
        return "100 %".into();
    }
    match tenths(part, whole) {
        0 => "< 0.1 %".into(),
        1000.. => "> 99.9 %".into(),
        tenths => shown(tenths),
    }
}

/// Formats the two parts of a whole as percentages, as [`share`] does. The second percentage is
/// computed from the first, so that they add up to 100 %.
pub(crate) fn shares(part: u128, rest: u128) -> [String; 2] {
    let whole = part + rest;
    match tenths(part, whole) {
        tenths @ 1..1000 => [tenths, 1000 - tenths].map(shown),
        0 if part > 0 => ["< 0.1 %", "> 99.9 %"].map(str::to_owned),
        1000 if rest > 0 => ["> 99.9 %", "< 0.1 %"].map(str::to_owned),
        _ => [part, rest].map(|part| share(part, whole)),
    }
}

/// Returns the part's share of the whole in tenths of a percent, rounded.
fn tenths(part: u128, whole: u128) -> u64 {
    // Beyond 2^117 the last digits don't matter.
    let (part, whole) = if whole >> 117 > 0 { (part >> 11, whole >> 11) } else { (part, whole) };
    u64::try_from((part * 1000 + whole / 2).checked_div(whole).unwrap_or(0)).unwrap_or(1000)
}

fn shown(tenths: u64) -> String {
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Formats a time in its two largest units: `1 min 57 s`.
pub(crate) fn duration(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = time.as_secs();
    if seconds < 60 {
        return short(time);
    }
    let mut parts = UNITS
        .iter()
        .scan(seconds, |rest, &(unit, name)| {
            let count = *rest / unit;
            *rest %= unit;
            Some((count, name))
        })
        .skip_while(|&(count, _)| count == 0)
        .take(2)
        .filter(|&(count, _)| count > 0)
        .map(|(count, name)| format!("{count} {name}"));
    let first = parts.next().unwrap_or_default();
    parts.next().map_or(first.clone(), |second| format!("{first} {second}"))
}

/// Formats a time below a minute.
fn short(time: Duration) -> String {
    let nanos = time.as_nanos();
    let (unit, name) = match nanos {
        1_000_000_000.. => (1_000_000_000, "s"),
        1_000_000.. => (1_000_000, "ms"),
        1_000.. => (1_000, "us"),
        _ => (1, "ns"),
    };
    let tenths = nanos * 10 / unit;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenth) => format!("{whole}.{tenth} {name}"),
    }
}

/// Formats a large rate with about three digits.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second >= 1e6 {
        format!("{:.1} million", per_second / 1e6)
    } else if per_second >= 1e3 {
        format!("{:.0} thousand", per_second / 1e3)
    } else {
        format!("{per_second:.0}")
    }
}

/// Returns the rate per second, or zero if no time has passed.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Returns a time in nanoseconds, saturated at 64 bits.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats a Unix time in nanoseconds as RFC 3339.
pub(crate) fn rfc3339(nanos: u64) -> String {
    timestamp(nanos).to_string()
}

/// Formats a Unix time in nanoseconds as a date and a time of day in UTC.
pub(crate) fn date_and_time(nanos: u64) -> String {
    timestamp(nanos).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

fn timestamp(nanos: u64) -> Timestamp {
    // The last time that fits in 64 bits of nanoseconds is in the year 2554, which jiff supports.
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        let table = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in table {
            assert_eq!(grouped(number as u64), text);
        }
        assert_eq!(grouped(u128::from(u64::MAX) + 1), "18446744073709551616");
    }

    #[test]
    fn shares_never_round_something_to_nothing() {
        let table = [
            (0, 0, "0 %"),
            (0, 9, "0 %"),
            (9, 9, "100 %"),
            (1, 3, "33.3 %"),
            (1, 1_000_000, "< 0.1 %"),
            (999_999, 1_000_000, "> 99.9 %"),
        ];
        for (part, whole, text) in table {
            assert_eq!(share(part, whole), text);
        }
    }

    #[test]
    fn the_shares_of_a_whole_add_up() {
        let tenths = |share: &str| share.trim_end_matches(" %").replace('.', "").parse::<u64>();
        for part in 1..2000 {
            let [first, second] = shares(part, 2000 - part);
            match (tenths(&first), tenths(&second)) {
                (Ok(first), Ok(second)) => assert_eq!(first + second, 1000, "{part}"),
                _ => assert!(first.starts_with(['<', '>']) && second.starts_with(['<', '>']), "{part}"),
            }
        }
        assert_eq!(shares(0, 0), ["0 %", "0 %"]);
        assert_eq!(shares(0, 7), ["0 %", "100 %"]);
        assert_eq!(shares(1, 1999), ["0.1 %", "99.9 %"]);
        assert_eq!(shares(1, 1_000_000), ["< 0.1 %", "> 99.9 %"]);
        assert_eq!(shares(u128::MAX / 2, u128::MAX / 2), ["50.0 %", "50.0 %"]);
    }

    #[test]
    fn times_are_shown_in_two_units() {
        let table = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.5 us"),
            (2_000_000, "2 ms"),
            (59_990_000_000, "59.9 s"),
            (60_000_000_000, "1 min"),
            (117_000_000_000, "1 min 57 s"),
            (3_600_000_000_000, "1 h"),
            (3_601_000_000_000, "1 h"),
            (90_000_000_000_000, "1 d 1 h"),
        ];
        for (nanos, text) in table {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn sizes_and_rates_have_units() {
        assert_eq!(rate(12.0), "12");
        assert_eq!(rate(45_678.0), "46 thousand");
        assert_eq!(rate(2_345_678.0), "2.3 million");
    }

    #[test]
    fn unix_time_is_shown_as_a_date() {
        assert_eq!(date_and_time(1_431_857_103_500_000_000), "2015-05-17 10:05:03");
        assert_eq!(rfc3339(1_431_857_103_500_000_000), "2015-05-17T10:05:03.5Z");
    }
}
