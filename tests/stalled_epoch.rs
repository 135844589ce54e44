//! A thread that stalls while pinned. In a program of its own, because the epoch is the process's.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tollgate::{Clock, Limiter, Quota, Source};

/// One test at a time: the other's pins would count too.
static ALONE: Mutex<()> = Mutex::new(());

/// What a thread holds while it is parked.
#[derive(Clone, Copy, Debug)]
enum Holds {
    /// A handle of a limiter, whichever it is.
    Handle,
    /// A guard of the epochs themselves, as other users of theirs have it, and threads of ours that have no other.
    Epoch,
}

/// Runs `body` while another thread is parked that keeps what is retired from being freed.
fn while_a_thread_is_parked(holds: Holds, body: impl FnOnce()) {
    let (parked, is_parked) = channel();
    let (wake, woken) = channel::<()>();
    let sleeper = thread::spawn(move || {
        let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1)).build().unwrap();
        let handle = matches!(holds, Holds::Handle).then(|| limiter.pin());
        let guard = matches!(holds, Holds::Epoch).then(crossbeam_epoch::pin);
        parked.send(()).unwrap();
        woken.recv().unwrap();
        drop((handle, guard));
    });
    is_parked.recv().unwrap();
    body();
    wake.send(()).unwrap();
    sleeper.join().unwrap();
}

/// A thread that stalls while it may still see retired eras keeps them from being freed. Then no turnover
/// starts beyond the bound on memory: new keys get the full policy, and known keys notice nothing.
#[test]
fn a_thread_parked_while_pinned_stops_growth_and_nobody_else() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for holds in [Holds::Handle, Holds::Epoch] {
        // Four eras at the cap, as the page of `table` says: one has three slots for two keys, and a small one two for each.
        stop_growth(holds, 12_000, 12_000 * 24 + 12_000 * 3 / 32);
        stop_growth(holds, 8_192, 8_192 * 32 + 8_192 / 8);
    }
}

fn stop_growth(holds: Holds, max_keys: usize, era: usize) {
    let clock = Clock::manual();
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(max_keys);
    let limiter: Limiter<u64> = builder.clock(&clock).build().unwrap();
    while_a_thread_is_parked(holds, || {
        assert!(limiter.check(&0).allowed());
        let bound = 4 * (era + 1_088);
        let mut refused = false;
        for key in 1..200_000 {
            // Every key is idle soon, so nothing but the stalled epoch is in the way.
            clock.advance(Duration::from_millis(1));
            if key % 400 == 0 {
                // A known key in use, which is never idle for as long as the grace.
                assert_eq!(limiter.check(&0).source(), Source::Key);
            }
            refused |= limiter.check(&key).source() == Source::Policy;
            assert!(limiter.memory() <= bound, "{} bytes at key {key}", limiter.memory());
        }
        assert!(refused, "the bound was never reached, so this test shows nothing");
        clock.advance(Duration::from_secs(1));
        let known = limiter.check(&0);
        assert_eq!((known.allowed(), known.source()), (true, Source::Key));
        assert!(!limiter.check(&0).allowed());
    });
    // The epoch moves on, and there is room again within a few calls.
    let admitted = (1_000_000..1_010_000).filter(|key| limiter.check(key).source() == Source::Key).count();
    assert!(admitted > 1_000, "{admitted}");
}

/// A table that is far too large is not closed to become smaller while there may be no memory for the next
/// era: then new keys would be refused although there are places.
#[test]
fn a_table_with_places_takes_new_keys_also_while_memory_is_short() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for holds in [Holds::Handle, Holds::Epoch] {
        take_new_keys(holds, |_| {});
    }
}

/// A `clear` that gets no memory for the next era resets the keys, and does not close the table: new keys would be refused
/// although there are places.
#[test]
fn a_clear_while_memory_is_short_leaves_places_for_new_keys() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for holds in [Holds::Handle, Holds::Epoch] {
        take_new_keys(holds, |limiter| {
            limiter.clear();
            assert!(limiter.check(&0).allowed() && !limiter.check(&0).allowed());
        });
    }
}

/// Takes the memory of a table that is hardly used, by a thread that is parked, and inserts keys after `disturb`.
fn take_new_keys(holds: Holds, disturb: impl Fn(&Limiter<usize>)) {
    let max_keys = 50_000;
    let clock = Clock::manual();
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(max_keys);
    let limiter: Limiter<usize> = builder.clock(&clock).build().unwrap();
    let mut keys = 0..;
    let mut insert = |pause: Duration| {
        clock.advance(pause);
        limiter.check(&keys.next().unwrap()).source()
    };
    while limiter.stats().capacity < max_keys || limiter.stats().keys < max_keys {
        insert(Duration::ZERO);
    }
    // Whatever was retired meanwhile is freed.
    while limiter.memory() > max_keys * 25 {
        limiter.sweep(1);
    }
    while_a_thread_is_parked(holds, || {
        // Three turnovers of idle keys, and all the memory there is is taken.
        let grown = limiter.stats().turnovers;
        assert_eq!(insert(Duration::from_secs(5)), Source::Key);
        while limiter.stats().turnovers < grown + 3 {
            assert_eq!(insert(Duration::from_millis(1)), Source::Key);
        }
        assert!(limiter.memory() > 4 * max_keys * 24);
        assert!(limiter.stats().keys < max_keys / 5, "{:?}", limiter.stats());
        disturb(&limiter);
        for _ in 0..1_000 {
            assert_eq!(insert(Duration::from_secs(100)), Source::Key);
        }
        assert_eq!(limiter.stats().turnovers, grown + 3);
    });
}
