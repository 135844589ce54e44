//! What races of real threads begin with: numbers without a pattern, and a line from which all start together.

// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
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
    /// A thread has panicked and will not come.
    broken: AtomicBool,
}

/// One thread's way along the line.
pub struct Lane<'l> {
    line: &'l StartLine,
    /// How many will have arrived when all have.
    turn: usize,
}

impl StartLine {
    pub fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0), broken: AtomicBool::new(false) }
    }

    /// For each thread one.
    pub fn lane(&self) -> Lane<'_> {
        Lane { line: self, turn: 0 }
    }
}

impl Lane<'_> {
    pub fn wait(&mut self) {
        self.turn += self.line.threads;
        self.line.arrived.fetch_add(1, SeqCst);
        let mut spins = 0;
        while self.line.arrived.load(SeqCst) < self.turn {
            assert!(!self.line.broken.load(SeqCst), "another thread has panicked");
            spins += 1;
            if spins < 200 { hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.line.broken.store(true, SeqCst);
        }
    }
}
