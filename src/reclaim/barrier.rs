//! A fence in two halves: a light one for readers, and a heavy one that makes up for it.
//!
//! A thread that announces that it reads, and then reads, needs a fence between the two: without
//! one, another thread may see neither. That fence would be a large part of a check. So readers
//! only keep the compiler from moving one past the other ([`light`]), and a
//! collection has the system run a fence on every processor that runs a thread of this process
//! ([`heavy`]; some microseconds, once in a collection). One light and one heavy half together do
//! what two fences do; two light ones do nothing. The terms are those of P1202, *Asymmetric
//! Fences*, a proposal for C++; Linux promises it of `membarrier(2)` from 4.14 on.
//!
//! Where the system has no such call, or refuses it, both halves are fences. Which of the two
//! applies is found out once for the whole process ([`is_there`]). A process that forbids itself
//! the call later frees nothing from then on: tables keep to their bound on memory, but what logs
//! retire stays.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | barrier | `heavy`, after a value is unlinked | `light`, after a guard is announced | to one of the two what the other did before: the announcement, or that the value is unlinked | `nothing_is_freed_under_a_guard`, `a_renewed_guard_lets_go_of_what_it_had_loaded` |

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

/// The light half: runs between an announcement and the loads after it. (A guard that is made where
/// [`is_there`] has returned true before does without the question.)
pub(super) fn light() {
    if is_there() {
        // ORDERING: *barrier*; the processor's part is in `heavy`.
        compiler_fence(SeqCst);
    } else {
        // ORDERING: *barrier*.
        fence(SeqCst);
    }
}

/// The heavy half: runs between unlinking values and looking at the guards. False if the system has
/// refused it: then guards may be unseen.
pub(super) fn heavy() -> bool {
    // ORDERING: *barrier*, for this thread; for all threads where there is no heavy half.
    fence(SeqCst);
    !is_there() || system::fence_all() || system::register() && system::fence_all()
}

/// In models both halves are fences, which is what the two do together; or nothing, where a test
/// must not rest on them.
#[cfg(tollgate_loom)]
mod model {
    pub(crate) use loom::sync::atomic::Ordering::SeqCst;
    use loom::sync::atomic::{Ordering, fence as fence_of_loom};
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// How a model runs the halves.
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

    /// Loom has no compiler fence. This does what it does together with the heavy half.
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

    /// Returns whether there is a heavy half. The answer never changes: a system may permit the
    /// call to one thread and not to another, and then no thread may rely on it.
    pub(crate) fn is_there() -> bool {
        // ORDERING: relaxed; there is one answer, which the first thread that asks decides.
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

        /// Registers this process for such fences. Needed once; a forked child may have to repeat
        /// it.
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
