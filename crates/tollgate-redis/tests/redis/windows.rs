//! The script of windows, at times that the tests choose.

use crate::load::{on_client, on_server};
use std::time::Duration;
use tollgate::{Algorithm, Quota, Tick};
use tollgate_redis::SharedLimiter;

const SECOND: u64 = 1_000_000;
/// The start of a minute.
const START: u64 = 1_790_000_040 * SECOND;

/// A machine with a lease has windows of a minute, and other machines have windows of ten seconds.
#[test]
fn tokens_of_a_lease_do_not_return_to_the_count_of_another_period() {
    on_server(async |server| {
        let code = concat!(
            include_str!("../../src/scripts/common.lua"),
            "\n",
            include_str!("../../src/scripts/window.lua")
        );
        let mut connection = server.client().get_connection().unwrap();
        // Returns whether the check was granted, the leased tokens, and the count of the window.
        let mut check = |now: u64, period: u64, cost: u64, lease: u64, settled: &[u64]| {
            let numbers = [&[period, 100, 100, 0, cost, lease][..], settled].concat();
            let numbers: Vec<_> = numbers.into_iter().map(|number| (number as f64).to_le_bytes()).collect();
            let request = [b"check\0", numbers.as_flattened()].concat();
            let mut eval = redis::cmd("EVAL");
            eval.arg(code).arg(1).arg("key").arg(request).arg(now);
            let answer: Vec<u8> = eval.query(&mut connection).unwrap();
            let numbers: Vec<f64> = answer.as_chunks().0.iter().map(|it| f64::from_le_bytes(*it)).collect();
            (numbers[0] > 0.0, numbers[1], numbers[4])
        };
        let (minute, short) = (60 * SECOND, 10 * SECOND);
        assert_eq!(check(START, minute, 1, 50, &[]), (true, 50.0, 51.0));
        // The other machine counts the leased tokens in its first window.
        assert_eq!(check(START + SECOND, short, 1, 0, &[]), (true, 0.0, 52.0));
        let lease = [START / minute, 50, 50];
        assert_eq!(check(START + 15 * SECOND, short, 100, 0, &[]), (true, 0.0, 100.0));
        assert_eq!(check(START + 16 * SECOND, minute, 0, 0, &lease), (true, 0.0, 100.0));
        assert_eq!(check(START + 17 * SECOND, short, 1, 0, &[]), (false, 0.0, 100.0));
    });
}

#[test]
fn a_fixed_window_keeps_the_count_of_a_sliding_one_of_the_same_name() {
    on_client(async |server, client| {
        let limiter = |algorithm| -> SharedLimiter<str> {
            let builder = SharedLimiter::builder(&client, "changing", Quota::per_minute(100));
            builder.algorithm(algorithm).deadline(Duration::from_secs(60)).build().unwrap()
        };
        let at = |seconds: u64| Tick::from_nanos((START + seconds * SECOND) * 1000);
        let (sliding, fixed) = (limiter(Algorithm::SlidingWindow), limiter(Algorithm::FixedWindow));
        assert!(sliding.at(at(50)).check_n("alice", 90).await.is_allowed());
        assert!(fixed.at(at(59)).check("alice").await.is_allowed());
        // At 62 s, most of the 91 tokens of the last minute count, until the next minute ends.
        assert_eq!(sliding.at(at(62)).peek("alice").await.remaining(), 12);
        let left = server.keys_with_ttl()[0].1;
        assert!(left > 30_000, "{left}");
    });
}
