//! Tests the parsing of response fields.

use http::{HeaderMap, HeaderName, StatusCode};
use std::future::ready;
use std::time::{Duration, SystemTime};
use tollgate::{Limiter, Quota};
use tollgate_wait::{Answer, Paced, ServerLimit, WaitQueue, Waitable};

/// 14 November 2023, 22:13:20.
fn received() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn read(status: StatusCode, fields: &[(&str, &str)]) -> Answer {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    Answer::read(status, &headers, received())
}

fn limits(fields: &[(&str, &str)]) -> Vec<String> {
    let text = |limit: &ServerLimit| {
        let of = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let seconds = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{time:?}"));
        let (tokens, remaining) = (of(limit.tokens), of(limit.remaining));
        let (window, reset) = (seconds(limit.window), seconds(limit.reset));
        let unit = limit.unit.as_ref().map(|unit| format!(" {unit}")).unwrap_or_default();
        format!("{}: {remaining} of {tokens} in {window}, more in {reset}{unit}", limit.name)
    };
    read(StatusCode::OK, fields).limits.iter().map(text).collect()
}

#[test]
fn several_policies_of_the_current_draft_are_read_by_name() {
    let found = limits(&[
        ("ratelimit-policy", "\"burst\";q=100;w=60, \"daily\";q=1000;w=86400"),
        ("ratelimit-policy", "\"flight\";q=8;qu=\"concurrent-requests\""),
        ("ratelimit", "\"daily\";r=900;t=3600;x=1"),
        ("ratelimit", "\"burst\";r=50;t=30, \"other\";r=-3;t=7"),
    ]);
    assert_eq!(
        found,
        [
            "burst: 50 of 100 in 60s, more in 30s",
            "daily: 900 of 1000 in 86400s, more in 3600s",
            "flight: - of 8 in -, more in - concurrent-requests",
            "other: 0 of - in -, more in 7s",
        ]
    );
}

#[test]
fn partitions_of_one_policy_are_limits_of_their_own() {
    let found = limits(&[("ratelimit", "\"peer\";r=5;t=1;pk=:cHsd:, \"peer\";r=7;t=1;pk=:cHse:")]);
    assert_eq!(found.len(), 2, "{found:?}");
}

/// The first policy receives the remaining amount, and none of the others is lost.
#[test]
fn policies_of_one_name_are_limits_of_their_own() {
    let found = limits(&[
        ("ratelimit-policy", "\"a\";q=10;w=1, \"a\";q=100;w=60, \"a\";q=500"),
        ("ratelimit", "\"a\";r=0;t=30"),
    ]);
    assert_eq!(
        found,
        [
            "a: 0 of 10 in 1s, more in 30s",
            "a;q=100;w=60: - of 100 in 60s, more in -",
            "a;q=500: - of 500 in -, more in -",
        ]
    );
}

/// express-rate-limit sends the partition key only in `RateLimit-Policy`.
#[test]
fn an_item_without_a_partition_completes_the_only_policy_of_its_name() {
    let policy = "\"d\"; q=100; w=60; qu=\"content-bytes\"; pk=:YWJj:";
    let item = ("ratelimit", "\"d\"; r=99; t=60");
    assert_eq!(
        limits(&[("ratelimit-policy", policy), item]),
        ["d;:abc: 99 of 100 in 60s, more in 60s content-bytes"]
    );
    let second = ("ratelimit-policy", "\"d\"; q=7; pk=:cHsd:");
    assert_eq!(limits(&[("ratelimit-policy", policy), second, item]).len(), 3);
}

#[test]
fn older_drafts_are_read() {
    let version_7 =
        [("ratelimit-policy", "10;w=1, 50;w=60"), ("ratelimit", "limit=50, remaining=20, reset=30")];
    assert_eq!(
        limits(&version_7),
        ["10;w=1: - of 10 in 1s, more in -", "50;w=60: 20 of 50 in 60s, more in 30s"]
    );
    let version_3 = [
        ("ratelimit-limit", "50, 10;w=1, 50;w=60"),
        ("ratelimit-remaining", "20"),
        ("ratelimit-reset", "30"),
    ];
    assert_eq!(
        limits(&version_3),
        ["ratelimit-limit: 20 of 50 in 60s, more in 30s", "10;w=1: - of 10 in 1s, more in -"]
    );
}

/// express-rate-limit sends `RateLimit-Policy` together with the older fields.
#[test]
fn policies_are_completed_by_older_fields() {
    let draft_6 = [
        ("ratelimit-policy", "100;w=60"),
        ("ratelimit-limit", "100"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "45"),
    ];
    assert_eq!(limits(&draft_6), ["100;w=60: 0 of 100 in 60s, more in 45s"]);
    let other_quota = [
        ("ratelimit-policy", "\"a\";q=10;w=1, \"b\";q=50;qu=\"content-bytes\""),
        ("ratelimit-limit", "10;w=3600"),
        ("x-ratelimit-limit", "50"),
        ("x-ratelimit-remaining", "20"),
        ("x-ratelimit-reset", "30"),
    ];
    assert_eq!(
        limits(&other_quota),
        [
            "a: - of 10 in 1s, more in -",
            "b: - of 50 in -, more in - content-bytes",
            "ratelimit-limit: - of 10 in 3600s, more in -",
            "x-ratelimit-limit: 20 of 50 in -, more in 30s",
        ]
    );
}

#[test]
fn the_fields_of_large_servers_are_read() {
    for (fields, expected) in [
        (
            &[
                ("X-RateLimit-Limit", "5000"),
                ("X-RateLimit-Remaining", "4987"),
                ("X-RateLimit-Reset", "1700003600"),
            ][..],
            &["x-ratelimit-limit: 4987 of 5000 in -, more in 3600s"][..],
        ),
        (
            &[
                ("X-RateLimit-Limit", "5"),
                ("X-RateLimit-Remaining", "0"),
                ("X-RateLimit-Reset", "1700000001.47"),
                ("X-RateLimit-Reset-After", "1.25"),
            ],
            &["x-ratelimit-limit: 0 of 5 in -, more in 1.25s"],
        ),
        (
            &[
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-limit-tokens", "150000"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            &[
                "x-ratelimit-limit-requests: 59 of 60 in -, more in 1s",
                "x-ratelimit-limit-tokens: 0 of 150000 in -, more in 360s tokens",
            ],
        ),
        (
            &[
                ("anthropic-ratelimit-requests-limit", "50"),
                ("anthropic-ratelimit-requests-remaining", "49"),
                ("anthropic-ratelimit-requests-reset", "2023-11-14T22:14:20Z"),
            ],
            &["anthropic-ratelimit-requests-limit: 49 of 50 in -, more in 60s"],
        ),
        (
            &[
                ("X-RateLimit-Limit", "5, 5;w=60;name=\"demo\""),
                ("X-RateLimit-Remaining", "3"),
                ("X-RateLimit-Reset", "12"),
            ],
            &["x-ratelimit-limit: 3 of 5 in 60s, more in 12s"],
        ),
    ] {
        assert_eq!(limits(fields), expected, "{fields:?}");
    }
}

/// Docker Hub sends these fields, and sometimes without the numbers.
#[test]
fn numbers_with_a_window_are_read_and_a_window_alone_is_no_limit() {
    let pair = [("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "76;w=21600")];
    assert_eq!(limits(&pair), ["ratelimit-limit: 76 of 100 in 21600s, more in -"]);
    let without_a_quota = [("ratelimit-remaining", "76;w=21600")];
    assert_eq!(limits(&without_a_quota), ["ratelimit-limit: 76 of - in 21600s, more in -"]);
    let empty = [("ratelimit-limit", ";w=21600"), ("ratelimit-remaining", ";w=21600")];
    assert_eq!(limits(&empty), [""; 0]);
}

/// Shopify and Haravan send these fields.
#[test]
fn the_used_and_the_total_amount_are_read_from_one_field() {
    let calls = |text| limits(&[("X-Shopify-Shop-Api-Call-Limit", text)]);
    assert_eq!(calls("39/40"), ["x-shopify-shop-api-call-limit: 1 of 40 in -, more in -"]);
    assert_eq!(calls("41 / 40"), ["x-shopify-shop-api-call-limit: 0 of 40 in -, more in -"]);
    assert_eq!(
        limits(&[("X-Haravan-Api-Call-Limit", "1/80")]),
        ["x-haravan-api-call-limit: 79 of 80 in -, more in -"]
    );
    for nonsense in ["39", "/40", "39/", "-1/40", "1/2/3", "many/few"] {
        assert_eq!(calls(nonsense), [""; 0], "{nonsense}");
    }
}

/// Anthropic sends the total beside the limits of input and output.
#[test]
fn a_total_of_tokens_is_a_limit_beside_those_of_its_kinds() {
    let found = limits(&[
        ("anthropic-ratelimit-tokens-limit", "96000"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2023-11-14T22:13:41Z"),
        ("anthropic-ratelimit-input-tokens-limit", "80000"),
        ("anthropic-ratelimit-input-tokens-remaining", "16000"),
        ("anthropic-ratelimit-input-tokens-reset", "2023-11-14T22:13:30Z"),
    ]);
    assert_eq!(
        found,
        [
            "anthropic-ratelimit-tokens-limit: 0 of 96000 in -, more in 21s tokens",
            "anthropic-ratelimit-input-tokens-limit: 16000 of 80000 in -, more in 10s tokens",
        ]
    );
}

/// OpenSky sends the seconds, and Azure Cosmos DB the milliseconds.
#[test]
fn waits_in_fields_of_other_names_are_read() {
    let wait = |fields: &[(&str, &str)]| read(StatusCode::TOO_MANY_REQUESTS, fields).retry_after;
    let (seconds, millis) = ("X-Rate-Limit-Retry-After-Seconds", "x-ms-retry-after-ms");
    assert_eq!(wait(&[(seconds, "33")]), Some(Duration::from_secs(33)));
    assert_eq!(wait(&[(seconds, "33"), ("retry-after", "40")]), Some(Duration::from_secs(40)));
    assert_eq!(wait(&[(millis, "250")]), Some(Duration::from_millis(250)));
    assert_eq!(wait(&[(millis, "1.5"), ("retry-after", "1")]), Some(Duration::from_micros(1_500)));
    assert_eq!(wait(&[(millis, "soon"), ("retry-after", "1")]), Some(Duration::from_secs(1)));
    assert_eq!(wait(&[(millis, "-3")]), Some(Duration::ZERO));
    assert_eq!(read(StatusCode::OK, &[(millis, "250"), (seconds, "33")]).retry_after, None);
}

#[test]
fn the_statuses_of_refusals_are_429_503_and_529() {
    let refusals = (400..600).filter(|status| read(StatusCode::from_u16(*status).unwrap(), &[]).is_refusal);
    assert_eq!(refusals.collect::<Vec<_>>(), [429, 503, 529]);
    let ban = read(StatusCode::IM_A_TEAPOT, &[("retry-after", "120")]);
    assert_eq!((ban.is_refusal, ban.retry_after), (false, Some(Duration::from_secs(120))));
}

/// A server that writes two dates a minute apart means a minute, whatever our own clock says.
#[test]
fn clocks_that_differ_by_minutes_change_no_wait() {
    let dates = [
        ("Tue, 14 Nov 2023 22:13:20 GMT", "Tue, 14 Nov 2023 22:14:20 GMT"),
        ("Tuesday, 14-Nov-23 22:13:20 GMT", "Tuesday, 14-Nov-23 22:14:20 GMT"),
        ("Tue Nov 14 22:13:20 2023", "Tue Nov 14 22:14:20 2023"),
    ];
    for (date, until) in dates {
        let mut headers = HeaderMap::new();
        headers.insert("date", date.parse().unwrap());
        headers.insert("retry-after", until.parse().unwrap());
        for minutes in [0, 5] {
            let off = Duration::from_secs(minutes * 60);
            for own in [received() - off, received() + off] {
                let answer = Answer::read(StatusCode::SERVICE_UNAVAILABLE, &headers, own);
                assert_eq!(answer.retry_after, Some(Duration::from_secs(60)), "{until}: {minutes}");
            }
        }
    }
}

/// A year of two digits in the format of RFC 850 is in the past if it would otherwise be more than
/// 50 years ahead. 1 January was a Saturday in 1977, and will be a Friday in 2077.
#[test]
fn a_year_of_two_digits_is_never_fifty_years_ahead() {
    for (until, seconds) in [
        ("Tuesday, 14-Nov-23 22:14:20 GMT", Some(60)),
        ("Saturday, 01-Jan-77 00:00:00 GMT", Some(0)),
        ("Friday, 01-Jan-77 00:00:00 GMT", None),
    ] {
        let fields = [("date", "Tuesday, 14-Nov-23 22:13:20 GMT"), ("retry-after", until)];
        let wait = read(StatusCode::SERVICE_UNAVAILABLE, &fields).retry_after;
        assert_eq!(wait, seconds.map(Duration::from_secs), "{until}");
    }
}

#[test]
fn a_date_is_read_against_the_date_of_the_response() {
    let late = ("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT");
    let wait = |fields: &[(&str, &str)]| read(StatusCode::SERVICE_UNAVAILABLE, fields).retry_after;
    assert_eq!(wait(&[late]), Some(Duration::from_secs(30)));
    assert_eq!(wait(&[late, ("date", "Tue, 14 Nov 2023 22:13:45 GMT")]), Some(Duration::from_secs(5)));
    assert_eq!(wait(&[late, ("date", "yesterday")]), Some(Duration::from_secs(30)));
    assert_eq!(wait(&[late, ("date", "Tue, 14 Nov 2023 22:20:00 GMT")]), Some(Duration::ZERO));
    assert_eq!(wait(&[("retry-after", "1"), ("retry-after-ms", "1250")]), Some(Duration::from_millis(1250)));
    let leap = ("retry-after", "Sat, 31 Dec 2016 23:59:60 GMT");
    assert_eq!(wait(&[leap, ("date", "Sat, 31 Dec 2016 23:59:57 GMT")]), Some(Duration::from_secs(3)));
    assert_eq!(wait(&[leap, ("date", "Sat, 31 Dec 2016 23:59:60 GMT")]), Some(Duration::ZERO));
    // This field is not a limit if the response is a redirection.
    assert_eq!(read(StatusCode::MOVED_PERMANENTLY, &[late]).retry_after, None);
}

/// Returns a function that learns from an answer for a key, and then makes calls that ask for a
/// turn and for the wait of a turn.
fn obey() -> impl Fn(u64, &Answer) {
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1_000)).build().unwrap();
    let queue = WaitQueue::with_sleep(Paced::new(limiter), |_| ready(()));
    move |key, answer| {
        queue.limiter().learn(&key, answer, 0);
        for _ in 0..2 {
            let _ = pollster::block_on(queue.until_n_within(&key, 1, Duration::ZERO));
            let _ = pollster::block_on(queue.limiter().peek_n(&key, 7));
            queue.limiter().quota(&key);
        }
    }
}

#[test]
fn the_longest_reset_of_a_server_does_not_stop_later_calls() {
    let answer = read(
        StatusCode::OK,
        &[
            ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "99999999999999999999999999"),
        ],
    );
    assert_eq!(answer.limits[0].reset, Some(Duration::MAX));
    obey()(1, &answer);
}

/// Reads random fields that resemble the fields sent by servers, and obeys the result. Reading
/// terminates, and returns at most eight limits.
#[test]
fn nonsense_in_any_field_is_survived() {
    let names = [
        "retry-after",
        "retry-after-ms",
        "x-ms-retry-after-ms",
        "x-rate-limit-retry-after-seconds",
        "x-shopify-shop-api-call-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
        "date",
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    let parts = [
        "-1",
        "0",
        "1",
        "99999999999999999999",
        "99999999999999999999999999",
        "1e400",
        "NaN",
        "inf",
        ".",
        "-",
        "1.5",
        ", ",
        ";",
        "=",
        "\"",
        "\"a\"",
        ";q=",
        ";w=",
        ";r=",
        ";t=",
        ";pk=:",
        "(1 2)",
        "/",
        "limit=",
        "remaining=",
        "reset=",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "9999-12-31T23:59:59Z",
        "-9999-01-01T00:00:00Z",
        "6m0s",
        "1000000h",
        "PT-5M",
        "\u{7f}",
        " ",
    ];
    let mut random = fastrand::Rng::with_seed(47);
    let (mut found, obey) = (0, obey());
    for key in 0..100_000 {
        let mut headers = HeaderMap::new();
        for _ in 0..random.usize(1..6) {
            let name = random.choice(names).unwrap();
            let length = if random.bool() { 1 } else { random.usize(0..12) };
            let texts = (0..length).map(|_| random.choice(parts).unwrap());
            if let Ok(value) = texts.collect::<String>().parse() {
                headers.append(name, value);
            }
        }
        let at = random.choice([SystemTime::UNIX_EPOCH, received()]).unwrap();
        let answer = Answer::read(StatusCode::TOO_MANY_REQUESTS, &headers, at);
        assert!(answer.limits.len() <= 8);
        found += answer.limits.len();
        if !answer.limits.is_empty() {
            obey(key, &answer);
        }
    }
    assert!(found > 1_000, "{found} limits were read");
}
