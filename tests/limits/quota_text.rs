//! Quotas from text: the valid texts, and for all other texts, the errors and their positions.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::Quota;

#[test]
fn the_usual_ways_to_write_a_quota_are_understood() {
    let secs = Duration::from_secs;
    let cases = [
        ("100/s", Quota::new(100, secs(1))),
        ("5/10s", Quota::new(5, secs(10))),
        ("1000/h burst 50", Quota::new(1000, secs(3600)).burst(50)),
        ("30/min burst 10", Quota::per_minute(30).burst(10)),
        ("1/2s", Quota::new(1, secs(2))),
        ("7/day", Quota::per_day(7)),
        ("7/2days", Quota::new(7, secs(2 * 86_400))),
        ("  60 / 1 minute  BURST  3 ", Quota::per_minute(60).burst(3)),
        ("9/m", Quota::per_minute(9)),
        ("9/5mins", Quota::new(9, secs(300))),
        ("9/2hrs", Quota::new(9, secs(7200))),
        ("3/250ms", Quota::new(3, Duration::from_millis(250))),
        ("3/15us", Quota::new(3, Duration::from_micros(15))),
        ("3/15µs", Quota::new(3, Duration::from_micros(15))),
        ("3/15ns", Quota::new(3, Duration::from_nanos(15))),
        ("1250000000/sec", Quota::per_second(1_250_000_000)),
        ("100/min strict", Quota::per_minute(90).burst(10)),
        ("100/min  burst 1 STRICT", Quota::per_minute(99).burst(1)),
        ("5/s strict", Quota::per_second(4).burst(1)),
        ("1/s strict", Quota::per_second(1).burst(1)),
        ("1/s burst 1 strict", Quota::per_second(1).burst(1)),
    ];
    for (text, quota) in cases {
        assert_eq!(text.parse(), Ok(quota), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_what_is_allowed() {
    let cases = [
        ("", 0, "the text ends; allowed: a whole number of tokens"),
        ("fast", 0, "'f' is unexpected; allowed: a whole number of tokens"),
        ("-5/s", 0, "'-' is unexpected"),
        ("100", 3, "the text ends; allowed: a slash and a period"),
        ("100 per s", 4, "'p' is unexpected; allowed: a slash and a period"),
        ("100/", 4, "the text ends; allowed: ns, us, ms, s, min, h, d"),
        ("100/fortnight", 4, "unknown unit \"fortnight\"; allowed: ns, us, ms, s, min, h, d"),
        (
            "0.5/s",
            1,
            "not whole, or has separators; allowed: digits (1000 for 1,000; half a token a second is 1/2s)",
        ),
        ("1/0.5s", 3, "not whole"),
        ("99999999999999999999/s", 0, "99999999999999999999 is too large"),
        ("1/99999999999d", 13, "a period of 99999999999d is too long; allowed: up to 213503d"),
        ("100/mss", 4, "unknown unit \"mss\""),
        ("1,000/s", 1, "has separators"),
        ("100/s bust 5", 6, "\"bust\" is unexpected; allowed: burst, strict or the end"),
        ("100/s burst", 11, "the text ends; allowed: a whole number of tokens"),
        ("100/s burst x", 12, "'x' is unexpected; allowed: a whole number of tokens"),
        ("100/s burst 5 6", 14, "'6' is unexpected; allowed: strict or the end"),
        ("100/s burst 5 burst 6", 14, "\"burst\" is unexpected; allowed: strict or the end"),
        ("100/s strict strict", 13, "\"strict\" is unexpected; allowed: the end"),
        ("100/s strict burst 5", 13, "\"burst\" is unexpected; allowed: the end"),
        (
            "100/s burst 100 strict",
            16,
            "a burst of 100 leaves no rate for a strict quota of 100; allowed: a burst below the tokens",
        ),
        ("1/min burst 5 strict", 14, "a burst of 5 leaves no rate for a strict quota of 1; allowed: "),
        ("100/s, 5/min", 5, "',' is unexpected; allowed: burst, strict or the end"),
        ("١٠٠/s", 0, "'١' is unexpected"),
    ];
    for (text, offset, message) in cases {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(error.offset(), Some(offset), "{error}");
        let place = format!("invalid quota {text:?}: at character {}, ", text[..offset].chars().count() + 1);
        assert!(error.to_string().starts_with(&place), "{error}");
        assert!(error.to_string().contains(message), "{error} does not say {message}");
    }
}

#[test]
fn a_quota_is_printed_with_the_largest_unit_that_divides_its_period() {
    let texts = [
        "1/0ns",
        "1/ns",
        "1/999ns",
        "2/us",
        "3/1500us",
        "4/ms",
        "100/s",
        "5/61s",
        "6/min",
        "7/90min",
        "8/h",
        "9/25h",
        "10/d",
        "11/30d burst 5",
    ];
    for text in texts {
        assert_eq!(text.parse::<Quota>().unwrap().to_string(), text);
    }
}

proptest! {
    #[test]
    fn a_printed_quota_reads_back_as_itself(
        limit in any::<u64>(), nanos in prop_oneof![0..5000_u64, any::<u64>()], unit in 0..7_usize,
        burst in any::<Option<u64>>()
    ) {
        let units = [1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000, 86_400_000_000_000];
        let quota = Quota::new(limit, Duration::from_nanos(nanos.saturating_mul(units[unit])));
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        prop_assert_eq!(quota.to_string().parse(), Ok(quota));
    }

    #[test]
    fn no_text_panics_and_every_error_points_into_it(text in "\\PC{0,40}") {
        if let Err(error) = text.parse::<Quota>() {
            prop_assert!(text.is_char_boundary(error.offset().unwrap()));
            prop_assert!(error.to_string().contains("allowed: "));
        }
    }

    #[test]
    fn no_near_miss_panics(text in "[0-9]{0,22} ?/ ?[0-9.]{0,4} ?(s|ms|mins|h|d|x|é)? ?(burst)? ?[0-9]{0,3}") {
        let _ = text.parse::<Quota>();
    }
}

#[test]
fn several_quotas_stand_in_one_text() {
    let list = |text| Quota::parse_list(text).unwrap();
    assert_eq!(list("10/s"), [Quota::per_second(10)]);
    let three = [Quota::per_second(10).burst(50), Quota::per_minute(7), Quota::per_day(1000).burst(3)];
    assert_eq!(list("10/s burst 50,7/min , 1000/d burst 3"), three);
    let text = three.map(|quota| quota.to_string()).join(", ");
    assert_eq!(list(&text), three);
}

#[test]
fn a_list_that_is_refused_names_the_quota() {
    for (text, offset, message) in [
        ("", 0, "in quota 1, the text ends; allowed: a whole number of tokens"),
        ("10/s,", 5, "in quota 2, the text ends; allowed: a whole number of tokens"),
        ("10/s, 5/fortnight", 8, "in quota 2, unknown unit \"fortnight\"; allowed: ns, us"),
        ("1,000/s", 1, "in quota 1, the number is not whole, or has separators; allowed: digits"),
        ("1/s, 2/s burst 5.5", 16, "in quota 2, the number is not whole"),
        ("1/s burst 5 6/s", 12, "in quota 1, '6' is unexpected; allowed: a comma or the end"),
        ("1/s; 2/s", 3, "in quota 1, ';' is unexpected; allowed: a comma or the end"),
    ] {
        let error = Quota::parse_list(text).expect_err(text);
        assert_eq!(error.offset(), Some(offset), "{error}");
        let place = format!("invalid quota {text:?}: at character {}, ", offset + 1);
        assert!(error.to_string().starts_with(&place), "{error}");
        assert!(error.to_string().contains(message), "{error} does not say {message}");
    }
}
