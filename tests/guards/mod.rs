//! Threads that hold guards because they are stopped inside a check.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tollgate::Limiter;
use tollgate::store::Equivalent;

/// A key whose hash is computed inside a check, under the guard of the check.
struct Within<'a> {
    limiter: &'a Limiter<u64>,
    more: usize,
    inside: &'a dyn Fn(),
}

impl Hash for Within<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.more {
            0 => (self.inside)(),
            more => _ = self.limiter.check(&Within { more: more - 1, ..*self }),
        }
        0_u64.hash(state);
    }
}

impl Equivalent<u64> for Within<'_> {
    fn equivalent(&self, key: &u64) -> bool {
        *key == 0
    }
}

/// Calls `inside` in nested checks, so that this thread holds `guards` guards.
fn under_guards(limiter: &Limiter<u64>, guards: usize, inside: &dyn Fn()) {
    let _ = limiter.check(&Within { limiter, more: guards - 1, inside });
}

/// A thread that is stopped inside checks until this value is dropped. While stopped, it writes
/// nothing.
pub(crate) struct Stopped {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopped {
    /// Stops a thread that holds `guards` guards. The limiter is leaked.
    pub(crate) fn under_guards(limiter: Limiter<u64>, guards: usize) -> Self {
        let limiter: &'static Limiter<u64> = Box::leak(Box::new(limiter));
        let [goes_on, is_stopped] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (woken, stopped) = (Arc::clone(&goes_on), Arc::clone(&is_stopped));
        let thread = thread::spawn(move || {
            under_guards(limiter, guards, &|| {
                stopped.store(true, SeqCst);
                wait_for(&woken);
            });
        });
        wait_for(&is_stopped);
        Self { goes_on, thread: Some(thread) }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.goes_on.store(true, SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `body` while another thread is stopped in a check of this limiter.
pub(crate) fn while_a_thread_is_stopped(limiter: &Limiter<u64>, body: impl FnOnce()) {
    let [goes_on, is_stopped] = [(); 2].map(|()| AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            under_guards(limiter, 1, &|| {
                is_stopped.store(true, SeqCst);
                wait_for(&goes_on);
            });
        });
        let _end = SetAtEnd(&goes_on);
        wait_for(&is_stopped);
        body();
    });
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}
