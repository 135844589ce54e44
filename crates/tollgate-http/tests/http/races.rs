//! Concurrent requests: nothing is admitted twice, and refunds are not lost.

use super::site::{Running, with};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use tollgate::Quota;
use tollgate_http::{KeyBy, Limit, WhenNoKey};

#[test]
fn clones_and_connections_share_their_limits_and_races_admit_no_more() {
    let site = super::site::site();
    let all = Arc::new(site.single(Quota::per_hour(500)));
    let keyed = Arc::new(site.limiter(Quota::per_hour(300)));
    let site = site
        .limit(Limit::new("all", all.clone()))
        .limit(Limit::new("keyed", keyed).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny))
        .run();
    let passed: [AtomicU64; 3] = Default::default();
    thread::scope(|scope| {
        for first in 0..4 {
            // One connection, with a clone of the layer.
            let site = Running { clock: site.clock.clone(), layer: site.layer.clone() };
            let passed = &passed;
            scope.spawn(move || {
                for i in 0..600 {
                    let who = (first + i) % 3;
                    if site.status(with(&[("x-a", ["a", "b", "c"][who])])) == 200 {
                        passed[who].fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    let passed = passed.map(AtomicU64::into_inner);
    assert!(passed.iter().all(|&each| each <= 300), "{passed:?}");
    // In the end, only admitted requests are charged, so no token is lost.
    assert_eq!(passed.iter().sum::<u64>(), 500 - all.peek().remaining());
    assert_eq!(all.peek().remaining(), 0, "{passed:?}");
}
