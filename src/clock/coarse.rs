//! A clock that one thread moves, so that reading it is one load.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! The time is a number that publishes nothing else. The stop flag needs no order either: the thread
//! only has to see it some time after it is set, and `unpark` makes that at once. The thread is joined,
//! so nothing it uses is freed under it. Real time can't be modelled, so this file is not built for loom.

use crate::error::ConfigError;
use crate::sync::{Atomic, Ordering::Relaxed, thread};
use crate::time::Tick;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FINEST: Duration = Duration::from_micros(100);
const COARSEST: Duration = Duration::from_secs(1);

/// The reading side; dropping it ends the thread.
pub(super) struct Coarse {
    shared: Arc<Shared>,
    updater: Option<thread::JoinHandle<()>>,
}

struct Shared {
    now: Atomic<u64>,
    stop: Atomic<bool>,
}

impl Coarse {
    pub(super) fn start(resolution: Duration) -> Result<Self, ConfigError> {
        if !(FINEST..=COARSEST).contains(&resolution) {
            return Err(ConfigError::Resolution { resolution, least: FINEST, most: COARSEST });
        }
        let shared = Arc::new(Shared { now: Atomic::new(0), stop: Atomic::new(false) });
        let moved = Arc::clone(&shared);
        let origin = Instant::now();
        let updater = thread::Builder::new()
            .name("tollgate-clock".to_owned())
            .spawn(move || {
                // ORDERING: relaxed twice, see the module's ledger.
                while !moved.stop.load(Relaxed) {
                    moved.now.store(Tick::from(origin.elapsed()).as_nanos(), Relaxed);
                    thread::park_timeout(resolution);
                }
            })
            .map_err(|_| ConfigError::NoThread)?;
        Ok(Self { shared, updater: Some(updater) })
    }

    #[inline]
    pub(super) fn now(&self) -> Tick {
        // ORDERING: relaxed, see the module's ledger.
        Tick::from_nanos(self.shared.now.load(Relaxed))
    }
}

impl Drop for Coarse {
    fn drop(&mut self) {
        // ORDERING: relaxed; `unpark` wakes the thread after it.
        self.shared.stop.store(true, Relaxed);
        if let Some(updater) = self.updater.take() {
            updater.thread().unpark();
            // An updater that panicked has nothing to say to whoever drops the clock.
            let _ = updater.join();
        }
    }
}
