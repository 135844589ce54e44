//! Tools for races between real threads: random numbers, and a start line that all threads leave
//! together.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use tollgate::Algorithm;

/// The algorithms whose state is one word.
pub const PACKED: [Algorithm; 5] = Algorithm::PACKED;

/// A linear congruential generator (Knuth, MMIX). Only its high bits are used.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A barrier at which all threads wait for each other. The threads spin briefly before they sleep,
/// so that they leave at nearly the same time.
pub struct StartLine {
    threads: usize,
    arrived: AtomicUsize,
    /// Whether a thread has panicked and will not arrive.
    broken: AtomicBool,
    /// Lets threads sleep after a short spin. On a busy machine, more spinning would only keep the
    /// other threads from arriving.
    sleepers: Mutex<()>,
    changed: Condvar,
}

/// The position of one thread on the line.
pub struct Lane<'l> {
    line: &'l StartLine,
    /// The number of arrivals after all threads have arrived.
    turn: usize,
}

impl StartLine {
    pub fn new(threads: usize) -> Self {
        let (arrived, broken) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { threads, arrived, broken, sleepers: Mutex::new(()), changed: Condvar::new() }
    }

    /// Returns the lane of one thread. Each thread needs its own lane.
    pub fn lane(&self) -> Lane<'_> {
        Lane { line: self, turn: 0 }
    }
}

impl Lane<'_> {
    pub fn wait(&mut self) {
        let line = self.line;
        self.turn += line.threads;
        // ORDERING: sequentially consistent here and below, because speed does not matter in a
        // test.
        if line.arrived.fetch_add(1, SeqCst) + 1 == self.turn {
            line.wake();
            return;
        }
        // ORDERING: see above.
        let must_wait = |spins| spins > 0 && line.arrived.load(SeqCst) < self.turn;
        let mut spins = 2_000;
        while must_wait(spins) {
            spins -= 1;
            hint::spin_loop();
        }
        let asleep = line.sleepers.lock().unwrap();
        // ORDERING: see above.
        let is_early = |(): &mut ()| line.arrived.load(SeqCst) < self.turn && !line.broken.load(SeqCst);
        drop(line.changed.wait_while(asleep, is_early).unwrap());
        // ORDERING: see above.
        assert!(!line.broken.load(SeqCst), "another thread has panicked");
    }
}

impl StartLine {
    /// Wakes the sleepers. Holding the lock ensures that no thread misses the change and falls
    /// asleep.
    fn wake(&self) {
        let _sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // ORDERING: see `wait`.
            self.line.broken.store(true, SeqCst);
            self.line.wake();
        }
    }
}
