//! A fence in two halves: a light half for readers and a heavy half for collections.
//!
//! A thread that announces a guard and then reads needs a fence between the two steps. Without a
//! fence, the thread may read the old value of a link, while the thread that changes the link does
//! not see the announcement. A fence would be a large part of the cost of a check. Therefore
//! readers only prevent the compiler from reordering the two steps ([`light`]). A collection, in
//! turn, makes the system execute a fence on every processor that runs a thread of this process
//! ([`heavy`]), which takes a few microseconds.
//!
//! A light half and a heavy half together have the effect of two fences, whereas two light halves
//! have no effect. The terms are from P1202, *Asymmetric Fences*, a proposal for C++. Linux has
//! guaranteed these semantics for `membarrier(2)` since 4.14.
//!
//! If the system lacks or refuses this call, both halves are fences. The choice is made once for
//! the whole process ([`is_there`]). If a process later forbids this call for itself, nothing is
//! freed from then on. Tables stay within their memory bounds, but the retired chunks of logs are
//! never freed.
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

/// The light half, which is executed between an announcement and the loads that follow. (The fast
/// path of `pin` does not call [`is_there`], because a thread can take the fast path only once
/// `is_there` has returned true.)
pub(super) fn light() {
    if is_there() {
        // ORDERING: *barrier*. `heavy` contributes the processor's fence.
        compiler_fence(SeqCst);
    } else {
        // ORDERING: *barrier*.
        fence(SeqCst);
    }
}

/// The heavy half, which is executed after unlinking values and before reading the guards. Returns
/// false if the system has refused the call, in which case some guards may be invisible to this
/// thread.
pub(super) fn heavy() -> bool {
    // ORDERING: *barrier*. The fence covers the calling thread. Without a heavy half, no further
    // fence is needed, because every reader executes a fence.
    fence(SeqCst);
    !is_there() || system::fence_all() || system::register() && system::fence_all()
}

/// In models, both halves are normally fences. Two fences have the same effect as a light half and
/// a heavy half. In tests that must not depend on the barrier, both halves do nothing.
#[cfg(tollgate_loom)]
mod model {
    pub(crate) use loom::sync::atomic::Ordering::SeqCst;
    use loom::sync::atomic::{Ordering, fence as fence_of_loom};
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// The behaviour of the halves in a model.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Halves {
        /// Fences.
        Fences,
        /// Both halves are fences, as on a system without the heavy half. Every guard is created on
        /// the slow path.
        Alike,
        /// Nothing.
        Nothing,
    }

    /// This static belongs to the test harness, in which models run one at a time.
    static HALVES: AtomicU8 = AtomicU8::new(Halves::Fences as u8);

    impl Halves {
        /// Sets the halves for all further models in the process.
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

    /// Loom has no compiler fence, so a fence replaces it. Together with the fence in `heavy`, it
    /// has the same effect as a compiler fence and the real heavy half.
    pub(crate) use fence as compiler_fence;

    pub(super) mod system {
        pub(crate) fn register() -> bool {
            true
        }

        /// Does nothing, because the fence in `heavy` is enough in a model.
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

    /// Returns whether there is a heavy half. The answer never changes. If a system permits the
    /// call for one thread but refuses it for another, no thread may rely on the heavy half.
    pub(crate) fn is_there() -> bool {
        // ORDERING: relaxed, because there is only one answer, which the first calling thread
        // determines.
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
            MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_QUERY,
            MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, SYS_membarrier, c_int, c_long, syscall,
        };

        /// Registers this process for these fences. One registration is enough for a process, but a
        /// forked child may have to register again.
        ///
        /// Some sandboxes answer every command with 0 and do nothing. To a query, 0 means that no
        /// command is supported.
        pub(crate) fn register() -> bool {
            let commands = MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
            let supported = membarrier(MEMBARRIER_CMD_QUERY);
            // An error, -1, has these bits as well.
            supported > 0
                && supported & c_long::from(commands) == c_long::from(commands)
                && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0
        }

        pub(crate) fn fence_all() -> bool {
            membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0
        }

        /// Returns -1 if the system refuses the command.
        fn membarrier(command: c_int) -> c_long {
            const FLAGS: c_int = 0;
            const PROCESSOR: c_int = 0;
            // SAFETY: the arguments are three numbers, and the call neither reads nor writes the
            // program's memory.
            #[allow(unsafe_code)]
            unsafe {
                syscall(SYS_membarrier, command, FLAGS, PROCESSOR)
            }
        }
    }

    /// This system has no such call, or this crate does not use it.
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
