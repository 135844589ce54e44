//! A fence in two halves: a light half for readers, and a heavy half for collections.
//!
//! A thread that announces a guard and then reads needs a fence between the two. Without a fence,
//! the thread may read a link before it is changed, while the thread that changes the link does not
//! see the announcement. A fence would be a large part of a check. Therefore readers only keep the
//! compiler from reordering the two ([`light`]), and a collection makes the system run a fence on
//! every processor that runs a thread of this process ([`heavy`]; some microseconds, once in a
//! collection). A light half and a heavy half together have the effect of two fences; two light
//! halves have no effect. The terms are from P1202, *Asymmetric Fences*, a proposal for C++. Linux
//! guarantees these semantics for `membarrier(2)` from 4.14 on.
//!
//! If the system has no such call, or refuses it, both halves are fences. This is determined once
//! for the whole process ([`is_there`]). If a process forbids itself the call later, nothing is
//! freed from then on: tables keep to their bound on memory, but the retired chunks of logs stay.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | barrier | `heavy`, after a value is unlinked | `light`, after a guard is announced | to one of the two threads, what the other did before: the announcement, or that the value is unlinked | `nothing_is_freed_under_a_guard`, `a_renewed_guard_lets_go_of_what_it_had_loaded` |

#[cfg(tollgate_loom)]
pub(super) use model::{Halves, SeqCst, compiler_fence, is_there};
#[cfg(tollgate_loom)]
use model::{fence, system};
#[cfg(not(tollgate_loom))]
pub(super) use real::is_there;
#[cfg(not(tollgate_loom))]
use real::system;
#[cfg(not(tollgate_loom))]
use std::sync::atomic::fence;
#[cfg(not(tollgate_loom))]
pub(super) use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

/// The light half, which runs between an announcement and the loads after it. (The fast path of a
/// guard skips this call of [`is_there`], because it has returned true before.)
pub(super) fn light() {
    if is_there() {
        // ORDERING: *barrier*; `heavy` has the processor's part.
        compiler_fence(SeqCst);
    } else {
        // ORDERING: *barrier*.
        fence(SeqCst);
    }
}

/// The heavy half, which runs between unlinking values and reading the guards. Returns false if the
/// system has refused the call; then there may be guards that this thread does not see.
pub(super) fn heavy() -> bool {
    // ORDERING: *barrier*, for this thread; for all threads if there is no heavy half.
    fence(SeqCst);
    !is_there() || system::fence_all() || system::register() && system::fence_all()
}

/// In models both halves are fences, which have the same effect together, or do nothing, if a test
/// must not depend on them.
#[cfg(tollgate_loom)]
mod model {
    pub(crate) use loom::sync::atomic::Ordering::SeqCst;
    use loom::sync::atomic::{Ordering, fence as fence_of_loom};
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// The behavior of the halves in a model.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Halves {
        /// Fences.
        Fences,
        /// Fences, as on a system without the heavy half: every guard is made on the slow path.
        Alike,
        /// Nothing.
        Nothing,
    }

    /// Belongs to the test harness: models run one at a time.
    static HALVES: AtomicU8 = AtomicU8::new(Halves::Fences as u8);

    impl Halves {
        /// Sets the halves for all models of the process from now on.
        pub(crate) fn set(self) {
            // ORDERING: relaxed; see `HALVES`.
            HALVES.store(self as u8, Relaxed);
        }

        fn are(self) -> bool {
            // ORDERING: relaxed; see `HALVES`.
            HALVES.load(Relaxed) == self as u8
        }
    }

    pub(crate) fn is_there() -> bool {
        !Halves::Alike.are()
    }

    pub(crate) fn fence(order: Ordering) {
        if !Halves::Nothing.are() {
            fence_of_loom(order);
        }
    }

    /// Loom has no compiler fence. This fence has the effect of a compiler fence and the heavy half
    /// together.
    pub(crate) use fence as compiler_fence;

    pub(super) mod system {
        pub(crate) fn register() -> bool {
            true
        }

        /// Does nothing: the fence of `heavy` suffices in a model.
        pub(crate) fn fence_all() -> bool {
            true
        }
    }
}

#[cfg(not(tollgate_loom))]
mod real {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const UNKNOWN: u8 = 0;
    const THERE: u8 = 1;
    const MISSING: u8 = 2;

    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns whether there is a heavy half. The answer never changes, because a system may permit
    /// the call to one thread but not to another, and then no thread may rely on it.
    pub(crate) fn is_there() -> bool {
        // ORDERING: relaxed; there is one answer, which the first calling thread decides.
        let found = match FOUND.load(Relaxed) {
            UNKNOWN => {
                let mine = if system::register() { THERE } else { MISSING };
                // ORDERING: relaxed; like the load of `FOUND`.
                FOUND.compare_exchange(UNKNOWN, mine, Relaxed, Relaxed).map_or_else(|first| first, |_| mine)
            }
            found => found,
        };
        found == THERE
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) mod system {
        use libc::{
            MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, SYS_membarrier,
            c_int, syscall,
        };

        /// Registers this process for such fences, which is needed once. A forked child may have to
        /// register again.
        pub(crate) fn register() -> bool {
            membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        }

        pub(crate) fn fence_all() -> bool {
            membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        }

        fn membarrier(command: c_int) -> bool {
            const FLAGS: c_int = 0;
            const PROCESSOR: c_int = 0;
            // SAFETY: the call takes three numbers, and neither reads nor writes memory of the
            // program.
            #[allow(unsafe_code)]
            let answer = unsafe { syscall(SYS_membarrier, command, FLAGS, PROCESSOR) };
            answer == 0
        }
    }

    /// This system has no such call, or none that this crate uses.
    #[cfg(any(not(target_os = "linux"), miri))]
    pub(super) mod system {
        pub(crate) fn register() -> bool {
            false
        }

        pub(crate) fn fence_all() -> bool {
            false
        }
    }
}
