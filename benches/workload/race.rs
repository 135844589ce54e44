//! Threads that begin together, and the time that an operation takes on one of them.
//!
//! The clock starts when all threads are ready, so the time excludes their start. On a busy
//! machine, two threads may take turns on one core. In that case they do not contend, and the
//! results mean nothing for two threads.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tollgate_testing::race::StartLine;

/// Whether the threads must stop. The flag has its own cache lines: if it were next to a variable
/// that the measured loop writes, each read by the other thread would slow down the loop.
#[derive(Default)]
#[repr(align(128))]
struct Over(AtomicBool);

/// The number of operations between two reads of the flag.
const CHUNK: u64 = 64;

/// Returns the time of `iterations` of an operation for one thread while all `lanes` repeat it. All
/// threads stop when the first one has finished, so that no thread runs alone.
pub fn together<F: FnMut() + Send>(lanes: &mut [F], iterations: u64) -> Duration {
    let (line, is_over) = (StartLine::new(lanes.len()), Over::default());
    let run = |operation: &mut F| {
        line.lane().wait();
        let (start, mut done) = (Instant::now(), 0);
        // ORDERING: Relaxed: the flag publishes nothing. If a thread sees it late, the thread runs
        // one more chunk.
        while done < iterations && !is_over.0.load(Relaxed) {
            let chunk = CHUNK.min(iterations - done);
            (0..chunk).for_each(|_| operation());
            done += chunk;
        }
        let elapsed = start.elapsed();
        // ORDERING: Relaxed, as above.
        is_over.0.store(true, Relaxed);
        (elapsed, done)
    };
    let (elapsed, done) = thread::scope(|scope| {
        let threads: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(|| run(lane))).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        results.fold((Duration::ZERO, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    elapsed.mul_f64(iterations as f64 / done as f64)
}

/// Returns the time of `iterations` of `operation` while another thread repeats `other`.
pub fn beside(mut other: impl FnMut() + Send, mut operation: impl FnMut(), iterations: u64) -> Duration {
    let (line, is_over) = (&StartLine::new(2), &Over::default());
    thread::scope(|scope| {
        scope.spawn(move || {
            line.lane().wait();
            // ORDERING: Relaxed: the flag publishes nothing.
            while !is_over.0.load(Relaxed) {
                other();
            }
        });
        line.lane().wait();
        let start = Instant::now();
        (0..iterations).for_each(|_| operation());
        let elapsed = start.elapsed();
        // ORDERING: Relaxed, as above.
        is_over.0.store(true, Relaxed);
        elapsed
    })
}
