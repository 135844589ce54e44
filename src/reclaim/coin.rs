//! Links that are stale at random, for unit tests. Elsewhere this compiles to nothing.

#[cfg(any(not(test), tollgate_loom))]
#[inline(always)]
pub(super) const fn shows_stale() -> bool {
    false
}

#[cfg(all(test, not(tollgate_loom)))]
pub(crate) use tests::{shows_stale, toss};

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::cell::Cell;

    thread_local! {
        /// The state of a random generator, while it is in use.
        static COIN: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Calls `work`. Of the links that this thread follows in it, one in four is stale.
    pub(crate) fn toss<T>(seed: u64, work: impl FnOnce() -> T) -> T {
        COIN.set(Some(seed));
        let done = work();
        COIN.set(None);
        done
    }

    pub(crate) fn shows_stale() -> bool {
        let Some(coin) = COIN.get() else { return false };
        // The generator of Knuth's MMIX, whose upper bits are the better ones.
        let next = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        COIN.set(Some(next));
        next >> 62 == 0
    }
}
