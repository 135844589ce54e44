//! What races of real threads begin with: numbers without a pattern, and a line from which all start together.

// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// A linear congruential generator (Knuth, MMIX), high bits.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// All threads wait here for each other, spinning, so that they go on together.
pub struct StartLine {
    threads: usize,
    arrived: AtomicUsize,
}

impl StartLine {
    pub fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0) }
    }

    /// `turn` is the thread's own, 0 before the first time.
    pub fn wait(&self, turn: &mut usize) {
        *turn += self.threads;
        self.arrived.fetch_add(1, SeqCst);
        let mut spins = 0;
        while self.arrived.load(SeqCst) < *turn {
            spins += 1;
            if spins % 200 == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}
