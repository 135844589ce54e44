//! A pinned handle renews its guard with each check, so collections free what was replaced before.

use crate::store::{Gate, IntoGate};
use std::time::Duration;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick};

/// Through one handle, held all the time, two million keys come and go. The store has room for
/// 20,000 of them, so it must free what it replaces while the handle is held.
#[test]
fn a_pinned_handle_lets_go_of_the_epoch_by_itself() {
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(20_000).grace(Duration::ZERO);
    let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
    let mut gate = limiter.pin();
    for key in 0..2_000_000 {
        let now = Tick::from_nanos(key * 1_000_000);
        assert_eq!(gate.at(now).check(&key).source(), DecisionSource::Key, "key {key}");
    }
    assert!(limiter.stats().turnovers > 100);
}
