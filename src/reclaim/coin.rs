//! Links that ask to retry at random, for unit tests and models. Elsewhere this compiles to
//! nothing.

#[cfg(any(test, tollgate_loom))]
use std::cell::Cell;

// Not a thread-local of the model checker: a model runs all its threads on one thread of the
// system, and they share the coin.
#[cfg(any(test, tollgate_loom))]
thread_local! {
    /// The state of a random generator, while it is in use.
    static COIN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Calls `work`. Of the links that this thread follows in it, one in four asks to retry. In a model
/// that holds for all threads.
#[cfg(any(test, tollgate_loom))]
// The models of reclamation itself compile this file, too, and toss no coin.
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
    // The generator of Knuth's MMIX, whose upper bits are the better ones.
    let next = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    COIN.set(Some(next));
    next >> 62 == 0
}

#[cfg(not(any(test, tollgate_loom)))]
#[inline(always)]
pub(super) const fn asks_to_retry() -> bool {
    false
}
