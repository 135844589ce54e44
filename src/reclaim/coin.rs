//! Makes links return `Retry` at random in unit tests and models. In other builds, this module
//! compiles to nothing.

#[cfg(any(test, tollgate_loom))]
use std::cell::Cell;

// This is an ordinary std thread-local, not one of the model checker's. A model runs all its
// threads on one system thread, so they share the coin.
#[cfg(any(test, tollgate_loom))]
thread_local! {
    /// The state of a random generator, or `None` when no coin is in use.
    static COIN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Calls `work`. During the call, one in four links that this thread follows returns `Retry`. In a
/// model, this applies to all threads.
#[cfg(any(test, tollgate_loom))]
// The models of reclamation itself also compile this file, but do not toss coins.
#[cfg_attr(tollgate_loom, allow(dead_code))]
pub fn toss<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    COIN.set(Some(seed));
    let done = work();
    COIN.set(None);
    done
}

#[cfg(any(test, tollgate_loom))]
pub(super) fn asks_to_retry() -> bool {
    let Some(coin) = COIN.get() else { return false };
    // This is the generator of Knuth's MMIX. Its upper bits are better than its lower bits.
    let next = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    COIN.set(Some(next));
    next >> 62 == 0
}

#[cfg(not(any(test, tollgate_loom)))]
#[inline(always)]
pub(super) const fn asks_to_retry() -> bool {
    false
}
