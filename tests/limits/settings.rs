//! The texts of settings, with and without serde.

use tollgate::{Algorithm, WhenFull, WindowAlign};

#[test]
fn names_are_read_as_they_are_written() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    for full in [WhenFull::Deny, WhenFull::Allow, WhenFull::Share] {
        assert_eq!(full.to_string().parse(), Ok(full));
    }
    for align in [WindowAlign::UnixEpoch, WindowAlign::ClockStart] {
        assert_eq!(align.to_string().parse(), Ok(align));
    }
    assert_eq!("gcra".parse(), Ok(Algorithm::TokenBucket));
}

#[test]
fn an_unknown_name_is_named_with_what_is_allowed() {
    let refused = "admit".parse::<WhenFull>().unwrap_err().to_string();
    assert_eq!(refused, "unknown policy for a full table \"admit\"; allowed: deny, allow, share");
    let refused = "midnight".parse::<WindowAlign>().unwrap_err().to_string();
    assert_eq!(refused, "unknown alignment of windows \"midnight\"; allowed: unix-epoch, clock-start");
    let refused = "GCRA".parse::<Algorithm>().unwrap_err().to_string();
    assert!(refused.starts_with("unknown algorithm \"GCRA\"; allowed: token-bucket, "), "{refused}");
}

#[cfg(feature = "serde")]
mod by_serde {
    use serde::{Deserialize, Serialize};
    use tollgate::{Algorithm, Quota, WhenFull, WindowAlign};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Config {
        quota: Quota,
        algorithm: Algorithm,
        when_full: WhenFull,
        align: WindowAlign,
    }

    const TEXT: &str =
        r#"{"quota":"100/s burst 20","algorithm":"fixed-window","when_full":"share","align":"unix-epoch"}"#;

    #[test]
    fn settings_are_the_texts_they_are_parsed_from() {
        let config = Config {
            quota: Quota::per_second(100).burst(20),
            algorithm: Algorithm::FixedWindow,
            when_full: WhenFull::Share,
            align: WindowAlign::UnixEpoch,
        };
        assert_eq!(serde_json::to_string(&config).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<Config>(TEXT).unwrap(), config);
        let other = TEXT.replace("fixed-window", "gcra");
        let other: Config = serde_json::from_str(&other).unwrap();
        assert_eq!(other.algorithm, Algorithm::TokenBucket);
    }

    #[test]
    fn a_refused_text_keeps_its_message() {
        for (from, to, message) in [
            ("100/s burst 20", "100/fortnight", "unknown unit"),
            ("\"fixed-window\"", "7", "expected an algorithm such as"),
            ("share", "admit", "allowed: deny, allow, share"),
            ("unix-epoch", "midnight", "allowed: unix-epoch, clock-start"),
        ] {
            let refused = serde_json::from_str::<Config>(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(refused.contains(message), "{refused} does not say {message}");
        }
    }
}
